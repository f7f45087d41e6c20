"""The tables of the ledger and of the embedded log, as they are since revision 0044.

Each comment behind a column, or above it, is the column's own in the catalogue, and the one above a table the
table's. A ledger of an earlier revision is refused (``services/adapters/postgres/revision.py``).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = None
branch_labels = None
depends_on = None
works_from = "0043"  # a build of then works on these tables, and writes no history of owners

_NODES = """
-- names of the resource dimensions
CREATE TABLE resources (
    id smallint PRIMARY KEY,  -- position in vectors, from 1
    name text NOT NULL UNIQUE
);

-- one row per node, for ever; no index on a column that changes
CREATE TABLE nodes (
    id bigint PRIMARY KEY,  -- order of arrival
    name text NOT NULL UNIQUE,
    -- counts changes of the node and of the pods on it; what the compare-and-swap compares
    version bigint NOT NULL,
    spec_version bigint NOT NULL,  -- version that last changed the spec
    deleted boolean NOT NULL DEFAULT false,
    allocatable bigint[] NOT NULL,
    requested bigint[] NOT NULL,
    spec_count bigint NOT NULL DEFAULT '1'  -- changes of the spec
) WITH (fillfactor = 60);

-- history of node specs
CREATE TABLE node_specs (
    node_id bigint NOT NULL,
    version bigint NOT NULL,  -- nodes.version that this spec came with
    spec jsonb NOT NULL,  -- NodeSpec; the last one when the node was deleted
    deleted boolean NOT NULL DEFAULT false,
    at_ms bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    sent_by text,  -- who sent the event; null: from before this was noted
    PRIMARY KEY (node_id, version)
);

-- measured usage, as far back as windows reach
CREATE TABLE node_usage (
    node text PRIMARY KEY,
    at_ms bigint NOT NULL,  -- of the latest measurement
    series json NOT NULL,  -- resource to SeriesRecord
    marks json NOT NULL,  -- shard to the next seq when it was folded
    sent_by text  -- who sent the event; null: from before this was noted
) WITH (fillfactor = 60);
"""
"""Nodes: what they offer, what their pods request, and what was measured on them."""

_PODS = """
-- one row per equivalence group
CREATE TABLE templates (
    signature bytea PRIMARY KEY,
    spec json NOT NULL  -- PodTemplate
);

-- which pod counted on which node over which time; at most one open row per pod and shard
CREATE TABLE placements (
    shard int NOT NULL,
    seq bigint NOT NULL,  -- decision that opened it
    pod_uid text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    resource_version bigint,
    signature bytea NOT NULL,
    labels text,  -- JSON object; null: none
    node text NOT NULL,
    adopted boolean NOT NULL,
    bound_at_ms bigint NOT NULL,
    released_at_ms bigint,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    released_recorded_at timestamptz,
    life text,  -- PodLife as JSON: start, deletion, controller; null: nothing
    counted boolean NOT NULL DEFAULT true,  -- false: its node is not known, so no row counts it
    orphaned boolean NOT NULL DEFAULT false,  -- the pod was told last that its node is gone
    home int,  -- shard of its events since shards were added; null: shard
    gang text,  -- name of its PodGroup; null: it is placed alone
    PRIMARY KEY (shard, seq)
);
CREATE INDEX placements_gang ON placements (namespace, gang)
    WHERE gang IS NOT NULL AND released_at_ms IS NULL;
CREATE UNIQUE INDEX placements_open ON placements (pod_uid, coalesce(home, shard))
    WHERE released_at_ms IS NULL;
CREATE INDEX placements_orphaned ON placements (coalesce(home, shard))
    WHERE orphaned AND released_at_ms IS NULL;

-- pods accepted and not placed
CREATE TABLE pending (
    pod_uid text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    resource_version bigint,
    signature bytea NOT NULL,
    labels text,
    shard int NOT NULL,
    arrival bigint NOT NULL,
    since_ms bigint NOT NULL,
    sent_by text,  -- who sent the event; null: from before this was noted
    tried boolean NOT NULL DEFAULT true,  -- false: it waits its turn for a first attempt
    life text,  -- PodLife as JSON: start, deletion, controller; null: nothing
    gang text,  -- name of its PodGroup; null: it is placed alone
    PRIMARY KEY (pod_uid, shard)
);
CREATE INDEX pending_gang ON pending (namespace, gang) WHERE gang IS NOT NULL;
CREATE INDEX pending_group ON pending (shard, signature);
CREATE INDEX pending_pod ON pending (namespace, name);

