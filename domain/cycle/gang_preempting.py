"""The placing of gangs that may let other pods go: they preempt as a whole, or not at all.

A gang of which too few members find a node is tried again on trial. Its members without a node are planned
one after another, each as those before it left the cluster, until as many have a node or a plan as must. Then
each of these has a node promised in one transaction, also those that need nobody to leave; else all is taken
back. No member takes its node before all can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from domain.cycle.gang_placer import Trial
from domain.cycle.gangs import Gang, lacking, min_member_of
from domain.cycle.groups import GroupKey, Tried
from domain.cycle.picked import with_devices
from domain.cycle.preempting import PreemptingPlacer, may_preempt
from domain.cycle.preemption import NO_VICTIMS, Decided, Planned, has_leaving
from domain.cycle.preemption import Nominated as Counted
from domain.cycle.program import Program
from domain.cycle.promises import mates_of, urgency
from domain.cycle.turns import plan_work, trial_work
from domain.model.limits import gang_members_max
from domain.state.budgets import Budgets
from domain.state.nominations import Nomination
from domain.state.pods import PodEntry
from domain.state.steps import Assumed, Cleared

_CHANGES = 4
"""How often a row is written for each pod on trial: placed or promised, and taken back."""


class Spent:
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


class GangPreemptingPlacer(PreemptingPlacer):
    """Tries the candidates of one cycle; lets pods go for gangs, and starts each once all can start."""

    # ---------------------------------------------------------------------------------------- promises

    def plan_gang(self, gang: Gang) -> dict[str, Planned]:
        """Return the node and the victims of each member that would have a node promised; nothing changes."""
        with self._out_of_turn(gang):
            found = self._plan_gang(gang, gang.members())
        return {} if found is None else self._chosen(*found)

    @contextmanager
    def _out_of_turn(self, gang: Gang) -> Iterator[None]:
        """Have the kernel try a gang that may be parked; what is promised to less urgent pods is not kept."""
        known = self._state.nominations.entries.values()
        self._hold([each for each in known if each.priority < gang.lowest_priority], -1)
        self._programs_max, parked = gang_members_max, [group for group in gang.ready if group.parked]
        for group in parked:  # else it would not be tried
            group.parked = False
        yield
        for group in parked:
            group.parked = True
        self._put_back(None)

    def _preempt_gang(self, gang: Gang, members: Sequence[Tried]) -> bool:
        found = self._plan_gang(gang, members)
        if found is None:
            return False
        chosen = self._promise_gang(gang, *found)
        if not any(self._state.nominations.waits_for_any(plan.node) for plan in chosen.values()):
            # In another order all of them fit as it is: they start with the next cycle.
            self._state.improved_rows.update(plan.row for plan in chosen.values())
        return True

    def _plan_gang(self, gang: Gang, members: Sequence[Tried]) -> tuple[Trial, dict[str, Planned]] | None:
        """Return the trial, taken back, on which a gang preempts, and the plans of members without a node."""
        paid = [group for group in gang.ready if group.owes_plan]
        for group in paid:
            group.owes_plan = False
        lowest, of_all = gang.lowest_priority, self._state.index.lowest_priority
        if not self._preempts or lowest <= of_all or not self._are_willing(gang, members):
            return None
        if self.work_left <= 0 and not paid:
            for group in gang.ready:
                self._queue.put_off(group.key)
            self._owes_gang_plan = True
            return None
        self.work_left += sum(plan_work(group.template, self._state) for group in paid)
        shunned = {self._unheeded.node_of(key) for key, _ in members} - {""} if self._unheeded else set[str]()
        return self._plan_below(lowest, gang, members, shunned)

    def _plan_below(
        self, below: int, gang: Gang, members: Sequence[Tried], shunned: Collection[str] = ()
    ) -> tuple[Trial, dict[str, Planned]] | None:
        """Plan as ``_plan_gang`` where pods below a priority may leave; nodes that are shunned come last."""
        decided, outbid = self._decided(gang.lowest_priority)
        freed = self._preemptor.freed(below, decided)
        if lacking(gang, self._state, self._snapshot, freed):
            return None
        foreign = {victim for victim, by in outbid.items() if not self._state.is_own_promise(by)}
        domains, _ = self._domains_to_try(gang, members, freed)
        work = trial_work(gang, self._state)
        for without in (shunned, ()) if shunned else (shunned,):
            for domain in domains:
                self.work_left -= work  # all are looked at: a gang preempts in the best that will do
                trial = self._try_gang(members, domain, _CHANGES)
                if trial is None:
                    return None
                plans = self._plan_missing(below, gang, trial, decided, without)
                self._take_back(trial)
                if plans is not None and foreign.isdisjoint(v for p in plans.values() for v in p.victims):
                    return trial, plans
        return None

    def _are_willing(self, gang: Gang, members: Sequence[Tried]) -> bool:
        """Say whether every member may preempt, and none has to wait, as nobody left for it before."""
        lowest = self._state.index.lowest_priority
        if not all(may_preempt(group.template, lowest) for group in gang.ready):
            return False
        if self._unheeded and not all(self._may(key) for key, _ in members):
            return False
        pods = (self._state.pods[key].spec for key, _ in members)
        leaving = [pod for pod in pods if pod.nominated_node and has_leaving(pod, self._state.nodes)]
        for pod in leaving:
            self._unheeded.note_leaving(pod.key, pod.nominated_node)
        return not leaving

    def _plan_missing(
        self, below: int, gang: Gang, trial: Trial, decided: Decided, without: Collection[str]
    ) -> dict[str, Planned] | None:
        """Plan for members without a node, as many as must have one, on the trial; None: no plan helps.

        Pods ``below`` a priority may leave. Equal members are planned together, in the order of the first of
        each kind.
        """
        state = self._state
        missing: dict[GroupKey, list[str]] = {}
        for (key, group), row in zip(trial.tried, trial.placed.row.tolist(), strict=True):
            if row < 0:
                missing.setdefault(group.key, []).append(key)
        left = gang.lacking_count - trial.found_count
        if left <= 0:  # it waits for its least resources, for which nobody has to leave
            return None
        could = sum(map(len, missing.values()))  # who may still get a plan
        spent, claimed, promised = Spent(self._budgets), set(decided.claimed), list(decided.nominated)
        plans: dict[str, Planned] = {}
        held: list[tuple[GroupKey, Program, Planned]] = []
        for kind, keys in missing.items():
            program = trial.programs[kind]
            self.work_left -= plan_work(program.template, state)
            now = Decided(spent, frozenset(claimed), tuple(promised))
            found = self._preemptor.plan(program, min(left, len(keys)), now, without, below).planned
            for key, plan in zip(keys, found, strict=False):
                plans[key] = plan
                held.append((kind, program, plan))
                self._hold_plan(kind, program, plan, 1)
                spent.spend(state.pods[victim] for victim in plan.victims)
                claimed.update(plan.victims)
                promised.append(Counted(state.pods[key].pod_class, plan.node))
            left -= len(found)
            could -= len(keys)
            if not left or left > could:  # enough have a plan, or too few will, whatever comes
                break
        for each in held:
            self._hold_plan(*each, -1)
        return None if left else plans

    def _hold_plan(self, kind: GroupKey, program: Program, plan: Planned, sign: int) -> None:
        amounts = self._state.nominations.amounts_of(kind[0], program.template)
        self._snapshot.hold(plan.row, *amounts, sign)

    def _chosen(self, trial: Trial, plans: Mapping[str, Planned]) -> dict[str, Planned]:
        """Return the plans of those who found a node, too: nobody leaves for them."""
        names = self._state.table.names
        rows = zip(trial.tried, trial.placed.row.tolist(), strict=True)
        found = {key: Planned(row, names[row], (), NO_VICTIMS) for (key, _), row in rows if row >= 0}
        return found | dict(plans)

    def _promise_gang(
        self, gang: Gang, trial: Trial, plans: Mapping[str, Planned], lasts_ms: int = 0
    ) -> dict[str, Planned]:
        """Promise nodes to the members that found one, and to those for which others have to leave."""
        chosen = self._chosen(trial, plans)
        attempts = self._explain_undone(gang, trial, chosen)
        groups, gang_priority = dict(trial.tried), gang.lowest_priority
        for key, plan in chosen.items():
            self._promise(key, plan, attempts[groups[key].key], lasts_ms, below=gang_priority)
        self.result.gangs[gang.key] = max(len(chosen), self.result.gangs.get(gang.key, 0))
        return chosen

    # --------------------------------------------------------------------------------------- own nodes

    def _try(self, tries: Sequence[Nomination]) -> None:
        singles: list[Nomination] = []
        for each in tries:
            if each.template.gang:
                super()._try(singles)
                singles = []
                self._start_gang(each)
            else:
                singles.append(each)
        super()._try(singles)

    def _start_gang(self, nomination: Nomination) -> None:
        """Let the pods of a gang have the nodes that are promised to them, if all of them can.

        Rules over other pods may ask for an order: who does not fit is tried again behind those that do.
        """
        state, gang = self._state, nomination.template.gang
        if state.nominations.entries.get(nomination.key) is not nomination:  # outbid in this cycle
            return
        mates = sorted(mates_of(state, nomination), key=lambda each: urgency(state, each))
        placed, _ = state.index.gangs.placed(gang, state.pods, state.own)
        least = min_member_of(state, gang)
        if least is None or len(placed) + len(mates) < least:
            self._let_go(state.apply(Cleared([each.key for each in mates], "gang-changed")))
            self._snapshot.caught_up()
            return
        programs: dict[GroupKey, Program] = {}
        self._slots.start_call()
        if not all(self._compile_one(each, programs) for each in mates):
            return
        self._hold(mates, -1)
        if not self._snapshot.reserve(2 * len(mates)):
            self._slots.void()
        versions = self._slots.counters.arrays.version.copy()
        started, rest, devices = self._place_promised(mates, programs)
        if rest:
            on: dict[GroupKey, list[int]] = {}
            given: dict[GroupKey, list[int]] = {}
            for each, bits in zip(started, devices, strict=True):
                on.setdefault(self._group_of(each), []).append(state.table.rows[each.node])
                given.setdefault(self._group_of(each), []).append(bits)
            self._undo(on, given, programs, versions)
            if self._is_reserved(nomination):
                self._hold(mates, 1)
            elif any(self._is_refused(each, programs) for each in rest):
                self._let_go(state.apply(Cleared([each.key for each in mates], "not-held")))
            elif any(state.nominations.waits_for_any(each.node) for each in mates):
                self._hold(mates, 1)
            else:
                for each in mates:  # others were faster, perhaps again and again
                    self._unheeded.note(each.key, "", self._at_ms, self._promise_ms)
                self._let_go(state.apply(Cleared([each.key for each in mates], "no-room")))
        else:
            keys = [each.key for each in started]
            rows = np.array([state.table.rows[each.node] for each in started], dtype=np.int32)
            specs = with_devices(state.pods, keys, rows, np.array(devices, dtype=np.int32))
            self._keep(started, programs, specs)
            for key in keys:
                del self._out[key]
            self._note_ended(state.apply(Assumed(keys, rows, specs)))
            self.result.gangs[gang] = max(len(started), self.result.gangs.get(gang, 0))
        self._snapshot.caught_up()

    def _place_promised(
        self, mates: Sequence[Nomination], programs: dict[GroupKey, Program]
    ) -> tuple[list[Nomination], list[Nomination], list[int]]:
        """Place pods on their nodes in the snapshot.

        Returns them in order, those that do not fit, and the devices of the first, as bits.
        """
        started: list[Nomination] = []
        given: list[int] = []
        rest = list(mates)
        while rest:
            placed, _, devices = self._run_promised(rest, programs)
            if not placed.any():
                break
            started += [each for each, is_placed in zip(rest, placed.tolist(), strict=True) if is_placed]
            given += devices[placed != 0].tolist()
            rest = [each for each, is_placed in zip(rest, placed.tolist(), strict=True) if not is_placed]
        return started, rest, given
