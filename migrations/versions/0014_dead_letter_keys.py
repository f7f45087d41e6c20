"""An index by which somebody who sees few namespaces finds the dead letters of their pods."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index. It holds the beginning of a key, since a key may be longer than an index takes."""
    op.create_index("dead_letters_key", "dead_letters", [sa.text("substring(key, 1, 256)")])


def downgrade() -> None:
    """Drop it."""
    op.drop_index("dead_letters_key", "dead_letters")
