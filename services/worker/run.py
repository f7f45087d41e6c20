"""The worker: takes the shards over, then folds, places and commits batch after batch until it is stopped.

While one batch commits, the next is planned on what the first one assumed. If anything about a commit is not
as expected, everything in memory is forgotten and read again from the ledger: that is the only way back, so
it is the one that is always tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from domain.model import limits
from domain.model.errors import BerthError, Fenced, LedgerMismatch, LogTruncated, Overdue, Unavailable
from domain.model.profiles import Profile
from services.backoff import Backoff
from services.lag import lags
from services.ports.journal import positions_of
from services.ports.ledger import (
    CommitBatch,
    Committed,
    Incarnation,
    Lease,
    Ledger,
    LedgerBase,
    NotCommitted,
)
from services.ports.log import CONFIG_TOPIC, Log, LogReader, TopicPartition
from services.topics import CHECK_SECONDS, check_topics, until_first, watch_topics
from services.worker.beginning import TOPICS, begin
from services.worker.checkpoints import Checkpoints
from services.worker.collector import Memory
from services.worker.faults import BatchStalled, CommitOverdue, Hanging, Stalled
from services.worker.intake import Intake
from services.worker.losers import Losers, LoserTouched, Moved
from services.worker.metrics import WorkerMetrics
from services.worker.planner import Planner
from services.worker.progress import Progress
from services.worker.thread import in_thread

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

STOP_SECONDS = 1.0
"""A worker that stops waits for its commit in flight for so long."""
RELEASE_SECONDS = 0.5
RESTORE_SECONDS_MAX = 600.0
"""To read the ledger and build the state is one step: 1,000,000 pods take 20 s on two slow cores."""

HANGING_SECONDS = 60.0
"""A plan that is late and does not end within this time ends the process."""

OVERDUE_MAX = 3
"""After so many commits in a row that took the ledger too long, the batch is too large."""

GROWING_COMMITS = 20
"""After so many commits in a row, a batch may be a sixteenth larger again."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a worker; times in seconds."""

    name: str
    build: str = ""
    seed: int = 0
    usage_window_seconds: int = limits.usage_window_seconds
    tombstone_hours: int = limits.tombstone_hours
    lease_seconds: float = limits.lease_seconds
    lease_renewal_seconds: float = limits.lease_renewal_seconds
    progress_seconds: float = limits.progress_seconds
    batch_records_max: int = limits.batch_records_max
    poll_seconds: float = 0.5
    measure_seconds: float = 2.0
    topics_seconds: float = CHECK_SECONDS
    checkpoint_batches: int = limits.checkpoint_batches
    checkpoints_kept: int = limits.checkpoints_kept
    profiles: Mapping[str, Profile]
    writers: Mapping[str, str] = {}  # as of Planner

    def deciding(self) -> dict[str, Any]:
        """Return what decides, beside the log and the seed, as JSON values."""
        names = ("usage_window_seconds", "writers", "profiles")
        found: dict[str, Any] = msgspec.to_builtins({name: getattr(self, name) for name in names})
        return found


