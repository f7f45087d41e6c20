"""Statistics of a measurement: when decisions became durable, percentiles, and how numbers are shown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np


class Sightings:
    """Per shard: how many decisions were in the ledger at each poll."""

    def __init__(self) -> None:
        self._times: dict[int, list[float]] = {}
        self._seq_next: dict[int, list[int]] = {}
        self._last_poll: float | None = None
        self.gaps: list[float] = []  # between the ends of two polls that follow each other

    def see(self, at: float, seq_next: Mapping[int, int]) -> bool:
        """Record the answer of one poll, received ``at``; return whether it says anything new."""
        if self._last_poll is not None:
            self.gaps.append(at - self._last_poll)
        self._last_poll = at
        changed = False
        for shard, value in seq_next.items():
            seen = self._seq_next.setdefault(shard, [])
            if not seen or value != seen[-1]:
                seen.append(value)
                self._times.setdefault(shard, []).append(at)
                changed = True
        return changed

    def durable_at(self, shard: int, seqs: Sequence[int]) -> np.ndarray:
        """Return when each seq of a shard was first seen as durable; infinity for one that was never seen."""
        first = np.searchsorted(np.array(self._seq_next[shard]), np.array(seqs), side="right")
        return np.append(np.array(self._times[shard]), math.inf)[first]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Return ``median (min..max)``, or just the value when there is one."""
    texts = [f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))]
    return texts[0] if len(values) == 1 else f"{texts[0]} ({texts[1]}..{texts[2]})"


def number(value: float) -> str:
    """Return a number as a person reads it: thousands apart, three digits where it is small."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
