"""Which rows, and which blocks of rows, cannot be the best, so that most need not be looked at.

For all groups that share a static part there is per row one number: its score, had the pod asked for nothing,
and per block the highest of them. A pod that asks for something scores less by at least what the fullest row
of the block loses: that is the block's *limit* for the group. The search looks at blocks in falling order of
their limits and passes over those whose limit is beneath what it has found. In a block on every row of which
the pod has room, what a row loses is known, too, to within rounding: three short columns say which rows could
be the best, and those alone are scored. Rows that are equal are looked at as one (``twins.py``). Only scores
that fall with what is asked (``LEAST_ALLOCATED``) have such limits.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import LEAST_ALLOCATED, TOP
from domain.kernels.blocks import has_room, span_of, summarise, sync_blocks
from domain.kernels.compiling import function, helper, inner
from domain.kernels.evaluating import filter_row, fit_block, score_block, score_row
from domain.kernels.scanning import conclude, consider
from domain.kernels.twins import (
    ALL_FIT,
    SOME_FIT,
    are_twins_of,
    best_twins,
    discard_twin,
    fit_twins,
    forget_twins,
    make_twins,
)

_ROUNDING = 1e-7
"""Relative; more than what rounding to 24 bits can take (6e-8) from what comes of one operation."""

_CHOOSY = 8
"""So many blocks are chosen best first; from then on all are looked at whose limit is high enough."""

_DENSE = 4
"""A block is scored whole where more than one of so many rows could be the best."""


@helper
def is_bounded(groups, g):  # type: ignore[no-untyped-def]
    """Say whether all scores of a group fall with what its pods ask for."""
    bounded = groups.raw_count[g] + groups.variance_count[g] == 0
    for t in range(groups.term_count[g]):
        bounded = bounded and groups.term_kind[g, t] == LEAST_ALLOCATED
    return bounded


@helper
def _rate(columns, groups, bounds, g, row):  # type: ignore[no-untyped-def]
    """Note the score of a row, had the pod asked for nothing."""
    part = groups.static_part[g]
    score = -np.inf
    is_twin = are_twins_of(bounds.twins, part) and bounds.twins.at[row] >= 0
    if row < columns.rows_count[0] and groups.static_code[part, row] == 0 and not is_twin:
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
    bounds.base[part, row] = score


@function
def _best_of_block(base, static_code, best, refused, b):  # type: ignore[no-untyped-def]
    """Note the highest base score of a block's rows, and how many are refused."""
    highest = np.float32(-np.inf)
    found = 0
    for i in range(len(base)):
        highest = max(highest, base[i])
        found += static_code[i] != 0
    best[b] = highest
    refused[b] = found


@helper
def _best_of_blocks(columns, groups, bounds, g, marks):  # type: ignore[no-untyped-def]
    """Note the best of all marked blocks, and wipe the marks."""
    part = groups.static_part[g]
    span = span_of(columns, bounds)
    for b in range(bounds.free_low.shape[1]):
        if marks[b] != 0:
            marks[b] = 0
            end = min((b + 1) * span, columns.rows_count[0])
            _best_of_block(
                bounds.base[part, b * span : end], groups.static_code[part, b * span : end],
                bounds.best[part], bounds.refused[part], b,
            )  # fmt: skip


