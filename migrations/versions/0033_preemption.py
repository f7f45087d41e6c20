"""Let pods have a node promised, and others leave it for them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, empty."""
    op.create_table(
        "nominations",
        sa.Column("pod_uid", sa.Text, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pod_uid", "shard"),
        comment="pending pods to which a node is promised",
    )
    op.create_table(
        "evictions",
        sa.Column("victim_uid", sa.Text, nullable=False),
        sa.Column("victim_shard", sa.Integer, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("preemptor_uid", sa.Text, nullable=False),
        sa.Column("preemptor_shard", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("victim_uid", "victim_shard"),
        comment="placed pods that have to leave, and have not; nobody is evicted for two",
    )
    op.create_index("evictions_preemptor", "evictions", ["preemptor_uid"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("evictions")
    op.drop_table("nominations")
