"""The queue: pods that wait, group by group, and which of them are worth an attempt now.

A pod is *fresh* until its first attempt. A group whose pods found no node is *parked*: none of its pods is
tried again until some node has gained room for one of them or has changed its spec. A flood of equal pods is
one group, so a million parked pods cost as much as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

import numpy as np

from domain.cycle.counters import Counter as PodCounter
from domain.cycle.counters import CounterTable
from domain.cycle.turns import Candidate, Works, in_turn
from domain.kernels import arrays as kernel
from domain.kernels import placing
from domain.model.decisions import Attempt
from domain.model.limits import woken_pods_per_batch_max
from domain.model.pods import PodSpec, PodTemplate, is_master
from domain.plugins.base import Demand
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass
from domain.state.snapshot import Snapshot

GroupKey = tuple[bytes, int]
"""The signature of a group's pods, and the number of their class; 0 where they have none."""


class WaitingGroup:
    """The waiting pods of one signature and class. ``pods`` maps pod key to arrival; see ``first``.

    ``attempt`` is the attempt that parked the group.
    """

    __slots__ = (
        "attempt",
        "demands",
        "held_by",
        "is_sorted",
        "key",
        "latest",
        "parked",
        "plan",
        "pod_class",
        "pods",
        "signature",
        "template",
    )

    def __init__(
        self,
        signature: bytes,
        template: PodTemplate,
        plan: ProfilePlan | None,
        pod_class: PodClass | None = None,
    ) -> None:
        self.key: GroupKey = (signature, 0 if pod_class is None else pod_class.number)
        self.signature = signature
        self.template = template
        self.plan = plan
        self.pod_class = pod_class
        self.pods: dict[str, int] = {}
        self.latest = 0
        self.is_sorted = True
        self.parked = False
        self.attempt: Attempt | None = None
        self.demands: list[Demand] | None = None  # what must be free, once a wake-up has asked
        self.held_by = self._hold()

    def put(self, key: str, arrival: int) -> None:
        """Add a pod."""
        self.is_sorted &= arrival >= self.latest
        self.latest = max(self.latest, arrival)
        self.pods[key] = arrival

    def first(self, count: int) -> Iterator[tuple[str, int]]:
        """Yield the pods that came first, with their arrival, at most so many."""
        if not self.is_sorted:
            self.pods = dict(sorted(self.pods.items(), key=itemgetter(1)))
            self.is_sorted = True
        return islice(self.pods.items(), count)

    def replan(self, plan: ProfilePlan | None) -> None:
        """Take another plan. What was found under the one before holds no longer."""
        self.plan, self.parked, self.attempt, self.demands = plan, False, None, None
        self.held_by = self._hold()

    def _hold(self) -> tuple[str, ...]:
        """Return the reason codes that keep every pod of the group from being tried."""
        if self.plan is None:
            return (f"unknown-profile:{self.template.profile}",)
        template = self.template
        if not (template.gates or template.unsupported):
            return template.missing
        gates = tuple(f"scheduling-gated:{gate}" for gate in template.gates)
        unsupported = tuple(f"unsupported:{what}" for what in template.unsupported)
        return gates + template.missing + unsupported


