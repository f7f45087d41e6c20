"""All SQL of the ledger's hot path, in the order in which a batch runs it.

Arrays come in through ``unnest`` and are joined to an index: ``= ANY`` is many times slower. An array of
arrays of different lengths is not a Postgres value: what nodes offer comes as text (``{100,2}``), and what is
requested, which every batch changes, as a column per resource, which costs both sides half as much.
"""

from __future__ import annotations

from domain.model.limits import attempts_first_max, attempts_latest_max

# ---------------------------------------------------------------------- commit, step 1: offsets and counters

# Locks in the order of the key, waits for transactions that hold a row, moves only rows that are as expected.
ADVANCE_OFFSETS = """
WITH locked AS (
    SELECT o.shard, o.topic, o.partition, w.hi
    FROM unnest($1::int[], $2::text[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[])
        AS w (shard, topic, partition, epoch, lo, hi)
    JOIN shard_offsets o USING (shard, topic, partition)
    WHERE o.epoch = w.epoch AND o.next_offset = w.lo
    ORDER BY o.shard, o.topic, o.partition
    FOR UPDATE OF o
)
UPDATE shard_offsets o SET next_offset = l.hi
FROM locked l
WHERE o.shard = l.shard AND o.topic = l.topic AND o.partition = l.partition
"""

# Right after the offsets, so that a batch sent twice is told apart before it looks at nodes.
ADVANCE_SHARDS = """
UPDATE shards s SET
    seq_next = coalesce(w.seq_hi, s.seq_next),
    dead_seq_next = coalesce(w.dead_hi, s.dead_seq_next),
    log_time_ms = greatest(s.log_time_ms, $7), due_ms = $9
FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
    AS w (shard, epoch, seq_lo, seq_hi, dead_lo, dead_hi)
WHERE s.shard = w.shard AND s.epoch = w.epoch
    AND s.holder = $8
    AND s.seq_next = coalesce(w.seq_lo, s.seq_next) AND s.dead_seq_next = coalesce(w.dead_lo, s.dead_seq_next)
"""

# ----------------- commit, step 2: resources; nodes: see sql_nodes.py

LOCK_RESOURCES = "LOCK TABLE resources IN SHARE ROW EXCLUSIVE MODE"
RESOURCES = "SELECT id, name FROM resources"
INSERT_RESOURCES = "INSERT INTO resources (id, name) SELECT * FROM unnest($1::smallint[], $2::text[])"

# ---------------------------------------------------------------------------------- commit, step 3: the rest

INSERT_TEMPLATES = """
INSERT INTO templates (signature, spec)
SELECT w.signature, w.spec::json FROM unnest($1::bytea[], $2::text[]) AS w (signature, spec)
ON CONFLICT DO NOTHING
"""

# Look the rows up one by one, then update them by their primary key. Without statistics the planner takes
# open placements for few, and would read all of them for each element of the array.
CLOSE_PLACEMENTS = """
WITH ended AS (
    DELETE FROM evictions WHERE victim_uid = ANY($1::text[]) AND victim_shard = ANY($3::int[])
), moved AS (
    UPDATE moves SET is_open = false WHERE is_open AND pod_uid = ANY($1::text[]) AND shard = ANY($3::int[])
)
UPDATE placements p SET released_at_ms = w.at_ms, released_recorded_at = now(),
    closed_by = $4::int, closed_batch = $5::bigint
FROM unnest($1::text[], $2::bigint[]) AS w (pod_uid, at_ms) CROSS JOIN LATERAL (
    SELECT o.shard, o.seq FROM placements o
    WHERE o.pod_uid = w.pod_uid AND o.released_at_ms IS NULL AND coalesce(o.home, o.shard) = ANY($3::int[])
    OFFSET 0
) AS found
WHERE p.shard = found.shard AND p.seq = found.seq
"""

