"""The ledger, the embedded log, and what the API keeps."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "resources",
    "nodes",
    "node_specs",
    "templates",
    "placements",
    "decisions",
    "cycles",
    "pending",
    "pending_groups",
    "pod_tombstones",
    "shards",
    "shard_offsets",
    "dead_letters",
    "relay_cursor",
    "ingested_events",
    "api_keys",
    "log_topics",
    "log_records",
)


def upgrade() -> None:
    """Create all tables."""
    _create_cluster()
    _create_pods()
    _create_shards()
    _create_api()
    _create_log()


def downgrade() -> None:
    """Drop all tables."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _text(name: str, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), **{"nullable": False, **more})


def _number(name: str, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), **{"nullable": False, **more})


def _small(name: str, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer(), **{"nullable": False, **more})


def _bytes(name: str, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary(), **{"nullable": False, **more})


def _flag(name: str, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), **{"nullable": False, **more})


def _time(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=True)


def _now(name: str = "recorded_at") -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())


def _create_cluster() -> None:
    op.create_table(
        "resources",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, comment="position in vectors, from 1"),
        _text("name"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        comment="names of the resource dimensions",
    )
    op.create_table(
        "nodes",
        _number("id", autoincrement=False, comment="order of arrival"),
        _text("name"),
        _number("version", comment="commit counter; what the CAS compares"),
        _number("spec_version", comment="version that last changed the spec"),
        _flag("deleted", server_default=sa.false()),
        sa.Column("allocatable", ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("requested", ARRAY(sa.BigInteger()), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        postgresql_with={"fillfactor": "60"},
        comment="one row per node, for ever; no index on a column that changes",
    )
    op.create_table(
        "node_specs",
        _number("node_id"),
        _number("version", comment="nodes.version that this spec came with"),
        sa.Column(
            "spec", JSONB(), nullable=False, comment="NodeSpec; the last one when the node was deleted"
        ),
        _flag("deleted", server_default=sa.false()),
        _number("at_ms"),
        _now(),
        sa.PrimaryKeyConstraint("node_id", "version"),
        comment="history of node specs",
    )
    op.create_table(
        "templates",
        _bytes("signature"),
        sa.Column("spec", JSONB(), nullable=False, comment="PodTemplate"),
        sa.PrimaryKeyConstraint("signature"),
        comment="one row per equivalence group",
    )


def _create_pods() -> None:
    op.create_table(
        "placements",
        _small("shard"),
        _number("seq", comment="decision that opened it"),
        _text("pod_uid"),
        _text("namespace"),
        _text("name"),
        _number("resource_version", nullable=True),
        _bytes("signature"),
        _text("labels", nullable=True, comment="JSON object; null: none"),
        _text("node"),
        _flag("adopted"),
        _number("bound_at_ms"),
        _number("released_at_ms", nullable=True),
        _now(),
        _time("released_recorded_at"),
        sa.PrimaryKeyConstraint("shard", "seq"),
        comment="which pod counted on which node over which time; at most one open row per pod",
    )
    open_only = sa.text("released_at_ms IS NULL")
    op.create_index("placements_open", "placements", ["pod_uid"], unique=True, postgresql_where=open_only)
    op.create_table(
        "decisions",
        _small("shard"),
        _number("seq"),
        _number("epoch"),
        _text("pod_uid"),
        _text("namespace"),
        _text("name"),
        _text("outcome"),
        _text("node", nullable=True),
        _bytes("signature"),
        _number("cycle_seq", comment="cycles.seq that explains it; 0: none"),
        _number("decided_at_ms"),
        _now(),
        _bytes("payload", comment="the record of berth.decisions, as published"),
        sa.PrimaryKeyConstraint("shard", "seq"),
        comment="append-only: every decision, in commit order per shard",
    )
    op.create_index("decisions_pod", "decisions", ["namespace", "name"])
    op.create_table(
        "cycles",
        _small("shard"),
        _number("seq", comment="seq of the attempt's first decision"),
        _bytes("signature"),
        sa.Column("doc", sa.JSON(), nullable=False, comment="the rest of Cycle"),
        _now(),
        sa.PrimaryKeyConstraint("shard", "seq"),
        comment="one row per scheduling attempt of a group: filter counts, candidates, seed, generation",
    )
    op.create_table(
        "pending",
        _text("pod_uid"),
        _text("namespace"),
        _text("name"),
        _number("resource_version", nullable=True),
        _bytes("signature"),
        _text("labels", nullable=True),
        _small("shard"),
        _number("arrival"),
        _number("since_ms"),
        sa.PrimaryKeyConstraint("pod_uid"),
        comment="pods accepted and not placed",
    )
    op.create_index("pending_pod", "pending", ["namespace", "name"])
    op.create_index("pending_group", "pending", ["shard", "signature"])
    op.create_table(
        "pending_groups",
        _small("shard"),
        _bytes("signature"),
        sa.Column("reasons", JSONB(), nullable=False, comment="nodes per reason code at the last attempt"),
        _flag("unresolvable"),
        _number("cycle_seq"),
        _number("at_ms"),
        sa.PrimaryKeyConstraint("shard", "signature"),
        comment="why the pending pods of a signature wait",
    )
    op.create_table(
        "pod_tombstones",
        _text("namespace"),
        _text("name"),
        _text("uid"),
        _number("resource_version"),
        _small("shard"),
        _number("at_ms"),
        sa.PrimaryKeyConstraint("namespace", "name"),
        comment="last version of pods that are gone, against late duplicates",
    )


def _create_shards() -> None:
    op.create_table(
        "shards",
        _small("shard", autoincrement=False),
        _text("owner", nullable=True),
        _number("epoch", server_default="0"),
        _time("lease_until"),
        _small("owner_pid", nullable=True, comment="backend of the owner's lease connection"),
        sa.Column("owner_started", sa.DateTime(timezone=True), comment="start of that backend"),
        _number("seq_next", server_default="1"),
        _number("dead_seq_next", server_default="1"),
        _number("log_time_ms", server_default="0"),
        sa.PrimaryKeyConstraint("shard"),
        comment="ownership and counters, one row per shard",
    )
    op.create_table(
        "shard_offsets",
        _small("shard"),
        _text("topic"),
        _small("partition"),
        _number("epoch"),
        _number("next_offset"),
        sa.PrimaryKeyConstraint("shard", "topic", "partition"),
        comment="how far each shard has come: the fence and the exactly-once of the whole product",
    )
    op.create_table(
        "dead_letters",
        _small("shard"),
        _number("seq"),
        _text("topic"),
        _small("partition"),
        _number("log_offset"),
        _bytes("key", nullable=True),
        _bytes("raw"),
        _text("code"),
        _text("path"),
        _text("message"),
        _number("at_ms"),
        _now(),
        sa.PrimaryKeyConstraint("shard", "seq"),
        comment="records that could not be accepted",
    )
    op.create_table(
        "relay_cursor",
        _small("shard", autoincrement=False),
        _text("owner", nullable=True),
        _number("epoch", server_default="0"),
        _time("lease_until"),
        _small("owner_pid", nullable=True),
        _time("owner_started"),
        _number("decisions_seq", server_default="0"),
        _number("dead_letters_seq", server_default="0"),
        sa.PrimaryKeyConstraint("shard"),
        comment="what the relay has published",
    )


def _create_api() -> None:
    op.create_table(
        "ingested_events",
        _text("id"),
        _now(),
        sa.PrimaryKeyConstraint("id"),
        comment="ids of events accepted by the API, so that a repeated request appends nothing",
    )
    op.create_table(
        "api_keys",
        _bytes("key_hash", comment="SHA-256 of the key"),
        _text("name"),
        _text("role", comment="producer, auditor or admin"),
        _now("created_at"),
        _time("revoked_at"),
        sa.PrimaryKeyConstraint("key_hash"),
        comment="who may use the API",
    )


def _create_log() -> None:
    op.create_table(
        "log_topics",
        _text("topic"),
        _small("partition"),
        _number("next_offset", server_default="0"),
        _flag("compacted"),
        sa.PrimaryKeyConstraint("topic", "partition"),
        comment="embedded log: partitions; the row lock on next_offset makes offsets commit in order",
    )
    op.create_table(
        "log_records",
        _text("topic"),
        _small("partition"),
        _number("log_offset"),
        _bytes("key", nullable=True),
        _bytes("value", nullable=True),
        _number("timestamp_ms"),
        sa.PrimaryKeyConstraint("topic", "partition", "log_offset"),
        comment="embedded log: records",
    )
