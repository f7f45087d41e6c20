"""What the kernels of preemption work on, made from a program: its demands, its rules with private counts."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np

from domain.engine.program import Program
from domain.engine.slots import GroupSlots
from domain.engine.victims import BudgetsSeen, NoBudgets, Victims
from domain.kernels import arrays as kernel
from domain.kernels import preempt_arrays
from domain.model.devices import BUSY, SHARED, asked
from domain.state.cluster import ClusterState
from domain.state.devices import kept_free
from domain.state.pod_classes import PodClass
from domain.state.resources import NOWHERE, ResourceIndex


class Nominated(NamedTuple):
    """A pod that waits for its victims: rules over other pods count it where it will run."""

    pod_class: PodClass | None
    node: str


class Decided(NamedTuple):
    """What is decided already.

    Attributes
    ----------
    budgets : BudgetsSeen
        The disruption budgets, as of now.
    claimed : set of str
        Keys of pods that were evicted and are still there.
    nominated : sequence of Nominated
        The nominations that the pods to be planned must leave alone: those of no lower priority.
    """

    budgets: BudgetsSeen = NoBudgets()
    claimed: Set[str] = frozenset()
    nominated: Sequence[Nominated] = ()


def asked_of(
    program: Program, columns: kernel.Columns, groups: kernel.Groups, resources: ResourceIndex
) -> preempt_arrays.Asked:
    """Return what a group asks of a row, with the columns that this reads once each."""
    slot = program.slot
    demands, limits = int(groups.demand_count[slot]), int(groups.limit_count[slot])
    demanded = groups.demand_column[slot, :demands]
    widths = groups.limit_width[slot, :limits]
    read = [demanded, *(groups.limit_column[slot, m, :width] for m, width in enumerate(widths.tolist()))]
    ask = asked(program.template.requests)
    told_apart = [c for c in resources.device_columns.tolist() if c != NOWHERE] if ask.number else []
    column = np.unique(np.concatenate([*read, told_apart])).astype(np.int32)
    derived = [resources.column(name) for name in (BUSY, SHARED)]
    adds = int(groups.add_count[slot])
    kept, amounts = kept_free(ask, resources)
    return preempt_arrays.Asked(
        static_code=groups.static_code[groups.static_part[slot]],
        column=column,
        demand_at=np.searchsorted(column, demanded).astype(np.int32),
        demand_value=groups.demand_value[slot, :demands],
        limit_at=np.searchsorted(column, groups.limit_column[slot, :limits]).astype(np.int32),
        limit_width=widths,
        limit_value=groups.limit_value[slot, :limits],
        limit_bound=_limit_bounds(columns, groups, slot, limits),
        add_column=np.append(groups.add_column[slot, :adds], np.array(kept, dtype=np.int32)),
        add_value=np.append(groups.add_value[slot, :adds], np.array(amounts, dtype=np.int64)),
        device_at=np.searchsorted(column, told_apart).astype(np.int32),
        derived_at=np.where(np.isin(derived, demanded), np.searchsorted(column, derived), -1).astype(
            np.int32
        ),
    )


def _limit_bounds(columns: kernel.Columns, groups: kernel.Groups, slot: int, limits: int) -> np.ndarray:
    """Return float64[limits, N]: what the sums of limits must not exceed, times 100, as filters see it."""
    capacity = columns.allocatable[groups.limit_capacity[slot, :limits]]
    bounds: np.ndarray = groups.limit_percent[slot, :limits, None] * capacity
    measured = groups.limit_measured[slot, :limits]
    raw = groups.static_raw[groups.static_part[slot]]
    bounds[measured >= 0] = raw[measured[measured >= 0]]
    return bounds


def rules_of(
    program: Program,
    slots: GroupSlots,
    victims: Victims,
    state: ClusterState,
    lost: Sequence[Nominated],
    nominated: Sequence[Nominated],
) -> preempt_arrays.Rules:
    """Return the rules of a group with copies of what their counters count: a trial may write on them."""
    rules = program.counted.placed
    numbers = [
        number
        for number, (_, rule) in zip(program.counters, program.counted.rules, strict=False)
        if not rule.counter.nominated
    ]
    counters, effects = slots.counters.arrays, slots.counters.effects
    count = len(rules)
    lengths = counters.length[numbers].astype(np.int64)
    first = np.cumsum(lengths) - lengths
    cells = [
        np.arange(at, at + length)
        for at, length in zip(counters.first[numbers].tolist(), lengths.tolist(), strict=True)
    ]
    copied = np.concatenate(cells) if cells else np.zeros(0, dtype=np.int64)
    weight = np.zeros((len(victims.classes) if count else 1, count), dtype=np.int32)
    own = np.zeros(count, dtype=np.int32)
    for r, number in enumerate(numbers):
        for pod_class, value in effects.counted_by(number):
            if pod_class in victims.classes:
                weight[victims.classes[pod_class], r] = value
        if program.pod_class is not None:
            own[r] = effects.of(program.pod_class).get(number, 0)
    made = preempt_arrays.Rules(
        kind=np.array([rule.kind for rule in rules], dtype=np.int32),
        topology=counters.topology[numbers],
        mask=counters.mask[numbers],
        bound=np.array([rule.bound for rule in rules], dtype=np.int64),
        min_domains=np.array([rule.min_domains for rule in rules], dtype=np.int32),
        bootstraps=np.array([rule.bootstraps for rule in rules], dtype=np.int32),
        missing=np.array([rule.missing is not None for rule in rules], dtype=np.int32),
        first=first,
        length=lengths,
        sums=np.tile(counters.sums[copied].astype(np.int64), (2, 1)),
        total=np.tile(counters.total[numbers], (2, 1)),
        has_nodes=counters.has_nodes[copied],
        weight=weight,
        own=own,
        domain=counters.domain,
        eligible=counters.eligible,
        layers=np.array([2 if nominated else 1]),
        least=np.zeros((2, count), dtype=np.int64),
        least_count=np.zeros((2, count), dtype=np.int64),
        second=np.zeros((2, count), dtype=np.int64),
        domains=np.zeros(count, dtype=np.int64),
    )
    if count:
        for sign, layers, pods in ((-1, (0, 1), lost), (1, (1,), nominated)):
            _count(made, numbers, slots, state, pods, sign, layers)
    return made


def _count(
    rules: preempt_arrays.Rules,
    numbers: Sequence[int],
    slots: GroupSlots,
    state: ClusterState,
    pods: Sequence[Nominated],
    sign: int,
    layers: Sequence[int],
) -> None:
    """Count pods into the copies of counters, or out of them."""
    effects, rows = slots.counters.effects, state.table.rows
    for pod_class, node in pods:
        row = rows.get(node)
        if pod_class is None or row is None:
            continue
        of_class = effects.of(pod_class)
        for r, number in enumerate(numbers):
            value = sign * of_class.get(number, 0)
            d = abs(int(rules.domain[rules.topology[r], row]) + 1) - 1
            if value and d >= 0 and (rules.mask[r] < 0 or rules.eligible[rules.mask[r], row]):
                for layer in layers:
                    rules.sums[layer, rules.first[r] + d] += value
                    rules.total[layer, r] += value


def sets_of(sets: Sequence[tuple[int, ...]], allowed: np.ndarray) -> preempt_arrays.BudgetSets:
    lengths = [len(each) for each in sets]
    return preempt_arrays.BudgetSets(
        np.cumsum([0, *lengths], dtype=np.int64),
        np.array([budget for each in sets for budget in each], dtype=np.int32),
        allowed.astype(np.int64),
    )


def empty_plans(width: int, columns: int, rules: int) -> preempt_arrays.RowPlans:
    return preempt_arrays.RowPlans.allocate(
        np.zeros,
        {"N": width, "U": columns, "Q": rules},
        tile_best=np.zeros(width // preempt_arrays.TILE + 1, dtype=np.int32),
    )
