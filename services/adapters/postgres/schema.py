"""The ledger's tables as SQLAlchemy metadata: queries are written in it, and the migrations build it.

A test compares this with the database that the migrations make. Resource vectors are ``bigint[]`` indexed by
``resources.id`` (a position beyond an array's end is 0), in canonical units: cpu in thousandths of a core,
everything else in its own unit. Times without ``_ms`` are the database's; ``_ms`` are log time.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from services.adapters.postgres import schema_audit as schema_audit
from services.adapters.postgres import schema_inbox as schema_inbox
from services.adapters.postgres import schema_journal as schema_journal
from services.adapters.postgres import schema_log as schema_log
from services.adapters.postgres import schema_preemption as schema_preemption
from services.adapters.postgres.schema_api import metadata as metadata
from services.adapters.postgres.schema_leases import relay_cursor as relay_cursor
from services.adapters.postgres.schema_leases import relay_leases as relay_leases
from services.adapters.postgres.schema_leases import shard_owners as shard_owners
from services.adapters.postgres.schema_leases import worker_leases as worker_leases
from services.adapters.postgres.schema_leases import workers as workers

KEY_BYTES_MAX = 256
"""Bytes of a dead letter's key that its index holds: a namespace and more."""


def _sent_by() -> sa.Column[str]:
    return sa.Column("sent_by", sa.Text, comment="who sent the event; null: from before this was noted")


def _gang() -> sa.Column[str]:
    return sa.Column("gang", sa.Text, comment="name of its PodGroup; null: it is placed alone")


def _life() -> sa.Column[str]:
    return sa.Column("life", sa.Text, comment="PodLife as JSON: start, deletion, controller; null: nothing")


resources = sa.Table(
    "resources",
    metadata,
    sa.Column(
        "id", sa.SmallInteger, primary_key=True, autoincrement=False, comment="position in vectors, from 1"
    ),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    comment="names of the resource dimensions",
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False, comment="order of arrival"),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column(
        "version",
        sa.BigInteger,
        nullable=False,
        comment="counts changes of the node and of the pods on it; what the compare-and-swap compares",
    ),
    sa.Column("spec_version", sa.BigInteger, nullable=False, comment="version that last changed the spec"),
    sa.Column("spec_count", sa.BigInteger, nullable=False, server_default="1", comment="changes of the spec"),
    sa.Column("deleted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("allocatable", ARRAY(sa.BigInteger), nullable=False),
    sa.Column("requested", ARRAY(sa.BigInteger), nullable=False),
    postgresql_with={"fillfactor": "60"},
    comment="one row per node, for ever; no index on a column that changes",
)

node_specs = sa.Table(
    "node_specs",
    metadata,
    sa.Column("node_id", sa.BigInteger, primary_key=True),
    sa.Column("version", sa.BigInteger, primary_key=True, comment="nodes.version that this spec came with"),
    sa.Column("spec", JSONB, nullable=False, comment="NodeSpec; the last one when the node was deleted"),
    sa.Column("deleted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    _sent_by(),
    comment="history of node specs",
)

templates = sa.Table(
    "templates",
    metadata,
    sa.Column("signature", sa.LargeBinary, primary_key=True),
    sa.Column("spec", sa.JSON, nullable=False, comment="PodTemplate"),
    comment="one row per equivalence group",
)

placements = sa.Table(
    "placements",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False, comment="decision that opened it"),
    sa.Column("pod_uid", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("labels", sa.Text, comment="JSON object; null: none"),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("adopted", sa.Boolean, nullable=False),
    sa.Column("bound_at_ms", sa.BigInteger, nullable=False),
    sa.Column("released_at_ms", sa.BigInteger),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("released_recorded_at", sa.DateTime(timezone=True)),
    _life(),
    sa.Column(
        "counted",
        sa.Boolean,
        nullable=False,
        server_default=sa.true(),
        comment="false: its node is not known, so no row counts it",
    ),
    sa.Column(
        "orphaned",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="the pod was told last that its node is gone",
    ),
    sa.Column("home", sa.Integer, comment="shard of its events since shards were added; null: shard"),
    _gang(),
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
    comment="which pod counted on which node over which time; at most one open row per pod and shard",
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
    sa.Column("profile", sa.Text, comment="null: decided before it had a column"),
    sa.Column("profile_revision", sa.BigInteger, comment="null: no profile was asked, or as for profile"),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("cycle_seq", sa.BigInteger, nullable=False, comment="cycles.seq that explains it; 0: none"),
    sa.Column("decided_at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column(
        "payload", sa.LargeBinary, nullable=False, comment="the record of berth.decisions, as published"
    ),
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
    comment="append-only: every decision, in commit order per shard",
)

cycles = sa.Table(
    "cycles",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False, comment="seq of the first attempt's first decision"),
    sa.Column("signature", sa.LargeBinary, comment="with doc: of the group"),
    sa.Column("doc", sa.Text, comment="one attempt as JSON: before attempts were packed"),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("last_seq", sa.BigInteger, comment="seq of the last attempt's first decision; null: one alone"),
    sa.Column("revisions", JSONB, comment="by which profiles: pairs of a name and a revision"),
    sa.Column("attempts", sa.LargeBinary, comment="services/codec/attempts.py"),
    sa.PrimaryKeyConstraint("shard", "seq"),
    comment="the scheduling attempts of a batch: filter counts, candidates, seed, generation",
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
    _sent_by(),
    sa.Column(
        "tried",
        sa.Boolean,
        nullable=False,
        server_default=sa.true(),
        comment="false: it waits its turn for a first attempt",
    ),
    _life(),
    _gang(),
    sa.PrimaryKeyConstraint("pod_uid", "shard"),
    sa.Index("pending_pod", "namespace", "name"),
    sa.Index("pending_group", "shard", "signature"),
    sa.Index("pending_gang", "namespace", "gang", postgresql_where=sa.text("gang IS NOT NULL")),
    comment="pods accepted and not placed",
)

