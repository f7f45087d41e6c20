"""Prunes the ledger's history in small steps: what was audited, published, and is older than asked.

Nothing goes that explains a pod which is placed or waits. Deletes, not partitions by time: the key of a
decision stays unique, COPY stays as it is, and a kept row needs no partition of its own (docs/adr/0020).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from domain.model.limits import batch_decisions_max, cycle_pods_max, gang_members_max
from services.adapters.postgres.connections import BULK, Connection, Session
from services.adapters.postgres.holding import Held, held
from services.adapters.postgres.leases import forget_owners, forget_workers
from services.adapters.postgres.rollups import PostgresRollups

_ROWS_MAX = 5_000  # of a step: some tens of milliseconds
_CYCLES_MAX = 50  # of a step: each explains the decisions of a batch
PAUSE_SECONDS = 0.1  # between two steps, so that commits have the disk most of the time
_LATEST_MIN = 10_000  # decisions per shard that stay: a relay compares the end of its topic with them
# Decisions of an attempt are of one batch, so they are at most so many after its first one.
_SPAN_MAX = 2 * (batch_decisions_max + cycle_pods_max + gang_members_max)

_SHARDS = "SELECT shard FROM shards ORDER BY shard"

# The last row of a journal stays: it says where it ends. A replay begins at a checkpoint. A checkpoint
# has the time when it was complete, so what came an hour before it is behind the state that it holds.
_JOURNAL = """
WITH last_audit AS (
    SELECT at, (batches->($1::int)::text->>1)::bigint AS batch FROM audits WHERE ok ORDER BY at DESC LIMIT 1
), slice AS (
    SELECT batch, recorded_at FROM journal WHERE shard = $1 ORDER BY batch LIMIT $3
), young AS (
    SELECT min(j.batch) AS batch FROM slice j LEFT JOIN last_audit a ON true
    WHERE j.recorded_at >= now() - $2::interval OR j.batch >= coalesce(a.batch, 0)
        OR j.recorded_at >= (SELECT min(recorded_at) FROM checkpoints) - interval '1 hour'
), gone AS (
    DELETE FROM journal j USING young y
    WHERE j.shard = $1 AND j.batch IN (SELECT batch FROM slice) AND j.batch < coalesce(y.batch, j.batch + 1)
        AND j.batch < (SELECT max(batch) FROM journal WHERE shard = $1)
    RETURNING 1
)
SELECT count(*) FROM gone
"""

# What was folded, and what no batch took whose row in the journal is kept.
_INBOX = """
WITH needed AS (
    SELECT (lane->>0)::int AS home, lane->>1 AS topic, min((lane->>3)::bigint) AS lo
    FROM journal j CROSS JOIN LATERAL json_array_elements(j.lanes) AS lane
    WHERE lane->>1 LIKE '~inbox/%' GROUP BY 1, 2
), gone AS (
    DELETE FROM inbox i USING shard_offsets o LEFT JOIN needed n ON (n.home, n.topic) = (o.shard, o.topic)
    WHERE (o.shard, o.topic) = (i.home, '~inbox/' || i.source)
        AND i.number < least(o.next_offset, n.lo) RETURNING 1
)
SELECT count(*) FROM gone
"""
_HAS_INBOX = "SELECT EXISTS (SELECT FROM inbox)"

# Up to where, and before when: nothing that is not audited, not published or not rolled up.
_BOUNDS = f"""
SELECT least(
    s.seq_next - {_LATEST_MIN},
    coalesce(r.decisions_seq, 0) + 1,
    coalesce((a.seqs->s.shard::text->>1)::bigint, 0),
    coalesce(c.seq, 0) + 1
) AS seq, least(now() - $2::interval, coalesce(a.at, 'epoch')) AS before
FROM shards s
LEFT JOIN relay_cursor r USING (shard)
LEFT JOIN rollup_cursors c USING (shard)
LEFT JOIN (SELECT at, seqs FROM audits WHERE ok ORDER BY at DESC LIMIT 1) AS a ON true
WHERE s.shard = $1
"""

# A slice from a seq on, up to the first decision that is too young. Kept ones are looked at each time again:
# their pods leave at some time.
_DECISIONS = """
WITH slice AS (
    SELECT d.seq, d.recorded_at, d.pod_uid, p.seq IS NOT NULL AS has_placement, p.released_recorded_at
    FROM (
        SELECT shard, seq, recorded_at, pod_uid FROM decisions
        WHERE shard = $1 AND seq > $2 AND seq < $3 ORDER BY seq LIMIT $5
    ) AS d LEFT JOIN placements p USING (shard, seq)
), old AS (
    SELECT * FROM slice
    WHERE seq < coalesce((SELECT min(seq) FROM slice WHERE recorded_at >= $4), $3)
), over AS (
    SELECT o.seq FROM old o
    WHERE (NOT has_placement OR released_recorded_at < $4)
        AND NOT EXISTS (SELECT FROM pending w WHERE w.shard = $1 AND w.pod_uid = o.pod_uid)
), gone AS (
    DELETE FROM decisions d USING over o WHERE d.shard = $1 AND d.seq = o.seq RETURNING 1
), ended AS (
    DELETE FROM placements p USING over o WHERE p.shard = $1 AND p.seq = o.seq RETURNING 1
), told AS (
    INSERT INTO pruned (shard, seq_below) SELECT $1, max(seq) + 1 FROM old HAVING count(*) > 0
    ON CONFLICT (shard) DO UPDATE SET seq_below = greatest(pruned.seq_below, excluded.seq_below)
)
SELECT (SELECT max(seq) FROM old) AS last, (SELECT count(*) FROM gone) + (SELECT count(*) FROM ended) AS count
"""

# Attempts of a batch stay as long as a decision, a waiting group or its history names one of them.
_CYCLES = f"""
WITH slice AS MATERIALIZED (
    SELECT seq, coalesce(last_seq, seq) AS last FROM cycles
    WHERE shard = $1 AND seq > $2 AND coalesce(last_seq, seq)
        < coalesce((SELECT seq_below FROM pruned WHERE shard = $1), 0) - {_SPAN_MAX}
    ORDER BY seq LIMIT $3
), named AS (
    SELECT cycle_seq AS seq FROM decisions
    WHERE shard = $1 AND seq >= (SELECT min(seq) FROM slice)
        AND seq <= (SELECT max(last) FROM slice) + {_SPAN_MAX}
    UNION SELECT cycle_seq FROM pending_groups WHERE shard = $1
    UNION SELECT cycle_seq FROM group_attempts WHERE shard = $1
), kept AS MATERIALIZED (
    SELECT (SELECT max(s.seq) FROM slice s WHERE s.seq <= n.seq AND n.seq <= s.last) AS seq FROM named n
), gone AS (
    DELETE FROM cycles c USING slice s
    WHERE c.shard = $1 AND c.seq = s.seq AND NOT EXISTS (SELECT FROM kept k WHERE k.seq = s.seq)
    RETURNING 1
)
SELECT (SELECT max(seq) FROM slice) AS last, (SELECT count(*) FROM gone) AS count
"""

# The spec that a node has now stays, and each that it still had within the time.
_SPECS = """
WITH slice AS MATERIALIZED (
    SELECT node_id, version, lead(recorded_at) OVER (PARTITION BY node_id ORDER BY version) AS replaced_at
    FROM (
        SELECT node_id, version, recorded_at FROM node_specs
        WHERE (node_id, version) > ($1::bigint, $2::bigint) ORDER BY node_id, version LIMIT $4
    ) AS s
), gone AS (
    DELETE FROM node_specs h USING slice s
    WHERE (h.node_id, h.version) = (s.node_id, s.version) AND s.replaced_at < $3 RETURNING 1
)
SELECT node_id, version, (SELECT count(*) FROM gone) AS count
FROM slice ORDER BY node_id DESC, version DESC LIMIT 1
"""


# The hours that began before, the oldest first.
_BILL = """
WITH gone AS (
    DELETE FROM bill_hours WHERE ctid IN (
        SELECT ctid FROM bill_hours WHERE hour_ms < extract(epoch FROM now() - $1::interval) * 1000
        ORDER BY hour_ms LIMIT $2
    ) RETURNING 1
)
SELECT count(*) FROM gone
"""

# What ended before: no moment that the past reaches had it.
_PAST = ("past_pending", "past_labels", "past_groups", "past_config")
# Said before anything goes. A fact has the time when its transaction began, its batch that when it ended.
_END_REACH = """
UPDATE past_reach SET position = greatest(position, coalesce((
    SELECT max(position) FROM journal WHERE recorded_at < now() - $1::interval + interval '1 minute'
), 0))
"""
_FORGET_PAST = """
WITH gone AS (
    DELETE FROM {table} WHERE ctid IN (
        SELECT t.ctid FROM {table} t WHERE t.recorded_at < now() - $1::interval LIMIT $2
    ) RETURNING 1
)
SELECT count(*) FROM gone
"""
# Of each table of the roll-up the steps that began before, the oldest first.
_ROLLUPS = """
WITH gone AS (
    DELETE FROM {table} WHERE ctid IN (
        SELECT ctid FROM {table} WHERE step_ms < extract(epoch FROM now() - $1::interval) * 1000
        ORDER BY step_ms LIMIT $2
    ) RETURNING 1
)
SELECT count(*) FROM gone
"""
_ROLLED_UP = ("rollup_counts", "rollup_gauges", "rollup_samples")

_TABLES = (
    "journal",
    "inbox",
    "decisions",
    "cycles",
    "node_specs",
    "past",
    "bill_hours",
    "rollups",
    "shard_owners",
    "workers",
)


class Pruned(NamedTuple):
    """How many rows went, by table; and what stays though it is old enough."""

    journal: int
    inbox: int
    decisions: int
    cycles: int
    node_specs: int
    past: int
    bill_hours: int
    rollups: int
    shard_owners: int
    workers: int
    held: Sequence[Held] = ()


async def prune(
    dsn: str,
    *,
    journal_hours: int,
    history_days: int,
    bill_days: int = 0,
    rollup_days: int = 0,
    owners_seconds: float,
    report: Callable[[str], None] = lambda _: None,
    pause_seconds: float = PAUSE_SECONDS,
) -> Pruned:
    """Delete rows of the journal and, unless ``history_days`` is 0, of the history that are older.

    ``past`` counts what was kept only to tell of the past, which reaches less far back from then on. Hours of
    the bill go that are older than ``bill_days``, and none where that is 0; steps of the roll-up likewise.
    What is not rolled up is, before it goes. ``decisions`` counts placements, too. Only what the last audit
    saw goes in which all held. Past owners of shards, and workers, go that were not heard of for
    ``owners_seconds``.
    """
    session = Session(dsn, "berth-prune", BULK)
    counts = dict.fromkeys(_TABLES, 0)

    async def add(table: str, steps: AsyncIterator[int]) -> None:
        async for count in steps:
            counts[table] += count
            report(f"{table}: {counts[table]:,} rows pruned")
            await asyncio.sleep(pause_seconds)

    try:
        async with session.use() as connection:
            shards = [row["shard"] for row in await connection.fetch(_SHARDS)]
        for shard in shards:
            await add("journal", _journal(session, shard, datetime.timedelta(hours=journal_hours)))
        await add("inbox", _inbox(session))
        if history_days:
            await _roll_up(dsn, pause_seconds)
            days = datetime.timedelta(days=history_days)
            async with session.use() as connection:
                await connection.execute(_END_REACH, days)
            for shard in shards:
                await add("decisions", _decisions(session, shard, days))
                await add("cycles", _slices(session, _CYCLES, shard, rows_max=_CYCLES_MAX))
            async with session.use() as connection:
                before = (await connection.fetchrow(_BOUNDS, shards[0], days))["before"]
            await add("node_specs", _specs(session, before))
            for table in _PAST:
                await add("past", _by_age(session, _FORGET_PAST.format(table=table), days))
        if bill_days:
            await add("bill_hours", _by_age(session, _BILL, datetime.timedelta(days=bill_days)))
        for table in _ROLLED_UP if rollup_days else ():
            statement = _ROLLUPS.format(table=table)
            await add("rollups", _by_age(session, statement, datetime.timedelta(days=rollup_days)))
        for table, forget in (("shard_owners", forget_owners), ("workers", forget_workers)):
            await add(table, _forgotten(session, forget, owners_seconds))
        async with session.use() as connection:
            hours, days = datetime.timedelta(hours=journal_hours), datetime.timedelta(days=history_days)
            stays = await held(connection, hours, days)
    finally:
        await session.aclose()
    return Pruned(**counts, held=stays)


async def _journal(session: Session, shard: int, age: datetime.timedelta) -> AsyncIterator[int]:
    count = 1
    while count:
        async with session.use() as connection:
            count = await connection.fetchval(_JOURNAL, shard, age, _ROWS_MAX)
        yield count


async def _by_age(session: Session, statement: str, age: datetime.timedelta) -> AsyncIterator[int]:
    count = 1
    while count:
        async with session.use() as connection:
            count = await connection.fetchval(statement, age, _ROWS_MAX)
        yield count


async def _roll_up(dsn: str, pause_seconds: float) -> None:
    """Count what no worker has counted yet: of what is deleted nothing can be."""
    async with contextlib.aclosing(PostgresRollups(dsn)) as rollups:
        while await rollups.count():
            await asyncio.sleep(pause_seconds)


async def _inbox(session: Session) -> AsyncIterator[int]:
    """Reads all lanes of the journal once, where anything was ever handed over."""
    async with session.use() as connection:
        yield await connection.fetchval(_INBOX) if await connection.fetchval(_HAS_INBOX) else 0


async def _decisions(session: Session, shard: int, age: datetime.timedelta) -> AsyncIterator[int]:
    async with session.use() as connection:
        bounds = await connection.fetchrow(_BOUNDS, shard, age)
    async for count in _slices(session, _DECISIONS, shard, bounds["seq"], bounds["before"]):
        yield count


async def _slices(
    session: Session, statement: str, shard: int, *more: Any, rows_max: int | None = None
) -> AsyncIterator[int]:
    last = 0
    while last is not None:
        async with session.use() as connection:
            last, count = await connection.fetchrow(statement, shard, last, *more, rows_max or _ROWS_MAX)
        yield count


async def _forgotten(
    session: Session, forget: Callable[[Connection, float, int], Awaitable[int]], age_seconds: float
) -> AsyncIterator[int]:
    count = 1
    while count:
        async with session.use() as connection:
            count = await forget(connection, age_seconds, _ROWS_MAX)
        yield count


async def _specs(session: Session, before: datetime.datetime) -> AsyncIterator[int]:
    last: tuple[int, int] | None = (0, 0)
    while last is not None:
        async with session.use() as connection:
            row = await connection.fetchrow(_SPECS, *last, before, _ROWS_MAX)
        last = None if row is None else (row["node_id"], row["version"])
        yield 0 if row is None else row["count"]
