"""Which waiting pods had no attempt yet, because others had their turn before them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; pods that wait already were tried."""
    op.add_column(
        "pending",
        sa.Column(
            "tried",
            sa.Boolean,
            nullable=False,
            server_default=sa.true(),
            comment="false: it waits its turn for a first attempt",
        ),
    )


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("pending", "tried")
