"""The ``Tail`` port on Postgres: the journal by position, and never past a transaction in flight."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.sql_outbox import LEDGER_NAME
from services.codec.feed import unpack_feed
from services.ports.journal import Owned
from services.ports.store import DecisionRow
from services.ports.tail import (
    TAIL_DECISIONS_MAX,
    Look,
    NotKept,
    ShardTaken,
    Spot,
    TailBatch,
    TailDecision,
    shards_taken,
    told_in_order,
)

POSITIONS_MAX = 1_000
ROWS_MAX = 100
FEEDS_BYTES_MAX = 4 << 20

# A position is given by a sequence before its transaction is over, so a row may come before those below it.
# A transaction has its id before it has a position: it has changed offsets by then. So once all transactions
# are over that ran when a position was seen, no row below it comes any more.
LOOK = f"""
SELECT ({LEDGER_NAME}) AS ledger,
    pg_snapshot_xmin(s.snapshot)::text::bigint AS running_from,
    pg_snapshot_xmax(s.snapshot)::text::bigint AS begun_below,
    (SELECT max(position) FROM journal) AS last,
    ARRAY(SELECT position FROM journal WHERE position > :settled ORDER BY position LIMIT {POSITIONS_MAX})
        AS behind,
    k.shard, k.batch, k.recorded_at
FROM (SELECT pg_current_snapshot() AS snapshot) AS s
LEFT JOIN (SELECT shard, batch, recorded_at FROM journal WHERE position = :position) AS k ON true
"""
ROWS = f"""
SELECT position, shard, batch, recorded_at, log_time_ms, seqs, owned, feed FROM (
    SELECT j.*, sum(length(j.feed)) OVER (ORDER BY j.position) - length(j.feed) AS bytes_before FROM (
        SELECT position, shard, batch, recorded_at, log_time_ms, seqs, owned, feed FROM journal
        WHERE position > :after AND position <= :until ORDER BY position LIMIT {ROWS_MAX}
    ) AS j
) AS counted WHERE bytes_before < {FEEDS_BYTES_MAX} ORDER BY position
"""
DECISIONS = """
SELECT d.shard, d.seq, d.signature, d.cycle_seq, d.recorded_at, d.payload, d.namespace, d.name, d.node,
    d.outcome, d.decided_at_ms
FROM unnest(CAST(:shards AS int[]), CAST(:los AS bigint[]), CAST(:his AS bigint[])) AS span (shard, lo, hi)
CROSS JOIN LATERAL (SELECT * FROM decisions WHERE shard = span.shard AND seq >= span.lo AND seq < span.hi)
    AS d
