"""The tables of processes: workers that are up, leases, and how far the relays have published."""

from __future__ import annotations

import sqlalchemy as sa

from services.adapters.postgres.schema_api import metadata

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("incarnation", sa.Uuid, primary_key=True, comment="made anew at each start of a process"),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("build", sa.Text, nullable=False, comment="version of berth"),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False, comment="what decides, beside the log"),
    sa.Column(
        "started_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()
    ),
    sa.Column(
        "seen_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()
    ),
    sa.Column("ready", sa.Boolean, nullable=False, server_default=sa.false(), comment="to take shards"),
    sa.Column("figures", sa.JSON, comment="how it gets on (Figures)"),
    sa.Column("stopped_at", sa.DateTime(timezone=True), comment="null: it runs, or was killed"),
    comment="one row per start of a worker, with its last heartbeat",
)


def _leases(table: str, comment: str) -> sa.Table:
    return sa.Table(
        table,
        metadata,
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, comment="null: released"),
        sa.Column("holder", sa.Uuid, comment="the owner's process; of a worker: workers.incarnation"),
        sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0", comment="counts the owners"),
        sa.Column("taken_at", sa.DateTime(timezone=True), comment="since when it is the owner"),
        sa.Column("expires_at", sa.DateTime(timezone=True), comment="by the database's clock"),
        postgresql_with={"fillfactor": "60"},
        comment=comment,
    )


worker_leases = _leases("worker_leases", "who may change a shard, and until when; commits lock none of it")
relay_leases = _leases("relay_leases", "who publishes a shard, and until when")

shard_owners = sa.Table(
    "shard_owners",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("holder", sa.Uuid, nullable=False, comment="workers.incarnation"),
    sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("ended_at", sa.DateTime(timezone=True), comment="released, or taken by another; null: neither"),
    comment="one row per owner that a shard had: nothing but history, no worker reads it",
)

relay_cursor = sa.Table(
    "relay_cursor",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("holder", sa.Uuid, comment="the process that has this epoch"),
    sa.Column("decisions_seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("dead_letters_seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("alarm", sa.Text, comment="what is wrong with the topic of decisions; null: nothing"),
    sa.Column(
        "compared_offset",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="below this offset of the topic, what is not the ledger's was reported",
    ),
    sa.Column(
        "generation",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="when the topic was last found to hold what is not the ledger's, in ms; 0: never",
    ),
    sa.Column(
        "acknowledged_offset",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="below this offset of the topic, what is not the ledger's was acknowledged",
    ),
    sa.Column("acknowledged_at", sa.DateTime(timezone=True), comment="null: never, or nobody knows"),
    comment="what the relay has published",
)
