"""Rows between which ties alone decide: where many are equal, as in an empty cluster of equal nodes.

They are taken out of the blocks (``bounding.py``), which then hold what differs from them, and are kept as
one packed array of ties. One score is that of all of them; the best is the one with the smallest salted tie.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import TOP
from domain.kernels.compiling import function, helper, inner
from domain.kernels.evaluating import score_row
from domain.kernels.scanning import insert
from domain.kernels.ties import mix

_CHUNK = 64
"""Ties of so many twins are compared at once."""

_REST = 16
"""Other twins are made at most once in so many searches that would profit from it."""

NONE_FIT, ALL_FIT, SOME_FIT = range(3)


@helper
def are_twins_of(twins, part):  # type: ignore[no-untyped-def]
    """Say whether there are twins, and whether they are those of a static part."""
    return twins.kept[0] > 0 and twins.part[0] == part


@helper
def forget_twins(twins):  # type: ignore[no-untyped-def]
    """Have none; their base scores must be made anew."""
    for i in range(twins.kept[0]):
        twins.at[twins.row[i]] = -1
    twins.kept[0] = 0


@helper
def discard_twin(twins, row):  # type: ignore[no-untyped-def]
    """A row has changed: it is a twin no more."""
    at = twins.at[row]
    if at >= 0:
        last = twins.kept[0] - 1
        twins.row[at] = twins.row[last]
        twins.tie[at] = twins.tie[last]
        twins.at[twins.row[at]] = at
        twins.at[row] = -1
        twins.kept[0] = last


@helper
def _scores_equally(columns, groups, g, row, other):  # type: ignore[no-untyped-def]
    """Say whether two rows are equal in all that the scores of a bounded group read."""
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


@inner
def make_twins(columns, groups, bounds, g, like):  # type: ignore[no-untyped-def]
    """Take the twins of a row out of the blocks of a bounded group's static part; say whether they were made.

    The best of each block must be found again.
    """
    twins = bounds.twins
    part = groups.static_part[g]
    if twins.rest[0] > 0:
        twins.rest[0] -= 1
        return False
    twins.rest[0] = _REST
    if twins.kept[0] > 0:
        bounds.synced[twins.part[0]] = -1
        forget_twins(twins)
        if twins.part[0] == part:
            return False
    twins.part[0] = part
    base = bounds.base[part, like]
    kept = 0
    for row in range(columns.rows_count[0]):
        if bounds.base[part, row] == base and _scores_equally(columns, groups, g, row, like):
            twins.row[kept] = row
            twins.tie[kept] = columns.tie[row]
            twins.at[row] = kept
            bounds.base[part, row] = -np.inf
            kept += 1
    twins.kept[0] = kept
    for c in range(len(columns.allocatable)):
        low = np.int64(1 << 62)
        high = np.int64(-(1 << 62))
        for i in range(kept):
            free = columns.allocatable[c, twins.row[i]] - columns.requested[c, twins.row[i]]
            low = min(low, free)
            high = max(high, free)
        twins.free_low[c] = low
        twins.free_high[c] = high
    return True


@helper
def fit_twins(groups, twins, g):  # type: ignore[no-untyped-def]
    """Say how many of the twins are feasible: none, all, or some."""
    fit = SOME_FIT if groups.occupancy_count[g] + groups.limit_count[g] > 0 else ALL_FIT
    for d in range(groups.demand_count[g]):
        c = groups.demand_column[g, d]
        if groups.demand_value[g, d] > twins.free_high[c]:
            return NONE_FIT
        if groups.demand_value[g, d] > twins.free_low[c]:
            fit = SOME_FIT
    return fit


@function
def _smallest(ties, salt):  # type: ignore[no-untyped-def]
    smallest = np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(len(ties)):
        smallest = min(smallest, mix(ties[i] ^ salt))
    return smallest


@helper
def best_twins(columns, groups, twins, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Find the best of the twins, all of them feasible; return how many are kept, and the last of them."""
    salt = groups.salt[g]
    score = score_row(columns, groups, g, twins.row[0])
    last_tie = np.uint64(0xFFFFFFFFFFFFFFFF)
    kept = 0
    count = twins.kept[0]
    for first in range(0, count, _CHUNK):
        end = min(first + _CHUNK, count)
        if kept == wanted and _smallest(twins.tie[first:end], salt) >= last_tie:
            continue
        for i in range(first, end):
            tie = mix(twins.tie[i] ^ salt)
            if kept == wanted and tie >= last_tie:
                continue
            if wanted == 1:
                scratch.row[0] = twins.row[i]
                kept, last_tie = 1, tie
            else:
                kept = insert(
                    placed.top_row[attempt], placed.top_score[attempt], scratch.ties, TOP,
                    twins.row[i], score, tie, kept,
                )  # fmt: skip
                if kept == TOP:
                    last_tie = scratch.ties[TOP - 1]
    return kept, score if kept == wanted else -np.inf, last_tie
