"""Gangs preempt as a whole, or not at all.

A gang of which too few members find a node is tried again on trial. Its members without a node are planned
one after another, each as those before it left the cluster, until as many have a node or a plan as must. Then
each of these has a node nominated in one transaction, also those that need no pod to leave; else all is taken
back. No member takes its node before all can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple

import numpy as np

from domain.cycle.gang_trial import CHANGES, Trial, domains_to_try, explain_undone, take_back, try_gang
from domain.cycle.nominated import count_again, uncount_below
from domain.cycle.preempt import decided_for, may_preempt, nominate
from domain.cycle.run import CycleRun, Preempting
from domain.engine.budgets import Budgets
from domain.engine.nominated_room import waits_for_any
from domain.engine.preemption import NO_VICTIMS, Decided, Planned, has_leaving
from domain.engine.preemption import Nominated as Counted
from domain.engine.program import Program
from domain.queue.gangs import lacking
from domain.queue.groups import Gang, GroupKey, Tried
from domain.queue.turns import plan_work, trial_work
from domain.state.pods import PodEntry


class Preempted(Enum):
    """What became of a gang that asked to preempt."""

    NOMINATED = "each member that must have a node has one nominated"
    HELPLESS = "no eviction helps, or none is allowed"
    PUT_OFF = "the cycle has no work left for a plan"


class GangPlan(NamedTuple):
    """A trial, taken back, on which a gang preempts, and the plans of its members without a node."""

    trial: Trial
    plans: Mapping[str, Planned]

    def chosen(self, names: Sequence[str]) -> dict[str, Planned]:
        """Return the plans of all, also of members that found a node, given the names of rows."""
        rows = zip(self.trial.tried, self.trial.placed.row.tolist(), strict=True)
        found = {key: Planned(row, names[row], (), NO_VICTIMS) for (key, _), row in rows if row >= 0}
        return found | dict(self.plans)


class _Spent:
    """Budgets from which planned evictions took, beside all that was decided."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets, self._spent = budgets, Counter[int]()

    def spend(self, pods: Iterable[PodEntry]) -> None:
        """Let the eviction of pods count."""
        self._spent.update(number for pod in pods for number in self._budgets.of(pod))

    @property
    def version(self) -> int:
        """See ``BudgetsSeen``."""
        return self._budgets.version

    @property
    def allowed(self) -> np.ndarray:
        """See ``BudgetsSeen``."""
        left = self._budgets.allowed.copy()
        for number, count in self._spent.items():
            left[number] -= count
        return left

    def of(self, pod: PodEntry) -> tuple[int, ...]:
        """See ``BudgetsSeen``."""
        return self._budgets.of(pod)


def preempt_gang(run: CycleRun, gang: Gang, members: Sequence[Tried]) -> Preempted:
    """Nominate nodes for a gang of which too few members find one, and evict the victims."""
    of = run.preempting
    if of is None:
        return Preempted.HELPLESS
    found = _plan_gang(run, of, gang, members)
    if isinstance(found, Preempted):
        return found
    chosen = nominate_gang(run, of, gang, found)
    if not any(waits_for_any(run.state, plan.node) for plan in chosen.values()):
        # In another order all of them fit as it is: they start with the next cycle.
        run.state.improved_rows.update(plan.row for plan in chosen.values())
    return Preempted.NOMINATED


def plan_gang(run: CycleRun, of: Preempting, gang: Gang) -> dict[str, Planned]:
    """Return the node and the victims of each member that would have one nominated; nothing changes."""
    with out_of_turn(run, of, gang):
        found = _plan_gang(run, of, gang, gang.members())
    return {} if isinstance(found, Preempted) else found.chosen(run.state.table.names)


@contextmanager
def out_of_turn(run: CycleRun, of: Preempting, gang: Gang) -> Iterator[None]:
    """Have the kernel try a gang that may be parked; nominations of less urgent pods do not count."""
    uncount_below(run, of, gang.lowest_priority)
    parked = [group for group in gang.ready if group.parked]
    for group in parked:  # else it would not be tried
        group.parked = False
    yield
    for group in parked:
        group.parked = True
    count_again(run, of)


def _plan_gang(run: CycleRun, of: Preempting, gang: Gang, members: Sequence[Tried]) -> GangPlan | Preempted:
    paid = [group for group in gang.ready if group.owes_plan]
    for group in paid:
        group.owes_plan = False
    lowest, of_all = gang.lowest_priority, run.state.index.lowest_priority
    if not of.preempts or lowest <= of_all or not _are_willing(run, of, gang, members):
        return Preempted.HELPLESS
    if run.work_left <= 0 and not paid:
        for group in gang.ready:
            run.queue.put_off(group.key)
        return Preempted.PUT_OFF
    run.work_left += sum(plan_work(group.template, run.state) for group in paid)
    shunned = {of.pauses.node_of(key) for key, _ in members} - {""} if of.pauses else set[str]()
    return plan_below(run, of, lowest, gang, members, shunned) or Preempted.HELPLESS


