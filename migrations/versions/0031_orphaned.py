"""Say of placed pods whether they were told that their node is gone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Until now one worker had all shards, and told all pods whatever became of their nodes."""
    op.add_column(
        "placements",
        sa.Column(
            "orphaned",
            sa.Boolean,
            nullable=False,
            server_default=sa.false(),
            comment="the pod was told last that its node is gone",
        ),
    )
    op.execute(
        "UPDATE placements p SET orphaned = true FROM nodes n"
        " WHERE p.released_at_ms IS NULL AND n.name = p.node AND n.deleted"
    )
    op.create_index(
        "placements_orphaned",
        "placements",
        ["shard"],
        postgresql_where=sa.text("orphaned AND released_at_ms IS NULL"),
    )


def downgrade() -> None:
    """Forget it."""
    op.drop_index("placements_orphaned", "placements")
    op.drop_column("placements", "orphaned")
