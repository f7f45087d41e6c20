"""All SQL of the embedded log."""

CHANNEL = "berth_log"

# One process at a time lays down topics; the number is arbitrary.
LOCK_TOPICS = "SELECT pg_advisory_xact_lock(7264001)"

CREATE_PARTITIONS = """
INSERT INTO log_topics (topic, id, partition, compacted)
SELECT $1, made.id, generate_series(0, $2::int - 1), $3
FROM (SELECT gen_random_uuid()::text AS id) AS made
WHERE NOT EXISTS (SELECT FROM log_topics WHERE topic = $1)
"""

ADD_PARTITIONS = """
INSERT INTO log_topics (topic, id, partition, compacted)
SELECT topic, min(id), generate_series(count(*), $2::int - 1), bool_or(compacted) FROM log_topics
WHERE topic = ANY ($1::text[]) GROUP BY topic
"""

TOPICS = """
SELECT topic, min(id) AS id, count(*) AS partitions FROM log_topics
WHERE topic = ANY ($1::text[]) GROUP BY topic
"""

COUNT_PARTITIONS = "SELECT count(*) FROM log_topics WHERE topic = $1"

# The row locks are taken in the order of the partitions, so that writers wait and never deadlock. They are
# held until the commit, so offsets become visible in order and without a hole: no reader can overtake a slow
# append.
LOCK_PARTITIONS = """
WITH locked AS MATERIALIZED (
    SELECT partition, next_offset
    FROM log_topics
    WHERE topic = $1 AND partition = ANY ($2::int[])
    ORDER BY partition
    FOR UPDATE
)
SELECT partition, next_offset, (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
FROM locked
"""

ADVANCE_PARTITIONS = """
WITH moved AS (
    UPDATE log_topics AS t
    SET next_offset = p.next_offset
    FROM unnest($2::int[], $3::bigint[]) AS p (partition, next_offset)
    WHERE t.topic = $1 AND t.partition = p.partition
)
SELECT pg_notify($4, $1)
"""

RECORD_COLUMNS = ("topic", "partition", "log_offset", "key", "value", "timestamp_ms", "seal")

# One snapshot for the records and the ends, so that an empty answer can be told from a truncated log.
READ = """
SELECT p.topic, p.partition, t.first_offset, t.next_offset,
    r.log_offset, r.key, r.value, r.timestamp_ms, r.seal
FROM unnest($1::text[], $2::int[], $3::bigint[], $4::int[]) WITH ORDINALITY
    AS p (topic, partition, position, records_max, turn)
LEFT JOIN log_topics AS t ON t.topic = p.topic AND t.partition = p.partition
LEFT JOIN LATERAL (
    SELECT log_offset, key, value, timestamp_ms, seal
    FROM log_records
    WHERE topic = p.topic AND partition = p.partition AND log_offset >= p.position
    ORDER BY log_offset
    LIMIT p.records_max
) AS r ON true
ORDER BY p.turn, r.log_offset
"""

BOUNDS = """
SELECT p.topic, p.partition, t.next_offset, t.first_offset
FROM unnest($1::text[], $2::int[]) AS p (topic, partition)
LEFT JOIN log_topics AS t ON t.topic = p.topic AND t.partition = p.partition
"""

AHEAD = """
SELECT p.topic, p.partition, t.next_offset, (
    SELECT r.timestamp_ms FROM log_records AS r
    WHERE r.topic = p.topic AND r.partition = p.partition AND r.log_offset >= p.position
    ORDER BY r.log_offset LIMIT 1
) AS oldest_ms
FROM unnest($1::text[], $2::int[], $3::bigint[]) AS p (topic, partition, position)
LEFT JOIN log_topics AS t ON t.topic = p.topic AND t.partition = p.partition
"""

LAST = """
SELECT topic, partition, log_offset, key, value, timestamp_ms, seal
FROM log_records
WHERE topic = $1 AND partition = $2
ORDER BY log_offset DESC
LIMIT 1
"""

# ------------------------------------------------------------------------------------------------- retention

PARTITIONS = """
SELECT topic, partition, compacted,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1::bigint AS before_ms
FROM log_topics ORDER BY topic, partition
"""

# Records that have a later one of their key, and tombstones that nothing stands behind. A tombstone that the
# workers have not read yet is all that tells them of the deletion.
SUPERSEDED = """
SELECT log_offset FROM (
    SELECT log_offset, timestamp_ms, value IS NULL AS is_tombstone,
        lead(log_offset) OVER (PARTITION BY key ORDER BY log_offset) IS NOT NULL AS is_superseded
    FROM log_records WHERE topic = $1 AND partition = $2 AND key IS NOT NULL
) AS r
WHERE (is_superseded AND timestamp_ms < $3) OR (is_tombstone AND timestamp_ms < $4 AND log_offset < coalesce(
    (SELECT min(next_offset) FROM shard_offsets WHERE topic = $1 AND partition = $2), 9223372036854775807
))
ORDER BY log_offset LIMIT $5
"""
DELETE_RECORDS = """
DELETE FROM log_records r USING unnest($3::bigint[]) AS w (log_offset)
WHERE r.topic = $1 AND r.partition = $2 AND r.log_offset = w.log_offset
"""

# The oldest records, up to the first that is young enough; the partition begins behind them from now on.
CUT = """
WITH oldest AS (
    SELECT log_offset, timestamp_ms FROM log_records
    WHERE topic = $1 AND partition = $2 ORDER BY log_offset LIMIT $4
), gone AS (
    SELECT log_offset FROM oldest WHERE log_offset < coalesce(
        (SELECT min(log_offset) FROM oldest WHERE timestamp_ms >= $3), 9223372036854775807
    )
), moved AS (
    UPDATE log_topics t SET first_offset = g.last + 1 FROM (SELECT max(log_offset) AS last FROM gone) AS g
    WHERE t.topic = $1 AND t.partition = $2 AND g.last IS NOT NULL
), deleted AS (
    DELETE FROM log_records r USING gone g
    WHERE r.topic = $1 AND r.partition = $2 AND r.log_offset = g.log_offset
)
SELECT count(*) FROM gone
"""
