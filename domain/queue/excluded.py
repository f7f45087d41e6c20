"""Nodes to which pods could not be bound: each is not tried again for its pod for a while of log time.

A restart forgets them, and so does another worker that takes the shard. A pod that goes to fewer nodes than
its like waits in a group of its own, and the template of that says so.
"""

from __future__ import annotations

from domain.model.limits import bind_failure_seconds
from domain.model.pods import PodSpec
from domain.queue.deadlines import Deadlines


class Excluded:
    """The nodes that are excluded, by the keys of pods."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, dict[str, None]]] = {}  # key -> uid, nodes
        self._new: list[tuple[str, str]] = []  # keys and nodes: their time begins with the next cycle
        self._due = Deadlines[tuple[str, str]]()
        self._numbers: dict[tuple[int, tuple[str, ...]], int] = {}

    def note(self, pod: PodSpec, node: str) -> None:
        """Take note that a pod could not be bound to a node."""
        uid, nodes = self._of.get(pod.key, ("", {}))
        if uid != pod.uid:
            nodes = {}
        self._of[pod.key] = pod.uid, {**nodes, node: None}
        self._new.append((pod.key, node))

    def of(self, pod: PodSpec) -> tuple[str, ...]:
        """Return the nodes that are excluded for a pod, by name. Cost: O(1) for nearly all pods."""
        known = self._of.get(pod.key)
        return () if known is None or known[0] != pod.uid else tuple(sorted(known[1]))

    def number(self, class_number: int, nodes: tuple[str, ...]) -> int:
        """Return what stands for a class with excluded nodes: no number of a class, and never used twice."""
        return self._numbers.setdefault((class_number, nodes), -1 - len(self._numbers))

    def pass_to(self, passed_ms: int, now_ms: int) -> list[str]:
        """Let log time pass; return the pods that may go to more nodes again. New ones begin now."""
        for key, node in self._new:
            self._due.add(now_ms + bind_failure_seconds * 1_000, (key, node))
        self._new.clear()
        over: list[str] = []
        for key, node in self._due.pass_to(passed_ms):
            _, nodes = self._of.get(key, ("", {}))
            nodes.pop(node, None)
            if not nodes:
                self._of.pop(key, None)
            over.append(key)
        return over

    @property
    def due_ms(self) -> int:
        """Log time at which the next pod may go to more nodes."""
        return self._due.next_ms

    def clear(self) -> None:
        """Forget what a restart forgets."""
        self._of.clear()
        self._new.clear()
        self._due.clear()