class Compute(Protocol):
    """Runs work that keeps a processor busy: in a thread, or in place in a simulation."""

    async def __call__(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return ``work(…)``."""


class Worker:
    """One worker process. ``run`` returns only by cancellation, and gives the shards back before it does."""

    def __init__(
        self,
        log: Log,
        ledger: Ledger,
        settings: WorkerSettings,
        metrics: WorkerMetrics,
        compute: Compute = in_thread,
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
            name=settings.name, build=settings.build, seed=settings.seed, settings=settings.deciding()
        )
        self._computing: asyncio.Future[Any] | None = None
        self._state: Planner | None = None  # freed by _forget alone: 1,000,000 pods take a second
        self._announced = False
        self._batch_records_max = settings.batch_records_max
        self._metrics.batch_records_max.set(self._batch_records_max)
        self._commits_count = 0  # since the size of a batch last changed
        self._checkpoints = Checkpoints(ledger, settings.checkpoint_batches, settings.checkpoints_kept)
        self._folded: dict[TopicPartition, int] = {}  # next offset of each partition, as committed
        self.ready = asyncio.Event()  # set while this worker holds the shards and reads the log

    async def beat(self) -> None:
        """Show until cancelled that this worker is up. A ledger that is away is reported elsewhere."""
        while True:
            with contextlib.suppress(BerthError):
                await self._ledger.announce(self._told)
            await asyncio.sleep(limits.heartbeat_seconds)

    # ------------------------------------------------------------------------------------------ leases

    async def run(self) -> None:
        """Hold the shards whenever possible, and schedule."""
        backoff = Backoff()
        while True:
            others_first_seconds = 0.0
            try:
                await self._forget()
                async with contextlib.aclosing(await self._log.reader()) as reader:
                    await self._serve(await self._acquired(reader), reader)
            except (
                *(Unavailable, Fenced, Moved, LoserTouched, Stalled, CommitOverdue),
                *(LogTruncated, LedgerMismatch),
            ) as error:
                # If it went well for a while, this fault is a new one; a contradiction comes at once again.
                if self.ready.is_set() and not isinstance(error, LedgerMismatch):
                    backoff.reset()
                if isinstance(error, (CommitOverdue, BatchStalled)):
                    self._resize(max(1, self._batch_records_max // 2))
                if isinstance(error, Stalled):
                    others_first_seconds = self._settings.lease_seconds
                self._metrics.restarts.labels(reason=error.code).inc()
                _LOGGER.warning("starting over: %s: %s", error.code, error)
            finally:
                self.ready.clear()
            await asyncio.sleep(others_first_seconds)
            await backoff.wait()

    async def _forget(self) -> None:
        """Free what an earlier try left, while no shard waits for it."""
        if self._computing is not None and not self._computing.done():
            _LOGGER.warning("standing by until the plan under way has ended")
            _, hanging = await asyncio.wait({self._computing}, timeout=HANGING_SECONDS)
            if hanging:
                raise Hanging(f"a plan does not end within {HANGING_SECONDS:g} s more; start again")
        self._computing = None
        if self._state is not None:
            await self._think(self._free)

    def _free(self) -> None:
        self._state = None
        self._memory.release()

    async def _think(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Compute. Whoever waits may be cancelled, the work cannot."""
        computing = asyncio.ensure_future(self._compute(work, *args, **kwargs))
        self._computing = computing
        return await asyncio.shield(computing)

    async def _acquired(self, reader: LogReader) -> Sequence[Lease]:
        """Stand by until no other worker holds the shards. Whom the log does not answer wants none."""
        await reader.first_offsets([TopicPartition(CONFIG_TOPIC, 0)])
        if not self._announced:
            await self._ledger.announce(self._told)
            self._announced = True
        while not (leases := await self._ledger.acquire(self._settings.name, self._settings.lease_seconds)):
            await asyncio.sleep(self._settings.lease_seconds / 10)
        _LOGGER.info("holding shards %s", [f"{x.shard}@{x.epoch}" for x in leases])
        return leases

    async def _serve(self, leases: Sequence[Lease], reader: LogReader) -> None:
        """Schedule for as long as the leases hold; then finish the commit in flight, and give them back."""
        progress = Progress(self._settings.progress_seconds)
        renewal = asyncio.create_task(self._keep(leases, progress))
        schedule = asyncio.create_task(self._schedule(leases, reader, progress))
        try:
            done, _ = await asyncio.wait({renewal, schedule}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (schedule, renewal):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            with contextlib.suppress(BerthError, TimeoutError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self._ledger.release(leases)

    async def _keep(self, leases: Sequence[Lease], progress: Progress) -> None:
        """Renew the leases while the worker gets further.

        A ledger that is away is no reason to give up: nobody else gets further, and each commit checks the
        fence.
        """
        while True:
            await asyncio.sleep(self._settings.lease_renewal_seconds)
            if progress.is_late:
                fault = BatchStalled if progress.has_batch else Stalled
                raise fault("no step was done in time (BERTH_PROGRESS_SECONDS); giving the shards back")
            try:
                if not await self._ledger.renew(leases, self._settings.lease_seconds):
                    raise Fenced("the leases are no longer ours")
            except Unavailable as error:
                progress.excuse()
                _LOGGER.warning("could not renew the leases: %s", error)

    # ---------------------------------------------------------------------------------------- schedule

    async def _schedule(self, leases: Sequence[Lease], reader: LogReader, progress: Progress) -> None:
        planner = await self._restore(progress)
        topics = await check_topics(self._log, TOPICS, planner.shards_count)
        intake = Intake(reader, self._metrics.log_faults.inc, progress.step)
        await self._take(leases, planner, intake, reader, progress)
        await self._checkpoints.follow(planner, self._metrics.digest_mismatches.inc)
        self._metrics.remembers(planner.scheduler.state.tombstones)
        progress.step()
        self.ready.set()
        try:
            await until_first(
                self._loop(planner, intake, progress),
                self._measure([lease.shard for lease in leases]),
                watch_topics(self._log, topics, planner.shards_count, self._settings.topics_seconds),
            )
        finally:
            await asyncio.gather(self._checkpoints.aclose(), return_exceptions=True)

    async def _measure(self, shards: Sequence[int]) -> None:
        """Measure now and then how far the shards are behind. A log that is away is reported elsewhere."""
        while True:
            with contextlib.suppress(BerthError):
                now_ms = time.time_ns() // 1_000_000
                self._metrics.behind(await lags(self._log, shards, self._folded, now_ms))
            await asyncio.sleep(self._settings.measure_seconds)

    async def _restore(self, progress: Progress) -> Planner:
        """Read the base of the ledger into a planner."""
        progress.step(RESTORE_SECONDS_MAX)
        with self._memory.growing():
            loaded = [await self._ledger.load_base()]
            self._state = await self._think(self._planner, loaded)
        return self._state

    async def _take(
        self, leases: Sequence[Lease], planner: Planner, intake: Intake, reader: LogReader, progress: Progress
    ) -> None:
        """Begin to decide for shards; find out before whether the log still holds what comes next."""
        on_read = partial(progress.step, RESTORE_SECONDS_MAX)
        on_read()
        part, latest, faults = await begin(self._log, self._ledger, reader, leases, planner, on_read)
        self._metrics.began(faults)
        with self._memory.growing():
            await self._think(planner.take, leases, part)
        positions = positions_of(part.offsets)
        self._folded |= positions
        await intake.add(positions, latest)

    def _planner(self, loaded: list[LedgerBase]) -> Planner:
        """Make a planner of what was loaded, whose memory is freed here and not on the event loop."""
        told = self._settings
        return Planner(
            *(loaded.pop(), told.profiles),
            seed=told.seed,
            usage_window_seconds=told.usage_window_seconds,
            tombstone_hours=told.tombstone_hours,
            stopwatch=self._stopwatch,
            writers=told.writers,
            worker=told.name,
            build=told.build,
        )

    async def _loop(self, planner: Planner, intake: Intake, progress: Progress) -> None:
        """Plan and commit; one commit is in flight while the next batch is planned."""
        commit: asyncio.Task[None] | None = None
        losers = Losers()
        try:
            while True:
                # Pods that wait their turn do not keep further records out: others may come before them.
                seconds = 0.0 if planner.has_work or losers.keys else self._settings.poll_seconds
                records = await intake.next_batch(self._batch_records_max, seconds, planner.held)
                if records or not progress.has_batch:  # a commit without an answer is no progress
                    progress.step()
                if not records and not planner.has_work:
                    if commit is not None and commit.done():
                        commit.result()
                    if not losers.keys:
                        continue
                await self._checkpoints.take_if_due(planner, commit)
                planned_meanwhile = commit is not None and not commit.done()
                with self._metrics.plan_seconds.time():
                    batch = await progress.of_batch(self._think(planner.plan, records, losers.take()))
                progress.step()
                if commit is not None:
                    await asyncio.shield(commit)
                if batch is None:
                    continue
                if planned_meanwhile:
                    batch = losers.judge(batch)
                commit = asyncio.create_task(progress.of_batch(self._commit(batch, progress, losers)))
                # Let the commit begin before the next batch takes the thread.
                await asyncio.sleep(0)
        finally:
            if commit is not None:
                await asyncio.wait({commit}, timeout=STOP_SECONDS)
                commit.cancel()
                await asyncio.gather(commit, return_exceptions=True)

    def _resize(self, records_max: int) -> None:
        if records_max < self._batch_records_max:
            _LOGGER.warning("batches have %d records at most from now on", records_max)
        self._commits_count = 0
        self._batch_records_max = records_max
        self._metrics.batch_records_max.set(records_max)

    # ------------------------------------------------------------------------------------------ commit

    async def _commit(self, batch: CommitBatch, progress: Progress, losers: Losers) -> None:
        """Write one batch exactly once, however often the ledger fails meanwhile."""
        backoff, unknown, overdue_count = Backoff(), False, 0
        while True:
            try:
                with self._metrics.commit_seconds.time():
                    outcome = await self._once(batch, unknown=unknown)
                progress.step()
                break
            except Unavailable as error:
                unknown = True
                _LOGGER.warning("the ledger does not answer, outcome unknown: %s", error)
                overdue_count = overdue_count + 1 if isinstance(error, Overdue) else 0
                if overdue_count:
                    progress.step()
                if overdue_count == OVERDUE_MAX:
                    raise CommitOverdue(f"the ledger ended a commit {OVERDUE_MAX} times: {error}") from error
                await backoff.wait()
        if isinstance(outcome, NotCommitted):
            raise Fenced("another owner has moved the offsets")
        self._metrics.committed(batch, outcome)
        losers.note(batch, outcome)
        for a in batch.offsets:
            self._folded[TopicPartition(a.topic, a.partition)] = a.hi
        self._commits_count += 1
        most = self._settings.batch_records_max
        if self._batch_records_max < most and self._commits_count == GROWING_COMMITS:
            self._resize(min(most, self._batch_records_max + max(1, most // 16)))

    async def _once(self, batch: CommitBatch, *, unknown: bool) -> Committed | NotCommitted:
        """Commit. If the outcome of the last try is unknown, first ask what became of it."""
        if unknown and (outcome := await self._ledger.resolve(batch)) is not NotCommitted.ABSENT:
            return outcome
        return await self._ledger.commit(batch)
