"""The best rows by looking at all of them, block by block; nothing is kept."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import BLOCK, TOP
from domain.kernels.compiling import function, helper, inner
from domain.kernels.evaluating import filter_row, fit_block, forget_extremes, note_extremes, score_block
from domain.kernels.noting import note_parts, note_reasons
from domain.kernels.terms import metric
from domain.kernels.ties import mix


@function
def _grow(requested, allocatable, value, measured, growth):  # type: ignore[no-untyped-def]
    """Write how much a pod of ``value`` on each row would add to the variance of the metric over all rows.

    With ``m`` the metric of a row, ``e`` what the pod adds to it, and ``S`` the sum over the ``n`` rows that
    count, the variance times n^2 becomes a constant plus e * (2 * (m * n - S) + e * (n - 1)): whole numbers,
    the same in whatever order the rows are. ``measured`` holds the metric, or is empty; a row without it, or
    without the resource, does not count.
    """
    is_measured = len(measured) > 0
    n = 0
    total = 0
    for i in range(len(growth)):
        if allocatable[i] > 0 and not (is_measured and np.isnan(measured[i])):
            n += 1
            total += int(measured[i]) if is_measured else metric(requested[i], allocatable[i])
    for i in range(len(growth)):
        if allocatable[i] > 0 and not (is_measured and np.isnan(measured[i])):
            own = int(measured[i]) if is_measured else metric(requested[i], allocatable[i])
            added = metric(value, allocatable[i])
            growth[i] = added * (2 * (own * n - total) + added * (n - 1))
        else:
            growth[i] = np.nan


@inner
def survey(columns, groups, g, scratch):  # type: ignore[no-untyped-def]
    """Look at all rows once before any is scored: for what is normalised over the feasible ones."""
    count = columns.rows_count[0]
    part = groups.static_part[g]
    groups.synced[g] = -1
    forget_extremes(groups, g)
    for v in range(groups.variance_count[g]):
        column = groups.variance_column[g, v]
        known = groups.variance_measured[g, v]
        _grow(
            columns.requested[column, :count], columns.allocatable[column, :count],
            groups.variance_value[g, v],
            groups.static_raw[part, max(known, 0), : (count if known >= 0 else 0)],
            scratch.growth[v, :count],
        )  # fmt: skip
        groups.variance_low[g, v] = np.inf
        groups.variance_high[g, v] = -np.inf
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        fit_block(columns, groups, g, first, n, scratch)
        for i in range(n):
            if scratch.fits[i] == 0:
                continue
            note_extremes(groups, g, first + i)
            for v in range(groups.variance_count[g]):
                growth = scratch.growth[v, first + i]
                if growth < groups.variance_low[g, v]:
                    groups.variance_low[g, v] = growth
                if growth > groups.variance_high[g, v]:
                    groups.variance_high[g, v] = growth


@helper
def insert(rows, scores, ties, most, row, score, tie, kept):  # type: ignore[no-untyped-def]
    """Insert a row into a list of at most so many, best first; return how many it has then."""
    at = kept
    if kept == most:
        at = most - 1
        if score < scores[at] or (score == scores[at] and tie >= ties[at]):
            return kept
    while at > 0 and (score > scores[at - 1] or (score == scores[at - 1] and tie < ties[at - 1])):
        rows[at] = rows[at - 1]
        scores[at] = scores[at - 1]
        ties[at] = ties[at - 1]
        at -= 1
    rows[at] = row
    scores[at] = score
    ties[at] = tie
    return min(kept + 1, most)


@helper
def consider(  # type: ignore[no-untyped-def]
    columns, groups, placed, g, attempt, wanted, first, n, scratch, kept, last_score, last_tie
):
    """Take the rows of a scored block into account; return how many are kept, and the last of them."""
    salt = groups.salt[g]
    for i in range(n):
        score = scratch.total[i]
        if scratch.fits[i] == 0 or score < last_score:
            continue
        tie = mix(columns.tie[first + i] ^ salt)
        if score == last_score and tie >= last_tie:
            continue
        if wanted == 1:
            scratch.row[0] = first + i
            kept, last_score, last_tie = 1, score, tie
        else:
            kept = insert(
                placed.top_row[attempt], placed.top_score[attempt], scratch.ties, TOP,
                first + i, score, tie, kept,
            )  # fmt: skip
            if kept == TOP:
                last_score = placed.top_score[attempt, TOP - 1]
                last_tie = scratch.ties[TOP - 1]
    return kept, last_score, last_tie


@helper
def conclude(columns, groups, placed, g, attempt, kept, scratch):  # type: ignore[no-untyped-def]
    """Note the parts of the best rows, and the reasons; return the best one's score."""
    for i in range(kept):
        note_parts(columns, groups, placed, g, attempt, i, scratch)
    note_reasons(groups, placed, g, attempt, 0)
    if kept > 0:
        scratch.row[0] = placed.top_row[attempt, 0]
    return placed.top_score[attempt, 0]


@inner
def scan(columns, groups, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Find the best row into ``scratch.row`` and return its score, -inf if no row is feasible.

    With ``wanted`` TOP (and not 1) the best rows are written into the attempt's top, and why the others are
    refused into its reason table 0.
    """
    kept = 0
    last_score = -np.inf
    last_tie = np.uint64(0xFFFFFFFFFFFFFFFF)
    noting = wanted == TOP
    if noting:
        groups.histogram[g, :] = 0
        groups.synced[g] = -1
    if groups.raw_count[g] + groups.variance_count[g] > 0:
        survey(columns, groups, g, scratch)
    count = columns.rows_count[0]
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        score_block(columns, groups, g, first, n, scratch)
        if noting:
            for i in range(n):
                if scratch.fits[i] == 0:
                    groups.histogram[g, filter_row(columns, groups, g, first + i)] += 1
        kept, last_score, last_tie = consider(
            columns, groups, placed, g, attempt, wanted, first, n, scratch, kept, last_score, last_tie
        )
    if noting:
        last_score = conclude(columns, groups, placed, g, attempt, kept, scratch)
    return last_score if kept > 0 else -np.inf
