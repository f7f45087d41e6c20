"""Which pod may have a node kept free, so that a stream of small pods does not hold off a large one for ever.

One pod of a worker at a time, or one gang: the oldest of the group of the highest priority that found no node
for long and that some node could hold, if pods of no higher priority left it by themselves. No pod is evicted
for it. It is a nomination without victims, which ends when the pod is placed, when another node has room for
it, and when the node can hold it no longer. A restart forgets that it is one; it ends with the next change
then. That of a gang is one of each member that must have a node, and they end together.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.cycle.gang_trial import domains_to_try, take_back, try_gang
from domain.cycle.nominated import compile_nominated, count_nominations, group_of, is_refused, let_go
from domain.cycle.preempt import decided_for, nominate
from domain.cycle.preempt_gang import GangPlan, nominate_gang, out_of_turn, plan_below
from domain.cycle.run import CycleRun, Preempting
from domain.engine.nominated_room import mates_of
from domain.engine.preemption import NO_VICTIMS, Planned
from domain.engine.program import Program
from domain.model.limits import reservation_lasts_seconds, reservation_look_ms, reservation_tries_max
from domain.model.pods import PREEMPTING_PROFILES
from domain.model.timestamps import NEVER_MS
from domain.queue.blocked import Failing
from domain.queue.gangs import lacking
from domain.queue.groups import Gang, GroupKey, Line, WaitingGroup
from domain.queue.queue import Queue
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.steps import Cleared

_LASTS_MS = reservation_lasts_seconds * 1_000


class Reserving:
    """The reservation of one worker.

    Parameters
    ----------
    wait_ms : int
        How long, in log time, a group or a gang has to be without success before it may have one; 0: never.
    """

    def __init__(self, state: ClusterState, wait_ms: int) -> None:
        self._state, self.wait_ms = state, wait_ms
        self._looked_ms = 0
        self._looked_at = 0  # generation
        self._key = ""  # of a gang that of any member
        self._hopeless: set[Failing] = set()  # that had a look since all had one

    @property
    def nomination(self) -> Nomination | None:
        """The nomination of the pod that has the reservation, if one has; of a gang that of any member."""
        known = self._state.nominations.entries.get(self._key)
        if known is None or not self._state.is_own_nomination(known):
            self._key = ""
            return None
        return known

    def is_due(self, queue: Queue, now_ms: int) -> bool:
        """Say whether it is time to look whether the reservation is good, or which pod may have it."""
        if not self.wait_ms or now_ms < self._looked_ms + reservation_look_ms:
            return False
        return self.nomination is not None or queue.blocked.has_any(now_ms - self.wait_ms)

    def due_ms(self, queue: Queue) -> int:
        """Return the log time of the next look; there is none while nothing changes but the time."""
        if not self.wait_ms:
            return NEVER_MS
        next_ms, until_ms = self._looked_ms + reservation_look_ms, self._looked_ms - self.wait_ms
        has_moved = self._state.table.last_generation != self._looked_at
        if has_moved and (self.nomination is not None or queue.blocked.has_any(until_ms)):
            return next_ms
        if self.nomination is not None:
            return NEVER_MS
        return max(next_ms, queue.blocked.next_ms(until_ms) + self.wait_ms)

    def look(self, queue: Queue, run: CycleRun, of: Preempting, now_ms: int) -> None:
        """End the reservation if it is of no use any more; give one if there is none."""
        self._looked_ms = now_ms
        queue.note_look()
        if (nomination := self.nomination) is not None:
            _review(run, of, nomination)
        else:
            self._give(queue, run, of, now_ms)
        self._looked_at = self._state.table.last_generation

    def _give(self, queue: Queue, run: CycleRun, of: Preempting, now_ms: int) -> None:
        keys = queue.blocked.since(now_ms - self.wait_ms)
        known = [queue.gangs.known[key] if isinstance(key, str) else queue.groups[key] for key in keys]
        blocked = [waiting for waiting in known if self._may_have_it(waiting)]
        blocked.sort(key=_turn)
        left = [waiting for waiting in blocked if waiting.key not in self._hopeless]
        if len(left) <= reservation_tries_max:  # all had a look: the next one begins with the first again
            self._hopeless.clear()
        for waiting in left[:reservation_tries_max]:
            self._key = _reserve(run, of, waiting)
            if self._key:
                self._hopeless.clear()
                return
            if len(left) > reservation_tries_max:
                self._hopeless.add(waiting.key)

    def _may_have_it(self, waiting: WaitingGroup | Gang) -> bool:
        if isinstance(waiting, WaitingGroup):
            return waiting.template.profile in PREEMPTING_PROFILES
        waiting.update_status(self._state)  # pods of it may have got a node in this cycle
        profiles = {group.template.profile for group in waiting.ready}
        return waiting.lacks_nodes and set() < profiles <= PREEMPTING_PROFILES


def _oldest(group: WaitingGroup) -> tuple[str, int]:
    firsts = [min(line.pods.items(), key=_arrival) for line in group.lines.values()]
    return min(firsts, key=_arrival)


def _arrival(pod: tuple[str, int]) -> int:
    return pod[1]


def _turn(waiting: WaitingGroup | Gang) -> tuple[int, int]:
    if isinstance(waiting, Gang):
        return -waiting.lowest_priority, waiting.arrival
    return -waiting.template.priority, _oldest(waiting)[1]


# --------------------------------------------------------------------------------------------- of one pod


def _reserve(run: CycleRun, of: Preempting, waiting: WaitingGroup | Gang) -> str:
    """Keep a node free for the oldest pod of a group, or all that a gang needs; return the pod, or "".

    The pod could hold it if pods of no higher priority left. Of a gang any member is returned.
    """
    if isinstance(waiting, Gang):
        return _reserve_for_gang(run, of, waiting)
    group = waiting
    assert group.plan is not None
    assert group.attempt is not None
    run.slots.start_call()
    program = run.slots.program(group.key, group.signature, group.template, group.plan, group.pod_class)
    if program is None:
        return ""
    decided, _ = decided_for(run, of, program.template.priority)
    planned = of.preemptor.plan(program, 1, decided, below=group.template.priority + 1).planned
    if not planned or not planned[0].victims:  # with room it is tried in its turn
        return ""
    attempt = len(run.result.attempts)
    run.result.attempts.append(group.attempt.again(0, run.snapshot.generation))
    plan, (key, _) = Planned(planned[0].row, planned[0].node, (), NO_VICTIMS), _oldest(group)
    nominate(run, of, key, plan, attempt, lasts_ms=_LASTS_MS)
    return key


def _review(run: CycleRun, of: Preempting, nomination: Nomination) -> None:
    """End a reservation if another node has room, or its own can hold the pod no longer."""
    if nomination.template.gang:
        _review_gang(run, of, nomination)
        return
    programs: dict[GroupKey, Program] = {}
    run.slots.start_call()
    if not compile_nominated(run, of, nomination, programs):
        return
    (program,) = programs.values()
    count_nominations(run, of, [nomination], -1)
    decided, _ = decided_for(run, of, nomination.priority, nomination.key)
    fits, could = of.preemptor.could_hold(program, decided, nomination.node, nomination.priority + 1)
    if could and not fits:
        count_nominations(run, of, [nomination], 1)
    else:
        reason = "elsewhere" if fits else "not-held"
        let_go(run, of, run.state.apply(Cleared([nomination.key], reason)))
    run.snapshot.caught_up()


# --------------------------------------------------------------------------------------------- of a gang


def _reserve_for_gang(run: CycleRun, of: Preempting, gang: Gang) -> str:
    """Keep nodes free for a gang that could start if pods of no higher priority left by themselves.

    Members that find a node on trial keep it, and the others are planned as if the gang preempted such pods.
    Returns a member that has one, "" if none has.
    """
    pods, own_nodes = run.state.pods, {entry.node for entry in gang.placed}
    with out_of_turn(run, of, gang):
        found = plan_below(run, of, gang.lowest_priority + 1, gang, gang.members(), own_nodes)
        plans = {} if found is None else found.plans
        leaving = [pods[key].spec.template.gang for plan in plans.values() for key in plan.victims]
        # With room it is tried in its turn; and it is to start beside its own pods, not after them.
        if found is None or not leaving or gang.key in leaving:
            return ""
        kept = {key: plan._replace(victims=(), weight=NO_VICTIMS) for key, plan in plans.items()}
        chosen = nominate_gang(run, of, gang, GangPlan(found.trial, kept), lasts_ms=_LASTS_MS)
    return next(iter(chosen))


def _review_gang(run: CycleRun, of: Preempting, nomination: Nomination) -> None:
    """End the reservation of a gang if it has room now, or one of its nodes can hold its pods no longer.

    Of rules over other pods nothing is asked here.
    """
    mates, programs = mates_of(run.state, nomination), dict[GroupKey, Program]()
    run.slots.start_call()
    if not all(compile_nominated(run, of, each, programs) for each in mates):
        return
    gang = _as_waiting(run.state, of, mates)
    with out_of_turn(run, of, gang):
        could = not any(is_refused(run, each, programs) for each in mates)
        could = could and _could_have_room(run, of, mates, gang.lowest_priority)
        count_nominations(run, of, mates, -1)
        fits = _fits(run, gang)
        if fits or not could:
            reason = "elsewhere" if fits else "not-held"
            let_go(run, of, run.state.apply(Cleared([each.key for each in mates], reason)))
    run.snapshot.caught_up()


def _as_waiting(state: ClusterState, of: Preempting, mates: Sequence[Nomination]) -> Gang:
    """Return the gang that pods with nominated nodes would be if they waited for any node."""
    groups: dict[GroupKey, WaitingGroup] = {}
    for each in mates:
        entry, key = state.pods[each.key], group_of(state, each)
        if key not in groups:
            plan = of.plans[each.template.profile]
            groups[key] = WaitingGroup(key[0], each.template, plan, entry.pod_class, key[1])
        lines, namespace = groups[key].lines, entry.spec.namespace
        line = lines.setdefault(namespace, Line(namespace, groups[key]))
        line.add_pod(each.key, entry.arrival, fresh=False)
    gang = Gang(mates[0].template.gang, groups[group_of(state, mates[0])])
    gang.groups = groups
    gang.update_status(state)
    return gang


def _could_have_room(run: CycleRun, of: Preempting, mates: Sequence[Nomination], priority: int) -> bool:
    """Return whether nominated nodes have room for all that is nominated once pods up to a priority left."""
    freed = of.preemptor.freed(priority + 1, decided_for(run, of, priority)[0])
    columns, rows = run.snapshot.columns, run.state.table.rows
    for each in mates:
        asked, row = run.state.nominations.amounts(each)[0], rows[each.node]
        left = columns.allocatable[asked, row] - columns.requested[asked, row] + freed[asked, row]
        if (left < 0).any():
            return False
    return True


def _fits(run: CycleRun, gang: Gang) -> bool:
    """Return whether enough members find a node as it is."""
    if gang.spec is None or lacking(gang, run.state, run.snapshot):
        return False
    members = gang.members()
    for domain in domains_to_try(run, gang, members)[0]:
        trial = try_gang(run, members, domain)
        if trial is None:
            return False
        take_back(run, trial)
        if trial.found_count >= gang.lacking_count:
            return True
    return False
