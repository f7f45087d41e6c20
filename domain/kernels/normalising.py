"""Min-max normalisation of scores over the feasible rows, and the extremes that it needs."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import CUT, EQUAL_FULL, FROM_ZERO, KNOWN_MAX, REVERSED, ZERO_FULL
from domain.kernels.compiling import helper


@helper
def normal(raw, low, high, kind):  # type: ignore[no-untyped-def]
    """Return the min-max normalised score, 0..100, of a raw score between the extremes of the feasible rows.

    ``kind`` holds the flags of the plugin's normaliser (``domain.plugins.normaliser``).
    """
    if not abs(raw) <= KNOWN_MAX:
        return 0.0
    if high > low:
        if kind & CUT:
            share = np.floor((raw - low) * 100.0 / (high - low))
            return 100.0 - share if kind & REVERSED else share
        ahead = high - raw if kind & REVERSED else raw - low
        return ahead / (high - low) * 100.0
    if high == 0.0:
        return 100.0 if kind & ZERO_FULL else 0.0
    return 100.0 if kind & EQUAL_FULL else 0.0


@helper
def is_constant(groups, g, k):  # type: ignore[no-untyped-def]
    """Say whether the k-th normalised score of a group is the same on all rows: its extremes stay then."""
    constant = groups.raw_constant[groups.static_part[g], k]
    return constant == constant


@helper
def reset_extremes(groups, g):  # type: ignore[no-untyped-def]
    """Reset the extremes of a group before all its feasible rows are counted again."""
    for k in range(groups.raw_count[g]):
        if is_constant(groups, g, k):
            continue
        from_zero = groups.raw_kind[g, k] & FROM_ZERO != 0
        groups.raw_low[g, k] = 0.0 if from_zero else np.inf
        groups.raw_high[g, k] = 0.0 if from_zero else -np.inf
        groups.raw_low_count[g, k] = 0
        groups.raw_high_count[g, k] = 0


@helper
def widen_extremes(groups, g, row):  # type: ignore[no-untyped-def]
    """Widen the extremes of a group by a feasible row."""
    part = groups.static_part[g]
    for k in range(groups.raw_count[g]):
        raw = groups.static_raw[part, k, row]
        if abs(raw) <= KNOWN_MAX and not is_constant(groups, g, k):
            if raw < groups.raw_low[g, k]:
                groups.raw_low[g, k] = raw
                groups.raw_low_count[g, k] = 0
            if raw > groups.raw_high[g, k]:
                groups.raw_high[g, k] = raw
                groups.raw_high_count[g, k] = 0
            if raw == groups.raw_low[g, k]:
                groups.raw_low_count[g, k] += 1
            if raw == groups.raw_high[g, k]:
                groups.raw_high_count[g, k] += 1


@helper
def shift_extremes(groups, g, row, enters):  # type: ignore[no-untyped-def]
    """Count a row that became feasible, or infeasible, among the extremes; say whether they are stale now."""
    part = groups.static_part[g]
    stale = False
    for k in range(groups.raw_count[g]):
        raw = groups.static_raw[part, k, row]
        if not abs(raw) <= KNOWN_MAX or is_constant(groups, g, k):
            continue
        from_zero = groups.raw_kind[g, k] & FROM_ZERO != 0
        step = 1 if enters else -1
        if raw < groups.raw_low[g, k] or raw > groups.raw_high[g, k]:
            stale = True
        if raw == groups.raw_low[g, k]:
            groups.raw_low_count[g, k] += step
            stale = stale or (groups.raw_low_count[g, k] == 0 and not from_zero)
        if raw == groups.raw_high[g, k]:
            groups.raw_high_count[g, k] += step
            stale = stale or (groups.raw_high_count[g, k] == 0 and not (from_zero and raw == 0.0))
    return stale
