"""Parts of the nodes that are looked at alone: those at home, which a worker tries first, and domains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from domain.state.cluster import ClusterState


class Domain(NamedTuple):
    """The nodes whose label ``key`` has the value."""

    key: str
    value: str

    def __str__(self) -> str:
        """Return ``key=value``."""
        return f"{self.key}={self.value}"

    def among(self, state: ClusterState, rows: np.ndarray) -> np.ndarray:
        """Return bool[len(rows)]: which of some rows are in it."""
        labels, value = state.table.labels, state.table.labels.values.id_of(self.value)
        column = labels.column(self.key)
        found: np.ndarray = np.zeros(len(rows), dtype=np.bool_)
        return found if column is None or value is None else column[rows] == value


class Homes:
    """Which rows are home: those of nodes whose shard, ordinal modulo the number of shards, is own."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._is_own = np.ones(1, dtype=np.bool_)  # by shard
        self._rows = np.zeros(0, dtype=np.int64)
        self._generation = -1

    def sync(self) -> bool:
        """Take which shards are own now, and say whether they are others than before."""
        is_own = np.isin(np.arange(self._state.shards_count), list(self._state.own))
        if np.array_equal(is_own, self._is_own):
            return False
        self._is_own, self._generation = is_own, -1
        return True

    def among(self, rows: np.ndarray) -> np.ndarray:
        """Return bool[len(rows)]: which of some rows are home."""
        found: np.ndarray = self._is_own[self._state.table.ordinal[rows] % len(self._is_own)]
        return found

    @property
    def rows(self) -> np.ndarray:
        """Return the rows that are home, int64[K]. Cost: O(N) after a node came, went or changed."""
        table = self._state.table
        if self._generation != table.last_spec_generation:
            self._generation = table.last_spec_generation
            self._rows = np.flatnonzero(self.among(np.arange(table.count)))
        return self._rows

    @property
    def shared(self) -> bool:
        """Whether other workers place pods, too."""
        return not self._is_own.all()

    @property
    def divide(self) -> bool:
        """Whether some nodes are home and some are not."""
        return self.shared and 0 < len(self.rows) < self._state.table.count
