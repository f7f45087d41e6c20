"""All SQL of the outbox: what the relay reads and notes."""

# A dump that is restored has another system, a replica that took over or a backup another timeline.
LEDGER_NAME = """
SELECT name || '.' || (pg_control_system()).system_identifier || '.'
    || ltrim(substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), '0')
FROM ledger_name
"""
LEDGER_NAME_OF = f"""
SELECT ({LEDGER_NAME}) || '.' || generation FROM relay_cursor WHERE shard = $1
"""
UNPUBLISHED = """
SELECT s.shard FROM shards s JOIN relay_cursor r USING (shard)
WHERE s.shard = ANY($1::int[])
    AND (s.seq_next > r.decisions_seq + 1 OR s.dead_seq_next > r.dead_letters_seq + 1
        OR (s.shard = 0 AND EXISTS (SELECT FROM scales WHERE seq > r.scales_seq)))
"""
DECISIONS_AFTER = """
SELECT seq, namespace, name, payload, (date_part('epoch', recorded_at) * 1000)::bigint AS recorded_at_ms
FROM decisions WHERE shard = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
DECISIONS_OF = """
SELECT d.seq, d.namespace, d.name, d.payload,
    (date_part('epoch', d.recorded_at) * 1000)::bigint AS recorded_at_ms
FROM unnest($2::bigint[]) AS w (seq) JOIN decisions d ON d.shard = $1 AND d.seq = w.seq ORDER BY d.seq
"""
DEAD_LETTERS_AFTER = """
SELECT shard, seq, topic, partition, log_offset, key, raw, code, path, message, at_ms, sent_by
FROM dead_letters WHERE shard = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
SCALES_AFTER = """
SELECT seq, namespace, name, payload FROM scales WHERE $1 = 0 AND seq > $2 ORDER BY seq LIMIT $3
"""
PUBLISHED = "SELECT {column} FROM relay_cursor WHERE shard = $1"
COMPARED = "SELECT compared_offset FROM relay_cursor WHERE shard = $1"
ACKNOWLEDGED = """
SELECT acknowledged_offset AS below, (date_part('epoch', acknowledged_at) * 1000)::bigint AS at_ms
FROM relay_cursor WHERE shard = $1
"""
KEPT_FROM = "SELECT coalesce((SELECT seq_below FROM pruned WHERE shard = $1), 1)"
TIMED = """
WITH reached AS (SELECT max(log_time_ms) AS log_time_ms FROM shards)
SELECT log_time_ms, (SELECT min(s.due_ms) FROM shards s WHERE s.due_ms > r.log_time_ms AND s.due_ms < $1)
    AS due_ms
FROM reached r WHERE EXISTS (SELECT FROM pending)
    OR EXISTS (SELECT FROM config_objects WHERE kind = $2 AND object IS NOT NULL)
    OR EXISTS (SELECT FROM hosted_replicas)  -- said of an object that is gone, until the step ends
"""
# By the clock: a ledger that is set back twice to one backup would count to the same number twice.
RAISE_ALARM = """
UPDATE relay_cursor SET alarm = coalesce(alarm, $3), compared_offset = $4,
    generation = greatest(generation + 1, (date_part('epoch', clock_timestamp()) * 1000)::bigint)
WHERE shard = $1 AND epoch = $2 AND holder = $5
"""
ACKNOWLEDGE = """
WITH raised AS (SELECT shard, alarm FROM relay_cursor WHERE alarm IS NOT NULL ORDER BY shard FOR UPDATE)
UPDATE relay_cursor r SET alarm = NULL, acknowledged_offset = compared_offset, acknowledged_at = now()
FROM raised WHERE r.shard = raised.shard
RETURNING raised.shard, raised.alarm
"""
MARK_PUBLISHED = """
UPDATE relay_cursor SET {column} = greatest({column}, $3)
WHERE shard = $1 AND epoch = $2 AND holder = $4
"""