@helper
def _sync_best(columns, groups, bounds, changes, g, marks):  # type: ignore[no-untyped-def]
    """Bring what the groups of a static part share up to date with the change log."""
    part = groups.static_part[g]
    span = span_of(columns, bounds)
    length = changes.length[0]
    known = bounds.synced[part]
    if known < length or known < 0:
        has_twins = are_twins_of(bounds.twins, part)
        if has_twins and known < 0:
            forget_twins(bounds.twins)
        for i in range(max(known, 0) if has_twins else length, length):
            discard_twin(bounds.twins, changes.rows[i])
        everything = known < 0 or (length - known) * 4 > columns.rows_count[0]
        for i in range(len(columns.tie) if everything else length - known):
            row = i if everything else changes.rows[known + i]
            _rate(columns, groups, bounds, g, row)
            marks[row // span] = 1
        _best_of_blocks(columns, groups, bounds, g, marks)
        bounds.synced[part] = length


@helper
def _set_limits(groups, bounds, g, blocks, scratch):  # type: ignore[no-untyped-def]
    """Write for each block a score that no row of it can exceed for the group; -inf where none fits.

    Also writes what the group's pods lose of each resource per unit of ``loss``; returns for how many
    resources, how much a row can lose at most, and how far, relatively, an estimate can be from the score.
    """
    part = groups.static_part[g]
    limit = scratch.limit
    best = bounds.best[part, :blocks]
    rated = 0
    reach = 0.0
    for b in range(blocks):
        limit[b] = best[b]
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
                limit[b] -= factor * (max(min(free_low[b], value), 0) * loss_low[b])
    margin = _ROUNDING * (rated + 4)
    for b in range(blocks):
        limit[b] += margin * (abs(best[b]) + reach) if best[b] > -np.inf else 0.0
    for d in range(groups.demand_count[g]):
        value = groups.demand_value[g, d]
        free_high = bounds.free_high[groups.demand_column[g, d], :blocks]
        for b in range(blocks):
            limit[b] = limit[b] if value <= free_high[b] else -np.inf
    return rated, reach, margin


@helper
def _loses_all(groups, bounds, g, b):  # type: ignore[no-untyped-def]
    """Say whether all that a pod is scored for counts on every row of a block: nothing is cut off at 0."""
    room = True
    for p in range(groups.term_first[g, groups.term_count[g]]):
        value = groups.part_value[g, p]
        room = room and (value <= 0 or value <= bounds.free_low[groups.part_column[g, p], b])
    return room


@helper
def _note_refusals(columns, groups, bounds, g, blocks):  # type: ignore[no-untyped-def]
    """Count the rows per code; a block where every demand fits on the fullest row refuses nothing."""
    groups.histogram[g, :] = 0
    groups.synced[g] = -1
    part = groups.static_part[g]
    span = span_of(columns, bounds)
    for b in range(blocks):
        if bounds.refused[part, b] > 0 or not has_room(groups, bounds, g, b):
            for row in range(b * span, min((b + 1) * span, columns.rows_count[0])):
                groups.histogram[g, filter_row(columns, groups, g, row)] += 1


@helper
def _highest(limit, blocks):  # type: ignore[no-untyped-def]
    best = 0
    for b in range(1, blocks):
        if limit[b] > limit[best]:
            best = b
    return best


@function
def _sift(base, loss, first, rated, rate, floor, estimate, fits):  # type: ignore[no-untyped-def]
    """Mark the rows of a block that could score as much as ``floor``, and return how many there are."""
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
def _promising(columns, groups, bounds, g, b, floor, rated, scratch):  # type: ignore[no-untyped-def]
    """Mark the rows of a block that could score as much as ``floor``; return how many, all where unknown."""
    first = b * span_of(columns, bounds)
    n = min(span_of(columns, bounds), columns.rows_count[0] - first)
    found = n
    if floor > -np.inf and has_room(groups, bounds, g, b) and _loses_all(groups, bounds, g, b):
        found = _sift(
            bounds.base[groups.static_part[g], first : first + n], bounds.loss, first,
            scratch.rated[:rated], scratch.rate[:rated], np.float32(floor), scratch.estimate[:n],
            scratch.fits[:n],
        )  # fmt: skip
    return n, found


@helper
def _score_promising(columns, groups, bounds, g, b, n, found, scratch):  # type: ignore[no-untyped-def]
    """Score the rows of a block that are marked, or all but the twins if too many are."""
    first = b * span_of(columns, bounds)
    if found * _DENSE <= n:
        for i in range(n):
            if scratch.fits[i] != 0:
                scratch.total[i] = score_row(columns, groups, g, first + i)
    else:
        fit_block(columns, groups, g, first, n, scratch)
        score_block(columns, groups, g, first, n, scratch)
        if not scratch.fits[:n].any():
            for d in range(groups.demand_count[g]):
                c = groups.demand_column[g, d]
                summarise(
                    columns.allocatable[c], columns.requested[c], first, first + n,
                    bounds.free_low[c], bounds.free_high[c], bounds.loss[c], bounds.loss_low[c], b,
                )  # fmt: skip
        if are_twins_of(bounds.twins, groups.static_part[g]):
            for i in range(n):
                if bounds.twins.at[first + i] >= 0:
                    scratch.fits[i] = 0


@inner
def seek(columns, groups, bounds, changes, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Do what ``scan`` does, for a bounded group, without looking at most rows.

    Return NaN where that cannot be told: some of the twins fit, and some do not.
    """
    sync_blocks(columns, bounds, changes, scratch.marks)
    _sync_best(columns, groups, bounds, changes, g, scratch.marks)
    span = span_of(columns, bounds)
    blocks = (columns.rows_count[0] + span - 1) // span
    part = groups.static_part[g]
    limit = scratch.limit
    kept = 0
    last_score = -np.inf
    last_tie = np.uint64(0xFFFFFFFFFFFFFFFF)
    if are_twins_of(bounds.twins, part):
        fit = fit_twins(groups, bounds.twins, g)
        if fit == SOME_FIT:
            return np.nan
        if fit == ALL_FIT:
            kept, last_score, last_tie = best_twins(
                columns, groups, bounds.twins, placed, g, attempt, wanted, scratch
            )
    rated, reach, margin = _set_limits(groups, bounds, g, blocks, scratch)
    if wanted == TOP:
        _note_refusals(columns, groups, bounds, g, blocks)
    looks = 0
    scored = 0
    while looks < blocks + _CHOOSY:
        b = _highest(limit, blocks) if looks < _CHOOSY else looks - _CHOOSY
        looks += 1
        if limit[b] == -np.inf or limit[b] < last_score:
            if looks <= _CHOOSY:
                break
            continue
        limit[b] = -np.inf
        floor = last_score - margin * (max(abs(bounds.best[part, b]), abs(last_score)) + reach)
        n, found = _promising(columns, groups, bounds, g, b, floor, rated, scratch)
        if found > 0:
            scored += found
            _score_promising(columns, groups, bounds, g, b, n, found, scratch)
            kept, last_score, last_tie = consider(
                columns, groups, placed, g, attempt, wanted, b * span, n, scratch, kept, last_score, last_tie
            )
    if wanted == TOP:
        last_score = conclude(columns, groups, placed, g, attempt, kept, scratch)
    if kept == 0:
        return -np.inf
    if scored > bounds.twins.least[0] and make_twins(columns, groups, bounds, g, scratch.row[0]):
        scratch.marks[:blocks] = 1
        _best_of_blocks(columns, groups, bounds, g, scratch.marks)
    return last_score
