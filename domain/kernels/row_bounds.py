"""Upper bounds by the row for totals of whole scores: nearly always the total itself.

A bound is computed in float32 from columns that all groups share, with every cut that the exact score has. It
is negative where a filter refuses the row, and only there.

The bounds of a group are kept until its next turn. Then only those of the rows that changed are computed
anew: what these rows look like is kept once for all groups, in the order of the change log, so that a turn
reads it from one end to the other, many rows at once.

*Why no bound is too low.* One operation in float32 errs by at most u = 2^-24, relatively. Of a resource with
capacity A, of which q is used and a pod asks for v, the exact free share is x = 100 (A - q - v) / A. The
kernel computes free - v * loss, where free is 100 (A - q) / A and loss is 100 / A, both rounded once.

- If 0 <= x, then v <= A and free <= 100. So free errs by 100 u, the product by 300 u (loss, v, the product)
  and their difference by 100 u: 500 u together. If x < 0, then the result is below 500 u, too: either v > A,
  and the product is above 100 - 300 u, or free is at most 100 in size, or it is below -100.
- ``_NEAR`` = 2^-14 = 1024 u is added before a cut. That errs by at most 100 u. As 600 u < 1024 u, the sum is
  at least x, and so is its floor. A row whose result is above
  ``_NEAR`` has room, one below -``_NEAR`` has none. In between the filter itself is asked.
- BalancedAllocation halves the difference of two such shares, each at least 0: 500 u from both together, 50 u
  from the difference, then 100 u each from 100 - it and from adding ``_NEAR``: 750 u < 1024 u.
- ColocationScore is what is left of a room, a whole number rounded once, times 100 / capacity: 300 u from
  that, 100 u from adding ``_NEAR``.
- The weighted mean divides whole numbers below 2^24: 100 u from the quotient, 100 u from adding ``_NEAR``.
- All else are whole numbers, or halves of them, below 2^24: exact.

The exact scores themselves are computed in float64. What that errs by is below 2^-20 u.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BLOCK,
    LEAST_ALLOCATED,
    RECENT_MAX,
    ROOM,
    WHOLE,
    Bounds,
    ChangeLog,
    Columns,
    Groups,
    Scratch,
)
from domain.kernels.compiling import helper, unit
from domain.kernels.filtering import filter_row

_NEAR = 1 / (1 << 14)
"""More than a percentage in float32 can be too low by."""


@helper
def _copy(source, target):  # type: ignore[no-untyped-def]
    for i in range(len(target)):
        target[i] = max(source[i], np.float32(-1.0))


@helper
def _gather(source, rows, target):  # type: ignore[no-untyped-def]
    for i in range(len(target)):
        target[i] = max(source[np.uint32(rows[i])], np.float32(-1.0))


@helper
def _clear(target):  # type: ignore[no-untyped-def]
    for i in range(len(target)):
        target[i] = 0


@helper
def _drop_full(free, loss, value, bound, doubtful):  # type: ignore[no-untyped-def]
    """Refuse the rows of a block that surely lack room for ``value`` of a resource, and mark the doubtful."""
    near = np.float32(_NEAR)
    for i in range(len(bound)):
        left = free[i] - value * loss[i]
        doubtful[i] |= abs(left) <= near
        bound[i] = bound[i] if left >= -near else np.float32(-1.0)


@helper
def _doubt_full(free, doubtful):  # type: ignore[no-untyped-def]
    """Mark the rows that may lack room for nothing: those with too many pods, and those without capacity."""
    for i in range(len(doubtful)):
        doubtful[i] |= free[i] < np.float32(0.0)


@helper
def _add_share(free, loss, value, weight, total, weights):  # type: ignore[no-untyped-def]
    """Add one resource of LeastAllocated to a weighted sum and a sum of weights, float32[n] each."""
    near = np.float32(_NEAR)
    for i in range(len(total)):
        share = np.floor(free[i] - value * loss[i] + near)
        total[i] += weight * max(share, np.float32(0.0))
        weights[i] += weight if loss[i] > np.float32(0.0) else np.float32(0.0)


@helper
def _add_mean(total, weights, weight, bound):  # type: ignore[no-untyped-def]
    near = np.float32(_NEAR)
    for i in range(len(bound)):
        mean = np.floor(total[i] / max(weights[i], np.float32(0.5)) + near)
        bound[i] = bound[i] + weight * mean if bound[i] >= np.float32(0.0) else np.float32(-1.0)


@helper
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


@helper
def _set_full(target):  # type: ignore[no-untyped-def]
    for i in range(len(target)):
        target[i] = np.float32(100.0)


@helper
def _cut_to_room(allocatable, requested, loss, value, percent):  # type: ignore[no-untyped-def]
    """Cut float32[n] to what a block has left of a room, in percent of the capacity of which ``loss`` is."""
    for i in range(len(percent)):
        left = np.float32(allocatable[i] - requested[i] - value)
        percent[i] = min(percent[i], left * loss[i])


@helper
def _cut_to_rooms(allocatable, requested, rows, loss, value, percent):  # type: ignore[no-untyped-def]
    """Do the same for some rows."""
    for i in range(len(percent)):
        row = np.uint32(rows[i])
        left = np.float32(allocatable[row] - requested[row] - value)
        percent[i] = min(percent[i], left * loss[i])


@helper
def _add_percent(percent, weight, bound):  # type: ignore[no-untyped-def]
    near = np.float32(_NEAR)
    zero = np.float32(0.0)
    for i in range(len(bound)):
        score = np.floor(max(percent[i], zero) + near)
        bound[i] = bound[i] + weight * score if bound[i] >= zero else np.float32(-1.0)


@helper
def _any(flags):  # type: ignore[no-untyped-def]
    found = np.int32(0)
    for i in range(len(flags)):
        found |= flags[i]
    return found != 0


@helper
def _store(bound, kept, own):  # type: ignore[no-untyped-def]
    for i in range(len(bound)):
        kept[i] = np.int16(bound[i])
        own[i] = np.int16(bound[i])


@helper
def _take(kept, own):  # type: ignore[no-untyped-def]
    for i in range(len(own)):
        own[i] = kept[i]


@helper
def _scatter(bound, rows, kept, own):  # type: ignore[no-untyped-def]
    """Write the bounds of some rows. Numbers that may be negative would be asked whether they are."""
    for i in range(len(bound)):
        row = np.uint32(rows[i])
        kept[row] = np.int16(bound[i])
        own[row] = np.int16(bound[i])


@helper
def _add_terms(  # type: ignore[no-untyped-def]
    columns, groups, free, loss, changes, g, is_recent, start, first, n, scratch
):
    """Add the bounds of the terms of a group to ``scratch.estimate``; see ``bound_rows``."""
    bound = scratch.estimate[:n]
    total = scratch.share[0, :n]
    weights = scratch.share[1, :n]
    even = scratch.share[2, :n]
    end = first + n
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
                    free[c, first:end], loss[c, first:end], np.float32(groups.part_value[g, p]),
                    np.float32(groups.part_weight[g, p]), total, weights,
                )  # fmt: skip
            _add_mean(total, weights, weight, bound)
        elif groups.term_kind[g, t] == ROOM + WHOLE:
            _set_full(total)
            for p in range(begin, begin + parts, 2):
                whole = loss[groups.part_column[g, p], first:end]
                c = groups.part_column[g, p + 1]
                value = groups.part_value[g, p + 1]
                if is_recent:
                    _cut_to_rooms(
                        columns.allocatable[c], columns.requested[c], changes.rows[start : start + n], whole,
                        value, total,
                    )  # fmt: skip
                else:
                    _cut_to_room(
                        columns.allocatable[c, first:end],
                        columns.requested[c, first:end],
                        whole,
                        value,
                        total,
                    )
            _add_percent(total, weight, bound)
        elif parts > 0:
            c = groups.part_column[g, begin]
            o = groups.part_column[g, begin + parts - 1]
            _add_balance(
                free[c, first:end], loss[c, first:end], np.float32(groups.part_value[g, begin]),
                free[o, first:end], loss[o, first:end],
                np.float32(groups.part_value[g, begin + parts - 1]), even, weight, bound,
            )  # fmt: skip


@helper
def bound_rows(columns, groups, bounds, changes, g, is_recent, start, n, scratch):  # type: ignore[no-untyped-def]
    """Write the bounds of n rows of a group into ``scratch.estimate``: at most ``BLOCK``.

    They are the rows from ``start`` on, or with ``is_recent`` those of the change log from there on.
    """
    part = groups.static_part[g]
    bound = scratch.estimate[:n]
    even = scratch.share[2, :n]
    doubtful = scratch.doubtful[:n]
    free = bounds.recent_free if is_recent else bounds.free
    loss = bounds.recent_loss if is_recent else bounds.loss
    first = start % RECENT_MAX if is_recent else start
    end = first + n
    if is_recent:
        rows = changes.rows[start : start + n]
        _gather(bounds.base[part], rows, bound)
        _gather(bounds.even[part], rows, even)
    else:
        _copy(bounds.base[part, first:end], bound)
        _copy(bounds.even[part, first:end], even)
    _clear(doubtful)
    for d in range(groups.demand_count[g]):
        c = groups.demand_column[g, d]
        if groups.demand_value[g, d] > 0:
            value = np.float32(groups.demand_value[g, d])
            _drop_full(free[c, first:end], loss[c, first:end], value, bound, doubtful)
        else:
            _doubt_full(free[c, first:end], doubtful)
    _add_terms(columns, groups, free, loss, changes, g, is_recent, start, first, n, scratch)
    if _any(doubtful):
        for i in range(n):
            row = changes.rows[start + i] if is_recent else start + i
            if doubtful[i] != 0 and bound[i] >= 0.0 and filter_row(columns, groups, g, row) != 0:
                bound[i] = -1.0


@helper
def percent_free(allocatable, requested):  # type: ignore[no-untyped-def]
    """Return the free share of a resource in percent, -1 where a row has none of it at all."""
    return (allocatable - requested) * 100.0 / allocatable if allocatable > 0 else -1.0


@helper
def _set_free(allocatable, requested, free):  # type: ignore[no-untyped-def]
    for i in range(len(free)):
        free[i] = percent_free(allocatable[i], requested[i])


@helper
def _sync_free(columns, bounds, changes):  # type: ignore[no-untyped-def]
    """Bring the free shares up to date, and keep those of recent changes. ``blocks.sync_blocks`` comes first.

    Cost: O(resources) per row that changed, or O(N) per resource where these are many.
    """
    recent = bounds.recent
    length = changes.length[0]
    if recent[1] < 0 or length - recent[1] > RECENT_MAX:
        for c in range(len(bounds.free)):
            _set_free(columns.allocatable[c], columns.requested[c], bounds.free[c])
        recent[0] = length
        recent[1] = length
    for i in range(recent[1], length):
        row = changes.rows[i]
        for c in range(len(bounds.free)):
            share = percent_free(columns.allocatable[c, row], columns.requested[c, row])
            bounds.free[c, row] = share
            bounds.recent_free[c, i % RECENT_MAX] = share
            bounds.recent_loss[c, i % RECENT_MAX] = bounds.loss[c, row]
    recent[0] = max(recent[0], length - RECENT_MAX)
    recent[1] = length


@unit
def sync_row_bounds(
    columns: Columns, groups: Groups, bounds: Bounds, changes: ChangeLog, g: int, scratch: Scratch
) -> None:
    """Bring the bounds of a group up to date, and write them into ``scratch.bound``.

    Those kept are read from one end to the other before any is changed here and there: they are seldom in a
    near cache. Cost: O(rows changed since its last turn), each with what its terms cost, and O(N), 8 rows at
    once; O(N) with terms where many rows changed, or another group took the place.
    """
    _sync_free(columns, bounds, changes)
    kept = groups.row_bounds
    k = g % len(kept.owner)
    count = columns.rows_count[0]
    length = changes.length[0]
    known = kept.synced[k] if kept.owner[k] == g else -1
    if known < bounds.recent[0] or (length - known) * 2 > count:
        for first in range(0, count, BLOCK):
            n = min(BLOCK, count - first)
            bound_rows(columns, groups, bounds, changes, g, False, first, n, scratch)
            _store(scratch.estimate[:n], kept.bound[k, first : first + n], scratch.bound[first : first + n])
    else:
        _take(kept.bound[k, :count], scratch.bound[:count])
        while known < length:
            n = min(BLOCK, length - known, RECENT_MAX - known % RECENT_MAX)
            bound_rows(columns, groups, bounds, changes, g, True, known, n, scratch)
            _scatter(scratch.estimate[:n], changes.rows[known : known + n], kept.bound[k], scratch.bound)
            known += n
    kept.owner[k] = g
    kept.synced[k] = length
