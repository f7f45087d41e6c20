"""The best rows by looking at all of them, block by block; nothing is kept."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import BLOCK, TOP, UNCOUNTED
from domain.kernels.blocks import fit_rows, sync_blocks
from domain.kernels.compiling import function, helper, inner
from domain.kernels.evaluating import filter_row, forget_extremes, note_extremes, score_block
from domain.kernels.noting import note_parts, note_reasons
from domain.kernels.terms import metric
from domain.kernels.ties import mix


@function
def _metric_of(requested, allocatable):  # type: ignore[no-untyped-def]
    return metric(requested, max(allocatable, 1)) if allocatable > 0 else UNCOUNTED


@function
def _sum_up(own, sums):  # type: ignore[no-untyped-def]
    """Write how many rows count, and the sum of their metrics."""
    n = 0
    total = 0
    for i in range(len(own)):
        n += own[i] != UNCOUNTED
        total += own[i] if own[i] != UNCOUNTED else 0
    sums[2] = n
    sums[3] = total


@function
def _sum_requested(requested, allocatable, column, changed, length, own, sums):  # type: ignore[no-untyped-def]
    """Bring metrics and their sum up to date: by the rows changed since they were, if they are this column's.

    ``sums`` holds the column, the position in the change log, how many rows count, and the sum.
    """
    if sums[0] != column:
        for i in range(len(own)):
            own[i] = _metric_of(requested[i], allocatable[i])
        _sum_up(own, sums)
    else:
        for i in range(sums[1], length):
            row = changed[i]
            if own[row] != UNCOUNTED:
                now = _metric_of(requested[row], allocatable[row])
                sums[3] += now - own[row]
                own[row] = now
    sums[0] = column
    sums[1] = length


@function
def _sum_measured(measured, allocatable, own, sums):  # type: ignore[no-untyped-def]
    """Take over what was measured; rows without it, or without the resource, do not count."""
    for i in range(len(own)):
        known = allocatable[i] > 0 and not np.isnan(measured[i])
        own[i] = int(measured[i]) if known else UNCOUNTED
    _sum_up(own, sums)
    sums[0] = -1


@function
def _grow(allocatable, value, own, n, total, growth):  # type: ignore[no-untyped-def]
    """Write how much a pod of ``value`` on each row would add to the variance of the metric over all rows.

    With ``m`` the metric of a row, ``e`` what the pod adds to it, and ``S`` the sum over the ``n`` rows that
    count, the variance times n^2 becomes a constant plus e * (2 * (m * n - S) + e * (n - 1)): whole numbers,
    the same in whatever order the rows are.
    """
    for i in range(len(growth)):
        added = metric(value, max(allocatable[i], 1))
        grown = added * (2 * (own[i] * n - total) + added * (n - 1))
        growth[i] = grown if own[i] != UNCOUNTED else UNCOUNTED


@function
def _spread(growth, fits):  # type: ignore[no-untyped-def]
    """Return the extremes over the feasible rows."""
    low = np.int64(-(UNCOUNTED + 1))
    high = np.int64(UNCOUNTED)
    for i in range(len(growth)):
        counts = fits[i] != 0 and growth[i] != UNCOUNTED
        low = min(low, growth[i] if counts else low)
        high = max(high, growth[i] if counts else high)
    return low, high


@inner
def _grow_variances(columns, groups, changes, g, scratch):  # type: ignore[no-untyped-def]
    """Write what each row would add to the variances that a group's scores read."""
    count = columns.rows_count[0]
    for v in range(groups.variance_count[g]):
        column = groups.variance_column[g, v]
        known = groups.variance_measured[g, v]
        own = scratch.own[v, :count]
        sums = scratch.sums[v]
        allocatable = columns.allocatable[column, :count]
        if known >= 0:
            _sum_measured(groups.static_raw[groups.static_part[g], known, :count], allocatable, own, sums)
        else:
            requested = columns.requested[column, :count]
            _sum_requested(requested, allocatable, column, changes.rows, changes.length[0], own, sums)
        _grow(allocatable, groups.variance_value[g, v], own, sums[2], sums[3], scratch.growth[v, :count])


@function
def copy(source, target):  # type: ignore[no-untyped-def]
    for i in range(len(source)):
        target[i] = source[i]


@inner
def survey(columns, groups, g, scratch):  # type: ignore[no-untyped-def]
    """Note the extremes of what is normalised over the feasible rows, ``scratch.feasible``."""
    count = columns.rows_count[0]
    feasible = scratch.feasible[:count]
    groups.synced[g] = -1
    forget_extremes(groups, g)
    for row in range(count if groups.raw_count[g] > 0 else 0):
        if feasible[row] != 0:
            note_extremes(groups, g, row)
    for v in range(groups.variance_count[g]):
        groups.variance_low[g, v], groups.variance_high[g, v] = _spread(scratch.growth[v, :count], feasible)


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


@function
def _count_fitting(fits):  # type: ignore[no-untyped-def]
    """Return how many rows of a block are feasible."""
    fitting = 0
    for i in range(len(fits)):
        fitting += fits[i]
    return fitting


@function
def _count_as_good(total, fits, score):  # type: ignore[no-untyped-def]
    """Return how many rows of a scored block are at least as good; mostly none is."""
    found = 0
    for i in range(len(total)):
        found += (total[i] >= score) & (fits[i] != 0)
    return found


@helper
def consider(  # type: ignore[no-untyped-def]
    columns, groups, placed, g, attempt, wanted, first, n, scratch, kept, last_score, last_tie
):
    """Take the rows of a scored block into account; return how many are kept, and the last of them."""
    salt = groups.salt[g]
    hopeful = _count_as_good(scratch.total[:n], scratch.fits[:n], last_score) > 0
    for i in range(n if hopeful else 0):
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
def scan(columns, groups, bounds, changes, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
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
    count = columns.rows_count[0]
    sync_blocks(columns, bounds, changes, scratch.marks)
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        fit_rows(columns, groups, bounds, g, first, n, scratch)
        copy(scratch.fits[:n], scratch.feasible[first : first + n])
    if groups.raw_count[g] + groups.variance_count[g] > 0:
        _grow_variances(columns, groups, changes, g, scratch)
        survey(columns, groups, g, scratch)
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        copy(scratch.feasible[first : first + n], scratch.fits[:n])
        score_block(columns, groups, g, first, n, scratch)
        if noting and _count_fitting(scratch.fits[:n]) < n:
            for i in range(n):
                if scratch.fits[i] == 0:
                    groups.histogram[g, filter_row(columns, groups, g, first + i)] += 1
        kept, last_score, last_tie = consider(
            columns, groups, placed, g, attempt, wanted, first, n, scratch, kept, last_score, last_tie
        )
    if noting:
        last_score = conclude(columns, groups, placed, g, attempt, kept, scratch)
    return last_score if kept > 0 else -np.inf
