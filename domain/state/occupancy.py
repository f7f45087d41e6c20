"""Count pods on nodes, and keep what follows from that: columns, classes, versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from domain.model.limits import pods_per_node_max
from domain.model.pods import PodSpec
from domain.state.nodes import NodeEntry
from domain.state.own_changes import OwnChanges
from domain.state.pod_index import PodIndex
from domain.state.pods import PodEntry
from domain.state.resources import ResourceIndex
from domain.state.sums import Sums
from domain.state.table import NodeTable


class Occupancy:
    """Counts pods on nodes, with or without a row in the table.

    Attributes
    ----------
    nodes : dict
        Every node that an event or a pod has named.
    own_changes : OwnChanges
        What changed since the last batch. The committer drains it.
    improved_rows : set of int
        Rows with more room or another spec. The cycle drains it.
    """

    def __init__(self, resources: ResourceIndex, table: NodeTable) -> None:
        self._table, self._resources = table, resources
        self.sums = Sums(resources, table)
        self.index = PodIndex()
        self.nodes: dict[str, NodeEntry] = {}
        self.own_changes = OwnChanges(resources, table, self.nodes)
        self.improved_rows: set[int] = set()

    def place(self, entry: PodEntry, node: str, *, adopted: bool, is_change: bool = True) -> None:
        """Count a pod on a node. It is no change of the node where the ledger counts it already."""
        entry.node, entry.adopted, entry.arrival = node, adopted, 0
        known = self.nodes[node]
        if is_change and known.spec is not None:
            known.version += 1
            self.own_changes.count(node, entry.spec, 1)
        known.add(entry)
        if entry.pod_class is not None:
            self.index.count(entry.pod_class, node, 1)
        if not known.deleted:
            row = self._table.rows[node]
            self.sums.count(row, known, entry.spec, 1)
            self._table.touch(row)

    def unplace(self, entry: PodEntry, *, is_change: bool = True) -> None:
        """Stop counting a pod. Where the ledger never counted it, that undoes a change of the node."""
        node = entry.node
        entry.node = ""
        known = self.nodes[node]
        if entry.pod_class is not None:
            self.index.count(entry.pod_class, node, -1)
        if not known.deleted:
            row = self._table.rows[node]
            self.sums.count(row, known, entry.spec, -1)
            self._table.touch(row)
            self.improved_rows.add(row)
        known.drop(entry)
        if not is_change:
            known.version -= 1
        elif known.spec is not None:
            known.version += 1
            self.own_changes.count(node, entry.spec, -1)
        elif not known.pods:
            del self.nodes[node]  # whatever node names pods may invent, those that are gone leave nothing

    def assume(self, keys: Sequence[str], rows: np.ndarray, pods: Mapping[str, PodEntry]) -> None:
        """Count the pods that a cycle placed, together: ``rows[i]`` is the node row of ``keys[i]``."""
        names = self._table.names
        placed: list[PodSpec] = []
        for key, row in zip(keys, rows.tolist(), strict=True):
            entry = pods[key]
            assert entry.node == "", "a pod is placed once"
            node = entry.node = names[row]
            entry.arrival = 0
            known = self.nodes[node]
            known.version += 1
            known.add(entry)
            if entry.pod_class is not None:
                self.index.assume(entry.pod_class, node)
            placed.append(entry.spec)
        if placed:
            self.own_changes.claim(self.sums.count_new(placed, rows, self.nodes))

    def measure(self, node: str, *, newer: bool) -> None:
        """Stamp the row of a node that was measured. Its latest measurement covers the pods there by now."""
        entry, row = self.nodes.get(node), self._table.rows.get(node)
        if newer and entry is not None:
            entry.recent = set()
        if row is not None:
            if newer:
                self.sums.measured(row)
            self._table.touch_usage(row)

    def why_full(self, node: str) -> str:
        """Return why no further pod may be counted on a node, "" where one may: sums must not leave int64."""
        known = self.nodes.get(node)
        if known is None or len(known.pods) < pods_per_node_max:
            return ""
        return f"{node} holds {pods_per_node_max} pods already (pods_per_node_max)"

    def amiss(self, node: str) -> tuple[str, ...]:
        """Return reason codes for what is amiss with a node: not there, or holding more than it offers."""
        entry = self.nodes[node]
        if entry.spec is None:
            return ("node-unknown",)
        if entry.deleted:
            return ("node-deleted",)
        row, table = self._table.rows[node], self._table
        over = (table.requested[:, row] > table.allocatable[:, row]).tolist()
        names = [name for column, name in self._resources.visible() if over[column]] if any(over) else []
        if entry.elsewhere:
            names = sorted({*names, *entry.elsewhere}, key=self._resources.order)
        return (",".join(f"overcommitted:{name}" for name in names),) if names else ()

    def version_of(self, node: str) -> int | None:
        """Return the version of a node, None while the node is not known."""
        entry = self.nodes.get(node)
        return None if entry is None or entry.spec is None else entry.version
