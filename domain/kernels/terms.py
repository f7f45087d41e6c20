"""Resource terms: each score that depends on what is requested of a node, for a block of rows at once.

Every function writes the scores, 0..100, of the rows ``first .. first + n - 1`` with the pod on them, into
``value`` float64[n]. ``allocatable`` and ``requested`` are int64[R, N]; ``part_column`` int32[P],
``part_weight`` float64[P] and ``part_value`` int64[P] are the parts of the term; ``number`` float64[M] its
numbers; ``work`` float64[W, >= n] is scratch memory. Columns are cut to the block one by one: the compiler
makes vector instructions of an index that counts up from 0, and does not know of a cut matrix that the values
of a column lie side by side. Each costs O(n) per part.

``whole`` is true for upstream's whole-number arithmetic (``arithmetic: integer``), where every division is
cut to a whole number. The floor of a quotient in float64 is exact while 100 times the amount is below 2^52.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BALANCED,
    BALANCED_CHANGE,
    BALANCED_PAIR,
    CAPACITY_RATIO,
    DEVICES,
    LEAST_ALLOCATED,
    LOAD_VARIATION,
    LOW_RISK,
    MOST_ALLOCATED,
    ROOM,
    SEARCH,
    TARGET_LOAD,
    WHOLE,
)
from domain.kernels.compiling import helper, unit
from domain.kernels.device_terms import rate_by_devices
from domain.kernels.risk import over_commitment
from domain.kernels.tables import Amounts, Flags, Measured, PartColumns, Reals, Totals


@helper
def rate_term(  # type: ignore[no-untyped-def]
    kind, allocatable, requested, measured, fits, first, part_column, part_weight, part_value, number, work,
    value,
):  # fmt: skip
    """Write the scores of a block by a term of any kind.

    ``kind`` is a constant of ``domain.kernels.arrays``, with ``WHOLE`` added for whole-number arithmetic.
    ``measured`` float64[K, N] begins with the columns that the term reads; ``fits`` uint8[n] says which rows
    are feasible: the dearest terms rate no others.
    """
    whole = kind >= WHOLE
    plain = kind - WHOLE if whole else kind
    if plain in (LEAST_ALLOCATED, MOST_ALLOCATED):
        _rate_allocated(
            plain == LEAST_ALLOCATED, whole, allocatable, requested, first, part_column, part_weight,
            part_value, work[0, : len(value)], value,
        )  # fmt: skip
    elif plain in (BALANCED, BALANCED_CHANGE):
        _rate_balance(
            plain == BALANCED_CHANGE, whole, allocatable, requested, first, part_column, part_value, work,
            value,
        )  # fmt: skip
    else:
        rate_other_term(
            kind, allocatable, requested, measured, fits, first, part_column, part_weight, part_value, number,
            work, value,
        )  # fmt: skip


@unit
def rate_other_term(
    kind: int,
    allocatable: Amounts,
    requested: Amounts,
    measured: Measured,
    fits: Flags,
    first: int,
    part_column: PartColumns,
    part_weight: Reals,
    part_value: Totals,
    number: Reals,
    work: Measured,
    value: Reals,
) -> None:
    """Write the scores of a block by a term of a kind that the default profile does not have.

    The parameters are those of ``rate_term``.
    """
    whole = kind >= WHOLE
    plain = kind - WHOLE if whole else kind
    if plain == CAPACITY_RATIO and whole:
        _rate_whole_curve(
            allocatable, requested, first, part_column, part_weight, part_value, number,
            work[0, : len(value)], value,
        )  # fmt: skip
    elif plain == CAPACITY_RATIO:
        _rate_curve(
            allocatable, requested, first, part_column, part_weight, part_value, number, work, value
        )  # fmt: skip
    elif plain == TARGET_LOAD:
        _rate_target_load(
            allocatable, requested, measured[0, first:], first, part_column, part_weight, part_value,
            number[0], value,
        )  # fmt: skip
    elif plain == LOW_RISK:
        _rate_low_risk(
            allocatable, requested, measured, fits, first, part_column, part_weight, part_value, number, value
        )  # fmt: skip
    elif plain == BALANCED_PAIR:
        _rate_pair(allocatable, requested, first, part_column, part_value, value)
    elif plain == ROOM:
        _rate_room(whole, allocatable, requested, first, part_column, part_value, value)
    elif plain == LOAD_VARIATION:
        _rate_load_variation(
            allocatable, requested, measured, first, part_column, part_value, number[0] != 0.0, value
        )  # fmt: skip
    elif plain == SEARCH:
        _rate_search(allocatable, requested, measured, first, part_column, part_value, number, value)
    else:
        rate_by_devices(
            plain - DEVICES, allocatable, requested, measured, fits, first, part_column, part_value, number,
            work, value,
        )  # fmt: skip


@helper
def _divide(value, weights, whole):  # type: ignore[no-untyped-def]
    """Divide the weighted sums by the sums of weights, 0 where there is no weight."""
    for i in range(len(value)):
        mean = value[i] / (weights[i] if weights[i] > 0.0 else 1.0)
        value[i] = np.floor(mean) if whole else mean


@helper
def _rate_allocated(  # type: ignore[no-untyped-def]
    least, whole, allocatable, requested, first, part_column, part_weight, part_value, weights, value
):
    """Rate by the weighted mean of the free (``least``) or the used shares. Source: NodeResourcesFit."""
    n = len(value)
    for i in range(n):
        value[i] = 0.0
        weights[i] = 0.0
    for p in range(len(part_column)):
        offered = allocatable[part_column[p], first : first + n]
        used = requested[part_column[p], first : first + n]
        weight = part_weight[p]
        added = part_value[p]
        for i in range(n):
            capacity = offered[i]
            left = max(capacity - (used[i] + added), 0)
            amount = left if least else min(used[i] + added, capacity)
            share = amount * 100.0 / max(capacity, 1)
            value[i] += weight * (np.floor(share) if whole else share)
            weights[i] += weight if capacity != 0 else 0.0
    _divide(value, weights, whole)


@helper
def _rate_curve(  # type: ignore[no-untyped-def]
    allocatable, requested, first, part_column, part_weight, part_value, number, work, value
):
    """Rate by RequestedToCapacityRatio in real numbers.

    ``number`` holds how many points the curve has, utilisation and score of each, then the ends of the spans
    [from, below) of percentages that count.
    """
    n = len(value)
    points = number[1 : 1 + 2 * int(number[0])]
    spans = number[1 + 2 * int(number[0]) :]
    last = len(points) - 2
    weights, percent, score, counts = work[0, :n], work[1, :n], work[2, :n], work[3, :n]
    for i in range(n):
        value[i] = 0.0
        weights[i] = 0.0
    for p in range(len(part_column)):
        capacity = allocatable[part_column[p], first : first + n]
        used = requested[part_column[p], first : first + n]
        for i in range(n):
            percent[i] = min(used[i] + part_value[p], capacity[i]) * 100.0 / max(capacity[i], 1)
            score[i] = points[1]
            counts[i] = 0.0
        for s in range(0, len(spans), 2):
            for i in range(n):
                within = (capacity[i] != 0) & (percent[i] >= spans[s]) & (percent[i] < spans[s + 1])
                counts[i] = part_weight[p] if within else counts[i]
        for k in range(2, last + 2, 2):
            left = points[k - 2]
            low = points[k - 1]
            slope = (points[k + 1] - low) / (points[k] - left)
            for i in range(n):
                score[i] = low + slope * (percent[i] - left) if percent[i] > left else score[i]
        for i in range(n):
            reached = points[last + 1] if percent[i] > points[last] else score[i]
            value[i] += counts[i] * reached
            weights[i] += counts[i]
    _divide(value, weights, False)


@helper
def _rate_whole_curve(  # type: ignore[no-untyped-def]
    allocatable, requested, first, part_column, part_weight, part_value, number, weights, value
):
    """Rate by RequestedToCapacityRatio in whole numbers; ``number`` float64[101] is the score per percent.

    A resource whose score is 0 does not count. The mean is rounded half up.
    """
    n = len(value)
    for i in range(n):
        value[i] = 0.0
        weights[i] = 0.0
    for p in range(len(part_column)):
        offered = allocatable[part_column[p], first : first + n]
        used = requested[part_column[p], first : first + n]
        for i in range(n):
            if offered[i] != 0:
                percent = min(used[i] + part_value[p], offered[i]) * 100.0 / offered[i]
                score = number[int(percent)]
                value[i] += part_weight[p] * score
                weights[i] += part_weight[p] if score > 0.0 else 0.0
    _divide(value, weights, False)
    for i in range(n):
        value[i] = np.floor(value[i] + 0.5)


@helper
def _rate_balance(  # type: ignore[no-untyped-def]
    change, whole, allocatable, requested, first, part_column, part_value, work, value
):
    """Rate by BalancedAllocation: how even the used shares are, or what the pod changes of it."""
    n = len(value)
    if len(part_column) == 0:
        for i in range(n):
            value[i] = 0.0
        return
    rate_evenness(allocatable, requested, first, part_column, part_value, 1, whole, work, value)
    if change:
        without = work[0, :n]
        rate_evenness(allocatable, requested, first, part_column, part_value, 0, whole, work, without)
        for i in range(n):
            half = (50.0 + value[i] - without[i]) / 2.0
            value[i] = 50.0 + (np.floor(half) if whole else half)


@helper
def rate_evenness(  # type: ignore[no-untyped-def]
    allocatable, requested, first, part_column, part_value, pods, whole, work, value
):
    """Write 100 x (1 - standard deviation of the used shares), with ``pods`` of the pod on each row.

    The deviation of two shares is half their difference, which rounds otherwise than the root of the mean of
    squares. ``work[0]`` is left alone.
    """
    n = len(value)
    mean, count, low, high = work[1, :n], work[2, :n], work[3, :n], work[4, :n]
    for i in range(n):
        mean[i] = 0.0
        count[i] = 0.0
        low[i] = 1.0
        high[i] = 0.0
    for p in range(len(part_column)):
        offered = allocatable[part_column[p], first : first + n]
        used = requested[part_column[p], first : first + n]
        added = pods * part_value[p]
        own = work[5 + p, :n]
        for i in range(n):
            share = min((used[i] + added) / max(offered[i], 1), 1.0)
            own[i] = share
            low[i] = min(low[i], share) if offered[i] != 0 else low[i]
            high[i] = max(high[i], share) if offered[i] != 0 else high[i]
            mean[i] += share if offered[i] != 0 else 0.0
            count[i] += 1.0 if offered[i] != 0 else 0.0
    for i in range(n):
        value[i] = (high[i] - low[i]) / 2.0 if count[i] == 2.0 else 0.0
    if len(part_column) > 2:
        _deviate(allocatable, first, part_column, work, value)
    for i in range(n):
        even = (1.0 - value[i]) * 100.0
        value[i] = np.floor(even) if whole else even


@helper
def _deviate(allocatable, first, part_column, work, value):  # type: ignore[no-untyped-def]
    """Write the standard deviation of the shares ``work[5:]`` of rows with more than two of them."""
    n = len(value)
    mean, count, squares = work[1, :n], work[2, :n], work[3, :n]
    for i in range(n):
        mean[i] /= max(count[i], 1.0)
        squares[i] = 0.0
    for p in range(len(part_column)):
        offered = allocatable[part_column[p], first : first + n]
        own = work[5 + p, :n]
        for i in range(n):
            apart = own[i] - mean[i]
            squares[i] += apart * apart if offered[i] != 0 else 0.0
    for i in range(n):
        value[i] = np.sqrt(squares[i] / count[i]) if count[i] > 2.0 else value[i]


@helper
def _rate_target_load(  # type: ignore[no-untyped-def]
    allocatable, requested, measured, first, part_column, part_weight, part_value, target, value
):
    """Rate by TargetLoadPacking; ``measured`` float64[>= n] is the used percentage of each row.

    The first part names the capacity. The others are the claims that were not measured yet.
    """
    for i in range(len(value)):
        percent = measured[i]
        capacity = allocatable[part_column[0], first + i]
        used = 0.0
        if capacity > 0:
            claimed = 0.0
            for p in range(1, len(part_column)):
                claimed += part_weight[p] * (requested[part_column[p], first + i] + part_value[p])
            used = percent + 100.0 * claimed / capacity
        score = 0.0
        if percent != percent:
            score = 0.0
        elif used <= target:
            score = (100.0 - target) * used / target + target
        elif used <= 100.0:
            score = target * (100.0 - used) / (100.0 - target)
        value[i] = score


@helper
def _rate_low_risk(  # type: ignore[no-untyped-def]
    allocatable, requested, measured, fits, first, part_column, part_weight, part_value, number, value
):
    """Rate by LowRiskOverCommitment.

    A resource has two parts, the requests and what the limits exceed them by, and two measured columns, mean
    and deviation. Behind all these may stand what pods are expected to use that came since: a part for each.
    """
    in_flight = len(part_column) > 4
    resources = 2 if in_flight else len(part_column) // 2
    for i in range(len(value)):
        worst = 0.0
        is_measured = False
        row = first + i
        for r in range(resources if fits[i] != 0 else 0):
            mean = measured[2 * r, row]
            capacity = allocatable[part_column[2 * r + 1], row]
            if in_flight and capacity > 0:
                mean += requested[part_column[4 + r], row] / capacity
                mean = 1.0 if mean > 1.0 else mean  # as NaN stays NaN
            request = requested[part_column[2 * r], row]
            limit = request + requested[part_column[2 * r + 1], row]
            own = part_value[2 * r]
            risk = over_commitment(
                mean, measured[2 * r + 1, row], number[0], part_weight[2 * r], request, limit,
                allocatable[part_column[2 * r], row], own, own + part_value[2 * r + 1],
            )  # fmt: skip
            worst = max(worst, risk)
            is_measured = is_measured or measured[2 * r, row] == measured[2 * r, row]
        value[i] = 100.0 * (1.0 - worst) if is_measured else 0.0


@helper
def _rate_pair(allocatable, requested, first, part_column, part_value, value):  # type: ignore[no-untyped-def]
    """Rate by BRA: 100 less the difference of the used shares of two resources, in percent."""
    for i in range(len(value)):
        low = 1.0
        high = 0.0
        for p in range(len(part_column)):
            used = requested[part_column[p], first + i] + part_value[p]
            share = min(used / max(allocatable[part_column[p], first + i], 1), 1.0)
            low = min(low, share)
            high = max(high, share)
        value[i] = 100.0 - (high - low) * 100.0


@helper
def _rate_room(  # type: ignore[no-untyped-def]
    whole, allocatable, requested, first, part_column, part_value, value
):
    """Rate by ColocationScore: the scarcest share of the capacity that is left of what is lent.

    A resource has two parts, its capacity and its room.
    """
    for i in range(len(value)):
        row = first + i
        least = 100.0
        for p in range(0, len(part_column), 2):
            capacity = allocatable[part_column[p], row]
            room = allocatable[part_column[p + 1], row] - requested[part_column[p + 1], row]
            left = max(room - part_value[p + 1], 0)
            least = min(least, left * 100.0 / capacity if capacity > 0 else 0.0)
        value[i] = np.floor(least) if whole else least


@helper
def _rate_load_variation(  # type: ignore[no-untyped-def]
    allocatable, requested, measured, first, part_column, part_value, halved, value
):
    """Rate by LoadVariationRiskBalancing, with what pods are expected to use that came since.

    A resource has two parts, its capacity and these estimates, and two measured columns, the mean as a share
    and sigma.
    """
    for i in range(len(value)):
        row = first + i
        worst = 0.0
        is_measured = False
        for r in range(len(part_column) // 2):
            mean = measured[2 * r, row]
            if mean == mean:
                capacity = allocatable[part_column[2 * r], row]
                risk = 1.0
                if capacity > 0:
                    used = requested[part_column[2 * r + 1], row] + part_value[2 * r + 1]
                    risk = min(mean + used / capacity, 1.0) + measured[2 * r + 1, row]
                    risk = risk / 2.0 if halved else min(risk, 1.0)
                worst = max(worst, risk)
                is_measured = True
        value[i] = 100.0 * (1.0 - worst) if is_measured else 0.0


@helper
def _type_of_pod(allocatable, row, part_column, part_value):  # type: ignore[no-untyped-def]
    """Return 1 for a pod that is compressible on a row, 2 for an incompressible one, 0 for a balanced one."""
    for p in range(4):
        if part_value[p] <= 0 or allocatable[part_column[p], row] <= 0:
            return 0
    cpu = part_value[0] / allocatable[part_column[0], row]
    memory = part_value[1] / allocatable[part_column[1], row]
    network = part_value[2] / allocatable[part_column[2], row]
    disk = part_value[3] / allocatable[part_column[3], row]
    if cpu > memory and network > disk:
        return 1
    return 2 if cpu < memory and network < disk else 0


@helper
def _rate_search(  # type: ignore[no-untyped-def]
    allocatable, requested, measured, first, part_column, part_value, number, value
):
    """Rate by SearchScore, 100 (S + 1) / 3, where S is between -1 and 2.

    There are four parts. ``number`` float64[29] holds 1 if loads are measured and 0 if not, the critical load
    of each part, and twelve weights of what is available, then of loads: those of the parts for a balanced
    pod, for a compressible and for an incompressible one. Behind the four parts may stand four with the
    capacities, and four with what pods are expected to use that came since the measurement.
    """
    in_flight = len(part_column) > 4
    for i in range(len(value)):
        row = first + i
        weight = 5 + 4 * _type_of_pod(allocatable, row, part_column, part_value)
        available = 0.0
        available_weights = 0.0
        load = 0.0
        load_weights = 0.0
        for p in range(4):
            offered = allocatable[part_column[p], row]
            if offered > 0:
                asked = part_value[p]
                used = requested[part_column[p], row]
                free = offered - used
                left = 1.0
                if asked > 0:
                    left = 1.0 - asked / free if free > asked else 0.0
                loaded = (used + asked) / offered
                if number[0] != 0.0 and measured[p, row] == measured[p, row]:
                    loaded = measured[p, row] / 100.0
                    if in_flight:
                        expected = requested[part_column[8 + p], row] + part_value[8 + p]
                        loaded += expected / max(allocatable[part_column[4 + p], row], 1)
                    else:
                        loaded += asked / offered
                available += number[weight + p] * left
                available_weights += number[weight + p]
                load += number[weight + 12 + p] * (number[1 + p] - min(loaded, 1.0))
                load_weights += number[weight + 12 + p]
        available = available / available_weights if available_weights > 0.0 else 0.0
        load = load / load_weights if load_weights > 0.0 else 0.0
        value[i] = 100.0 * (available + load + 1.0) / 3.0
