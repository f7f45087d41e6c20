"""Branch and bound: find the best row without a look at most of them.

Two upper bounds say where the best row cannot be.

*Per block of rows.* All groups with the same static part share one number per row, its *base*: the score of a
pod that asks for nothing. The highest base of a block, less what every row of the block loses at least by
this pod, is the block's upper bound. The search visits the blocks in falling order of their upper bounds and
stops when the next one is below the best score found.

*Per row.* Where every row of a block has room for the pod, the loss of each row is known to within rounding.
Three short columns then give an estimate, and only the rows whose estimate reaches the best score are scored.

Rows that are equal are looked at as one (``equal_rows.py``). Only scores that fall with what a pod asks for
(``LEAST_ALLOCATED``) have upper bounds of this kind.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BALANCED_CHANGE,
    INFEASIBLE,
    LEAST_ALLOCATED,
    NOT_HOME,
    TOP,
    TOTAL_ONE,
    UNKNOWN,
    WHOLE,
    Bounds,
    ChangeLog,
    Columns,
    Groups,
    Placed,
    Scratch,
)
from domain.kernels.blocks import has_room, span_of, summarise, sync_blocks
from domain.kernels.compiling import helper, unit
from domain.kernels.equal_rows import (
    ALL_FIT,
    SOME_FIT,
    are_equal_rows_of,
    best_equal_rows,
    discard_equal_row,
    find_equal_rows,
    fit_equal_rows,
    forget_equal_rows,
)
from domain.kernels.explain import explain_attempt
from domain.kernels.filtering import clear_histogram, filter_row, fit_block
from domain.kernels.scoring import score_block, score_row
from domain.kernels.terms import rate_evenness
from domain.kernels.top_k import keep_best

_ROUNDING = 1e-7
"""Relative error of one operation in float32, rounded up: rounding to 24 bits takes at most 6e-8."""

_BEST_FIRST = 8
"""The first 8 blocks are visited best first, the others in order: finding the best one costs a pass each."""

_DENSE_SHARE = 4
"""Score a block as a whole when more than a quarter of its rows could be the best."""


@helper
def has_upper_bounds(groups, g):  # type: ignore[no-untyped-def]
    """Say whether every score of a group falls with what its pods ask for."""
    bounded = groups.raws_varying[groups.static_part[g]] + groups.variance_count[g] == 0
    for t in range(groups.term_count[g]):
        bounded = bounded and groups.term_kind[g, t] == LEAST_ALLOCATED
    return bounded


@helper
def _set_base(columns, groups, bounds, g, row, scratch):  # type: ignore[no-untyped-def]
    """Write the base of a row: the score of a pod that asks for nothing.

    Of whole scores (``whole_bounds.py``) it has none, but the evenness of what the row's pods use is kept.
    """
    part = groups.static_part[g]
    score = -np.inf
    is_equal_row = are_equal_rows_of(bounds.equal_rows, part) and bounds.equal_rows.at[row] >= 0
    if row < columns.rows_count[0] and groups.static_code[part, row] == 0 and not is_equal_row:
        score = (groups.static_score[part, row] + groups.static_constant[part]) / TOTAL_ONE
        for t in range(groups.term_count[g]):
            begin = groups.term_first[g, t]
            parts = groups.term_first[g, t + 1]
            if groups.term_kind[g, t] == BALANCED_CHANGE + WHOLE:
                rate_evenness(
                    columns.allocatable, columns.requested, row, groups.part_column[g, begin:parts],
                    groups.part_value[g, begin:parts], 0, True, scratch.work, scratch.value[:1],
                )  # fmt: skip
                bounds.even[part, row] = scratch.value[0]
            if groups.term_kind[g, t] != LEAST_ALLOCATED:
                continue
            total = 0.0
            weights = 0.0
            for p in range(begin, parts):
                capacity = columns.allocatable[groups.part_column[g, p], row]
                free = max(capacity - columns.requested[groups.part_column[g, p], row], 0)
                total += groups.part_weight[g, p] * (free * 100.0 / max(capacity, 1))
                weights += groups.part_weight[g, p] if capacity != 0 else 0.0
            score += groups.term_weight[g, t] * (total / (weights if weights > 0.0 else 1.0))
    bounds.base[part, row] = score


@helper
def _summarise_base(base, static_code, best, refused, b):  # type: ignore[no-untyped-def]
    """Write the highest base of a block, and how many of its rows at home the static filters refuse."""
    highest = np.float32(-np.inf)
    found = 0
    for i in range(len(base)):
        highest = max(highest, base[i])
        found += (static_code[i] != 0) & (static_code[i] != NOT_HOME)
    best[b] = highest
    refused[b] = found


@helper
def _sync_marked_blocks(columns, groups, bounds, g, marks):  # type: ignore[no-untyped-def]
    """Summarise the base of each marked block, and clear the marks."""
    part = groups.static_part[g]
    span = span_of(columns, bounds)
    for b in range(bounds.free_low.shape[1]):
        if marks[b] != 0:
            marks[b] = 0
            end = min((b + 1) * span, columns.rows_count[0])
            _summarise_base(
                bounds.base[part, b * span : end], groups.static_code[part, b * span : end],
                bounds.best[part], bounds.refused[part], b,
            )  # fmt: skip


@unit
def sync_base(
    columns: Columns, groups: Groups, bounds: Bounds, changes: ChangeLog, g: int, scratch: Scratch
) -> None:
    """Bring the base of a static part up to date with the change log.

    Cost: O(rows changed), or O(N) when more than a quarter of the rows changed.
    """
    part = groups.static_part[g]
    span = span_of(columns, bounds)
    length = changes.length[0]
    known = bounds.synced[part]
    if known < length or known < 0:
        has_equal_rows = are_equal_rows_of(bounds.equal_rows, part)
        if has_equal_rows and known < 0:
            forget_equal_rows(bounds.equal_rows)
        for i in range(max(known, 0) if has_equal_rows else length, length):
            discard_equal_row(bounds.equal_rows, changes.rows[i])
        everything = known < 0 or (length - known) * 4 > columns.rows_count[0]
        for i in range(len(columns.tie) if everything else length - known):
            row = i if everything else changes.rows[known + i]
            _set_base(columns, groups, bounds, g, row, scratch)
            scratch.marks[row // span] = 1
        _sync_marked_blocks(columns, groups, bounds, g, scratch.marks)
        bounds.synced[part] = length


@helper
def _set_upper_bounds(groups, bounds, g, blocks, scratch):  # type: ignore[no-untyped-def]
    """Write the upper bound of each block for a group; -inf where no row of the block has room.

    Also write what the group's pods lose of each resource per unit of ``loss``.

    Returns
    -------
    rated : int
        How many resources the pods lose by.
    reach : float
        How much a row can lose at most.
    margin : float
        How far an estimate can be from the score, relatively.

    Cost: O(blocks) per resource.
    """
    part = groups.static_part[g]
    upper_bound = scratch.upper_bound
    best = bounds.best[part, :blocks]
    rated = 0
    reach = 0.0
    for b in range(blocks):
        upper_bound[b] = best[b]
    for t in range(groups.term_count[g]):
        weights = 0.0
        reach += 100.0 * groups.term_weight[g, t]
        for p in range(groups.term_first[g, t], groups.term_first[g, t + 1]):
            weights += groups.part_weight[g, p]
        for p in range(groups.term_first[g, t], groups.term_first[g, t + 1]):
            value = groups.part_value[g, p]
            if value <= 0 or weights <= 0.0:
                continue
            factor = groups.term_weight[g, t] * groups.part_weight[g, p] / weights
            scratch.rate[rated] = factor * value
            scratch.rated[rated] = groups.part_column[g, p]
            rated += 1
            free_low = bounds.free_low[groups.part_column[g, p], :blocks]
            loss_low = bounds.loss_low[groups.part_column[g, p], :blocks]
            for b in range(blocks):
                upper_bound[b] -= factor * (max(min(free_low[b], value), 0) * loss_low[b])
    margin = _ROUNDING * (rated + 4)
    rounding = groups.term_count[g] / TOTAL_ONE
    for b in range(blocks):
        upper_bound[b] += margin * (best[b] + reach) + rounding if best[b] > -np.inf else 0.0
    for d in range(groups.demand_count[g]):
        value = groups.demand_value[g, d]
        free_high = bounds.free_high[groups.demand_column[g, d], :blocks]
        for b in range(blocks):
            upper_bound[b] = upper_bound[b] if value <= free_high[b] else -np.inf
    return rated, reach, margin


@helper
def _counts_in_full(groups, bounds, g, b):  # type: ignore[no-untyped-def]
    """Say whether a pod's full amounts are free on every row of a block, so that no share is cut off at 0."""
    room = True
    for p in range(groups.term_first[g, groups.term_count[g]]):
        value = groups.part_value[g, p]
        room = room and (value <= 0 or value <= bounds.free_low[groups.part_column[g, p], b])
    return room


