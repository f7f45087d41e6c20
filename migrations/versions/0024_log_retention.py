"""Note where each partition of the embedded log begins, so that old records can go."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Nothing was removed so far."""
    column = sa.Column(
        "first_offset",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="records below are gone by retention; compaction leaves it",
    )
    op.add_column("log_topics", column)


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("log_topics", "first_offset")
