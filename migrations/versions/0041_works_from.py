"""Say beside the tables which older versions of berth may work on them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None
works_from = "0039"

_TABLE, _COLUMN = "alembic_version", "works_from"


def upgrade() -> None:
    """Add the column. ``env.py`` fills it, from here on after each run."""
    about = "the oldest migration whose version of berth may work on these tables"
    op.add_column(_TABLE, sa.Column(_COLUMN, sa.String(32), comment=about))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column(_TABLE, _COLUMN)
