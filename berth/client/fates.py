"""What a pod is waited for to become, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from berth.client import models
from berth.client.errors import BerthError, Timeout
from berth.client.objects import Applied

Until = Literal["decided", "bound", "gone"]
"""decided: berth said yes or no; bound: it counts on a node; gone: it ended or was deleted."""

SILENT_SECONDS = 5.0
ONE_BY_ONE_MAX = 20
"""So many pods of a namespace are asked for one by one; more are read as a list."""

_BOUND = frozenset(("bound", "adopted", "resized", "returned", "spared"))


class Fate(Struct, frozen=True):
    """What became of a pod: its node, or why it has none.

    ``outcome`` is that of a decision (`bound`, `unschedulable`, …), or the phase of a pod of which that was
    known before it was waited for: bound, orphaned, pending or released.
    """

    pod: str
    outcome: str
    node: str | None
    reason: str | None = None
    decision: str | None = None

    @property
    def is_bound(self) -> bool:
        """Whether it counts on a node."""
        return self.outcome in _BOUND

    @property
    def is_gone(self) -> bool:
        """Whether it ended or was deleted."""
        return self.outcome == "released"


class Waiting:
    """The pods that are still waited for, what became of the others, and how long there is left."""

    def __init__(self, pods: str | Iterable[str] | Applied, until: Until, seconds: float) -> None:
        named = pods.pods if isinstance(pods, Applied) else [pods] if isinstance(pods, str) else pods
        self._order = [each if "/" in each else f"default/{each}" for each in named]
        self._open = set(self._order)
        self._until, self._seconds = until, seconds
        self._ends = time.monotonic() + seconds
        self._fates: dict[str, Fate] = {}

    @property
    def is_done(self) -> bool:
        """Whether none is waited for any more."""
        return not self._open

    @property
    def open_by_namespace(self) -> dict[str, set[str]]:
        """The pods that are waited for, by namespace."""
        found: dict[str, set[str]] = {}
        for each in self._open:
            found.setdefault(each.partition("/")[0], set()).add(each)
        return found

    @property
    def silent_seconds(self) -> float:
        """How long a stream may say nothing before the time is looked at."""
        return max(0.05, min(SILENT_SECONDS, self._ends - time.monotonic()))

    def fates(self) -> dict[str, Fate]:
        """Return what became of the pods, in the order in which they were named."""
        return {each: self._fates[each] for each in dict.fromkeys(self._order)}

    def check(self, _: BerthError | None = None) -> None:
        """Raise ``Timeout`` once the time is over."""
        if self._open and time.monotonic() >= self._ends:
            missing = sorted(self._open)
            shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3:,} more" if len(missing) > 3 else "")
            raise Timeout(
                f"not {self._until} within {self._seconds:g} s: {shown}; `why(…)` says why a pod waits",
                missing,
            )

    def saw(self, pod: models.Pod | models.PodDetail) -> None:
        """Take how a pod stands."""
        node = pod.node if pod.phase == "bound" else None
        self._note(Fate(f"{pod.namespace}/{pod.name}", pod.phase, node, None, pod.decision))

    def is_missing(self, names: Iterable[str]) -> None:
        """Take that there are no such pods."""
        if self._until == "gone":
            for each in names:
                self._note(Fate(each, "released", None))

    def happened(self, decision: models.Decision) -> None:
        """Take what was decided."""
        pod = f"{decision.pod.namespace}/{decision.pod.name}"
        if pod in self._open:
            reason = decision.reason or None
            self._note(Fate(pod, decision.outcome, decision.node, reason, decision.id))

    def _note(self, fate: Fate) -> None:
        is_there = {"decided": True, "bound": fate.is_bound, "gone": fate.is_gone}[self._until]
        if is_there and fate.pod in self._open:
            self._open.remove(fate.pod)
            self._fates[fate.pod] = fate