-- why the pending pods of a signature wait
CREATE TABLE pending_groups (
    shard int NOT NULL,
    signature bytea NOT NULL,
    reasons jsonb NOT NULL,  -- nodes per reason code at the last attempt
    unresolvable boolean NOT NULL,
    cycle_seq bigint NOT NULL,
    at_ms bigint NOT NULL,
    PRIMARY KEY (shard, signature)
);

-- why the pods of a signature waited, over time: the first few attempts and the latest
CREATE TABLE group_attempts (
    shard int NOT NULL,
    signature bytea NOT NULL,
    number bigint NOT NULL,  -- counts within the group, from 1
    at_ms bigint NOT NULL,  -- of the first attempt with these reasons
    last_at_ms bigint NOT NULL,  -- of the last one
    times bigint NOT NULL,  -- how many of them were noted
    profile text NOT NULL,
    profile_revision bigint NOT NULL,  -- 0: there is no such profile
    nodes_count bigint NOT NULL,
    reasons jsonb NOT NULL,  -- nodes per reason code
    unresolvable boolean NOT NULL,
    cycle_seq bigint NOT NULL,
    PRIMARY KEY (shard, signature, number)
);

-- pending pods to which a node is promised
CREATE TABLE nominations (
    pod_uid text NOT NULL,
    shard int NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    signature bytea NOT NULL,
    node text NOT NULL,
    at_ms bigint NOT NULL,
    expires_ms bigint NOT NULL,
    PRIMARY KEY (pod_uid, shard)
);

-- placed pods that have to leave, and have not; nobody is evicted for two
CREATE TABLE evictions (
    victim_uid text NOT NULL,
    victim_shard int NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    preemptor_uid text NOT NULL,
    preemptor_shard int NOT NULL,
    PRIMARY KEY (victim_uid, victim_shard)
);
CREATE INDEX evictions_preemptor ON evictions (preemptor_uid);

-- last version of pods that are gone, against late duplicates
CREATE TABLE pod_tombstones (
    namespace text NOT NULL,
    name text NOT NULL,
    uid text NOT NULL,
    resource_version bigint,  -- null: its events had none
    shard int NOT NULL,
    at_ms bigint NOT NULL,
    PRIMARY KEY (namespace, name, uid)
);
"""
"""Pods: where they count, which wait and why, which have a node nominated, and which are gone."""

_DECISIONS = """
-- append-only: every decision, in commit order per shard
CREATE TABLE decisions (
    shard int NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    pod_uid text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    outcome text NOT NULL,
    node text,
    signature bytea NOT NULL,
    cycle_seq bigint NOT NULL,  -- cycles.seq that explains it; 0: none
    decided_at_ms bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    payload bytea NOT NULL,  -- the record of berth.decisions, as published
    profile text,  -- null: decided before it had a column
    profile_revision bigint,  -- null: no profile was asked, or as for profile
    PRIMARY KEY (shard, seq)
);
CREATE INDEX decisions_node ON decisions (node text_pattern_ops) WHERE node IS NOT NULL;
CREATE INDEX decisions_outcome ON decisions (outcome, shard, seq)
    WHERE outcome NOT IN ('bound', 'adopted', 'released');
CREATE INDEX decisions_pod ON decisions (namespace, name);
CREATE INDEX decisions_ranges ON decisions USING brin (
    decided_at_ms,
    profile_revision,
    profile text_bloom_ops (n_distinct_per_range = 16),
    signature bytea_bloom_ops (n_distinct_per_range = 200)
) WITH (pages_per_range = 64);

