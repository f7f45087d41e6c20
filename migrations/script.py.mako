"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}
works_from = ${repr(up_revision)}


def upgrade() -> None:
    """Change the database."""
    ${upgrades if upgrades else "pass"}
