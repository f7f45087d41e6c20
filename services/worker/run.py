"""The worker: takes the shards over, then folds, places and commits batch after batch until it is stopped.

While one batch commits, the next is planned on what the first one assumed. If anything about a commit is not
as expected, everything in memory is forgotten and read again from the ledger: that is the only way back, so
it is the one that is always tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from domain.model import limits
from domain.model.errors import BerthError, Fenced, Unavailable
from domain.model.profiles import Profile
from services.backoff import Backoff
from services.lag import lags
from services.ports.ledger import CommitBatch, CommitOutcome, Incarnation, Lease, Ledger, Resolution
from services.ports.log import Log, LogReader, Record, TopicPartition, partitions_of
from services.worker.intake import Intake
from services.worker.metrics import WorkerMetrics
from services.worker.planner import BATCHES, Planner

_LOGGER = logging.getLogger(__name__)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a worker; times in seconds."""

    name: str
    build: str = ""
    seed: int = 0
    usage_window_seconds: int = limits.usage_window_seconds
    lease_seconds: float = limits.lease_seconds
    batch_records_max: int = limits.batch_records_max
    poll_seconds: float = 0.5
    measure_seconds: float = 2.0
    profiles: Mapping[str, Profile]
    writers: Mapping[str, str] = {}  # as of Planner


class Compute(Protocol):
    """Runs work that keeps a processor busy: in a thread, or in place in a simulation."""

    async def __call__(
        self, work: Callable[[Sequence[Record]], CommitBatch], records: Sequence[Record], /
    ) -> CommitBatch:
        """Return ``work(records)``."""


class Moved(BerthError):
    """A node of the ledger is not at the version that this worker knows."""

    code = "node-moved"
    retriable = True


class Memory:
    """Tells the garbage collector about a worker's memory."""

    def release(self) -> None:
        """Free the cycles of an earlier state before another state is read."""
        gc.unfreeze()
        gc.collect()

    def keep(self) -> None:
        """Exempt the state that was just read from collection, since it stays."""
        gc.freeze()