# What labels were is kept for the past; both parts see the rows as they were.
REFRESH_PLACEMENTS = """
WITH kept AS (
    INSERT INTO past_labels (shard, seq, until_by, until_batch, labels)
    SELECT p.shard, p.seq, $6::int, $7::bigint, p.labels
    FROM unnest($1::text[], $3::text[]) AS w (pod_uid, labels) CROSS JOIN LATERAL (
        SELECT * FROM placements o
        WHERE o.pod_uid = w.pod_uid AND o.released_at_ms IS NULL
            AND coalesce(o.home, o.shard) = ANY($5::int[])
        OFFSET 0
    ) AS p
    WHERE p.labels IS DISTINCT FROM w.labels AND $7::bigint IS NOT NULL
)
UPDATE placements p SET resource_version = w.resource_version, labels = w.labels, life = w.life
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS w (pod_uid, resource_version, labels, life)
WHERE p.pod_uid = w.pod_uid AND p.released_at_ms IS NULL AND coalesce(p.home, p.shard) = ANY($5::int[])
"""

COUNT_PLACEMENTS = """
UPDATE placements p SET counted = true FROM unnest($1::text[]) AS w (pod_uid)
WHERE p.pod_uid = w.pod_uid AND p.released_at_ms IS NULL AND coalesce(p.home, p.shard) = ANY($2::int[])
"""

TELL_PLACEMENTS = """
UPDATE placements p SET orphaned = w.orphaned FROM unnest($1::text[], $2::bool[]) AS w (pod_uid, orphaned)
WHERE p.pod_uid = w.pod_uid AND p.released_at_ms IS NULL AND coalesce(p.home, p.shard) = ANY($3::int[])
"""

# By the uid, and not by an index of shards: a worker may have all of them.
REMOVE_PENDING = """
WITH gone AS (
    DELETE FROM pending p USING unnest($1::text[]) AS w (pod_uid)
    WHERE p.pod_uid = w.pod_uid AND p.shard + 0 = ANY($2::int[])
    RETURNING p.*
), kept AS (
    INSERT INTO past_pending (removed_by, removed_batch, pod_uid, shard, namespace, name, signature, labels,
        arrival, since_ms, life, gang, added_by, added_batch)
    SELECT $3::int, $4::bigint, pod_uid, shard, namespace, name, signature, labels, arrival, since_ms, life,
        gang, added_by, added_batch
    FROM gone WHERE $4::bigint IS NOT NULL
)
SELECT DISTINCT shard, signature FROM gone
"""

UPSERT_PENDING_GROUPS = """
INSERT INTO pending_groups (shard, signature, reasons, unresolvable, cycle_seq, at_ms, begun_by, begun_batch)
SELECT w.shard, w.signature, w.reasons::jsonb, w.unresolvable, w.cycle_seq, w.at_ms, $7::int, $8::bigint
FROM unnest($1::int[], $2::bytea[], $3::text[], $4::bool[], $5::bigint[], $6::bigint[])
    AS w (shard, signature, reasons, unresolvable, cycle_seq, at_ms)
ON CONFLICT (shard, signature) DO UPDATE SET
    reasons = excluded.reasons, unresolvable = excluded.unresolvable,
    cycle_seq = excluded.cycle_seq, at_ms = excluded.at_ms
"""

