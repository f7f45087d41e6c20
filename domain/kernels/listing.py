"""A list of a group's best rows: made in any thread, on columns that nobody writes; used when its turn comes.

Between the two, pods before it were placed on some rows. Those rows are filtered and scored again; of all
other rows the list is still right. The best of both is the answer if it is no worse than the list's last row:
a row that is neither in the list nor changed cannot be better. Otherwise the list is used up.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import BLOCK, TOP
from domain.kernels.compiling import helper
from domain.kernels.evaluating import filter_row, moves_extremes, score_block, score_row
from domain.kernels.scanning import conclude, insert, survey
from domain.kernels.ties import mix


@helper
def make_list(columns, groups, lists, g, length, scratch):  # type: ignore[no-untyped-def]
    """Score all rows as of the position ``length`` of the change log, and keep the best and every code."""
    groups.synced[g] = -1
    groups.histogram[g, :] = 0
    if groups.raw_count[g] > 0:
        survey(columns, groups, g, scratch)
    salt = groups.salt[g]
    most = lists.row.shape[1]
    kept = 0
    count = columns.rows_count[0]
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        score_block(columns, groups, g, first, n, scratch)
        for i in range(n):
            row = first + i
            if scratch.fits[i] == 0:
                code = filter_row(columns, groups, g, row)
                groups.histogram[g, code] += 1
                groups.code[g, row] = code
                continue
            groups.code[g, row] = 0
            score = scratch.total[i]
            if kept == most and score < lists.score[g, most - 1]:
                continue
            tie = mix(columns.tie[row] ^ salt)
            if kept < most or score > lists.score[g, most - 1] or tie < lists.tie[g, most - 1]:
                kept = insert(lists.row[g], lists.score[g], lists.tie[g], most, row, score, tie, kept)
    lists.kept[g] = kept
    lists.made[g] = length
    lists.seen[g] = length


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
    """Do what ``scan`` does, from the list; return NaN if it is used up.

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
    for j in range(lists.kept[g]):
        row = lists.row[g, j]
        if lists.mark[row] != stamp:
            kept = insert(best_row, best_score, ties, wanted, row, lists.score[g, j], lists.tie[g, j], kept)
            untouched += 1
            if untouched == wanted:
                break
    last = lists.kept[g] - 1
    complete = last + 1 < lists.row.shape[1] or untouched == wanted
    if not complete and kept == wanted:
        score = best_score[wanted - 1]
        bound = lists.score[g, last]
        complete = score > bound or (score == bound and ties[wanted - 1] <= lists.tie[g, last])
    found = np.nan
    moved = last >= 0 and lists.mark[lists.row[g, 0]] == stamp
    if complete and not stale:
        found = best_score[0] if kept > 0 else -np.inf
        scratch.row[0] = best_row[0]
        if wanted == TOP:
            for i in range(kept):
                placed.top_row[attempt, i] = best_row[i]
                placed.top_score[attempt, i] = best_score[i]
            conclude(columns, groups, placed, g, attempt, kept, scratch)
    if moved and complete and not stale and kept > 0 and best_row[0] == lists.row[g, 0]:
        placed.moved[attempt] += 1
    elif moved:
        placed.conflicts[attempt] += 1
    return found
