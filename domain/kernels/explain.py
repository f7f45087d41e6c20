"""Explain an attempt: how many rows were refused for which reason, and how the best rows were scored."""

from __future__ import annotations

from domain.kernels.arrays import (
    FIT,
    GONE,
    INFEASIBLE,
    OTHERS,
    REASONS,
    TOP,
    Columns,
    Groups,
    Placed,
    Scratch,
)
from domain.kernels.compiling import helper, unit
from domain.kernels.counting import is_hopeless_by_rules
from domain.kernels.filtering import is_hopeless
from domain.kernels.scoring import rate_block, scores_count
from domain.kernels.tournament import replay


@helper
def write_reasons(histogram, groups, placed, g, attempt, which):  # type: ignore[no-untyped-def]
    """Write reason table ``which`` of an attempt from how many rows have each code."""
    _fill_reason_table(
        histogram, groups.demand_count[g], placed.reason_code[attempt, which],
        placed.reason_count[attempt, which],
    )  # fmt: skip


@helper
def write_failure(columns, groups, counters, placed, g, attempt, scratch):  # type: ignore[no-untyped-def]
    """Write reason table 1 of an attempt, and whether all rows refuse it whatever pods leave.

    Cost: O(N) where they do, else up to the first row that does not.
    """
    write_reasons(scratch.histogram, groups, placed, g, attempt, 1)
    row = 0
    while row < columns.rows_count[0] and (
        is_hopeless(columns, groups, g, row) or is_hopeless_by_rules(groups, counters, g, row)
    ):
        row += 1
    placed.hopeless[attempt] = row == columns.rows_count[0]


@helper
def _fill_reason_table(histogram, demand_count, reason_code, reason_count):  # type: ignore[no-untyped-def]
    """Write one line per code that has rows. Two lines are kept free for ``OTHERS``."""
    written = 0
    for code in range(1, GONE):
        if histogram[code] > 0:
            reason_code[written] = code
            reason_count[written] = histogram[code]
            written += 1
    for hopeless in range(2):
        others = 0
        for bits in range(1, 1 << demand_count):
            code = FIT + 2 * bits + hopeless
            if histogram[code] == 0:
                continue
            if written < REASONS - 2:
                reason_code[written] = code
                reason_count[written] = histogram[code]
                written += 1
            else:
                others += histogram[code]
        if others > 0:
            reason_code[written] = OTHERS + hopeless
            reason_count[written] = others
            written += 1


@unit
def write_parts(
    columns: Columns, groups: Groups, placed: Placed, g: int, attempt: int, i: int, scratch: Scratch
) -> None:
    """Write the parts of the score of an attempt's i-th best row, and what they were computed from."""
    row = placed.top_row[attempt, i]
    for c in range(len(placed.explained_columns)):
        placed.top_requested[attempt, i, c] = columns.requested[placed.explained_columns[c], row]
    for k in range(scores_count(groups, g)):
        rate_block(columns, groups, g, k, row, scratch.one_fits, scratch.value[:1], scratch)
        placed.top_parts[attempt, i, k] = scratch.value[0]
    for k in range(groups.raw_count[g]):
        placed.extremes[attempt, k, 0] = groups.raw_low[g, k]
        placed.extremes[attempt, k, 1] = groups.raw_high[g, k]
    for v in range(groups.variance_count[g]):
        placed.extremes[attempt, groups.raw_count[g] + v, 0] = groups.variance_low[g, v]
        placed.extremes[attempt, groups.raw_count[g] + v, 1] = groups.variance_high[g, v]
    for q in range(groups.metric_count[g]):
        placed.metrics[attempt, q, 0] = scratch.sums[q, 2]
        placed.metrics[attempt, q, 1] = scratch.sums[q, 3]
    first = groups.raw_count[g] + groups.variance_count[g]
    for s in range(groups.counted_count[g]):
        placed.extremes[attempt, first + s, 0] = groups.counted_low[g, s]
        placed.extremes[attempt, first + s, 1] = groups.counted_high[g, s]


@helper
def write_top(columns, groups, placed, g, attempt, scratch):  # type: ignore[no-untyped-def]
    """Top-k from the tournament tree: take the best rows out one by one, then put them back.

    The group has a tree. Cost: O(TOP log N).
    """
    t = groups.tree_of[g]
    taken = 0
    while taken < TOP:
        row = groups.trees.winner[t, 1]
        score = groups.trees.score[t, row]
        if score == INFEASIBLE:
            break
        placed.top_row[attempt, taken] = row
        placed.top_score[attempt, taken] = score
        write_parts(columns, groups, placed, g, attempt, taken, scratch)
        groups.trees.score[t, row] = INFEASIBLE
        replay(columns, groups, g, row)
        taken += 1
    for i in range(taken):
        row = placed.top_row[attempt, i]
        groups.trees.score[t, row] = placed.top_score[attempt, i]
        replay(columns, groups, g, row)


@helper
def explain_attempt(columns, groups, placed, g, attempt, kept, scratch):  # type: ignore[no-untyped-def]
    """Write the parts of the ``kept`` best rows and the reasons of the others; return the best score."""
    for i in range(kept):
        write_parts(columns, groups, placed, g, attempt, i, scratch)
    write_reasons(scratch.histogram, groups, placed, g, attempt, 0)
    if kept > 0:
        scratch.row[0] = placed.top_row[attempt, 0]
    return placed.top_score[attempt, 0]