# The attempt goes to the last one of its group where that failed for the same reasons, else behind it. Of the
# others the first few stay, and the latest.
NOTE_ATTEMPTS = f"""
WITH found AS (
    SELECT w.*, l.number AS last_number,
        l.reasons = w.reasons::jsonb AND l.profile_revision = w.profile_revision AS same
    FROM unnest($1::int[], $2::bytea[], $3::text[], $4::bool[], $5::bigint[], $6::bigint[], $7::text[],
        $8::bigint[], $9::bigint[])
        AS w (shard, signature, reasons, unresolvable, cycle_seq, at_ms, profile, profile_revision,
            nodes_count)
    LEFT JOIN LATERAL (
        SELECT g.number, g.reasons, g.profile_revision FROM group_attempts g
        WHERE g.shard = w.shard AND g.signature = w.signature ORDER BY g.number DESC LIMIT 1
    ) l ON true
), again AS (
    UPDATE group_attempts g SET times = g.times + 1, last_at_ms = f.at_ms
    FROM found f
    WHERE f.same AND g.shard = f.shard AND g.signature = f.signature AND g.number = f.last_number
), added AS (
    INSERT INTO group_attempts (shard, signature, number, at_ms, last_at_ms, times, profile, profile_revision,
        nodes_count, reasons, unresolvable, cycle_seq, noted_by, noted_batch)
    SELECT f.shard, f.signature, coalesce(f.last_number, 0) + 1, f.at_ms, f.at_ms, 1, f.profile,
        f.profile_revision, f.nodes_count, f.reasons::jsonb, f.unresolvable, f.cycle_seq, $10::int,
        $11::bigint
    FROM found f WHERE f.same IS NOT TRUE
    RETURNING shard, signature, number
)
DELETE FROM group_attempts g USING added a
WHERE g.shard = a.shard AND g.signature = a.signature AND g.number = a.number - {attempts_latest_max}
    AND g.number > {attempts_first_max}
"""

# Only groups that this batch touched can have lost their last pod.
REMOVE_EMPTY_GROUPS = """
WITH gone AS (
    DELETE FROM pending_groups g USING unnest($1::int[], $2::bytea[]) AS w (shard, signature)
    WHERE g.shard = w.shard AND g.signature = w.signature
        AND NOT EXISTS (SELECT FROM pending p WHERE p.shard = w.shard AND p.signature = w.signature)
    RETURNING g.shard, g.signature, g.begun_by, g.begun_batch
)
INSERT INTO past_groups (shard, signature, begun_by, begun_batch, emptied_by, emptied_batch)
SELECT shard, signature, begun_by, begun_batch, $3::int, $4::bigint FROM gone WHERE $4::bigint IS NOT NULL
"""

END_NOMINATIONS = """
WITH ended AS (
    DELETE FROM nominations n WHERE n.pod_uid = ANY($1::text[]) AND n.shard = ANY($2::int[])
    RETURNING n.pod_uid, n.shard
)
DELETE FROM evictions e USING ended n
WHERE e.preemptor_uid = n.pod_uid AND e.preemptor_shard = n.shard
"""

_MOVES_OF = "node = ANY($1::text[]) AND decided_by = ANY($2::int[])"
SPARE_MOVES = f"UPDATE moves SET is_open = false WHERE is_open AND {_MOVES_OF}"
FORGET_MOVES = f"DELETE FROM moves WHERE {_MOVES_OF}"

UPSERT_TOMBSTONES = """
INSERT INTO pod_tombstones (namespace, name, uid, resource_version, shard, at_ms)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::int[], $6::bigint[])
ON CONFLICT (namespace, name, uid) DO UPDATE SET
    resource_version = excluded.resource_version,
    shard = excluded.shard, at_ms = excluded.at_ms
"""

# The same revision comes again when only the resource version is newer.
UPSERT_PROFILES = """
INSERT INTO profiles (name, revision, spec, resource_version, at_ms, sent_by, set_by, set_batch)
SELECT w.name, w.revision, w.spec::json, w.resource_version, w.at_ms, w.sent_by, $7::int, $8::bigint
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
    AS w (name, revision, spec, resource_version, at_ms, sent_by)
ON CONFLICT (name, revision) DO UPDATE SET resource_version = excluded.resource_version
"""


def _keep_config(keys: str, by: str, batch: str) -> str:
    """Keep objects as they were before the statement changes them."""
    return f"""
WITH kept AS (
    INSERT INTO past_config (kind, namespace, name, object, resource_version, at_ms, sent_by, set_by,
        set_batch, until_by, until_batch)
    SELECT c.kind, c.namespace, c.name, c.object, c.resource_version, c.at_ms, c.sent_by, c.set_by,
        c.set_batch, {by}::int, {batch}::bigint
    FROM {keys} AS w (kind, namespace, name) JOIN config_objects c USING (kind, namespace, name)
    WHERE {batch}::bigint IS NOT NULL
)"""


