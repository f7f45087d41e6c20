"""How much a pod would add to the variance of a metric over all rows, and its normalised score."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BY_CLOSENESS,
    METRIC_MAX,
    METRIC_ONE,
    UNCOUNTED,
    VARIANCE,
    ChangeLog,
    Columns,
    Groups,
    Scratch,
)
from domain.kernels.closeness import rate_closeness
from domain.kernels.compiling import helper, unit
from domain.kernels.normalising import normal


@helper
def metric(requested, capacity):  # type: ignore[no-untyped-def]
    """Return the metric of GlobalVariance: requested / capacity in whole units of 2^-20, at most 4."""
    share = np.floor(requested * float(METRIC_ONE) / capacity)
    return int(min(share, float(METRIC_MAX)))


@helper
def normal_variance(growth, low, high):  # type: ignore[no-untyped-def]
    """Return the normalised score, 0..100, of a row that adds ``growth`` to the variance."""
    if growth == UNCOUNTED:
        return 0.0
    return normal(float(growth), float(low), float(high), VARIANCE)


@helper
def _metric_of(requested, allocatable):  # type: ignore[no-untyped-def]
    return metric(requested, max(allocatable, 1)) if allocatable > 0 else UNCOUNTED


@helper
def _sum_up(own, sums):  # type: ignore[no-untyped-def]
    """Write how many rows count into ``sums[2]``, and the sum of their metrics into ``sums[3]``."""
    n = 0
    total = 0
    for i in range(len(own)):
        n += own[i] != UNCOUNTED
        total += own[i] if own[i] != UNCOUNTED else 0
    sums[2] = n
    sums[3] = total


@helper
def _sum_requested(requested, allocatable, column, changed, length, own, sums):  # type: ignore[no-untyped-def]
    """Bring the metrics of a column and their sum up to date.

    If ``own`` holds this column already, only the rows changed since then are read again. ``sums`` int64[4]
    holds the column, the position in the change log, how many rows count, and the sum.
    """
    if sums[0] != column:
        for i in range(len(own)):
            own[i] = _metric_of(requested[i], allocatable[i])
        _sum_up(own, sums)
    else:
        for i in range(sums[1], length):
            row = changed[i]
            if own[row] != UNCOUNTED:
                now = _metric_of(requested[row], allocatable[row])
                sums[3] += now - own[row]
                own[row] = now
    sums[0] = column
    sums[1] = length


@helper
def _sum_measured(measured, allocatable, own, sums):  # type: ignore[no-untyped-def]
    """Take measured usage as the metric. Rows without a measurement or without the resource do not count."""
    for i in range(len(own)):
        known = allocatable[i] > 0 and not np.isnan(measured[i])
        own[i] = int(measured[i]) if known else UNCOUNTED
    _sum_up(own, sums)
    sums[0] = -1


@helper
def _grow(allocatable, value, own, n, total, growth):  # type: ignore[no-untyped-def]
    """Write how much a pod of ``value`` on each row would add to the variance of the metric over all rows.

    Let ``m`` be the metric of a row, ``e`` what the pod adds to it, and ``S`` the sum over the ``n`` rows
    that count. The variance times n^2 is then a constant plus e * (2 * (m * n - S) + e * (n - 1)). These are
    whole numbers, so the order of the rows does not matter.
    """
    for i in range(len(growth)):
        added = metric(value, max(allocatable[i], 1))
        grown = added * (2 * (own[i] * n - total) + added * (n - 1))
        growth[i] = grown if own[i] != UNCOUNTED else UNCOUNTED


@helper
def extremes_of_growth(growth, fits):  # type: ignore[no-untyped-def]
    """Return the lowest and the highest growth over the feasible rows."""
    low = np.int64(-(UNCOUNTED + 1))
    high = np.int64(UNCOUNTED)
    for i in range(len(growth)):
        counts = fits[i] != 0 and growth[i] != UNCOUNTED
        low = min(low, growth[i] if counts else low)
        high = max(high, growth[i] if counts else high)
    return low, high


@unit
def grow_variances(columns: Columns, groups: Groups, changes: ChangeLog, g: int, scratch: Scratch) -> None:
    """Write, for each variance that a group is scored by, what a pod on each row would add to it.

    Closeness to the best row counts as one: it, too, changes on all rows with each pod.
    """
    count = columns.rows_count[0]
    for v in range(groups.variance_count[g]):
        if groups.variance_measured[g, v] == BY_CLOSENESS:
            begin = groups.variance_column[g, v]
            end = begin + groups.variance_value[g, v]
            scratch.sums[v, 0] = -1
            scratch.sums[v, 2] = rate_closeness(
                columns.allocatable, columns.requested, groups.part_column[g, begin:end],
                groups.part_weight[g, begin:end], groups.part_value[g, begin:end], scratch.feasible[:count],
                scratch.work, scratch.growth[v, :count],
            )  # fmt: skip
            scratch.sums[v, 3] = 0
            continue
        column = groups.variance_column[g, v]
        known = groups.variance_measured[g, v]
        own = scratch.own[v, :count]
        sums = scratch.sums[v]
        allocatable = columns.allocatable[column, :count]
        if known >= 0:
            _sum_measured(groups.static_raw[groups.static_part[g], known, :count], allocatable, own, sums)
        else:
            requested = columns.requested[column, :count]
            _sum_requested(requested, allocatable, column, changes.rows, changes.length[0], own, sums)
        _grow(allocatable, groups.variance_value[g, v], own, sums[2], sums[3], scratch.growth[v, :count])
