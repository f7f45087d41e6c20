"""Configuration objects: the latest of each, whatever its kind."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "config_objects",
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False, comment="'' where the kind has none"),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("object", sa.JSON, comment="as its kind writes it; null: deleted"),
        sa.Column("resource_version", sa.BigInteger),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("kind", "namespace", "name"),
        comment="the latest of each configuration object; profiles have a table of their own",
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("config_objects")
