"""Filter and score: one row by itself, or a block of rows at once, with the same answer.

A score is summed in one order everywhere: what static plugins say unnormalised, what they say normalised, the
resource terms, the variances, each in the profile's order.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BALANCED,
    BALANCED_CHANGE,
    CAPACITY_RATIO,
    FIT,
    FROM_ZERO,
    GONE,
    KNOWN_MAX,
    LEAST_ALLOCATED,
    LIMIT,
    MOST_ALLOCATED,
    NEVER,
    OCCUPIED,
    UNRESOLVABLE,
)
from domain.kernels.compiling import function, helper
from domain.kernels.terms import add_balance, add_capacity_ratio, normal, normal_variance, special_term


@helper
def term_value(columns, groups, g, t, row):  # type: ignore[no-untyped-def]
    """Score 0..100 of one resource term for one row, with the pod on it."""
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
def filter_row(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Return the code of the first filter that refuses a row, 0 where none does."""
    if row >= columns.rows_count[0]:
        return GONE
    code = 0
    position = NEVER
    part = groups.static_part[g]
    static = groups.static_code[part, row]
    if static != 0:
        code = static
        position = groups.static_position[part, static]
    for o in range(groups.occupancy_count[g]):
        full = groups.occupied[g, o, row] >= groups.occupancy_allowed[g, o]
        if full and groups.occupancy_position[g, o] < position:
            code = OCCUPIED + o
            position = groups.occupancy_position[g, o]
    for m in range(groups.limit_count[g]):
        if groups.limit_position[g, m] < position:
            bound = groups.limit_percent[g, m] * columns.allocatable[groups.limit_capacity[g, m], row]
            used = groups.limit_value[g, m]
            hopeless = used * 100.0 > bound
            for c in range(groups.limit_width[g, m]):
                used += columns.requested[groups.limit_column[g, m, c], row]
            if used * 100.0 > bound:
                code = LIMIT + 2 * m + (1 if hopeless else 0)
                position = groups.limit_position[g, m]
    if groups.fit_position[g] < position:
        bits = 0
        unresolvable = 0
        for d in range(groups.demand_count[g]):
            column = groups.demand_column[g, d]
            value = groups.demand_value[g, d]
            capacity = columns.allocatable[column, row]
            if value > capacity - columns.requested[column, row]:
                bits |= 1 << d
                if value > capacity:
                    unresolvable = UNRESOLVABLE
        if bits != 0:
            code = FIT + unresolvable + bits
    return code


@helper
def score_row(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Return the score of a feasible row, by the present extremes and without variances."""
    part = groups.static_part[g]
    score = groups.static_score[part, row]
    for k in range(groups.raw_count[g]):
        score += groups.raw_weight[g, k] * normal(
            groups.static_raw[part, k, row], groups.raw_low[g, k], groups.raw_high[g, k],
            groups.raw_kind[g, k],
        )  # fmt: skip
    for t in range(groups.term_count[g]):
        score += groups.term_weight[g, t] * term_value(columns, groups, g, t, row)
    return score


@helper
def forget_extremes(groups, g):  # type: ignore[no-untyped-def]
    """Begin to look for the extremes of a group's normalised scores."""
    for k in range(groups.raw_count[g]):
        from_zero = groups.raw_kind[g, k] & FROM_ZERO != 0
        groups.raw_low[g, k] = 0.0 if from_zero else np.inf
        groups.raw_high[g, k] = 0.0 if from_zero else -np.inf
        groups.raw_low_count[g, k] = 0
        groups.raw_high_count[g, k] = 0


@helper
def note_extremes(groups, g, row):  # type: ignore[no-untyped-def]
    """Let a feasible row count among the extremes."""
    part = groups.static_part[g]
    for k in range(groups.raw_count[g]):
        raw = groups.static_raw[part, k, row]
        if abs(raw) <= KNOWN_MAX:
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
def moves_extremes(groups, g, row, enters):  # type: ignore[no-untyped-def]
    """Let a row that became feasible, or infeasible, move the extremes' counts; say if they are stale now."""
    part = groups.static_part[g]
    stale = False
    for k in range(groups.raw_count[g]):
        raw = groups.static_raw[part, k, row]
        if not abs(raw) <= KNOWN_MAX:
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


@helper
def fit_block(columns, groups, g, first, n, scratch):  # type: ignore[no-untyped-def]
    """Filter rows ``first .. first + n - 1`` into ``scratch.fits``.

    Every array is cut to the block first: an index that only counts up from 0 is what the compiler turns
    into vector instructions.
    """
    end = first + n
    fits = scratch.fits[:n]
    static_code = groups.static_code[groups.static_part[g], first:end]
    for i in range(n):
        fits[i] = static_code[i] == 0
    for o in range(groups.occupancy_count[g]):
        allowed = groups.occupancy_allowed[g, o]
        occupied = groups.occupied[g, o, first:end]
        for i in range(n):
            fits[i] &= occupied[i] < allowed
    for d in range(groups.demand_count[g]):
        value = groups.demand_value[g, d]
        allocatable = columns.allocatable[groups.demand_column[g, d], first:end]
        requested = columns.requested[groups.demand_column[g, d], first:end]
        for i in range(n):
            fits[i] &= value <= allocatable[i] - requested[i]
    for m in range(groups.limit_count[g]):
        for i in range(n):
            bound = groups.limit_percent[g, m] * columns.allocatable[groups.limit_capacity[g, m], first + i]
            used = groups.limit_value[g, m]
            for c in range(groups.limit_width[g, m]):
                used += columns.requested[groups.limit_column[g, m, c], first + i]
            fits[i] &= used * 100.0 <= bound


@helper
def score_block(columns, groups, g, first, n, scratch):  # type: ignore[no-untyped-def]
    """Score rows ``first .. first + n - 1`` into ``scratch.total``; ``scratch.fits`` must be theirs.

    A group with normalised scores or variances must have been surveyed (``scanning.survey``).
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
                    total[i] += factor * term_value(columns, groups, g, t, first + i)
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
            total[i] += factor * (weighted[i] / (weights[i] if weights[i] > 0.0 else 1.0))
    for v in range(groups.variance_count[g]):
        _add_variance(
            scratch.growth[v, first:end], groups.variance_low[g, v], groups.variance_high[g, v],
            groups.variance_weight[g, v], total,
        )  # fmt: skip


@function
def _add_normal(raw, low, high, kind, weight, total):  # type: ignore[no-untyped-def]
    """Add a normalised score for a block of rows."""
    for i in range(len(raw)):
        total[i] += weight * normal(raw[i], low, high, kind)


@function
def _add_variance(growth, low, high, weight, total):  # type: ignore[no-untyped-def]
    """Add a normalised growth of a variance for a block of rows."""
    for i in range(len(growth)):
        total[i] += weight * normal_variance(growth[i], low, high)


@function
def _add_part(capacity_of, requested, value, weight, least, weighted, weights):  # type: ignore[no-untyped-def]
    """Add one resource's share of a term for a block of rows."""
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
