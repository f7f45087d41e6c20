"""Ask for a re-fold of a ledger whose pods were written without what they ask of each other."""

from __future__ import annotations

import logging

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_COLUMNS = (
    (
        "shards",
        sa.Column(
            "refold",
            sa.Boolean,
            nullable=False,
            server_default=sa.false(),
            comment="its pods must be read from the log again (`berth refold`) before a worker may start",
        ),
    ),
    (
        "shard_offsets",
        sa.Column(
            "refold_below",
            sa.BigInteger,
            comment="records below are read once more for what they say of known pods; null: none",
        ),
    ),
)


def upgrade() -> None:
    """Add the columns. Pods of before have no constraints, no controller and no start."""
    for table, column in _COLUMNS:
        op.add_column(table, column)
    asked = op.get_bind().execute(
        sa.text(
            "UPDATE shards SET refold = true WHERE EXISTS (SELECT FROM pending) "
            "OR EXISTS (SELECT FROM placements WHERE released_at_ms IS NULL)"
        )
    )
    if asked.rowcount:
        logging.getLogger("berth.migrations").warning(
            "the pods of this ledger were written without their spread constraints and affinity terms: run "
            "`berth refold` once, before any worker starts"
        )


def downgrade() -> None:
    """Drop the columns."""
    for table, column in _COLUMNS:
        op.drop_column(table, column.name)