@helper
def count_reasons(columns, groups, bounds, g, blocks, histogram):  # type: ignore[no-untyped-def]
    """Count the rows per code. Where a block's fullest row has room, static filters alone refuse any."""
    clear_histogram(groups, g, histogram)
    part = groups.static_part[g]
    span = span_of(columns, bounds)
    for b in range(blocks):
        end = min((b + 1) * span, columns.rows_count[0])
        if not has_room(groups, bounds, g, b):
            for row in range(b * span, end):
                histogram[filter_row(columns, groups, g, row)] += 1
        elif bounds.refused[part, b] > 0:
            for row in range(b * span, end):
                histogram[groups.static_code[part, row]] += 1


@helper
def _best_block(upper_bound, blocks):  # type: ignore[no-untyped-def]
    best = 0
    for b in range(1, blocks):
        if upper_bound[b] > upper_bound[best]:
            best = b
    return best


@helper
def _mark_promising_rows(base, loss, first, rated, rate, floor, estimate, fits):  # type: ignore[no-untyped-def]
    """Mark the rows of a block whose estimate reaches ``floor``; return how many there are."""
    for i in range(len(base)):
        estimate[i] = base[i]
    for p in range(len(rated)):
        own = loss[rated[p], first : first + len(base)]
        factor = np.float32(rate[p])
        for i in range(len(base)):
            estimate[i] -= factor * own[i]
    found = 0
    for i in range(len(base)):
        fits[i] = estimate[i] >= floor
        found += fits[i]
    return found


