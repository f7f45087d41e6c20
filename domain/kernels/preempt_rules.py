"""Rules over other pods while some of these are taken away on trial: they pass a row, or they do not."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import COUNT_MAX, NEEDED, SPREAD
from domain.kernels.compiling import helper
from domain.kernels.preempt_arrays import VICTIM


@helper
def counts_in(rules, r, row):  # type: ignore[no-untyped-def]
    """Return the domain in which pods on a row count, -1 where they do not."""
    d = abs(rules.domain[rules.topology[r], row] + 1) - 1
    mask = rules.mask[r]
    if d >= 0 and mask >= 0 and rules.eligible[mask, row] == 0:
        d = -1
    return d


@helper
def find_least(rules, r):  # type: ignore[no-untyped-def]
    """Find the lowest counts of a spread in both layers; say whether any is another than before."""
    moved = False
    for layer in range(2):
        least = second = np.int64(COUNT_MAX)
        least_count = domains = 0
        for d in range(rules.first[r], rules.first[r] + rules.length[r]):
            if rules.has_nodes[d] != 0:
                domains += 1
                count = rules.sums[layer, d]
                if count < least:
                    second = least
                    least = count
                    least_count = 1
                elif count == least:
                    least_count += 1
                else:
                    second = min(second, count)
        moved = moved or rules.least[layer, r] != least or rules.least_count[layer, r] != least_count
        moved = moved or rules.second[layer, r] != second
        rules.least[layer, r] = least
        rules.least_count[layer, r] = least_count
        rules.second[layer, r] = second
        rules.domains[r] = domains
    return moved


@helper
def _minimum(rules, r, layer, d, count):  # type: ignore[no-untyped-def]
    """Return the lowest count of a spread where domain d counts ``count`` instead of what it did."""
    least = np.int64(0)
    if rules.domains[r] >= max(rules.min_domains[r], 1):
        at = rules.first[r] + d
        least = rules.least[layer, r]
        if rules.has_nodes[at] != 0:
            if rules.sums[layer, at] == least and rules.least_count[layer, r] == 1:
                least = rules.second[layer, r]
            least = min(least, count)
    return least


@helper
def passes(rules, row, cut, layer):  # type: ignore[no-untyped-def]
    """Say whether all rules pass a row when pods that count ``cut`` int64[Q] leave it."""
    needed = np.int64(0)
    for r in range(len(rules.kind)):
        if rules.kind[r] == NEEDED:
            needed += rules.total[layer, r] - cut[r]
    for r in range(len(rules.kind)):
        d = rules.domain[rules.topology[r], row]
        if d < 0:
            if rules.missing[r] != 0:
                return False
            continue
        count = rules.sums[layer, rules.first[r] + d] - cut[r]
        if rules.kind[r] == NEEDED:
            if count < 1 and (needed != 0 or rules.bootstraps[r] == 0):
                return False
        elif rules.kind[r] == SPREAD:
            if count > rules.bound[r] + _minimum(rules, r, layer, d, count):
                return False
        elif count > rules.bound[r]:
            return False
    return True


@helper
def count_nomination(pods, rules, row, start, end, plans):  # type: ignore[no-untyped-def]
    """Count the victims of a row out of the rules, and the nominated pod in.

    Return whether a rule may judge all rows otherwise. ``plans.moved[r]`` is 1 where its count is another.
    """
    everywhere = False
    for r in range(len(rules.kind)):
        plans.moved[r] = 0
        d = counts_in(rules, r, row)
        if d < 0:
            continue
        gone = np.int64(0)
        for i in range(start, end):
            if pods.is_there[i] != 0 and pods.mark[i] & VICTIM != 0:
                gone += rules.weight[pods.kind[i], r]
        if gone == 0 and rules.own[r] == 0:
            continue
        plans.moved[r] = 1
        rules.layers[0] = 2 if rules.own[r] != 0 else rules.layers[0]
        at = rules.first[r] + d
        rules.sums[0, at] -= gone
        rules.sums[1, at] += rules.own[r] - gone
        rules.total[0, r] -= gone
        rules.total[1, r] += rules.own[r] - gone
        if rules.kind[r] == SPREAD:
            everywhere = find_least(rules, r) or everywhere
        elif rules.kind[r] == NEEDED:
            everywhere = True
    return everywhere