-- the scheduling attempts of a batch: filter counts, candidates, seed, generation
CREATE TABLE cycles (
    shard int NOT NULL,
    seq bigint NOT NULL,  -- seq of the first attempt's first decision
    signature bytea,  -- with doc: of the group
    doc text,  -- one attempt as JSON: before attempts were packed
    recorded_at timestamptz NOT NULL DEFAULT now(),
    last_seq bigint,  -- seq of the last attempt's first decision; null: one alone
    revisions jsonb,  -- by which profiles: pairs of a name and a revision
    attempts bytea,  -- services/codec/attempts.py
    PRIMARY KEY (shard, seq)
);
ALTER TABLE cycles ALTER attempts SET STORAGE EXTERNAL;

-- records that could not be accepted
CREATE TABLE dead_letters (
    shard int NOT NULL,
    seq bigint NOT NULL,
    topic text NOT NULL,
    partition int NOT NULL,
    log_offset bigint NOT NULL,
    key bytea,
    raw bytea NOT NULL,
    code text NOT NULL,
    path text NOT NULL,
    message text NOT NULL,
    at_ms bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    sent_by text,  -- who sent the event; null: from before this was noted
    PRIMARY KEY (shard, seq)
);
CREATE INDEX dead_letters_key ON dead_letters (substring(key, 1, 256));

-- how far the history of each shard was pruned; no row: all of it is kept
CREATE TABLE pruned (
    shard int PRIMARY KEY,
    -- of older decisions only those are kept that explain a pod which is placed or waits
    seq_below bigint NOT NULL
);
"""
"""Decisions, what explains them, and records that could not be accepted."""

_CONFIGURATION = """
-- every revision that an event made of a profile; the last one is in force
CREATE TABLE profiles (
    name text NOT NULL,
    revision bigint NOT NULL,  -- counts the changes, from 1
    spec json,  -- filters and scores; null: deleted
    resource_version bigint,
    at_ms bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    sent_by text,  -- who sent the event; null: from before this was noted
    PRIMARY KEY (name, revision)
);

-- the latest of each configuration object; profiles have a table of their own
CREATE TABLE config_objects (
    kind text NOT NULL,
    namespace text NOT NULL,  -- '' where the kind has none
    name text NOT NULL,
    object json,  -- as its kind writes it; null: deleted
    resource_version bigint,
    at_ms bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    sent_by text,  -- who sent the event; null: from before this was noted
    PRIMARY KEY (kind, namespace, name)
);

-- what rules over pods of many nodes read, so that workers notice each other
CREATE TABLE claims (
    key text PRIMARY KEY,  -- a namespace, *, or a matcher (JSON)
    version bigint NOT NULL,
    batches jsonb NOT NULL  -- shard to the last batch before the key came
);
"""
"""Profiles and other configuration, and the versions of what spans nodes."""

_SHARDS = """
-- epoch and counters, one row per shard; who owns it is in worker_leases
CREATE TABLE shards (
    shard int PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT '0',
    seq_next bigint NOT NULL DEFAULT '1',
    dead_seq_next bigint NOT NULL DEFAULT '1',
    log_time_ms bigint NOT NULL DEFAULT '0',
    -- its pods must be read from the log again (`berth refold`) before a worker may start
    refold boolean NOT NULL DEFAULT false,
    holder uuid,  -- the process that has this epoch
    due_ms bigint  -- log time at which time alone lets something be decided
);

-- how far each shard has come: the fence and the exactly-once of the whole product
CREATE TABLE shard_offsets (
    shard int NOT NULL,
    topic text NOT NULL,
    partition int NOT NULL,
    epoch bigint NOT NULL,
    next_offset bigint NOT NULL,
    refold_below bigint,  -- records below are read once more for what they say of known pods; null: none
    topic_id text,  -- the log's own id of the topic; null: not noted yet
    resync_below bigint,  -- records below come once more, or late, after the log lost some; null: none
    -- records below are of before shards were added: their keys may have moved; null: none
    moved_below bigint,
    PRIMARY KEY (shard, topic, partition)
);

-- who may change a shard, and until when; commits lock none of it
CREATE TABLE worker_leases (
    shard int PRIMARY KEY,
    owner text,  -- null: released
    holder uuid,  -- the owner's process; of a worker: workers.incarnation
    epoch bigint NOT NULL DEFAULT '0',  -- counts the owners
    taken_at timestamptz,  -- since when it is the owner
    expires_at timestamptz  -- by the database's clock
) WITH (fillfactor = 60);

