"""Reads the log once more: the records of each batch, in the order in which they were taken."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Mapping

from domain.model.errors import BerthError, LogTruncated
from services.ports.history import History, Unreadable
from services.ports.inbox import Waiting, source_of
from services.ports.journal import JournalRow, Lane, unpack_order
from services.ports.log import LogReader, Record, TopicPartition

_BUFFERED_MAX = 4_000
_POLL_RECORDS = 2_000
_POLL_SECONDS = 1.0
_EMPTY_POLLS_MAX = 30


class LogTooShort(BerthError):
    """The log no longer holds, or does not hold yet, what a batch took from it."""

    code = "log-too-short"


class Tape:
    """The records of partitions, batch after batch.

    Parameters
    ----------
    reader : LogReader
    history : History
        Has what was handed over to shards.
    positions : mapping of TopicPartition to int
        Where the first batch begins.
    """

    def __init__(self, reader: LogReader, history: History, positions: Mapping[TopicPartition, int]) -> None:
        self._reader, self._history = reader, history
        self._next = dict(positions)
        self._read: dict[TopicPartition, deque[Record]] = {}
        self._is_assigned = False

    async def read_batch(self, row: JournalRow) -> list[Record]:
        """Return the records of the next batch.

        Raises
        ------
        LogTooShort
            The log lacks some of them.
        """
        try:
            order = unpack_order(row.order)
            wanted = Counter(order)
            if max(wanted, default=-1) >= len(row.lanes):
                raise ValueError(f"its records are of {len(row.lanes)} partitions, and one of another")
        except (zlib.error, ValueError) as error:
            what = f"the order of records in the journal's row of batch {row.batch}"
            raise Unreadable(what, error) from error
        found = [await self._lane(lane, row, wanted[number]) for number, lane in enumerate(row.lanes)]
        return [found[number].popleft() for number in order]

    async def _lane(self, lane: Lane, row: JournalRow, count: int) -> deque[Record]:
        at = TopicPartition(lane.topic, lane.partition)
        if (source := source_of(lane.topic)) is not None:
            return await self._handed(Waiting(lane.shard, source, lane.lo, lane.hi), row)
        if self._next.get(at) != lane.lo or not self._is_assigned:
            await self._seek({**self._next, at: lane.lo})
        await self._fill(at, lane.hi, row.batch)
        taken: deque[Record] = deque()
        buffer = self._read[at]
        while buffer and buffer[0].offset < lane.hi:
            taken.append(buffer.popleft())
        self._next[at] = lane.hi
        if len(taken) != count:
            raise LogTooShort(
                f"batch {row.batch} took {count} records of {at.topic}/{at.partition} between offsets "
                f"{lane.lo} and {lane.hi - 1}, and the log has {len(taken)} of them now"
                + (
                    ": compaction has removed the others"
                    if len(taken) < count
                    else ": it was being read again, or it is another log"
                )
            )
        return taken

    async def _handed(self, waiting: Waiting, row: JournalRow) -> deque[Record]:
        """Return what a batch took of an inbox."""
        found = await self._history.inbox(waiting)
        if len(found) != waiting.hi - waiting.lo:
            raise LogTooShort(
                f"batch {row.batch} took events {waiting.lo} to {waiting.hi - 1} that shard {waiting.source} "
                f"had handed over to shard {waiting.home}, and the ledger has {len(found)} of them now"
            )
        return deque(each.record() for each in found)

    async def _seek(self, positions: Mapping[TopicPartition, int]) -> None:
        self._next = dict(positions)
        self._read = {at: deque() for at in positions}
        await self._reader.assign(positions)
        self._is_assigned = True

    async def _fill(self, at: TopicPartition, end: int, batch: int) -> None:
        """Read until all records of a partition before ``end`` are here."""
        empty_polls, is_alone = 0, False
        while not (self._read[at] and self._read[at][-1].offset >= end - 1):
            if await self._reader.position(at) >= end:
                return
            full = [each for each, buffer in self._read.items() if len(buffer) > _BUFFERED_MAX and each != at]
            full = [] if is_alone else full
            self._reader.pause(full)
            try:
                records = await self._reader.poll(_POLL_RECORDS, _POLL_SECONDS)
            except LogTruncated as error:
                if is_alone:
                    raise LogTooShort(f"batch {batch} took what the log no longer has: {error}") from error
                # It may be another partition that lacks records, of which this batch takes none.
                buffer = self._read[at]
                await self._reader.assign({at: buffer[-1].offset + 1 if buffer else self._next[at]})
                self._is_assigned, is_alone = False, True
                continue
            self._reader.resume(full)
            for record in records:
                self._read[TopicPartition(record.topic, record.partition)].append(record)
            empty_polls = 0 if records else empty_polls + 1
            if empty_polls > _EMPTY_POLLS_MAX or (
                empty_polls and (await self._reader.end_offsets())[at] < end
            ):
                raise LogTooShort(
                    f"batch {batch} took {at.topic}/{at.partition} up to offset {end - 1}, "
                    f"and the log does not reach as far"
                )
