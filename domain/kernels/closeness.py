"""TOPSIS: how far each row is from the best of all that are feasible, over several resources at once.

Source: Hwang and Yoon, "Multiple Attribute Decision Making" (1981); weights by entropy as in the same book.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import CLOSENESS_ONE, METRIC_ONE, UNCOUNTED
from domain.kernels.compiling import helper

DIVERGENCE_MIN = 1e-12
"""Entropies that differ less from that of equal shares differ by rounding."""


@helper
def free_share(offered, used):  # type: ignore[no-untyped-def]
    """Return what is free of a resource in whole units of 2^-20 of what is offered."""
    if offered <= 0:
        return 0
    return int(np.floor(max(offered - used, 0) * float(METRIC_ONE) / offered))


@helper
def _judge(offered, requested, added, weight, feasible, judged):  # type: ignore[no-untyped-def]
    """Look at one resource on the feasible rows; return how many these are.

    Writes into ``judged`` float64[>= 4]: the weight times how much the shares of the rows diverge by entropy,
    the root of the sum of their squares, the highest and the lowest. What is summed up are whole numbers, so
    the order of the rows does not matter.
    """
    rows = 0
    total = 0
    squares = 0
    logarithms = 0
    high = 0
    low = METRIC_ONE
    for i in range(len(feasible)):
        if feasible[i] != 0:
            share = free_share(offered[i], requested[i] + added)
            rows += 1
            total += share
            squares += share * share
            logarithms += int(np.rint(share * np.log(float(max(share, 1))) * METRIC_ONE))
            high = max(high, share)
            low = min(low, share)
    divergence = 0.0
    if rows > 1 and total > 0:
        entropy = (np.log(float(total)) - logarithms / float(METRIC_ONE) / total) / np.log(float(rows))
        divergence = 1.0 - entropy if 1.0 - entropy > DIVERGENCE_MIN else 0.0
    judged[0] = weight * divergence
    judged[1] = np.sqrt(float(squares))
    judged[2] = high
    judged[3] = low
    return rows


@helper
def rate_closeness(  # type: ignore[no-untyped-def]
    allocatable, requested, part_column, part_weight, part_value, feasible, work, growth
):
    """Write how far each feasible row is from the best, 0 to 2^30, with the pod on it.

    Parameters
    ----------
    allocatable, requested : int64[R, N]
    part_column, part_weight, part_value : int32[P], float64[P], int64[P]
        The resources, how much they weigh, and what the pod asks for.
    feasible : uint8[N]
    work : float64[>= P, >= 4]
        Memory.
    growth : int64[N]
        Written: 1 - closeness in units of 2^-30; ``UNCOUNTED`` where a row is not feasible.

    Returns
    -------
    int64
        How many rows are feasible.

    Cost: O(N) per part, and a logarithm each.
    """
    rows = 0
    weights = 0.0
    for p in range(len(part_column)):
        column = part_column[p]
        rows = _judge(
            allocatable[column], requested[column], part_value[p], part_weight[p], feasible, work[p]
        )
        weights += work[p, 0]
    for p in range(len(part_column)):
        weight = work[p, 0] / weights if weights > 0.0 else part_weight[p]
        work[p, 0] = weight / work[p, 1] if work[p, 1] > 0.0 else 0.0
    for i in range(len(feasible)):
        growth[i] = UNCOUNTED
        if feasible[i] != 0:
            best = 0.0
            worst = 0.0
            for p in range(len(part_column)):
                share = free_share(
                    allocatable[part_column[p], i], requested[part_column[p], i] + part_value[p]
                )
                below = work[p, 0] * (work[p, 2] - share)
                above = work[p, 0] * (share - work[p, 3])
                best += below * below
                worst += above * above
            best = np.sqrt(best)
            worst = np.sqrt(worst)
            closeness = worst / (best + worst) if best + worst > 0.0 else 1.0
            growth[i] = int(np.rint((1.0 - closeness) * CLOSENESS_ONE))
    return rows
