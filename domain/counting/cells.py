"""Cells: where the sums of counters stand, in two flat arrays that the placing kernel reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_CELLS_FIRST = 1 << 10


class Cells:
    """Spans of cells, each given to one counter: a cell per domain.

    The first cells belong to no counter. The kernel may add there what a counter without cells of its own
    counts.

    Attributes
    ----------
    sums : int32[D]
        What is counted.
    has_nodes : uint8[D]
        Whether a domain has an eligible row.
    unowned : int
        How many cells belong to no counter.
    """

    def __init__(self) -> None:
        self.sums = np.zeros(0, dtype=np.int32)
        self.has_nodes = np.zeros(0, dtype=np.uint8)
        self.unowned = 0
        self._end = 0
        self._free: dict[int, list[int]] = {}  # by length

    def take_span(self, length: int) -> int | None:
        """Return where a span of zeros begins; None: there is no room before ``lay_out``."""
        free = self._free.get(length)
        if free:
            first = free.pop()
        elif self._end + length <= len(self.sums):
            first, self._end = self._end, self._end + length
        else:
            return None
        self.sums[first : first + length] = 0
        self.has_nodes[first : first + length] = 0
        return first

    def free_span(self, first: int, length: int) -> None:
        """Give a span back."""
        self._free.setdefault(length, []).append(first)

    def lay_out(self, spans: Sequence[tuple[int, int]], *, unowned: int, more: int) -> list[int]:
        """Move spans (first, length) together, and return where each begins now.

        After it there is room for ``more`` cells, and for half as many again. Cost: O(cells).
        """
        needed = unowned + sum(length for _, length in spans) + more
        sums = np.zeros(max(_CELLS_FIRST, needed * 3 // 2), dtype=np.int32)
        has_nodes = np.zeros(len(sums), dtype=np.uint8)
        moved, end = [], unowned
        for first, length in spans:
            sums[end : end + length] = self.sums[first : first + length]
            has_nodes[end : end + length] = self.has_nodes[first : first + length]
            moved.append(end)
            end += length
        self.sums, self.has_nodes, self.unowned, self._end = sums, has_nodes, unowned, end
        self._free.clear()
        return moved
