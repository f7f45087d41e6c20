"""Preemption: which pods would have to go so that a pod finds a node, and which node that is.

``Preemptor.plan`` plans several equal pods at once and changes nothing. What is decided already goes in: pods
that were evicted and are still there (*claimed*) count as gone and are never offered again; nominations that
the pod must leave alone count in the snapshot's ``requested`` (the caller puts them there), and in the rules
over other pods by ``Nominated``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from domain.engine.program import Program
from domain.engine.slots import GroupSlots
from domain.engine.trial_arrays import Decided as Decided
from domain.engine.trial_arrays import Nominated as Nominated
from domain.engine.trial_arrays import asked_of, empty_plans, rules_of, sets_of
from domain.engine.victims import BudgetsSeen, Victims
from domain.kernels import preempt_arrays, preempting
from domain.kernels.ties import salted
from domain.model.pods import PodSpec
from domain.state.cluster import ClusterState
from domain.state.nodes import NodeEntry
from domain.state.resources import ResourceIndex
from domain.state.snapshot import Snapshot

NEVER = "Never"
BEST = 5
"""How many of the best nodes an explanation names."""

_NOTHING = Decided()


class Weight(NamedTuple):
    """What the eviction of some victims weighs; the smaller one is better, but for the start.

    ``highest_priority`` is None without victims, ``earliest_start_ms`` also where one has not started: the
    earliest start of the victims of the highest priority.
    """

    violations: int
    highest_priority: int | None
    priorities_sum: int
    victims_count: int
    earliest_start_ms: int | None


NO_VICTIMS = Weight(0, None, 0, 0, None)


class Planned(NamedTuple):
    """Where one pod goes once its victims, the most important first, are gone. There may be none."""

    row: int
    node: str
    victims: tuple[str, ...]
    weight: Weight


class Plans(NamedTuple):
    """What preemption can do for equal pods.

    Attributes
    ----------
    planned : list of Planned
        One per pod that has a node, in order. The pods behind them have none.
    candidates_count : int
        Nodes on which the first pod would fit once pods of lower priority are gone.
    ruled_out_count : int
        Nodes that have no room for it even without all pods of lower priority, or refuse it whatever goes.
    best : list of Planned
        The best nodes for the first pod, the chosen one first.
    """

    planned: list[Planned]
    candidates_count: int
    ruled_out_count: int
    best: list[Planned]


def may_preempt(pod: PodSpec, nodes: Mapping[str, NodeEntry], hopeless: Collection[str] = ()) -> bool:
    """Say whether a pod may preempt if it finds no node.

    It may not where its policy is ``Never``, nor by itself where it is in a gang, nor while a pod of lower
    priority leaves the node for which a scheduler nominated it; but for a node among the ``hopeless``, which
    refuse it whatever leaves.
    Source: kube-scheduler, PodEligibleToPreemptOthers.
    """
    if pod.template.preemption_policy == NEVER or pod.template.gang:
        return False
    return pod.nominated_node in hopeless or not has_leaving(pod, nodes)


def has_leaving(pod: PodSpec, nodes: Mapping[str, NodeEntry]) -> bool:
    """Say whether a pod of lower priority leaves the node that a scheduler named for a pod."""
    entry = nodes.get(pod.nominated_node) if pod.nominated_node else None
    leaving = () if entry is None or entry.deleted else entry.pods.values()
    return any(
        each.spec.preempted and each.spec.template.priority < pod.template.priority for each in leaving
    )


class Preemptor:
    """Plans preemption with the caches of a scheduler. Between two plans it keeps the placed pods by row."""

    def __init__(self, state: ClusterState, snapshot: Snapshot, slots: GroupSlots) -> None:
        self._state = state
        self._snapshot = snapshot
        self._slots = slots
        self._victims = Victims(state)

    def plan(
        self,
        program: Program,
        count: int = 1,
        decided: Decided = _NOTHING,
        without: Collection[str] = (),
        below: int | None = None,
    ) -> Plans:
        """Plan for ``count`` pods of a group, one after another, each as its predecessors left the cluster.

        Call it while the state has counted all that was written into the snapshot, but for nominations.

        Parameters
        ----------
        program : Program
            The group's, over all nodes, as ``GroupSlots.program`` returned it for this cycle.
        decided : Decided
            Budgets, evictions and nominations as of now.
        without : collection of str
            Nodes that are out of the question.
        below : int, optional
            The priority below which pods may go; that of the group's pods where it is not given.

        Cost: O(nodes + pods on those that could help), then O(sqrt(nodes)) per pod; see ``nominate``.
        """
        trial = self._trial(program, decided, without, below)
        best = trial.best(BEST)
        planned = trial.nominate(count)
        self._victims.void(each.node for each in planned)
        nodes_count = int(self._snapshot.columns.rows_count[0])
        return Plans(planned, trial.candidates_count, nodes_count - trial.kept_count, best)

    def fewest(self, program: Program, decided: Decided, count: int, below: int) -> list[Planned]:
        """Return the nodes that a pod could have with the fewest victims ``below`` a priority.

        At most ``count``; of equal numbers the one comes first that ``plan`` would choose, and those that
        violate no budget come before all others.
        """
        return self._trial(program, decided, below=below).best(count, fewest_first=True)

    def freed(self, below: int, decided: Decided) -> np.ndarray:
        """Return int64[R, N]: what pods of lower priority hold of each row, and those that leave it."""
        self._victims.sync(decided.claimed, decided.budgets)
        freed: np.ndarray = self._victims.arrays.gone + self._victims.band(below).sums
        return freed

    def could_hold(self, program: Program, decided: Decided, node: str, below: int) -> tuple[bool, bool]:
        """Say whether any node has room for a pod, and whether one could have it; see ``plan``."""
        trial, row = self._trial(program, decided, below=below), self._state.table.rows.get(node)
        best = trial.best(1)
        return bool(best) and not best[0].victims, row is not None and trial.is_candidate(row)

    def candidates(
        self,
        program: Program,
        decided: Decided = _NOTHING,
    ) -> tuple[list[Planned], tuple[set[str], set[str]]]:
        """Return each node that could take a pod, with its victims, the best first; and all that could go.

        The second are the keys of the pods of lower priority on these nodes: those whose eviction would
        violate a budget, and the others, before any is put back. See ``plan``.
        """
        trial = self._trial(program, decided)
        return trial.best(trial.candidates_count), trial.grouped()

    def _trial(
        self,
        program: Program,
        decided: Decided,
        without: Collection[str] = (),
        below: int | None = None,
    ) -> _Trial:
        budgets, claimed, nominated = decided
        self._victims.sync(claimed, budgets)
        lost = [
            Nominated(entry.pod_class, entry.node)
            for entry in (self._state.pods.get(key) for key in claimed)
            if entry is not None and entry.node
        ]
        rules = rules_of(program, self._slots, self._victims, self._state, lost, nominated)
        rows = [row for node in without if (row := self._state.table.rows.get(node)) is not None]
        of = program, self._slots, self._snapshot, self._victims, self._state.resources, rules, budgets
        return _Trial(*of, rows, program.template.priority if below is None else below)


class _Trial:
    """One group's plan of all rows, and the nominations that follow from it."""

    def __init__(
        self,
        program: Program,
        slots: GroupSlots,
        snapshot: Snapshot,
        victims: Victims,
        resources: ResourceIndex,
        rules: preempt_arrays.Rules,
        budgets: BudgetsSeen,
        without: Sequence[int],
        below: int,
    ) -> None:
        self._columns, self._victims, self._rules = snapshot.columns, victims, rules
        self._asked = asked_of(program, snapshot.columns, slots.groups, resources)
        if without:
            code = self._asked.static_code.copy()
            code[without] = 1  # any but 0 refuses
            self._asked = self._asked.replace(static_code=code)
        self._sets = sets_of(victims.sets, budgets.allowed)
        self._priority = below
        self._band = victims.band(self._priority)
        self._salt = slots.groups.salt[program.slot]
        self._plans = empty_plans(snapshot.rows_width, len(self._asked.column), len(rules.kind))
        self.kept_count = preempting.rule_out(
            self._columns, victims.arrays, self._asked, self._band, self._plans
        )
        self.candidates_count = preempting.plan_victims(
            self._columns,
            victims.arrays,
            self._asked,
            rules,
            self._sets,
            self._band,
            self._salt,
            self._plans,
        )

    def is_candidate(self, row: int) -> bool:
        """Say whether the first pod could go to a row."""
        return bool(self._plans.state[row] == preempt_arrays.PLANNED)

    def best(self, count: int, *, fewest_first: bool = False) -> list[Planned]:
        """Return the best rows for the first pod; call it before ``nominate``.

        ``fewest_first``: only the violations of budgets count before the number of victims.
        """
        plans = self._plans
        rows = np.flatnonzero(plans.state[: int(self._columns.rows_count[0])] == preempt_arrays.PLANNED)
        ties = salted(self._columns.tie[rows], int(self._salt))
        order = np.lexsort(
            (
                ties,
                -plans.start_ms[rows],
                plans.victims[rows],
                plans.priorities[rows],
                plans.highest[rows],
                *([plans.victims[rows]] if fewest_first else []),
                plans.violations[rows],
            )
        )
        return [self._planned_on(row) for row in rows[order[:count]].tolist()]

    def _planned_on(self, row: int) -> Planned:
        plans = self._plans
        key = [plans.violations, plans.highest, plans.priorities, plans.victims, plans.start_ms]
        places = np.flatnonzero(self._marks(row) & preempt_arrays.VICTIM)
        return self._planned(row, places.tolist(), [int(each[row]) for each in key])

    def _planned(self, row: int, places: Sequence[int], key: Sequence[int]) -> Planned:
        """Return a plan, given the places of the victims among the pods of the row."""
        pods = self._victims.pods_on(row)
        weight = Weight(
            key[0],
            None if key[1] == preempt_arrays.NO_VICTIM else key[1],
            key[2] - key[3] * preempt_arrays.SHIFT,
            key[3],
            None if key[4] == preempt_arrays.NOT_STARTED else key[4],
        )
        return Planned(row, self._victims.node_of(row), tuple(pods[i].spec.key for i in places), weight)

    def _marks(self, row: int) -> np.ndarray:
        """Return the marks of a row's pods, zeros for those that are not of lower priority."""
        arrays = self._victims.arrays
        first = int(arrays.first[row])
        at = slice(first, first + int(arrays.length[row]))
        return np.where(arrays.priority[at] < self._priority, arrays.mark[at], 0)

    def grouped(self) -> tuple[set[str], set[str]]:
        """Return the keys of the pods that could go: those whose eviction violates a budget, the others."""
        violating, others = set[str](), set[str]()
        for row in np.flatnonzero(self._plans.state == preempt_arrays.PLANNED).tolist():
            for pod, mark in zip(self._victims.pods_on(row), self._marks(row).tolist(), strict=True):
                if pod.spec.template.priority < self._priority:
                    (violating if mark & preempt_arrays.VIOLATING else others).add(pod.spec.key)
        return violating, others

    def nominate(self, count: int) -> list[Planned]:
        """Choose nodes for equal pods, one after another."""
        chosen, key = np.zeros(count, dtype=np.int32), np.zeros((count, 5), dtype=np.int64)
        ends = np.zeros(count + 1, dtype=np.int64)
        arrays = self._victims.arrays
        taken = np.zeros(len(arrays.mark), dtype=np.int64)
        found = preempting.nominate(
            self._columns, arrays, self._asked, self._rules, self._sets, self._band, self._salt,
            self._plans, chosen, key, ends[1:], taken,
        )  # fmt: skip
        planned = []
        for k, row in enumerate(chosen[:found].tolist()):
            places = taken[ends[k] : ends[k + 1]] - arrays.first[row]
            planned.append(self._planned(row, places.tolist(), key[k].tolist()))
        return planned