_KEYS = "unnest($1::text[], $2::text[], $3::text[])"
UPSERT_CONFIG = f"""{_keep_config(_KEYS, "$8", "$9")}
INSERT INTO config_objects (kind, namespace, name, object, resource_version, at_ms, sent_by, set_by,
    set_batch)
SELECT w.kind, w.namespace, w.name, w.object::json, w.resource_version, w.at_ms, w.sent_by, $8::int,
    $9::bigint
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])
    AS w (kind, namespace, name, object, resource_version, at_ms, sent_by)
ON CONFLICT (kind, namespace, name) DO UPDATE SET
    object = excluded.object, resource_version = excluded.resource_version, at_ms = excluded.at_ms,
    sent_by = excluded.sent_by, set_by = excluded.set_by, set_batch = excluded.set_batch
"""

DELETE_CONFIG = f"""{_keep_config(_KEYS, "$4", "$5")}
DELETE FROM config_objects c USING {_KEYS} AS w (kind, namespace, name)
WHERE (c.kind, c.namespace, c.name) = (w.kind, w.namespace, w.name)
"""

UPSERT_HOSTED = """
INSERT INTO hosted_replicas (namespace, name, kind, workload, least, most, wanted, running, waiting_since_ms,
    load_percent, reason, at_ms, seq)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::int[], $7::int[],
    $8::int[], $9::bigint[], $10::float8[], $11::text[], $12::bigint[], $13::bigint[])
ON CONFLICT (namespace, name) DO UPDATE SET
    kind = excluded.kind, workload = excluded.workload, least = excluded.least, most = excluded.most,
    wanted = excluded.wanted, running = excluded.running, waiting_since_ms = excluded.waiting_since_ms,
    load_percent = excluded.load_percent, reason = excluded.reason, at_ms = excluded.at_ms, seq = excluded.seq
"""
DELETE_HOSTED = """
DELETE FROM hosted_replicas h USING unnest($1::text[], $2::text[]) AS w (namespace, name)
WHERE (h.namespace, h.name) = (w.namespace, w.name)
"""
UPSERT_HOSTED_WAITS = """
INSERT INTO hosted_waits (shard, namespace, kind, workload, since_ms)
SELECT * FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::bigint[])
ON CONFLICT (shard, namespace, kind, workload) DO UPDATE SET since_ms = excluded.since_ms
"""
DELETE_HOSTED_WAITS = """
DELETE FROM hosted_waits h
USING unnest($1::int[], $2::text[], $3::text[], $4::text[]) AS w (shard, namespace, kind, workload)
WHERE (h.shard, h.namespace, h.kind, h.workload) = (w.shard, w.namespace, w.kind, w.workload)
"""
SCALE_COLUMNS = ("seq", "namespace", "name", "at_ms", "payload")

UPSERT_USAGE = """
INSERT INTO node_usage (node, at_ms, series, quality, sent_by)
SELECT w.node, w.at_ms, w.series::json, w.quality::json, w.sent_by
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[])
    AS w (node, at_ms, series, quality, sent_by)
ON CONFLICT (node) DO UPDATE SET
    at_ms = excluded.at_ms, series = excluded.series, quality = excluded.quality, sent_by = excluded.sent_by
"""
# Another worker may write some of them at this moment: all lock them in one order.
REMOVE_USAGE = """
WITH gone AS (SELECT node FROM node_usage WHERE node = ANY($1::text[]) ORDER BY node COLLATE "C" FOR UPDATE)
DELETE FROM node_usage u USING gone WHERE u.node = gone.node
"""

