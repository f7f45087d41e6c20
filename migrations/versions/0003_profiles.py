"""Profiles: every revision that an event made of one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "profiles",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False, comment="counts the changes, from 1"),
        sa.Column("spec", sa.JSON, comment="filters and scores; null: deleted"),
        sa.Column("resource_version", sa.BigInteger),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("name", "revision"),
        comment="every revision that an event made of a profile; the last one is in force",
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("profiles")
