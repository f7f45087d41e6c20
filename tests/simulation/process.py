"""Processes that can be killed at any await or frozen, and whose network may fail.

A killed process does not clean up: whatever it still calls has no effect. What it had sent to the ledger may
yet be carried out there, as with a real server.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from domain.model.errors import Unavailable
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryLog
from services.adapters.memory.outbox import MemoryOutbox
from services.ports.journal import Checkpoint, Journalled
from services.ports.ledger import CommitBatch, CommitOutcome, Incarnation, Lease, LedgerState, Resolution
from services.ports.log import Ahead, Entry, LogReader, LogWriter, Record, Span, TopicPartition, TopicSpec
from services.ports.outbox import OutboxItem, Stream

T = TypeVar("T")


class Faults(msgspec.Struct, kw_only=True):
    """The probability of each fault per call; all zero is a good day."""

    crash: float = 0.0
    freeze: float = 0.0
    error_before: float = 0.0
    error_after: float = 0.0
    slow: float = 0.05

    def end(self) -> None:
        """Let nothing go wrong from now on."""
        self.crash = self.freeze = self.error_before = self.error_after = 0.0


class Process:
    """One incarnation of a worker or a relay."""

    def __init__(self, name: str, rng: random.Random, faults: Faults) -> None:
        self.name = name
        self.alive = True
        self.task: asyncio.Task[None] | None = None
        self.on_kill: list[Callable[[], None]] = []
        self._rng = rng
        self._faults = faults
        self._frozen_until = 0.0

    def kill(self) -> None:
        """End the process at once."""
        self.alive = False
        for ending in self.on_kill:
            ending()
        if self.task is not None:
            self.task.cancel()

    async def step(self) -> None:
        """Stand for one await of the process: time may pass, and the process may die."""
        self._die_if_dead()
        draw = self._rng.random()
        if draw < self._faults.crash:
            self.kill()
        elif draw < self._faults.crash + self._faults.freeze:
            # The whole process stands still, longer than its lease lasts at times.
            self._frozen_until = asyncio.get_running_loop().time() + self._rng.uniform(1.0, 60.0)
        elif draw > 1.0 - self._faults.slow:
            await asyncio.sleep(self._rng.uniform(0.0, 0.3))
        else:
            await asyncio.sleep(self._rng.uniform(0.0, 0.002))
        while (remaining := self._frozen_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(remaining)
        self._die_if_dead()

    def _die_if_dead(self) -> None:
        if not self.alive:
            raise asyncio.CancelledError

    async def call(self, effect: Callable[[], Awaitable[T]]) -> T:
        """Call over the network. The call may fail before or after it took effect."""
        await self.step()
        if self._rng.random() < self._faults.error_before:
            raise Unavailable("injected before the effect")
        result = await effect()
        lost = self._rng.random() < self._faults.error_after
        await self.step()
        if lost:
            raise Unavailable("injected after the effect")
        return result


class UnreliableLedger:
    """The ledger as a process sees it. The server carries commits out even if nobody listens any more."""

    def __init__(
        self, process: Process, inner: MemoryLedger, in_flight: set[asyncio.Task[CommitOutcome]]
    ) -> None:
        self._process = process
        self._inner = inner
        self._in_flight = in_flight
        process.on_kill.append(inner.sever)

    async def announce(self, worker: Incarnation) -> None:
        await self._process.call(lambda: self._inner.announce(worker))

    async def acquire(self, owner: str, lease_seconds: float, *, some: bool = False) -> Sequence[Lease]:
        return await self._process.call(lambda: self._inner.acquire(owner, lease_seconds, some=some))

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> bool:
        return await self._process.call(lambda: self._inner.renew(leases, lease_seconds))

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._process.call(lambda: self._inner.release(leases))

    async def load(self, leases: Sequence[Lease]) -> LedgerState:
        return await self._process.call(lambda: self._inner.load(leases))

    async def ensure_offsets(self, lease: Lease, first: Mapping[TopicPartition, int]) -> None:
        await self._process.call(lambda: self._inner.ensure_offsets(lease, first))

    async def commit(self, batch: CommitBatch) -> CommitOutcome:
        return await self._process.call(lambda: self._send(batch))

    async def _send(self, batch: CommitBatch) -> CommitOutcome:
        async def serve() -> CommitOutcome:
            await asyncio.sleep(delay)
            return self.apply(batch)

        delay = self._process._rng.uniform(0.0, 0.01)
        task = asyncio.get_running_loop().create_task(serve())
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return await asyncio.shield(task)

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        """Carry a batch out, at one moment."""
        return self._inner.database.apply(batch)

    async def journalled(self, shard: int) -> Journalled | None:
        return await self._process.call(lambda: self._inner.journalled(shard))

    async def write_checkpoint(self, at: Checkpoint, kept: int, held: Callable[[], None]) -> None:
        await self._process.call(lambda: self._inner.write_checkpoint(at, kept, held))

    async def resolve(self, batch: CommitBatch) -> Resolution:
        async def read() -> Resolution:
            while self._in_flight:  # the row locks of transactions in flight
                await asyncio.sleep(0.001)
            return await self._inner.resolve(batch)

        return await self._process.call(read)

    async def aclose(self) -> None:
        await self._inner.aclose()


class UnreliableOutbox:
    """The outbox as a process sees it."""

    def __init__(self, process: Process, inner: MemoryOutbox) -> None:
        self._process = process
        self._inner = inner
        process.on_kill.append(inner.sever)

    async def shards(self) -> int:
        return await self._process.call(self._inner.shards)

    async def acquire(self, shard: int, owner: str, lease_seconds: float) -> int:
        return await self._process.call(lambda: self._inner.acquire(shard, owner, lease_seconds))

    async def renew(self, shard: int, epoch: int, lease_seconds: float) -> bool:
        return await self._process.call(lambda: self._inner.renew(shard, epoch, lease_seconds))

    async def release(self, shard: int, epoch: int) -> None:
        await self._process.call(lambda: self._inner.release(shard, epoch))

    async def published(self, shard: int, stream: Stream) -> int:
        return await self._process.call(lambda: self._inner.published(shard, stream))

    async def unpublished(
        self, shard: int, stream: Stream, after_seq: int, rows_max: int
    ) -> Sequence[OutboxItem]:
        return await self._process.call(lambda: self._inner.unpublished(shard, stream, after_seq, rows_max))

    async def decisions(self, shard: int, seqs: Sequence[int]) -> Sequence[OutboxItem]:
        return await self._process.call(lambda: self._inner.decisions(shard, seqs))

    async def compared(self, shard: int) -> int:
        return await self._process.call(lambda: self._inner.compared(shard))

    async def raise_alarm(self, shard: int, epoch: int, alarm: str, compared: int) -> bool:
        return await self._process.call(lambda: self._inner.raise_alarm(shard, epoch, alarm, compared))

    async def acknowledge(self) -> Mapping[int, str]:
        return await self._process.call(self._inner.acknowledge)

    async def mark_published(self, shard: int, stream: Stream, epoch: int, seq: int) -> bool:
        return await self._process.call(lambda: self._inner.mark_published(shard, stream, epoch, seq))

    async def wait(self, timeout_seconds: float) -> None:
        await self._process.step()
        await self._inner.wait(timeout_seconds)

    async def aclose(self) -> None:
        await self._inner.aclose()


class UnreliableLog:
    """The log as a process sees it."""

    def __init__(self, process: Process, inner: MemoryLog) -> None:
        self._process = process
        self._inner = inner

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        await self._process.call(lambda: self._inner.ensure_topics(specs))

    async def partitions(self, topic: str) -> int:
        return await self._process.call(lambda: self._inner.partitions(topic))

    async def reader(self) -> LogReader:
        return _UnreliableReader(self._process, await self._inner.reader())

    async def writer(self) -> LogWriter:
        return _UnreliableWriter(self._process, await self._inner.writer())

    async def ahead(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Ahead]:
        return await self._process.call(lambda: self._inner.ahead(positions))

    async def last_record(self, at: TopicPartition) -> Record | None:
        return await self._process.call(lambda: self._inner.last_record(at))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _UnreliableReader:
    def __init__(self, process: Process, inner: LogReader) -> None:
        self._process = process
        self._inner = inner
        self.pause = inner.pause
        self.resume = inner.resume

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        await self._process.call(lambda: self._inner.assign(positions))

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        await self._process.step()
        # A fetch brings what the network had ready, not what was asked for.
        records = await self._inner.poll(self._process._rng.randint(1, records_max), timeout_seconds)
        await self._process.step()
        return records

    async def end_offsets(self) -> Mapping[TopicPartition, int]:
        return await self._process.call(self._inner.end_offsets)

    async def first_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self._process.call(lambda: self._inner.first_offsets(partitions))

    async def position(self, at: TopicPartition) -> int:
        return await self._process.call(lambda: self._inner.position(at))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _UnreliableWriter:
    def __init__(self, process: Process, inner: LogWriter) -> None:
        self._process = process
        self._inner = inner

    async def append(
        self, topic: str, entries: Sequence[Entry], partition: int | None = None
    ) -> Sequence[Span]:
        async def part() -> Sequence[Span]:
            return await self._inner.append(topic, entries[:cut], partition)

        cut = len(entries)
        if self._process._rng.random() < self._process._faults.error_after:
            cut = self._process._rng.randint(0, len(entries))
            await self._process.call(part)
            raise Unavailable("injected: only some were appended")
        return await self._process.call(part)

    async def aclose(self) -> None:
        await self._inner.aclose()
