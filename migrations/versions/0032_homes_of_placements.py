"""Let a placement have another shard than its decision, once there are more shards."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_OPEN = sa.text("released_at_ms IS NULL")


def upgrade() -> None:
    """Add the column, empty: every pod's events come by the shard that placed it."""
    home = sa.Column("home", sa.Integer, comment="shard of its events since shards were added; null: shard")
    op.add_column("placements", home)
    op.drop_index("placements_open", "placements")
    op.create_index(
        "placements_open",
        "placements",
        ["pod_uid", sa.text("coalesce(home, shard)")],
        unique=True,
        postgresql_where=_OPEN,
    )


def downgrade() -> None:
    """Drop the column."""
    op.drop_index("placements_open", "placements")
    op.create_index(
        "placements_open", "placements", ["pod_uid", "shard"], unique=True, postgresql_where=_OPEN
    )
    op.drop_column("placements", "home")
