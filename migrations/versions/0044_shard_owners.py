"""Keep who owned which shard when: the leases know only the present owner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None
works_from = "0043"  # older workers write no history


def upgrade() -> None:
    """Make the table. Its history begins with who owns the shards by now."""
    op.create_table(
        "shard_owners",
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("holder", sa.Uuid, nullable=False, comment="workers.incarnation"),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "ended_at",
            sa.DateTime(timezone=True),
            comment="released, or taken by another; null: neither",
        ),
        comment="one row per owner that a shard had: nothing but history, no worker reads it",
    )
    op.execute(
        "INSERT INTO shard_owners (shard, epoch, owner, holder, taken_at) "
        "SELECT shard, epoch, owner, holder, taken_at FROM worker_leases "
        "WHERE owner IS NOT NULL AND holder IS NOT NULL AND taken_at IS NOT NULL"
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("shard_owners")
