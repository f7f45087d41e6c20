"""Score: a block of rows at once. A row by itself is a block of one.

The scores of a group are numbered: those of static plugins that are normalised, the resource terms, the
variances, the scores by counts. The total of a row is their weighted sum in whole numbers (``totals.py``),
and what the static plugins say that are not normalised. Those that are the same on all rows are skipped.
"""

from __future__ import annotations

from domain.kernels.arrays import Columns, Groups, Scratch
from domain.kernels.compiling import helper, unit
from domain.kernels.counting import rate_counted
from domain.kernels.normalising import is_constant, normal
from domain.kernels.tables import Flags, Reals
from domain.kernels.terms import rate_term
from domain.kernels.totals import whole
from domain.kernels.variance import normal_growth


@helper
def scores_count(groups, g):  # type: ignore[no-untyped-def]
    """Return how many scores a group has."""
    return groups.raw_count[g] + groups.term_count[g] + groups.variance_count[g] + groups.counted_count[g]


@helper
def score_weight(groups, g, k):  # type: ignore[no-untyped-def]
    """Return the weight of the k-th score of a group."""
    t = k - groups.raw_count[g]
    v = t - groups.term_count[g]
    if t < 0:
        weight = groups.raw_weight[g, k]
    elif v < 0:
        weight = groups.term_weight[g, t]
    elif v < groups.variance_count[g]:
        weight = groups.variance_weight[g, v]
    else:
        weight = groups.counted_weight[g, v - groups.variance_count[g]]
    return weight


@unit
def rate_block(
    columns: Columns, groups: Groups, g: int, k: int, first: int, fits: Flags, value: Reals, scratch: Scratch
) -> None:
    """Write the k-th score, 0..100, of rows ``first .. first + n - 1`` into ``value`` float64[n].

    ``fits`` uint8[n] says which of them are feasible. The extremes of normalised scores and variances must be
    known (``scanning.find_extremes``).
    """
    part = groups.static_part[g]
    t = k - groups.raw_count[g]
    v = t - groups.term_count[g]
    end = first + len(value)
    if t < 0:
        _rate_normal(
            groups.static_raw[part, k, first:end], groups.raw_low[g, k], groups.raw_high[g, k],
            groups.raw_kind[g, k], value,
        )  # fmt: skip
    elif v < 0:
        begin = groups.term_first[g, t]
        parts = groups.term_first[g, t + 1]
        rate_term(
            groups.term_kind[g, t], columns.allocatable, columns.requested,
            groups.static_raw[part, groups.term_measured[g, t] :], fits, first,
            groups.part_column[g, begin:parts], groups.part_weight[g, begin:parts],
            groups.part_value[g, begin:parts],
            groups.number[g, groups.term_number[g, t] : groups.term_number[g, t + 1]], scratch.work, value,
        )  # fmt: skip
    elif v < groups.variance_count[g]:
        _rate_growth(
            scratch.growth[v, first:end], groups.variance_low[g, v], groups.variance_high[g, v],
            groups.variance_flags[g, v], value,
        )  # fmt: skip
    else:
        s = v - groups.variance_count[g]
        rate_counted(
            scratch.counted[s, first:end], groups.counted_kind[g, s], groups.counted_low[g, s],
            groups.counted_high[g, s], value,
        )  # fmt: skip


@helper
def score_block(columns, groups, g, first, fits, total, scratch):  # type: ignore[no-untyped-def]
    """Write into ``total`` int64[n] the totals of rows ``first .. first + n - 1``.

    Parameters and cost are those of ``rate_block``, for each score.
    """
    set_static(groups, g, first, total)
    add_scores(columns, groups, g, 0, scores_count(groups, g), first, fits, total, scratch)


@helper
def first_counted(groups, g):  # type: ignore[no-untyped-def]
    """Return the number of the first score that depends on what pods count, on this row or on others."""
    return groups.raw_count[g] + groups.term_count[g]


@helper
def add_scores(columns, groups, g, begin, end, first, fits, total, scratch):  # type: ignore[no-untyped-def]
    """Add scores ``begin .. end - 1`` to the totals of a block, int64[n]: see ``score_block``."""
    n = len(total)
    for k in range(begin, end):
        if k < groups.raw_count[g] and is_constant(groups, g, k):
            continue
        rate_block(columns, groups, g, k, first, fits, scratch.value[:n], scratch)
        _add_whole(scratch.value[:n], score_weight(groups, g, k), total)


@helper
def score_row(columns, groups, g, row, scratch):  # type: ignore[no-untyped-def]
    """Return the total of a feasible row by the present extremes, int64: that of a block of one."""
    score_block(columns, groups, g, row, scratch.one_fits, scratch.one_total, scratch)
    return scratch.one_total[0]


@helper
def set_static(groups, g, first, total):  # type: ignore[no-untyped-def]
    """Write the totals of a block, int64[n], by the static scores that are not normalised or are constant."""
    part = groups.static_part[g]
    _set(groups.static_score[part, first : first + len(total)], groups.static_constant[part], total)


@helper
def _set(static_score, constant, total):  # type: ignore[no-untyped-def]
    for i in range(len(total)):
        total[i] = static_score[i] + constant


@helper
def _add_whole(value, weight, total):  # type: ignore[no-untyped-def]
    """Add scores, float64[n], to the totals of a block, int64[n]."""
    for i in range(len(total)):
        total[i] += whole(value[i], weight)


@helper
def _rate_normal(raw, low, high, kind, value):  # type: ignore[no-untyped-def]
    for i in range(len(value)):
        value[i] = normal(raw[i], low, high, kind)


@helper
def _rate_growth(growth, low, high, flags, value):  # type: ignore[no-untyped-def]
    for i in range(len(value)):
        value[i] = normal_growth(growth[i], low, high, flags)