class Queue:
    """All waiting pods."""

    def __init__(self, state: ClusterState, plans: Mapping[str, ProfilePlan]) -> None:
        self._state = state
        self._plans = plans
        self._works = Works(state.table)
        self.groups: dict[GroupKey, WaitingGroup] = {}
        self.signatures: Counter[bytes] = Counter()  # of the groups
        self._group_of: dict[str, WaitingGroup] = {}
        self._fresh: dict[str, None] = {}
        self._woken: dict[GroupKey, None] = {}
        self._counted: dict[WaitingGroup, tuple[Sequence[PodCounter], int, int]] = {}  # see ``park``
        self._seen = (0, 0)  # what ``wake_counted`` looked at last
        self._measured_generation = 0  # the table's, when measurements were last looked at
        self._newly_held: dict[GroupKey, None] = {}  # to be reported, though no pod of it is fresh

    def add(self, pod: PodSpec, arrival: int, *, fresh: bool) -> None:
        """Let a pod wait. A pod that is not fresh was tried before a restart, and is tried again after it."""
        pod_class = self._state.pods[pod.key].pod_class
        group = self.groups.get((pod.signature, 0 if pod_class is None else pod_class.number))
        if group is None:
            plan = self._plans.get(pod.template.profile)
            group = WaitingGroup(pod.signature, pod.template, plan, pod_class)
            self.groups[group.key] = group
            self.signatures[pod.signature] += 1
        group.put(pod.key, arrival)
        self._group_of[pod.key] = group
        if fresh:
            self._fresh[pod.key] = None
        elif not group.held_by:
            self.wake_group(group)

    def report_held(self, pod: PodSpec) -> None:
        """Have it said what holds a pod that came from another group, though it is not fresh."""
        group = self._group_of[pod.key]
        if group.held_by:
            self._newly_held[group.key] = None

    def remove(self, key: str) -> None:
        """Remove a pod that waits no longer."""
        self._fresh.pop(key, None)
        group = self._group_of.pop(key)
        del group.pods[key]
        if not group.pods:
            del self.groups[group.key]
            self.signatures[group.signature] -= 1
            if not self.signatures[group.signature]:
                del self.signatures[group.signature]
            self._woken.pop(group.key, None)
            self._newly_held.pop(group.key, None)
            self._counted.pop(group, None)

    def drop(self, key: str) -> None:
        """Remove a pod if it is here: one that has a node promised is not."""
        if key in self._group_of:
            self.remove(key)

    def regroup(self, pod: PodSpec, arrival: int) -> None:
        """Move a pod to the group of its class, into its place by arrival."""
        fresh = self.is_fresh(pod.key)
        self.remove(pod.key)
        self.add(pod, arrival, fresh=fresh)

    def replan(self, profile: str) -> None:
        """Give the waiting groups of a profile its present plan: each is now worth an attempt, or held."""
        plan = self._plans.get(profile)
        self._works.forget()
        for group in self.groups.values():
            if group.template.profile != profile:
                continue
            group.replan(plan)
            self._counted.pop(group, None)
            now, before = (
                (self._newly_held, self._woken) if group.held_by else (self._woken, self._newly_held)
            )
            now[group.key] = None
            before.pop(group.key, None)

    def forget_columns(self) -> None:
        """Record that resources have other columns now."""
        for group in self.groups.values():
            group.demands = None

    def is_fresh(self, key: str) -> bool:
        """Say whether a pod has not been tried yet."""
        return key in self._fresh

    def tried(self, keys: Iterable[str]) -> None:
        """Record that pods have had their first attempt."""
        for key in keys:
            self._fresh.pop(key, None)

    def park(
        self, group: WaitingGroup, attempt: Attempt, counted: tuple[Sequence[PodCounter], int] | None = None
    ) -> None:
        """Park a group: let it wait for room.

        ``counted``, where rules over counters refused nodes: these counters, and the sum of their versions
        then. The group is tried again when it is another one.
        """
        group.parked, group.attempt = True, attempt
        self._woken.pop(group.key, None)
        if counted is not None:
            self._counted[group] = (*counted, self._selects_of(group))

    def wake(self, snapshot: Snapshot, rows: Iterable[int]) -> None:
        """Wake the parked groups that have room for a pod on any of the rows.

        Only resources are compared here. Whether the other filters agree, the attempt finds out.
        """
        parked = [g for g in self.groups.values() if g.parked and not g.held_by]
        self._wake_where_room_is(parked, snapshot, np.array(sorted(rows), dtype=np.int64))

    def wake_measured(self, snapshot: Snapshot) -> None:
        """Wake the parked groups that a filter may have refused by usage, if usage was measured since."""
        table = self._state.table
        if self.has_measured:
            rows = np.flatnonzero(table.usage_generation[: table.count] > self._measured_generation)
            self._wake_where_room_is(self._parked_by_usage(), snapshot, rows)
        self._measured_generation = table.last_usage_generation

    @property
    def has_measured(self) -> bool:
        """Whether measurements have come, since the last wake-up, that could cure a parked group."""
        is_new = self._state.table.last_usage_generation > self._measured_generation
        return is_new and bool(self._parked_by_usage())

    def _parked_by_usage(self) -> list[WaitingGroup]:
        parked = [g for g in self.groups.values() if g.parked and not g.held_by]
        return [group for group in parked if group.plan is not None and group.plan.filters_by_usage]

    def _wake_where_room_is(self, parked: list[WaitingGroup], snapshot: Snapshot, where: np.ndarray) -> None:
        where = where[where < snapshot.columns.rows_count[0]]
        if not parked or not len(where):
            return
        counts = np.zeros(len(parked), dtype=np.int32)
        columns = np.zeros((len(parked), kernel.DEMANDS_MAX), dtype=np.int32)
        values = np.zeros((len(parked), kernel.DEMANDS_MAX), dtype=np.int64)
        for w, group in enumerate(parked):
            if group.demands is None:
                assert group.plan is not None
                fit = group.plan.fit
                group.demands = [] if fit is None else fit[1].demands(group.template, self._state.resources)
            counts[w] = len(group.demands)
            for d, demand in enumerate(group.demands):
                columns[w, d], values[w, d] = demand.column, demand.value
        fits = np.zeros(len(parked), dtype=np.uint8)
        placing.could_fit(snapshot.columns, where, counts, columns, values, fits)
        for w in np.flatnonzero(fits).tolist():
            self.wake_group(parked[w])

    def waits_for_rules(self, counters: CounterTable) -> bool:
        """Whether something happened by which a group may wake that rules refused."""
        return bool(self._counted) and (counters.is_behind or self._seen != self._look(counters))

    def wake_counted(self, counters: CounterTable) -> None:
        """Wake the groups that rules refused by counters which moved since, or whose rules may be others."""
        before, self._seen = self._seen, self._look(counters)
        if self._seen == before:
            return
        for group, (read, version, selects) in list(self._counted.items()):
            if self._selects_of(group) != selects or counters.version_of(read) != version:
                self.wake_group(group)

    def _look(self, counters: CounterTable) -> tuple[int, int]:
        return self._state.index.selects_version, counters.moves

    def _selects_of(self, group: WaitingGroup) -> int:
        return 0 if group.pod_class is None else self._state.index.selects_of(group.pod_class.namespace)

    def wake_masters(self, clusters: Collection[str]) -> None:
        """Wake the parked groups of masters whose cluster may now have more of them on one node."""
        for group in self.groups.values() if clusters else ():
            is_concerned = is_master(group.template) and group.template.cluster in clusters
            if is_concerned and group.parked and not group.held_by:
                self.wake_group(group)

    def wake_group(self, group: WaitingGroup) -> None:
        """Have the pods of a group tried again."""
        group.parked = False
        self._counted.pop(group, None)
        self._woken[group.key] = None

    @property
    def has_work(self) -> bool:
        """Whether any pod is worth an attempt."""
        return bool(self._fresh or self._woken or self._newly_held)

    def in_turn(self, work_max: int) -> list[Candidate]:
        """Return the fresh pods whose turn it is, first those of held groups, which are not tried.

        A pod of a parked group waits for its turn like any other, though it is only refused then: a restart
        forgets which groups are parked, and must not change whose turn it is.
        """
        held: list[Candidate] = []
        fresh: list[Candidate] = []
        for key in self._fresh:
            group = self._group_of[key]
            candidate = (-group.template.priority, group.pods[key], key, group)
            (held if group.held_by else fresh).append(candidate)
        fresh.sort()
        return [*held, *in_turn(fresh, self._works, work_max)]

    def refused(self, turn: Iterable[Candidate]) -> Iterator[tuple[WaitingGroup, list[str]]]:
        """Yield parked and held groups, each with its pods whose turn it is. These then count as tried.

        The verdict that parked the group holds for them too, as room was only taken away since. The group is
        tried again instead where nodes changed, so that it may matter now whether other pods leave. A group
        that is held because its profile changed is yielded even without a fresh pod.
        """
        by_group: dict[GroupKey, list[str]] = {which: [] for which in self._newly_held}
        self._newly_held.clear()
        for _, _, key, group in turn:
            if group.parked or group.held_by:
                by_group.setdefault(group.key, []).append(key)
        for which, keys in by_group.items():
            group = self.groups[which]
            if not group.held_by and self._is_outdated(group):
                self.wake_group(group)
                continue
            self.tried(keys)
            yield group, keys

    def _is_outdated(self, group: WaitingGroup) -> bool:
        """Say whether the verdict that parked a group may differ by now, though there is no more room."""
        assert group.plan is not None
        assert group.attempt is not None
        table, since = self._state.table, group.attempt.generation
        return (
            table.last_spec_generation > since
            or table.count != group.attempt.nodes_count
            or (group.plan.filters_by_usage and table.last_usage_generation > since)
        )

    def candidates(self, turn: Iterable[Candidate], woken_work_max: int) -> list[tuple[str, WaitingGroup]]:
        """Return the pods to try, by (priority, arrival): those whose turn it is, and woken ones.

        What is left has its turn in a later cycle. The two are cut apart, so that which fresh pods are tried
        does not depend on what a restart wakes. Where not all woken ones are tried, which of them are does.
        """
        items = [candidate for candidate in turn if not candidate[3].parked]
        woken: list[Candidate] = []
        for which in self._woken:
            group = self.groups[which]
            woken.extend(
                (-group.template.priority, arrival, key, group)
                for key, arrival in group.first(woken_pods_per_batch_max)
                if key not in self._fresh
            )
        if woken:
            woken.sort()
            items += in_turn(woken, self._works, woken_work_max)[:woken_pods_per_batch_max]
            items.sort()
        return [(key, group) for _, _, key, group in items]
