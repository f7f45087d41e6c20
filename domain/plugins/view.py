"""What score plugins may read of the nodes: columns by resource name, images, measured usage, pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from domain.model.pods import PodTemplate
from domain.model.usage import Measured, Usage
from domain.state.cluster import ClusterState
from domain.state.resources import ResourceIndex
from domain.state.table import NodeTable

_NOTHING: Mapping[str, Measured] = MappingProxyType({})


class NodeView:
    """The nodes as of now; ``rows`` are row numbers of the table, int64[K], in every method.

    Parameters
    ----------
    state : ClusterState
        Nodes, and the pods that count on them.
    usage : mapping
        What was measured, by node and resource.
    unmeasured : mapping
        Node -> templates of the pods that were placed after the last measurement.
    """

    def __init__(
        self,
        state: ClusterState,
        usage: Usage | None = None,
        unmeasured: Mapping[str, Sequence[PodTemplate]] | None = None,
    ) -> None:
        self._state = state
        self._usage = usage or {}
        self._unmeasured = unmeasured or {}

    @property
    def table(self) -> NodeTable:
        """Names, labels, taints and specs."""
        return self._state.table

    @property
    def resources(self) -> ResourceIndex:
        """Which resource is in which column."""
        return self._state.resources

    def all_rows(self) -> np.ndarray:
        """Return the rows of all nodes, also of those that a filter refused."""
        return np.arange(self.table.count)

    def column(self, values: np.ndarray, column: int, rows: np.ndarray) -> np.ndarray:
        """Return int64[K] of ``table.allocatable`` or ``table.requested``, 0 where no node has the column."""
        if column >= values.shape[0]:
            return np.zeros(len(rows), dtype=np.int64)
        found: np.ndarray = values[column, rows]
        return found

    def allocatable(self, resource: str, rows: np.ndarray) -> np.ndarray:
        """Return int64[K]: what a node offers, in the resource's canonical unit."""
        return self.column(self.table.allocatable, self.resources.column(resource), rows)

    def requested(self, resource: str, rows: np.ndarray) -> np.ndarray:
        """Return int64[K]: the sum of what the pods on a node request."""
        return self.column(self.table.requested, self.resources.column(resource), rows)

    def capacity(self, resource: str, rows: np.ndarray) -> np.ndarray:
        """Return float64[K]: all that a node has; what it offers where its capacity is not given."""
        specs = self.table.specs
        return np.array(
            [(specs[row].capacity or specs[row].allocatable).get(resource, 0) for row in rows.tolist()],
            dtype=np.float64,
        )

    def measured(self, resource: str, rows: np.ndarray) -> list[Measured | None]:
        """Return what was measured of a resource, None for a node where it was not."""
        names = self.table.names
        return [self._usage.get(names[row], _NOTHING).get(resource) for row in rows.tolist()]

    def pods(self, row: int) -> Iterable[PodTemplate]:
        """Return the templates of the pods that count on a node."""
        return (pod.spec.template for pod in self._state.nodes[self.table.names[row]].pods.values())

    def unmeasured(self, row: int) -> Sequence[PodTemplate]:
        """Return the templates of the pods that the measurement of a node does not know yet."""
        return self._unmeasured.get(self.table.names[row], ())
