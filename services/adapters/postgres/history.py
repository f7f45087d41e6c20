"""Reads the ledger's past for a replay: the journal, checkpoints, and decisions as they were recorded."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from services.adapters.postgres import inbox, sql
from services.adapters.postgres.connections import BULK, Session
from services.codec.checkpoint import Head, unpack_state
from services.ports.history import Superseded, Unreadable
from services.ports.inbox import Handed, Waiting
from services.ports.journal import BATCHES, Checkpoint, JournalRow, Lane, Owned, Start
from services.ports.ledger import LedgerState
from services.ports.log import NODES_TOPIC, PODS_TOPIC, TICKS_TOPIC, USAGE_TOPIC, TopicPartition
from services.ports.positions import LogFault

_SPAN = """
SELECT min(batch), greatest(max(batch), (
    SELECT max(next_offset) FROM shard_offsets WHERE shard = $1 AND topic = $2
)) FROM journal WHERE shard = $1
"""
_CHECKPOINTS = "SELECT shard, batch, start, head FROM checkpoints WHERE shard = $1 ORDER BY batch"
_HEAD = "SELECT head, parts_count FROM checkpoints WHERE shard = $1 AND batch = $2"
_PARTS = "SELECT kind, body FROM checkpoint_parts WHERE shard = $1 AND batch = $2 ORDER BY part"
_ENDS = """
SELECT shard, max(batch) FROM (
    SELECT shard, batch FROM journal
    UNION ALL SELECT shard, next_offset FROM shard_offsets WHERE topic = $1
) AS known GROUP BY shard
"""
_ENDS_AT = """
SELECT shard, max(batch) FROM journal
WHERE position <= (SELECT max(position) FROM journal WHERE shard = $1 AND batch <= $2)
GROUP BY shard
"""
_FIRST_AT = "SELECT min(batch) FROM journal WHERE shard = $1 AND log_time_ms >= $2"
_LAST_AT = "SELECT max(batch) FROM journal WHERE shard = $1 AND log_time_ms <= $2"
_BATCH_OF = """
SELECT shard, batch FROM journal
WHERE (seqs -> $1 ->> 0)::bigint <= $2 AND (seqs -> $1 ->> 1)::bigint > $2
ORDER BY position LIMIT 1
"""
_POSITIONS = """
SELECT worker, min(position), max(position)
FROM unnest($1::int[], $2::bigint[], $3::bigint[]) AS span (shard, after, until)
JOIN journal j ON j.shard = span.shard AND j.batch > span.after AND j.batch <= span.until GROUP BY worker
"""
_BEHIND = """
SELECT min(position) FROM unnest($1::int[], $2::bigint[]) AS seen (shard, batch)
JOIN journal j ON j.shard = seen.shard AND j.batch = seen.batch + 1
"""
_LOG_FAULTS = f"SELECT {', '.join(sql.LOG_FAULT_COLUMNS)} FROM log_faults ORDER BY epoch"
_ROWS_PER_FETCH = 500
_ROWS = f"""
SELECT j.* FROM unnest($1::int[], $2::bigint[], $3::bigint[]) AS span (shard, after, until)
CROSS JOIN LATERAL (
    SELECT shard, batch, start, renewed, lanes, record_order, seqs, log_time_ms, decisions_hash, effects,
        digest, position, worker, owned, followed, forgotten, lost, moved, feed
    FROM journal
    WHERE shard = span.shard AND batch > span.after AND batch <= span.until
        AND (start IS NOT NULL OR NOT $4)
    ORDER BY batch LIMIT {_ROWS_PER_FETCH}
) AS j
ORDER BY j.position LIMIT {_ROWS_PER_FETCH}
"""
_DECISIONS = "SELECT payload FROM decisions WHERE shard = $1 AND seq >= $2 AND seq < $3 ORDER BY seq"

_start = msgspec.json.Decoder(Start).decode
_lanes = msgspec.json.Decoder(list[Lane]).decode
_seqs = msgspec.json.Decoder(dict[int, tuple[int, int]]).decode
_owned = msgspec.json.Decoder(list[Owned]).decode
_numbers = msgspec.json.Decoder(dict[int, int]).decode
_keys = msgspec.json.Decoder(list[str]).decode
_ids = msgspec.json.Decoder(list[int]).decode
_effects = msgspec.json.Decoder(dict[str, str]).decode


class PostgresHistory:
    """The ``History`` port on Postgres; ``lead`` is the shard whose journal is read. It only reads."""

    def __init__(self, dsn: str, lead: int = 0) -> None:
        self._lead = lead
        self._session = Session(dsn, "berth-replay", BULK)

    async def span(self) -> tuple[int, int] | None:
        """See ``History.span``."""
        async with self._session.use() as connection:
            first, last = await connection.fetchrow(_SPAN, self._lead, BATCHES)
        return None if first is None else (first, last)

    async def checkpoints(self) -> Sequence[Checkpoint]:
        """See ``History.checkpoints``."""
        async with self._session.use() as connection:
            return [_checkpoint(row) for row in await connection.fetch(_CHECKPOINTS, self._lead)]

    async def state(self, checkpoint: Checkpoint) -> LedgerState:
        """See ``History.state``."""
        one_moment = {"isolation": "repeatable_read", "readonly": True}  # a worker may drop it by the next
        async with self._session.use() as connection, connection.transaction(**one_moment):
            key = checkpoint.shard, checkpoint.batch
            found = await connection.fetchrow(_HEAD, *key)
            if found is None:
                raise Superseded(checkpoint.batch)
            head, parts_count = found
            parts = await connection.fetch(_PARTS, *key)
            secret = await connection.fetchval(sql.SEAL_SECRET)
        with _read(f"the checkpoint after batch {checkpoint.batch}"):
            if len(parts) != parts_count:
                raise ValueError(f"it has {len(parts)} parts instead of {parts_count}")
            return unpack_state(head, [(row["kind"], row["body"]) for row in parts], secret)

    async def ends(self, last: int | None, shard: int | None = None) -> Mapping[int, int]:
        """See ``History.ends``."""
        of = self._lead if shard is None else shard
        async with self._session.use() as connection:
            if last is None:
                return dict(await connection.fetch(_ENDS, BATCHES))
            return {**dict(await connection.fetch(_ENDS_AT, of, last)), of: last}

    async def batch_at(self, at_ms: int, *, is_last: bool) -> int | None:
        """See ``History.batch_at``."""
        async with self._session.use() as connection:
            asked = _LAST_AT if is_last else _FIRST_AT
            found: int | None = await connection.fetchval(asked, self._lead, at_ms)
        return found

    async def batch_of(self, shard: int, seq: int) -> JournalRow | None:
        """See ``History.batch_of``."""
        async with self._session.use() as connection:
            found = await connection.fetchrow(_BATCH_OF, str(shard), seq)
        if found is None:
            return None
        of, batch = found
        rows = [row async for row in self.rows({of: batch - 1}, {of: batch})]
        return rows[0] if rows else None

    async def rows(
        self, after: Mapping[int, int], until: Mapping[int, int], *, starts: bool = False
    ) -> AsyncIterator[JournalRow]:
        """See ``History.rows``."""
        seen = {shard: after.get(shard, 0) for shard in until}
        while True:
            async with self._session.use() as connection:
                spans = [list(seen), list(seen.values()), [until[shard] for shard in seen]]
                found = await connection.fetch(_ROWS, *spans, starts)
            for row in found:
                with _read(f"the journal's row of batch {row['batch']}"):
                    read = _journal_row(row)
                yield read
                seen[read.shard] = read.batch
            if len(found) < _ROWS_PER_FETCH:
                return

    async def positions(
        self, after: Mapping[int, int], until: Mapping[int, int]
    ) -> Mapping[str, tuple[int, int]]:
        """See ``History.positions``."""
        spans = [list(until), [after.get(shard, 0) for shard in until], list(until.values())]
        async with self._session.use() as connection:
            found = await connection.fetch(_POSITIONS, *spans)
        return {worker: (first, last) for worker, first, last in found}

    async def position_behind(self, batches: Mapping[int, int]) -> int | None:
        """See ``History.position_behind``."""
        async with self._session.use() as connection:
            found: int | None = await connection.fetchval(_BEHIND, list(batches), list(batches.values()))
        return found

    async def decisions(self, seqs: Mapping[int, tuple[int, int]]) -> Sequence[bytes]:
        """See ``History.decisions``."""
        async with self._session.use() as connection:
            return [
                row["payload"]
                for shard, span in sorted(seqs.items())
                for row in await connection.fetch(_DECISIONS, shard, *span)
            ]

    async def inbox(self, waiting: Waiting) -> Sequence[Handed]:
        """See ``History.inbox``."""
        async with self._session.use() as connection:
            return await inbox.read(connection, [waiting], waiting.hi - waiting.lo)

    async def log_faults(self) -> Sequence[LogFault]:
        """See ``History.log_faults``."""
        async with self._session.use() as connection:
            return [_log_fault(row) for row in await connection.fetch(_LOG_FAULTS)]

    async def aclose(self) -> None:
        """See ``History.aclose``."""
        await self._session.aclose()


@contextlib.contextmanager
def _read(what: str) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, zlib.error, ValueError, KeyError) as error:
        raise Unreadable(what, error) from error


def _checkpoint(row: Any) -> Checkpoint:
    with _read(f"the checkpoint after batch {row['batch']}"):
        head = msgspec.json.decode(row["head"], type=Head)
        start = _start(row["start"])
    offsets = {(shard, topic, at): offset for shard, topic, at, offset in head.offsets}
    return Checkpoint(shard=row["shard"], batch=row["batch"], start=start, offsets=offsets)


def _journal_row(row: Any) -> JournalRow:
    return JournalRow(
        shard=row["shard"],
        batch=row["batch"],
        start=row["start"] and _start(row["start"]),
        renewed=row["renewed"],
        lanes=_lanes(row["lanes"]),
        order=row["record_order"],
        seqs=_seqs(row["seqs"]),
        log_time_ms=row["log_time_ms"],
        decisions_hash=row["decisions_hash"],
        effects=_effects(row["effects"]),
        digest=row["digest"],
        position=row["position"],
        worker=row["worker"],
        owned=_owned(row["owned"] or "[]"),
        followed=_numbers(row["followed"] or "{}"),
        forgotten=_keys(row["forgotten"] or "[]"),
        lost=_ids(row["lost"] or "[]"),
        moved=_numbers(row["moved"] or "{}"),
        feed=row["feed"],
    )


def _log_fault(row: Any) -> LogFault:
    topic, partition, epoch, code, next_offset, first, end, goes_on_at = row
    return LogFault(
        shard=partition if topic in (NODES_TOPIC, PODS_TOPIC) else 0,
        epoch=epoch,
        at=TopicPartition(topic, partition),
        code=code,
        next_offset=next_offset,
        first=first,
        end=end,
        goes_on_at=goes_on_at,
        topic_id=None,
        resync_below=None if topic in (USAGE_TOPIC, TICKS_TOPIC) else end,
    )