# Amounts may pass 64 bits, so they come as text.
ADD_TO_BILL = """
INSERT INTO bill_hours AS b (hour_ms, namespace, quality, part, resource, amount, price_micro, saved_micro)
SELECT w.hour_ms, w.namespace, w.quality, w.part, w.resource,
    w.amount::numeric, w.price_micro::numeric, w.saved_micro::numeric
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    AS w (hour_ms, namespace, quality, part, resource, amount, price_micro, saved_micro)
ON CONFLICT (hour_ms, namespace, quality, part, resource) DO UPDATE SET
    amount = b.amount + excluded.amount, price_micro = b.price_micro + excluded.price_micro,
    saved_micro = b.saved_micro + excluded.saved_micro
"""

# What COPY writes, in the order of the columns below; all other columns have defaults.
NODE_COLUMNS = ("id", "name", "version", "spec_version", "spec_count", "deleted", "allocatable", "requested")
NODE_SPEC_COLUMNS = ("node_id", "version", "spec", "deleted", "at_ms", "sent_by", "set_by", "set_batch")
PLACEMENT_COLUMNS = (
    "shard",
    "seq",
    "pod_uid",
    "namespace",
    "name",
    "resource_version",
    "signature",
    "labels",
    "node",
    "adopted",
    "bound_at_ms",
    "life",
    "counted",
    "gang",
    "opened_by",
    "opened_batch",
)
DECISION_COLUMNS = (
    "shard",
    "seq",
    "epoch",
    "pod_uid",
    "namespace",
    "name",
    "outcome",
    "node",
    "profile",
    "profile_revision",
    "signature",
    "cycle_seq",
    "decided_at_ms",
    "payload",
)
CYCLE_COLUMNS = ("shard", "seq", "last_seq", "revisions", "attempts")
PENDING_COLUMNS = (
    "shard",
    "arrival",
    "pod_uid",
    "namespace",
    "name",
    "resource_version",
    "signature",
    "labels",
    "since_ms",
    "sent_by",
    "tried",
    "life",
    "gang",
    "added_by",
    "added_batch",
)
NOMINATION_COLUMNS = (
    "pod_uid",
    "shard",
    "namespace",
    "name",
    "signature",
    "node",
    "at_ms",
    "expires_ms",
)
EVICTION_COLUMNS = (
    "victim_uid",
    "victim_shard",
    "namespace",
    "name",
    "preemptor_uid",
    "preemptor_shard",
)
MOVE_COLUMNS = (
    *("node", "pod_uid", "shard", "namespace", "name", "target", "decided_by"),
    *("at_ms", "expires_ms", "rests_until_ms", "is_open"),
)
ACTION_COLUMNS = (
    *("node", "at_ms", "logged_ms", "kind", "quality", "amount", "times", "reason", "policy"),
    *("namespace", "name", "uid", "sent_by"),
)
DEAD_LETTER_COLUMNS = (
    "shard",
    "seq",
    "topic",
    "partition",
    "log_offset",
    "key",
    "raw",
    "code",
    "path",
    "message",
    "at_ms",
    "sent_by",
)

# ---------------------------------------------------------------------------------- after an unknown outcome

# Waits for a transaction that still holds a row.
READ_OFFSETS = """
SELECT o.shard, o.topic, o.partition, o.epoch, o.next_offset
FROM unnest($1::int[], $2::text[], $3::int[]) AS w (shard, topic, partition)
JOIN shard_offsets o USING (shard, topic, partition)
ORDER BY o.shard, o.topic, o.partition
FOR UPDATE OF o
"""
READ_SHARDS = """
SELECT s.shard, s.epoch, s.holder, s.seq_next, s.dead_seq_next, s.log_time_ms, s.refold
FROM unnest($1::int[]) AS w (shard) JOIN shards s USING (shard)
"""

# ------------------------------------------------------------------------------------------------------ load

LOAD_SHARDS = "SELECT count(*), max(log_time_ms), bool_or(refold), (SELECT secret FROM log_seal) FROM shards"
LOAD_BATCHES = "SELECT shard, next_offset FROM shard_offsets WHERE topic = $1"
LOAD_SEQS = "SELECT shard, seq_next FROM shards"
SEAL_SECRET = "SELECT secret FROM log_seal"

