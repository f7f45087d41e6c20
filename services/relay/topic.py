"""Compares all of ``berth.decisions`` with the ledger: each record its row, byte by byte, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from domain.model import limits
from domain.model.errors import Unavailable
from services.ports.audit import Broken
from services.ports.log import DECISIONS_TOPIC, Log, TopicPartition
from services.ports.outbox import Outbox, Stream
from services.relay.tail import is_row, seq_of

_SILENT_SECONDS_MAX = 30.0
_OFFENDERS_MAX = 100
NAME = "topic-is-the-ledger"
_SAYS = "each record of berth.decisions is the ledger's decision with its number, and none is left out"


async def audit_topic(
    log: Log, outbox: Outbox, kept_from: Mapping[int, int], report: Callable[[str], None]
) -> tuple[int, Broken | None]:
    """Return how many records were compared, and what is broken, if anything is.

    A record may come twice, since consumers take each seq once. Records of decisions before ``kept_from``
    (shard -> seq) cannot be compared any more; their order still is. It holds one fetch of records at a time.

    Raises
    ------
    LogTruncated
        Retention took records while they were read.
    """
    count, rows = 0, []
    reader = await log.reader()
    try:
        for shard, kept in sorted(kept_from.items()):
            found = _Shard(shard, kept, await outbox.published(shard, Stream.DECISIONS))
            at = TopicPartition(DECISIONS_TOPIC, shard)
            first = (await reader.first_offsets([at]))[at]
            await reader.assign({at: first})
            end = (await reader.end_offsets())[at]
            clock = asyncio.get_running_loop().time
            heard = clock()
            while (position := await reader.position(at)) < end:
                report(f"{DECISIONS_TOPIC}, partition {shard}: {position:,} of {end:,}")
                records = await reader.poll(limits.poll_records_max, timeout_seconds=0.5)
                seqs = [seq_of(record, shard) for record in records]
                own = {row.seq: row for row in await outbox.decisions(shard, sorted({*seqs} - {0}))}
                for seq, record in zip(seqs, records, strict=True):
                    found.take(seq, record.offset, is_own=is_row(record, own.get(seq)))
                count += len(records)
                heard = clock() if records else heard
                if clock() - heard > _SILENT_SECONDS_MAX:
                    raise Unavailable(f"the log gives no record of {DECISIONS_TOPIC}, partition {shard}")
            found.end(is_whole=first == 0)
            rows += found.offenders
    finally:
        await reader.aclose()
    return count, Broken(name=NAME, says=_SAYS, rows=rows[:_OFFENDERS_MAX]) if rows else None


class _Shard:
    """How far a consumer of a shard's partition has come that takes each seq once, in order."""

    def __init__(self, shard: int, kept_from: int, published: int) -> None:
        self._shard, self._kept_from, self._published = shard, kept_from, published
        self._taken = 0
        self._first = 0
        self.offenders: list[Mapping[str, Any]] = []

    def take(self, seq: int, offset: int, *, is_own: bool) -> None:
        """Take the next record, of a decision with this seq (0: of none)."""
        if not is_own and not 0 < seq < self._kept_from:
            self._offends("the record is not the ledger's", offset, seq)
        elif not self._taken:
            self._taken = self._first = seq
        elif seq > max(self._taken + 1, self._kept_from):
            self._offends(f"decisions {self._taken + 1} to {seq - 1} are left out before it", offset, seq)
            self._taken = seq
        else:
            self._taken = max(self._taken, seq)

    def end(self, *, is_whole: bool) -> None:
        """Say what the partition lacks; ``is_whole``: it holds its first record."""
        if is_whole and self._first > self._kept_from:
            self._offends(f"decisions 1 to {self._first - 1} are left out", 0, self._first)
        if self._taken < self._published and (is_whole or self._taken):
            what = f"it ends with decision {self._taken}, and the relay has published {self._published}"
            self._offends(what, None, self._taken)

    def _offends(self, what: str, offset: int | None, seq: int) -> None:
        if len(self.offenders) < _OFFENDERS_MAX:
            self.offenders.append({"shard": self._shard, "offset": offset, "seq": seq, "what": what})
