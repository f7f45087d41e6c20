"""The snapshot: a private view of the columns at one generation, which a cycle may write on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domain.kernels.arrays import ChangeLog, Columns
from domain.kernels.devices import DEVICES_MAX, free_devices
from domain.model.devices import BUSY, SHARED, Ask
from domain.state.table import NodeTable

_LOG_LENGTH = 1 << 18


class Snapshot:
    """Copies of the resource columns, and a log of changed rows for caches that are kept by row.

    ``sync`` costs O(rows changed since the last one). A cycle writes its placements here first, each with an
    entry in the log. Once the state has counted the same placements, ``caught_up`` says so. The next ``sync``
    copies all other written rows again, so that a placement on trial vanishes.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.generation = 0
        self._allocate()

    def _allocate(self) -> None:
        table = self._table
        leaves = 1 << max(6, (table.rows_capacity - 1).bit_length())
        self.columns = Columns.allocate(np.zeros, {"R": table.allocatable.shape[0], "N": leaves})
        self.changes = ChangeLog.allocate(np.zeros, {"L": _LOG_LENGTH})
        self.generation = 0
        self._note_synced()

    def _note_synced(self) -> None:
        """Record that no row differs from the state as of ``generation``."""
        self._synced_length = int(self.changes.length[0])
        self._edited_before = np.zeros(0, dtype=np.int64)

    def _edited(self) -> np.ndarray:
        """Return the rows that were written here since the last ``_note_synced``."""
        written = self.changes.rows[self._synced_length : int(self.changes.length[0])]
        return np.union1d(self._edited_before, written) if len(written) else self._edited_before

    @property
    def rows_width(self) -> int:
        """Number of rows that caches must have: a power of two."""
        return len(self.columns.tie)

    @property
    def changes_max(self) -> int:
        """Number of changes that the log can hold."""
        return len(self.changes.rows)

    def sync(self) -> bool:
        """Copy the changed rows. Return False when the change log was started again: all caches are stale."""
        table, kept = self._table, True
        if table.allocatable.shape[0] > self.columns.allocatable.shape[0] or (
            table.rows_capacity > self.rows_width
        ):
            self._allocate()
            kept = False
        resources = table.resources
        self.columns.devices[:DEVICES_MAX] = resources.device_columns
        self.columns.devices[DEVICES_MAX:] = resources.column(BUSY), resources.column(SHARED)
        rows, edited = table.changed_since(self.generation), self._edited()
        if len(edited):
            rows = np.union1d(rows, edited)
        for name in ("allocatable", "requested"):
            source, target = getattr(table, name), getattr(self.columns, name)
            target[: source.shape[0], rows] = source[:, rows]
        if table.nominated is not None:
            self.columns.requested[: len(table.nominated), rows] += table.nominated[:, rows]
        self.columns.tie[rows] = table.tie[rows]
        self.columns.rows_count[0] = table.count
        kept = self.reserve(len(rows)) and kept
        self._note(rows)
        self.generation = table.last_generation
        self._note_synced()
        return kept

    def reserve(self, rows: int) -> bool:
        """Make room in the change log. Return False when it was started again."""
        assert rows <= self.changes_max
        if int(self.changes.length[0]) + rows <= self.changes_max:
            return True
        self._edited_before = self._edited()
        self._synced_length = 0
        self.changes.length[0] = 0
        return False

    def count_nomination(self, row: int, columns: np.ndarray, values: np.ndarray, sign: int) -> None:
        """Count what a nomination asks for (1), or do not (-1); the change log has room for that."""
        self.columns.requested[columns, row] += sign * values
        self._note(np.array([row]))

    def count_nominations(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, sign: int) -> None:
        """Do the same for nominations that ask for equal amounts, a row for each."""
        np.add.at(self.columns.requested, (columns[:, None], rows[None, :]), sign * values[:, None])
        self._note(rows)

    def uncount_pods(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        """Undo the placements of equal pods, a row for each; the change log has room for that."""
        np.subtract.at(self.columns.requested, (columns[:, None], rows[None, :]), values[:, None])
        self._note(rows)

    def _note(self, rows: np.ndarray) -> None:
        """Append rows to the change log, which has room for them."""
        length = int(self.changes.length[0])
        self.changes.rows[length : length + len(rows)] = rows
        self.changes.length[0] = length + len(rows)

    def free_devices(self, rows: Sequence[int], devices: Sequence[int], ask: Ask) -> None:
        """Give back the devices (bits) of pods with one ask, of which all else was taken back before."""
        for row, bits in zip(rows, devices, strict=True):
            if bits:
                free_devices(self.columns, row, bits, *ask)

    def caught_up(self) -> None:
        """Record that the state has counted exactly what was written here since the last ``sync``."""
        self.generation = self._table.last_generation
        self._note_synced()
