"""The log in memory: what Kafka promises, in one process, without threads, chance or a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from domain.model.errors import LogTruncated, TopicMismatch, Unavailable
from services.codec.partition import split
from services.ports.clock import Clock
from services.ports.log import Backlog, Entry, Record, Span, TopicPartition, TopicSpec, TopicState, no_topic


class _Partition:
    """Offsets from ``first`` on; those before it are gone. None stands for an offset without a record."""

    def __init__(self) -> None:
        self.first = 0
        self.slots: list[Record | None] = []

    @property
    def end(self) -> int:
        return self.first + len(self.slots)

    @property
    def records(self) -> list[Record]:
        return [record for record in self.slots if record is not None]


class MemoryLog:
    """An implementation of ``ports.Log`` whose readers and writers share this object.

    Parameters
    ----------
    clock : Clock
        Gives the records their timestamps.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, list[_Partition]] = {}
        self._made: dict[str, int] = {}  # how often each topic was made
        self._waiting: dict[asyncio.Event, None] = {}  # in an order that a day repeats

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See ``ports.Log``."""
        for spec in specs:
            if spec.name not in self._topics:
                self.recreate(spec.name, spec.partitions)
            there = len(self._topics[spec.name])
            if there != spec.partitions:
                raise TopicMismatch(f"topic {spec.name} has {there} partitions, not {spec.partitions}")

    async def add_partitions(self, topics: Sequence[str], partitions: int) -> None:
        """See ``ports.Log``."""
        for topic in topics:
            self.grow(topic, partitions)

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicState]:
        """See ``ports.Log``."""
        return {
            name: TopicState(f"{name}-{self._made[name]}", len(self._topics[name]))
            for name in names
            if name in self._topics
        }

    async def partitions(self, topic: str) -> int:
        """See ``ports.Log``."""
        return len(self._topics.get(topic, ()))

    async def reader(self) -> MemoryReader:
        """See ``ports.Log``."""
        return MemoryReader(self)

    async def writer(self) -> MemoryWriter:
        """See ``ports.Log``."""
        return MemoryWriter(self)

    async def backlogs(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Backlog]:
        """See ``ports.Log``."""
        found = {}
        for at, position in positions.items():
            partition = self.partition(at)
            ahead = partition.slots[max(0, position - partition.first) :]
            oldest_ms = next((record.timestamp_ms for record in ahead if record is not None), None)
            found[at] = Backlog(partition.end, oldest_ms)
        return found

    async def last_record(self, at: TopicPartition) -> Record | None:
        """See ``ports.Log``."""
        records = self.partition(at).records
        return records[-1] if records else None

    async def aclose(self) -> None:
        """See ``ports.Log``; the records stay."""

    def truncate(self, at: TopicPartition, first: int) -> None:
        """Forget the records below offset ``first``, as retention would."""
        partition = self.partition(at)
        first = min(max(first, partition.first), partition.end)
        del partition.slots[: first - partition.first]
        partition.first = first

    def cut(self, at: TopicPartition, end: int) -> None:
        """Forget the records from offset ``end`` on, as an unclean election would."""
        partition = self.partition(at)
        del partition.slots[max(0, end - partition.first) :]

    def recreate(self, topic: str, partitions: int) -> None:
        """Delete a topic, if it is there, and make it anew, empty."""
        self._topics[topic] = [_Partition() for _ in range(partitions)]
        self._made[topic] = self._made.get(topic, 0) + 1

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, until it has so many."""
        there = self._topics[topic]
        there += [_Partition() for _ in range(partitions - len(there))]

    def mark(self, at: TopicPartition) -> None:
        """Take an offset without a record, as the end of a transaction does."""
        self.partition(at).slots.append(None)
        self._wake()

    def partition(self, at: TopicPartition) -> _Partition:
        """Return the partition; raise ``Unavailable`` when it does not exist."""
        partitions = self._topics.get(at.topic, ())
        if not 0 <= at.partition < len(partitions):
            raise Unavailable(f"partition {at.partition} of topic {at.topic} does not exist")
        return partitions[at.partition]

    def add(self, at: TopicPartition, entries: Sequence[Entry]) -> Span:
        """Append to one partition at once and wake the readers."""
        partition = self.partition(at)
        first = partition.end
        now_ms = self._clock.now_ms()
        for offset, (key, value, seal, *more) in enumerate(entries, partition.end):
            record = Record(*at, offset, key, value, now_ms, seal, None, False, *more)
            partition.slots.append(record)
        self._wake()
        return Span(*at, first, partition.end)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    async def wait(self, timeout_seconds: float) -> None:
        """Return at the next append, or after the time."""
        event = asyncio.Event()
        self._waiting[event] = None
        try:
            async with asyncio.timeout(timeout_seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(event, None)


class MemoryWriter:
    """See ``ports.LogWriter``. Partitions become visible one after another, as in Kafka."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def append(
        self, topic: str, entries: Sequence[Entry], partition: int | None = None
    ) -> Sequence[Span]:
        """See ``ports.LogWriter``."""
        partitions = await self._log.partitions(topic)
        if not partitions:
            raise no_topic(topic)
        spans = []
        for number, group in split(entries, partitions, partition).items():
            await asyncio.sleep(0)
            spans.append(self._log.add(TopicPartition(topic, number), group))
        return spans

    async def aclose(self) -> None:
        """See ``ports.LogWriter``."""


class MemoryReader:
    """See ``ports.LogReader``."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """See ``ports.LogReader``."""
        for at in positions:
            self._log.partition(at)
        self._positions = dict(positions)
        self._paused = set()

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        """See ``ports.LogReader``."""
        await asyncio.sleep(0)  # a reader that always finds something must not starve the others
        records = self._take(records_max)
        if records or timeout_seconds <= 0:
            return records
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while not records and (remaining := deadline - loop.time()) > 0:
            await self._log.wait(remaining)
            records = self._take(records_max)
        return records

    def _take(self, records_max: int) -> list[Record]:
        taken: list[Record] = []
        active = [at for at in self._positions if at not in self._paused]
        for index, at in enumerate(active):
            share = -(-(records_max - len(taken)) // (len(active) - index))
            partition, position = self._log.partition(at), self._positions[at]
            if not partition.first <= position <= partition.end:
                if taken:
                    break  # the records first; the next call raises
                raise LogTruncated(
                    f"{at.topic}/{at.partition} ends at {partition.end} and does not hold {position}"
                )
            start = position - partition.first
            slots = partition.slots[start : start + share]
            taken += [record for record in slots if record is not None]
            # A partition that was read goes to the back, so that small reads reach every partition.
            if slots:
                del self._positions[at]
                self._positions[at] = position + len(slots)
        return taken

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """See ``ports.LogReader``."""
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """See ``ports.LogReader``."""
        self._paused.difference_update(partitions)

    async def end_offsets(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]:
        """See ``ports.LogReader``."""
        of = self._positions if partitions is None else partitions
        return {at: self._log.partition(at).end for at in of}

    async def first_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See ``ports.LogReader``."""
        return {at: self._log.partition(at).first for at in partitions}

    async def position(self, at: TopicPartition) -> int:
        """See ``ports.LogReader``."""
        return self._positions[at]

    async def aclose(self) -> None:
        """See ``ports.LogReader``."""
        self._positions = {}
