"""What waits: equal pods as a group, with a line per namespace; and the groups of a gang, with one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter, lt
from typing import NamedTuple

import msgspec

from domain.model.colocation import QUALITY_OF, Quality
from domain.model.config import PodGroup
from domain.model.decisions import Attempt, GangSeen
from domain.model.limits import gang_members_max
from domain.model.marks import terms_of
from domain.model.pods import PodTemplate
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass
from domain.state.pods import PodEntry
from domain.state.table import NodeTable

GroupKey = tuple[bytes, int]
"""The signature of a group's pods, and the number of their class; 0 where they have none.

It is negative where nodes are excluded for them (``domain/queue/excluded.py``).
"""

Candidate = tuple[int, int, str, "Line"]
"""A pod that has a turn to come: minus its priority, its arrival, its key, and the line in which it waits."""

TOLD = 2
"""Pods that are only told why they wait stand so far behind those of their lane that are tried."""

Tried = tuple[str, "WaitingGroup"]
"""A pod's key and its group."""

_BANDS_MAX = 8
"""A cycle does not look more often than that at home nodes first."""

_LOST_AGAIN = 8
"""Of pods that lost together, so large a part is tried next."""


class Line:
    """The waiting pods of a group in one namespace: ``pods`` and the ``fresh`` of them map key to arrival.

    ``entry`` is the pod by which the line stands in the queue, if it does, and ``stood_in`` where that is. A
    cycle tries ``most`` of its pods, 0: as many as it can.
    """

    __slots__ = (
        "entry",
        "fresh",
        "group",
        "is_sorted",
        "latest",
        "lost_count",
        "most",
        "namespace",
        "pods",
        "stood_in",
    )

    def __init__(self, namespace: str, group: WaitingGroup) -> None:
        self.namespace = namespace
        self.group = group
        self.pods: dict[str, int] = {}
        self.fresh: dict[str, int] = {}
        self.latest = 0
        self.is_sorted = True
        self.entry: Candidate | None = None
        self.stood_in = 0
        self.most = self.lost_count = 0

    def add_pod(self, key: str, arrival: int, *, fresh: bool, lost: bool = False) -> None:
        """Add a pod. With ``lost`` it had a node, which the ledger refused.

        Rules over other pods make all of a batch lose where another worker places pods that they read. A
        worker that has many of these wins each time, and one that tries all of its own each time writes a
        conflict for each. So few are tried next.
        """
        if lost and self.group.reads_others:
            self.lost_count += 1
            self.most = max(1, self.lost_count // _LOST_AGAIN)
        if arrival >= self.latest:
            self.latest = arrival
        else:
            self.is_sorted = False
        self.pods[key] = arrival
        if fresh:
            self.fresh[key] = arrival

    def note_tried(self, key: str) -> None:
        """Record that a pod has had its first attempt."""
        if self.fresh.pop(key, None) is not None and not self.fresh:
            self.fresh = {}  # an empty dict keeps the memory of all that it held

    def restart(self, came: Callable[[str], tuple[int, int, str]]) -> str:
        """Forget which turns it had, and bring its pods into the order in which they ``came``.

        Returns the first of them. Those of one shard nearly always are in this order: no two have one
        arrival, which only pods of different shards may.
        """
        arrivals = list(self.pods.values())
        if not all(map(lt, arrivals, islice(arrivals, 1, None))):
            self.pods = {key: self.pods[key] for key in sorted(self.pods, key=came)}
        if self.fresh:
            self.fresh = {key: arrival for key, arrival in self.pods.items() if key in self.fresh}
        self.entry, self.is_sorted, self.most, self.lost_count = None, True, 0, 0
        self.latest = next(reversed(self.pods.values()))
        return next(iter(self.pods))

    def drawable(self) -> Iterator[tuple[str, int]]:
        """Yield the pods that have a turn to come, with their arrival, oldest first."""
        self._sort()
        if self.group.gang is not None and not self.group.held_by:
            return iter(())  # they have theirs together
        if not self.group.is_active:
            return iter(self.fresh.items())
        return islice(self.pods.items(), self.most or None)

    def note_drawn(self) -> None:
        """Record that it had a turn, and have twice as many tried the next time."""
        self.entry = None
        self.lost_count = 0
        self.most *= 2
        if self.most >= len(self.pods):
            self.most = 0

    def _sort(self) -> None:
        if not self.is_sorted:
            self.pods = dict(sorted(self.pods.items(), key=itemgetter(1)))
            self.fresh = dict(sorted(self.fresh.items(), key=itemgetter(1)))
            self.is_sorted = True

    def oldest(self) -> int:
        """Return the arrival of its oldest pod."""
        self._sort()
        return next(iter(self.pods.values()))

    @property
    def size(self) -> int:
        """How many pods have a turn at a time."""
        return 1

    @property
    def groups(self) -> Sequence[WaitingGroup]:
        """The groups that are looked at in a turn."""
        return (self.group,)

    @property
    def stands_in(self) -> int:
        """Where it stands: 0, of low pods 1; 2 more where they are not tried, but told why they wait."""
        group = self.group
        return group.is_low + (TOLD if group.parked or group.held_by else 0)

    def first(self) -> Candidate | None:
        """Return the first of these."""
        for key, arrival in self.drawable():
            return -self.group.template.priority, arrival, key, self
        return None


def by_priority(pods: Sequence[Tried]) -> list[list[Tried]]:
    """Return pods, which come by priority, in parts of one priority; the last of them may have several."""
    bands: list[list[Tried]] = [[]]
    for each in pods:
        differs = bands[-1] and each[1].template.priority != bands[-1][-1][1].template.priority
        if differs and len(bands) < _BANDS_MAX:
            bands.append([])
        bands[-1].append(each)
    return bands


class WaitingGroup:
    """The waiting pods of one signature and class, in a line per namespace; ``gang`` is theirs, if any.

    ``attempt`` is the attempt that parked the group, ``failures`` how many such there were in a row without a
    pod of it placed. A group that is ``woken`` is tried again when log time has come to ``due_ms``. Where it
    ``is_patient``, all that were tried last may evict no pod for a while; others of it may. One that
    ``owes_plan`` found no node in a cycle that had no work left to plan an eviction. ``reads_pods``: rules
    over other pods may have a say in such a plan; the latest one knows whether they had. ``is_low``: its pods
    take what is idle (``ProfilePlan.colocates``), and have their turns behind all others.
    """

    __slots__ = (
        "attempt",
        "due_ms",
        "failures",
        "gang",
        "held_by",
        "held_by_itself",
        "is_low",
        "is_patient",
        "key",
        "lines",
        "owes_plan",
        "parked",
        "plan",
        "pod_class",
        "reads_pods",
        "signature",
        "template",
        "woken",
    )

    def __init__(
        self,
        signature: bytes,
        template: PodTemplate,
        plan: ProfilePlan | None,
        pod_class: PodClass | None = None,
        number: int = 0,
    ) -> None:
        self.key: GroupKey = (signature, number)
        self.signature = signature
        self.template = template
        self.pod_class = pod_class
        self.lines: dict[str, Line] = {}
        self.gang: Gang | None = None
        self.replan(plan)

    @property
    def reads_others(self) -> bool:
        """Whether rules over other pods have a say in where its pods go."""
        return bool(self.template.spread) or any(True for _ in terms_of(self.template))

    @property
    def is_active(self) -> bool:
        """Whether its pods are tried in their turn."""
        return not (self.parked or self.held_by)

    def is_outdated(self, table: NodeTable) -> bool:
        """Say whether its last attempt might end otherwise now: something woke it, or nodes changed."""
        assert self.plan is not None
        assert self.attempt is not None
        since = self.attempt.generation
        return (
            self.woken
            or self.is_patient
            or table.last_spec_generation > since
            or table.count != self.attempt.nodes_count
            or (self.plan.filters_by_usage and table.last_usage_generation > since)
        )

    @property
    def pods(self) -> Iterator[str]:
        """The keys of its pods."""
        return chain.from_iterable(line.pods for line in self.lines.values())

    @property
    def pods_count(self) -> int:
        """How many these are."""
        return sum(len(line.pods) for line in self.lines.values())

    def oldest(self) -> int:
        """Return the arrival of its oldest pod."""
        return min(line.oldest() for line in self.lines.values())

    @property
    def may_be_parked_again(self) -> bool:
        """Whether its last attempt is all there is to say where it still finds no node for want of room."""
        told = self.attempt is not None and self.attempt.rules is msgspec.UNSET and self.gang is None
        return told and not any(line.fresh for line in self.lines.values())

    def begin_with_one(self) -> None:
        """Have one pod of each line tried next, and twice as many each time that none is refused.

        What a measurement frees is little beside a flood of like pods: more than one of each group would take
        the turns of other groups, only to find that the first one took what there was.
        """
        for line in self.lines.values():
            line.most = 1

    def replan(self, plan: ProfilePlan | None) -> None:
        """Take a plan. What was found under the one before holds no longer."""
        self.plan = plan
        colocates = plan is not None and plan.colocates
        self.is_low = colocates and QUALITY_OF.get(self.template.qos_class) is Quality.LOW
        self.attempt: Attempt | None = None
        self.parked = self.woken = self.is_patient = self.owes_plan = False
        self.reads_pods = True
        self.failures = self.due_ms = 0
        self.held_by_itself = self._hold()
        self.hold_for("")

    def hold_for(self, reason: str) -> None:
        """Hold the pods for what their gang lacks ("": nothing), beside what they lack themselves."""
        self.held_by = self.held_for(reason)

    def held_for(self, reason: str) -> tuple[str, ...]:
        """Return what ``hold_for`` would hold them by."""
        return self.held_by_itself or ((reason,) if reason else ())

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


class GangLine(Line):
    """A gang in the queue: it stands there as one pod, its oldest, with the priority of its highest."""

    __slots__ = ("gang",)

    def __init__(self, namespace: str, group: WaitingGroup, gang: Gang) -> None:
        super().__init__(namespace, group)
        self.gang = gang

    @property
    def stands_in(self) -> int:
        """Where it stands: with low pods where all of its own are. Those held stand in their own lines."""
        return int(all(group.is_low for group in self.gang.ready))

    def drawable(self) -> Iterator[tuple[str, int]]:
        """Yield the gang, if it has a turn to come."""
        return iter([(self.gang.key, self.gang.arrival)] if self.gang.is_active else [])

    def first(self) -> Candidate | None:
        """Return it."""
        return (-self.gang.priority, self.gang.arrival, self.gang.key, self) if self.gang.is_active else None

    @property
    def size(self) -> int:
        """How many pods have their turn with it."""
        return self.gang.status.waiting_count

    @property
    def groups(self) -> Sequence[WaitingGroup]:
        """The groups of its members."""
        return self.gang.ready


class GangStatus(NamedTuple):
    """What decides, beside the nodes, whether the waiting members of a gang are tried and may be placed.

    ``placed`` are the members that have a node and count; ``elsewhere_count`` have one and are of shards of
    other workers: they do not count. For ``nominated_count`` a node is nominated: while there are any, none
    of the ``waiting_count`` that wait is tried.
    """

    spec: PodGroup | None
    placed: Sequence[PodEntry]
    elsewhere_count: int
    nominated_count: int
    waiting_count: int

    @property
    def lacking_count(self) -> int:
        """How many more members must find a node, so that any may keep it."""
        return 0 if self.spec is None else self.spec.min_member - len(self.placed)

    @property
    def reason(self) -> str:
        """Why none of those that wait is tried: a code, "" where they are."""
        if self.spec is None:
            return "gang-unknown"
        if self.nominated_count:
            return "gang-promised"
        if self.waiting_count > gang_members_max:
            return "gang-too-large"
        return "gang-incomplete" if self.waiting_count < self.lacking_count else ""

    @property
    def shape(self) -> tuple[object, ...]:
        """What decides whether enough of its members find a node."""
        return self.spec, len(self.placed), self.waiting_count


class Gang:
    """The waiting members of a gang, as groups of equal ones.

    Attributes
    ----------
    status : GangStatus
        Where it stood when pods were drawn last, or it was parked since. To look (``look``) changes nothing.
    is_parked, is_woken, failures, due_ms
        As of a group, but for all of the gang.
    failing_since_ms : int or None
        Log time of the first failed attempt since members were placed.
    tried_as : tuple
        The shape of its status after the last attempt.
    tried_in : dict
        The domains in which it was tried since it was parked last.
    """

    def __init__(self, key: str, group: WaitingGroup) -> None:
        self.key = key
        self.groups: dict[GroupKey, WaitingGroup] = {}
        self.line = GangLine(key.partition("/")[0], group, self)
        self.status = GangStatus(None, [], 0, 0, 0)
        self.priority = self.arrival = 0
        self.is_parked = self.is_woken = False
        self.failures = self.due_ms = 0
        self.failing_since_ms: int | None = None
        self.tried_as: tuple[object, ...] = ()
        self.tried_in: dict[object, None] = {}

    @property
    def ready(self) -> list[WaitingGroup]:
        """The groups that nothing of their own holds."""
        return [group for group in self.groups.values() if group.lines and not group.held_by_itself]

    @property
    def spec(self) -> PodGroup | None:
        """What its PodGroup asks for; None: there is none."""
        return self.status.spec

    @property
    def placed(self) -> Sequence[PodEntry]:
        """The members that have a node and count."""
        return self.status.placed

    @property
    def reason(self) -> str:
        """Why none of those that wait is tried: a code, "" where they are."""
        return self.status.reason

    @property
    def lacking_count(self) -> int:
        """How many more members must find a node, so that any may keep it."""
        return self.status.lacking_count

    @property
    def is_active(self) -> bool:
        """Whether it is tried in its turn."""
        return not (self.reason or self.is_parked) and self.status.waiting_count > 0

    @property
    def lacks_nodes(self) -> bool:
        """Whether it cannot start, and nodes for as many as must have one are all that it waits for."""
        return not self.reason and self.lacking_count > 0

    @property
    def lowest_priority(self) -> int:
        """The lowest priority of its pods: pods below it may have to leave for any of them."""
        placed = (entry.spec.template.priority for entry in self.placed)
        return min(chain((group.template.priority for group in self.ready), placed))

    def members(self) -> list[Tried]:
        """Return the members to be tried, by (priority, arrival)."""
        found = [
            (-group.template.priority, arrival, key, group)
            for group in self.ready
            for line in group.lines.values()
            for key, arrival in line.pods.items()
        ]
        found.sort(key=lambda each: each[:2])
        return [(key, group) for _, _, key, group in found]

    def look(self, state: ClusterState) -> GangStatus:
        """Return where it stands now: which pods wait, which are placed. Cost: O(members)."""
        placed, elsewhere_count = state.index.gangs.placed(self.key, state.pods, state.own)
        nominated = state.nominations.of_gang(self.key)
        return GangStatus(
            spec=state.config.gang(self.key),
            placed=placed,
            elsewhere_count=elsewhere_count,
            nominated_count=sum(state.is_own_nomination(each) for each in nominated),
            waiting_count=sum(group.pods_count for group in self.ready),
        )

    def update_status(self, state: ClusterState) -> None:
        """Take over where it stands now."""
        self.status = self.look(state)
        self.groups = {key: group for key, group in self.groups.items() if group.lines}
        ready = self.ready
        self.priority = max((group.template.priority for group in ready), default=0)
        lines = chain.from_iterable(group.lines.values() for group in ready)
        self.arrival = min((line.oldest() for line in lines), default=0)
        if ready:
            self.line.group = ready[0]

    def seen(self, found_count: int = 0, missing: str = "", *, domain: str = "", at_ms: int = 0) -> GangSeen:
        """Return what an attempt saw of it. ``missing`` is the first member that found no node."""
        spec = self.spec or PodGroup(min_member=0)
        since_ms = self.failing_since_ms
        limit_s = spec.schedule_timeout_seconds
        waited_s = 0 if since_ms is None else (at_ms - since_ms) // 1000
        return GangSeen(
            name=self.key,
            min_member=spec.min_member,
            placed_count=len(self.placed),
            waiting_count=self.status.waiting_count + self.status.nominated_count,
            found_count=found_count,
            missing=missing,
            domain=domain,
            elsewhere_count=self.status.elsewhere_count,
            late_seconds=waited_s if limit_s is not None and waited_s >= limit_s > 0 else 0,
        )

    @property
    def has_fresh(self) -> bool:
        """Whether any of those to be tried was never tried before."""
        return any(line.fresh for group in self.ready for line in group.lines.values())
