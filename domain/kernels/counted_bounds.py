"""What pods count by domain, on top of the bounds by the row: rules refuse rows, scores by counts raise them.

Few of the rows are touched by what the pods of one group count: with a thousand groups in turn, each has pods
on few nodes. So whole-number scores are added where something is counted, and to all others at once.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import AFFINITY_SCORE, RULE, Columns, Counters, Groups, Scratch
from domain.kernels.compiling import helper, unit
from domain.kernels.counting import counted_score, set_counted

_DOMAINS_LISTED = 64
"""A key with at most 64 domains is asked for those that a rule refuses."""

_REFUSED_FEW = 8
"""At most 8 domains are refused one after another: a pass over the rows each, 8 rows at once."""

_TOUCHED_SHARE = 8
"""Score all rows anew where counts touch more than 1 in 8."""


@helper
def _refuse_domain(domain, refused, bound):  # type: ignore[no-untyped-def]
    for i in range(len(bound)):
        bound[i] = np.int16(-1) if domain[i] == refused else bound[i]


@helper
def _refuse_missing(domain, bound):  # type: ignore[no-untyped-def]
    for i in range(len(bound)):
        bound[i] = np.int16(-1) if domain[i] < 0 else bound[i]


@helper
def _refuse_by_sums(domain, sums, low, high, bound):  # type: ignore[no-untyped-def]
    for i in range(len(bound)):
        count = sums[max(domain[i], 0)]
        refused = (domain[i] >= 0) & ((count < low) | (count > high))
        bound[i] = np.int16(-1) if refused else bound[i]


@helper
def _count_feasible(bound):  # type: ignore[no-untyped-def]
    found = 0
    for i in range(len(bound)):
        found += bound[i] >= 0
    return found


@helper
def _refuse(groups, counters, g, r, bound):  # type: ignore[no-untyped-def]
    """Refuse the rows in whose domain a rule does not pass."""
    c = groups.rule_counter[g, r]
    low = groups.rule_low[g, r]
    high = groups.rule_high[g, r]
    domain = counters.domain[counters.topology[c], : len(bound)]
    first = counters.first[c]
    refused = 0
    for d in range(min(counters.length[c], _DOMAINS_LISTED)):
        refused += (counters.sums[first + d] < low) | (counters.sums[first + d] > high)
    if counters.length[c] <= _DOMAINS_LISTED and refused <= _REFUSED_FEW:
        for d in range(counters.length[c]):
            if counters.sums[first + d] < low or counters.sums[first + d] > high:
                _refuse_domain(domain, d, bound)
    else:
        _refuse_by_sums(domain, counters.sums[first:], low, high, bound)


@helper
def _raw_of(groups, counters, g, s, row):  # type: ignore[no-untyped-def]
    """Return the raw score of affinity of a row."""
    raw = np.int64(0)
    for v in range(groups.counted_first[g, s], groups.counted_first[g, s + 1]):
        c = groups.value_counter[g, v]
        d = counters.domain[counters.topology[c], row]
        if d >= 0:
            raw += counters.sums[counters.first[c] + d]
    return raw


@helper
def set_counted_of(groups, counters, g, row, scratch):  # type: ignore[no-untyped-def]
    """Write the raw scores of a row that ``add_counts`` may have left out."""
    for s in range(groups.counted_count[g]):
        if groups.counted_kind[g, s] == AFFINITY_SCORE:
            scratch.counted[s, row] = _raw_of(groups, counters, g, s, row)


@helper
def _clear(flags):  # type: ignore[no-untyped-def]
    for i in range(len(flags)):
        flags[i] = 0


@helper
def _mark(flags):  # type: ignore[no-untyped-def]
    for i in range(len(flags)):
        flags[i] = 1


@helper
def _mark_touched(domain, sums, flags):  # type: ignore[no-untyped-def]
    """Mark all rows but those whose domain has the row's own number and counts nothing."""
    for i in range(len(flags)):
        flags[i] |= (domain[i] != i) | (sums[i] != 0)