@helper
def _find_promising_rows(columns, groups, bounds, g, b, floor, rated, scratch):  # type: ignore[no-untyped-def]
    """Mark the rows of a block that could reach ``floor``; return its size, and how many rows are left.

    Where no estimate is possible, all rows are left.
    """
    first = b * span_of(columns, bounds)
    n = min(span_of(columns, bounds), columns.rows_count[0] - first)
    found = n
    if floor >= 0.0 and has_room(groups, bounds, g, b) and _counts_in_full(groups, bounds, g, b):
        found = _mark_promising_rows(
            bounds.base[groups.static_part[g], first : first + n], bounds.loss, first,
            scratch.rated[:rated], scratch.rate[:rated], np.float32(floor), scratch.estimate[:n],
            scratch.fits[:n],
        )  # fmt: skip
    return n, found


@helper
def _score_promising_rows(columns, groups, bounds, g, b, n, found, scratch):  # type: ignore[no-untyped-def]
    """Score the marked rows of a block, or all but the equal rows when too many are marked."""
    first = b * span_of(columns, bounds)
    if found * _DENSE_SHARE <= n:
        for i in range(n):
            if scratch.fits[i] != 0:
                scratch.total[i] = score_row(columns, groups, g, first + i, scratch)
    else:
        fit_block(columns, groups, g, first, n, scratch)
        score_block(columns, groups, g, first, scratch.fits[:n], scratch.total[:n], scratch)
        if not scratch.fits[:n].any():
            for d in range(groups.demand_count[g]):
                c = groups.demand_column[g, d]
                summarise(
                    columns.allocatable[c], columns.requested[c], first, first + n,
                    bounds.free_low[c], bounds.free_high[c], bounds.loss[c], bounds.loss_low[c], b,
                )  # fmt: skip
        if are_equal_rows_of(bounds.equal_rows, groups.static_part[g]):
            for i in range(n):
                if bounds.equal_rows.at[first + i] >= 0:
                    scratch.fits[i] = 0


