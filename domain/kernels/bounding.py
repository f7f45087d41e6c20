"""Which blocks of rows cannot hold a best row, so that most need not be looked at.

For all groups that share a static part there is per block of rows one number: the best score of any row, had
the pod asked for nothing. A pod that asks for something scores less by at least what the fullest row of the
block loses: that is the block's *limit* for the group. The search looks at blocks in falling order of their
limits and ends where the next limit is beneath what it has found. Where many blocks have the same limit, as
in an empty cluster of equal nodes, all rows are scanned. Only scores that fall with what is asked
(``LEAST_ALLOCATED``) have such limits.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import LEAST_ALLOCATED, TOP
from domain.kernels.compiling import function, helper, inner
from domain.kernels.evaluating import filter_row, score_block
from domain.kernels.scanning import conclude, consider

_MARGIN = 1e-9
"""Relative; far more than what rounding can add to a score, far less than what would let a block pass."""

_LEVEL = 4
"""Where at least one of so many blocks might hold the best row, all rows are scanned."""

_CHOOSY = 8
"""So many blocks are chosen best first; from then on all are looked at whose limit is high enough."""


@helper
def _span(columns, bounds):  # type: ignore[no-untyped-def]
    """Return the number of rows per block; both are powers of two."""
    return len(columns.tie) // bounds.free_low.shape[1]


@helper
def is_bounded(groups, g):  # type: ignore[no-untyped-def]
    """Say whether all scores of a group fall with what its pods ask for."""
    bounded = groups.raw_count[g] + groups.variance_count[g] == 0
    for t in range(groups.term_count[g]):
        bounded = bounded and groups.term_kind[g, t] == LEAST_ALLOCATED
    return bounded


@function
def _summarise(allocatable, requested, first, end, free_low, free_high, per_unit, b):  # type: ignore[no-untyped-def]
    """Note the extremes of one resource over a block."""
    low = np.int64(1 << 62)
    high = np.int64(-(1 << 62))
    largest = np.int64(0)
    for row in range(first, end):
        free = allocatable[row] - requested[row]
        low = min(low, free)
        high = max(high, free)
        largest = max(largest, allocatable[row])
    free_low[b] = low
    free_high[b] = high
    per_unit[b] = 100.0 / largest if largest > 0 else 0.0


@helper
def _sync_blocks(columns, bounds, changes, marks):  # type: ignore[no-untyped-def]
    """Bring what all groups share up to date with the change log."""
    span = _span(columns, bounds)
    length = changes.length[0]
    known = bounds.blocks_synced[0]
    count = columns.rows_count[0]
    if known < length or known < 0:
        everything = known < 0 or (length - known) * 4 > count
        blocks = bounds.free_low.shape[1]
        for i in range(blocks if everything else length - known):
            b = i if everything else changes.rows[known + i] // span
            if marks[b] == 0:
                marks[b] = 1
                end = min((b + 1) * span, count)
                for c in range(len(columns.allocatable)):
                    _summarise(
                        columns.allocatable[c], columns.requested[c], b * span, end,
                        bounds.free_low[c], bounds.free_high[c], bounds.per_unit[c], b,
                    )  # fmt: skip
        for i in range(blocks if everything else length - known):
            marks[i if everything else changes.rows[known + i] // span] = 0
        bounds.blocks_synced[0] = length


@helper
def _best_of_block(columns, groups, bounds, g, b):  # type: ignore[no-untyped-def]
    """Note the best score of a block's rows, had the pod asked for nothing, and how many rows are refused."""
    part = groups.static_part[g]
    span = _span(columns, bounds)
    best = -np.inf
    refused = 0
    for row in range(b * span, min((b + 1) * span, columns.rows_count[0])):
        if groups.static_code[part, row] != 0:
            refused += 1
            continue
        score = groups.static_score[part, row]
        for t in range(groups.term_count[g]):
            total = 0.0
            weights = 0.0
            for p in range(groups.term_first[g, t], groups.term_first[g, t + 1]):
                capacity = columns.allocatable[groups.part_column[g, p], row]
                free = max(capacity - columns.requested[groups.part_column[g, p], row], 0)
                total += groups.part_weight[g, p] * (free * 100.0 / max(capacity, 1))
                weights += groups.part_weight[g, p] if capacity != 0 else 0.0
            score += groups.term_weight[g, t] * (total / (weights if weights > 0.0 else 1.0))
        best = max(best, score)
    bounds.best[part, b] = best
    bounds.refused[part, b] = refused