-- who publishes a shard, and until when
CREATE TABLE relay_leases (
    shard int PRIMARY KEY,
    owner text,  -- null: released
    holder uuid,  -- the owner's process; of a worker: workers.incarnation
    epoch bigint NOT NULL DEFAULT '0',  -- counts the owners
    taken_at timestamptz,  -- since when it is the owner
    expires_at timestamptz  -- by the database's clock
) WITH (fillfactor = 60);

-- one row per owner that a shard had: nothing but history, no worker reads it
CREATE TABLE shard_owners (
    shard int NOT NULL,
    epoch bigint NOT NULL,
    owner text NOT NULL,
    holder uuid NOT NULL,  -- workers.incarnation
    taken_at timestamptz NOT NULL,
    ended_at timestamptz,  -- released, or taken by another; null: neither
    PRIMARY KEY (shard, epoch)
);

-- one row per start of a worker, with its last heartbeat
CREATE TABLE workers (
    incarnation uuid PRIMARY KEY,  -- made anew at each start of a process
    name text NOT NULL,
    build text NOT NULL,  -- version of berth
    seed bigint NOT NULL,
    settings json NOT NULL,  -- what decides, beside the log
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at timestamptz,  -- null: it runs, or was killed
    ready boolean NOT NULL DEFAULT false,  -- to take shards
    figures json  -- how it gets on (Figures)
);

-- what the relay has published
CREATE TABLE relay_cursor (
    shard int PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT '0',
    decisions_seq bigint NOT NULL DEFAULT '0',
    dead_letters_seq bigint NOT NULL DEFAULT '0',
    alarm text,  -- what is wrong with the topic of decisions; null: nothing
    -- below this offset of the topic, what is not the ledger's was reported
    compared_offset bigint NOT NULL DEFAULT '0',
    holder uuid,  -- the process that has this epoch
    -- below this offset of the topic, what is not the ledger's was acknowledged
    acknowledged_offset bigint NOT NULL DEFAULT '0',
    acknowledged_at timestamptz,  -- null: never, or nobody knows
    -- when the topic was last found to hold what is not the ledger's, in ms; 0: never
    generation bigint NOT NULL DEFAULT '0'
);
"""
"""Shards: how far each has come, who owns it, and who publishes it."""

_JOURNAL = """
-- one row per batch: what it was made from, and hashes of what it wrote
CREATE TABLE journal (
    shard int NOT NULL,  -- the least shard of the worker
    batch bigint NOT NULL,  -- next_offset of ~batches after it
    start json,  -- what a worker began with that read its state from the ledger just before; else null
    renewed boolean NOT NULL,  -- a checkpoint was taken just before
    lanes json NOT NULL,  -- shard, topic, partition, lo, hi; by first record
    record_order bytea NOT NULL,  -- lane of each record (uint16, zlib)
    seqs json NOT NULL,  -- shard to [first, next] seq of its decisions
    log_time_ms bigint NOT NULL,
    decisions_hash bytea NOT NULL,  -- SHA-256 of the payloads
    effects json NOT NULL,  -- kind of row to start of its SHA-256
    digest text,  -- of the state after it; of every 100th batch
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- whoever could see another batch is behind it
    position bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY CONSTRAINT journal_position UNIQUE,
    worker text NOT NULL DEFAULT '',  -- who planned it
    owned json,  -- how the shards of the worker changed since its batch before; null: not
    followed json,  -- shard to the last batch of another worker seen since the batch before; null: none
    -- keys of pods that wait again since the batch before: others took their node; null: none
    forgotten json,
    lost json,  -- ids of nodes whose claims were not granted; null: none
    moved json,  -- node id to how far its version was ahead of what the worker knew; null: none
    -- what other workers fold of the batch (Feed, msgpack)
    feed bytea NOT NULL DEFAULT '\\x',
    PRIMARY KEY (shard, batch)
);
ALTER TABLE journal ALTER feed SET STORAGE EXTERNAL;

