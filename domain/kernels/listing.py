"""A list of a group's best rows: made in any thread, on columns that nobody writes; used when its turn comes.

Between the two, pods before it were placed on some rows. Those rows are filtered and scored again; of all
other rows the list is still right. The best of both is the answer, as long as rows of the list are left that
have not changed: a row that is neither in the list nor changed cannot be better.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import BLOCK, TOP
from domain.kernels.claiming import publish
from domain.kernels.compiling import helper, inner
from domain.kernels.evaluating import filter_row, fit_block, moves_extremes, score_block, score_row
from domain.kernels.scanning import conclude, copy, insert, survey
from domain.kernels.ties import mix


@helper
def _worse(score, tie, other_score, other_tie):  # type: ignore[no-untyped-def]
    return score < other_score or (score == other_score and tie > other_tie)


@helper
def _keep(rows, scores, ties, most, row, score, tie, kept):  # type: ignore[no-untyped-def]
    """Put a row into a heap of at most so many, the worst first; return how many it has then."""
    if kept < most:
        at = kept
        kept += 1
        while at > 0 and _worse(score, tie, scores[(at - 1) // 2], ties[(at - 1) // 2]):
            above = (at - 1) // 2
            rows[at] = rows[above]
            scores[at] = scores[above]
            ties[at] = ties[above]
            at = above
    elif _worse(scores[0], ties[0], score, tie):
        at = 0
        while 2 * at + 1 < kept:
            below = 2 * at + 1
            if below + 1 < kept and _worse(scores[below + 1], ties[below + 1], scores[below], ties[below]):
                below += 1
            if not _worse(scores[below], ties[below], score, tie):
                break
            rows[at] = rows[below]
            scores[at] = scores[below]
            ties[at] = ties[below]
            at = below
    else:
        at = -1
    if at >= 0:
        rows[at] = row
        scores[at] = score
        ties[at] = tie
    return kept


@inner
def make_list(columns, groups, lists, g, length, scratch):  # type: ignore[no-untyped-def]
    """Score all rows as of the position ``length`` of the change log, and keep the best and every code."""
    groups.synced[g] = -1
    groups.histogram[g, :] = 0
    for first in range(0, columns.rows_count[0], BLOCK):
        n = min(BLOCK, columns.rows_count[0] - first)
        fit_block(columns, groups, g, first, n, scratch)
        copy(scratch.fits[:n], scratch.feasible[first : first + n])
    if groups.raw_count[g] > 0:
        survey(columns, groups, g, scratch)
    salt = groups.salt[g]
    most = lists.most[g]
    kept = 0
    last_score = -np.inf
    count = columns.rows_count[0]
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        copy(scratch.feasible[first : first + n], scratch.fits[:n])
        score_block(columns, groups, g, first, n, scratch)
        _note_codes(columns, groups, g, first, n, scratch)
        for i in range(n):
            score = scratch.total[i]
            if score < last_score or scratch.fits[i] == 0:
                continue
            tie = mix(columns.tie[first + i] ^ salt)
            kept = _keep(lists.row[g], lists.score[g], lists.tie[g], most, first + i, score, tie, kept)
            if kept == most:
                last_score = lists.score[g, 0]
    lists.kept[g] = kept
    lists.seen[g] = length
    publish(lists.made, g, length)


@helper
def _note_codes(columns, groups, g, first, n, scratch):  # type: ignore[no-untyped-def]
    """Write the codes of a block's rows; only where one does not fit it is asked why."""
    refused = 0
    fits = scratch.fits[:n]
    code = groups.code[g, first : first + n]
    for i in range(n):
        code[i] = 0
        refused += fits[i] == 0
    for i in range(n if refused > 0 else 0):
        if fits[i] == 0:
            code[i] = filter_row(columns, groups, g, first + i)
            groups.histogram[g, code[i]] += 1


@helper
def _learn(columns, groups, lists, changes, g):  # type: ignore[no-untyped-def]
    """Note for each row on which a pod was placed whether it still fits; say whether an extreme has left."""
    stale = False
    for i in range(lists.seen[g], changes.length[0]):
        row = changes.rows[i]
        code = filter_row(columns, groups, g, row)
        before = groups.code[g, row]
        if code != before:
            groups.histogram[g, code] += 1
            groups.code[g, row] = code
            if before != 0:
                groups.histogram[g, before] -= 1
            elif moves_extremes(groups, g, row, False):
                stale = True
    lists.seen[g] = changes.length[0]
    return stale


@helper
def pick(columns, groups, lists, changes, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Do what ``scan`` does, from the list; return NaN if it is used up, or of no use any more.

    Once an extreme of what is normalised has left, all scores in the list are wrong: it is dropped.
    Whether pods before this one have changed the first row of the list, and if so whether it is the best all
    the same, is counted as ``moved`` or ``conflict``.
    """
    stale = _learn(columns, groups, lists, changes, g)
    lists.stamp[0] += 1
    stamp = lists.stamp[0]
    salt = groups.salt[g]
    best_row = scratch.best_row
    best_score = scratch.best_score
    ties = scratch.ties
    kept = 0
    for i in range(lists.made[g], changes.length[0]):
        row = changes.rows[i]
        if lists.mark[row] != stamp:
            lists.mark[row] = stamp
            if groups.code[g, row] == 0:
                score = score_row(columns, groups, g, row)
                tie = mix(columns.tie[row] ^ salt)
                kept = insert(best_row, best_score, ties, wanted, row, score, tie, kept)
    untouched = 0
    first = -1
    for j in range(lists.kept[g]):
        row = lists.row[g, j]
        score = lists.score[g, j]
        tie = lists.tie[g, j]
        if first < 0 or _worse(lists.score[g, first], lists.tie[g, first], score, tie):
            first = j
        if lists.mark[row] != stamp:
            kept = insert(best_row, best_score, ties, wanted, row, score, tie, kept)
            untouched += 1
    complete = lists.kept[g] < lists.most[g] or untouched >= wanted
    if not complete and kept == wanted:
        complete = not _worse(best_score[wanted - 1], ties[wanted - 1], lists.score[g, 0], lists.tie[g, 0])
    found = np.nan
    moved = first >= 0 and lists.mark[lists.row[g, first]] == stamp
    if complete and not stale:
        found = best_score[0] if kept > 0 else -np.inf
        scratch.row[0] = best_row[0]
        if wanted == TOP:
            for i in range(kept):
                placed.top_row[attempt, i] = best_row[i]
                placed.top_score[attempt, i] = best_score[i]
            conclude(columns, groups, placed, g, attempt, kept, scratch)
    if moved and complete and not stale and kept > 0 and best_row[0] == lists.row[g, first]:
        placed.moved[attempt] += 1
    elif moved:
        placed.conflicts[attempt] += 1
    if stale:
        lists.made[g] = -1
    return found