pending_groups = sa.Table(
    "pending_groups",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("reasons", JSONB, nullable=False, comment="nodes per reason code at the last attempt"),
    sa.Column("unresolvable", sa.Boolean, nullable=False),
    sa.Column("cycle_seq", sa.BigInteger, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("shard", "signature"),
    comment="why the pending pods of a signature wait",
)

group_attempts = sa.Table(
    "group_attempts",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False, comment="counts within the group, from 1"),
    sa.Column("at_ms", sa.BigInteger, nullable=False, comment="of the first attempt with these reasons"),
    sa.Column("last_at_ms", sa.BigInteger, nullable=False, comment="of the last one"),
    sa.Column("times", sa.BigInteger, nullable=False, comment="how many of them were noted"),
    sa.Column("profile", sa.Text, nullable=False),
    sa.Column("profile_revision", sa.BigInteger, nullable=False, comment="0: there is no such profile"),
    sa.Column("nodes_count", sa.BigInteger, nullable=False),
    sa.Column("reasons", JSONB, nullable=False, comment="nodes per reason code"),
    sa.Column("unresolvable", sa.Boolean, nullable=False),
    sa.Column("cycle_seq", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("shard", "signature", "number"),
    comment="why the pods of a signature waited, over time: the first few attempts and the latest",
)

pod_tombstones = sa.Table(
    "pod_tombstones",
    metadata,
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("uid", sa.Text, nullable=False),
    sa.Column("resource_version", sa.BigInteger, comment="null: its events had none"),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("namespace", "name", "uid"),
    comment="last version of pods that are gone, against late duplicates",
)

shards = sa.Table(
    "shards",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("holder", sa.Uuid, comment="the process that has this epoch"),
    sa.Column("seq_next", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("dead_seq_next", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("log_time_ms", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("due_ms", sa.BigInteger, comment="log time at which time alone lets something be decided"),
    sa.Column(
        "refold",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="its pods must be read from the log again (`berth refold`) before a worker may start",
    ),
    comment="epoch and counters, one row per shard; who owns it is in worker_leases",
)

shard_offsets = sa.Table(
    "shard_offsets",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column(
        "refold_below",
        sa.BigInteger,
        comment="records below are read once more for what they say of known pods; null: none",
    ),
    sa.Column("topic_id", sa.Text, comment="the log's own id of the topic; null: not noted yet"),
    sa.Column(
        "resync_below",
        sa.BigInteger,
        comment="records below come once more, or late, after the log lost some; null: none",
    ),
    sa.Column(
        "moved_below",
        sa.BigInteger,
        comment="records below are of before shards were added: their keys may have moved; null: none",
    ),
    sa.PrimaryKeyConstraint("shard", "topic", "partition"),
    comment="how far each shard has come: the fence and the exactly-once of the whole product",
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
    _sent_by(),
    sa.PrimaryKeyConstraint("shard", "seq"),
    sa.Index("dead_letters_key", sa.text(f"substring(key, 1, {KEY_BYTES_MAX})")),
    comment="records that could not be accepted",
)

profiles = sa.Table(
    "profiles",
    metadata,
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False, comment="counts the changes, from 1"),
    sa.Column("spec", sa.JSON(none_as_null=True), comment="filters and scores; null: deleted"),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    _sent_by(),
    sa.PrimaryKeyConstraint("name", "revision"),
    comment="every revision that an event made of a profile; the last one is in force",
)

config_objects = sa.Table(
    "config_objects",
    metadata,
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False, comment="'' where the kind has none"),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("object", sa.JSON(none_as_null=True), comment="as its kind writes it; null: deleted"),
    sa.Column("resource_version", sa.BigInteger),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    _sent_by(),
    sa.PrimaryKeyConstraint("kind", "namespace", "name"),
    comment="the latest of each configuration object; profiles have a table of their own",
)

node_usage = sa.Table(
    "node_usage",
    metadata,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False, comment="of the latest measurement"),
    sa.Column("series", sa.JSON, nullable=False, comment="resource to SeriesRecord"),
    sa.Column("marks", sa.JSON, nullable=False, comment="shard to the next seq when it was folded"),
    _sent_by(),
    postgresql_with={"fillfactor": "60"},
    comment="measured usage, as far back as windows reach",
)
