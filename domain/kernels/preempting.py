"""Preempt: rule out the rows where no eviction helps, plan the victims of all others, and choose rows.

The rules are those of kube-scheduler's DefaultPreemption. On a row all pods of lower priority are taken away.
If the pod then passes every filter, they are put back where the pod still passes: first those whose eviction
violates a budget, then the others, the most important first. A pod that cannot be put back is a victim. Of
all rows the one is chosen whose victims weigh least (``_lighter``).

Several equal pods are planned at once: a nomination changes its own row, and the rows that share a budget or
a counter with it. Only these are planned again, and only their tiles are searched again.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import SPREAD, Columns
from domain.kernels.compiling import helper, unit
from domain.kernels.preempt_arrays import (
    NO_ROW,
    NO_VICTIM,
    NOT_STARTED,
    PLANNED,
    RULED_OUT,
    SHIFT,
    STAYS,
    TILE,
    UNFIT,
    VICTIM,
    VIOLATING,
    Asked,
    Band,
    BudgetSets,
    PlacedPods,
    RowPlans,
    Rules,
)
from domain.kernels.preempt_devices import derive_devices, hold_nominated
from domain.kernels.preempt_rules import count_nomination, counts_in, find_least, passes
from domain.kernels.tables import Ints, RowLists, Rows, Salt
from domain.kernels.ties import mix

# ------------------------------------------------------------------------------------------ one row's room


@unit
def sum_below(pods: PlacedPods, priority: int, rows: Rows, band: Band) -> None:
    """Find what may be freed on some rows, int64[K], by the eviction of all pods below a priority.

    Written: ``band``. Cost: O(K log(pods per node)).
    """
    for k in range(len(rows)):
        row = rows[k]
        low = pods.first[row]
        high = low + pods.length[row]
        while low < high:
            middle = (low + high) >> 1
            if pods.priority[middle] < priority:
                high = middle
            else:
                low = middle + 1
        band.start[row] = low
        for c in range(pods.below.shape[0]):
            band.sums[c, row] = pods.below[c, low]


@helper
def _amount(pods, c, i):  # type: ignore[no-untyped-def]
    """Return what the pod at a place requests of a column."""
    return pods.below[c, i] - pods.below[c, i + 1]


@helper
def _has_room(columns, asked, row, used):  # type: ignore[no-untyped-def]
    fits = True
    for d in range(len(asked.demand_at)):
        at = asked.demand_at[d]
        fits &= asked.demand_value[d] <= columns.allocatable[asked.column[at], row] - used[at]
    for m in range(len(asked.limit_value)):
        total = asked.limit_value[m]
        for k in range(asked.limit_width[m]):
            total += used[asked.limit_at[m, k]]
        fits &= total * 100.0 <= asked.limit_bound[m, row]
    return fits


@unit
def rule_out(columns: Columns, pods: PlacedPods, asked: Asked, band: Band, plans: RowPlans) -> int:
    """Mark the rows that have no room even without all their pods of lower priority; return how many others.

    Parameters
    ----------
    columns : Columns
        The snapshot's. ``requested`` counts nominations that the pod must leave alone.
    band : Band
        What pods below the preemptor's priority hold.
    plans : RowPlans
        Written: ``state``, ``RULED_OUT`` or ``UNFIT``.

    Cost: O(N).
    """
    kept = 0
    for row in range(columns.rows_count[0]):
        plans.state[row] = RULED_OUT
        if asked.static_code[row] == 0:
            for u in range(len(asked.column)):
                c = asked.column[u]
                plans.used[u] = columns.requested[c, row] - pods.gone[c, row] - band.sums[c, row]
            if len(asked.device_at) > 0:
                hold_nominated(columns, asked, row, plans)
                derive_devices(columns, asked, row, plans)
            if _has_room(columns, asked, row, plans.used):
                plans.state[row] = UNFIT
                kept += 1
    return kept


@helper
def _passes_rules(rules, row, cut):  # type: ignore[no-untyped-def]
    """Say whether the rules pass a row by every layer."""
    fits = True
    for layer in range(rules.layers[0]):
        fits = fits and passes(rules, row, cut, layer)
    return fits


@helper
def _fits(columns, asked, rules, row, plans):  # type: ignore[no-untyped-def]
    """Say whether the pod passes every filter on a row, as ``plans.used`` and ``plans.cut`` say it is."""
    if len(asked.device_at) > 0:
        derive_devices(columns, asked, row, plans)
    fits = _has_room(columns, asked, row, plans.used)
    if fits and len(rules.kind) > 0:
        fits = _passes_rules(rules, row, plans.cut)
    return fits


@helper
def _move(pods, asked, rules, row, i, sign, plans):  # type: ignore[no-untyped-def]
    """Take the pod at a place away from its row, or put it back with ``sign`` 1."""
    for u in range(len(asked.column)):
        plans.used[u] += sign * _amount(pods, asked.column[u], i)
    for r in range(len(rules.kind)):
        if counts_in(rules, r, row) >= 0:
            plans.cut[r] -= sign * rules.weight[pods.kind[i], r]


# -------------------------------------------------------------------------------------------- one row's plan


@helper
def _group(pods, sets, start, end):  # type: ignore[no-untyped-def]
    """Mark the pods whose eviction violates a budget, given that all of them go, the most important first.

    Return the budgets that are touched. A pod takes from each of its budgets, even if it is put back later.
    """
    touched = np.uint64(0)
    for i in range(start, end):
        if pods.is_there[i] != 0:
            for s in range(sets.first[pods.budgets[i]], sets.first[pods.budgets[i] + 1]):
                b = sets.budget[s]
                sets.allowed[b] -= 1
                touched |= np.uint64(1) << np.uint64(b & 63)
                if sets.allowed[b] < 0:
                    pods.mark[i] = VIOLATING
    for i in range(start, end):
        if pods.is_there[i] != 0:
            for s in range(sets.first[pods.budgets[i]], sets.first[pods.budgets[i] + 1]):
                sets.allowed[sets.budget[s]] += 1
    return touched


@helper
def _plan_row(columns, pods, asked, rules, sets, band, row, plans):  # type: ignore[no-untyped-def]
    """Plan the victims of one row that was not ruled out."""
    start = band.start[row]
    end = pods.first[row] + pods.length[row]
    plans.state[row] = UNFIT
    for u in range(len(asked.column)):
        c = asked.column[u]
        plans.used[u] = columns.requested[c, row] - pods.gone[c, row]
    if len(asked.device_at) > 0:
        hold_nominated(columns, asked, row, plans)
    for r in range(len(rules.kind)):
        plans.cut[r] = 0
    for i in range(start, end):
        pods.mark[i] = STAYS
        if pods.is_there[i] != 0:
            _move(pods, asked, rules, row, i, -1, plans)
    plans.touched[row] = 0
    if len(sets.allowed) > 0:
        plans.touched[row] = _group(pods, sets, start, end)
    if not _fits(columns, asked, rules, row, plans):
        return
    violations = victims = 0
    priorities = np.int64(0)
    highest = np.int64(NO_VICTIM)
    earliest = np.int64(NOT_STARTED)
    for mark in range(STAYS if plans.touched[row] == 0 else VIOLATING, STAYS - 1, -1):
        for i in range(start, end):
            if pods.is_there[i] == 0 or pods.mark[i] != mark:
                continue
            _move(pods, asked, rules, row, i, 1, plans)
            if not _fits(columns, asked, rules, row, plans):
                _move(pods, asked, rules, row, i, -1, plans)
                pods.mark[i] |= VICTIM
                victims += 1
                violations += 1 if mark == VIOLATING else 0
                priorities += pods.priority[i] + SHIFT
                if pods.priority[i] > highest:
                    highest = pods.priority[i]
                    earliest = pods.start_ms[i]
                elif pods.priority[i] == highest:
                    earliest = min(earliest, pods.start_ms[i])
    plans.state[row] = PLANNED
    plans.violations[row] = violations
    plans.victims[row] = victims
    plans.highest[row] = highest
    plans.priorities[row] = priorities
    plans.start_ms[row] = earliest


@helper
def _lighter(columns, plans, salt, a, b):  # type: ignore[no-untyped-def]
    """Return the row whose victims weigh less.

    Fewer violations; then the lower highest priority; the smaller sum of priorities; fewer victims; the later
    earliest start among the victims of the highest priority; the smaller salted tie value.
    Source: kube-scheduler, pickOneNodeForPreemption. It leaves the last choice to chance.
    """
    if plans.violations[a] != plans.violations[b]:
        return a if plans.violations[a] < plans.violations[b] else b
    if plans.highest[a] != plans.highest[b]:
        return a if plans.highest[a] < plans.highest[b] else b
    if plans.priorities[a] != plans.priorities[b]:
        return a if plans.priorities[a] < plans.priorities[b] else b
    if plans.victims[a] != plans.victims[b]:
        return a if plans.victims[a] < plans.victims[b] else b
    if plans.start_ms[a] != plans.start_ms[b]:
        return a if plans.start_ms[a] > plans.start_ms[b] else b
    return a if mix(columns.tie[a] ^ salt) <= mix(columns.tie[b] ^ salt) else b


@helper
def _search_tile(columns, plans, salt, tile):  # type: ignore[no-untyped-def]
    best = NO_ROW
    for row in range(tile * TILE, min((tile + 1) * TILE, columns.rows_count[0])):
        if plans.state[row] == PLANNED:
            best = row if best == NO_ROW else _lighter(columns, plans, salt, best, row)
    plans.tile_best[tile] = best


@unit
def plan_victims(
    columns: Columns,
    pods: PlacedPods,
    asked: Asked,
    rules: Rules,
    sets: BudgetSets,
    band: Band,
    salt: Salt,
    plans: RowPlans,
) -> int:
    """Plan the victims of every row that ``rule_out`` kept, and find the best row of each tile.

    Parameters
    ----------
    columns, pods, asked, rules, sets
        The arrays above. ``pods.mark`` is written. ``rules`` gets the lowest counts of spreads.
    band : Band
        The pods below the preemptor's priority. No other becomes a victim.
    salt : uint64
        The group's, for ties.
    plans : RowPlans
        Read: ``state``. All else is written.

    Returns
    -------
    int
        How many rows have a plan.

    Cost: O(pods) per filter, and O(domains) per spread.
    """
    planned = 0
    for r in range(len(rules.kind)):
        if rules.kind[r] == SPREAD:
            find_least(rules, r)
    for row in range(columns.rows_count[0]):
        if plans.state[row] != RULED_OUT:
            _plan_row(columns, pods, asked, rules, sets, band, row, plans)
            planned += plans.state[row] == PLANNED
    for tile in range((columns.rows_count[0] + TILE - 1) // TILE):
        _search_tile(columns, plans, salt, tile)
    return planned


# ------------------------------------------------------------------------------------------- nominations


@helper
def _evict(pods, asked, rules, sets, row, start, end, taken, taken_count):  # type: ignore[no-untyped-def]
    """Take the victims of a row; return how many places ``taken`` holds by now, and the budgets touched."""
    touched = np.uint64(0)
    columns_count = pods.below.shape[0]
    for i in range(start, end):
        if pods.is_there[i] != 0 and pods.mark[i] & VICTIM != 0:
            pods.is_there[i] = 0
            taken[taken_count] = i
            taken_count += 1
            for c in range(columns_count):
                pods.gone[c, row] += _amount(pods, c, i)
            for s in range(sets.first[pods.budgets[i]], sets.first[pods.budgets[i] + 1]):
                sets.allowed[sets.budget[s]] -= 1
                touched |= np.uint64(1) << np.uint64(sets.budget[s] & 63)
    for a in range(len(asked.add_column)):
        pods.gone[asked.add_column[a], row] -= asked.add_value[a]
    return taken_count, touched


@helper
def _shares_domain(rules, moved, row, other):  # type: ignore[no-untyped-def]
    """Say whether a rule that moved in the domain of a row counts in the same domain for another one."""
    for r in range(len(rules.kind)):
        if moved[r] != 0:
            of_row = abs(rules.domain[rules.topology[r], row] + 1) - 1
            if of_row == abs(rules.domain[rules.topology[r], other] + 1) - 1:
                return True
    return False


@helper
def _plan_again(  # type: ignore[no-untyped-def]
    columns, pods, asked, rules, sets, band, salt, plans, row, everywhere, touched
):
    """Plan the rows again that a nomination on a row concerns, and search their tiles."""
    moved = everywhere
    for r in range(len(rules.kind)):
        moved = moved or plans.moved[r] != 0
    if not moved and touched == 0:
        _plan_row(columns, pods, asked, rules, sets, band, row, plans)
        _search_tile(columns, plans, salt, row // TILE)
        return
    for tile in range((columns.rows_count[0] + TILE - 1) // TILE):
        is_other = False
        for other in range(tile * TILE, min((tile + 1) * TILE, columns.rows_count[0])):
            if plans.state[other] == RULED_OUT:
                continue
            if (
                everywhere
                or other == row
                or plans.touched[other] & touched != 0
                or _shares_domain(rules, plans.moved, row, other)
            ):
                _plan_row(columns, pods, asked, rules, sets, band, other, plans)
                is_other = True
        if is_other:
            _search_tile(columns, plans, salt, tile)


@unit
def nominate(
    columns: Columns,
    pods: PlacedPods,
    asked: Asked,
    rules: Rules,
    sets: BudgetSets,
    band: Band,
    salt: Salt,
    plans: RowPlans,
    chosen: Ints,
    key: RowLists,
    victims_end: Rows,
    taken: Rows,
) -> int:
    """Choose a row for each of several equal pods, one after another, each as its predecessors left it.

    Parameters
    ----------
    columns, pods, asked, rules, sets, band, salt, plans
        As ``plan_victims`` left them; ``pods``, ``rules`` and ``sets`` follow the nominations.
    chosen : int32[K]
        Written: the row of each pod.
    key : int64[K, 5]
        Written: its five criteria.
    victims_end : int64[K]
        Written: where its victims end in ``taken``.
    taken : int64[V]
        Written: the places of all victims, in order of the pods, the most important first. V is at most as
        many as may be evicted.

    Returns
    -------
    int
        How many pods have a row; none of the others has one.

    Cost: O(N / TILE + TILE + pods of the row) per pod, and O(N) where budgets or counters are shared.
    """
    taken_count = np.int64(0)
    for k in range(len(chosen)):
        best = NO_ROW
        for tile in range((columns.rows_count[0] + TILE - 1) // TILE):
            row = plans.tile_best[tile]
            if row != NO_ROW:
                best = row if best == NO_ROW else _lighter(columns, plans, salt, best, row)
        if best == NO_ROW:
            return k
        chosen[k] = best
        key[k, 0] = plans.violations[best]
        key[k, 1] = plans.highest[best]
        key[k, 2] = plans.priorities[best]
        key[k, 3] = plans.victims[best]
        key[k, 4] = plans.start_ms[best]
        start = band.start[best]
        end = pods.first[best] + pods.length[best]
        everywhere = count_nomination(pods, rules, best, start, end, plans)
        taken_count, touched = _evict(pods, asked, rules, sets, best, start, end, taken, taken_count)
        victims_end[k] = taken_count
        _plan_again(
            columns, pods, asked, rules, sets, band, salt, plans, best, everywhere, touched
        )  # fmt: skip
    return len(chosen)
