"""Sums of what the pods on each node request, and what one pod adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from domain.model.limits import signatures_cached_max
from domain.model.pods import PodSpec, PodTemplate
from domain.state.nodes import NodeEntry
from domain.state.resources import RECENT, ResourceIndex, ResourceVector
from domain.state.table import NodeTable


class Sums:
    """Counts pods into ``table.requested``.

    Parameters
    ----------
    resources : ResourceIndex
    table : NodeTable
        Nothing else changes its column ``requested``.
    """

    def __init__(self, resources: ResourceIndex, table: NodeTable) -> None:
        self._resources = resources
        self._table = table
        self._vectors: dict[bytes, ResourceVector] = {}

    def knows(self, signature: bytes) -> bool:
        """Say whether pods of a signature have been counted before."""
        return signature in self._vectors

    def vector(self, pod: PodSpec) -> ResourceVector:
        """Return what a pod occupies, computed once per signature."""
        return self._vectors.get(pod.signature) or self.vector_of(pod.signature, pod.template)

    def vector_of(self, signature: bytes, template: PodTemplate) -> ResourceVector:
        """Return what a pod of a template occupies; ``signature`` is the template's."""
        vector = self._vectors.get(signature)
        if vector is None:
            if len(self._vectors) >= signatures_cached_max:
                self._vectors.clear()
            vector = self._vectors[signature] = self._resources.vector(template)
            self._table.ensure_columns()
        return vector

    def count(self, row: int, entry: NodeEntry, pod: PodSpec, sign: int) -> None:
        """Add or subtract a pod, with its recent part only if the node's measurement does not cover it."""
        vector = self.vector(pod)
        count = len(vector.columns)
        if entry.recent is not None and pod.key not in entry.recent:
            count -= vector.recent_count
        self._table.requested[vector.columns[:count], row] += sign * vector.values[:count]

    def count_new(self, pods: Sequence[PodSpec], rows: np.ndarray) -> None:
        """Add pods that have just been placed: ``pods[i]`` on ``rows[i]``."""
        if not pods:
            return
        vectors = [self.vector(pod) for pod in pods]
        where = np.repeat(rows.astype(np.int64), [len(vector.columns) for vector in vectors])
        columns = np.concatenate([vector.columns for vector in vectors])
        values = np.concatenate([vector.values for vector in vectors])
        np.add.at(self._table.requested, (columns, where), values)
        self._table.touch_many(np.unique(rows))

    def measured(self, row: int) -> None:
        """Record that a new measurement covers all pods of the node in a row."""
        self._table.requested[RECENT, row] = 0

    def of_each(self, names: Sequence[str], nodes: Mapping[str, NodeEntry]) -> list[dict[str, int]]:
        """Return per node what its pods request, summed and without zeros. All rows are read together."""
        self._table.ensure_columns()
        rows = [self._table.rows.get(name) for name in names]
        columns = self._table.requested[:, [row for row in rows if row is not None]]
        here = iter(columns.T.tolist())
        return [
            self._resources.named(next(here) if row is not None else self._of_pods(nodes[name]))
            for name, row in zip(names, rows, strict=True)
        ]

    def _of_pods(self, entry: NodeEntry) -> list[int]:
        vectors = [self.vector(pod.spec) for pod in entry.pods.values()]  # may bring new columns
        total = np.zeros(len(self._resources), dtype=np.int64)
        for vector in vectors:
            total[vector.columns] += vector.values
        return total.tolist()