_OFFSETS = "shard, topic, partition, next_offset, refold_below"
LOAD_OFFSETS = f"SELECT {_OFFSETS} FROM shard_offsets WHERE shard = ANY($1::int[])"
LOAD_NODES = """
SELECT n.id, n.name, n.version, n.spec_count, n.requested, n.deleted, s.spec
FROM nodes n JOIN node_specs s ON s.node_id = n.id AND s.version = n.spec_version
ORDER BY n.id
"""
# Those that live pods have: the ledger keeps every template that ever was, for explanations.
_LOAD_TEMPLATES = """
SELECT signature, t.spec FROM templates t JOIN (SELECT DISTINCT signature FROM {pods}) AS used
USING (signature) ORDER BY signature
"""
_PLACED = "placements WHERE released_at_ms IS NULL"
LOAD_TEMPLATES_PLACED = _LOAD_TEMPLATES.format(
    pods=f"(SELECT signature FROM {_PLACED} UNION ALL SELECT signature FROM nominations) AS live"
)
LOAD_TEMPLATES_PENDING = _LOAD_TEMPLATES.format(pods="pending WHERE shard = ANY($1::int[])")
LOAD_PLACEMENTS = """
SELECT pod_uid, namespace, name, resource_version, signature, labels, node, adopted, shard, seq, bound_at_ms,
    life, counted, home, gang
FROM placements WHERE released_at_ms IS NULL ORDER BY shard, seq
"""
LOAD_NOMINATIONS = """
SELECT n.pod_uid, n.namespace, n.name, n.shard, n.signature, n.node, n.at_ms, n.expires_ms, (
    SELECT json_agg(
        json_build_array(e.namespace || '/' || e.name, e.victim_uid, e.victim_shard) ORDER BY e.victim_uid
    )
    FROM evictions e WHERE e.preemptor_uid = n.pod_uid AND e.preemptor_shard = n.shard
)::text AS victims
FROM nominations n ORDER BY n.pod_uid COLLATE "C", n.shard
"""
LOAD_MOVES = """
SELECT node, pod_uid, shard, namespace, name, target, decided_by, at_ms, expires_ms, rests_until_ms, is_open
FROM moves ORDER BY node COLLATE "C", pod_uid COLLATE "C", shard
"""
LOAD_PENDING = """
SELECT pod_uid, namespace, name, resource_version, signature, labels, shard, arrival, since_ms, sent_by,
    tried, life, gang
FROM pending WHERE shard = ANY($1::int[]) ORDER BY arrival, shard, pod_uid COLLATE "C"
"""
LOAD_ORPHANED = """
SELECT namespace || '/' || name FROM placements
WHERE orphaned AND released_at_ms IS NULL AND coalesce(home, shard) = ANY($1::int[])
ORDER BY namespace COLLATE "C", name COLLATE "C"
"""
LOAD_PROFILES = """
SELECT DISTINCT ON (name) name, revision, spec, resource_version, at_ms, sent_by
FROM profiles ORDER BY name, revision DESC
"""
LOAD_CONFIG = """
SELECT kind, namespace, name, object, resource_version, at_ms, sent_by
FROM config_objects ORDER BY kind COLLATE "C", namespace COLLATE "C", name COLLATE "C"
"""
LOAD_HOSTED = 'SELECT * FROM hosted_replicas ORDER BY namespace COLLATE "C", name COLLATE "C"'
LOAD_HOSTED_WAITS = """
SELECT shard, namespace, kind, workload, since_ms FROM hosted_waits
ORDER BY shard, namespace COLLATE "C", kind COLLATE "C", workload COLLATE "C"
"""
LAST_SCALE = "SELECT coalesce(max(seq), 0) FROM scales"  # the last one always stays
LOAD_USAGE = 'SELECT node, at_ms, series, quality, sent_by FROM node_usage ORDER BY node COLLATE "C"'
COUNT_TOMBSTONES = (
    "SELECT count(*) FROM pod_tombstones WHERE $1::int[] IS NULL OR shard = ANY($1) GROUP BY namespace"
)
LOAD_TOMBSTONES = """
SELECT namespace, name, uid, resource_version, shard, at_ms FROM pod_tombstones
WHERE $1::int[] IS NULL OR shard = ANY($1)
ORDER BY at_ms, namespace COLLATE "C", name COLLATE "C", uid COLLATE "C"
"""
# The latest so many of each namespace.
LOAD_LATEST_TOMBSTONES = """
SELECT namespace, name, uid, resource_version, shard, at_ms FROM (
    SELECT *, row_number() OVER (
        PARTITION BY namespace ORDER BY at_ms DESC, name COLLATE "C" DESC, uid COLLATE "C" DESC
    ) AS number
    FROM pod_tombstones WHERE $1::int[] IS NULL OR shard = ANY($1)
) AS numbered WHERE number <= $2
ORDER BY at_ms, namespace COLLATE "C", name COLLATE "C", uid COLLATE "C"
"""

