"""How much a pod would add to the variance of a metric over all rows, and its normalised score."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BY_CLOSENESS,
    BY_POWER,
    METRIC_MAX,
    METRIC_ONE,
    METRICS_MAX,
    UNCOUNTED,
    ChangeLog,
    Columns,
    Groups,
    Scratch,
)
from domain.kernels.closeness import rate_closeness
from domain.kernels.compiling import helper, unit
from domain.kernels.normalising import normal
from domain.kernels.power import grow_power


@helper
def metric(requested, capacity, most):  # type: ignore[no-untyped-def]
    """Return the metric of GlobalVariance: requested / capacity in whole units of 2^-20, at most ``most``."""
    share = np.floor(requested * float(METRIC_ONE) / capacity)
    return int(min(share, float(most)))


@helper
def normal_growth(growth, low, high, flags):  # type: ignore[no-untyped-def]
    """Return the normalised score, 0..100, of a row by its ``growth``."""
    if growth == UNCOUNTED:
        return 0.0
    return normal(float(growth), float(low), float(high), flags)


@helper
def _metric_of(requested, allocatable, most):  # type: ignore[no-untyped-def]
    return metric(requested, max(allocatable, 1), most) if allocatable > 0 else UNCOUNTED


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
def _sum_requested(requested, allocatable, most, key, changed, length, own, sums):  # type: ignore[no-untyped-def]
    """Bring the metrics of a column and their sum up to date.

    If ``own`` holds this column already, only the rows changed since then are read again. ``sums`` int64[4]
    holds the ``key`` of column and cut, the position in the change log, how many rows count, and the sum.
    """
    if sums[0] != key:
        for i in range(len(own)):
            own[i] = _metric_of(requested[i], allocatable[i], most)
        _sum_up(own, sums)
    else:
        for i in range(sums[1], length):
            row = changed[i]
            if own[row] != UNCOUNTED:
                now = _metric_of(requested[row], allocatable[row], most)
                sums[3] += now - own[row]
                own[row] = now
    sums[0] = key
    sums[1] = length


@helper
def _sum_measured(measured, capacity, most, own, sums):  # type: ignore[no-untyped-def]
    """Take measured usage as the metric. Rows without a measurement or without the resource do not count."""
    for i in range(len(own)):
        known = capacity[i] > 0 and not np.isnan(measured[i])
        own[i] = int(min(measured[i], float(most))) if known else UNCOUNTED
    _sum_up(own, sums)
    sums[0] = -1


@helper
def _add_in_flight(estimates, capacity, most, own, sums):  # type: ignore[no-untyped-def]
    """Add to measured usage what pods are expected to use that came since."""
    for i in range(len(own)):
        more = metric(estimates[i], max(capacity[i], 1), most)
        own[i] = min(own[i] + more, most) if own[i] != UNCOUNTED else UNCOUNTED
    _sum_up(own, sums)


@helper
def _grow(capacity, value, most, own, n, total, is_first, growth):  # type: ignore[no-untyped-def]
    """Write how much a pod of ``value`` on each row would add to the variance of the metric over all rows.

    Let ``m`` be the metric of a row, ``e`` what the pod adds to it, and ``S`` the sum over the ``n`` rows
    that count. The variance times n^2 is then a constant plus e * (2 * (m * n - S) + e * (n - 1)). These are
    whole numbers, so the order of the rows does not matter. All but the first metric add to what is there;
    a row that lacks one has none.
    """
    for i in range(len(growth)):
        added = metric(value, max(capacity[i], 1), most)
        grown = added * (2 * (own[i] * n - total) + added * (n - 1))
        before = 0 if is_first else growth[i]
        counts = own[i] != UNCOUNTED and before != UNCOUNTED
        growth[i] = before + grown if counts else UNCOUNTED


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


@helper
def _grow_variance(columns, groups, changes, g, v, q, scratch):  # type: ignore[no-untyped-def]
    """Write what a pod on each row would add to the variances of some metrics in sum, the first being ``q``.

    A metric has two parts: what a row has, and what is counted of it with what the pod adds. Beside a
    measurement that is what pods are expected to use that came since, or nothing. Return the next metric.
    """
    count = columns.rows_count[0]
    begin = groups.variance_first[g, v]
    end = groups.variance_first[g, v + 1]
    several = end - begin > 2
    most = METRICS_MAX if several else METRIC_MAX
    for p in range(begin, end, 2):
        own = scratch.own[q, :count]
        sums = scratch.sums[q]
        column = groups.part_column[g, p + 1]
        capacity = columns.allocatable[groups.part_column[g, p], :count]
        counted = columns.requested[column, :count]
        known = groups.variance_measured[g, v]
        if known >= 0:
            at = known + (p - begin) // 2
            measured = groups.static_raw[groups.static_part[g], at, :count]
            _sum_measured(measured, capacity, most, own, sums)
            if column != groups.part_column[g, p]:
                _add_in_flight(counted, capacity, most, own, sums)
        else:
            key = 2 * column + several
            _sum_requested(counted, capacity, most, key, changes.rows, changes.length[0], own, sums)
        _grow(
            capacity, groups.part_value[g, p + 1], most, own, sums[2], sums[3], p == begin,
            scratch.growth[v, :count],
        )  # fmt: skip
        q += 1
    return q


@unit
def grow_variances(columns: Columns, groups: Groups, changes: ChangeLog, g: int, scratch: Scratch) -> None:
    """Write, for each score of a group that compares all rows, the growth of each row with a pod on it.

    That of a variance is what the pod would add to it, of a closeness how far the row is from the best, of
    power what it would draw more. They change on all rows with each pod.
    """
    count = columns.rows_count[0]
    q = 0
    for v in range(groups.variance_count[g]):
        begin = groups.variance_first[g, v]
        end = groups.variance_first[g, v + 1]
        growth = scratch.growth[v, :count]
        if groups.variance_kind[g, v] == BY_CLOSENESS:
            scratch.sums[q, 0] = -1
            scratch.sums[q, 2] = rate_closeness(
                columns.allocatable, columns.requested, groups.part_column[g, begin:end],
                groups.part_weight[g, begin:end], groups.part_value[g, begin:end], scratch.feasible[:count],
                scratch.work, growth,
            )  # fmt: skip
            scratch.sums[q, 3] = 0
            q += 1
        elif groups.variance_kind[g, v] == BY_POWER:
            grow_power(
                columns.allocatable[groups.part_column[g, begin], :count],
                columns.requested[groups.part_column[g, begin + 1], :count], groups.part_value[g, begin + 1],
                groups.static_raw[groups.static_part[g], groups.variance_measured[g, v] :], growth,
            )  # fmt: skip
            for k in range(4):
                scratch.sums[q, k] = -1 if k == 0 else 0
            q += 1
        else:
            q = _grow_variance(columns, groups, changes, g, v, q, scratch)
