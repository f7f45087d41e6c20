"""All SQL of the leases, and of the workers that are up.

Workers and relays have a table of leases each, beside the table whose epoch fences what they write. All times
are the database's, and nothing asks for connections: a lease outlives a restart of the database and holds
through a pool of connections. No commit locks a lease, so that no renewal waits for a commit.
"""

from __future__ import annotations

from domain.model.limits import lease_seconds_max, worker_seen_seconds_max

LEASE_TABLES = {"worker_leases": "shards", "relay_leases": "relay_cursor"}
_FREE = f"""(
    owner IS NULL OR holder = $2 OR expires_at <= clock_timestamp()
    OR expires_at > clock_timestamp() + interval '{lease_seconds_max:g} seconds'
)"""
LEASES = f"""
SELECT shard, {_FREE} AS free, owner, holder <> $2 AS is_of_another,
    extract(epoch FROM expires_at - clock_timestamp())::float8 AS seconds
FROM {{leases}} WHERE $1::int[] IS NULL OR shard = ANY($1) ORDER BY shard
"""
# A statement that waited for a lock sees the row as it is then.
LOCK_FREE_LEASES = f"""
SELECT shard FROM {{leases}} WHERE shard = ANY($1::int[]) AND {_FREE} ORDER BY shard FOR UPDATE
"""
LOCK_ALL_OFFSETS = """
SELECT 1 FROM shard_offsets WHERE shard = ANY($1::int[]) ORDER BY shard, topic, partition FOR UPDATE
"""
# A ledger that lost its last transactions gives an epoch twice: the holder tells the two owners apart.
WAIT_BRIEFLY = "SET LOCAL lock_timeout = '300ms'"
END_LATE_COMMITS = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usename = current_user AND a.application_name IN (
    SELECT $3::text || l.holder::text FROM worker_leases l
    WHERE l.shard = ANY($1::int[]) AND l.holder <> $2 AND l.expires_at <= clock_timestamp()
)
"""
RAISE_EPOCHS = """
UPDATE {fenced} SET epoch = epoch + 1, holder = $2 WHERE shard = ANY($1::int[]) RETURNING shard, epoch
"""
RAISE_OFFSETS = """
UPDATE shard_offsets o SET epoch = s.epoch FROM shards s WHERE s.shard = o.shard AND s.shard = ANY($1::int[])
"""
TAKE_LEASES = """
UPDATE {leases} l SET owner = $3, holder = $4, epoch = w.epoch, taken_at = statement_timestamp(),
    expires_at = clock_timestamp() + $5::float8 * interval '1 second'
FROM unnest($1::int[], $2::bigint[]) AS w (shard, epoch) WHERE l.shard = w.shard
"""
# The history of owners, in the transactions that take and release the leases of workers. It stops no lease: a
# ledger that lost its last transactions gives an epoch twice.
NOTE_OWNERS = """
WITH ended AS (
    UPDATE shard_owners SET ended_at = clock_timestamp() WHERE shard = ANY($1::int[]) AND ended_at IS NULL
)
INSERT INTO shard_owners (shard, epoch, owner, holder, taken_at)
SELECT shard, epoch, owner, holder, taken_at FROM worker_leases WHERE shard = ANY($1::int[])
ON CONFLICT (shard, epoch) DO UPDATE SET
    owner = excluded.owner, holder = excluded.holder, taken_at = excluded.taken_at, ended_at = NULL
"""
NOTE_RELEASED = """
UPDATE shard_owners o SET ended_at = clock_timestamp()
FROM unnest($1::int[], $2::bigint[]) AS w (shard, epoch)
WHERE o.shard = w.shard AND o.epoch = w.epoch AND o.holder = $3 AND o.ended_at IS NULL
"""
# The age is asked again where the row is deleted: a worker that was paused may announce itself meanwhile.
# What a lease names stays, though the lease ran out: it may be renewed until another worker takes the shard.
FORGET_OWNERS = """
WITH slice AS (
    SELECT o.shard, o.epoch FROM shard_owners o
    WHERE coalesce(o.ended_at, o.taken_at) < clock_timestamp() - $1::float8 * interval '1 second'
        AND NOT EXISTS (
            SELECT FROM worker_leases l WHERE (l.shard, l.epoch, l.holder) = (o.shard, o.epoch, o.holder)
        )
    ORDER BY o.shard, o.epoch LIMIT $2
)
DELETE FROM shard_owners o USING slice s WHERE (o.shard, o.epoch) = (s.shard, s.epoch)
    AND coalesce(o.ended_at, o.taken_at) < clock_timestamp() - $1::float8 * interval '1 second'
"""
FORGET_WORKERS = """
WITH slice AS (
    SELECT w.incarnation FROM workers w
    WHERE w.seen_at < clock_timestamp() - $1::float8 * interval '1 second'
        AND NOT EXISTS (SELECT FROM worker_leases l WHERE l.holder = w.incarnation)
    ORDER BY w.seen_at LIMIT $2
)
DELETE FROM workers w USING slice s WHERE w.incarnation = s.incarnation
    AND w.seen_at < clock_timestamp() - $1::float8 * interval '1 second'
"""
RENEW_LEASES = """
WITH held AS (
    SELECT l.shard FROM unnest($1::int[], $2::bigint[]) AS w (shard, epoch)
    JOIN {leases} l USING (shard, epoch) WHERE l.holder = $4 ORDER BY l.shard FOR UPDATE OF l
)
UPDATE {leases} l SET expires_at = clock_timestamp() + $3::float8 * interval '1 second'
FROM held h WHERE l.shard = h.shard RETURNING l.shard, l.epoch
"""
RELEASE_LEASES = """
UPDATE {leases} l SET owner = NULL, holder = NULL, taken_at = NULL, expires_at = NULL
FROM unnest($1::int[], $2::bigint[]) AS w (shard, epoch)
WHERE l.shard = w.shard AND l.epoch = w.epoch AND l.holder = $3
"""
ANNOUNCE = """
INSERT INTO workers (incarnation, name, build, seed, settings, ready, figures)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (incarnation) DO UPDATE SET
    seen_at = clock_timestamp(), stopped_at = NULL, ready = excluded.ready, figures = excluded.figures
"""
# With how many shards each holds. A worker whose lease ran out is gone, or will start over.
READY = f"""
SELECT w.incarnation, count(l.shard) FROM workers w LEFT JOIN worker_leases l ON l.holder = w.incarnation
WHERE w.ready AND w.stopped_at IS NULL
    AND w.seen_at > clock_timestamp() - interval '{worker_seen_seconds_max:g} seconds'
GROUP BY w.incarnation
HAVING coalesce(bool_and(l.expires_at > clock_timestamp()), true)
ORDER BY w.incarnation
"""
STOPPED = "UPDATE workers SET stopped_at = clock_timestamp() WHERE incarnation = $1"