HOLD_EPOCHS = """
SELECT FROM unnest($1::int[], $2::bigint[]) AS w (shard, epoch)
JOIN shards s USING (shard, epoch) WHERE s.holder = $3 ORDER BY s.shard FOR SHARE OF s
"""
INSERT_OFFSETS = """
INSERT INTO shard_offsets AS o (shard, topic, partition, epoch, next_offset, topic_id)
SELECT $1, w.topic, w.partition, $2, w.next_offset, w.topic_id
FROM unnest($3::text[], $4::int[], $5::bigint[], $6::text[]) AS w (topic, partition, next_offset, topic_id)
ON CONFLICT (shard, topic, partition) DO UPDATE SET topic_id = excluded.topic_id WHERE o.topic_id IS NULL
"""
POSITIONS = """
SELECT shard, topic, partition, next_offset, topic_id, resync_below, moved_below
FROM shard_offsets WHERE shard = ANY($1::int[])
"""
# What is read anew is read in full, also where a re-fold was under way: that one ends here, and audits see
# that there was one. What comes behind the end is new.
MOVE_OFFSETS = """
UPDATE shard_offsets o
SET next_offset = w.next_offset, topic_id = w.topic_id, resync_below = w.resync_below,
    refold_below = CASE WHEN o.refold_below > w.next_offset THEN w.next_offset ELSE o.refold_below END,
    moved_below = CASE WHEN o.moved_below > w.kept THEN w.kept ELSE o.moved_below END
FROM unnest(
    $1::int[], $2::text[], $3::int[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[]
) AS w (shard, topic, partition, epoch, next_offset, topic_id, resync_below, kept)
WHERE (o.shard, o.topic, o.partition, o.epoch) = (w.shard, w.topic, w.partition, w.epoch)
"""
LOG_FAULT_COLUMNS = (
    *("topic", "partition", "epoch", "code"),
    *("next_offset", "first_offset", "end_offset", "goes_on_at"),
)
UNMENTIONED_COLUMNS = ("topic", "partition", "epoch", "key", "uid", "node")

# ---------------------------------------------------------------------------------------------------- layout

MIGRATION_LOCK = """
-- Another process may migrate for long. What comes behind the lock waits as briefly as all else.
SELECT set_config('lock_timeout', '10min', true), pg_advisory_xact_lock(7305181201),
    set_config('lock_timeout', '2s', true)
"""
COUNT_SHARDS = "SELECT count(*) FROM shards"
LOCK_SHARDS = "SELECT shard, epoch FROM shards ORDER BY shard FOR UPDATE"
LAY_DOWN = "INSERT INTO {table} (shard) SELECT generate_series(0, $1::int - 1) ON CONFLICT DO NOTHING"
