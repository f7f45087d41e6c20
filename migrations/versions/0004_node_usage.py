"""Measured usage: one row per node that was measured, with the window that scores and filters read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "node_usage",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False, comment="of the latest measurement"),
        sa.Column("series", sa.JSON, nullable=False, comment="resource to SeriesRecord"),
        sa.Column("marks", sa.JSON, nullable=False, comment="shard to the next seq when it was folded"),
        postgresql_with={"fillfactor": "60"},
        comment="measured usage, as far back as windows reach",
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("node_usage")
