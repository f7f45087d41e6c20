"""Count: what placed pods add to the counters, which rows the counts refuse, and how they score the others.

A rule passes a row whose domain counts between two bounds. The bounds are the same for all rows, so they are
set once per pod (``set_rules``); a row then costs one look at its domain's count.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import (
    AFFINITY_SCORE,
    AT_MOST,
    BY_ROW,
    COUNT_MAX,
    DOMAINS_EXPLAINED,
    FIT,
    LIMIT,
    NEEDED,
    NEEDED_NOMINATED,
    NEVER,
    REQUIRED,
    RULE,
    SIZED,
    SPREAD,
    SPREAD_SCORE,
    UNCOUNTED,
    Columns,
    Counters,
    Groups,
    Scratch,
)
from domain.kernels.compiling import helper, unit


@helper
def has_counts(groups, g):  # type: ignore[no-untyped-def]
    """Say whether rules or values of a group read any counter: placing one of its pods may move all rows."""
    return groups.rule_count[g] + groups.counted_count[g] > 0


@helper
def count_effects(counters, effects, g, row):  # type: ignore[no-untyped-def]
    """Add a pod of a slot, placed on a row, to the counters."""
    for e in range(effects.first[g], effects.first[g + 1]):
        c = effects.counter[e]
        d = abs(counters.domain[counters.topology[c], row] + 1) - 1
        mask = counters.mask[c]
        if d >= 0 and (mask < 0 or counters.eligible[mask, row] != 0):
            counters.sums[counters.first[c] + d] += effects.weight[e]
            counters.total[c] += effects.weight[e]
            counters.version[c] += 1


@helper
def version_of(groups, counters, g):  # type: ignore[no-untyped-def]
    """Return a number that moves when a placement may have opened room by one of a group's rules; else 0."""
    version = np.int64(0)
    for r in range(groups.rule_count[g]):
        if groups.rule_kind[g, r] != AT_MOST:
            version += counters.version[groups.rule_counter[g, r]]
    return version


# ----------------------------------------------------------------------------------------------- rules


@helper
def _minimum(sums, has_nodes, min_domains):  # type: ignore[no-untyped-def]
    """Return the lowest count of the domains with an eligible node; 0 where these are too few."""
    least = COUNT_MAX
    domains = 0
    for d in range(len(sums)):
        if has_nodes[d] != 0:
            least = min(least, sums[d])
            domains += 1
    return least if domains >= min_domains and domains > 0 else 0


@helper
def set_rules(groups, counters, g):  # type: ignore[no-untyped-def]
    """Write between which counts the rules of a group pass a domain, as of now.

    Cost: O(domains) per ``SPREAD`` rule.
    """
    needed = np.int64(0)
    nominated = np.int64(0)
    for r in range(groups.rule_count[g]):
        if groups.rule_kind[g, r] == NEEDED:
            needed += counters.total[groups.rule_counter[g, r]]
        elif groups.rule_kind[g, r] == NEEDED_NOMINATED:
            nominated += counters.total[groups.rule_counter[g, r]]
    for r in range(groups.rule_count[g]):
        kind = groups.rule_kind[g, r]
        c = groups.rule_counter[g, r]
        low = np.int64(0)
        high = np.int64(groups.rule_bound[g, r])
        if kind >= NEEDED:
            anywhere = needed if kind == NEEDED else nominated
            low = np.int64(0 if anywhere == 0 and groups.rule_bootstraps[g, r] != 0 else 1)
            high = np.int64(COUNT_MAX)
        elif kind == SPREAD:
            end = counters.first[c] + counters.length[c]
            high += _minimum(
                counters.sums[counters.first[c] : end], counters.has_nodes[counters.first[c] : end],
                groups.rule_min_domains[g, r],
            )  # fmt: skip
        groups.rule_low[g, r] = low
        groups.rule_high[g, r] = min(high, np.int64(COUNT_MAX))


@helper
def _fit_rule(domain, sums, low, high, passes_missing, fits):  # type: ignore[no-untyped-def]
    for i in range(len(fits)):
        count = sums[max(domain[i], 0)]
        passes = (count >= low) & (count <= high)
        fits[i] &= passes if domain[i] >= 0 else passes_missing


