"""The access log: who asked the API for what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "access_log",
        sa.Column("minute_ms", sa.BigInteger, nullable=False, comment="when the minute of the request began"),
        sa.Column("digest", sa.LargeBinary, nullable=False, comment="of what equal requests have in common"),
        sa.Column("at_ms", sa.BigInteger, nullable=False, comment="of the first one"),
        sa.Column("last_at_ms", sa.BigInteger, nullable=False, comment="of the last one"),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.Column("caller", sa.Text, comment="who was let in; null: nobody"),
        sa.Column("roles", ARRAY(sa.Text), nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False, comment="path and query, where somebody was let in"),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("code", sa.Text, nullable=False, comment="of the error; empty: none"),
        sa.Column("duration_ms", sa.BigInteger, nullable=False, comment="of the slowest one"),
        sa.Column("events_count", sa.Integer, comment="events that the log took; null: none were sent"),
        sa.Column("spans", sa.JSON, nullable=False, comment="where: topic, partition, first offset, end"),
        sa.PrimaryKeyConstraint("minute_ms", "digest"),
        comment="who asked the API for what",
    )
    for column in ("caller", "status"):
        op.create_index(f"access_log_{column}", "access_log", [column, "minute_ms", "digest"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("access_log")