class Worker:
    """One worker process. ``run`` returns only by cancellation."""

    def __init__(
        self,
        log: Log,
        ledger: Ledger,
        settings: WorkerSettings,
        metrics: WorkerMetrics,
        compute: Compute = asyncio.to_thread,
        memory: Memory | None = None,
        stopwatch: Callable[[], int] = lambda: time.perf_counter_ns() // 1_000,
    ) -> None:
        self._memory = memory or Memory()
        self._compute = compute
        self._stopwatch = stopwatch
        self._log = log
        self._ledger = ledger
        self._settings = settings
        self._metrics = metrics
        self._told = Incarnation(
            name=settings.name,
            build=settings.build,
            seed=settings.seed,
            settings=msgspec.to_builtins(
                {
                    "usage_window_seconds": settings.usage_window_seconds,
                    "writers": settings.writers,
                    "profiles": settings.profiles,
                }
            ),
        )
        self._announced = False
        self._folded: dict[TopicPartition, int] = {}  # next offset of each partition, as committed
        self.ready = asyncio.Event()  # set while this worker holds the shards and reads the log

    async def beat(self) -> None:
        """Show until cancelled that this worker is up. A ledger that is away is reported elsewhere."""
        while True:
            with contextlib.suppress(BerthError):
                await self._ledger.announce(self._told)
            await asyncio.sleep(limits.heartbeat_seconds)

    async def run(self) -> None:
        """Hold the shards whenever possible, and schedule."""
        backoff = Backoff()
        while True:
            try:
                if not self._announced:
                    await self._ledger.announce(self._told)
                    self._announced = True
                leases = await self._ledger.acquire(self._settings.name, self._settings.lease_seconds)
                if leases:
                    _LOGGER.info("holding shards %s", [f"{x.shard}@{x.epoch}" for x in leases])
                    await self._serve(leases)
                else:
                    _LOGGER.debug("another worker holds the shards; standing by")
                    await asyncio.sleep(self._settings.lease_seconds / 10)
                backoff.reset()
            except (Unavailable, Fenced, Moved) as error:
                if self.ready.is_set():  # it went well for a while, so this fault is a new one
                    backoff.reset()
                self._metrics.restarts.labels(reason=error.code).inc()
                _LOGGER.warning("starting over: %s: %s", error.code, error)
                await backoff.wait()
            finally:
                self.ready.clear()

    async def _serve(self, leases: Sequence[Lease]) -> None:
        """Schedule for as long as the leases hold."""
        renewal = asyncio.create_task(self._keep(leases))
        schedule = asyncio.create_task(self._schedule(leases))
        try:
            done, _ = await asyncio.wait({renewal, schedule}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (renewal, schedule):
                task.cancel()
            await asyncio.gather(renewal, schedule, return_exceptions=True)
        await self._ledger.release(leases)

    async def _keep(self, leases: Sequence[Lease]) -> None:
        """Renew the leases. A ledger that is away is no reason to give up: each commit checks the fence."""
        while True:
            await asyncio.sleep(self._settings.lease_seconds / 3)
            try:
                if not await self._ledger.renew(leases, self._settings.lease_seconds):
                    raise Fenced("the leases are no longer ours")
            except Unavailable as error:
                _LOGGER.warning("could not renew the leases: %s", error)

    async def _schedule(self, leases: Sequence[Lease]) -> None:
        reader = await self._log.reader()
        try:
            planner = await self._restore(leases, reader)
            self._folded = planner.positions()
            intake = Intake(reader, self._folded, self._metrics.log_faults.inc)
            await intake.start()
            self.ready.set()
            measuring = asyncio.create_task(self._measure([lease.shard for lease in leases]))
            try:
                await self._loop(planner, intake)
            finally:
                measuring.cancel()
                await asyncio.gather(measuring, return_exceptions=True)
        finally:
            await reader.aclose()

    async def _measure(self, shards: Sequence[int]) -> None:
        """Measure now and then how far the shards are behind. A log that is away is reported elsewhere."""
        while True:
            with contextlib.suppress(BerthError):
                now_ms = time.time_ns() // 1_000_000
                self._metrics.behind(await lags(self._log, shards, self._folded, now_ms))
            await asyncio.sleep(self._settings.measure_seconds)

    async def _restore(self, leases: Sequence[Lease], reader: LogReader) -> Planner:
        """Read the ledger into a planner; create the offset rows of a new shard."""
        self._memory.release()
        for lease in leases:
            partitions = partitions_of(lease.shard, lead=lease.shard == min(leases).shard)
            first = dict(await reader.first_offsets(partitions))
            first[TopicPartition(BATCHES, 0)] = 0
            await self._ledger.ensure_offsets(lease, first)
        state = await self._ledger.load(leases)
        planner = Planner(
            leases,
            state,
            self._settings.profiles,
            seed=self._settings.seed,
            usage_window_seconds=self._settings.usage_window_seconds,
            stopwatch=self._stopwatch,
            writers=self._settings.writers,
        )
        self._memory.keep()
        return planner

    async def _loop(self, planner: Planner, intake: Intake) -> None:
        """Plan and commit; one commit is in flight while the next batch is planned."""
        commit: asyncio.Task[None] | None = None
        try:
            while True:
                # Pods that wait their turn do not keep further records out: others may come before them.
                seconds = 0.0 if planner.has_work else self._settings.poll_seconds
                records = await intake.next_batch(self._settings.batch_records_max, seconds, planner.held)
                if not records and not planner.has_work:
                    if commit is not None and commit.done():
                        commit.result()
                    continue
                with self._metrics.plan_seconds.time():
                    batch = await self._compute(planner.plan, records)
                if commit is not None:
                    await commit
                commit = asyncio.create_task(self._commit(batch))
                # Let the commit begin before the next batch takes the thread.
                await asyncio.sleep(0)
        finally:
            if commit is not None:
                commit.cancel()
                await asyncio.gather(commit, return_exceptions=True)

    async def _commit(self, batch: CommitBatch) -> None:
        """Write one batch exactly once, however often the ledger fails meanwhile."""
        backoff, unknown = Backoff(), False
        while True:
            try:
                with self._metrics.commit_seconds.time():
                    outcome = await self._once(batch, unknown=unknown)
                break
            except Unavailable as error:
                unknown = True
                _LOGGER.warning("the ledger does not answer, outcome unknown: %s", error)
                await backoff.wait()
        match outcome:
            case CommitOutcome.COMMITTED:
                self._metrics.committed(batch)
                for a in batch.offsets:
                    self._folded[TopicPartition(a.topic, a.partition)] = a.hi
            case CommitOutcome.FENCED:
                raise Fenced("another owner has moved the offsets")
            case CommitOutcome.MOVED:
                raise Moved("a node was changed by someone else")

    async def _once(self, batch: CommitBatch, *, unknown: bool) -> CommitOutcome:
        """Commit. If the outcome of the last try is unknown, first ask what became of it."""
        if unknown:
            match await self._ledger.resolve(batch):
                case Resolution.COMMITTED:
                    return CommitOutcome.COMMITTED
                case Resolution.FENCED:
                    return CommitOutcome.FENCED
                case Resolution.NOT_COMMITTED:
                    pass
        return await self._ledger.commit(batch)
