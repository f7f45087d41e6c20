"""Note up to where a partition holds records of before shards were added."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty: of shards that were added before it, nobody knows where that was."""
    comment = "records below are of before shards were added: their keys may have moved; null: none"
    op.add_column("shard_offsets", sa.Column("moved_below", sa.BigInteger, comment=comment))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("shard_offsets", "moved_below")
