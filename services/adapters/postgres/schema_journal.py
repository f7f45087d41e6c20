"""The tables by which a span of batches can be replayed."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from services.adapters.postgres.schema_api import metadata

journal = sa.Table(
    "journal",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False, comment="the least shard of the worker"),
    sa.Column("batch", sa.BigInteger, nullable=False, comment="next_offset of ~batches after it"),
    sa.Column(
        "start",
        sa.JSON(none_as_null=True),
        comment="what a worker began with that read its state from the ledger just before; else null",
    ),
    sa.Column("renewed", sa.Boolean, nullable=False, comment="a checkpoint was taken just before"),
    sa.Column("lanes", sa.JSON, nullable=False, comment="shard, topic, partition, lo, hi; by first record"),
    sa.Column("record_order", sa.LargeBinary, nullable=False, comment="lane of each record (uint16, zlib)"),
    sa.Column("seqs", sa.JSON, nullable=False, comment="shard to [first, next] seq of its decisions"),
    sa.Column("log_time_ms", sa.BigInteger, nullable=False),
    sa.Column("decisions_hash", sa.LargeBinary, nullable=False, comment="SHA-256 of the payloads"),
    sa.Column("effects", sa.JSON, nullable=False, comment="kind of row to start of its SHA-256"),
    sa.Column("digest", sa.Text, comment="of the state after it; of every 100th batch"),
    sa.Column(
        "recorded_at",
        sa.DateTime(timezone=True),
        nullable=False,
        server_default=sa.text("clock_timestamp()"),
    ),
    sa.Column(
        "position",
        sa.BigInteger,
        sa.Identity(),
        nullable=False,
        comment="whoever could see another batch is behind it",
    ),
    sa.Column("worker", sa.Text, nullable=False, server_default="", comment="who planned it"),
    sa.Column(
        "owned",
        sa.JSON(none_as_null=True),
        comment="how the shards of the worker changed since its batch before; null: not",
    ),
    sa.Column(
        "followed",
        sa.JSON(none_as_null=True),
        comment="shard to the last batch of another worker seen since the batch before; null: none",
    ),
    sa.Column(
        "forgotten",
        sa.JSON(none_as_null=True),
        comment="keys of pods that wait again since the batch before: others took their node; null: none",
    ),
    sa.Column(
        "lost",
        sa.JSON(none_as_null=True),
        comment="ids of nodes whose claims were not granted; null: none",
    ),
    sa.Column(
        "moved",
        sa.JSON(none_as_null=True),
        comment="node id to how far its version was ahead of what the worker knew; null: none",
    ),
    sa.Column(
        "feed",
        sa.LargeBinary,
        nullable=False,
        server_default="",
        comment="what other workers fold of the batch (Feed, msgpack)",
    ),
    sa.PrimaryKeyConstraint("shard", "batch"),
    sa.UniqueConstraint("position", name="journal_position"),
    comment="one row per batch: what it was made from, and hashes of what it wrote",
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("start", sa.JSON, nullable=False, comment="how its worker had begun, as in journal.start"),
    sa.Column("head", sa.JSON, nullable=False, comment="offsets and counters"),
    sa.Column("parts_count", sa.Integer, nullable=False),
    sa.Column("bytes_count", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.PrimaryKeyConstraint("shard", "batch"),
    comment="the ledger's state after a batch, complete: what a replay begins with",
)

checkpoint_parts = sa.Table(
    "checkpoint_parts",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("part", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False, comment="of its rows"),
    sa.Column("body", sa.LargeBinary, nullable=False, comment="rows as msgpack, compressed (zlib)"),
    sa.PrimaryKeyConstraint("shard", "batch", "part"),
    comment="the rows of checkpoints; without a row in checkpoints they are being written",
)

claims = sa.Table(
    "claims",
    metadata,
    sa.Column("key", sa.Text, primary_key=True, comment="a namespace, *, or a matcher (JSON)"),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("batches", JSONB, nullable=False, comment="shard to the last batch before the key came"),
    comment="what rules over pods of many nodes read, so that workers notice each other",
)
