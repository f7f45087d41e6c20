"""Remember what was audited, and how far the history was pruned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables. Nothing was audited or pruned so far."""
    op.create_table(
        "audits",
        sa.Column("at", sa.DateTime(timezone=True), primary_key=True, comment="when its snapshot was taken"),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("ok", sa.Boolean, nullable=False, comment="everything held but what is a warning"),
        sa.Column("seqs", sa.JSON, nullable=False, comment="shard to [first, next] seq that it looked at"),
        sa.Column("batches", sa.JSON, nullable=False, comment="shard to [first, last] batch of its journal"),
        sa.Column(
            "broken", sa.JSON, nullable=False, comment="the invariants that do not hold, with offenders"
        ),
        comment="one row per audit; the next one goes on where the last one ended in which all held",
    )
    op.create_table(
        "pruned",
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column(
            "seq_below",
            sa.BigInteger,
            nullable=False,
            comment="of older decisions only those are kept that explain a pod which is placed or waits",
        ),
        comment="how far the history of each shard was pruned; no row: all of it is kept",
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("pruned")
    op.drop_table("audits")
