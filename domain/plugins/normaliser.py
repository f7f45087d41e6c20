"""Min-max normalisation: the rule that brings the scores of all feasible nodes to 0..100."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from domain.kernels.arrays import EQUAL_FULL, FROM_ZERO, KNOWN_MAX, REVERSED, ZERO_FULL


class Normaliser(NamedTuple):
    """Places a score between the lowest (0) and the highest (100) of the feasible nodes.

    Formula: ``(score - lowest) / (highest - lowest) * 100``. A score that is not a number, or beyond 1e300,
    becomes 0.

    Attributes
    ----------
    reverse : bool
        The lowest gets 100, the highest 0.
    from_zero : bool
        The lowest is taken as 0: scores are shares of the highest.
    equal_full : bool
        All get 100 when all are equal; else all get 0.
    zero_full : bool
        The same when all are 0.
    """

    reverse: bool = False
    from_zero: bool = False
    equal_full: bool = False
    zero_full: bool = False

    @property
    def flags(self) -> int:
        """The attributes as one number, for the kernel."""
        flags = (REVERSED, FROM_ZERO, EQUAL_FULL, ZERO_FULL)
        return sum(flag for flag, is_set in zip(flags, self, strict=True) if is_set)

    def apply(self, raw: np.ndarray) -> np.ndarray:
        """Return the scores of all feasible nodes, float64[K]."""
        known = np.abs(raw) <= KNOWN_MAX
        scores = np.zeros(len(raw))
        if not known.any():
            return scores
        low = 0.0 if self.from_zero else float(raw[known].min())
        high = max(0.0, float(raw[known].max())) if self.from_zero else float(raw[known].max())
        if high > low:
            ahead = high - raw[known] if self.reverse else raw[known] - low
            scores[known] = ahead / (high - low) * 100.0
        elif self.zero_full if high == 0.0 else self.equal_full:
            scores[known] = 100.0
        return scores