def plan_below(
    run: CycleRun,
    of: Preempting,
    below: int,
    gang: Gang,
    members: Sequence[Tried],
    shunned: Collection[str] = (),
) -> GangPlan | None:
    """Plan for a gang where pods below a priority may leave; nodes that are shunned come last."""
    decided, outbid = decided_for(run, of, gang.lowest_priority)
    freed = of.preemptor.freed(below, decided)
    if lacking(gang, run.state, run.snapshot, freed):
        return None
    foreign = {victim for victim, by in outbid.items() if not run.state.is_own_nomination(by)}
    domains, _ = domains_to_try(run, gang, members, freed)
    work = trial_work(gang, run.state)
    for without in (shunned, ()) if shunned else (shunned,):
        for domain in domains:
            run.work_left -= work  # all are looked at: a gang preempts in the best that will do
            # A row is written twice more for each pod: nominated, and taken back.
            trial = try_gang(run, members, domain, changes=2 * CHANGES)
            if trial is None:
                return None
            plans = _plan_missing(run, of, below, gang, trial, decided, without)
            take_back(run, trial)
            if plans is not None and foreign.isdisjoint(v for p in plans.values() for v in p.victims):
                return GangPlan(trial, plans)
    return None


def _are_willing(run: CycleRun, of: Preempting, gang: Gang, members: Sequence[Tried]) -> bool:
    """Return whether every member may preempt, and none has to wait, as no victim left for it before."""
    lowest, pods = run.state.index.lowest_priority, run.state.pods
    if not all(may_preempt(group.template, lowest) for group in gang.ready):
        return False
    if of.pauses and not all(of.pauses.may_evict(key) for key, _ in members):
        return False
    specs = (pods[key].spec for key, _ in members)
    leaving = [pod for pod in specs if pod.nominated_node and has_leaving(pod, run.state.nodes)]
    for pod in leaving:
        of.pauses.note_leaving(pod.key, pod.nominated_node)
    return not leaving


def _plan_missing(
    run: CycleRun,
    of: Preempting,
    below: int,
    gang: Gang,
    trial: Trial,
    decided: Decided,
    without: Collection[str],
) -> dict[str, Planned] | None:
    """Plan for members without a node, as many as must have one, on the trial; None: no plan helps.

    Pods ``below`` a priority may leave. Equal members are planned together, in the order of the first of each
    kind.
    """
    state = run.state
    missing: dict[GroupKey, list[str]] = {}
    for (key, group), row in zip(trial.tried, trial.placed.row.tolist(), strict=True):
        if row < 0:
            missing.setdefault(group.key, []).append(key)
    left = gang.lacking_count - trial.found_count
    if left <= 0:  # it waits for its least resources, for which no pod has to leave
        return None
    could = sum(map(len, missing.values()))  # pods that may still get a plan
    spent, claimed, nominated = _Spent(of.budgets), set(decided.claimed), list(decided.nominated)
    plans: dict[str, Planned] = {}
    held: list[tuple[GroupKey, Program, Planned]] = []
    for kind, keys in missing.items():
        program = trial.programs[kind]
        run.work_left -= plan_work(program.template, state)
        now = Decided(spent, frozenset(claimed), tuple(nominated))
        found = of.preemptor.plan(program, min(left, len(keys)), now, without, below).planned
        for key, plan in zip(keys, found, strict=False):
            plans[key] = plan
            held.append((kind, program, plan))
            _count_plan(run, kind, program, plan, 1)
            spent.spend(state.pods[victim] for victim in plan.victims)
            claimed.update(plan.victims)
            nominated.append(Counted(state.pods[key].pod_class, plan.node))
        left -= len(found)
        could -= len(keys)
        if not left or left > could:  # enough have a plan, or too few will, whatever comes
            break
    for each in held:
        _count_plan(run, *each, -1)
    return None if left else plans


def _count_plan(run: CycleRun, kind: GroupKey, program: Program, plan: Planned, sign: int) -> None:
    amounts = run.state.nominations.amounts_of(kind[0], program.template)
    run.snapshot.count_nomination(plan.row, *amounts, sign)


def nominate_gang(
    run: CycleRun, of: Preempting, gang: Gang, plan: GangPlan, *, lasts_ms: int = 0
) -> dict[str, Planned]:
    """Nominate nodes for the members that found one, and for those for which others have to leave."""
    chosen = plan.chosen(run.state.table.names)
    attempts = explain_undone(run, gang, plan.trial, chosen)
    groups, gang_priority = dict(plan.trial.tried), gang.lowest_priority
    for key, each in chosen.items():
        nominate(run, of, key, each, attempts[groups[key].key], lasts_ms=lasts_ms, below=gang_priority)
    run.result.gangs[gang.key] = max(len(chosen), run.result.gangs.get(gang.key, 0))
    return chosen
