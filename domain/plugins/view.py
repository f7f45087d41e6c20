"""What plugins may read of the nodes: columns by resource name, images, measured usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from domain.model.usage import Measured, Usage
from domain.state.cluster import ClusterState
from domain.state.devices import free_milli
from domain.state.resources import ResourceIndex
from domain.state.table import NodeTable

_NOTHING: Mapping[str, Measured] = MappingProxyType({})

_UNKNOWN = Measured()


class _Figures:
    """The figures of one resource over all rows, as of a generation."""

    __slots__ = ("generation", "values")

    def __init__(self, rows_capacity: int) -> None:
        self.generation = -1
        self.values = np.full((3, rows_capacity), np.nan)


class NodeView:
    """The nodes as of now. In every method ``rows`` are row numbers of the table, int64[K].

    Parameters
    ----------
    state : ClusterState
        Nodes, and the pods that count on them.
    usage : mapping
        What was measured, by node and resource. Without it: what the state has folded.
    """

    def __init__(
        self,
        state: ClusterState,
        usage: Usage | None = None,
    ) -> None:
        self._state = state
        self._usage = state.usage.measured if usage is None else usage
        self._figures: dict[str, _Figures] = {}

    @property
    def table(self) -> NodeTable:
        """Names, labels, taints and specs."""
        return self._state.table

    @property
    def resources(self) -> ResourceIndex:
        """Which resource is in which column."""
        return self._state.resources

    def all_rows(self) -> np.ndarray:
        """Return the rows of all nodes, those that a filter refused among them."""
        return np.arange(self.table.count)

    def column(self, values: np.ndarray, column: int, rows: np.ndarray) -> np.ndarray:
        """Return int64[K] of ``table.allocatable`` or ``table.requested``, 0 where no node has the column."""
        if column >= values.shape[0]:
            return np.zeros(len(rows), dtype=np.int64)
        found: np.ndarray = values[column, rows]
        return found

    def hot(self, rows: np.ndarray) -> np.ndarray:
        """Return bool[K]: the nodes that are too busy to lend anything."""
        found: np.ndarray = self.table.hot[rows]
        return found

    def free_milli(self, rows: np.ndarray) -> np.ndarray:
        """Return int64[K, devices_per_node_max]: thousandths free on each device (docs/devices.md).

        ``NO_DEVICE`` where there is no such device. Less than 0 is free where pods that ran already took more
        than there is.
        """
        table = self.table
        return free_milli(table.allocatable, table.requested, self.resources, rows)

    def allocatable(self, resource: str, rows: np.ndarray) -> np.ndarray:
        """Return int64[K]: what a node offers, in the resource's canonical unit."""
        return self.column(self.table.allocatable, self.resources.column(resource), rows)

    def requested(self, resource: str, rows: np.ndarray) -> np.ndarray:
        """Return int64[K]: the sum of what the pods on a node request."""
        return self.column(self.table.requested, self.resources.column(resource), rows)

    def capacity(self, resource: str, rows: np.ndarray) -> np.ndarray:
        """Return float64[K]: a node's capacity, or what it offers where no capacity is given."""
        specs = self.table.specs
        return np.array(
            [(specs[row].capacity or specs[row].allocatable).get(resource, 0) for row in rows.tolist()],
            dtype=np.float64,
        )

    def measured(self, resource: str, rows: np.ndarray) -> list[Measured | None]:
        """Return what was measured of a resource, None for a node where it was not."""
        names = self.table.names
        return [self._usage.get(names[row], _NOTHING).get(resource) for row in rows.tolist()]

    def usage_of(self, rows: Sequence[int]) -> tuple[list[dict[str, Measured]], list[int]]:
        """Return all that was measured of nodes, by resource, and the log time of the latest measurement.

        Where nothing was measured: an empty dict, and 0.
        """
        names = [self.table.names[row] for row in rows]
        windows = [self._state.usage.windows.get(name) for name in names]
        return (
            [dict(sorted(self._usage.get(name, _NOTHING).items())) for name in names],
            [0 if window is None else window.at_ms for window in windows],
        )

    def figures(self, resource: str, rows: np.ndarray) -> np.ndarray:
        """Return float64[3, K]: average, deviation and latest value in percent; NaN: not measured.

        The figures are kept between two calls: only rows where something changed are read again.
        """
        table = self.table
        kept = self._figures.get(resource)
        if kept is None or kept.values.shape[1] < table.count:
            kept = self._figures[resource] = _Figures(table.rows_capacity)
        newest = max(table.last_spec_generation, table.last_usage_generation)
        if kept.generation < newest:
            changed = table.spec_generation[: table.count] > kept.generation
            changed |= table.usage_generation[: table.count] > kept.generation
            stale = np.flatnonzero(changed)
            found = [m or _UNKNOWN for m in self.measured(resource, stale)]
            values = np.array([(m.avg, m.std, m.latest) for m in found], dtype=np.float64)
            kept.values[:, stale] = values.reshape(-1, 3).T
            kept.generation = table.last_generation
        figures: np.ndarray = kept.values[:, rows]
        return figures

    def peak_yesterday(self, resource: str, rows: np.ndarray) -> np.ndarray:
        """Return float64[K]: the highest usage of the day before, in percent; NaN where it is not known."""
        peaks = [None if found is None else found.peak for found in self.measured(resource, rows)]
        return np.array([np.nan if peak is None else peak for peak in peaks], dtype=np.float64)
