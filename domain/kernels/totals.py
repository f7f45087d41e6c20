"""Totals: the weighted scores of a row are added up as whole numbers, so that their order does not matter."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import TOTAL_ONE
from domain.kernels.compiling import helper


@helper
def whole(score, weight):  # type: ignore[no-untyped-def]
    """Return what a score adds to the total of a row.

    Parameters
    ----------
    score : float64
        The score of one plugin, 0..100.
    weight : float64
        Its weight in the profile, at most 1e6.

    Returns
    -------
    int64
        score x weight in units of 1 / ``TOTAL_ONE``, rounded to the nearest, half to even: below 2^47, so the
        sum of all scores of a profile is exact in int64 and in float64.
    """
    return np.int64(np.rint(score * weight * TOTAL_ONE))


def whole_column(scores: np.ndarray, weight: float) -> np.ndarray:
    """Return ``whole`` of each score: int64[K] of float64[K]."""
    return np.rint(scores * weight * TOTAL_ONE).astype(np.int64)
