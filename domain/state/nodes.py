"""A node in memory, whether it has a row at the moment or not."""

from __future__ import annotations

from domain.model.nodes import NodeSpec
from domain.state.pods import PodEntry


class NodeEntry:
    """A node that is known: its place in the ledger, its last spec, and the pods that count on it.

    ``version`` counts every change of the node and of what is placed on it; ``version_drained`` is what it
    was when the committer last took over. ``recent`` names the pods that came after the node was last
    measured, None where it never was: then all of them did.
    """

    __slots__ = (
        "deleted",
        "ordinal",
        "pods",
        "recent",
        "resource_version",
        "spec",
        "version",
        "version_drained",
    )

    def __init__(self) -> None:
        self.ordinal = 0  # given with the first spec, so that it is the same after a restart
        self.version = 0
        self.version_drained = 0
        self.spec: NodeSpec | None = None
        self.deleted = True
        self.resource_version: int | None = None
        self.pods: dict[str, PodEntry] = {}
        self.recent: set[str] | None = None

    def add(self, pod: PodEntry) -> None:
        """Let a pod count on the node."""
        self.pods[pod.spec.key] = pod
        if self.recent is not None:
            self.recent.add(pod.spec.key)

    def drop(self, pod: PodEntry) -> None:
        """Let a pod count no longer."""
        del self.pods[pod.spec.key]
        if self.recent is not None:
            self.recent.discard(pod.spec.key)