@helper
def _rank_equal_rows(columns, groups, bounds, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Return what ``best_equal_rows`` does; -1 kept where some of the rows have room and others not."""
    kept = 0
    last_score = INFEASIBLE
    last_tie = np.uint64(0xFFFFFFFFFFFFFFFF)
    if are_equal_rows_of(bounds.equal_rows, groups.static_part[g]):
        fit = fit_equal_rows(groups, bounds.equal_rows, g)
        if fit == SOME_FIT:
            kept = -1
        elif fit == ALL_FIT:
            kept, last_score, last_tie = best_equal_rows(
                columns, groups, bounds.equal_rows, placed, g, attempt, wanted, scratch
            )
    return kept, last_score, last_tie


@helper
def _take_equal_rows_out(columns, groups, bounds, g, blocks, scratch):  # type: ignore[no-untyped-def]
    """Take the rows that equal the one found out of the blocks, if it is time for it."""
    if find_equal_rows(columns, groups, bounds, g, scratch.row[0]):
        scratch.marks[:blocks] = 1
        _sync_marked_blocks(columns, groups, bounds, g, scratch.marks)


@unit
def search(
    columns: Columns,
    groups: Groups,
    bounds: Bounds,
    changes: ChangeLog,
    placed: Placed,
    g: int,
    attempt: int,
    wanted: int,
    scratch: Scratch,
) -> int:
    """Find the best row of a group that has upper bounds: the answer of ``scan`` without most of its work.

    Parameters
    ----------
    columns, groups, bounds, changes, placed, scratch
        The arrays of ``domain.kernels.arrays``; ``bounds`` and ``scratch`` are written.
    g, attempt : int
        The group's slot, and its attempt in ``placed``.
    wanted : int
        1 for the best row alone. TOP to write the attempt's explanation, too.

    Returns
    -------
    int64
        The best total, with the row in ``scratch.row``; ``INFEASIBLE`` where no row is; ``UNKNOWN`` where the
        search cannot tell, as some of the equal rows have room and some have not.

    Cost: O(N / SPAN) for the upper bounds, and the few blocks that can hold the best row.
    """
    sync_blocks(columns, bounds, changes, scratch.marks)
    sync_base(columns, groups, bounds, changes, g, scratch)
    span = span_of(columns, bounds)
    blocks = (columns.rows_count[0] + span - 1) // span
    part = groups.static_part[g]
    upper_bound = scratch.upper_bound
    rounding = groups.term_count[g] / TOTAL_ONE
    kept, last_score, last_tie = _rank_equal_rows(
        columns, groups, bounds, placed, g, attempt, wanted, scratch
    )  # fmt: skip
    if kept < 0:
        return UNKNOWN
    rated, reach, margin = _set_upper_bounds(groups, bounds, g, blocks, scratch)
    if wanted == TOP:
        count_reasons(columns, groups, bounds, g, blocks, scratch.histogram)
    looks = 0
    scored = 0
    while looks < blocks + _BEST_FIRST:
        b = _best_block(upper_bound, blocks) if looks < _BEST_FIRST else looks - _BEST_FIRST
        looks += 1
        if upper_bound[b] == -np.inf or upper_bound[b] < last_score / TOTAL_ONE:
            if looks <= _BEST_FIRST:
                break
            continue
        upper_bound[b] = -np.inf
        score = last_score / TOTAL_ONE
        floor = score - margin * (max(bounds.best[part, b], score) + reach) - rounding
        n, found = _find_promising_rows(columns, groups, bounds, g, b, floor, rated, scratch)
        if found > 0:
            scored += found
            _score_promising_rows(columns, groups, bounds, g, b, n, found, scratch)
            kept, last_score, last_tie = keep_best(
                columns, groups, placed, g, attempt, wanted, b * span, n, scratch, kept, last_score, last_tie
            )
    if wanted == TOP:
        last_score = explain_attempt(columns, groups, placed, g, attempt, kept, scratch)
    if kept > 0 and scored > bounds.equal_rows.least[0]:
        _take_equal_rows_out(columns, groups, bounds, g, blocks, scratch)
    return last_score if kept > 0 else INFEASIBLE
