"""Rules by which scores of all feasible nodes become 0..100."""

from __future__ import annotations

import numpy as np


def by_highest(raw: np.ndarray, *, reverse: bool) -> np.ndarray:
    """Return shares of the highest score, times 100; with ``reverse`` what is missing to 100.

    Source: kube-scheduler, helper DefaultNormalizeScore.
    """
    highest = raw.max(initial=0.0)
    share = raw / highest * 100.0 if highest > 0 else np.zeros(len(raw))
    return 100.0 - share if reverse else share


def by_range(raw: np.ndarray, *, reverse: bool, flat: float) -> np.ndarray:
    """Return where each score stands between the lowest (0) and the highest (100).

    ``reverse`` turns it round; ``flat`` is everyone's score when all are equal. A score that is not a number
    becomes 0.
    """
    known = np.isfinite(raw)
    scores = np.zeros(len(raw))
    if known.any():
        low, high = raw[known].min(), raw[known].max()
        if high > low:
            ahead = high - raw[known] if reverse else raw[known] - low
            scores[known] = ahead / (high - low) * 100.0
        else:
            scores[known] = flat
    return scores
