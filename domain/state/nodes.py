"""A node in memory, with or without a row in the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from domain.model.nodes import NodeSpec
from domain.state.pods import PodEntry


@dataclass(slots=True, eq=False)
class NodeEntry:
    """A node that is known: its place in the ledger, its last spec, and the pods that count on it.

    ``ordinal`` is given with the first spec, so that it is the same after a restart. ``version`` counts each
    change of the node and of what is placed on it, ``spec_count`` those of its spec. ``recent`` names the
    pods that measurements do not cover yet; None where the node never was measured, as then it is all of
    them. (``domain/state/settling.py``).
    ``elsewhere`` sums, for a node with a row, the requests of its pods that have no column.
    """

    ordinal: int = 0
    version: int = 0
    spec_count: int = 0
    spec: NodeSpec | None = None
    deleted: bool = True
    resource_version: int | None = None
    pods: dict[str, PodEntry] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    recent: set[str] | None = None

    def add_pod(self, pod: PodEntry) -> None:
        """Count a pod on the node, as a recent one until a measurement covers it."""
        key = pod.spec.key
        self.pods[key] = pod
        if self.recent is not None:
            self.recent.add(key)

    def covered(self, until_ms: int) -> list[PodEntry]:
        """Return the recent pods that were placed by a log time, if the node was measured at all."""
        if self.recent is None:
            return []
        pods = self.pods
        return [pods[key] for key in self.recent if 0 < pods[key].placed_ms <= until_ms]

    def drop_pod(self, pod: PodEntry) -> None:
        """Stop counting a pod."""
        del self.pods[pod.spec.key]
        if self.recent is not None:
            self.recent.discard(pod.spec.key)

    def count_elsewhere(self, requests: Mapping[str, int], sign: int) -> None:
        """Add or subtract what has no column."""
        for name, value in requests.items():
            total = self.elsewhere.get(name, 0) + sign * value
            if total:
                self.elsewhere[name] = total
            else:
                del self.elsewhere[name]
