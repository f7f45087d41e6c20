"""Resource terms that need more than one sum per resource: by the row, and by the block.

Each term is computed a second time, in numpy, by its plugin (``raw``), with the same operations in the same
order: the two are equal to the last bit.
"""

from __future__ import annotations

import math

from domain.kernels.arrays import (
    BALANCED_CHANGE,
    CAPACITY_RATIO,
    LOW_RISK,
    TARGET_LOAD,
)
from domain.kernels.compiling import function
from domain.kernels.risk import over_commitment
from domain.kernels.totals import whole


@function
def special_term(  # type: ignore[no-untyped-def]
    kind, allocatable, requested, part_column, part_weight, part_value, number, measured, row
):
    """Return the score, 0..100, of one row with the pod on it, by a term that is not a weighted mean."""
    if kind == CAPACITY_RATIO:
        return _capacity_ratio(allocatable, requested, part_column, part_weight, part_value, number, row)
    if kind == TARGET_LOAD:
        return _target_load(
            allocatable, requested, part_column, part_weight, part_value, number[0], measured[0], row
        )
    if kind == LOW_RISK:
        return _low_risk(allocatable, requested, part_column, part_weight, part_value, number, measured, row)
    if len(part_column) == 0:
        return 0.0
    evenness = _evenness(allocatable, requested, part_column, part_value, 1, row)
    if kind == BALANCED_CHANGE:
        change = evenness - _evenness(allocatable, requested, part_column, part_value, 0, row)
        return 50.0 + (50.0 + change) / 2.0
    return evenness


@function
def _capacity_ratio(  # type: ignore[no-untyped-def]
    allocatable, requested, part_column, part_weight, part_value, number, row
):
    """``number`` holds how many points the curve has, utilisation and score of each, and where it counts."""
    total = 0.0
    points = number[1 : 1 + 2 * int(number[0])]
    spans = number[1 + 2 * int(number[0]) :]
    weights = 0.0
    for p in range(len(part_column)):
        capacity = allocatable[part_column[p], row]
        if capacity == 0:
            continue
        used = requested[part_column[p], row] + part_value[p]
        percent = min(used, capacity) * 100.0 / capacity
        if _counts(spans, percent):
            total += part_weight[p] * _curve(points, percent)
            weights += part_weight[p]
    return total / weights if weights > 0.0 else 0.0


@function
def _counts(spans, x):  # type: ignore[no-untyped-def]
    """Say whether a percentage is within one of the spans [from, below); ``spans`` holds the ends in turn."""
    within = False
    for s in range(0, len(spans), 2):
        within |= spans[s] <= x < spans[s + 1]
    return within


@function
def _curve(points, x):  # type: ignore[no-untyped-def]
    if x <= points[0]:
        return points[1]
    for i in range(2, len(points), 2):
        if x <= points[i]:
            slope = (points[i + 1] - points[i - 1]) / (points[i] - points[i - 2])
            return points[i - 1] + slope * (x - points[i - 2])
    return points[len(points) - 1]


@function
def _evenness(allocatable, requested, part_column, part_value, pods, row):  # type: ignore[no-untyped-def]
    """Return 100 less the standard deviation of the used shares, with ``pods`` of the pod on the row."""
    total = 0.0
    count = 0
    for p in range(len(part_column)):
        capacity = allocatable[part_column[p], row]
        if capacity != 0:
            total += min((requested[part_column[p], row] + pods * part_value[p]) / capacity, 1.0)
            count += 1
    mean = total / max(count, 1)
    squares = 0.0
    for p in range(len(part_column)):
        capacity = allocatable[part_column[p], row]
        if capacity != 0:
            share = min((requested[part_column[p], row] + pods * part_value[p]) / capacity, 1.0)
            squares += (share - mean) * (share - mean)
    return (1.0 - math.sqrt(squares / max(count, 1))) * 100.0


@function
def _target_load(  # type: ignore[no-untyped-def]
    allocatable, requested, part_column, part_weight, part_value, target, percent, row
):
    """Return the score of TargetLoadPacking.

    The first part names the capacity. The others are the claims that were not measured yet.
    """
    if percent != percent:
        return 0.0
    capacity = allocatable[part_column[0], row]
    used = 0.0
    if capacity > 0:
        claimed = 0.0
        for p in range(1, len(part_column)):
            claimed += part_weight[p] * (requested[part_column[p], row] + part_value[p])
        used = percent + 100.0 * claimed / capacity
    if used <= target:
        return (100.0 - target) * used / target + target
    if used <= 100.0:
        return target * (100.0 - used) / (100.0 - target)
    return 0.0


