"""The placing of one cycle where pods may preempt, or have nodes promised already.

Pods come by priority. What is promised to pods of no lower priority counts in the snapshot; what is promised
to others is taken out of it, and put back as the priority sinks. A pod with a promised node is tried there,
alone, once the node changed, and before all others of its priority. The kernel stops at the first pod without
a node whose group may preempt: for it and its like that follow, victims are planned, and nodes promised.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from domain.cycle.evaluate import Alone, look_at_rows
from domain.cycle.gangs import Gang
from domain.cycle.groups import GroupKey, Tried
from domain.cycle.picked import part_of
from domain.cycle.preemption import NEVER, Decided, Planned, Preemptor, has_leaving
from domain.cycle.preemption import Nominated as Counted
from domain.cycle.program import Program
from domain.cycle.promised_placer import PromisedPlacer
from domain.cycle.turns import plan_work
from domain.cycle.unheeded import Unheeded
from domain.cycle.verdicts import Preemption
from domain.kernels import arrays as kernel
from domain.model.pods import DEFAULT_PROFILE, PodTemplate
from domain.plugins.registry import ProfilePlan
from domain.state.budgets import Budgets
from domain.state.nominations import Nomination
from domain.state.steps import Nominated

_PROGRAMS_MIN = 16
"""A call that begins where one stopped compiles so many groups, and each further one twice as many."""


def may_preempt(template: PodTemplate, lowest_priority: int) -> bool:
    """Say whether pods of a template may let others go, where the lowest priority of any pod is this.

    Those of a gang do so together (``GangPreemptingPlacer``). A pod that could not be bound to a node waits
    until it may be tried there again.
    """
    return (
        template.profile == DEFAULT_PROFILE
        and template.preemption_policy != NEVER
        and template.priority > lowest_priority
        and not template.excluded
    )


class Preempting(NamedTuple):
    """What a placer needs to know of preemption.

    ``plans`` are the profiles in force, ``tries`` what is to be tried, as of ``to_try``. Without
    ``preempts`` nobody is evicted; what is promised is kept, for ``promise_ms`` of log time. ``reserved`` is
    the promise that is a reservation (``Reserving``), if any is.
    """

    plans: Mapping[str, ProfilePlan]
    preemptor: Preemptor
    budgets: Budgets
    tries: Sequence[Nomination]
    preempts: bool
    promise_ms: int
    unheeded: Unheeded
    reserved: Nomination | None = None


class PreemptingPlacer(PromisedPlacer):
    """Tries the candidates of one cycle, and promises nodes to those that find none."""

    def __init__(self, *of: Any, seed: int, at_ms: int, preempting: Preempting) -> None:
        of_promised: dict[str, Any] = {"plans": preempting.plans, "reserved": preempting.reserved}
        super().__init__(*of, seed=seed, at_ms=at_ms, **of_promised)
        self._preemptor, self._budgets = preempting.preemptor, preempting.budgets
        self._preempts, self._promise_ms = preempting.preempts, preempting.promise_ms
        self._unheeded = preempting.unheeded
        self._tries = preempting.tries
        self._paid: set[GroupKey] = set()  # groups whose namespaces paid for a plan when they were drawn
        self._willing: set[GroupKey] = set()  # those of a call that may preempt, if there is work left

    # ------------------------------------------------------------------------------------------- bands

    def place_gang(self, gang: Gang) -> None:
        """Place a gang; what is promised to pods of lower priority than all of its pods is not kept."""
        known = self._state.nominations.entries.values()
        self._hold([each for each in known if each.priority < gang.lowest_priority], -1)
        super().place_gang(gang)
        self._put_back(None)

    def _place_all(self, candidates: Sequence[Tried]) -> None:
        """Place the candidates; those that compete with the same nominations together, from the top down."""
        above = self._above
        count = 0 if self._is_home else sum(above is None or e.priority >= above for e in self._tries)
        tries, self._tries = self._tries[:count], self._tries[count:]
        firsts = [-group.template.priority for _, group in candidates[:1]]
        firsts += [-nomination.priority for nomination in tries[:1]]
        if not firsts:
            return
        if not self._is_home:
            owing = {group for _, group in candidates if group.owes_plan}
            self._paid = {group.key for group in owing}
            for group in owing:
                group.owes_plan = False
        known = sorted(self._state.nominations.entries.values(), key=attrgetter("priority"), reverse=True)
        self._hold([each for each in known if each.priority < -min(firsts)], -1)
        done = tried = 0
        while done < len(candidates) or tried < len(tries):
            floor = max((each.priority for each in self._out.values()), default=None)
            end = done
            while end < len(candidates) and (floor is None or candidates[end][1].template.priority > floor):
                end += 1
            last = tried
            while last < len(tries) and (floor is None or tries[last].priority > floor):
                last += 1
            self._try(tries[tried:last])
            super()._place_all(candidates[done:end])
            done, tried = end, last
            self._put_back(floor)
        self._put_back(None)

    # ------------------------------------------------------------------------------------- preemption

    def _let_stop(
        self, tried: Sequence[Tried], programs: Mapping[GroupKey, Program], placed: kernel.Placed
    ) -> None:
        lowest, willing = self._state.index.lowest_priority, programs.keys()
        if self._unheeded:
            willing = {group.key: None for key, group in tried if self._may(key)}.keys()
            for _, group in tried:
                group.is_patient = group.key not in willing
        self._willing = {
            key
            for key in willing
            if self._preempts
            and may_preempt(programs[key].template, lowest)
            and not programs[key].template.gang
        }
        for key in self._willing if self.work_left > 0 else self._willing & self._paid:
            placed.stops[programs[key].slot] = 1

    def _may(self, key: str) -> bool:
        return self._unheeded.may(key)

    def _end_call(
        self,
        candidates: Sequence[Tried],
        end: int,
        tried: Sequence[Tried],
        programs: Mapping[GroupKey, Program],
        placed: kernel.Placed,
    ) -> int:
        """Take over what the kernel said up to the pod that stopped it, and plan for that one."""
        done = int(placed.done[0])
        last = programs[tried[done - 1][1].key] if done and not self._is_home else None
        if last is None or placed.row[done - 1] >= 0 or not placed.stops[last.slot]:
            self._programs_max *= 2
            return super()._end_call(candidates, end, *self._put_off(tried, programs, placed))
        self._programs_max = _PROGRAMS_MIN
        key, group = tried[done - 1]
        if group.key in self._paid:
            self._paid.remove(group.key)
        else:
            self.work_left -= plan_work(group.template, self._state)
        seen: Mapping[GroupKey, Program]
        seen = {of: p for of, p in programs.items() if placed.attempt_of[p.slot] >= 0}
        before = part_of(placed, slice(done - 1))
        kept, seen, before = self._put_off(tried[: done - 1], seen, before)
        at = len(self.result.attempts) + list(seen).index(group.key)
        self._take_over(kept, seen, before)
        first = candidates.index((key, group))
        if self.result.attempts[at].unresolvable:
            return first  # its group is parked: it is refused like those behind it
        following = first
        while following < len(candidates) and candidates[following][1] is group:
            following += 1
        return first + self._preempt(candidates[first:following], last, at)

    def _put_off(
        self, tried: Sequence[Tried], programs: Mapping[GroupKey, Program], placed: kernel.Placed
    ) -> tuple[Sequence[Tried], Mapping[GroupKey, Program], kernel.Placed]:
        """Return what of a call to take over: all but the pods that would preempt if there were work left.

        They wait, as if they had not been tried. Their namespaces pay for a plan when they are drawn again.
        """
        owing = {
            group.key
            for (_, group), row in zip(tried, placed.row.tolist(), strict=True)
            if row < 0 and group.key in self._willing and not placed.stops[programs[group.key].slot]
        }
        if not owing or self._is_home:
            return tried, programs, placed
        for key in owing:
            self._queue.put_off(key)
            placed.exhausted[placed.attempt_of[programs[key].slot]] = 0
        found = [i for i, (_, group) in enumerate(tried) if placed.row[i] >= 0 or group.key not in owing]
        tried = [tried[i] for i in found]
        gone = owing.difference(group.key for _, group in tried)
        programs = {key: program for key, program in programs.items() if key not in gone}
        return tried, programs, part_of(placed, np.array(found, dtype=np.int64))

    def _preempt(self, pods: Sequence[Tried], program: Program, attempt: int) -> int:
        """Promise nodes to equal pods; return how many were dealt with.

        The others are refused: their group is parked. So is who has to wait, as nobody left for it before;
        the nodes where nobody left are weighed last.
        """
        group, unheeded = pods[0][1], self._unheeded
        group.reads_pods = bool(program.counted.rules) or program.counted.is_cut
        willing = [(at, key) for at, (key, _) in enumerate(pods) if self._may(key)]
        waiting = self._waiting_for_leaving([key for _, key in willing], program)
        willing = [each for each in willing if each[1] not in waiting]
        group.is_patient = not willing
        if not willing:
            return 0  # they are refused like those behind a pod that nothing helps
        shunned = {unheeded.node_of(key) for _, key in willing} - {""} if unheeded else set[str]()
        done = 0
        for without in (shunned, set[str]()) if shunned else (shunned,):
            left = willing[done:]
            plans = self._planned(program, len(left), without) if left else ()
            for (_, key), plan in zip(left, plans, strict=False):
                self._promise(key, plan, attempt)
                done += 1
        if done < len(willing):
            return willing[done][0]
        if group.lines:
            if len(willing) == len(pods):  # nothing failed
                group.failures = group.due_ms = 0
            self._queue.wake_group(group)
        return len(pods)

    def _waiting_for_leaving(self, keys: Sequence[str], program: Program) -> set[str]:
        """Return the pods of a group for which others leave a node already, named by another scheduler.

        But for nodes that refuse the pods whatever leaves.
        """
        state = self._state
        named = {key: state.pods[key].spec for key in keys if state.pods[key].spec.nominated_node}
        found = {key: pod.nominated_node for key, pod in named.items() if has_leaving(pod, state.nodes)}
        if not found:
            return set()
        self.work_left -= plan_work(program.template, state)
        _, hopeless, _, _ = look_at_rows(program.plan, Alone(self._snapshot, self._slots, program))
        found = {key: node for key, node in found.items() if not hopeless[state.table.rows[node]]}
        for key, node in found.items():
            self._unheeded.note_leaving(key, node)
        return set(found)

    def _planned(self, program: Program, count: int, without: Collection[str]) -> list[Planned]:
        """Plan for equal pods, as far as they may have what is planned."""
        state = self._state
        decided, outbid = self._decided(program.template.priority)
        planned = self._preemptor.plan(program, count, decided, without).planned
        foreign = {victim for victim, by in outbid.items() if not state.is_own_promise(by)}
        return list(itertools.takewhile(lambda plan: foreign.isdisjoint(plan.victims), planned))

    def _decided(self, priority: int, but: str = "") -> tuple[Decided, dict[str, Nomination]]:
        """Return what is decided already for pods of a priority, but for one promise.

        And who leaves for pods that are outbid.
        """
        state = self._state
        known = state.nominations.entries
        self._budgets.sync()
        promised = [
            Counted(state.pods[each.key].pod_class if each.key in state.pods else None, each.node)
            for each in known.values()
            if each.priority >= priority and each.key != but
        ]
        # Who leaves for a less urgent pod leaves for this one instead: that promise ends with this one.
        evicted = state.nominations.evicted
        outbid = {victim: known[by] for victim, by in evicted.items() if known[by].priority < priority}
        return Decided(self._budgets, evicted.keys() - outbid.keys(), promised), outbid

    def _promise(
        self, key: str, plan: Planned, attempt: int, lasts_ms: int = 0, below: int | None = None
    ) -> None:
        state, nominations = self._state, self._state.nominations
        entry = state.pods[key]
        victims = tuple(state.pods[victim].spec for victim in plan.victims)
        expires_ms = self._at_ms + (lasts_ms or self._promise_ms)
        ended = state.apply(Nominated(key, plan.node, plan.victims, self._at_ms, expires_ms, below))
        self._let_go(ended)
        if not self._snapshot.reserve(1):
            self._slots.void()
        self._snapshot.hold(plan.row, *nominations.amounts(nominations.entries[key]), 1)
        self._slots.counters.promised.hold([nominations.entries[key]], 1)
        self._snapshot.caught_up()
        self.result.attempts[attempt].pods_count += 1
        version = state.nodes[plan.node].version
        promise = Preemption(
            entry.spec,
            entry.arrival,
            attempt,
            plan.node,
            version,
            victims,
            plan.weight.violations,
            expires_ms,
            self._budgets.names_of(state.pods[victim] for victim in plan.victims),
        )
        self.result.promises.append((len(self.result.verdicts), promise))
        self._queue.tried([key])
        self._queue.take_out((key,))
