"""Upper bounds by the row for totals of whole scores: nearly always the total itself.

Where every score of a group is cut to a whole number, most rows tie with many others, and no bound per block
of rows tells them apart. So each row gets a bound of its own, in float32 from columns that all groups share,
with every cut that the exact score has. Of the rows with the highest bound the one with the smallest tie is
scored exactly. If its bound was too high, it is put back with its exact total, and the next one is asked.
If it was right, the row is the best one: no bound is below its total.

*Why no bound is too low.* One operation in float32 errs by at most u = 2^-24, relatively. Of a resource with
capacity A, of which q is used and a pod asks for v, the exact free share is x = 100 (A - q - v) / A. The
kernel computes free - v * loss, where free is 100 (A - q) / A and loss is 100 / A, both rounded once.

- If 0 <= x, then v <= A and free <= 100. So free errs by 100 u, the product by 300 u (loss, v, the product)
  and their difference by 100 u: 500 u together. If x < 0, then the result is below 500 u, too: either v > A,
  and the product is above 100 - 300 u, or free is at most 100 in size, or it is below -100.
- ``_NEAR`` = 2^-14 = 1024 u is added before a cut. That errs by at most 100 u. As 600 u < 1024 u, the sum is
  at least x, and so is its floor. As x is tested against -``_NEAR``, no row with room is refused.
- BalancedAllocation halves the difference of two such shares, each at least 0: 500 u from both together, 50 u
  from the difference, then 100 u each from 100 - it and from adding ``_NEAR``: 750 u < 1024 u.
- The weighted mean divides whole numbers below 2^24: 100 u from the quotient, 100 u from adding ``_NEAR``.
- All else are whole numbers, or halves of them, below 2^24: exact.

The exact scores themselves are computed in float64. What that errs by is below 2^-20 u.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BALANCED_CHANGE,
    BLOCK,
    INFEASIBLE,
    LEAST_ALLOCATED,
    TOP,
    TOTAL_ONE,
    UNKNOWN,
    WHOLE,
)
from domain.kernels.blocks import blocks_of, sync_blocks
from domain.kernels.branch_and_bound import count_reasons, sync_base
from domain.kernels.compiling import function, helper, inner
from domain.kernels.counting import has_counts
from domain.kernels.explain import explain_attempt
from domain.kernels.filtering import filter_row
from domain.kernels.scoring import score_row
from domain.kernels.ties import mix

_NEAR = 1 / (1 << 14)
"""More than a percentage in float32 can be too low by."""

_WRONG_MAX = 16
"""Give up after 16 bounds that were too high, and scan."""

_WEIGHT_MAX = 1_000.0
"""Sums of whole scores with whole weights up to 1,000 are exact in float32."""

_LAST_TIE = 0xFFFF_FFFF_FFFF_FFFF


@helper
def has_whole_bounds(groups, g):  # type: ignore[no-untyped-def]
    """Say whether the totals of a group are whole scores that have a bound by the row."""
    part = groups.static_part[g]
    bounded = groups.static_whole[part] != 0 and groups.raws_varying[part] == 0 and not has_counts(groups, g)
    bounded = bounded and groups.variance_count[g] + groups.limit_count[g] == 0
    balanced = 0
    for t in range(groups.term_count[g]):
        begin = groups.term_first[g, t]
        end = groups.term_first[g, t + 1]
        kind = groups.term_kind[g, t]
        balanced += kind == BALANCED_CHANGE + WHOLE
        known = kind == LEAST_ALLOCATED + WHOLE or (kind == BALANCED_CHANGE + WHOLE and end - begin <= 2)
        bounded = bounded and known and _is_whole_weight(groups.term_weight[g, t])
        for p in range(begin, end):
            bounded = bounded and _is_whole_weight(groups.part_weight[g, p])
    return bounded and balanced <= 1  # ``bounds.even`` is of one term


@function
def _is_whole_weight(weight):  # type: ignore[no-untyped-def]
    return weight >= 0.0 and weight <= _WEIGHT_MAX and weight == np.floor(weight)


@function
def _copy(source, target):  # type: ignore[no-untyped-def]
    for i in range(len(target)):
        target[i] = max(source[i], np.float32(-1.0))


@function
def _clear(target):  # type: ignore[no-untyped-def]
    for i in range(len(target)):
        target[i] = np.float32(0.0)


@function
def _drop_full(free, loss, value, bound):  # type: ignore[no-untyped-def]
    """Refuse the rows of a block that surely lack room for ``value`` of a resource."""
    least = -np.float32(_NEAR)
    for i in range(len(bound)):
        bound[i] = bound[i] if free[i] - value * loss[i] >= least else np.float32(-1.0)


@function
def _add_share(free, loss, value, weight, total, weights):  # type: ignore[no-untyped-def]
    """Add one resource of LeastAllocated to a weighted sum and a sum of weights, float32[n] each."""
    near = np.float32(_NEAR)
    for i in range(len(total)):
        share = np.floor(free[i] - value * loss[i] + near)
        total[i] += weight * max(share, np.float32(0.0))
        weights[i] += weight if loss[i] > np.float32(0.0) else np.float32(0.0)


@function
def _add_mean(total, weights, weight, bound):  # type: ignore[no-untyped-def]
    near = np.float32(_NEAR)
    for i in range(len(bound)):
        mean = np.floor(total[i] / max(weights[i], np.float32(0.5)) + near)
        bound[i] = bound[i] + weight * mean if bound[i] >= np.float32(0.0) else np.float32(-1.0)


@function
def _add_balance(  # type: ignore[no-untyped-def]
    free, loss, value, other_free, other_loss, other_value, even, weight, bound
):
    """Add BalancedAllocation of two resources; ``even`` float32[n] is the evenness without the pod."""
    zero = np.float32(0.0)
    near = np.float32(_NEAR)
    for i in range(len(bound)):
        one = max(free[i] - value * loss[i], zero)
        other = max(other_free[i] - other_value * other_loss[i], zero)
        apart = abs(one - other) * np.float32(0.5)
        apart = apart if (loss[i] > zero) & (other_loss[i] > zero) else zero
        with_pod = np.floor(np.float32(100.0) - apart + near)
        score = np.float32(50.0) + np.floor((np.float32(50.0) + with_pod - even[i]) * np.float32(0.5))
        bound[i] = bound[i] + weight * score if bound[i] >= zero else np.float32(-1.0)


@function
def _to_whole(bound, whole):  # type: ignore[no-untyped-def]
    for i in range(len(bound)):
        whole[i] = np.int32(bound[i])


@function
def _highest(bound):  # type: ignore[no-untyped-def]
    """Return the highest of int32[n]: by itself and of whole numbers, or no vector instructions are made."""
    highest = np.int32(-1)
    for i in range(len(bound)):
        highest = max(highest, bound[i])
    return highest


@inner
def set_row_bounds(columns, groups, bounds, g, scratch):  # type: ignore[no-untyped-def]
    """Write the bound of every row, and the highest of each block. Cost: O(N) per resource."""
    part = groups.static_part[g]
    count = columns.rows_count[0]
    for first in range(0, count, BLOCK):
        end = min(first + BLOCK, count)
        n = end - first
        bound = scratch.estimate[:n]
        total = scratch.share[0, :n]
        weights = scratch.share[1, :n]
        _copy(bounds.base[part, first:end], bound)
        for d in range(groups.demand_count[g]):
            c = groups.demand_column[g, d]
            if groups.demand_value[g, d] > 0:
                value = np.float32(groups.demand_value[g, d])
                _drop_full(bounds.free[c, first:end], bounds.loss[c, first:end], value, bound)
        for t in range(groups.term_count[g]):
            begin = groups.term_first[g, t]
            parts = groups.term_first[g, t + 1] - begin
            weight = np.float32(groups.term_weight[g, t])
            if groups.term_kind[g, t] == LEAST_ALLOCATED + WHOLE:
                _clear(total)
                _clear(weights)
                for p in range(begin, begin + parts):
                    c = groups.part_column[g, p]
                    _add_share(
                        bounds.free[c, first:end], bounds.loss[c, first:end],
                        np.float32(groups.part_value[g, p]), np.float32(groups.part_weight[g, p]), total,
                        weights,
                    )  # fmt: skip
                _add_mean(total, weights, weight, bound)
            elif parts > 0:
                c = groups.part_column[g, begin]
                o = groups.part_column[g, begin + parts - 1]
                _add_balance(
                    bounds.free[c, first:end], bounds.loss[c, first:end],
                    np.float32(groups.part_value[g, begin]), bounds.free[o, first:end],
                    bounds.loss[o, first:end], np.float32(groups.part_value[g, begin + parts - 1]),
                    bounds.even[part, first:end], weight, bound,
                )  # fmt: skip
        _to_whole(bound, scratch.bound[first:end])
        scratch.block_highest[first // BLOCK] = _highest(scratch.bound[first:end])
        scratch.block_tie[first // BLOCK] = 0


@function
def _smallest_tie(bound, tie, level, salt):  # type: ignore[no-untyped-def]
    """Return the smallest salted tie value of the rows with a bound of ``level``."""
    smallest = np.uint64(_LAST_TIE)
    for i in range(len(bound)):
        salted = mix(tie[i] ^ salt)
        smallest = min(smallest, salted if bound[i] == level else np.uint64(_LAST_TIE))
    return smallest


@function
def _find_tie(bound, tie, level, salt, wanted):  # type: ignore[no-untyped-def]
    """Return the first row with a bound of ``level`` and this salted tie value."""
    for i in range(len(bound)):
        if bound[i] == level and mix(tie[i] ^ salt) == wanted:
            return i
    return 0


@helper
def _find_first(columns, groups, g, blocks, scratch):  # type: ignore[no-untyped-def]
    """Return the row with the highest bound, of equal ones that with the smallest tie; -1: none is left.

    The smallest tie of a block is computed when it is first asked for, and kept; 0: not yet.
    """
    salt = groups.salt[g]
    count = columns.rows_count[0]
    level = _highest(scratch.block_highest[:blocks])
    smallest = np.uint64(_LAST_TIE)
    at = -1
    for b in range(blocks if level >= 0 else 0):
        if scratch.block_highest[b] == level:
            first = b * BLOCK
            end = min(first + BLOCK, count)
            if scratch.block_tie[b] == np.uint64(0):
                scratch.block_tie[b] = _smallest_tie(
                    scratch.bound[first:end], columns.tie[first:end], level, salt
                )  # fmt: skip
            if at < 0 or scratch.block_tie[b] < smallest:
                smallest = scratch.block_tie[b]
                at = b
    row = -1
    if at >= 0:
        first = at * BLOCK
        end = min(first + BLOCK, count)
        row = first + _find_tie(scratch.bound[first:end], columns.tie[first:end], level, salt, smallest)
    return row


@helper
def _set_bound(columns, row, bound, scratch):  # type: ignore[no-untyped-def]
    """Change the bound of a row. Cost: O(BLOCK)."""
    b = row // BLOCK
    scratch.bound[row] = bound
    scratch.block_highest[b] = _highest(
        scratch.bound[b * BLOCK : min((b + 1) * BLOCK, columns.rows_count[0])]
    )  # fmt: skip
    scratch.block_tie[b] = 0


@inner
def search_whole(  # type: ignore[no-untyped-def]
    columns, groups, bounds, changes, placed, g, attempt, wanted, scratch
):
    """Find the best row of a group by bounds of the row: the answer of ``scan``.

    The best rows are taken out one by one. Each is scored exactly, and put back where its bound was too high.

    Parameters and what is returned are those of ``branch_and_bound.search``; ``UNKNOWN`` where many bounds
    were too high. Cost: O(N), 8 rows at once.
    """
    sync_blocks(columns, bounds, changes, scratch.marks)
    sync_base(columns, groups, bounds, changes, g, scratch)
    set_row_bounds(columns, groups, bounds, g, scratch)
    blocks = (columns.rows_count[0] + BLOCK - 1) // BLOCK
    kept = 0
    wrong = 0
    row = 0
    best = np.int64(INFEASIBLE)
    while kept < wanted and row >= 0 and wrong < _WRONG_MAX:
        row = _find_first(columns, groups, g, blocks, scratch)
        if row >= 0:
            score = np.int64(INFEASIBLE)
            if filter_row(columns, groups, g, row) == 0:
                score = score_row(columns, groups, g, row, scratch)
            if score != np.int64(scratch.bound[row]) * TOTAL_ONE:
                wrong += 1
                _set_bound(columns, row, max(score // TOTAL_ONE, -1), scratch)
            else:
                if kept == 0:
                    best = score
                    scratch.row[0] = row
                if wanted == TOP:
                    placed.top_row[attempt, kept] = row
                    placed.top_score[attempt, kept] = score
                    _set_bound(columns, row, -1, scratch)
                kept += 1
    if wrong == _WRONG_MAX:
        for i in range(kept if wanted == TOP else 0):
            placed.top_row[attempt, i] = -1
            placed.top_score[attempt, i] = 0
        return UNKNOWN
    if wanted == TOP:
        count_reasons(columns, groups, bounds, g, blocks_of(columns, bounds), scratch.histogram)
        explain_attempt(columns, groups, placed, g, attempt, kept, scratch)
    return best
