"""Full scan: filter and score all rows, block by block, from the group's base where it has one."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BLOCK,
    INFEASIBLE,
    TOP,
    Bounds,
    ChangeLog,
    Columns,
    Counters,
    Groups,
    Placed,
    Scratch,
)
from domain.kernels.bases import has_base, sync_base
from domain.kernels.blocks import fit_rows, sync_blocks
from domain.kernels.compiling import helper, unit
from domain.kernels.counting import fit_rules, rule_code, set_rules, set_values, write_rules
from domain.kernels.explain import explain_attempt
from domain.kernels.filtering import clear_histogram, filter_row
from domain.kernels.normalising import reset_extremes, widen_extremes
from domain.kernels.scoring import add_scores, first_counted, score_block, scores_count
from domain.kernels.top_k import keep_best
from domain.kernels.tournament import void_tree
from domain.kernels.variance import extremes_of_growth, grow_variances


@helper
def copy_flags(source, target):  # type: ignore[no-untyped-def]
    """Copy uint8[n]; a loop, as a slice assignment would count references."""
    for i in range(len(source)):
        target[i] = source[i]


@helper
def _copy_totals(source, target):  # type: ignore[no-untyped-def]
    for i in range(len(source)):
        target[i] = source[i]


@helper
def _fit(columns, groups, bounds, g, with_base, first, n, scratch):  # type: ignore[no-untyped-def]
    """Filter a block by all but the rules: see ``fit_block``."""
    if with_base:
        copy_flags(groups.bases.fits[groups.base_of[g], first : first + n], scratch.fits[:n])
    else:
        fit_rows(columns, groups, bounds, g, first, n, scratch)


@helper
def _score(columns, groups, g, with_base, first, n, scratch):  # type: ignore[no-untyped-def]
    """Score a block: see ``score_block``."""
    if with_base:
        _copy_totals(groups.bases.total[groups.base_of[g], first : first + n], scratch.total[:n])
        add_scores(
            columns, groups, g, first_counted(groups, g), scores_count(groups, g), first,
            scratch.fits[:n], scratch.total[:n], scratch,
        )  # fmt: skip
    else:
        score_block(columns, groups, g, first, scratch.fits[:n], scratch.total[:n], scratch)


@helper
def find_extremes(columns, groups, g, scratch):  # type: ignore[no-untyped-def]
    """Find the extremes of a group's normalised scores over the feasible rows, ``scratch.feasible``."""
    count = columns.rows_count[0]
    feasible = scratch.feasible[:count]
    void_tree(groups, g)
    reset_extremes(groups, g)
    for row in range(count if groups.raws_varying[groups.static_part[g]] > 0 else 0):
        if feasible[row] != 0:
            widen_extremes(groups, g, row)
    for v in range(groups.variance_count[g]):
        groups.variance_low[g, v], groups.variance_high[g, v] = extremes_of_growth(
            scratch.growth[v, :count], feasible
        )


@helper
def _count_fitting(fits):  # type: ignore[no-untyped-def]
    """Return how many rows of a block are feasible."""
    fitting = 0
    for i in range(len(fits)):
        fitting += fits[i]
    return fitting


@helper
def count_codes(columns, groups, counters, g, histogram):  # type: ignore[no-untyped-def]
    """Count the rows per code of a group, int32[CODES], by the bounds of its rules. Cost: O(N) per filter."""
    clear_histogram(groups, g, histogram)
    for row in range(columns.rows_count[0]):
        code = filter_row(columns, groups, g, row)
        histogram[rule_code(groups, counters, g, row, code)] += 1


@unit
def scan(
    columns: Columns,
    groups: Groups,
    counters: Counters,
    bounds: Bounds,
    changes: ChangeLog,
    placed: Placed,
    g: int,
    attempt: int,
    wanted: int,
    scratch: Scratch,
) -> int:
    """Find the best row of a group by scoring every row.

    Parameters
    ----------
    columns, groups, counters, bounds, changes, placed, scratch
        The arrays of ``domain.kernels.arrays``.
    g, attempt : int
        The group's slot, and its attempt in ``placed``.
    wanted : int
        1 for the best row alone. TOP to write the best rows into the attempt's top, and into its reason table
        0 why the others are refused.

    Returns
    -------
    int64
        The best total, with the row in ``scratch.row``; ``INFEASIBLE`` where no row is.

    Cost: O(N) per filter and score. With a base: O(N) per rule and per value of a score by counts.
    """
    kept = 0
    last_score = INFEASIBLE
    last_tie = np.uint64(0xFFFFFFFFFFFFFFFF)
    explains = wanted == TOP
    if explains:
        clear_histogram(groups, g, scratch.histogram)
    count = columns.rows_count[0]
    with_base = has_base(groups, g)
    if with_base:
        sync_base(columns, groups, changes, g, scratch)
    else:
        sync_blocks(columns, bounds, changes, scratch.marks)
    set_rules(groups, counters, g)
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        _fit(columns, groups, bounds, g, with_base, first, n, scratch)
        fit_rules(groups, counters, g, first, scratch.fits[:n])
        copy_flags(scratch.fits[:n], scratch.feasible[first : first + n])
    if groups.raws_varying[groups.static_part[g]] + groups.variance_count[g] > 0:
        if groups.variance_count[g] > 0:
            grow_variances(columns, groups, changes, g, scratch)
        find_extremes(columns, groups, g, scratch)
    set_values(columns, groups, counters, g, scratch)
    for first in range(0, count, BLOCK):
        n = min(BLOCK, count - first)
        copy_flags(scratch.feasible[first : first + n], scratch.fits[:n])
        _score(columns, groups, g, with_base, first, n, scratch)
        if explains and _count_fitting(scratch.fits[:n]) < n:
            for i in range(n):
                if scratch.fits[i] == 0:
                    code = filter_row(columns, groups, g, first + i)
                    scratch.histogram[rule_code(groups, counters, g, first + i, code)] += 1
        kept, last_score, last_tie = keep_best(
            columns, groups, placed, g, attempt, wanted, first, n, scratch, kept, last_score, last_tie
        )
    if explains:
        last_score = explain_attempt(columns, groups, placed, g, attempt, kept, scratch)
        write_rules(groups, counters, placed, g, attempt, 0)
    return last_score if kept > 0 else INFEASIBLE
