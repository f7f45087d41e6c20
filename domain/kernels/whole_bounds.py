"""Search by bounds of the row: whole scores, where nearly all rows tie with many others.

No bound per block of rows tells such rows apart. So each has a bound of its own (``row_bounds.py``), and what
pods count by domain is added to it (``counted_bounds.py``). Of the rows with the highest bound the one with
the smallest tie is scored exactly. If its bound was too high, it is put back with its exact total, and the
next one is asked. If it was right, the row is the best one: no bound is below its total.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    BALANCED_CHANGE,
    BLOCK,
    INFEASIBLE,
    LEAST_ALLOCATED,
    NOT_HOME,
    ROOM,
    SPAN,
    TOP,
    TOTAL_ONE,
    UNKNOWN,
    WHOLE,
    Bounds,
    ChangeLog,
    Columns,
    Counters,
    Groups,
    Placed,
    Scratch,
)
from domain.kernels.blocks import sync_blocks
from domain.kernels.branch_and_bound import sync_base
from domain.kernels.compiling import helper, unit
from domain.kernels.counted_bounds import add_counts, set_counted_of
from domain.kernels.counting import has_counts, rule_code, set_rules, write_rules
from domain.kernels.explain import explain_attempt
from domain.kernels.filtering import clear_histogram, filter_row
from domain.kernels.row_bounds import sync_row_bounds
from domain.kernels.scoring import score_row
from domain.kernels.ties import mix

_WRONG_MAX = 16
"""Give up after 16 bounds that were too high, and scan."""

_WEIGHT_MAX = 1_000.0
"""Sums of whole scores with whole weights up to 1,000 are exact in float32."""

_WEIGHTS_MAX = 160.0
"""Scores that weigh 160 together add at most 16,000 to a bound, which is an int16."""

_LAST_TIE = 0xFFFF_FFFF_FFFF_FFFF


@helper
def has_whole_bounds(groups, g):  # type: ignore[no-untyped-def]
    """Say whether the totals of a group are whole scores that have a bound by the row."""
    part = groups.static_part[g]
    bounded = groups.static_whole[part] != 0 and groups.raws_varying[part] == 0 and groups.term_count[g] > 0
    bounded = bounded and groups.variance_count[g] + groups.limit_count[g] == 0
    balanced = 0
    weights = 0.0
    for t in range(groups.term_count[g]):
        begin = groups.term_first[g, t]
        end = groups.term_first[g, t + 1]
        kind = groups.term_kind[g, t]
        balanced += kind == BALANCED_CHANGE + WHOLE
        known = kind == LEAST_ALLOCATED + WHOLE or kind == ROOM + WHOLE
        known = known or (kind == BALANCED_CHANGE + WHOLE and end - begin <= 2)
        bounded = bounded and known and _is_whole_weight(groups.term_weight[g, t])
        weights += groups.term_weight[g, t]
        for p in range(begin, end):
            bounded = bounded and _is_whole_weight(groups.part_weight[g, p])
    for s in range(groups.counted_count[g]):
        bounded = bounded and _is_whole_weight(groups.counted_weight[g, s])
        weights += groups.counted_weight[g, s]
    return bounded and weights <= _WEIGHTS_MAX and balanced <= 1  # ``bounds.even`` is of one term


@helper
def _is_whole_weight(weight):  # type: ignore[no-untyped-def]
    return weight >= 0.0 and weight <= _WEIGHT_MAX and weight == np.floor(weight)


@helper
def _highest(bound):  # type: ignore[no-untyped-def]
    """Return the highest of int16[n]: by itself and of whole numbers, or no vector instructions are made."""
    highest = np.int16(-1)
    for i in range(len(bound)):
        highest = max(highest, bound[i])
    return highest


@helper
def _set_highest(bound, highest):  # type: ignore[no-untyped-def]
    """Write the highest of each span of int16[n]: spans are short, as few of them hold rows of the best."""
    for b in range(len(highest)):
        highest[b] = _highest(bound[b * SPAN : min((b + 1) * SPAN, len(bound))])


@helper
def _count_refused_at_home(bound, static_code):  # type: ignore[no-untyped-def]
    """Return how many rows of a block are looked at and refused."""
    refused = np.int32(0)
    for i in range(len(bound)):
        refused += np.int32(bound[i] < 0) & np.int32(static_code[i] != NOT_HOME)
    return refused


@helper
def _count_refused(columns, groups, counters, g, scratch):  # type: ignore[no-untyped-def]
    """Count the rows per code that more than the rules refuse. ``scratch.bound`` must not know the rules."""
    clear_histogram(groups, g, scratch.histogram)
    count = columns.rows_count[0]
    static_code = groups.static_code[groups.static_part[g]]
    for first in range(0, count, BLOCK):
        end = min(first + BLOCK, count)
        if _count_refused_at_home(scratch.bound[first:end], static_code[first:end]) > 0:
            for row in range(first, end):
                if scratch.bound[row] < 0 and static_code[row] != NOT_HOME:
                    code = filter_row(columns, groups, g, row)
                    scratch.histogram[rule_code(groups, counters, g, row, code)] += 1


@helper
def _smallest_tie(bound, tie, level, salt):  # type: ignore[no-untyped-def]
    """Return the smallest salted tie value of the rows with a bound of ``level``."""
    smallest = np.uint64(_LAST_TIE)
    for i in range(len(bound)):
        salted = mix(tie[i] ^ salt)
        smallest = min(smallest, salted if bound[i] == level else np.uint64(_LAST_TIE))
    return smallest


@helper
def _find_tie(bound, tie, level, salt, wanted):  # type: ignore[no-untyped-def]
    """Return the first row with a bound of ``level`` and this salted tie value."""
    for i in range(len(bound)):
        if bound[i] == level and mix(tie[i] ^ salt) == wanted:
            return i
    return 0


@helper
def _find_first(columns, groups, g, blocks, scratch):  # type: ignore[no-untyped-def]
    """Return the row with the highest bound, of equal ones that with the smallest tie; -1: none is left.

    The smallest tie of a block is computed when it is first asked for, and kept; 0: not yet.
    """
    salt = groups.salt[g]
    count = columns.rows_count[0]
    level = _highest(scratch.block_highest[:blocks])
    smallest = np.uint64(_LAST_TIE)
    at = -1
    for b in range(blocks if level >= 0 else 0):
        if scratch.block_highest[b] == level:
            first = b * SPAN
            end = min(first + SPAN, count)
            if scratch.block_tie[b] == np.uint64(0):
                scratch.block_tie[b] = _smallest_tie(
                    scratch.bound[first:end], columns.tie[first:end], level, salt
                )  # fmt: skip
            if at < 0 or scratch.block_tie[b] < smallest:
                smallest = scratch.block_tie[b]
                at = b
    row = -1
    if at >= 0:
        first = at * SPAN
        end = min(first + SPAN, count)
        row = first + _find_tie(scratch.bound[first:end], columns.tie[first:end], level, salt, smallest)
    return row


@helper
def _set_bound(columns, row, bound, scratch):  # type: ignore[no-untyped-def]
    """Change the bound of a row. Cost: O(SPAN)."""
    b = row // SPAN
    scratch.bound[row] = bound
    scratch.block_highest[b] = _highest(
        scratch.bound[b * SPAN : min((b + 1) * SPAN, columns.rows_count[0])]
    )  # fmt: skip
    scratch.block_tie[b] = 0


@unit
def search_whole(
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
    """Find the best row of a group by bounds of the row: the answer of ``scan``.

    The best rows are taken out one by one. Each is scored exactly, and put back where its bound was too high.

    Parameters and what is returned are those of ``scan``; ``UNKNOWN`` where many bounds were too high. Cost:
    O(N) to look at the bounds, 8 rows at once, beside what ``sync_row_bounds`` and ``add_counts`` cost.
    """
    sync_blocks(columns, bounds, changes, scratch.marks)
    sync_base(columns, groups, bounds, changes, g, scratch)
    sync_row_bounds(columns, groups, bounds, changes, g, scratch)
    count = columns.rows_count[0]
    set_rules(groups, counters, g)
    if wanted == TOP:
        _count_refused(columns, groups, counters, g, scratch)
    if has_counts(groups, g):
        add_counts(columns, groups, counters, g, wanted == TOP, scratch)
    blocks = (count + SPAN - 1) // SPAN
    _set_highest(scratch.bound[:count], scratch.block_highest[:blocks])
    scratch.block_tie[:blocks] = 0
    kept = 0
    wrong = 0
    row = 0
    best = INFEASIBLE
    while kept < wanted and row >= 0 and wrong < _WRONG_MAX:
        row = _find_first(columns, groups, g, blocks, scratch)
        if row >= 0:
            set_counted_of(groups, counters, g, row, scratch)
            score = score_row(columns, groups, g, row, scratch)
            if score != np.int64(scratch.bound[row]) * TOTAL_ONE:
                wrong += 1
                _set_bound(columns, row, score // TOTAL_ONE, scratch)
            else:
                if kept == 0:
                    best = score
                    scratch.row[0] = row
                if wanted == TOP:
                    placed.top_row[attempt, kept] = row
                    placed.top_score[attempt, kept] = score
                    _set_bound(columns, row, -1, scratch)
                kept += 1
    if wrong == _WRONG_MAX:
        for i in range(kept if wanted == TOP else 0):
            placed.top_row[attempt, i] = -1
            placed.top_score[attempt, i] = 0
        return UNKNOWN
    if wanted == TOP:
        explain_attempt(columns, groups, placed, g, attempt, kept, scratch)
        write_rules(groups, counters, placed, g, attempt, 0)
    return best
