"""What the pods of a node have used, and use: read rarely, as there may be a hundred of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from domain.model.colocation import Amounts, PodCounters
from services.agent.measured import PodReading, pods_used_between, read_pods
from services.ports.cgroups import Cgroups, PodGroup, Refused


class PodBooks:
    """What pods have used since they started: the kernel counts cpu, this counts memory and time.

    Memory is taken as constant between two readings. What was counted is noted with the pod's group, so that
    the next agent goes on with it: the counters only grow.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._last = PodReading(0, {})
        self._byte_seconds: dict[str, float] = {}

    def read(self, groups: Sequence[PodGroup], at_ms: int) -> dict[str, PodCounters]:
        """Read all pods, and return their counters; pods without a group are forgotten."""
        before, now = self._last, read_pods(self._cgroups, groups, at_ms)
        seconds = (at_ms - before.at_ms) / 1000
        counted = {}
        for pod in groups:
            if (use := now.used.get(pod.uid)) is None:
                continue
            if pod.uid in before.used:
                counted[pod.uid] = self._byte_seconds[pod.uid] + (use.memory_bytes or 0) * seconds
            else:
                counted[pod.uid] = _number(self._cgroups.noted(pod.group))
        self._last, self._byte_seconds = now, counted
        return {uid: PodCounters(use.cpu_us / 1e6, counted[uid]) for uid, use in now.used.items()}

    def used_since(self, groups: Sequence[PodGroup], at_ms: int) -> dict[str, Amounts]:
        """Return what each pod uses: cpu on average since they were all read."""
        return pods_used_between(self._last, read_pods(self._cgroups, groups, at_ms))

    def note(self, groups: Sequence[PodGroup]) -> None:
        """Note with each group what was counted. Where the kernel takes no notes, counters begin anew."""
        with contextlib.suppress(Refused):
            for pod in groups:
                if pod.uid in self._byte_seconds:
                    self._cgroups.note(pod.group, repr(self._byte_seconds[pod.uid]))


def _number(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
