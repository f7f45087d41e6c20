"""The queue: pods that wait, group by group, and which of them are worth an attempt now.

A group is in one of four states. *Active*: its pods are tried in their turn. *Parked*: a pod of it found no
node, and nothing happened since that could cure it (``domain/queue/waking.py``). *Backing off*: something
did, but its last attempt is too short a while ago. *Held*: it must not be tried at all. A pod that was never
tried, a *fresh* one, has a turn in any state, as it has to be told why it waits. A flood of equal pods is one
group, so a million parked pods cost as much as one. Pods of a gang have their turn together (``gangs.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec
import numpy as np

from domain.counting.counter import Counter as PodCounter
from domain.counting.counters import CounterTable
from domain.model.decisions import Attempt
from domain.model.limits import INT64_MAX
from domain.model.pods import PodSpec, is_master
from domain.model.priorities import PRIORITY_MAX
from domain.plugins.registry import ProfilePlan
from domain.queue.blocked import Blocked
from domain.queue.deadlines import Deadlines, backoff_ends_ms
from domain.queue.excluded import Excluded
from domain.queue.gangs import Gangs, Turn
from domain.queue.groups import GangLine, GroupKey, Line, Tried, WaitingGroup
from domain.queue.turn_order import TurnOrder
from domain.queue.turns import Turns, Works
from domain.queue.waking import Waking
from domain.state.cluster import ClusterState
from domain.state.snapshot import Snapshot


class Queue:
    """All waiting pods.

    Parameters
    ----------
    backoff_ms : tuple of int
        How long after its first failed attempt a group is not tried again, and at most after many, in log
        time. It doubles with each attempt that places none of its pods.
    """

    def __init__(
        self,
        state: ClusterState,
        plans: Mapping[str, ProfilePlan],
        backoff_ms: tuple[int, int] = (0, 0),
        excluded: Excluded | None = None,
    ) -> None:
        self._state = state
        self._plans = plans
        self._works = Works(state)
        self._backoff_ms = backoff_ms
        self._excluded = Excluded() if excluded is None else excluded
        self._now_ms = 0
        self.groups: dict[GroupKey, WaitingGroup] = {}
        self.signatures: defaultdict[bytes, int] = defaultdict(int)  # how many groups have it
        self._line_of: dict[str, Line] = {}
        self.lines = TurnOrder()
        self._changed = self.lines.changed
        self._backing_off = Deadlines(self._backs_off)
        self._waking = Waking(state)
        self.blocked = Blocked()
        self.gangs = Gangs(state, backoff_ms, self._activate, self._changed, self.blocked)
        self._newly_held: dict[GroupKey, None] = {}  # to be reported, though no pod of it is fresh
        self._is_put_off = False

    def add(self, pod: PodSpec, arrival: int, *, fresh: bool, lost: bool = False) -> None:
        """Let a pod wait; one not fresh was tried before a restart. ``Line.add_pod`` explains ``lost``."""
        key = pod.key
        group = self._group_of(pod)
        namespace = pod.namespace
        line = group.lines.get(namespace)
        if line is None:
            line = group.lines[namespace] = Line(namespace, group)
        line.add_pod(key, arrival, fresh=fresh, lost=lost)
        self._line_of[key] = line
        self._changed[line] = None
        if group.gang is not None:
            self.gangs.changed[group.gang.key] = None
        if not fresh:
            self.wake_group(group)

    def _group_of(self, pod: PodSpec) -> WaitingGroup:
        """Return the group of a pod, a new one where none of its like waits."""
        template, pod_class = pod.template, self._state.pods[pod.key].pod_class
        number = 0 if pod_class is None else pod_class.number
        if nodes := self._excluded.of(pod):
            number = self._excluded.number(number, nodes)
            template = msgspec.structs.replace(template, excluded=nodes)
        group = self.groups.get((pod.signature, number))
        if group is None:
            plan = self._plans.get(template.profile)
            group = WaitingGroup(pod.signature, template, plan, pod_class, number)
            self.groups[group.key] = group
            self.gangs.join(group)
            self.signatures[pod.signature] += 1
        return group

    def move_from(self, before: Queue) -> None:
        """Let all that waits in another queue wait here, as if it came anew in the order of a restart.

        Nothing of the other queue is to be used behind it: a line of plain pods comes as a whole. Pods of
        gangs, and those that go to fewer nodes than their like did, come one by one.

        Cost: O(pods), some 50 ns each; O(log pods) more for those that come one by one.
        """
        pods = self._state.pods

        def came(key: str) -> tuple[int, int, str]:
            """Return by what the waiting pods of a ledger are ordered."""
            entry = pods[key]
            return entry.arrival, entry.shard, entry.spec.uid

        split = {group.signature for group in before.groups.values() if group.key[1] < 0}
        coming: list[tuple[tuple[int, int, str], str, Line | None, bool]] = []
        for group in before.groups.values():
            is_whole = group.gang is None and group.signature not in split
            for line in group.lines.values():
                if is_whole:
                    first = line.restart(came)
                    coming.append((came(first), first, line, False))
                else:
                    coming += [(came(key), key, None, key in line.fresh) for key in line.pods]
        coming.sort(key=itemgetter(0))
        self._line_of = before._line_of
        for _, key, whole, fresh in coming:
            if whole is None:
                self.add(pods[key].spec, pods[key].arrival, fresh=fresh)
                continue
            whole.group = self._group_of(pods[key].spec)
            whole.group.lines[whole.namespace] = whole
            self._changed[whole] = None

    @property
    def keys(self) -> Collection[str]:
        """The keys of all pods that wait for any node."""
        return self._line_of.keys()

    def report_held(self, pod: PodSpec) -> None:
        """Have it said what holds a pod that came from another group, though it is not fresh."""
        group = self._line_of[pod.key].group
        if group.held_by:
            self._newly_held[group.key] = None

    def remove_pods(self, keys: Iterable[str]) -> None:
        """Remove pods that wait no longer."""
        line_of = self._line_of
        for key in keys:
            line = line_of.pop(key)
            del line.pods[key]
            line.note_tried(key)
            if line.entry is not None and line.entry[2] == key:
                self._changed[line] = None
            if line.group.gang is not None:
                self.gangs.changed[line.group.gang.key] = None
            if not line.pods:
                self._end_line(line)

    def _end_line(self, line: Line) -> None:
        """Forget a line without pods, and its group where that was the last one."""
        group = line.group
        del group.lines[line.namespace]
        if group.lines:
            return
        del self.groups[group.key]
        self.signatures[group.signature] -= 1
        if not self.signatures[group.signature]:
            del self.signatures[group.signature]
        self._newly_held.pop(group.key, None)
        self.blocked.forget(group.key)
        self._waking.remove(group)

    def remove_if_waiting(self, key: str) -> None:
        """Remove a pod if it is here: one that has a nominated node is not."""
        if key in self._line_of:
            self.remove_pods((key,))

    def regroup(self, pod: PodSpec, arrival: int) -> None:
        """Move a pod to the group of its class, into its place by arrival."""
        fresh = self.is_fresh(pod.key)
        self.remove_pods((pod.key,))
        self.add(pod, arrival, fresh=fresh)

    def readmit(self, key: str) -> None:
        """Move a pod to the group of its like, if it waits for any node: it may go to more nodes now."""
        if key in self._line_of:
            self.regroup(self._state.pods[key].spec, self._state.pods[key].arrival)

    def replan(self, profile: str) -> None:
        """Give the waiting groups of a profile its present plan: each is now worth an attempt, or held."""
        plan = self._plans.get(profile)
        self._works.forget()
        for group in self.groups.values():
            if group.template.profile != profile:
                continue
            group.replan(plan)
            self.blocked.forget(group.key)
            self._waking.remove(group)
            if group.gang is not None:
                self.gangs.changed[group.gang.key] = None
                self.gangs.activate(group.gang)
            self._changed.update(dict.fromkeys(group.lines.values()))
            if group.held_by:
                self._newly_held[group.key] = None
            else:
                self._newly_held.pop(group.key, None)

    def forget_columns(self) -> None:
        """Record that resources have other columns now."""
        self._waking.forget_columns()

    def is_fresh(self, key: str) -> bool:
        """Say whether a pod has not been tried yet."""
        line = self._line_of.get(key)  # there is none where a node is nominated for the pod
        return line is not None and key in line.fresh

    def note_tried(self, keys: Iterable[str]) -> None:
        """Record that pods have had their first attempt."""
        for key in keys:
            self._line_of[key].note_tried(key)

    def park(
        self, group: WaitingGroup, attempt: Attempt, counted: tuple[Sequence[PodCounter], int] | None = None
    ) -> None:
        """Park a group: let it wait for what could cure it.

        ``counted``, where rules over counters refused nodes: these counters, and the sum of their versions
        then. The group is tried again when it is another one.
        """
        group.parked, group.attempt = True, attempt
        self._changed.update(dict.fromkeys(group.lines.values()))
        if group.held_by:
            return
        self._waking.add(group, attempt, counted)
        if group.gang is not None:
            return
        group.failures = 1 if attempt.bound_count else group.failures + 1
        if group.failures == 1:
            self.blocked.note(group.key, attempt.looked_at_ms)
        group.due_ms = backoff_ends_ms(attempt.looked_at_ms, group.failures, self._backoff_ms)

    def park_again(self, group: WaitingGroup) -> None:
        """Park a group that was woken for room that another one took before its turn.

        It has failed no further time, and waits for more than refused it then.
        """
        assert group.attempt is not None
        group.parked = self._is_put_off = True
        self._changed.update(dict.fromkeys(group.lines.values()))
        self._waking.add(group, group.attempt, None, widely=True)

    def pass_to(self, now_ms: int) -> None:
        """Let log time pass: groups with a backoff that ended are active again."""
        self._now_ms = now_ms
        for key in self._backing_off.pass_to(now_ms):
            self._activate(self.groups[key])
        self.gangs.pass_to(now_ms)

    def _backs_off(self, key: GroupKey, due_ms: int) -> bool:
        group = self.groups.get(key)
        return group is not None and group.woken and group.due_ms == due_ms

    @property
    def due_ms(self) -> int:
        """Log time at which the next backoff ends."""
        return min(self._backing_off.next_ms, self.gangs.backing_off.next_ms)

    @property
    def lowest_priority(self) -> int:
        """The lowest priority of pods that wait and are not held. Cost: O(groups)."""
        waiting = (each.template.priority for each in self.groups.values() if not each.held_by)
        return min(waiting, default=PRIORITY_MAX)

    @property
    def backs_off(self) -> bool:
        """Whether any group waits for log time to pass."""
        gangs = self.gangs.known.values()
        return any(each.woken for each in self.groups.values()) or any(each.is_woken for each in gangs)

    def note_look(self) -> None:
        """Record that something was looked at which a replay has to look at in the same cycle."""
        self._is_put_off = True

    def take_put_off(self) -> bool:
        """Say whether, since it was asked last, something is to be tried that was not tried at once.

        A group was woken while it backs off, or could be cured by more. What did it may be undone before the
        group is tried, so that nothing could tell later why it was.
        """
        is_put_off = self._is_put_off or self._waking.is_widened or self.gangs.is_put_off
        self._is_put_off = self._waking.is_widened = self.gangs.is_put_off = False
        return is_put_off

    def wake(
        self,
        snapshot: Snapshot,
        rows: Iterable[int],
        passing: Callable[[WaitingGroup, np.ndarray], np.ndarray],
    ) -> None:
        """Wake the parked groups that one of these rows may cure: they gained room, or changed their spec.

        ``passing`` says of a group and rows which of them its static filters are not known to refuse.
        Whether the other filters agree, the attempt finds out.
        """
        for group in self._waking.by_rows(snapshot, np.array(sorted(rows), dtype=np.int64), passing):
            self.wake_group(group)

    def wake_measured(self, snapshot: Snapshot) -> None:
        """Wake the parked groups that a filter may have refused by usage, if usage was measured since."""
        for group in self._waking.by_usage(snapshot):
            self.wake_group(group)

    def may_wake(self, counters: CounterTable) -> bool:
        """Whether measurements or moved counters have come that could cure a parked group."""
        return self._waking.has_measured or self._waking.has_moved(counters)

    def wake_counted(self, counters: CounterTable) -> None:
        """Wake the groups that rules refused by counters which moved since, or that may have other rules."""
        for group in self._waking.by_counters(counters):
            self.wake_group(group)

    def wake_masters(self, clusters: Collection[str]) -> None:
        """Wake the parked groups of masters of clusters that may now have more of them on one node."""
        for group in self._waking.groups if clusters else ():
            if is_master(group.template) and group.template.cluster in clusters:
                self.wake_group(group)

    def wake_pod(self, key: str) -> None:
        """Wake the group of a pod, if it waits for any node."""
        if key in self._line_of:
            self.wake_group(self._line_of[key].group)

    def wake_group(self, group: WaitingGroup) -> None:
        """Have the pods of a parked group tried again, when its backoff has ended.

        With a fresh pod, which does not back off, it is tried now.
        """
        if group.gang is not None:
            self.gangs.wake(group.gang)
        if group.gang is not None or not group.parked or group.held_by or group.woken:
            return
        if group.due_ms <= self._now_ms or any(line.fresh for line in group.lines.values()):
            self._activate(group)
        else:
            self._waking.remove(group)
            group.woken = self._is_put_off = True
            self._backing_off.add(group.due_ms, group.key)

    def put_off(self, key: GroupKey) -> None:
        """Have a group drawn as one that needs a plan of evictions."""
        self.groups[key].owes_plan = self._is_put_off = True

    def wake_preemptors(
        self,
        groups: Iterable[WaitingGroup],
        snapshot: Snapshot,
        rows: Iterable[int],
        passing: Callable[[WaitingGroup, np.ndarray], np.ndarray],
    ) -> None:
        """Wake those of some groups, which may preempt, for which one of these rows could be cleared now.

        ``passing`` as of ``wake``. They pay for a plan when they are drawn.
        """
        where = np.array(sorted(rows), dtype=np.int64)
        for group in self._waking.by_evicting(snapshot, where, groups, passing):
            group.owes_plan = True
            self.wake_group(group)

    def _activate(self, group: WaitingGroup) -> None:
        self._waking.remove(group)
        group.parked = group.woken = False
        if group.is_low:
            group.begin_with_one()
        self._changed.update(dict.fromkeys(group.lines.values()))

    @property
    def has_work(self) -> bool:
        """Whether any pod has a turn to come. To ask decides nothing: a replay does not ask."""
        self.lines.place_changed()
        has_turn, outdated = self.gangs.ask()
        return (
            has_turn
            or bool(self._newly_held)
            or (len(self.lines) > outdated if outdated else bool(self.lines))
        )

    def begin_cycle(self) -> None:
        """Bring the lines that changed to their places, and have fresh pods wake their parked groups."""
        self._look_at_gangs()
        lines = self.lines.placed | self._changed
        for group in {line.group: None for line in lines if line.fresh and line.group.parked}:
            if self._is_outdated(group):
                self._activate(group)
        self.lines.place_changed()
        self.lines.placed.clear()

    def note_nominated(self) -> None:
        """Bring the lines that changed between two lanes to their places: nominated pods have no turn."""
        self._look_at_gangs()
        self.lines.place_changed()

    def _look_at_gangs(self) -> None:
        """Hold the pods of gangs that changed, or let them have their turn."""
        for group in self.gangs.look_at_changed():
            self._newly_held.pop(group.key, None)
            if group.held_by:  # it is to be told why, though no pod of it may be fresh
                self._newly_held[group.key] = None

    def _is_outdated(self, group: WaitingGroup, *, is_over: bool = False) -> bool:
        """Say whether a fresh pod of a parked group has to be tried, not told what the last one was told.

        So it is where something could have cured the group, or a pod could that is placed before it in the
        same cycle, unless that ``is_over``; and where nodes changed otherwise, so that it may matter now
        whether other pods leave.
        """
        if group.held_by or group.gang is not None:
            return False
        may_be_cured = not is_over and self._waking.is_refused_by_counts(group)
        return may_be_cured or group.is_outdated(self._state.table)

    def draw(self, work_max: int, pods_max: int, *, is_low: bool = False) -> tuple[list[Turn], Turns]:
        """Return the pods and gangs of a lane that are tried, in order, and how they were drawn.

        The lines that changed have to be in their places.
        """
        tried: list[Tried] = []
        turns: list[Turn] = []
        drawn = self.lines.draw(self._works, work_max, pods_max, is_low=is_low)
        for _, _, key, line in drawn.drawn:
            if isinstance(line, GangLine):
                turns.append((tried, line.gang))
                tried = []
            else:
                tried.append((key, line.group))
        return [*turns, (tried, None)], drawn

    def draw_told(
        self, pods_max: int, *, is_low: bool = False, is_over: bool = False
    ) -> list[tuple[WaitingGroup, list[str]]]:
        """Return parked and held groups of a lane, each with pods to be told why they wait.

        These count as tried from then on. The verdict that parked a group holds for its fresh pods, too, as
        room was only taken away since. With ``is_over`` nothing more is placed in this cycle. A group that is
        held because its profile changed is told without a fresh pod, too.
        """
        # When gangs were looked at, and so in which order these came here, depends on where a batch was cut.
        newly_held = sorted(self._newly_held, key=lambda which: self.groups[which].oldest())
        held: dict[GroupKey, list[str]] = {which: [] for which in newly_held}
        self._newly_held.clear()
        parked: dict[GroupKey, list[str]] = {}
        drawn = self.lines.draw(self._works, INT64_MAX, pods_max, is_low=is_low, is_told=True).drawn
        for _, _, key, line in drawn:
            of = held if line.group.held_by else parked
            of.setdefault(line.group.key, []).append(key)
        told = []
        for which, keys in (held | parked).items():
            group = self.groups[which]
            if self._is_outdated(group, is_over=is_over):  # only now: its pods are tried next
                self._activate(group)
                continue
            self.note_tried(keys)
            told.append((group, keys))
        return told
