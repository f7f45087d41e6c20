"""Evaluate one group on every row: the code, the scores and the total of each, and nothing is placed."""

from __future__ import annotations

from domain.kernels.arrays import BLOCK, INFEASIBLE, ChangeLog, Columns, Counters, Groups, Scratch
from domain.kernels.compiling import unit
from domain.kernels.counting import is_hopeless_by_rules, rule_code, set_rules, set_values
from domain.kernels.filtering import filter_row, is_hopeless
from domain.kernels.scanning import find_extremes
from domain.kernels.scoring import rate_block, score_block, scores_count
from domain.kernels.tables import Codes, Flags, Measured, Rows
from domain.kernels.variance import grow_variances


@unit
def evaluate(
    columns: Columns,
    groups: Groups,
    counters: Counters,
    changes: ChangeLog,
    g: int,
    scratch: Scratch,
    code: Codes,
    hopeless: Flags,
    parts: Measured,
    total: Rows,
) -> None:
    """Fill a line per row by the functions with which pods are placed.

    Parameters
    ----------
    columns, groups, counters, changes, scratch
        The arrays of ``domain.kernels.arrays``. The extremes of the group are written, and it is stale after.
    g : int
        The group's slot.
    code : int16[N]
        Written: why the row is refused, 0 where it is feasible. N is the number of rows in use.
    hopeless : uint8[N]
        Written: 1 where a filter refuses the row whatever pods leave it.
    parts : float64[K, N]
        Written: each score of the group, 0..100. What it says of a row that is not feasible means nothing.
    total : int64[N]
        Written: the total, ``INFEASIBLE`` where the row is refused.

    Cost: O(N) per filter and score.
    """
    count = columns.rows_count[0]
    set_rules(groups, counters, g)
    for row in range(count):
        code[row] = rule_code(groups, counters, g, row, filter_row(columns, groups, g, row))
        hopeless[row] = is_hopeless(columns, groups, g, row) or is_hopeless_by_rules(groups, counters, g, row)
        scratch.feasible[row] = code[row] == 0
    if groups.variance_count[g] > 0:
        grow_variances(columns, groups, changes, g, scratch)
    find_extremes(columns, groups, g, scratch)
    set_values(columns, groups, counters, g, scratch)
    for first in range(0, count, BLOCK):
        end = min(first + BLOCK, count)
        fits = scratch.feasible[first:end]
        score_block(columns, groups, g, first, fits, total[first:end], scratch)
        for k in range(scores_count(groups, g)):
            rate_block(columns, groups, g, k, first, fits, parts[k, first:end], scratch)
    for row in range(count):
        total[row] = total[row] if code[row] == 0 else INFEASIBLE