@helper
def fit_rules(groups, counters, g, first, fits):  # type: ignore[no-untyped-def]
    """Clear ``fits``, uint8[n], for those of the rows from ``first`` on that a rule refuses."""
    for r in range(groups.rule_count[g]):
        c = groups.rule_counter[g, r]
        _fit_rule(
            counters.domain[counters.topology[c], first : first + len(fits)],
            counters.sums[counters.first[c] :], groups.rule_low[g, r], groups.rule_high[g, r],
            groups.rule_missing[g, r] == 0, fits,
        )  # fmt: skip


@helper
def rule_code(groups, counters, g, row, code):  # type: ignore[no-untyped-def]
    """Return the code of the first filter that refuses a row, where ``code`` is that of all but the rules."""
    position = NEVER
    if 0 < code < LIMIT:
        position = groups.static_position[groups.static_part[g], code]
    elif LIMIT <= code < RULE:
        position = groups.limit_position[g, (code - LIMIT) // 2]
    elif code >= FIT:
        position = groups.fit_position[g]
    for r in range(groups.rule_count[g]):
        if groups.rule_position[g, r] >= position:
            break
        c = groups.rule_counter[g, r]
        d = counters.domain[counters.topology[c], row]
        if d < 0:
            if groups.rule_missing[g, r] != 0:
                code = RULE + 2 * r + 1
                break
        else:
            count = counters.sums[counters.first[c] + d]
            if count < groups.rule_low[g, r] or count > groups.rule_high[g, r]:
                code = RULE + 2 * r
                break
    return code


@helper
def write_rules(groups, counters, placed, g, attempt, which):  # type: ignore[no-untyped-def]
    """Write what the rules of a group saw into reason table ``which`` of an attempt.

    Cost: O(domains) per rule.
    """
    for r in range(groups.rule_count[g]):
        c = groups.rule_counter[g, r]
        placed.rule_high[attempt, which, r] = groups.rule_high[g, r]
        written = 0
        for d in range(counters.length[c] if groups.rule_kind[g, r] < NEEDED else 0):
            count = counters.sums[counters.first[c] + d]
            if count > groups.rule_high[g, r] and written < DOMAINS_EXPLAINED:
                placed.rule_domain[attempt, which, r, written] = d
                placed.rule_sum[attempt, which, r, written] = count
                written += 1


@helper
def is_hopeless_by_rules(groups, counters, g, row):  # type: ignore[no-untyped-def]
    """Say whether a rule refuses a row whatever pods leave it: a key is missing, or a pod that it needs."""
    hopeless = False
    for r in range(groups.rule_count[g]):
        c = groups.rule_counter[g, r]
        d = counters.domain[counters.topology[c], row]
        if d < 0:
            hopeless = hopeless or groups.rule_missing[g, r] != 0
        else:
            hopeless = hopeless or counters.sums[counters.first[c] + d] < groups.rule_low[g, r]
    return hopeless


# ---------------------------------------------------------------------------------------------- values


@helper
def _drop_missing(domain, ranked):  # type: ignore[no-untyped-def]
    for i in range(len(ranked)):
        ranked[i] &= domain[i] >= 0


@helper
def _size(domain, ranked, seen):  # type: ignore[no-untyped-def]
    """Return how many domains the ranked rows count in, rows that count in none being one more together.

    ``seen`` is memory, uint8[domains + 1].
    """
    for d in range(len(seen)):
        seen[d] = 0
    for i in range(len(ranked)):
        seen[abs(domain[i] + 1)] |= ranked[i]
    size = 0
    for d in range(len(seen)):
        size += seen[d]
    return size


@helper
def _rows_of(ranked):  # type: ignore[no-untyped-def]
    rows = 0
    for i in range(len(ranked)):
        rows += ranked[i]
    return rows


@helper
def _add_sized(domain, sums, weight, extra, amount):  # type: ignore[no-untyped-def]
    for i in range(len(amount)):
        value = sums[max(domain[i], 0)] * weight + extra
        amount[i] += value if domain[i] >= 0 else 0.0


@helper
def _add_plain(domain, sums, amount):  # type: ignore[no-untyped-def]
    for i in range(len(amount)):
        amount[i] += sums[max(domain[i], 0)] if domain[i] >= 0 else 0.0


@helper
def _to_whole(amount, ranked, counted):  # type: ignore[no-untyped-def]
    """Round amounts to whole numbers, halves up: amounts of spread are not negative, others are whole."""
    for i in range(len(amount)):
        floor = np.floor(amount[i])
        rounded = floor + (1.0 if amount[i] - floor >= 0.5 else 0.0)
        counted[i] = np.int64(rounded) if ranked[i] != 0 else UNCOUNTED


@helper
def _extremes(counted, kind):  # type: ignore[no-untyped-def]
    """Return the extremes of the ranked rows; the highest of a spread is at least 0."""
    low = np.int64(1 << 62)
    high = np.int64(0 if kind == SPREAD_SCORE else -(1 << 62))
    for i in range(len(counted)):
        low = min(low, counted[i] if counted[i] != UNCOUNTED else low)
        high = max(high, counted[i])
    return low, high


@unit
def set_counted(
    columns: Columns, groups: Groups, counters: Counters, g: int, s: int, scratch: Scratch
) -> None:
    """Write the s-th raw score by counts of all rows, and its extremes over the feasible ones.

    ``scratch.feasible`` must be known; ``scratch.counted`` is ``UNCOUNTED`` where a row has no score.

    Sums are float64 in the order of the values, as kube-scheduler's PodTopologySpread has them; those of
    InterPodAffinity are whole numbers, for which the order does not matter.

    Cost: O(N + domains) per value.
    """
    count = columns.rows_count[0]
    ranked = scratch.ranked[:count]
    amount = scratch.amount[:count]
    for row in range(count):
        ranked[row] = scratch.feasible[row]
        amount[row] = 0.0
    for v in range(groups.counted_first[g, s], groups.counted_first[g, s + 1]):
        if groups.value_flags[g, v] & REQUIRED:
            topology = counters.topology[groups.value_counter[g, v]]
            _drop_missing(counters.domain[topology, :count], ranked)
    for v in range(groups.counted_first[g, s], groups.counted_first[g, s + 1]):
        c = groups.value_counter[g, v]
        domain = counters.domain[counters.topology[c], :count]
        sums = counters.sums[counters.first[c] :]
        flags = groups.value_flags[g, v]
        if flags & SIZED:
            if flags & BY_ROW:
                size = _rows_of(ranked)
            else:
                size = _size(domain, ranked, scratch.seen[: counters.length[c] + 1])
            _add_sized(domain, sums, np.log(size + 2.0), float(groups.value_extra[g, v]), amount)
        else:
            _add_plain(domain, sums, amount)
    counted = scratch.counted[s, :count]
    _to_whole(amount, ranked, counted)
    groups.counted_low[g, s], groups.counted_high[g, s] = _extremes(counted, groups.counted_kind[g, s])


@helper
def set_values(columns, groups, counters, g, scratch):  # type: ignore[no-untyped-def]
    """Write all raw scores by counts: see ``set_counted``."""
    for s in range(groups.counted_count[g]):
        set_counted(columns, groups, counters, g, s, scratch)


@helper
def counted_score(kind, raw, low, high):  # type: ignore[no-untyped-def]
    """Return the normalised score, a whole number 0..100, of a raw score between the extremes.

    Spread: 100 (high + low - raw) / high, rounded down. Affinity: 100 (raw - low) / (high - low), divided
    first and then rounded down. Source: kube-scheduler, NormalizeScore of the two plugins. A quotient of
    float64 is rounded down right while the dividend is below 2^52.
    """
    if raw == UNCOUNTED:
        return 0.0
    if kind == AFFINITY_SCORE:
        return np.floor(100.0 * (float(raw - low) / float(high - low))) if high > low else 0.0
    return np.floor(100.0 * float(high + low - raw) / float(high)) if high > 0 else 100.0


@helper
def rate_counted(counted, kind, low, high, value):  # type: ignore[no-untyped-def]
    """Write the score of a block by counts, float64[n]."""
    for i in range(len(value)):
        value[i] = counted_score(kind, counted[i], low, high)
