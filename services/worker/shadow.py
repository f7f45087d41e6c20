"""Compares a shadow profile with the live ones beside the cycles of a worker, within bounds, without effect.

It looks at the pods that have their turn before they are placed, and changes nothing that decides, is
committed or is written to the journal. A fault in it ends it, not the worker.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from domain.cycle.schedule import Scheduler
from domain.engine.shadow import Compared, Comparing
from domain.engine.verdicts import CycleResult
from domain.plugins.registry import ProfilePlan
from domain.queue.groups import Tried, WaitingGroup
from services.lag import Lag
from services.ports.workers import ShadowCounts, ShadowFigures
from services.worker.metrics import ShadowMetrics

_LOGGER = logging.getLogger(__name__)

SHARE_MAX = 0.2
"""It takes at most so much of the time that cycles take without it."""

CREDIT_SECONDS_MAX = 1.0
"""What it did not take it may take later, but no more than this at once."""

LAG_SECONDS_MAX = 1.0
"""A worker that is further behind the log, or behind what other workers did, compares nothing."""


def _thread_us() -> int:
    return time.thread_time_ns() // 1_000


class Shadow:
    """The shadow profile of one worker, as long as its process lives.

    Parameters
    ----------
    profile : str
        The name of the profile: a built-in one, or one of the ledger. It may come, change and go.
    stopwatch : callable
        Returns microseconds of processor time of the thread that plans.
    """

    def __init__(
        self, profile: str, metrics: ShadowMetrics, stopwatch: Callable[[], int] = _thread_us
    ) -> None:
        self._profile = profile
        self._metrics = metrics
        self._stopwatch = stopwatch
        self._plan: ProfilePlan | None = None
        self._comparing: Comparing | None = None
        self._counts = ShadowCounts()
        self._credit_us = 0.0
        self._spent_us = 0  # in the cycle under way
        self._turns = 0
        self._is_lagging = self._has_failed = False
        self.figures = ShadowFigures(profile=profile, state="unknown")

    def behind(self, lags: Mapping[int, Lag], journal_seconds: float) -> None:
        """Take how far the worker is behind: of each shard, and behind what other workers did."""
        seconds = max((each.seconds for each in lags.values()), default=0.0)
        self._is_lagging = max(seconds, journal_seconds) > LAG_SECONDS_MAX

    def cycle(self, scheduler: Scheduler, now_ms: int, passed_ms: int) -> CycleResult:
        """Run a cycle, and compare beside it."""
        self._follow(scheduler)
        if self._plan is None or self._has_failed:
            return scheduler.cycle(now_ms, passed_ms)
        if self._comparing is None or self._comparing.state is not scheduler.state:
            self._comparing = Comparing(scheduler.state)
        began_us, self._spent_us = self._stopwatch(), 0
        result = scheduler.watched_cycle(now_ms, passed_ms, partial(self._watch, self._comparing))
        own_us = self._stopwatch() - began_us - self._spent_us
        self._credit_us = min(self._credit_us + SHARE_MAX * own_us, CREDIT_SECONDS_MAX * 1e6)
        self._tell()
        return result

    def forget(self) -> None:
        """Let go of the state that the worker forgets."""
        self._comparing = None

    def _follow(self, scheduler: Scheduler) -> None:
        """Take the profile as it is in force now; counts of another revision are of no use."""
        plan = scheduler.profiles.plans.get(self._profile)
        if plan is not self._plan:
            before, self._plan = self._plan, plan
            if before is None or plan is None or before.profile != plan.profile:
                self._counts = ShadowCounts()
            self._tell()

    def _tell(self) -> None:
        known = self._plan is not None
        self.figures = ShadowFigures(
            profile=self._profile,
            state="failed" if self._has_failed else "on" if known else "unknown",
            revision=0 if self._plan is None else self._plan.profile.revision,
            counts=self._counts,
        )

    def _watch(self, comparing: Comparing, candidates: Sequence[Tried]) -> None:
        """Compare one pod of each group, as long as time does; the groups take turns to be the first."""
        if self._has_failed:
            return
        began_us = self._stopwatch()
        try:
            self._compare_each(comparing, candidates, began_us)
        except Exception:
            _LOGGER.exception("the shadow profile is given up until this process starts again")
            self._has_failed = True
        self._spent_us += self._stopwatch() - began_us

    def _compare_each(self, comparing: Comparing, candidates: Sequence[Tried], began_us: int) -> None:
        assert self._plan is not None
        sizes = Counter(group for _, group in candidates if not group.parked)
        firsts: dict[WaitingGroup, str] = {}
        for key, group in candidates:
            if group in sizes:
                firsts.setdefault(group, key)
        left = list(firsts.items())
        if not left:
            return
        self._turns += 1
        at = self._turns % len(left)
        for n, (group, key) in enumerate(left[at:] + left[:at]):
            if self._is_lagging or self._credit_us <= 0:
                self._skip(len(left) - n)
                return
            found = comparing.compare(group, key, self._plan)
            now_us = self._stopwatch()
            self._credit_us -= now_us - began_us
            began_us = now_us
            self._count(found, sizes[group])

    def _skip(self, count: int) -> None:
        of = self._counts
        if self._is_lagging:
            self._counts = replace(of, skipped_lagging=of.skipped_lagging + count)
        else:
            self._counts = replace(of, skipped=of.skipped + count)
        self._metrics.skipped.labels("lagging" if self._is_lagging else "budget").inc(count)

    def _count(self, found: Compared, pods: int) -> None:
        one = counts_of(found, pods)
        self._counts = self._counts.plus(one)
        self._metrics.compared(one)


def counts_of(found: Compared, pods: int) -> ShadowCounts:
    """Return the counts of one attempt, which stands for so many pods."""
    both, either = found.live_finds and found.shadow_finds, found.live_finds or found.shadow_finds
    return ShadowCounts(
        attempts=1,
        pods=pods if either else 0,
        agreed=int(found.agrees),
        agreed_pods=pods if found.agrees else 0,
        live_refused=int(both and found.shadow_loss is None),
        shadow_refused=int(both and found.live_loss is None),
        only_live=int(found.live_finds and not found.shadow_finds),
        only_shadow=int(found.shadow_finds and not found.live_finds),
        neither=int(not either),
        shadow_rated=int(found.shadow_loss is not None),
        shadow_loss_sum=found.shadow_loss or 0.0,
        live_rated=int(found.live_loss is not None),
        live_loss_sum=found.live_loss or 0.0,
    )
