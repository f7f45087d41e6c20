"""Sums of what the pods on each node request, and what one pod adds to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from domain.model.devices import BUSY, SHARED
from domain.model.limits import signatures_cached_max
from domain.model.pods import PodSpec, PodTemplate
from domain.model.resources import PODS
from domain.state.devices import derive
from domain.state.nodes import NodeEntry
from domain.state.own_changes import Placed, requests_of
from domain.state.resources import RECENT, ResourceVector
from domain.state.table import NodeTable


class Sums:
    """Counts pods into ``table.requested``, which nothing else changes."""

    def __init__(self, table: NodeTable) -> None:
        self._table, self._resources = table, table.resources
        self._vectors: dict[bytes, ResourceVector] = {}
        self._with_devices: dict[tuple[bytes, tuple[int, ...]], ResourceVector] = {}

    def move_columns(self, nodes: Mapping[str, NodeEntry]) -> None:
        """Move sums into columns that nodes brought, and out of those that no node offers any more.

        Cost: O(nodes) for each such column, O(1) where there is none.
        """
        table = self._table
        moved = self._resources.drain_moved()
        if moved:
            self._vectors.clear()
            self._with_devices.clear()
            table.ensure_columns()
        for name, column, added in moved:
            for row in range(table.count):
                entry = nodes[table.names[row]]
                if name in (BUSY, SHARED):  # derived below
                    table.requested[column, row] = 0
                    table.touch(row)
                    continue
                held = entry.elsewhere.pop(name, 0) if added else int(table.requested[column, row])
                if held:
                    table.requested[column, row] = held if added else 0
                    table.touch(row)
                    if not added:
                        entry.elsewhere[name] = held
        if moved:
            self.derive(np.arange(table.count))

    def derive(self, rows: np.ndarray) -> None:
        """Write what follows from the devices of distinct rows."""
        derive(self._table.allocatable, self._table.requested, self._resources, rows)

    def vector(self, pod: PodSpec) -> ResourceVector:
        """Return what a pod occupies, computed once per signature, and per set of devices."""
        if pod.devices:
            if len(self._with_devices) >= signatures_cached_max:
                self._with_devices.clear()
            key = pod.signature, pod.devices
            vector = self._with_devices.get(key)
            if vector is None:
                vector = self._with_devices[key] = self._resources.vector(pod.template, pod.devices)
            return vector
        return self._vectors.get(pod.signature) or self.vector_of(pod.signature, pod.template)

    def vector_of(self, signature: bytes, template: PodTemplate) -> ResourceVector:
        """Return what a pod of a template occupies; ``signature`` is the template's."""
        vector = self._vectors.get(signature)
        if vector is None:
            if len(self._vectors) >= signatures_cached_max:
                self._vectors.clear()
            vector = self._vectors[signature] = self._resources.vector(template)
        return vector

    def count_pod(self, row: int, entry: NodeEntry, pod: PodSpec, sign: int) -> None:
        """Add or subtract a pod, with its recent part only if no measurement covers it yet."""
        vector = self.vector(pod)
        count = len(vector.columns)
        if entry.recent is not None and pod.key not in entry.recent:
            count -= vector.recent_count
        self._table.requested[vector.columns[:count], row] += sign * vector.values[:count]
        if vector.elsewhere:
            entry.count_elsewhere(vector.elsewhere, sign)
        if vector.ask.number:
            self.derive(np.array([row]))

    def count_placed(
        self, pods: Sequence[PodSpec], rows: np.ndarray, nodes: Mapping[str, NodeEntry]
    ) -> Placed:
        """Add pods that have just been placed, one at least: ``pods[i]`` on ``rows[i]``; return that."""
        known = self._vectors
        vectors = [(not pod.devices and known.get(pod.signature)) or self.vector(pod) for pod in pods]
        lengths = [len(vector.columns) for vector in vectors]
        where = np.repeat(rows.astype(np.int64), lengths)
        columns = np.concatenate([vector.columns for vector in vectors])
        values = np.concatenate([vector.values for vector in vectors])
        np.add.at(self._table.requested, (columns, where), values)
        elsewhere = [(int(rows[i]), vector.elsewhere) for i, vector in enumerate(vectors) if vector.elsewhere]
        for row, requests in elsewhere:
            nodes[self._table.names[row]].count_elsewhere(requests, 1)
        self._derive_of(vectors, rows)
        self._table.touch_many(np.unique(rows))
        return Placed(rows, lengths, columns, values, elsewhere)

    def uncount_pods(
        self,
        pods: Sequence[PodSpec],
        rows: np.ndarray,
        recent: Sequence[bool],
        nodes: Mapping[str, NodeEntry],
    ) -> None:
        """Subtract pods, one at least: ``pods[i]`` from ``rows[i]``. Measurements cover all not recent."""
        vectors = [self.vector(pod) for pod in pods]
        lengths = [
            len(vector.columns) - (0 if is_recent else vector.recent_count)
            for vector, is_recent in zip(vectors, recent, strict=True)
        ]
        columns = np.concatenate([v.columns[:n] for v, n in zip(vectors, lengths, strict=True)])
        values = np.concatenate([v.values[:n] for v, n in zip(vectors, lengths, strict=True)])
        np.subtract.at(self._table.requested, (columns, np.repeat(rows, lengths)), values)
        for row, vector in zip(rows.tolist(), vectors, strict=True):
            if vector.elsewhere:
                nodes[self._table.names[row]].count_elsewhere(vector.elsewhere, -1)
        self._derive_of(vectors, rows)
        self._table.touch_many(np.unique(rows))

    def _derive_of(self, vectors: Sequence[ResourceVector], rows: np.ndarray) -> None:
        """Derive the rows on which pods with devices came or went."""
        asking = [i for i, vector in enumerate(vectors) if vector.ask.number]
        if asking:
            self.derive(np.unique(rows[asking]))

    def cover_pods(self, row: int | None, entry: NodeEntry, until_ms: int) -> None:
        """Let recent pods of a node be covered that were placed by a log time. Cost: O(recent pods).

        ``row`` is None where the node has none.
        """
        covered = entry.covered(until_ms)
        if row is not None:
            for pod in covered:
                self._count_recent(row, pod.spec, -1)
        if covered and entry.recent is not None:
            entry.recent.difference_update([pod.spec.key for pod in covered])

    def _count_recent(self, row: int, pod: PodSpec, sign: int) -> None:
        vector = self.vector(pod)
        lasting = vector.lasting_count
        self._table.requested[vector.columns[lasting:], row] += sign * vector.values[lasting:]

    def count_recent_anew(self, nodes: Mapping[str, NodeEntry], names: Iterable[str] | None = None) -> None:
        """Count recent pods anew on some nodes, None: on all, as it changed which are or what they count.

        Cost: O(recent pods).
        """
        table = self._table
        if names is None:
            self._vectors.clear()
            self._with_devices.clear()
        for name in table.names if names is None else names:
            entry, row = nodes[name], table.rows.get(name)
            if row is None:
                continue
            table.requested[RECENT, row] = 0
            for key in entry.pods if entry.recent is None else entry.recent:
                self._count_recent(row, entry.pods[key].spec, 1)
            table.touch_usage(row)

    def of(self, name: str, entry: NodeEntry) -> dict[str, int]:
        """Return what the pods on a node request, summed and without zeros."""
        row = self._table.rows.get(name)
        if row is None:
            return self._of_pods(entry)
        return self._resources.named(self._table.requested[:, row].tolist()) | entry.elsewhere

    def _of_pods(self, entry: NodeEntry) -> dict[str, int]:
        total: Counter[str] = Counter()
        for pod in entry.pods.values():
            total.update(requests_of(pod.spec))
            total[PODS] += 1
        return dict(total)