-- the ledger's state after a batch, complete: what a replay begins with
CREATE TABLE checkpoints (
    shard int NOT NULL,
    batch bigint NOT NULL,
    start json NOT NULL,  -- how its worker had begun, as in journal.start
    head json NOT NULL,  -- offsets and counters
    parts_count int NOT NULL,
    bytes_count bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (shard, batch)
);

-- the rows of checkpoints; without a row in checkpoints they are being written
CREATE TABLE checkpoint_parts (
    shard int NOT NULL,
    batch bigint NOT NULL,
    part int NOT NULL,
    kind text NOT NULL,  -- of its rows
    body bytea NOT NULL,  -- rows as msgpack, compressed (zlib)
    PRIMARY KEY (shard, batch, part)
);

-- events of pods that another shard decides for; read ones stay as long as the journal
CREATE TABLE inbox (
    home int NOT NULL,  -- the shard that decides
    source int NOT NULL,  -- the shard that read the event
    number bigint NOT NULL,  -- next_offset of ~handed/HOME before it
    log_offset bigint NOT NULL,  -- in the partition of the source
    key bytea,
    value bytea,
    at_ms bigint NOT NULL,  -- when the log took it
    seal bytea,  -- who sent it, sealed; null: nobody says so
    PRIMARY KEY (home, source, number)
);

-- pods whose events go to another shard
CREATE TABLE forwarded (
    shard int NOT NULL,  -- the shard that reads the events
    key text NOT NULL,  -- namespace/name of a pod
    home int NOT NULL,  -- the shard to which all of them go
    uid text NOT NULL,  -- of a pod of this name
    gone_number bigint,  -- of the event by which it was deleted; null: it was not
    gone_at_ms bigint,  -- log time of that
    PRIMARY KEY (shard, key, uid)
);
"""
"""The journal, by which workers follow each other and days are replayed."""

_API = """
-- who may use the API
CREATE TABLE api_keys (
    key_hash bytea PRIMARY KEY,  -- SHA-256 of the key
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    roles text[] NOT NULL,  -- of producer, auditor, operator and admin
    namespaces text[],  -- null: all
    kinds text[],  -- kinds of events; null: those of its roles
    events_per_second int,  -- null: no limit
    bytes_per_second bigint,  -- null: no limit
    requests_at_once int,  -- null: the setting's
    priority_max int,  -- null: 0 with namespaces or priority_classes
    priority_classes text[]  -- null: none with namespaces or priority_max
);

-- ids of events accepted by the API, so that a repeated request appends nothing
CREATE TABLE ingested_events (
    id text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    digest bytea,  -- SHA-256 of type, object and at; null: not kept then
    holder text NOT NULL DEFAULT '',  -- name of the key that sent it; empty: without a key
    PRIMARY KEY (holder, id)
);
CREATE INDEX ingested_events_time ON ingested_events (recorded_at);

-- who asked the API for what
CREATE TABLE access_log (
    minute_ms bigint NOT NULL,  -- when the minute of the request began
    digest bytea NOT NULL,  -- of what equal requests have in common
    at_ms bigint NOT NULL,  -- of the first one
    last_at_ms bigint NOT NULL,  -- of the last one
    times bigint NOT NULL,
    caller text,  -- who was let in; null: nobody
    roles text[] NOT NULL,
    address text NOT NULL,
    method text NOT NULL,
    route text NOT NULL,
    target text NOT NULL,  -- path and query, where somebody was let in
    status smallint NOT NULL,
    code text NOT NULL,  -- of the error; empty: none
    duration_ms bigint NOT NULL,  -- of the slowest one
    events_count int,  -- events that the log took; null: none were sent
    spans json NOT NULL,  -- where: topic, partition, first offset, end
    PRIMARY KEY (minute_ms, digest)
);
CREATE INDEX access_log_caller ON access_log (caller, minute_ms, digest);
CREATE INDEX access_log_status ON access_log (status, minute_ms, digest);

