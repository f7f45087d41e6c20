"""Equal rows: many nodes with the same score, between which ties alone decide, as in an empty cluster.

Equal rows are taken out of the blocks (``branch_and_bound.py``), so that the blocks hold what differs from
them. They are kept as one packed array of tie values. They have one score, and the best of them is the one
with the smallest salted tie value.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import INFEASIBLE, TOP
from domain.kernels.compiling import helper
from domain.kernels.scoring import score_row
from domain.kernels.ties import mix
from domain.kernels.top_k import insert_ranked

_CHUNK = 64
"""Tie values that are compared at once: 64 fill the vector registers."""

_SEARCHES_BETWEEN = 16
"""Look for a new set of equal rows at most once in 16 searches that would profit from one."""

NONE_FIT, ALL_FIT, SOME_FIT = range(3)


@helper
def are_equal_rows_of(equal, part):  # type: ignore[no-untyped-def]
    """Say whether the present set of equal rows is not empty and belongs to a static part."""
    return equal.kept[0] > 0 and equal.part[0] == part


@helper
def forget_equal_rows(equal):  # type: ignore[no-untyped-def]
    """Empty the set. The base of its rows must be written again."""
    for i in range(equal.kept[0]):
        equal.at[equal.row[i]] = -1
    equal.kept[0] = 0


@helper
def discard_equal_row(equal, row):  # type: ignore[no-untyped-def]
    """Take a row that has changed out of the set."""
    at = equal.at[row]
    if at >= 0:
        last = equal.kept[0] - 1
        equal.row[at] = equal.row[last]
        equal.tie[at] = equal.tie[last]
        equal.at[equal.row[at]] = at
        equal.at[row] = -1
        equal.kept[0] = last


@helper
def _scores_equally(columns, groups, g, row, other):  # type: ignore[no-untyped-def]
    """Say whether two rows are equal in everything that the scores of a group with upper bounds read."""
    part = groups.static_part[g]
    equal = (
        groups.static_code[part, row] == 0
        and groups.static_score[part, row] == groups.static_score[part, other]
    )
    for p in range(groups.term_first[g, groups.term_count[g]]):
        c = groups.part_column[g, p]
        equal = (
            equal
            and columns.allocatable[c, row] == columns.allocatable[c, other]
            and columns.requested[c, row] == columns.requested[c, other]
        )
    return equal


@helper
def find_equal_rows(columns, groups, bounds, g, like):  # type: ignore[no-untyped-def]
    """Take all rows that equal ``like`` out of the blocks of a group's static part; say whether it was done.

    Afterwards the base of every block must be summarised again. Cost: O(N) once in 16 calls.
    """
    equal = bounds.equal_rows
    part = groups.static_part[g]
    if equal.rest[0] > 0:
        equal.rest[0] -= 1
        return False
    equal.rest[0] = _SEARCHES_BETWEEN
    if equal.kept[0] > 0:
        bounds.synced[equal.part[0]] = -1
        forget_equal_rows(equal)
        if equal.part[0] == part:
            return False
    equal.part[0] = part
    base = bounds.base[part, like]
    kept = 0
    for row in range(columns.rows_count[0]):
        if bounds.base[part, row] == base and _scores_equally(columns, groups, g, row, like):
            equal.row[kept] = row
            equal.tie[kept] = columns.tie[row]
            equal.at[row] = kept
            bounds.base[part, row] = -np.inf
            kept += 1
    equal.kept[0] = kept
    for c in range(len(columns.allocatable)):
        low = np.int64(1 << 62)
        high = np.int64(-(1 << 62))
        for i in range(kept):
            free = columns.allocatable[c, equal.row[i]] - columns.requested[c, equal.row[i]]
            low = min(low, free)
            high = max(high, free)
        equal.free_low[c] = low
        equal.free_high[c] = high
    return True


@helper
def fit_equal_rows(groups, equal, g):  # type: ignore[no-untyped-def]
    """Say whether none, all or some of the equal rows are feasible."""
    fit = SOME_FIT if groups.limit_count[g] > 0 else ALL_FIT
    for d in range(groups.demand_count[g]):
        c = groups.demand_column[g, d]
        if groups.demand_value[g, d] > equal.free_high[c]:
            return NONE_FIT
        if groups.demand_value[g, d] > equal.free_low[c]:
            fit = SOME_FIT
    return fit


@helper
def _smallest(ties, salt):  # type: ignore[no-untyped-def]
    smallest = np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(len(ties)):
        smallest = min(smallest, mix(ties[i] ^ salt))
    return smallest


@helper
def best_equal_rows(columns, groups, equal, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Find the best of the equal rows, all of them feasible.

    Return how many are kept, and the score and the tie value of the last one kept. Cost: O(equal rows).
    """
    salt = groups.salt[g]
    score = score_row(columns, groups, g, equal.row[0], scratch)
    last_tie = np.uint64(0xFFFFFFFFFFFFFFFF)
    kept = 0
    count = equal.kept[0]
    for first in range(0, count, _CHUNK):
        end = min(first + _CHUNK, count)
        if kept == wanted and _smallest(equal.tie[first:end], salt) >= last_tie:
            continue
        for i in range(first, end):
            tie = mix(equal.tie[i] ^ salt)
            if kept == wanted and tie >= last_tie:
                continue
            if wanted == 1:
                scratch.row[0] = equal.row[i]
                kept, last_tie = 1, tie
            else:
                kept = insert_ranked(
                    placed.top_row[attempt], placed.top_score[attempt], scratch.ties, TOP,
                    equal.row[i], score, tie, kept,
                )  # fmt: skip
                if kept == TOP:
                    last_tie = scratch.ties[TOP - 1]
    return kept, score if kept == wanted else INFEASIBLE, last_tie