@helper
def _find_touched(groups, counters, g, s, count, scratch):  # type: ignore[no-untyped-def]
    """List the feasible rows whose raw score is not 0 in ``scratch.touched``; write it, and the extremes.

    Return how many there are, or -1 where they are too many. Host names are mostly numbered as their rows
    are. Where they are not, as after nodes went, each row is asked.
    """
    words = (count + 7) // 8
    _clear(scratch.flags[: words * 8])
    for v in range(groups.counted_first[g, s], groups.counted_first[g, s + 1]):
        c = groups.value_counter[g, v]
        known = min(count, counters.length[c])
        first = counters.first[c]
        _mark_touched(
            counters.domain[counters.topology[c], :known], counters.sums[first : first + known],
            scratch.flags[:known],
        )  # fmt: skip
        _mark(scratch.flags[known:count])
    low = np.int64(1 << 62)
    high = -low
    touched = 0
    has_zero = False
    for w in range(words):
        if scratch.flag_words[w] == np.uint64(0):
            if not has_zero:
                for row in range(w * 8, min(w * 8 + 8, count)):
                    has_zero = has_zero or scratch.bound[row] >= 0
            continue
        for row in range(w * 8, min(w * 8 + 8, count)):
            if scratch.bound[row] < 0:
                continue
            raw = _raw_of(groups, counters, g, s, row) if scratch.flags[row] != 0 else np.int64(0)
            if raw == 0:
                has_zero = True
                continue
            scratch.touched[touched] = row
            scratch.counted[s, row] = raw
            low = min(low, raw)
            high = max(high, raw)
            touched += 1
        if touched * _TOUCHED_SHARE > count:
            touched = -1
            break
    groups.counted_low[g, s] = min(low, np.int64(0)) if has_zero else low
    groups.counted_high[g, s] = max(high, np.int64(0)) if has_zero else high
    return touched


@helper
def _add(share, bound):  # type: ignore[no-untyped-def]
    for i in range(len(bound)):
        bound[i] += share if bound[i] >= 0 else np.int16(0)


@helper
def _add_scores(counted, kind, low, high, weight, bound):  # type: ignore[no-untyped-def]
    for i in range(len(bound)):
        share = np.int16(weight * counted_score(kind, counted[i], low, high))
        bound[i] += share if bound[i] >= 0 else np.int16(0)


@helper
def _copy_feasible(bound, feasible):  # type: ignore[no-untyped-def]
    for i in range(len(bound)):
        feasible[i] = bound[i] >= 0


@unit
def add_counts(
    columns: Columns, groups: Groups, counters: Counters, g: int, explains: bool, scratch: Scratch
) -> None:
    """Refuse rows in ``scratch.bound``, int16[N], by a group's rules, and add its scores by counts.

    ``counting.set_rules`` comes first. With ``explains`` the rows that are refused are counted in
    ``scratch.histogram``. Cost: O(N) per rule and value, 8 rows at once, or one at once where many count.
    """
    count = columns.rows_count[0]
    bound = scratch.bound[:count]
    left = _count_feasible(bound) if explains and groups.rule_count[g] > 0 else 0
    for r in range(groups.rule_count[g]):
        c = groups.rule_counter[g, r]
        for lacks in range(1, -1, -1):
            if lacks == 0:
                _refuse(groups, counters, g, r, bound)
            elif groups.rule_missing[g, r] != 0:
                _refuse_missing(counters.domain[counters.topology[c], :count], bound)
            if explains:
                passed = _count_feasible(bound)
                scratch.histogram[RULE + 2 * r + lacks] += left - passed
                left = passed
    for s in range(groups.counted_count[g]):
        kind = groups.counted_kind[g, s]
        weight = groups.counted_weight[g, s]
        touched = -1
        if kind == AFFINITY_SCORE:
            touched = _find_touched(groups, counters, g, s, count, scratch)
        if touched < 0:
            _copy_feasible(bound, scratch.feasible[:count])
            set_counted(columns, groups, counters, g, s, scratch)
        low = groups.counted_low[g, s]
        high = groups.counted_high[g, s]
        if touched < 0:
            _add_scores(scratch.counted[s, :count], kind, low, high, weight, bound)
        else:
            usual = np.int16(weight * counted_score(kind, np.int64(0), low, high))
            if usual != 0:
                _add(usual, bound)
            for i in range(touched):
                row = scratch.touched[i]
                bound[row] += (
                    np.int16(weight * counted_score(kind, scratch.counted[s, row], low, high)) - usual
                )
