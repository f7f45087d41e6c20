"""Ids of accepted events count for the key that sent them, and are forgotten after a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_COMMENT = "name of the key that sent it; empty: without a key"


def upgrade() -> None:
    """Add the holder. What was accepted before is of nobody: a key that repeats it appends it once more."""
    op.add_column(
        "ingested_events", sa.Column("holder", sa.Text, nullable=False, server_default="", comment=_COMMENT)
    )
    op.drop_constraint("ingested_events_pkey", "ingested_events")
    op.create_primary_key("ingested_events_pkey", "ingested_events", ["holder", "id"])
    op.create_index("ingested_events_time", "ingested_events", ["recorded_at"])


def downgrade() -> None:
    """Drop the holder. Of equal ids one stays."""
    op.drop_index("ingested_events_time", "ingested_events")
    op.execute(
        "DELETE FROM ingested_events a USING ingested_events b WHERE a.id = b.id AND a.holder > b.holder"
    )
    op.drop_constraint("ingested_events_pkey", "ingested_events")
    op.drop_column("ingested_events", "holder")
    op.create_primary_key("ingested_events_pkey", "ingested_events", ["id"])
