"""Note up to where somebody took note of what the topic holds and the ledger does not."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. What was acknowledged before stays so; nobody knows when that was."""
    below = sa.Column(
        "acknowledged_offset",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="below this offset of the topic, what is not the ledger's was acknowledged",
    )
    op.add_column("relay_cursor", below)
    at = sa.Column("acknowledged_at", sa.DateTime(timezone=True), comment="null: never, or nobody knows")
    op.add_column("relay_cursor", at)
    op.execute("UPDATE relay_cursor SET acknowledged_offset = compared_offset WHERE alarm IS NULL")


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("relay_cursor", "acknowledged_at")
    op.drop_column("relay_cursor", "acknowledged_offset")
