"""Leases in tables of their own, by the database's clock, and one row per start of a worker."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_LEASES = {
    "worker_leases": ("shards", "who may change a shard, and until when; commits lock none of it"),
    "relay_leases": ("relay_cursor", "who publishes a shard, and until when"),
}
_TIME = sa.DateTime(timezone=True)
_OLD: dict[str, sa.types.TypeEngine[Any]] = {
    "owner": sa.Text(),
    "lease_until": _TIME,
    "owner_pid": sa.Integer(),
    "owner_started": _TIME,
}


def _moment(name: str, comment: str) -> sa.Column[object]:
    return sa.Column(name, _TIME, comment=comment)


def _now(name: str) -> sa.Column[object]:
    return sa.Column(name, _TIME, nullable=False, server_default=sa.func.clock_timestamp())


def upgrade() -> None:
    """Create the tables. Whoever held a lease before is fenced by its next owner."""
    op.create_table(
        "workers",
        sa.Column("incarnation", sa.Uuid, primary_key=True, comment="made anew at each start of a process"),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("build", sa.Text, nullable=False, comment="version of berth"),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False, comment="what decides, beside the log"),
        _now("started_at"),
        _now("seen_at"),
        _moment("stopped_at", "null: it runs, or was killed"),
        comment="one row per start of a worker, with its last heartbeat",
    )
    for table, (fenced, comment) in _LEASES.items():
        op.create_table(
            table,
            sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("owner", sa.Text, comment="null: released"),
            sa.Column("holder", sa.Uuid, comment="the owner's process; of a worker: workers.incarnation"),
            sa.Column(
                "epoch", sa.BigInteger, nullable=False, server_default="0", comment="counts the owners"
            ),
            _moment("taken_at", "since when it is the owner"),
            _moment("expires_at", "by the database's clock"),
            postgresql_with={"fillfactor": "60"},
            comment=comment,
        )
        op.execute(f"INSERT INTO {table} (shard, epoch) SELECT shard, epoch FROM {fenced}")
        for column in _OLD:
            op.drop_column(fenced, column)
    _say_of_shards("epoch and counters, one row per shard; who owns it is in worker_leases")


def downgrade() -> None:
    """Go back to leases by connections."""
    for table, (fenced, _) in _LEASES.items():
        op.drop_table(table)
        for name, kind in _OLD.items():
            op.add_column(fenced, sa.Column(name, kind))
    op.drop_table("workers")
    _say_of_shards("ownership and counters, one row per shard")


def _say_of_shards(comment: str) -> None:
    op.create_table_comment("shards", comment)
