"""Compares all of ``berth.decisions`` with the ledger: each record its row, byte by byte, in order.

What is not the ledger's and was acknowledged, as after a restore of the database, is passed over and counted.
The topic never loses it, so it would be a fault for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from domain.model import limits
from domain.model.errors import Unavailable
from services.ports.audit import Audit, Broken, PassedOver
from services.ports.log import DECISIONS_TOPIC, Log, TopicPartition
from services.ports.outbox import NOTHING, Acknowledged, Outbox, Stream
from services.relay.tail import is_row, seq_of

_SILENT_SECONDS_MAX = 30.0
_OFFENDERS_MAX = 100
NAME = "topic-is-the-ledger"
_SAYS = "each record of berth.decisions is the ledger's decision with its number, and none is left out"


async def audit_topic(log: Log, outbox: Outbox, audit: Audit, report: Callable[[str], None]) -> Audit:
    """Return an audit of the ledger with what was found of the topic.

    A record may come twice, since consumers take each seq once. Records of decisions before ``kept_from``
    cannot be compared any more; their order still is. It holds one fetch of records at a time.

    Raises
    ------
    LogTruncated
        Retention took records while they were read.
    """
    count, shards = 0, list[_Shard]()
    reader = await log.reader()
    try:
        for shard, kept in sorted(audit.kept_from.items()):
            published = await outbox.published(shard, Stream.DECISIONS)
            found = _Shard(shard, kept, published, await outbox.acknowledged(shard))
            shards.append(found)
            at = TopicPartition(DECISIONS_TOPIC, shard)
            first = (await reader.first_offsets([at]))[at]
            await reader.assign({at: first})
            end = (await reader.end_offsets())[at]
            found.begin(end)
            clock = asyncio.get_running_loop().time
            heard = clock()
            while (position := await reader.position(at)) < end:
                report(f"{DECISIONS_TOPIC}, partition {shard}: {position:,} of {end:,}")
                records = await reader.poll(limits.poll_records_max, timeout_seconds=0.5)
                seqs = [seq_of(record, shard) for record in records]
                own = {row.seq: row for row in await outbox.decisions(shard, sorted({*seqs} - {0}))}
                for seq, record in zip(seqs, records, strict=True):
                    found.check_record(seq, record.offset, is_own=is_row(record, own.get(seq)))
                count += len(records)
                heard = clock() if records else heard
                if clock() - heard > _SILENT_SECONDS_MAX:
                    raise Unavailable(f"the log gives no record of {DECISIONS_TOPIC}, partition {shard}")
            found.end(is_whole=first == 0)
    finally:
        await reader.aclose()
    rows = [row for each in shards for row in each.offenders]
    broken = [Broken(name=NAME, says=_SAYS, rows=rows[:_OFFENDERS_MAX])] if rows else []
    return msgspec.structs.replace(
        audit,
        invariants_count=audit.invariants_count + 1,
        broken=[*audit.broken, *broken],
        records_count=count,
        passed_over=[each.passed_over for each in shards if each.passed_over is not None],
    )


class _Shard:
    """How far a consumer of a shard's partition has come that takes each seq once, in order."""

    def __init__(self, shard: int, kept_from: int, published: int, acknowledged: Acknowledged) -> None:
        self._shard, self._kept_from, self._published = shard, kept_from, published
        self._acknowledged = acknowledged
        self._taken = 0
        self._first = 0
        self.offenders: list[Mapping[str, Any]] = []
        self.passed_over: PassedOver | None = None

    def begin(self, end: int) -> None:
        """Begin a partition that ends there. One that ends earlier than what was acknowledged is another."""
        if end < self._acknowledged.below:
            self._acknowledged = NOTHING

    def check_record(self, seq: int, offset: int, *, is_own: bool) -> None:
        """Take the next record, of a decision with this seq (0: of none)."""
        if not is_own and not 0 < seq < self._kept_from:
            if offset < self._acknowledged.below:
                self._pass_over(offset)
            else:
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

    def _pass_over(self, offset: int) -> None:
        found, at_ms = self.passed_over, self._acknowledged.at_ms
        self.passed_over = PassedOver(
            shard=self._shard,
            records_count=1 if found is None else found.records_count + 1,
            first_offset=offset if found is None else found.first_offset,
            last_offset=offset,
            acknowledged_at=None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC),
        )

    def _offends(self, what: str, offset: int | None, seq: int) -> None:
        if len(self.offenders) < _OFFENDERS_MAX:
            self.offenders.append({"shard": self._shard, "offset": offset, "seq": seq, "what": what})
