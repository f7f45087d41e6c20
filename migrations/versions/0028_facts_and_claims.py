"""Count changes of specs apart, note which placements a node counts, and let a uid live in two shards."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_OPEN = sa.text("released_at_ms IS NULL")
_ONE_OPEN = "which pod counted on which node over which time; at most one open row per pod"


def upgrade() -> None:
    """Pods on nodes that are not known were never counted."""
    op.add_column(
        "nodes",
        sa.Column(
            "spec_count", sa.BigInteger, nullable=False, server_default="1", comment="changes of the spec"
        ),
    )
    op.add_column(
        "placements",
        sa.Column(
            "counted",
            sa.Boolean,
            nullable=False,
            server_default=sa.true(),
            comment="false: its node is not known, so no row counts it",
        ),
    )
    op.execute(
        "UPDATE placements p SET counted = false WHERE released_at_ms IS NULL"
        " AND NOT EXISTS (SELECT FROM nodes n WHERE n.name = p.node)"
    )
    op.drop_index("placements_open", "placements")
    op.create_index(
        "placements_open", "placements", ["pod_uid", "shard"], unique=True, postgresql_where=_OPEN
    )
    op.create_table_comment("placements", f"{_ONE_OPEN} and shard", existing_comment=_ONE_OPEN)
    op.drop_constraint("pending_pkey", "pending")
    op.create_primary_key("pending_pkey", "pending", ["pod_uid", "shard"])


def downgrade() -> None:
    """Forget it. It fails where a uid lives in two shards."""
    op.drop_constraint("pending_pkey", "pending")
    op.create_primary_key("pending_pkey", "pending", ["pod_uid"])
    op.create_table_comment("placements", _ONE_OPEN, existing_comment=f"{_ONE_OPEN} and shard")
    op.drop_index("placements_open", "placements")
    op.create_index("placements_open", "placements", ["pod_uid"], unique=True, postgresql_where=_OPEN)
    op.drop_column("placements", "counted")
    op.drop_column("nodes", "spec_count")
