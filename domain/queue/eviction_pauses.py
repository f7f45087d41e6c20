"""Pods for which no other pod has to leave for a while.

One is a pod whose nomination ran out, since no victim left. The first time it is planned again at once, as
another node may do better. After that the time doubles with each nomination that runs out, so that evictions
that have no effect are not repeated for ever. The other is a pod for which pods leave a node already that
another scheduler named for it. A restart forgets all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from domain.model.limits import unheeded_seconds_max
from domain.queue.deadlines import Deadlines
from domain.state.cluster import ClusterState


class _Pause(NamedTuple):
    """How many nominations of a pod ran out, the node of the last one, and when the pod may have another."""

    times: int
    node: str
    until_ms: int


class EvictionPauses:
    """The nominations that ran out, by the keys of pods.

    ``ends`` says when each may evict again. ``named`` are the nodes that pods leave, for which others wait.
    """

    def __init__(self) -> None:
        self._of: dict[str, _Pause] = {}
        self._now_ms = 0
        self.ends = Deadlines(self._holds)
        self.named: dict[str, dict[str, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def note_expired(self, key: str, node: str, now_ms: int, nomination_ms: int) -> None:
        """Take note that a nomination ran out, which was for so long."""
        before = self._of.get(key)
        times = before.times + 1 if before is not None else 1
        wait_ms = min(nomination_ms << min(times - 2, 30), unheeded_seconds_max * 1_000) if times > 1 else 0
        self._of[key] = _Pause(times, node, now_ms + wait_ms)
        if wait_ms:
            self.ends.add(now_ms + wait_ms, key)

    def forget_pod(self, key: str) -> None:
        """Forget a pod that is another one now, or waits no more."""
        self._of.pop(key, None)

    def note_leaving(self, key: str, node: str) -> None:
        """Take note that a pod waits until others have left a node."""
        self.named.setdefault(node, {})[key] = None

    def pass_to(self, now_ms: int, state: ClusterState) -> list[str]:
        """Let log time pass; return the pods that may have others go for them again, or may soon.

        Cost: O(nodes for which pods wait).
        """
        self._now_ms = now_ms
        found, rows = self.ends.pass_to(now_ms), state.table.rows
        for node in [
            each for each in self.named if (row := rows.get(each)) is None or row in state.improved_rows
        ]:
            found += self.named.pop(node)
        return found

    def may_evict(self, key: str) -> bool:
        """Say whether others may have to go for a pod now."""
        known = self._of.get(key)
        return known is None or known.until_ms <= self._now_ms

    def node_of(self, key: str) -> str:
        """Return the node that was nominated for a pod to no avail, or ""."""
        known = self._of.get(key)
        return "" if known is None else known.node

    def _holds(self, key: str, until_ms: int) -> bool:
        known = self._of.get(key)
        return known is not None and known.until_ms == until_ms
