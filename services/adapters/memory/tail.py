"""The ``Tail`` port over a ``MemoryDatabase``, where a commit takes no time: what is there is complete."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from services.adapters.memory.access import moment
from services.adapters.memory.database import MemoryDatabase
from services.codec.feed import unpack_feed
from services.ports.journal import JournalRow
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


class MemoryTail:
    """See ``Tail``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def _row(self, position: int) -> JournalRow | None:
        found = (row for row in self._database.journal.values() if row.position == position)
        return next(found, None)

    async def look(self, position: int) -> Look:
        """See ``Tail.look``."""
        last = max((row.position for row in self._database.journal.values()), default=0)
        return Look(f"memory.{self._database.timeline}", last, _check(self._row(position)))

    async def read(self, after: int, until: int) -> Sequence[TailBatch]:
        """See ``Tail.read``."""
        rows = sorted(self._database.journal.values(), key=lambda row: row.position)
        found: list[TailBatch] = []
        decisions_count = 0
        for row in rows:
            if after < row.position <= until and decisions_count < TAIL_DECISIONS_MAX:
                found.append(self._batch(row))
                decisions_count += len(found[-1].decisions)
        return found

    def _batch(self, row: JournalRow) -> TailBatch:
        database, decisions = self._database, []
        for shard, (lo, hi) in row.seqs.items():
            made = {each.seq: (each, payload) for each, payload in database.decisions[shard]}
            at_ms = {
                each.seq: at
                for (each, _), at in zip(database.decisions[shard], database.recorded_ms[shard], strict=True)
            }
            for seq in range(lo, hi):
                if seq not in made:
                    raise NotKept(f"decisions of batch {row.batch} of shard {row.shard} were pruned")
                each, payload = made[seq]
                kept = DecisionRow(shard, seq, each.signature, each.cycle_seq, moment(at_ms[seq]), payload)
                told = (each.namespace, each.name, each.node, each.outcome.value, each.decided_at_ms)
                decisions.append(TailDecision(kept, *told))
        owners = {(each.shard, each.epoch): each.owner for each in database.owners}
        check = _check(row)
        assert check is not None
        return TailBatch(
            position=row.position,
            shard=row.shard,
            batch=row.batch,
            check=check,
            log_time_ms=row.log_time_ms,
            recorded_at=None,
            taken=[ShardTaken(*each, owners.get(each)) for each in shards_taken(row.owned)],
            nodes=unpack_feed(row.feed).specs,
            decisions=told_in_order(decisions),
        )

    async def spot(self, position: int) -> Spot:
        """See ``Tail.spot``."""
        first: dict[int, JournalRow] = {}
        for (shard, _), row in sorted(self._database.journal.items()):
            first.setdefault(shard, row)
        gone = any(row.batch > 1 and row.position > position for row in first.values())
        return Spot(_check(self._row(position)), not gone)

    async def position_before(self, at_ms: int, until: int) -> int:
        """See ``Tail.position_before``."""
        position, before = until, dict[int, JournalRow]()
        for (shard, batch), row in sorted(self._database.journal.items()):
            if row.log_time_ms < at_ms:
                before[shard] = row
                continue
            if shard not in before and batch > 1:
                raise NotKept(f"what shard {shard} did before its batch {batch} was pruned")
            before.setdefault(shard, row)
            position = min(position, row.position - 1)
        return position


def _check(row: JournalRow | None) -> int | None:
    if row is None:
        return None
    return zlib.crc32(f"{row.shard}-{row.batch}-".encode() + row.decisions_hash + row.feed) >> 1
