"""One order for everything: records of all partitions, merged by time, topic and offset.

The order does not depend on how fast a partition was fetched. Before a record is taken, every partition that
may hold an earlier one has been read up to there. So the same log gives the same sequence on every run and on
every kind of log. A log that is complete at the start also gives the same batches.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import zlib
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from domain.model.errors import Unavailable
from domain.model.limits import batch_bytes_max, read_ahead_bytes_max
from services.backoff import Backoff
from services.ports.log import (
    CONFIG_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    TICKS_TOPIC,
    USAGE_TOPIC,
    LogReader,
    Record,
    TopicPartition,
)

_ORDER = (CONFIG_TOPIC, NODES_TOPIC, USAGE_TOPIC, PODS_TOPIC, TICKS_TOPIC)
_RANK = {topic: rank for rank, topic in enumerate(_ORDER)}
_FETCH_SECONDS = 0.1
_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")
_Key = tuple[int, int, int]


class Latest(NamedTuple):
    """Of the records below ``below`` those at ``passed`` do not count: of their keys there are later ones.

    ``passed`` says of each offset which key was there (``key_hash``): where the log has lost its tail again
    since, the record there now may be another, which counts. ``idle`` is the offset of the very last one
    where its key has moved: it is read, so that its shard gets behind it, and says nothing.
    """

    below: int
    passed: Mapping[int, int]
    idle: int | None = None

    def passes_over(self, record: Record) -> bool:
        """Say whether a record does not count."""
        was = self.passed.get(record.offset) if record.offset < self.below else None
        return was is not None and record.key is not None and was == key_hash(record.key)


def key_hash(key: bytes) -> int:
    """Return what stands for a key: of a million records that are passed over the keys need not be kept."""
    return zlib.crc32(key)


class _Lane:
    """One partition, with the records that were fetched and not yet taken."""

    __slots__ = ("at", "buffer", "bytes_count", "clock_ms", "end", "latest", "next_read", "paused", "rank")

    def __init__(self, at: TopicPartition, position: int, latest: Latest | None) -> None:
        self.at = at
        self.buffer: deque[tuple[int, int, Record]] = deque()  # (time in the merged order, bytes, record)
        self.next_read = position  # offset after the last fetched record
        self.end = position  # end of the partition when it was last asked for
        self.bytes_count = 0
        self.clock_ms = 0
        self.rank = _RANK[at.topic]
        self.paused = False
        self.latest = latest

    def push(self, records: Iterable[Record], fetched_ms: int) -> None:
        """Push records; of a partition that is read again those that others did not follow."""
        clock_ms, bytes_count, push = self.clock_ms, self.bytes_count, self.buffer.append
        offset = self.next_read - 1
        for record in records:
            offset = record.offset
            if self.latest is not None and self.latest.passes_over(record):
                continue
            # Within a partition the offset decides: a timestamp that goes back is read as the newest one.
            at_ms = fetched_ms if record.claimed else record.timestamp_ms
            if at_ms > clock_ms:
                clock_ms = at_ms
            size = _size(record)
            push((clock_ms, size, record))
            bytes_count += size
        self.clock_ms, self.bytes_count, self.next_read = clock_ms, bytes_count, offset + 1

    def move(
        self, batch: list[Record], sizes: list[int], records_max: int, bytes_max: int, before: _Key | None
    ) -> int:
        """Take the records that come before the next key of the other partitions; return their bytes."""
        buffer, end, moved_bytes = self.buffer, self.end, 0
        while buffer and len(batch) < records_max and moved_bytes < bytes_max:
            clock_ms, size, record = buffer[0]
            if record.offset >= end:
                break
            if before is not None and (clock_ms, self.rank, self.at.partition) > before:
                break
            buffer.popleft()
            batch.append(record)
            sizes.append(size)
            moved_bytes += size
        self.bytes_count -= moved_bytes
        return moved_bytes

    def head(self) -> _Key | None:
        """The key of the next record, if it was appended before the ends were asked for."""
        if not self.buffer or self.buffer[0][2].offset >= self.end:
            return None
        return (self.buffer[0][0], self.rank, self.at.partition)

    @property
    def lacks(self) -> bool:
        """Whether a record that comes next may still have to be fetched."""
        return not self.buffer and self.next_read < self.end


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


class Intake:
    """Takes batches out of the merged log. While the log does not answer, it is asked again.

    Parameters
    ----------
    reader : LogReader
    on_fault : callable
        Is called whenever the log did not answer.
    on_read : callable
        Is called whenever a partition whose next record is missing was read further: there may be many
        offsets without one.

    Attributes
    ----------
    due : int
        How many records make the next batch: of those that are held, and those that were returned last.
    """

    def __init__(
        self,
        reader: LogReader,
        on_fault: Callable[[], None] = lambda: None,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._on_fault = on_fault
        self._on_read = on_read
        self._trouble = ""  # the last fault; said once, not at every try
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._sizes: list[int] = []  # of the records that were returned, and are held
        self._bytes_left = 0
        self.due = 0

    async def add(
        self, positions: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, Latest] = {}
    ) -> None:
        """Read these partitions, too, from these positions on; those that are read go on as they are.

        ``latest`` names partitions that are read again, and which of their records count.
        """
        new = positions.keys() - self._lanes.keys()
        added = {at: _Lane(at, positions[at], latest.get(at)) for at in new}
        await self._assign(self._lanes | added)

    async def go_on(self) -> None:
        """Read on where it was, after the reader was used for something else."""
        await self._assign(self._lanes)

    async def drop_shards(self, shards: Collection[int]) -> None:
        """Read the partitions of these shards no longer; forget what was read ahead."""
        self._sizes = []
        await self._assign({at: lane for at, lane in self._lanes.items() if at.partition not in shards})

    async def _assign(self, lanes: Mapping[TopicPartition, _Lane]) -> None:
        self._lanes = dict(sorted(lanes.items()))
        for lane in self._lanes.values():
            lane.paused = False
        positions = {at: lane.next_read for at, lane in self._lanes.items()}
        await self._answer(lambda: self._reader.assign(positions))

    async def _answer(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the log until it answers: what was read before, and what was made of it, stays good."""
        backoff = Backoff()
        while True:
            try:
                answer = await ask()
            except Unavailable as error:
                self._on_fault()
                if str(error) != self._trouble:
                    _LOGGER.warning("waiting for the log: %s", error)
                self._trouble = str(error)
                await backoff.wait()
            else:
                if self._trouble:
                    _LOGGER.warning("the log answers again")
                self._trouble = ""
                return answer

    async def next_batch(
        self, records_max: int, timeout_seconds: float, held: Sequence[Record] = (), ahead_max: int = 0
    ) -> list[Record]:
        """Return the next records of the merged order; none if none came within the time.

        Those that are held from earlier calls count as part of the batch: together they are what a worker
        reads that begins with them after a restart, so that a crash changes no decision.
        With no time at all, the records are those that the log has at this moment.
        Up to ``ahead_max`` further records follow those of the batch. Fewer are returned when they are large
        (``batch_bytes_max``, ``read_ahead_bytes_max``), else only when the log had no more at some moment of
        the call.
        """
        self._keep_sizes(held)
        self._count_due(records_max)
        if not self._lanes:
            await asyncio.sleep(timeout_seconds)
            return []
        if timeout_seconds and not any(lane.buffer for lane in self._lanes.values()):
            await self._fetch(records_max, timeout_seconds)
            if not any(lane.buffer for lane in self._lanes.values()):
                return []
        batch: list[Record] = []
        most = records_max + ahead_max - len(held)
        bytes_max = batch_bytes_max + (read_ahead_bytes_max if ahead_max else 0)
        self._bytes_left = bytes_max - sum(self._sizes)
        self._take(batch, most)
        ends_asked = False
        while len(batch) < most and self._bytes_left > 0:
            if any(lane.lacks for lane in self._lanes.values()):
                await self._fill(records_max)
            elif ends_asked:
                break
            else:
                for at, end in (await self._answer(self._reader.end_offsets)).items():
                    self._lanes[at].end = end
                ends_asked = True
                if any(lane.end < lane.next_read for lane in self._lanes.values()):
                    await self._fetch(records_max, 0.0)  # it lost what was read ahead, and its reader says so
                if any(lane.lacks for lane in self._lanes.values()):
                    continue
            self._take(batch, most)
        self._count_due(records_max)
        return batch

    def _count_due(self, records_max: int) -> None:
        sums = list(accumulate(self._sizes[:records_max]))
        self.due = min(len(sums), bisect_left(sums, batch_bytes_max) + 1)

    def _keep_sizes(self, held: Sequence[Record]) -> None:
        """Forget the sizes of records that are held no longer: the first ones, in the order of the log."""
        if len(self._sizes) < len(held):
            self._sizes = [_size(record) for record in held]
        del self._sizes[: len(self._sizes) - len(held)]

    def _take(self, batch: list[Record], records_max: int) -> None:
        """Move records to the batch until the next one may be missing."""
        lanes = list(self._lanes.values())
        if any(lane.lacks for lane in lanes):
            return
        heap = [(key, i) for i, lane in enumerate(lanes) if (key := lane.head()) is not None]
        heapq.heapify(heap)
        while heap and len(batch) < records_max and self._bytes_left > 0:
            i = heap[0][1]
            lane = lanes[i]
            others = min(heap[1:3], default=None)
            before = None if others is None else others[0]
            self._bytes_left -= lane.move(batch, self._sizes, records_max, self._bytes_left, before)
            if lane.lacks:
                return
            key = lane.head()
            if key is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (key, i))

    async def _fill(self, records_max: int) -> None:
        """Fetch until no partition may lack the next record."""
        while lacking := [(lane, lane.next_read) for lane in self._lanes.values() if lane.lacks]:
            await self._fetch(records_max, _FETCH_SECONDS)
            for lane in self._lanes.values():
                # What is missing may be no record: a transaction's marker, or compacted away. It is asked for
                # even if other partitions had records: they may have some at every fetch.
                if lane.lacks:
                    position = await self._answer(partial(self._reader.position, lane.at))
                    lane.next_read = max(lane.next_read, position)
            if any(lane.next_read > before for lane, before in lacking):
                self._on_read()

    async def _fetch(self, records_max: int, timeout_seconds: float) -> None:
        """Poll once. Pause partitions with many buffered records, so that the others can catch up."""
        for lane in self._lanes.values():
            full = len(lane.buffer) >= 2 * records_max or lane.bytes_count >= 2 * batch_bytes_max
            if full != lane.paused:
                (self._reader.pause if full else self._reader.resume)([lane.at])
                lane.paused = full
        records = await self._answer(lambda: self._reader.poll(records_max, timeout_seconds))
        # A time from the future is only a claim. It counts as the next moment after all that was fetched, so
        # that such a partition neither waits for the others' backlog nor makes them wait for its own.
        fetched_ms = max(lane.clock_ms for lane in self._lanes.values()) + 1
        for (topic, partition), found in groupby(records, key=itemgetter(0, 1)):
            self._lanes[TopicPartition(topic, partition)].push(found, fetched_ms)