@function
def _low_risk(  # type: ignore[no-untyped-def]
    allocatable, requested, part_column, part_weight, part_value, number, measured, row
):
    """Return the score of LowRiskOverCommitment.

    A resource has two parts, the requests and what the limits exceed them by, and two measured columns, mean
    and deviation.
    """
    if len(part_column) == 0:
        return 0.0
    worst = 0.0
    is_measured = False
    for r in range(len(part_column) // 2):
        request = requested[part_column[2 * r], row]
        limit = request + requested[part_column[2 * r + 1], row]
        own = part_value[2 * r]
        risk = over_commitment(
            measured[2 * r], measured[2 * r + 1], number[0], part_weight[2 * r], request, limit,
            allocatable[part_column[2 * r], row], own, own + part_value[2 * r + 1],
        )  # fmt: skip
        worst = max(worst, risk)
        is_measured = is_measured or measured[2 * r] == measured[2 * r]
    return 100.0 * (1.0 - worst) if is_measured else 0.0


# The same terms for a block of rows, column by column, so that the compiler can use vector instructions. The
# answer for each row is that of ``special_term`` to the last bit. The block begins at row ``first`` and is as
# long as ``total``; ``work`` is scratch memory, float64[4 + PARTS_MAX, BLOCK]. Columns are cut one by one:
# the compiler does not know of a cut matrix that the values of a column lie side by side.


@function
def add_capacity_ratio(  # type: ignore[no-untyped-def]
    allocatable, requested, first, part_column, part_weight, part_value, number, factor, work, total
):
    """Add a RequestedToCapacityRatio term to the totals of a block, int64[n]."""
    rows = len(total)
    end = first + rows
    points = number[1 : 1 + 2 * int(number[0])]
    spans = number[1 + 2 * int(number[0]) :]
    last = len(points) - 2
    weighted, weights, percent = work[0, :rows], work[1, :rows], work[2, :rows]
    score, counts = work[3, :rows], work[4, :rows]
    low_end = spans[0] if len(spans) > 0 else 0.0
    high_end = spans[1] if len(spans) > 0 else 0.0
    for i in range(rows):
        weighted[i] = 0.0
        weights[i] = 0.0
    for p in range(len(part_column)):
        capacity = allocatable[part_column[p], first:end]
        used = requested[part_column[p], first:end]
        weight = part_weight[p]
        for i in range(rows):
            x = min(used[i] + part_value[p], capacity[i]) * 100.0 / max(capacity[i], 1)
            percent[i] = x
            score[i] = points[1]
            counts[i] = weight if (capacity[i] != 0) & (x >= low_end) & (x < high_end) else 0.0
        for s in range(2, len(spans), 2):
            for i in range(rows):
                within = (capacity[i] != 0) & (percent[i] >= spans[s]) & (percent[i] < spans[s + 1])
                counts[i] = weight if within else counts[i]
        for k in range(2, last + 2, 2):
            left = points[k - 2]
            low = points[k - 1]
            slope = (points[k + 1] - low) / (points[k] - left)
            for i in range(rows):
                score[i] = low + slope * (percent[i] - left) if percent[i] > left else score[i]
        for i in range(rows):
            value = points[last + 1] if percent[i] > points[last] else score[i]
            weighted[i] += counts[i] * value
            weights[i] += counts[i]
    for i in range(rows):
        total[i] += whole(weighted[i] / weights[i] if weights[i] > 0.0 else 0.0, factor)


@function
def add_balance(  # type: ignore[no-untyped-def]
    kind, allocatable, requested, first, part_column, part_value, factor, work, total
):
    """Add a BalancedAllocation term, or what the pod changes of it, to the totals of a block, int64[n]."""
    rows = len(total)
    if len(part_column) == 0:
        return
    with_pod, without = work[0, :rows], work[1, :rows]
    _evenness_of_block(allocatable, requested, first, part_column, part_value, 1, work, with_pod)
    if kind != BALANCED_CHANGE:
        for i in range(rows):
            total[i] += whole(with_pod[i], factor)
        return
    _evenness_of_block(allocatable, requested, first, part_column, part_value, 0, work, without)
    for i in range(rows):
        total[i] += whole(50.0 + (50.0 + (with_pod[i] - without[i])) / 2.0, factor)


@function
def _evenness_of_block(  # type: ignore[no-untyped-def]
    allocatable, requested, first, part_column, part_value, pods, work, evenness
):
    """Write the ``_evenness`` of each row of a block."""
    rows = len(evenness)
    parts = len(part_column)
    end = first + rows
    mean, count = work[2, :rows], work[3, :rows]
    for i in range(rows):
        mean[i] = 0.0
        count[i] = 0.0
    for p in range(parts):
        capacity = allocatable[part_column[p], first:end]
        used = requested[part_column[p], first:end]
        added = pods * part_value[p]
        own = work[4 + p, :rows]
        for i in range(rows):
            own[i] = min((used[i] + added) / max(capacity[i], 1), 1.0)
            mean[i] += own[i] if capacity[i] != 0 else 0.0
            count[i] += 1.0 if capacity[i] != 0 else 0.0
    for i in range(rows):
        count[i] = max(count[i], 1.0)
        mean[i] /= count[i]
        evenness[i] = 0.0
    for p in range(parts):
        capacity = allocatable[part_column[p], first:end]
        own = work[4 + p, :rows]
        for i in range(rows):
            apart = own[i] - mean[i]
            evenness[i] += apart * apart if capacity[i] != 0 else 0.0
    for i in range(rows):
        evenness[i] = (1.0 - math.sqrt(evenness[i] / count[i])) * 100.0