@helper
def _sync_best(columns, groups, bounds, changes, g, marks):  # type: ignore[no-untyped-def]
    """Bring what the groups of a static part share up to date with the change log."""
    part = groups.static_part[g]
    span = _span(columns, bounds)
    length = changes.length[0]
    known = bounds.synced[part]
    if known < length or known < 0:
        everything = known < 0 or (length - known) * 4 > columns.rows_count[0]
        blocks = bounds.free_low.shape[1]
        for i in range(blocks if everything else length - known):
            b = i if everything else changes.rows[known + i] // span
            if marks[b] == 0:
                marks[b] = 1
                _best_of_block(columns, groups, bounds, g, b)
        for i in range(blocks if everything else length - known):
            marks[i if everything else changes.rows[known + i] // span] = 0
        bounds.synced[part] = length


@helper
def note_placed(columns, groups, bounds, changes, g, row):  # type: ignore[no-untyped-def]
    """Keep the shared extremes right after a pod of a group was placed on a row, and was logged.

    ``free_high`` may stay too high, which costs a look in vain at worst; that look corrects it.
    """
    if bounds.blocks_synced[0] == changes.length[0] - 1:
        b = row // _span(columns, bounds)
        for a in range(groups.add_count[g]):
            c = groups.add_column[g, a]
            free = columns.allocatable[c, row] - columns.requested[c, row]
            bounds.free_low[c, b] = min(bounds.free_low[c, b], free)
        bounds.blocks_synced[0] = changes.length[0]


@helper
def _set_limits(groups, bounds, g, blocks, limit):  # type: ignore[no-untyped-def]
    """Write for each block a score that no row of it can exceed for the group; -inf where none fits."""
    part = groups.static_part[g]
    best = bounds.best[part, :blocks]
    for b in range(blocks):
        limit[b] = best[b]
    for t in range(groups.term_count[g]):
        weights = 0.0
        for p in range(groups.term_first[g, t], groups.term_first[g, t + 1]):
            weights += groups.part_weight[g, p]
        for p in range(groups.term_first[g, t], groups.term_first[g, t + 1]):
            value = groups.part_value[g, p]
            factor = groups.term_weight[g, t] * groups.part_weight[g, p] / weights if weights > 0.0 else 0.0
            free_low = bounds.free_low[groups.part_column[g, p], :blocks]
            per_unit = bounds.per_unit[groups.part_column[g, p], :blocks]
            for b in range(blocks):
                limit[b] -= factor * (max(min(free_low[b], value), 0) * per_unit[b])
    for b in range(blocks):
        limit[b] += _MARGIN * best[b]
    for d in range(groups.demand_count[g]):
        value = groups.demand_value[g, d]
        free_high = bounds.free_high[groups.demand_column[g, d], :blocks]
        for b in range(blocks):
            limit[b] = limit[b] if value <= free_high[b] else -np.inf


@helper
def _note_refusals(columns, groups, bounds, g, blocks):  # type: ignore[no-untyped-def]
    """Count the rows per code; a block where every demand fits on the fullest row refuses nothing."""
    groups.histogram[g, :] = 0
    groups.synced[g] = -1
    part = groups.static_part[g]
    span = _span(columns, bounds)
    for b in range(blocks):
        clear = bounds.refused[part, b] == 0 and groups.occupancy_count[g] + groups.limit_count[g] == 0
        for d in range(groups.demand_count[g]):
            clear = clear and groups.demand_value[g, d] <= bounds.free_low[groups.demand_column[g, d], b]
        if not clear:
            for row in range(b * span, min((b + 1) * span, columns.rows_count[0])):
                groups.histogram[g, filter_row(columns, groups, g, row)] += 1


@helper
def _is_level(limit, blocks):  # type: ignore[no-untyped-def]
    """Say whether so many blocks could hold the best row that it is quicker to look at all."""
    highest = -np.inf
    for b in range(blocks):
        highest = max(highest, limit[b])
    nearly = highest - abs(highest) * _MARGIN
    level = 0
    for b in range(blocks):
        level += 1 if limit[b] >= nearly else 0
    return level > 4 and level * _LEVEL > blocks


@helper
def _highest(limit, blocks):  # type: ignore[no-untyped-def]
    best = 0
    for b in range(1, blocks):
        if limit[b] > limit[best]:
            best = b
    return best


@inner
def seek(columns, groups, bounds, changes, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Do what ``scan`` does, for a bounded group, without looking at most blocks; NaN if they are level."""
    _sync_blocks(columns, bounds, changes, scratch.marks)
    _sync_best(columns, groups, bounds, changes, g, scratch.marks)
    count = columns.rows_count[0]
    span = _span(columns, bounds)
    blocks = (count + span - 1) // span
    limit = scratch.limit
    _set_limits(groups, bounds, g, blocks, limit)
    if _is_level(limit, blocks):
        last_score = np.nan
    else:
        if wanted == TOP:
            _note_refusals(columns, groups, bounds, g, blocks)
        kept = 0
        last_score = -np.inf
        last_tie = np.uint64(0xFFFFFFFFFFFFFFFF)
        looks = 0
        while looks < blocks + _CHOOSY:
            b = _highest(limit, blocks) if looks < _CHOOSY else looks - _CHOOSY
            looks += 1
            if limit[b] == -np.inf or limit[b] < last_score:
                if looks <= _CHOOSY:
                    break
                continue
            limit[b] = -np.inf
            first = b * span
            n = min(span, count - first)
            score_block(columns, groups, g, first, n, scratch)
            kept, last_score, last_tie = consider(
                columns, groups, placed, g, attempt, wanted, first, n, scratch, kept, last_score, last_tie
            )
            if not scratch.fits[:n].any():
                for d in range(groups.demand_count[g]):
                    c = groups.demand_column[g, d]
                    _summarise(
                        columns.allocatable[c], columns.requested[c], first, first + n,
                        bounds.free_low[c], bounds.free_high[c], bounds.per_unit[c], b,
                    )  # fmt: skip
        if wanted == TOP:
            last_score = conclude(columns, groups, placed, g, attempt, kept, scratch)
        if kept == 0:
            last_score = -np.inf
    return last_score