-- one row per audit; the next one goes on where the last one ended in which all held
CREATE TABLE audits (
    at timestamptz PRIMARY KEY,  -- when its snapshot was taken
    seconds float8 NOT NULL,
    ok boolean NOT NULL,  -- everything held but what is a warning
    seqs json NOT NULL,  -- shard to [first, next] seq that it looked at
    batches json NOT NULL,  -- shard to [first, last] batch of its journal
    broken json NOT NULL  -- the invariants that do not hold, with offenders
);
"""
"""What the API keeps."""

_LOG = """
-- the secret by which APIs seal a sender's name and workers check it
CREATE TABLE log_seal (
    id smallint PRIMARY KEY,  -- 1
    secret bytea NOT NULL,
    CONSTRAINT log_seal_one CHECK (id = 1)
);

-- which ledger this is
CREATE TABLE ledger_name (
    id smallint PRIMARY KEY,  -- 1
    name text NOT NULL,  -- drawn once, when the table was made
    CONSTRAINT ledger_name_one CHECK (id = 1)
);

-- each time that a partition did not hold what a shard would read next
CREATE TABLE log_faults (
    topic text NOT NULL,
    partition int NOT NULL,
    epoch bigint NOT NULL,  -- of the worker that found it
    found_at timestamptz NOT NULL DEFAULT now(),
    code text NOT NULL,  -- recreated, truncated or tail-lost
    next_offset bigint NOT NULL,  -- where the shard would have gone on
    first_offset bigint NOT NULL,  -- of the log then
    end_offset bigint NOT NULL,  -- of the log then
    goes_on_at bigint NOT NULL,  -- where it goes on instead
    PRIMARY KEY (topic, partition, epoch)
);

-- what the ledger has and a log that lost records does not mention any more
CREATE TABLE unmentioned (
    topic text NOT NULL,
    partition int NOT NULL,
    epoch bigint NOT NULL,
    key text NOT NULL,  -- as the records of the topic have it
    uid text NOT NULL,  -- of a pod; empty for others
    node text NOT NULL,  -- where the pod is; empty: nowhere, or no pod
    PRIMARY KEY (topic, partition, epoch, key)
);

-- embedded log: partitions; the row lock on next_offset makes offsets commit in order
CREATE TABLE log_topics (
    topic text NOT NULL,
    partition int NOT NULL,
    next_offset bigint NOT NULL DEFAULT '0',
    compacted boolean NOT NULL,
    id text NOT NULL,  -- the topic's own: made anew, it has another
    first_offset bigint NOT NULL DEFAULT '0',  -- records below are gone by retention; compaction leaves it
    PRIMARY KEY (topic, partition)
);

-- embedded log: records
CREATE TABLE log_records (
    topic text NOT NULL,
    partition int NOT NULL,
    log_offset bigint NOT NULL,
    key bytea,
    value bytea,
    timestamp_ms bigint NOT NULL,
    seal bytea,  -- who sent it, sealed; null: nobody says so
    PRIMARY KEY (topic, partition, log_offset)
);
"""
"""The embedded log, and what is known of the log whichever it is."""

_WORKS_FROM = "the oldest migration whose version of berth may work on these tables"


def upgrade() -> None:
    """Create all tables, and draw the ledger's name and the secret of its seals."""
    about = sa.Column("works_from", sa.String(32), comment=_WORKS_FROM)
    op.add_column("alembic_version", about)  # env.py fills it after each run
    connection = op.get_bind()
    for part in (_NODES, _PODS, _DECISIONS, _CONFIGURATION, _SHARDS, _JOURNAL, _API, _LOG):
        for statement in (*part.split(";\n"), *_comments(part)):
            connection.exec_driver_sql(statement)
    op.execute("INSERT INTO ledger_name (id, name) VALUES (1, gen_random_uuid()::text)")
    seal = sa.text("INSERT INTO log_seal (id, secret) VALUES (1, :secret)")
    op.execute(seal.bindparams(secret=secrets.token_bytes(32)))


def _comments(part: str) -> Iterator[str]:
    """Yield the statements that bring comments into the catalogue."""
    table = above = ""
    for line in part.splitlines():
        code, _, comment = (each.strip().replace("'", "''") for each in line.partition("--"))
        if code.startswith("CREATE TABLE"):
            table = code.split()[2]
            what = f"TABLE {table}"
        else:
            what = f"COLUMN {table}.{code.partition(' ')[0]}"
        if code and (comment or above):
            yield f"COMMENT ON {what} IS '{comment or above}'"
        above = "" if code else comment
