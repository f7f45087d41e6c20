"""Deletes in small steps, in the background, what no worker needs any more."""

from __future__ import annotations

import asyncio

from domain.model.limits import tombstone_steps
from domain.state.remembering import fair_share
from services.adapters.postgres.connections import BULK, Session
from services.ports.log import CONFIG_TOPIC, PODS_TOPIC

ROUND_SECONDS = 600.0
PAUSE_SECONDS = 0.5  # between two steps, so that commits have the disk most of the time
_ROWS_MAX = 5_000  # of a step: some milliseconds

# Walks the primary key, since an index on the time would cost each commit. The horizon is a step longer than
# a worker's, so that the ledger never knows less than any of them.
_FORGET_TOMBSTONES = """
WITH slice AS (
    SELECT namespace, name, uid FROM pod_tombstones
    WHERE (namespace, name, uid) > ($1::text, $2::text, $3::text)
    ORDER BY namespace, name, uid LIMIT $4
), gone AS (
    DELETE FROM pod_tombstones t USING slice w, shards s
    WHERE (t.namespace, t.name, t.uid) = (w.namespace, w.name, w.uid)
        AND s.shard = t.shard AND t.at_ms < s.log_time_ms - $5::bigint
)
SELECT namespace, name, uid FROM slice ORDER BY namespace DESC, name DESC, uid DESC LIMIT 1
"""


def tidying(dsn: str) -> Session:
    """Return the session that deletes; it takes one step at a time."""
    return Session(dsn, "berth-tidy", BULK)


async def forget_tombstones(
    session: Session, tombstone_hours: int, pause_seconds: float = PAUSE_SECONDS
) -> None:
    """Delete the tombstones and forwarded pods beyond the horizon, a few thousand rows at a time."""
    step_ms = tombstone_hours * 3_600_000 // tombstone_steps
    first: tuple[tuple[str, tuple[str | int, ...]], ...] = (
        (_FORGET_TOMBSTONES, ("", "", "")),
        (_FORGET_FORWARDED, (-1, "", "")),
    )
    for statement, last in first:
        while True:
            async with session.use() as connection:
                row = await connection.fetchrow(statement, *last, _ROWS_MAX, (tombstone_steps + 1) * step_ms)
            if row is None:
                break
            last = tuple(row)
            await asyncio.sleep(pause_seconds)


# Pods that are gone: as long as tombstones, no late duplicate may go another way.
_FORGET_FORWARDED = """
WITH slice AS (
    SELECT shard, key, uid FROM forwarded WHERE (shard, key, uid) > ($1::int, $2::text, $3::text)
    ORDER BY shard, key, uid LIMIT $4
), gone AS (
    DELETE FROM forwarded f USING slice w, shards s
    WHERE (f.shard, f.key, f.uid) = (w.shard, w.key, w.uid)
        AND s.shard = f.shard AND f.gone_at_ms < s.log_time_ms - $5::bigint
)
SELECT shard, key, uid FROM slice ORDER BY shard DESC, key DESC, uid DESC LIMIT 1
"""


# What the relay has not published stays, and the last that it has.
_FORGET_OLD_LETTERS = """
WITH slice AS (
    SELECT x.shard, x.seq, x.at_ms < s.log_time_ms - $2::bigint AS old
    FROM shards s JOIN relay_cursor r USING (shard), LATERAL (
        SELECT x.shard, x.seq, x.at_ms FROM dead_letters x
        WHERE x.shard = s.shard AND x.seq < r.dead_letters_seq ORDER BY x.seq LIMIT $3
    ) AS x
    WHERE s.shard = $1
), last AS (
    SELECT coalesce(min(seq) FILTER (WHERE NOT old) - 1, max(seq)) AS seq FROM slice
)
DELETE FROM dead_letters x USING last WHERE x.shard = $1 AND x.seq <= last.seq
"""

