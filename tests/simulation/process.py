"""Processes that can be killed at any await, frozen, stopped or cut off, and whose calls may fail.

A killed process does not clean up: whatever it still calls has no effect. What it had sent to the ledger may
yet be carried out there, as with a real server.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar, cast

import msgspec

from domain.model.errors import Unavailable
from services.adapters.memory.database import LeaseRow
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryReader, MemoryWriter
from services.adapters.memory.outbox import MemoryOutbox
from services.ports.ledger import CommitBatch, Committed, Lease, NotCommitted
from services.ports.log import DECISIONS_TOPIC, PODS_TOPIC, Entry, Record, Span, TopicPartition
from services.worker.run import Worker
from tests.simulation.faults import Fault, Faults
from tests.simulation.servers import Outages, SimulatedDatabase, SimulatedLog, Transactions
from tests.simulation.tape import Delivered

T = TypeVar("T")
LOG, LEDGER = "log", "ledger"
_TRIES_AGAIN_SECONDS = 4.0
"""A worker that holds a lease tries to renew it so often, however long a call hangs."""

_READS = {"load_base", "load_part", "follow", "resolve", "read_inbox"}
_READS |= {"shards", "published", "unpublished", "decisions", "compared"}


ROW_SECONDS = 0.002
"""What a row costs that is read: to read everything again shows as a stall."""

_ROWS_FREE = 10
COMMIT_SECONDS_MAX = 0.01


def _rows_of(result: object) -> int:
    """Return how many rows a server gave."""
    if isinstance(result, msgspec.Struct):
        return sum(map(_rows_of, msgspec.structs.astuple(result)))
    return len(result) if isinstance(result, list | tuple | dict) else 0


class Process:
    """One incarnation of a worker or a relay."""

    def __init__(self, name: str, rng: random.Random, faults: Faults, outages: Outages) -> None:
        self.name = name
        self.alive = True
        self.task: asyncio.Task[None] | None = None
        self.worker: Worker | None = None
        self.clients: list[MemoryLedger | MemoryOutbox] = []
        self.delivered: Delivered = {}
        self.cut_until = {LOG: 0.0, LEDGER: 0.0}
        self.rng = rng
        self.faults = faults
        self._outages = outages
        self._frozen_until = 0.0
        self.hurt_at = -math.inf  # when something last befell this process, and not all of them
        self.renewing: tuple[float, Collection[Lease]] = (
            -math.inf,
            (),
        )  # when, and which
        self._time = asyncio.get_running_loop().time

    def kill(self) -> None:
        """End the process at once."""
        self.alive = False
        for client in self.clients:
            client.sever()
        if self.task is not None:
            self.task.cancel()

    async def step(self) -> None:
        """Stand for one await of the process: time may pass, and the process may die."""
        self._die_if_dead()
        if self.faults.strikes(Fault.CRASH):
            self.kill()
        elif self.faults.strikes(Fault.FREEZE):
            # The whole process stands still, longer than its lease lasts at times.
            until = self._time() + 60.0 ** self.rng.random()
            self._frozen_until = max(self._frozen_until, until)  # who stands still already waits for that end
            self.hurt_at = max(self.hurt_at, self._frozen_until)
        elif self.rng.random() < self.faults.slow:
            await asyncio.sleep(self.rng.uniform(0.0, 0.3))
        else:
            # Most awaits only let others go first, which costs no timer.
            await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.0, 0.001, 0.002)))
        while (remaining := self._frozen_until - self._time()) > 0:
            await asyncio.sleep(remaining)
        self._die_if_dead()

    @property
    def is_frozen(self) -> bool:
        """Whether the process stands still."""
        return self._frozen_until > self._time()

    def is_healthy(self, lease: Lease, since: float) -> bool:
        """Whether nothing befell this process alone since a time, and it goes on renewing a lease."""
        tried_at, leases = self.renewing
        is_trying = lease in leases and tried_at > self._time() - _TRIES_AGAIN_SECONDS
        hurt_at = max(self.hurt_at, self.cut_until[LEDGER])
        return self.alive and is_trying and hurt_at < since

    def _die_if_dead(self) -> None:
        if not self.alive:
            raise asyncio.CancelledError

    def reaches(self, side: str, *, writes: bool = False) -> bool:
        """Say whether a server hears this process now."""
        now = self._time()
        away = self._outages.log if side == LOG else self._outages.ledger
        full = writes and side == LEDGER and self._outages.writes > now
        return not full and max(away, self.cut_until[side]) <= now

    async def call(self, side: str, effect: Callable[[], Awaitable[T]], *, writes: bool = True) -> T:
        """Call over the network. The call may fail before or after it took effect."""
        await self.step()
        if not self.reaches(side, writes=writes):
            await asyncio.sleep(self.rng.uniform(0.05, 2.0))
            raise Unavailable(f"injected: the {side} is away")
        if self.faults.strikes(Fault.ERROR_BEFORE):
            self.hurt_at = max(self.hurt_at, self._time())
            raise Unavailable("injected before the effect")
        result = await effect()
        lost = self.faults.strikes(Fault.ERROR_AFTER)
        if lost:
            self.hurt_at = max(self.hurt_at, self._time())
        if (count := _rows_of(result)) >= _ROWS_FREE:
            await asyncio.sleep(count * ROW_SECONDS)
        await self.step()
        if lost or not self.reaches(side):
            raise Unavailable("injected after the effect")
        return result


class Remote:
    """A server as a process sees it: every call goes over the network."""

    def __init__(self, process: Process, inner: Any, side: str) -> None:
        self._process = process
        self._inner = inner
        self._side = side

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method, process, side, writes = (
            getattr(self._inner, name),
            self._process,
            self._side,
            name not in _READS,
        )

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await process.call(side, lambda: method(*args, **kwargs), writes=writes)

        if not hasattr(type(self), name):  # else a broken build calls this in its own
            setattr(self, name, call)
        return call

    async def aclose(self) -> None:
        """Let go at once."""
        await self._inner.aclose()


class UnreliableLedger(Remote):
    """The ledger as a process sees it. The server carries commits out even if nobody listens any more."""

    def __init__(self, process: Process, inner: MemoryLedger, transactions: Transactions) -> None:
        super().__init__(process, inner, LEDGER)
        self.database = cast(SimulatedDatabase, inner.database)
        self._transactions = transactions
        self.took: Callable[[Process, int, LeaseRow], None] = lambda process, shard, before: None
        process.clients.append(inner)

    async def commit(self, batch: CommitBatch) -> Committed | NotCommitted:
        """See ``Ledger``."""
        return await self._process.call(LEDGER, lambda: self._send(batch))

    async def renew_leases(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lease]:
        """See ``Ledger``."""
        self._process.renewing = asyncio.get_running_loop().time(), leases
        return await self._process.call(LEDGER, lambda: self._inner.renew_leases(leases, lease_seconds))

    async def acquire(
        self, owner: str, lease_seconds: float, shards: Sequence[int] | None = None
    ) -> Sequence[Lease]:
        """See ``Ledger``."""

        async def take() -> Sequence[Lease]:
            rows = self.database.worker_leases
            before = {shard: dataclasses.replace(row) for shard, row in rows.items()}
            leases: Sequence[Lease] = await self._inner.acquire(owner, lease_seconds, shards)
            for shard, _ in leases:
                self.took(self._process, shard, before[shard])
            return leases

        return await self._process.call(LEDGER, take)

    async def _send(self, batch: CommitBatch) -> Committed | NotCommitted:
        async def serve() -> Committed | NotCommitted:
            if delay_seconds:
                await asyncio.sleep(delay_seconds)
            self._transactions.begun.add(task)
            await asyncio.sleep(works_seconds)
            return self.apply(batch)

        self._inner.recognised()
        rng = self._process.rng
        is_late, works_seconds = (
            self._process.faults.strikes(Fault.LATE_COMMIT),
            rng.uniform(0.0, COMMIT_SECONDS_MAX),
        )
        delay_seconds = rng.uniform(0.0, 10.0) if is_late else 0.0
        task = self._transactions.send(serve())
        if is_late and rng.random() < 0.7:
            if rng.random() < 0.5:  # who sent it may be gone when it arrives
                self._process.faults.counts[Fault.CRASH] += 1
                self._process.kill()
            raise Unavailable("injected: no answer, and the transaction is still on its way")
        try:
            outcome = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise Unavailable("injected: the server ended with the transaction") from None
        if isinstance(outcome, Committed):
            self._inner.know_written(self.database, batch)
        return outcome

    def apply(self, batch: CommitBatch) -> Committed | NotCommitted:
        """Carry a batch out, at one moment."""
        return self.database.apply(batch, self._inner)

    async def resolve(self, batch: CommitBatch) -> Committed | NotCommitted:
        """See ``Ledger``."""

        async def read() -> Committed | NotCommitted:
            while self._transactions.begun:  # the row locks of transactions in flight
                await asyncio.sleep(0.001)
            resolution: Committed | NotCommitted = await self._inner.resolve(batch)
            return resolution

        return await self._process.call(LEDGER, read, writes=False)


class UnreliableOutbox(Remote):
    """The outbox as a process sees it."""

    def __init__(self, process: Process, inner: MemoryOutbox) -> None:
        super().__init__(process, inner, LEDGER)
        process.clients.append(inner)

    def is_late(self, shard: int) -> bool:
        """Say whether another relay has or had the shard since this one."""
        return self._inner.database.relay_leases[shard].holder is not self._inner

    async def wait(self, shard: int, timeout_seconds: float) -> None:
        """See ``Outbox``."""
        await self._process.step()
        if not self._process.reaches(LEDGER):
            raise Unavailable("injected: the ledger is away")
        await self._inner.wait(shard, timeout_seconds)


class UnreliableLog(Remote):
    """The log as a process sees it; ``publishing`` is called with decisions, ``deleting`` with pods."""

    def __init__(self, process: Process, inner: SimulatedLog) -> None:
        super().__init__(process, inner, LOG)
        self.publishing: Callable[[int], None] = lambda shard: None
        self.deleting: Callable[[Sequence[Entry]], None] = lambda entries: None

    async def reader(self) -> UnreliableReader:
        """See ``Log``."""
        return UnreliableReader(self._process, await self._inner.reader(), LOG)

    async def writer(self) -> UnreliableWriter:
        """See ``Log``."""
        return UnreliableWriter(self._process, await self._inner.writer(), self)


class UnreliableReader(Remote):
    """A reader as a process sees it."""

    def __init__(self, process: Process, inner: MemoryReader, side: str) -> None:
        super().__init__(process, inner, side)
        self.pause = inner.pause
        self.resume = inner.resume

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        """See ``LogReader``. A fetch brings what the network had ready, not what was asked for."""
        process = self._process
        await process.step()
        if not process.reaches(LOG):
            await asyncio.sleep(timeout_seconds)
            if process.rng.random() < 0.5:  # a client that tries again by itself gives nothing
                return []
            raise Unavailable("injected: the log is away")
        if process.faults.strikes(Fault.POLL_FAILED):
            raise Unavailable("injected: the poll failed")
        before: dict[TopicPartition, int] = dict(self._inner._positions)
        records: Sequence[Record] = await self._inner.poll(
            process.rng.randint(1, records_max), timeout_seconds
        )
        for at, end in self._inner._positions.items():
            given = process.delivered.setdefault(at, {})
            for offset in range(before[at], end):
                given.pop(offset, None)  # what was there when it was read before
        for record in records:
            process.delivered[TopicPartition(record.topic, record.partition)][record.offset] = record
        await process.step()
        return records


class UnreliableWriter:
    """A writer as a process sees it."""

    def __init__(self, process: Process, inner: MemoryWriter, log: UnreliableLog) -> None:
        self._process = process
        self._inner = inner
        self._log = log

    async def append(
        self, topic: str, entries: Sequence[Entry], partition: int | None = None
    ) -> Sequence[Span]:
        """See ``LogWriter``."""

        async def part() -> Sequence[Span]:
            if topic == DECISIONS_TOPIC and partition is not None:
                self._log.publishing(partition)
            elif topic == PODS_TOPIC:
                self._log.deleting(entries[:cut])
            return await self._inner.append(topic, entries[:cut], partition)

        cut = len(entries)
        if self._process.faults.strikes(Fault.PARTLY_APPENDED):
            cut = self._process.rng.randint(0, len(entries))
            await self._process.call(LOG, part)
            raise Unavailable("injected: only some were appended")
        return await self._process.call(LOG, part)

    async def aclose(self) -> None:
        """Let go at once."""
        await self._inner.aclose()