"""
OWNERS = """
SELECT o.shard, o.epoch, o.owner
FROM unnest(CAST(:shards AS int[]), CAST(:epochs AS bigint[])) AS taken (shard, epoch)
JOIN shard_owners o USING (shard, epoch)
"""
# The oldest rows of each journal go first, and its last one stays. So behind a position something is missing
# only where the first row of a journal that is kept lies behind it, and is not the first one ever.
SPOT = """
SELECT k.shard, k.batch, k.recorded_at, NOT EXISTS (
    SELECT FROM shards s CROSS JOIN LATERAL (
        SELECT position, batch FROM journal WHERE shard = s.shard ORDER BY batch LIMIT 1
    ) AS first WHERE first.batch > 1 AND first.position > :position
) AS is_kept_behind
FROM (SELECT) AS one
LEFT JOIN (SELECT shard, batch, recorded_at FROM journal WHERE position = :position) AS k ON true
"""
BOUNDS = """
SELECT s.shard, low.batch AS first, high.batch AS last
FROM shards s CROSS JOIN LATERAL (
    SELECT batch FROM journal WHERE shard = s.shard ORDER BY batch LIMIT 1
) AS low CROSS JOIN LATERAL (
    SELECT batch FROM journal WHERE shard = s.shard ORDER BY batch DESC LIMIT 1
) AS high
"""
MOMENTS = """
SELECT w.shard, w.batch, j.position, j.log_time_ms
FROM unnest(CAST(:shards AS int[]), CAST(:batches AS bigint[])) AS w (shard, batch)
CROSS JOIN LATERAL (
    SELECT position, log_time_ms FROM journal WHERE shard = w.shard AND batch >= w.batch
    ORDER BY batch LIMIT 1
) AS j
"""


class _Seen(NamedTuple):
    """The last position that was seen, and below which id all transactions have to be over to settle it."""

    position: int
    begun_below: int


class PostgresTail:
    """The ``Tail`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ledger = ""
        self._settled: int | None = None
        self._seen: _Seen | None = None

    async def look(self, position: int) -> Look:
        """See ``Tail.look``."""
        row = (await self._rows(LOOK, settled=self._settled or 0, position=position))[0]
        last = row.last or 0
        if row.ledger != self._ledger or last < (self._settled or 0):
            self._ledger, self._settled, self._seen = row.ledger, None, None
        if self._seen is not None and row.running_from >= self._seen.begun_below:
            self._settled, self._seen = max(self._seen.position, self._settled or 0), None
        if self._settled is None and last == 0:
            self._settled = 0
        if self._settled is not None:
            self._settled = _reached(self._settled, row.behind)
        if self._seen is None and (self._settled is None or last > self._settled):
            self._seen = _Seen(last, row.begun_below)
        return Look(row.ledger, self._settled, _check_of(row))

    async def read(self, after: int, until: int) -> Sequence[TailBatch]:
        """See ``Tail.read``."""
        rows, spans, decisions_count = [], [], 0
        for row in await self._rows(ROWS, after=after, until=until):
            of_row = [(shard, lo, hi) for shard, (lo, hi) in sorted(_seqs(row.seqs).items())]
            rows.append(row)
            spans += of_row
            decisions_count += sum(hi - lo for _, lo, hi in of_row)
            if decisions_count >= TAIL_DECISIONS_MAX:
                break
        found = await self._decisions(spans)
        taken = {row.position: shards_taken(_owned(row.owned or [])) for row in rows}
        owners = await self._owners([each for of_row in taken.values() for each in of_row])
        return [self._batch(row, found, taken[row.position], owners) for row in rows]

    async def _decisions(
        self, spans: Sequence[tuple[int, int, int]]
    ) -> Mapping[tuple[int, int], TailDecision]:
        if not spans:
            return {}
        shards, los, his = (list(column) for column in zip(*spans, strict=True))
        rows = await self._rows(DECISIONS, shards=shards, los=los, his=his)
        width = len(DecisionRow._fields)
        return {
            (row.shard, row.seq): TailDecision(DecisionRow._make(row[:width]), *row[width:]) for row in rows
        }

    async def _owners(self, taken: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], str]:
        if not taken:
            return {}
        shards, epochs = (list(column) for column in zip(*taken, strict=True))
        rows = await self._rows(OWNERS, shards=shards, epochs=epochs)
        return {(row.shard, row.epoch): row.owner for row in rows}

    def _batch(
        self,
        row: Any,
        found: Mapping[tuple[int, int], TailDecision],
        taken: Sequence[tuple[int, int]],
        owners: Mapping[tuple[int, int], str],
    ) -> TailBatch:
        keys = [(shard, seq) for shard, span in _seqs(row.seqs).items() for seq in range(*span)]
        decisions = [found[key] for key in keys if key in found]
        if len(decisions) < len(keys):
            raise NotKept(f"decisions of batch {row.batch} of shard {row.shard} were pruned")
        check = _check_of(row)
        assert check is not None
        return TailBatch(
            position=row.position,
            shard=row.shard,
            batch=row.batch,
            check=check,
            log_time_ms=row.log_time_ms,
            recorded_at=row.recorded_at,
            taken=[ShardTaken(*each, owners.get(each)) for each in taken],
            nodes=unpack_feed(row.feed).specs,
            decisions=told_in_order(decisions),
        )

    async def spot(self, position: int) -> Spot:
        """See ``Tail.spot``."""
        row = (await self._rows(SPOT, position=position))[0]
        return Spot(_check_of(row), row.is_kept_behind)

    async def position_before(self, at_ms: int, until: int) -> int:
        """See ``Tail.position_before``: search each journal by halves, all of them at once."""
        bounds = {row.shard: (row.first, row.last) for row in await self._rows(BOUNDS)}
        left = {shard: first for shard, (first, _) in bounds.items()}
        behind = {shard: last + 1 for shard, (_, last) in bounds.items()}
        found: dict[int, int] = {}
        while True:
            halves = {shard: (low + behind[shard]) // 2 for shard, low in left.items() if low < behind[shard]}
            if not halves:
                break
            asked = {"shards": list(halves), "batches": list(halves.values())}
            for row in await self._rows(MOMENTS, **asked):
                if row.log_time_ms >= at_ms:
                    behind[row.shard], found[row.shard] = row.batch, row.position
                else:
                    left[row.shard] = row.batch + 1
        position = min([until, *(at - 1 for at in found.values())])
        for shard, (first, _) in bounds.items():
            if first > 1 and behind[shard] == first:
                raise NotKept(f"what shard {shard} did before its batch {first} was pruned")
        return position

    async def _rows(self, statement: str, **values: Any) -> Sequence[sa.Row[Any]]:
        given = [sa.bindparam(name, value, type_of(value)) for name, value in values.items()]
        return await self._engine.rows(sa.text(statement).bindparams(*given), Pool.TAIL)


def _seqs(value: Any) -> dict[int, tuple[int, int]]:
    return msgspec.convert(value, dict[int, tuple[int, int]], strict=False)


def _owned(value: Any) -> list[Owned]:
    return msgspec.convert(value, list[Owned], strict=False)


def type_of(value: Any) -> Any:
    """Return the type of a number, or of an array of them, as it is bound."""
    return sa.ARRAY(sa.BigInteger) if isinstance(value, list) else sa.BigInteger()


def _reached(settled: int, behind: Sequence[int]) -> int:
    """Return up to where the positions behind one follow it without a gap."""
    for each in behind:
        if each > settled + 1:
            break
        settled = max(settled, each)
    return settled


def _check_of(row: Any) -> int | None:
    """Return 31 bits of which batch a row is and when it was recorded."""
    if row.batch is None:
        return None
    return zlib.crc32(f"{row.shard}-{row.batch}-{row.recorded_at.timestamp():.6f}".encode()) >> 1
