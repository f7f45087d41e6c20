"""Let a placement have another shard than its decision, once there are more shards."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_OPEN = sa.text("released_at_ms IS NULL")
_ORPHANED = sa.text("orphaned AND released_at_ms IS NULL")


def upgrade() -> None:
    """Add the column, empty: every pod's events come by the shard that placed it."""
    home = sa.Column("home", sa.Integer, comment="shard of its events since shards were added; null: shard")
    op.add_column("placements", home)
    _index("coalesce(home, shard)")


def downgrade() -> None:
    """Drop the column."""
    _index("shard")
    op.drop_column("placements", "home")


def _index(shard: str) -> None:
    op.drop_index("placements_open", "placements")
    op.drop_index("placements_orphaned", "placements")
    op.create_index(
        "placements_open", "placements", ["pod_uid", sa.text(shard)], unique=True, postgresql_where=_OPEN
    )
    op.create_index("placements_orphaned", "placements", [sa.text(shard)], postgresql_where=_ORPHANED)
