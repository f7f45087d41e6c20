"""Tables about the log: the embedded one itself, what a log lost, and the name that this ledger has there."""

from __future__ import annotations

import sqlalchemy as sa

from services.adapters.postgres.schema_api import metadata

log_topics = sa.Table(
    "log_topics",
    metadata,
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("compacted", sa.Boolean, nullable=False),
    sa.Column("id", sa.Text, nullable=False, comment="the topic's own: made anew, it has another"),
    sa.Column(
        "first_offset",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="records below are gone by retention; compaction leaves it",
    ),
    sa.PrimaryKeyConstraint("topic", "partition"),
    comment="embedded log: partitions; the row lock on next_offset makes offsets commit in order",
)

log_records = sa.Table(
    "log_records",
    metadata,
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("log_offset", sa.BigInteger, nullable=False),
    sa.Column("key", sa.LargeBinary),
    sa.Column("value", sa.LargeBinary),
    sa.Column("timestamp_ms", sa.BigInteger, nullable=False),
    sa.Column("seal", sa.LargeBinary, comment="who sent it, sealed; null: nobody says so"),
    sa.PrimaryKeyConstraint("topic", "partition", "log_offset"),
    comment="embedded log: records",
)

log_faults = sa.Table(
    "log_faults",
    metadata,
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, comment="of the worker that found it"),
    sa.Column("found_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("code", sa.Text, nullable=False, comment="recreated, truncated or tail-lost"),
    sa.Column("next_offset", sa.BigInteger, nullable=False, comment="where the shard would have gone on"),
    sa.Column("first_offset", sa.BigInteger, nullable=False, comment="of the log then"),
    sa.Column("end_offset", sa.BigInteger, nullable=False, comment="of the log then"),
    sa.Column("goes_on_at", sa.BigInteger, nullable=False, comment="where it goes on instead"),
    sa.PrimaryKeyConstraint("topic", "partition", "epoch"),
    comment="each time that a partition did not hold what a shard would read next",
)

unmentioned = sa.Table(
    "unmentioned",
    metadata,
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("key", sa.Text, nullable=False, comment="as the records of the topic have it"),
    sa.Column("uid", sa.Text, nullable=False, comment="of a pod; empty for others"),
    sa.Column("node", sa.Text, nullable=False, comment="where the pod is; empty: nowhere, or no pod"),
    sa.PrimaryKeyConstraint("topic", "partition", "epoch", "key"),
    comment="what the ledger has and a log that lost records does not mention any more",
)

ledger_name = sa.Table(
    "ledger_name",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False, comment="1"),
    sa.Column("name", sa.Text, nullable=False, comment="drawn once, when the table was made"),
    sa.CheckConstraint("id = 1", name="ledger_name_one"),
    comment="which ledger this is",
)
