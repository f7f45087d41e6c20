"""What moved rows mean to counters: what they count is known by nodes and by values of labels, not by rows.

A group that waits for a counter wakes when that counts otherwise. A node that only gets another row, as the
last one does where a node is gone, changes nothing: which node has the last row depends on what came and went
before, and is another one after a restart.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterable

import numpy as np

from domain.counting.domains import Domains, Moved
from domain.kernels import arrays as kernel

_Change = tuple[int, int, int]
"""The number of a counter, a row or a column of ``Moved``, and how much it counts more there."""


class NodeMoves:
    """What one update of rows changed, once ``domains`` has it."""

    def __init__(self, moved: Moved, domains: Domains, arrays: kernel.Counters) -> None:
        self._moved, self._domains, self._arrays = moved, domains, arrays
        self._has_other: dict[tuple[int, int], bool] = {}

    def counting_otherwise(self, gone: Iterable[_Change], came: Iterable[_Change]) -> set[int]:
        """Return the counters that count otherwise: ``gone`` was counted by column, ``came`` is by row."""
        moved, of = self._moved, self._domains
        changes: Multiset[tuple[int, int | str | None]] = Multiset()
        for number, k, value in gone:
            topology, mask = int(self._arrays.topology[number]), int(self._arrays.mask[number])
            if mask < 0 or moved.eligible[mask, k]:
                changes[number, self._named(topology, moved.domain[topology, k], moved.names[k])] += value
        for number, row, value in came:
            topology, mask = int(self._arrays.topology[number]), int(self._arrays.mask[number])
            if mask < 0 or of.eligible[mask, row]:
                changes[number, self._named(topology, of.domain[topology, row], of.names[row])] += value
        return {number for (number, domain), value in changes.items() if value and domain != -1}

    def _named(self, topology: int, domain: int, name: str | None) -> int | str | None:
        """Return what stands for a domain before and now; -1: there is none."""
        return name if domain >= 0 and self._domains.is_by_row(topology) else int(abs(domain + 1) - 1)

    def has_other_domains(self, number: int) -> bool:
        """Say whether other domains of a counter have an eligible row now."""
        of = int(self._arrays.topology[number]), int(self._arrays.mask[number])
        found = self._has_other.get(of)
        if found is None:
            found = self._has_other[of] = self._compare(*of)
        return found

    def _compare(self, topology: int, mask: int) -> bool:
        moved, of = self._moved, self._domains
        if not of.is_by_row(topology):
            before, now = moved.having[topology][mask], of.having_rows(topology, mask)
            return not np.array_equal(np.flatnonzero(before), np.flatnonzero(now))
        had, has = moved.domain[topology] >= 0, of.domain[topology, moved.rows] >= 0
        if mask >= 0:
            had, has = had & (moved.eligible[mask] != 0), has & (of.eligible[mask, moved.rows] != 0)
        return {moved.names[k] for k in np.flatnonzero(had)} != {
            moved.names_now[k] for k in np.flatnonzero(has)
        }
