"""Equal pods that wait: a group, with a line of pods per namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter, lt
from typing import TYPE_CHECKING

from domain.model.decisions import Attempt
from domain.model.marks import terms_of
from domain.model.pods import PodTemplate
from domain.plugins.registry import ProfilePlan
from domain.queue.turns import Candidate, Works
from domain.state.pod_classes import PodClass

if TYPE_CHECKING:
    from domain.queue.gangs import Gang
    from domain.state.table import NodeTable

GroupKey = tuple[bytes, int]
"""The signature of a group's pods, and the number of their class; 0 where they have none.

It is negative where nodes are excluded for them (``domain/queue/excluded.py``).
"""

Tried = tuple[str, "WaitingGroup"]
"""A pod's key and its group."""

_BANDS_MAX = 8
"""A cycle does not look more often than that at home nodes first."""

_LOST_AGAIN = 8
"""Of pods that lost together, so large a part is tried next."""


class Line:
    """The waiting pods of a group in one namespace: ``pods`` and the ``fresh`` of them map key to arrival.

    ``entry`` is the pod by which the line stands in the queue, if it does. A cycle tries ``most`` of its
    pods, 0: as many as it can.
    """

    __slots__ = ("entry", "fresh", "group", "is_sorted", "latest", "lost_count", "most", "namespace", "pods")

    def __init__(self, namespace: str, group: WaitingGroup) -> None:
        self.namespace = namespace
        self.group = group
        self.pods: dict[str, int] = {}
        self.fresh: dict[str, int] = {}
        self.latest = 0
        self.is_sorted = True
        self.entry: Candidate | None = None
        self.most = self.lost_count = 0

    def put(self, key: str, arrival: int, *, fresh: bool, lost: bool = False) -> None:
        """Add a pod. With ``lost`` it had a node, which the ledger refused.

        Rules over other pods make all of a batch lose where another worker places pods that they read. Who
        has many of these wins each time, and who tries all of his each time writes a conflict for each. So
        few are tried next.
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

    def tried(self, key: str) -> None:
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
        pods = (self.pods if self.group.is_active else self.fresh).items()
        return islice(pods, self.most) if self.most else iter(pods)

    def drawn(self) -> None:
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

    def work(self, works: Works) -> int:
        """Return about how much work a turn is, once its groups were looked at."""
        return works.of_pod(self.group)

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
    ``is_patient``, all that were tried last may have nobody evicted for a while; others of it may. One that
    ``owes_plan`` found no node in a cycle that had no work left to plan whom to evict. ``reads_pods``: rules
    over other pods may have a say in such a plan; the latest one knows whether they had.
    """

    __slots__ = (
        "attempt",
        "due_ms",
        "failures",
        "gang",
        "held_by",
        "held_by_itself",
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

    def replan(self, plan: ProfilePlan | None) -> None:
        """Take a plan. What was found under the one before holds no longer."""
        self.plan = plan
        self.attempt: Attempt | None = None
        self.parked = self.woken = self.is_patient = self.owes_plan = False
        self.reads_pods = True
        self.failures = self.due_ms = 0
        self.held_by_itself = self._hold()
        self.hold_with("")

    def hold_with(self, reason: str) -> None:
        """Hold the pods for what their gang lacks ("": nothing), beside what they lack themselves."""
        self.held_by = self.held_with(reason)

    def held_with(self, reason: str) -> tuple[str, ...]:
        """Return what ``hold_with`` would hold them by."""
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
