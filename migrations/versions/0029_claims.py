"""Let workers notice each other where rules read pods of many nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, empty: what is in use announces itself once there are several workers."""
    op.create_table(
        "claims",
        sa.Column("key", sa.Text, primary_key=True, comment="a namespace, *, or a matcher (JSON)"),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("batches", JSONB, nullable=False, comment="shard to the last batch before the key came"),
        comment="what rules over pods of many nodes read, so that workers notice each other",
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("claims")
