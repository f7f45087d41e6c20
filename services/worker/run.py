"""The worker: follows the cluster, takes its share of the shards, and schedules until it is stopped.

If anything is not as expected, everything in memory is forgotten and read again from the ledger: that is the
only way back, so it is the one that is always tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from domain.model import limits
from domain.model.errors import BerthError, Fenced, LedgerMismatch, LogTruncated, Unavailable
from domain.model.profiles import Profile
from services.backoff import Backoff
from services.lag import lags
from services.ports.ledger import Figures, Incarnation, Ledger, LedgerBase
from services.ports.log import Log, LogReader, TopicPartition
from services.topics import CHECK_SECONDS, check_topics, until_first, watch_topics
from services.worker.beginning import TOPICS
from services.worker.checkpoints import Checkpoints
from services.worker.collector import Memory
from services.worker.committing import Committer
from services.worker.faults import BatchStalled, CommitOverdue, Hanging, Stalled
from services.worker.follow.follower import Follower
from services.worker.holding import Holding
from services.worker.intake import Intake
from services.worker.lease_judge import LeaseJudge
from services.worker.loop import Loop
from services.worker.lost_claims import LostPodTouched, NodeMoved
from services.worker.metrics import WorkerMetrics
from services.worker.planner import Planner
from services.worker.progress import Progress
from services.worker.shadow import Shadow
from services.worker.thread import Compute, in_thread

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

BACKOFF_MS = (limits.backoff_ms_min, limits.backoff_ms_max)
"""How long a group is not tried again after its first failed attempt, and at most: as in kube-scheduler."""

HANGING_SECONDS = 60.0
"""A plan that is late and does not end within this time ends the process."""

LEAVING_SECONDS = 0.5
"""To say that a worker leaves may take so long."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a worker; times in seconds."""

    name: str
    build: str = ""
    seed: int = 0
    usage_window_seconds: int = limits.usage_window_seconds
    tombstone_hours: int = limits.tombstone_hours
    preempts: bool = False
    preemption_seconds: int = limits.preemption_seconds
    reservation_seconds: int = 0
    backoff_ms: tuple[int, int] = (0, 0)  # as of Planner; without a relay log time may stand still
    lease_seconds: float = limits.lease_seconds
    lease_renewal_seconds: float = limits.lease_renewal_seconds
    progress_seconds: float = limits.progress_seconds
    batch_records_max: int = limits.batch_records_max
    poll_seconds: float = 0.5
    follow_seconds: float = 0.015  # how often to look for what others did; waits for records end as soon
    measure_seconds: float = 2.0
    topics_seconds: float = CHECK_SECONDS
    checkpoint_batches: int = limits.checkpoint_batches
    checkpoints_kept: int = limits.checkpoints_kept
    profiles: Mapping[str, Profile]
    writers: Mapping[str, str] = {}  # as of Planner
    drain: bool = False  # read what is in the partitions of before, though topics have more

    def deciding(self) -> dict[str, Any]:
        """Return what decides, beside the log and the seed, as JSON values."""
        names = (
            "usage_window_seconds",
            "preempts",
            "preemption_seconds",
            "reservation_seconds",
            "backoff_ms",
            "writers",
            "profiles",
        )
        found: dict[str, Any] = msgspec.to_builtins({name: getattr(self, name) for name in names})
        return found


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
        shadow: Shadow | None = None,
    ) -> None:
        self._memory = memory or Memory()
        self._compute = compute
        self._stopwatch = stopwatch
        self._log = log
        self._ledger = ledger
        self._settings = settings
        self._metrics = metrics
        self._shadow = shadow
        self._told = Incarnation(
            name=settings.name, build=settings.build, seed=settings.seed, settings=settings.deciding()
        )
        self._lease_judge = LeaseJudge(settings.lease_seconds, settings.lease_renewal_seconds)
        self._is_ready = False  # to take shards
        self._follower: Follower | None = None
        self._told_at = (0.0, 0)  # when figures were told last, and how many decisions there were by then
        self._computing: asyncio.Future[Any] | None = None
        self._state: Planner | None = None  # freed by _forget alone: 1,000,000 pods take a second
        self._committer = Committer(ledger, metrics, settings.batch_records_max)
        self.ready = asyncio.Event()  # set while this worker holds shards and reads the log

    async def run(self) -> None:
        """Show that this worker is up, hold shards whenever possible, and schedule."""
        await until_first(self.beat(), self._hold())

    async def beat(self) -> None:
        """Show until cancelled that this worker is up. A ledger that is away is reported elsewhere."""
        while True:
            with contextlib.suppress(BerthError):
                await self._announce()
            await asyncio.sleep(limits.heartbeat_seconds)

    async def _announce(self) -> None:
        figures = self._figures()
        try:
            await self._ledger.announce(self._told, figures, is_ready=self._is_ready)
        except Unavailable:
            self._lease_judge.failed()
            raise
        self._lease_judge.answered(is_write=True)

    def _figures(self) -> Figures:
        """Say how the worker gets on."""
        now, of = asyncio.get_running_loop().time(), self._committer
        (before, count_before), self._told_at = self._told_at, (now, of.decided_count)
        return Figures(
            decisions_per_second=round((of.decided_count - count_before) / max(now - before, 0.001), 1),
            moved=of.moved_count,
            conflicts=of.conflicts_count,
            journal_seconds=round(self._follower.behind_seconds, 3) if self._follower else 0.0,
            shadow=msgspec.UNSET if self._shadow is None else self._shadow.figures,
        )

    async def _hold(self) -> None:
        """Hold shards whenever possible; start over after trouble."""
        backoff = Backoff(limits.starting_over_ms_max)
        while True:
            others_first_seconds = 0.0
            try:
                await self._forget()
                async with contextlib.aclosing(await self._log.reader()) as reader:
                    await self._serve(reader)
            except (
                *(Unavailable, Fenced, NodeMoved, LostPodTouched, Stalled, CommitOverdue),
                *(LogTruncated, LedgerMismatch),
            ) as error:
                # If it went well for a while, this fault is a new one; a contradiction comes at once again.
                if self.ready.is_set() and not isinstance(error, LedgerMismatch):
                    backoff.reset()
                if isinstance(error, (CommitOverdue, BatchStalled)):
                    self._committer.halve()
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
        self._committer.folded.clear()
        if self._state is not None:
            await self._think(self._free)

    def _free(self) -> None:
        self._state = None
        if self._shadow is not None:
            self._shadow.forget()
        self._memory.release()

    async def _think(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Compute. The caller may be cancelled, the work cannot."""
        computing = asyncio.ensure_future(self._compute(work, *args, **kwargs))
        self._computing = computing
        return await asyncio.shield(computing)

    async def _serve(self, reader: LogReader) -> None:
        """Read the cluster; then follow it, and schedule for the shards that are held, until cancelled."""
        # A worker that the log does not answer wants no shard. The topics' leaders are known from here on.
        await reader.first_offsets([TopicPartition(topic, 0) for topic in TOPICS])
        told, progress = self._settings, Progress(self._settings.progress_seconds)
        planner = await self._restore()
        shards_count = planner.shards_count
        topics = await check_topics(self._log, TOPICS, shards_count, drain=told.drain)
        leases = told.lease_seconds, told.lease_renewal_seconds
        holding = Holding(self._ledger, told.name, *leases, progress, self._lease_judge)
        follower = self._follower = Follower(
            *(self._ledger, planner.followed, lambda: holding.is_alone, told.follow_seconds),
            holding.changed.set,
        )
        checkpoints = Checkpoints(self._ledger, told.checkpoint_batches, told.checkpoints_kept)
        loop = Loop(
            log=self._log,
            ledger=self._ledger,
            reader=reader,
            planner=planner,
            intake=Intake(reader, self._metrics.log_faults.inc, progress.step),
            holding=holding,
            follower=follower,
            committer=self._committer,
            checkpoints=checkpoints,
            memory=self._memory,
            metrics=self._metrics,
            progress=progress,
            think=self._think,
            poll_seconds=told.poll_seconds,
            follow_seconds=told.follow_seconds,
            drain=told.drain,
            begun=self.ready,
        )
        try:
            self._is_ready = True
            await self._announce()
            await until_first(
                loop.run(),
                holding.keep(shards_count),
                follower.run(),
                self._measure(holding),
                watch_topics(self._log, topics, shards_count, told.topics_seconds, drain=told.drain),
            )
        finally:
            await asyncio.gather(checkpoints.aclose(), return_exceptions=True)
            self._is_ready, self._follower = False, None
            with contextlib.suppress(BerthError, TimeoutError):
                async with asyncio.timeout(LEAVING_SECONDS):
                    await self._announce()
                    await holding.release(list(holding.leases))

    async def _measure(self, holding: Holding) -> None:
        """Measure now and then how far the shards are behind. A log that is away is reported elsewhere."""
        while True:
            with contextlib.suppress(BerthError):
                now_ms = time.time_ns() // 1_000_000
                found = await lags(self._log, holding.leases, self._committer.folded, now_ms)
                self._metrics.behind(found)
                if self._shadow is not None:
                    self._shadow.behind(found, self._follower.behind_seconds if self._follower else 0.0)
            await asyncio.sleep(self._settings.measure_seconds)

    async def _restore(self) -> Planner:
        """Return a planner with the base of the ledger; it says how far the journals had come."""
        with self._memory.growing():
            loaded = [await self._ledger.load_base()]
            me = (await self._ledger.muster()).me
            planner = self._state = await self._think(self._planner, loaded, me)
        self._metrics.remembers(planner.scheduler.state.tombstones)
        return planner

    def _planner(self, loaded: list[LedgerBase], incarnation: str) -> Planner:
        """Make a planner of what was loaded, whose memory is freed here and not on the event loop."""
        told = self._settings
        planner = Planner(
            *(loaded.pop(), told.profiles),
            seed=told.seed,
            usage_window_seconds=told.usage_window_seconds,
            tombstone_hours=told.tombstone_hours,
            preempts=told.preempts,
            preemption_seconds=told.preemption_seconds,
            reservation_seconds=told.reservation_seconds,
            backoff_ms=told.backoff_ms,
            stopwatch=self._stopwatch,
            writers=told.writers,
            worker=told.name,
            build=told.build,
            incarnation=incarnation,
        )
        return planner.beside(self._shadow)
