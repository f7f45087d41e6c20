"""Which pod may have a node kept free, so that a stream of small pods does not hold off a large one for ever.

One pod of a worker at a time: the oldest of the group of the highest priority that found no node for long and
that some node could hold, if pods of no higher priority left it by themselves. Nobody is evicted for it. It
is a nomination without victims, which ends when the pod is placed, when another node has room for it, and
when the node can hold it no longer. A restart forgets that it is one; it ends with the next change then.
"""

from __future__ import annotations

from domain.cycle.gang_preempting import GangPreemptingPlacer
from domain.cycle.groups import GroupKey, WaitingGroup
from domain.cycle.preemption import NO_VICTIMS, Planned
from domain.cycle.program import Program
from domain.cycle.queue import Queue
from domain.model.limits import reservation_lasts_seconds, reservation_look_ms, reservation_tries_max
from domain.model.pods import DEFAULT_PROFILE
from domain.model.timestamps import NEVER_MS
from domain.state.cluster import ClusterState
from domain.state.steps import Cleared


class ReservingPlacer(GangPreemptingPlacer):
    """Tries the candidates of one cycle; keeps a node free for a pod, and no longer than that is of use."""

    def reserve(self, key: str, group: WaitingGroup) -> bool:
        """Keep a node free for a pod that could hold it if pods of no higher priority left; say whether."""
        assert group.plan is not None
        assert group.attempt is not None
        self._slots.start_call()
        program = self._slots.program(group.key, group.signature, group.template, group.plan, group.pod_class)
        if program is None:
            return False
        below = group.template.priority + 1
        decided, _ = self._decided(program.template.priority)
        planned = self._preemptor.plan(program, 1, decided, below=below).planned
        if not planned or not planned[0].victims:  # with room it is tried in its turn
            return False
        attempt = len(self.result.attempts)
        self.result.attempts.append(group.attempt.again(0, self._snapshot.generation))
        plan = Planned(planned[0].row, planned[0].node, (), NO_VICTIMS)
        self._promise(key, plan, attempt, reservation_lasts_seconds * 1_000)
        return True

    def review(self, key: str) -> None:
        """End a reservation if another node has room, or its own can hold the pod no longer."""
        nomination = self._state.nominations.entries[key]
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
        How long, in log time, a group has to be without success before it may have one; 0: never.
    """

    def __init__(self, state: ClusterState, wait_ms: int) -> None:
        self._state, self._wait_ms = state, wait_ms
        self._looked_ms = 0
        self._looked_at = 0  # generation
        self._key = ""

    @property
    def key(self) -> str:
        """The pod that has the reservation, or ""."""
        known = self._state.nominations.entries.get(self._key)
        if known is None or not self._state.is_own_promise(known):
            self._key = ""
        return self._key

    def is_due(self, queue: Queue, now_ms: int) -> bool:
        """Say whether it is time to look whether the reservation is good, or who may have it."""
        if not self._wait_ms or now_ms < self._looked_ms + reservation_look_ms:
            return False
        return bool(self.key) or queue.blocked.has_any(now_ms - self._wait_ms)

    def due_ms(self, queue: Queue) -> int:
        """Return the log time of the next look; there is none while nothing changes but the time."""
        if not self._wait_ms:
            return NEVER_MS
        next_ms, until_ms = self._looked_ms + reservation_look_ms, self._looked_ms - self._wait_ms
        has_moved = self._state.table.last_generation != self._looked_at
        if has_moved and (self.key or queue.blocked.has_any(until_ms)):
            return next_ms
        return NEVER_MS if self.key else max(next_ms, queue.blocked.next_ms(until_ms) + self._wait_ms)

    def look(self, queue: Queue, placer: ReservingPlacer, now_ms: int) -> None:
        """End the reservation if it is of no use any more; give one if there is none."""
        self._looked_ms = now_ms
        queue.note_look()
        if self.key:
            placer.review(self._key)
        else:
            self._give(queue, placer, now_ms)
        self._looked_at = self._state.table.last_generation

    def _give(self, queue: Queue, placer: ReservingPlacer, now_ms: int) -> None:
        blocked = [queue.groups[key] for key in queue.blocked.since(now_ms - self._wait_ms)]
        blocked = [group for group in blocked if group.template.profile == DEFAULT_PROFILE]
        blocked.sort(key=_turn)
        for group in blocked[:reservation_tries_max]:
            key, _ = _oldest(group)
            if placer.reserve(key, group):
                self._key = key
                return


def _oldest(group: WaitingGroup) -> tuple[str, int]:
    firsts = [min(line.pods.items(), key=_arrival) for line in group.lines.values()]
    return min(firsts, key=_arrival)


def _arrival(pod: tuple[str, int]) -> int:
    return pod[1]


def _turn(group: WaitingGroup) -> tuple[int, int]:
    return -group.template.priority, _oldest(group)[1]