# "" where the key names none. A record's key says what it is about: namespace/name of a pod, and
# kind/namespace/name of configuration.
_NAMESPACE = f"""
CASE
    WHEN topic = '{PODS_TOPIC}' AND key LIKE '%/%' THEN split_part(encode(key, 'escape'), '/', 1)
    WHEN topic = '{CONFIG_TOPIC}' AND key LIKE '%/%/%' THEN split_part(encode(key, 'escape'), '/', 2)
    ELSE ''
END
"""
_COUNT_LETTERS = f"""
SELECT {_NAMESPACE} AS namespace, count(*) AS count FROM dead_letters WHERE shard = $1 GROUP BY 1 ORDER BY 1
"""
_FORGET_LETTERS_OF = f"""
DELETE FROM dead_letters WHERE shard = $1 AND seq IN (
    SELECT x.seq FROM dead_letters x JOIN relay_cursor r USING (shard)
    WHERE x.shard = $1 AND x.seq < r.dead_letters_seq AND {_NAMESPACE} = $2 ORDER BY x.seq LIMIT $3
)
"""


_FORGET_ACTIONS = """
WITH slice AS (
    SELECT a.id, a.logged_ms < s.log_time_ms - $2::bigint
        OR a.id <= (SELECT max(id) FROM node_actions) - $1::bigint AS old
    FROM shards s, LATERAL (SELECT id, logged_ms FROM node_actions ORDER BY id LIMIT $3) AS a
    WHERE s.shard = 0
), last AS (
    SELECT coalesce(min(id) FILTER (WHERE NOT old) - 1, max(id)) AS id FROM slice
)
DELETE FROM node_actions a USING last WHERE a.id <= last.id
"""


# What the relay has not published stays, and the last that it has: its number is where they go on.
_FORGET_SCALES = """
WITH slice AS (
    SELECT x.seq, x.at_ms < s.log_time_ms - $1::bigint AS old
    FROM shards s JOIN relay_cursor r USING (shard), LATERAL (
        SELECT x.seq, x.at_ms FROM scales x WHERE x.seq < r.scales_seq ORDER BY x.seq LIMIT $2
    ) AS x
    WHERE s.shard = 0
), last AS (
    SELECT coalesce(min(seq) FILTER (WHERE NOT old) - 1, max(seq)) AS seq FROM slice
)
DELETE FROM scales x USING last WHERE x.seq <= last.seq
"""


async def _forget_all(session: Session, pause_seconds: float, statement: str, *arguments: int) -> None:
    """Delete all that a statement says, some thousand rows at a time; their number is its last argument."""
    status = ""
    while status != "DELETE 0":
        async with session.use() as connection:
            status = await connection.execute(statement, *arguments, _ROWS_MAX)
        await asyncio.sleep(pause_seconds)


async def forget_scales(session: Session, days: int, pause_seconds: float = PAUSE_SECONDS) -> None:
    """Delete scales that were published, beyond an age."""
    await _forget_all(session, pause_seconds, _FORGET_SCALES, days * 86_400_000)


async def forget_actions(
    session: Session, actions_max: int, days: int, pause_seconds: float = PAUSE_SECONDS
) -> None:
    """Delete the oldest actions of agents: those beyond an age, and those beyond a number."""
    await _forget_all(session, pause_seconds, _FORGET_ACTIONS, actions_max, days * 86_400_000)


async def forget_dead_letters(
    session: Session, letters_max: int, days: int, pause_seconds: float = PAUSE_SECONDS
) -> None:
    """Delete the oldest dead letters: those beyond an age, and those beyond a number per shard.

    Where there are too many, the namespaces that have most of them lose their oldest.
    """
    async with session.use() as connection:
        shards = [row["shard"] for row in await connection.fetch("SELECT shard FROM shards ORDER BY shard")]
    for shard in shards:
        await _forget_all(session, pause_seconds, _FORGET_OLD_LETTERS, shard, days * 86_400_000)
        async with session.use() as connection:
            counts = {row["namespace"]: row["count"] for row in await connection.fetch(_COUNT_LETTERS, shard)}
        share = fair_share(counts.values(), letters_max)
        for namespace, count in counts.items():
            await _forget_letters_of(session, shard, namespace, count - max(share, 1), pause_seconds)


async def _forget_letters_of(
    session: Session, shard: int, namespace: str, surplus: int, pause_seconds: float
) -> None:
    while surplus > 0:
        rows_max = min(surplus, _ROWS_MAX)
        async with session.use() as connection:
            status = await connection.execute(_FORGET_LETTERS_OF, shard, namespace, rows_max)
        if status != f"DELETE {rows_max}":  # the relay has not published the others
            return
        surplus -= rows_max
        await asyncio.sleep(pause_seconds)
