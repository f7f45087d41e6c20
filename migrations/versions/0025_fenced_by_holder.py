"""Fence by the holder beside the epoch: a ledger that lost its last transactions gives an epoch twice."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

TABLES = {"shards": "worker_leases", "relay_cursor": "relay_leases"}


def upgrade() -> None:
    """Add the holders, and let who holds a lease go on."""
    for table, leases in TABLES.items():
        op.add_column(table, sa.Column("holder", sa.Uuid, comment="the process that has this epoch"))
        op.execute(f"UPDATE {table} t SET holder = l.holder FROM {leases} l WHERE l.shard = t.shard")


def downgrade() -> None:
    """Fence by the epoch alone."""
    for table in TABLES:
        op.drop_column(table, "holder")
