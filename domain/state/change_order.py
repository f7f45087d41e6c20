"""Which rows changed, in order, so that a snapshot costs only what changed since the one before."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np

_ENTRIES_PER_ROW_MAX = 8
_ENTRIES_MIN = 512


class ChangeOrder:
    """Pairs of generation and row in rising order of generation: the most recent change is the last pair.

    A removal is one more pair: a row at or beyond the table's ``count`` is a tombstone. When there are many
    more pairs than rows, the pairs that a later one repeats are dropped. What is left still answers for every
    generation. The cost is amortised O(1) unless a method says otherwise.
    """

    def __init__(self) -> None:
        self._generations = array("q")
        self._rows = array("i")
        self._length_max = _ENTRIES_MIN

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, generation: int, row: int) -> None:
        """Record a change. Generations rise from call to call."""
        self._generations.append(generation)
        self._rows.append(row)

    def extend(self, first_generation: int, rows: np.ndarray) -> None:
        """Record changes of distinct rows in the given order, each with the next generation."""
        generations = np.arange(first_generation, first_generation + len(rows), dtype=np.int64)
        self._generations.frombytes(generations.tobytes())
        self._rows.frombytes(rows.astype(np.int32).tobytes())

    def moved(self, generation: int, row: int) -> None:
        """Record that the entry that changed itself last at ``generation`` is in another row. O(log)."""
        at = bisect_left(self._generations, generation)
        assert self._generations[at] == generation
        self._rows[at] = row

    def since(self, generation: int) -> np.ndarray:
        """Return the distinct rows (int64[K]) changed after a generation. O(K log K)."""
        start = bisect_right(self._generations, generation)
        return np.unique(np.array(self._rows[start:], dtype=np.int64))

    def newest_first(self, generation_of: np.ndarray, count: int) -> Iterator[int]:
        """Yield each of ``count`` rows once, most recently changed first. Rows that are not
        taken cost nothing.

        Parameters
        ----------
        generation_of : int64[N]
            Generation of each row's last own change. To be moved is not a change of its own.
        """
        for at in range(len(self._rows) - 1, -1, -1):
            row = self._rows[at]
            if row < count and generation_of[row] == self._generations[at]:
                yield row

    def compact(self, generation_of: np.ndarray, count: int) -> None:
        """Keep, when pairs far outnumber rows, only the last pair and the last own change of each row."""
        if len(self._rows) <= self._length_max:
            return
        rows, generations = np.array(self._rows), np.array(self._generations)
        needed = (rows < count) & (generation_of[rows] == generations)
        _, from_end = np.unique(rows[::-1], return_index=True)
        needed[len(rows) - 1 - from_end] = True
        self._rows = array("i", rows[needed].tobytes())
        self._generations = array("q", generations[needed].tobytes())
        self._length_max = max(_ENTRIES_MIN, _ENTRIES_PER_ROW_MAX * len(generation_of))
