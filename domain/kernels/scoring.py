"""Score: one row by itself, or a block of rows at once, with the same answer to the last bit.

The total of a row is the sum of its scores as whole numbers (``totals.py``).
"""

from __future__ import annotations

from domain.kernels.arrays import BALANCED, BALANCED_CHANGE, CAPACITY_RATIO, LEAST_ALLOCATED, MOST_ALLOCATED
from domain.kernels.compiling import function, helper
from domain.kernels.normalising import normal
from domain.kernels.terms import add_balance, add_capacity_ratio, special_term
from domain.kernels.totals import whole
from domain.kernels.variance import normal_variance


@helper
def term_value(columns, groups, g, t, row):  # type: ignore[no-untyped-def]
    """Return the score, 0..100, of one resource term for one row with the pod on it."""
    kind = groups.term_kind[g, t]
    begin = groups.term_first[g, t]
    end = groups.term_first[g, t + 1]
    if kind > MOST_ALLOCATED:
        value = special_term(
            kind, columns.allocatable, columns.requested, groups.part_column[g, begin:end],
            groups.part_weight[g, begin:end], groups.part_value[g, begin:end],
            groups.number[g, groups.term_number[g, t] : groups.term_number[g, t + 1]],
            groups.static_raw[groups.static_part[g], groups.term_measured[g, t] :, row], row,
        )  # fmt: skip
    else:
        total = 0.0
        weights = 0.0
        for p in range(begin, end):
            column = groups.part_column[g, p]
            capacity = columns.allocatable[column, row]
            if capacity == 0:
                continue
            used = columns.requested[column, row] + groups.part_value[g, p]
            weight = groups.part_weight[g, p]
            if kind == LEAST_ALLOCATED:
                if used < capacity:
                    total += weight * ((capacity - used) * 100.0 / capacity)
            else:
                total += weight * (min(used, capacity) * 100.0 / capacity)
            weights += weight
        value = total / weights if weights > 0.0 else 0.0
    return value


@helper
def score_row(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Return the total of a feasible row by the present extremes, int64. Variances are not part of it."""
    part = groups.static_part[g]
    total = groups.static_score[part, row]
    for k in range(groups.raw_count[g]):
        score = normal(
            groups.static_raw[part, k, row], groups.raw_low[g, k], groups.raw_high[g, k],
            groups.raw_kind[g, k],
        )  # fmt: skip
        total += whole(score, groups.raw_weight[g, k])
    for t in range(groups.term_count[g]):
        total += whole(term_value(columns, groups, g, t, row), groups.term_weight[g, t])
    return total


@helper
def score_block(columns, groups, g, first, n, scratch):  # type: ignore[no-untyped-def]
    """Write into ``scratch.total``, int64[n], the totals of rows ``first .. first + n - 1``.

    ``scratch.fits`` must hold which of them are feasible. The extremes of a group with normalised scores or
    variances must be known (``scanning.find_extremes``).
    """
    end = first + n
    part = groups.static_part[g]
    fits = scratch.fits[:n]
    total = scratch.total[:n]
    weighted = scratch.weighted[:n]
    weights = scratch.weights[:n]
    static_score = groups.static_score[part, first:end]
    for i in range(n):
        total[i] = static_score[i]
    for k in range(groups.raw_count[g]):
        _add_normal(
            groups.static_raw[part, k, first:end], groups.raw_low[g, k], groups.raw_high[g, k],
            groups.raw_kind[g, k], groups.raw_weight[g, k], total,
        )  # fmt: skip
    for t in range(groups.term_count[g]):
        kind = groups.term_kind[g, t]
        factor = groups.term_weight[g, t]
        begin = groups.term_first[g, t]
        parts = groups.term_first[g, t + 1]
        if kind == CAPACITY_RATIO:
            add_capacity_ratio(
                columns.allocatable, columns.requested, first,
                groups.part_column[g, begin:parts], groups.part_weight[g, begin:parts],
                groups.part_value[g, begin:parts],
                groups.number[g, groups.term_number[g, t] : groups.term_number[g, t + 1]], factor,
                scratch.work, total,
            )  # fmt: skip
            continue
        if kind in (BALANCED, BALANCED_CHANGE):
            add_balance(
                kind, columns.allocatable, columns.requested, first,
                groups.part_column[g, begin:parts], groups.part_value[g, begin:parts], factor,
                scratch.work, total,
            )  # fmt: skip
            continue
        if kind > MOST_ALLOCATED:
            for i in range(n):
                if fits[i] != 0:
                    total[i] += whole(term_value(columns, groups, g, t, first + i), factor)
            continue
        for i in range(n):
            weighted[i] = 0.0
            weights[i] = 0.0
        for p in range(begin, parts):
            capacity_of = columns.allocatable[groups.part_column[g, p], first:end]
            requested = columns.requested[groups.part_column[g, p], first:end]
            _add_part(
                capacity_of, requested, groups.part_value[g, p], groups.part_weight[g, p],
                kind == LEAST_ALLOCATED, weighted, weights,
            )  # fmt: skip
        for i in range(n):
            total[i] += whole(weighted[i] / (weights[i] if weights[i] > 0.0 else 1.0), factor)
    for v in range(groups.variance_count[g]):
        _add_variance(
            scratch.growth[v, first:end], groups.variance_low[g, v], groups.variance_high[g, v],
            groups.variance_weight[g, v], total,
        )  # fmt: skip


@function
def _add_normal(raw, low, high, kind, weight, total):  # type: ignore[no-untyped-def]
    """Add a normalised score to the totals of a block, int64[n]."""
    for i in range(len(raw)):
        total[i] += whole(normal(raw[i], low, high, kind), weight)


@function
def _add_variance(growth, low, high, weight, total):  # type: ignore[no-untyped-def]
    """Add the normalised growth of a variance to the totals of a block, int64[n]."""
    for i in range(len(growth)):
        total[i] += whole(normal_variance(growth[i], low, high), weight)


@function
def _add_part(capacity_of, requested, value, weight, least, weighted, weights):  # type: ignore[no-untyped-def]
    """Add one resource to the weighted sum and the sum of weights of a term, float64[n] each."""
    if least:
        for i in range(len(capacity_of)):
            capacity = capacity_of[i]
            free = max(capacity - (requested[i] + value), 0)
            weighted[i] += weight * (free * 100.0 / max(capacity, 1))
            weights[i] += weight if capacity != 0 else 0.0
    else:
        for i in range(len(capacity_of)):
            capacity = capacity_of[i]
            used = min(requested[i] + value, capacity)
            weighted[i] += weight * (used * 100.0 / max(capacity, 1))
            weights[i] += weight if capacity != 0 else 0.0
