"""Which pod may have a node kept free, so that a stream of small pods does not hold off a large one for ever.

One pod of a worker at a time, or one gang: the oldest of the group of the highest priority that found no node
for long and that some node could hold, if pods of no higher priority left it by themselves. Nobody is evicted
for it. It is a nomination without victims, which ends when the pod is placed, when another node has room for
it, and when the node can hold it no longer. A restart forgets that it is one; it ends with the next change
then. That of a gang is one of each member that must have a node, and they end together.
"""

from __future__ import annotations

from domain.cycle.blocked import Failing
from domain.cycle.gang_reserving import GangReservingPlacer
from domain.cycle.gangs import Gang
from domain.cycle.groups import GroupKey, WaitingGroup
from domain.cycle.preemption import NO_VICTIMS, Planned
from domain.cycle.program import Program
from domain.cycle.queue import Queue
from domain.model.limits import reservation_lasts_seconds, reservation_look_ms, reservation_tries_max
from domain.model.pods import DEFAULT_PROFILE
from domain.model.timestamps import NEVER_MS
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.steps import Cleared


class ReservingPlacer(GangReservingPlacer):
    """Tries the candidates of one cycle; keeps a node free for a pod, and no longer than that is of use."""

    def reserve(self, waiting: WaitingGroup | Gang) -> str:
        """Keep a node free for the oldest pod of a group, or all that a gang needs; return the pod, or "".

        The pod could hold it if pods of no higher priority left. Of a gang any member is returned.
        """
        return self.reserve_gang(waiting) if isinstance(waiting, Gang) else self._reserve(waiting)

    def _reserve(self, group: WaitingGroup) -> str:
        assert group.plan is not None
        assert group.attempt is not None
        self._slots.start_call()
        program = self._slots.program(group.key, group.signature, group.template, group.plan, group.pod_class)
        if program is None:
            return ""
        below = group.template.priority + 1
        decided, _ = self._decided(program.template.priority)
        planned = self._preemptor.plan(program, 1, decided, below=below).planned
        if not planned or not planned[0].victims:  # with room it is tried in its turn
            return ""
        attempt = len(self.result.attempts)
        self.result.attempts.append(group.attempt.again(0, self._snapshot.generation))
        plan, (key, _) = Planned(planned[0].row, planned[0].node, (), NO_VICTIMS), _oldest(group)
        self._promise(key, plan, attempt, reservation_lasts_seconds * 1_000)
        return key

    def review(self, nomination: Nomination) -> None:
        """End a reservation if another node has room, or its own can hold the pod no longer."""
        if nomination.template.gang:
            self.review_gang(nomination)
        else:
            self._review(nomination)

    def _review(self, nomination: Nomination) -> None:
        key = nomination.key
        programs: dict[GroupKey, Program] = {}
        self._slots.start_call()
        if not self._compile_one(nomination, programs):
            return
        (program,) = programs.values()
        self._hold([nomination], -1)
        fits, could = self._preemptor.could_hold(
            program, self._decided(nomination.priority, key)[0], nomination.node, nomination.priority + 1
        )
        if could and not fits:
            self._hold([nomination], 1)
        else:
            self._let_go(self._state.apply(Cleared([key], "elsewhere" if fits else "not-held")))
        self._snapshot.caught_up()


class Reserving:
    """The reservation of one worker.

    Parameters
    ----------
    wait_ms : int
        How long, in log time, a group or a gang has to be without success before it may have one; 0: never.
    """

    def __init__(self, state: ClusterState, wait_ms: int) -> None:
        self._state, self._wait_ms = state, wait_ms
        self._looked_ms = 0
        self._looked_at = 0  # generation
        self._key = ""  # of a gang that of any member
        self._hopeless: set[Failing] = set()  # that had a look since all had one

    @property
    def promise(self) -> Nomination | None:
        """What is promised to who has the reservation, if anybody has; of a gang to any member."""
        known = self._state.nominations.entries.get(self._key)
        if known is None or not self._state.is_own_promise(known):
            self._key = ""
            return None
        return known

    def is_due(self, queue: Queue, now_ms: int) -> bool:
        """Say whether it is time to look whether the reservation is good, or who may have it."""
        if not self._wait_ms or now_ms < self._looked_ms + reservation_look_ms:
            return False
        return self.promise is not None or queue.blocked.has_any(now_ms - self._wait_ms)

    def due_ms(self, queue: Queue) -> int:
        """Return the log time of the next look; there is none while nothing changes but the time."""
        if not self._wait_ms:
            return NEVER_MS
        next_ms, until_ms = self._looked_ms + reservation_look_ms, self._looked_ms - self._wait_ms
        has_moved = self._state.table.last_generation != self._looked_at
        if has_moved and (self.promise is not None or queue.blocked.has_any(until_ms)):
            return next_ms
        if self.promise is not None:
            return NEVER_MS
        return max(next_ms, queue.blocked.next_ms(until_ms) + self._wait_ms)

    def look(self, queue: Queue, placer: ReservingPlacer, now_ms: int) -> None:
        """End the reservation if it is of no use any more; give one if there is none."""
        self._looked_ms = now_ms
        queue.note_look()
        if (promise := self.promise) is not None:
            placer.review(promise)
        else:
            self._give(queue, placer, now_ms)
        self._looked_at = self._state.table.last_generation

    def _give(self, queue: Queue, placer: ReservingPlacer, now_ms: int) -> None:
        keys = queue.blocked.since(now_ms - self._wait_ms)
        of = [queue.gangs.known[key] if isinstance(key, str) else queue.groups[key] for key in keys]
        blocked = [waiting for waiting in of if self._may_have_it(waiting)]
        blocked.sort(key=_turn)
        left = [waiting for waiting in blocked if waiting.key not in self._hopeless]
        if len(left) <= reservation_tries_max:  # all had a look: the next one begins with the first again
            self._hopeless.clear()
        for waiting in left[:reservation_tries_max]:
            self._key = placer.reserve(waiting)
            if self._key:
                self._hopeless.clear()
                return
            if len(left) > reservation_tries_max:
                self._hopeless.add(waiting.key)

    def _may_have_it(self, waiting: WaitingGroup | Gang) -> bool:
        if isinstance(waiting, WaitingGroup):
            return waiting.template.profile == DEFAULT_PROFILE
        waiting.renew(self._state)  # pods of it may have got a node in this cycle
        profiles = {group.template.profile for group in waiting.ready}
        return waiting.lacks_nodes and profiles == {DEFAULT_PROFILE}


def _oldest(group: WaitingGroup) -> tuple[str, int]:
    firsts = [min(line.pods.items(), key=_arrival) for line in group.lines.values()]
    return min(firsts, key=_arrival)


def _arrival(pod: tuple[str, int]) -> int:
    return pod[1]


def _turn(waiting: WaitingGroup | Gang) -> tuple[int, int]:
    if isinstance(waiting, Gang):
        return -waiting.lowest_priority, waiting.arrival
    return -waiting.template.priority, _oldest(waiting)[1]
