"""The ledger's tables as SQLAlchemy metadata, in which queries are written.

A test compares this with the database that the migrations make; these say what each column means. Vectors of
resources are ``bigint[]`` indexed by ``resources.id`` (a position beyond an array's end is 0), in canonical
units: cpu in thousandths of a core, everything else in its own unit. Times without ``_ms`` are the
database's; ``_ms`` are log time.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = sa.MetaData()

KEY_BYTES_MAX = 256
"""Bytes of a dead letter's key that its index holds: a namespace and more."""

resources = sa.Table(
    "resources",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False, unique=True),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("spec_version", sa.BigInteger, nullable=False),
    sa.Column("spec_count", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("deleted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("allocatable", ARRAY(sa.BigInteger), nullable=False),
    sa.Column("requested", ARRAY(sa.BigInteger), nullable=False),
    postgresql_with={"fillfactor": "60"},
)

node_specs = sa.Table(
    "node_specs",
    metadata,
    sa.Column("node_id", sa.BigInteger, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("spec", JSONB, nullable=False),
    sa.Column("deleted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("sent_by", sa.Text),
    sa.Column("set_by", sa.Integer),
    sa.Column("set_batch", sa.BigInteger),
)

templates = sa.Table(
    "templates",
    metadata,
    sa.Column("signature", sa.LargeBinary, primary_key=True),
    sa.Column("spec", sa.JSON, nullable=False),
)

placements = sa.Table(
    "placements",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("pod_uid", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("labels", sa.Text),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("adopted", sa.Boolean, nullable=False),
    sa.Column("bound_at_ms", sa.BigInteger, nullable=False),
    sa.Column("released_at_ms", sa.BigInteger),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("released_recorded_at", sa.DateTime(timezone=True)),
    sa.Column("life", sa.Text),
    sa.Column("counted", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("orphaned", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("home", sa.Integer),
    sa.Column("gang", sa.Text),
    sa.Column("opened_by", sa.Integer),
    sa.Column("opened_batch", sa.BigInteger),
    sa.Column("closed_by", sa.Integer),
    sa.Column("closed_batch", sa.BigInteger),
    sa.PrimaryKeyConstraint("shard", "seq"),
    sa.Index(
        "placements_open",
        "pod_uid",
        sa.text("coalesce(home, shard)"),
        unique=True,
        postgresql_where=sa.text("released_at_ms IS NULL"),
    ),
    sa.Index(
        "placements_orphaned",
        sa.text("coalesce(home, shard)"),
        postgresql_where=sa.text("orphaned AND released_at_ms IS NULL"),
    ),
    sa.Index(
        "placements_gang",
        "namespace",
        "gang",
        postgresql_where=sa.text("gang IS NOT NULL AND released_at_ms IS NULL"),
    ),
    sa.Index(
        "placements_lifespan",
        "closed_by",
        sa.text("past.lifespan(opened_by, opened_batch, closed_by, closed_batch)"),
        "closed_batch",
        postgresql_where=sa.text("closed_batch IS NOT NULL"),
    ),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("pod_uid", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("node", sa.Text),
    sa.Column("profile", sa.Text),
    sa.Column("profile_revision", sa.BigInteger),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("cycle_seq", sa.BigInteger, nullable=False),
    sa.Column("decided_at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("shard", "seq"),
    sa.Index("decisions_pod", "namespace", "name"),
    sa.Index(
        "decisions_node",
        "node",
        postgresql_ops={"node": "text_pattern_ops"},
        postgresql_where=sa.text("node IS NOT NULL"),
    ),
    sa.Index(
        "decisions_outcome",
        "outcome",
        "shard",
        "seq",
        postgresql_where=sa.text("outcome <> ALL (ARRAY['bound', 'adopted', 'released'])"),
    ),
    sa.Index(
        "decisions_ranges",
        "decided_at_ms",
        "profile_revision",
        "profile",
        "signature",
        postgresql_using="brin",
        postgresql_ops={
            "profile": "text_bloom_ops (n_distinct_per_range = 16)",
            "signature": "bytea_bloom_ops (n_distinct_per_range = 200)",
        },
        postgresql_with={"pages_per_range": 64},
    ),
)

cycles = sa.Table(
    "cycles",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("signature", sa.LargeBinary),
    sa.Column("doc", sa.Text),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("last_seq", sa.BigInteger),
    sa.Column("revisions", JSONB),
    sa.Column("attempts", sa.LargeBinary),
    sa.PrimaryKeyConstraint("shard", "seq"),
)

pending = sa.Table(
    "pending",
    metadata,
    sa.Column("pod_uid", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("labels", sa.Text),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("arrival", sa.BigInteger, nullable=False),
    sa.Column("since_ms", sa.BigInteger, nullable=False),
    sa.Column("sent_by", sa.Text),
    sa.Column("tried", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("life", sa.Text),
    sa.Column("gang", sa.Text),
    sa.Column("added_by", sa.Integer),
    sa.Column("added_batch", sa.BigInteger),
    sa.PrimaryKeyConstraint("pod_uid", "shard"),
    sa.Index("pending_pod", "namespace", "name"),
    sa.Index("pending_group", "shard", "signature"),
    sa.Index("pending_gang", "namespace", "gang", postgresql_where=sa.text("gang IS NOT NULL")),
)

pending_groups = sa.Table(
    "pending_groups",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("reasons", JSONB, nullable=False),
    sa.Column("unresolvable", sa.Boolean, nullable=False),
    sa.Column("cycle_seq", sa.BigInteger, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("begun_by", sa.Integer),
    sa.Column("begun_batch", sa.BigInteger),
    sa.PrimaryKeyConstraint("shard", "signature"),
)

group_attempts = sa.Table(
    "group_attempts",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("last_at_ms", sa.BigInteger, nullable=False),
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("profile", sa.Text, nullable=False),
    sa.Column("profile_revision", sa.BigInteger, nullable=False),
    sa.Column("nodes_count", sa.BigInteger, nullable=False),
    sa.Column("reasons", JSONB, nullable=False),
    sa.Column("unresolvable", sa.Boolean, nullable=False),
    sa.Column("cycle_seq", sa.BigInteger, nullable=False),
    sa.Column("noted_by", sa.Integer),
    sa.Column("noted_batch", sa.BigInteger),
    sa.PrimaryKeyConstraint("shard", "signature", "number"),
)

pod_tombstones = sa.Table(
    "pod_tombstones",
    metadata,
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("uid", sa.Text, nullable=False),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("namespace", "name", "uid"),
)

shards = sa.Table(
    "shards",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("holder", sa.Uuid),
    sa.Column("seq_next", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("dead_seq_next", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("log_time_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("due_ms", sa.BigInteger),
    sa.Column("refold", sa.Boolean, nullable=False, server_default=sa.false()),
)

shard_offsets = sa.Table(
    "shard_offsets",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("refold_below", sa.BigInteger),
    sa.Column("topic_id", sa.Text),
    sa.Column("resync_below", sa.BigInteger),
    sa.Column("moved_below", sa.BigInteger),
    sa.PrimaryKeyConstraint("shard", "topic", "partition"),
)

dead_letters = sa.Table(
    "dead_letters",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("log_offset", sa.BigInteger, nullable=False),
    sa.Column("key", sa.LargeBinary),
    sa.Column("raw", sa.LargeBinary, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("sent_by", sa.Text),
    sa.PrimaryKeyConstraint("shard", "seq"),
    sa.Index("dead_letters_key", sa.text(f"substring(key, 1, {KEY_BYTES_MAX})")),
)

profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("spec", sa.JSON(none_as_null=True)),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("sent_by", sa.Text),
    sa.Column("set_by", sa.Integer),
    sa.Column("set_batch", sa.BigInteger),
    sa.PrimaryKeyConstraint("name", "revision"),
)

config_objects = sa.Table(
    "config_objects",
    metadata,
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("object", sa.JSON(none_as_null=True)),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("sent_by", sa.Text),
    sa.Column("set_by", sa.Integer),
    sa.Column("set_batch", sa.BigInteger),
    sa.PrimaryKeyConstraint("kind", "namespace", "name"),
)

node_usage = sa.Table(
    "node_usage",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("series", sa.JSON, nullable=False),
    sa.Column("marks", sa.JSON),
    sa.Column("sent_by", sa.Text),
    sa.Column("quality", sa.JSON),
    postgresql_with={"fillfactor": "60"},
)

bill_hours = sa.Table(
    "bill_hours",
    metadata,
    sa.Column("hour_ms", sa.BigInteger, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("quality", sa.Text, nullable=False),
    sa.Column("part", sa.Text, nullable=False),
    sa.Column("resource", sa.Text, nullable=False),
    sa.Column("amount", sa.Numeric, nullable=False),
    sa.Column("price_micro", sa.Numeric, nullable=False),
    sa.Column("saved_micro", sa.Numeric, nullable=False),
    sa.PrimaryKeyConstraint("hour_ms", "namespace", "quality", "part", "resource"),
    sa.Index("bill_hours_namespace", "namespace", "hour_ms"),
    postgresql_with={"fillfactor": "60"},
)

node_actions = sa.Table(
    "node_actions",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("logged_ms", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("quality", sa.Text, nullable=False),
    sa.Column("amount", sa.BigInteger),
    sa.Column("times", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("uid", sa.Text, nullable=False),
    sa.Column("sent_by", sa.Text),
    sa.Index("node_actions_node", "node", "id"),
)

hosted_replicas = sa.Table(
    "hosted_replicas",
    metadata,
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("workload", sa.Text, nullable=False),
    sa.Column("least", sa.Integer, nullable=False),
    sa.Column("most", sa.Integer, nullable=False),
    sa.Column("wanted", sa.Integer, nullable=False),
    sa.Column("running", sa.Integer, nullable=False),
    sa.Column("waiting_since_ms", sa.BigInteger),
    sa.Column("load_percent", sa.Double),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("namespace", "name"),
)

hosted_waits = sa.Table(
    "hosted_waits",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("workload", sa.Text, nullable=False),
    sa.Column("since_ms", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("shard", "namespace", "kind", "workload"),
)

scales = sa.Table(
    "scales",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
)

nominations = sa.Table(
    "nominations",
    metadata,
    sa.Column("pod_uid", sa.Text, nullable=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("pod_uid", "shard"),
)

evictions = sa.Table(
    "evictions",
    metadata,
    sa.Column("victim_uid", sa.Text, nullable=False),
    sa.Column("victim_shard", sa.Integer, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("preemptor_uid", sa.Text, nullable=False),
    sa.Column("preemptor_shard", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("victim_uid", "victim_shard"),
    sa.Index("evictions_preemptor", "preemptor_uid"),
)

moves = sa.Table(
    "moves",
    metadata,
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("pod_uid", sa.Text, nullable=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("decided_by", sa.Integer, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.Column("rests_until_ms", sa.BigInteger, nullable=False),
    sa.Column("is_open", sa.Boolean, nullable=False),
    sa.PrimaryKeyConstraint("node", "pod_uid", "shard"),
    sa.Index("moves_open", "pod_uid", "shard", unique=True, postgresql_where=sa.text("is_open")),
)

inbox = sa.Table(
    "inbox",
    metadata,
    sa.Column("home", sa.Integer, nullable=False),
    sa.Column("source", sa.Integer, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("log_offset", sa.BigInteger, nullable=False),
    sa.Column("key", sa.LargeBinary),
    sa.Column("value", sa.LargeBinary),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("seal", sa.LargeBinary),
    sa.PrimaryKeyConstraint("home", "source", "number"),
)

forwarded = sa.Table(
    "forwarded",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("home", sa.Integer, nullable=False),
    sa.Column("uid", sa.Text, nullable=False),
    sa.Column("gone_number", sa.BigInteger),
    sa.Column("gone_at_ms", sa.BigInteger),
    sa.PrimaryKeyConstraint("shard", "key", "uid"),
)

journal = sa.Table(
    "journal",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("start", sa.JSON(none_as_null=True)),
    sa.Column("renewed", sa.Boolean, nullable=False),
    sa.Column("lanes", sa.JSON, nullable=False),
    sa.Column("record_order", sa.LargeBinary, nullable=False),
    sa.Column("seqs", sa.JSON, nullable=False),
    sa.Column("log_time_ms", sa.BigInteger, nullable=False),
    sa.Column("decisions_hash", sa.LargeBinary, nullable=False),
    sa.Column("effects", sa.JSON, nullable=False),
    sa.Column("digest", sa.Text),
    sa.Column(
        "recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("clock_timestamp()")
    ),
    sa.Column("position", sa.BigInteger, sa.Identity(), nullable=False),
    sa.Column("worker", sa.Text, nullable=False, server_default=""),
    sa.Column("owned", sa.JSON(none_as_null=True)),
    sa.Column("followed", sa.JSON(none_as_null=True)),
    sa.Column("forgotten", sa.JSON(none_as_null=True)),
    sa.Column("lost", sa.JSON(none_as_null=True)),
    sa.Column("moved", sa.JSON(none_as_null=True)),
    sa.Column("feed", sa.LargeBinary, nullable=False, server_default=""),
    sa.PrimaryKeyConstraint("shard", "batch"),
    sa.UniqueConstraint("position", name="journal_position"),
    sa.Index("journal_log_time", "shard", "log_time_ms", "position"),
    sa.Index("journal_shard_position", "shard", "position"),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("start", sa.JSON, nullable=False),
    sa.Column("head", sa.JSON, nullable=False),
    sa.Column("parts_count", sa.Integer, nullable=False),
    sa.Column("bytes_count", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.PrimaryKeyConstraint("shard", "batch"),
)

checkpoint_parts = sa.Table(
    "checkpoint_parts",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("part", sa.Integer, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.PrimaryKeyConstraint("shard", "batch", "part"),
)

claims = sa.Table(
    "claims",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("batches", JSONB, nullable=False),
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("incarnation", sa.Uuid, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("build", sa.Text, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column(
        "started_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()
    ),
    sa.Column(
        "seen_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()
    ),
    sa.Column("ready", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("figures", sa.JSON),
    sa.Column("stopped_at", sa.DateTime(timezone=True)),
)


open_placements = placements.to_metadata(sa.MetaData(), name="open_placements")
"""A view of the past alone: the placements that were open then (``migrations/versions/0050_past.py``)."""


def _leases(table: str) -> sa.Table:
    return sa.Table(
        table,
        metadata,
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text),
        sa.Column("holder", sa.Uuid),
        sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("taken_at", sa.DateTime(timezone=True)),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        postgresql_with={"fillfactor": "60"},
    )


worker_leases = _leases("worker_leases")
relay_leases = _leases("relay_leases")

shard_owners = sa.Table(
    "shard_owners",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("holder", sa.Uuid, nullable=False),
    sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("ended_at", sa.DateTime(timezone=True)),
)

relay_cursor = sa.Table(
    "relay_cursor",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("holder", sa.Uuid),
    sa.Column("decisions_seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("dead_letters_seq", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("alarm", sa.Text),
    sa.Column("compared_offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("acknowledged_offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("acknowledged_at", sa.DateTime(timezone=True)),
    sa.Column("scales_seq", sa.BigInteger, nullable=False, server_default="0"),
)

ingested_events = sa.Table(
    "ingested_events",
    metadata,
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("holder", sa.Text, nullable=False, server_default=""),
    sa.PrimaryKeyConstraint("holder", "id"),
    sa.Index("ingested_events_time", "recorded_at"),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_hash", sa.LargeBinary, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("revoked_at", sa.DateTime(timezone=True)),
    sa.Column("roles", ARRAY(sa.Text), nullable=False),
    sa.Column("namespaces", ARRAY(sa.Text)),
    sa.Column("kinds", ARRAY(sa.Text)),
    sa.Column("events_per_second", sa.Integer),
    sa.Column("bytes_per_second", sa.BigInteger),
    sa.Column("requests_at_once", sa.Integer),
    sa.Column("priority_max", sa.Integer),
    sa.Column("priority_classes", ARRAY(sa.Text)),
    sa.Column("node", sa.Text),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("token_hash", sa.LargeBinary, primary_key=True),
    sa.Column(
        "key_hash", sa.LargeBinary, sa.ForeignKey("api_keys.key_hash", ondelete="CASCADE"), nullable=False
    ),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
    sa.Index("sessions_key", "key_hash", "created_at"),
    sa.Index("sessions_expiry", "expires_at"),
)

access_log = sa.Table(
    "access_log",
    metadata,
    sa.Column("minute_ms", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("last_at_ms", sa.BigInteger, nullable=False),
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("caller", sa.Text),
    sa.Column("roles", ARRAY(sa.Text), nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("route", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("status", sa.SmallInteger, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("duration_ms", sa.BigInteger, nullable=False),
    sa.Column("events_count", sa.Integer),
    sa.Column("spans", sa.JSON, nullable=False),
    sa.PrimaryKeyConstraint("minute_ms", "digest"),
    sa.Index("access_log_caller", "caller", "minute_ms", "digest"),
    sa.Index("access_log_status", "status", "minute_ms", "digest"),
)

log_seal = sa.Table(
    "log_seal",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("secret", sa.LargeBinary, nullable=False),
    sa.CheckConstraint("id = 1", name="log_seal_one"),
)

audits = sa.Table(
    "audits",
    metadata,
    sa.Column("at", sa.DateTime(timezone=True), primary_key=True),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("ok", sa.Boolean, nullable=False),
    sa.Column("seqs", sa.JSON, nullable=False),
    sa.Column("batches", sa.JSON, nullable=False),
    sa.Column("broken", sa.JSON, nullable=False),
)

rollup_cursors = sa.Table(
    "rollup_cursors",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, nullable=False, server_default="0"),
)

rollup_counts = sa.Table(
    "rollup_counts",
    metadata,
    sa.Column("step_ms", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("step_ms", "kind", "name", "outcome"),
    postgresql_with={"fillfactor": "60"},
)

rollup_samples = sa.Table(
    "rollup_samples",
    metadata,
    sa.Column("step_ms", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)

rollup_gauges = sa.Table(
    "rollup_gauges",
    metadata,
    sa.Column("step_ms", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("pods", sa.Numeric),
    sa.Column("pending_pods", sa.Numeric),
    sa.Column("requested_cpu_milli", sa.Numeric),
    sa.Column("requested_memory_bytes", sa.Numeric),
    sa.Column("allocatable_cpu_milli", sa.Numeric),
    sa.Column("allocatable_memory_bytes", sa.Numeric),
    sa.Column("measured_cpu_milli", sa.Numeric),
    sa.Column("measured_memory_bytes", sa.Numeric),
    sa.PrimaryKeyConstraint("step_ms", "kind", "name"),
)

pruned = sa.Table(
    "pruned",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq_below", sa.BigInteger, nullable=False),
)

log_topics = sa.Table(
    "log_topics",
    metadata,
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("compacted", sa.Boolean, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("first_offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.PrimaryKeyConstraint("topic", "partition"),
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
    sa.Column("seal", sa.LargeBinary),
    sa.PrimaryKeyConstraint("topic", "partition", "log_offset"),
)

log_faults = sa.Table(
    "log_faults",
    metadata,
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("found_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("first_offset", sa.BigInteger, nullable=False),
    sa.Column("end_offset", sa.BigInteger, nullable=False),
    sa.Column("goes_on_at", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("topic", "partition", "epoch"),
)

unmentioned = sa.Table(
    "unmentioned",
    metadata,
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("uid", sa.Text, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("topic", "partition", "epoch", "key"),
)

ledger_name = sa.Table(
    "ledger_name",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.CheckConstraint("id = 1", name="ledger_name_one"),
)

past_pending = sa.Table(
    "past_pending",
    metadata,
    sa.Column("removed_by", sa.Integer, nullable=False),
    sa.Column("removed_batch", sa.BigInteger, nullable=False),
    sa.Column("pod_uid", sa.Text, nullable=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("labels", sa.Text),
    sa.Column("arrival", sa.BigInteger, nullable=False),
    sa.Column("since_ms", sa.BigInteger, nullable=False),
    sa.Column("life", sa.Text),
    sa.Column("gang", sa.Text),
    sa.Column("added_by", sa.Integer),
    sa.Column("added_batch", sa.BigInteger),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.PrimaryKeyConstraint("removed_by", "removed_batch", "pod_uid", "shard"),
    sa.Index("past_pending_pod", "namespace", "name"),
    sa.Index("past_pending_group", "shard", "signature"),
)

past_labels = sa.Table(
    "past_labels",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("until_by", sa.Integer, nullable=False),
    sa.Column("until_batch", sa.BigInteger, nullable=False),
    sa.Column("labels", sa.Text),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.PrimaryKeyConstraint("shard", "seq", "until_by", "until_batch"),
)

past_groups = sa.Table(
    "past_groups",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("begun_by", sa.Integer),
    sa.Column("begun_batch", sa.BigInteger),
    sa.Column("emptied_by", sa.Integer, nullable=False),
    sa.Column("emptied_batch", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.PrimaryKeyConstraint("shard", "signature", "emptied_by", "emptied_batch"),
)

past_config = sa.Table(
    "past_config",
    metadata,
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("object", sa.JSON(none_as_null=True)),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("sent_by", sa.Text),
    sa.Column("set_by", sa.Integer),
    sa.Column("set_batch", sa.BigInteger),
    sa.Column("until_by", sa.Integer, nullable=False),
    sa.Column("until_batch", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.PrimaryKeyConstraint("kind", "namespace", "name", "until_by", "until_batch"),
)

past_reach = sa.Table(
    "past_reach",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.CheckConstraint("id = 1", name="past_reach_one"),
)
