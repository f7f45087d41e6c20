"""What is known of a pod's life: when it started, whether it is being deleted, who made it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TABLES = ("placements", "pending")
_COMMENT = "PodLife as JSON: start, deletion, controller; null: nothing"


def upgrade() -> None:
    """Add the column; of older rows nothing is known."""
    for table in _TABLES:
        op.add_column(table, sa.Column("life", sa.Text, comment=_COMMENT))


def downgrade() -> None:
    """Drop the column."""
    for table in _TABLES:
        op.drop_column(table, "life")
