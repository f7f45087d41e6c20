"""Pods that end on their node by the agent: killed at once, or asked first where the kernel cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from services.ports.cgroups import Cgroups, Feature, PodGroup

_SETTLE_MS = 2_000
"""For so long after its last process has ended, what a pod used may still be in what is measured."""


class _End(NamedTuple):
    kill_ms: int
    empty_ms: int | None


class Ending:
    """The pods that this agent has ended, for as long as they have a group.

    A pod that is begun again in its group, as kubelet does until it is told that the pod has failed, is
    ended again.
    """

    def __init__(self, cgroups: Cgroups, grace_ms: int) -> None:
        self._cgroups, self._grace_ms = cgroups, grace_ms
        self._ends: dict[str, _End] = {}

    @property
    def uids(self) -> Collection[str]:
        """The pods that were ended."""
        return self._ends.keys()

    def leaving(self, now_ms: int) -> set[str]:
        """Return the pods of which what they use is still to be freed."""
        return {
            uid
            for uid, end in self._ends.items()
            if end.empty_ms is None or now_ms - end.empty_ms < _SETTLE_MS
        }

    def begin(self, pod: PodGroup, now_ms: int) -> None:
        """End a pod: with SIGKILL at once where the kernel ends a whole group, else with SIGTERM first."""
        at_once = Feature.KILL in self._cgroups.features()
        self._ends[pod.uid] = _End(now_ms if at_once else now_ms + self._grace_ms, None)
        if at_once:
            self._cgroups.kill(pod.group)
        else:
            self._cgroups.terminate(pod.group)

    def go_on(self, pods: Iterable[PodGroup], now_ms: int) -> None:
        """Kill what is left of pods whose time to end has passed, and forget those without a group."""
        found = {each.uid: each for each in pods if each.uid in self._ends}
        self._ends = {uid: end for uid, end in self._ends.items() if uid in found}
        for uid, pod in found.items():
            end = self._ends[uid]
            if not self._cgroups.processes(pod.group):
                self._ends[uid] = end._replace(empty_ms=now_ms if end.empty_ms is None else end.empty_ms)
                continue
            self._ends[uid] = end._replace(empty_ms=None)
            if now_ms >= end.kill_ms:
                self._cgroups.kill(pod.group)
