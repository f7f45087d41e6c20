"""Places the pods of a trace by one method, on the domain's own scheduler, under a virtual clock."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement, Preemption
from domain.model.events import (
    Event,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
    ProfileDeleted,
    ProfileEvent,
    ProfileUpserted,
)
from domain.model.limits import backoff_ms_max, backoff_ms_min
from domain.model.pods import PodSpec
from domain.model.profiles import BUILT_IN_PROFILES, ProfileRevision
from domain.model.usage import NodeUsage
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.steps import Written
from research.simulate.measuring import Counts, Look, Measuring, usage_of
from research.simulate.methods import Method
from research.simulate.searching import place_by_search
from research.simulate.trace import Drained, Ended, Moment, Trace
from services.plan.optimising import Search as Optimising

_RETRIED_MAX = 50
"""Of pods that wait, a search tries so many again where something became free."""

_HOMING = 0.2
MEASURE, HAPPEN, LOOK = range(3)


class Every(NamedTuple):
    """When to look at the cluster: after each so many pods that came, or after each span of time."""

    pods: int | None = None
    ms: int | None = None


class Cost(msgspec.Struct, frozen=True):
    """What is not the same on every run: processor time of a decision, and of the whole simulation."""

    decision_us: float
    seconds: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one method did with a trace."""

    method: str
    trace: str
    seed: int
    resources: list[str]
    looks: list[Look]
    cost: Cost


class Due(NamedTuple):
    """What comes next: a measurement of what pods use, moments that happen, or a look; in this order."""

    at_ms: int
    rank: int
    moments: Sequence[Moment] = ()


def simulate(
    trace: Trace, method: Method, *, seed: int, every: Every, report: Callable[[int], None] = lambda _: None
) -> Run:
    """Let a trace happen, and look at the cluster now and then, and at the end.

    Parameters
    ----------
    report : callable
        Is told after each moment how many events of the trace have happened since the last call.
    """
    simulation = Simulation(trace, method, seed=seed)
    looks: list[Look] = []
    seen, is_seen = 0, False
    for due in agenda(trace, every):
        simulation.meet(due)
        report(len(due.moments))
        is_seen &= due.rank == LOOK
        reached = every.pods is not None and simulation.counts.arrived // every.pods > seen
        if reached or due.rank == LOOK:
            seen = simulation.counts.arrived // (every.pods or 1)
            looks.append(simulation.look())
            is_seen = True
    if not is_seen:
        looks.append(simulation.look())
    decided = max(simulation.counts.placements, 1)
    return Run(
        method=method.name,
        trace=trace.name,
        seed=seed,
        resources=list(trace.resources),
        looks=looks,
        cost=Cost(simulation.seconds / decided * 1e6, simulation.seconds),
    )


def agenda(trace: Trace, every: Every) -> Iterator[Due]:
    """Yield what comes, in the order of time."""
    return heapq.merge(_happening(trace), _measuring(trace), _looking(trace, every))


def _happening(trace: Trace) -> Iterator[Due]:
    for at_ms, moments in groupby(trace.moments, key=attrgetter("at_ms")):
        yield Due(at_ms, HAPPEN, list(moments))


def _end_ms(trace: Trace) -> int:
    last = trace.moments[-1].at_ms if trace.moments else 0
    if trace.curves is None:
        return last
    return max(last, trace.curves.step_ms * (trace.curves.steps_count - 1))


def _measuring(trace: Trace) -> Iterator[Due]:
    if trace.curves is not None:
        for at_ms in range(0, _end_ms(trace) + 1, trace.curves.step_ms):
            yield Due(at_ms, MEASURE)


def _looking(trace: Trace, every: Every) -> Iterator[Due]:
    if every.ms is not None:
        for at_ms in range(every.ms, _end_ms(trace) + 1, every.ms):
            yield Due(at_ms, LOOK)


class Leaving(NamedTuple):
    """A pod that was asked to leave for another one, and when it leaves."""

    at_ms: int
    key: str
    uid: str


class Simulation:
    """A cluster at a moment of a trace, and the method that places its pods.

    Parameters
    ----------
    grace_ms : int, optional
        Pods may have others of lower priority evicted, which leave after so long; None: no pod may.

    Attributes
    ----------
    counts : Counts
    now_ms : int
        The virtual clock.
    seconds : float
        Processor time of folding and placing so far.
    """

    def __init__(self, trace: Trace, method: Method, *, seed: int, grace_ms: int | None = None) -> None:
        self._trace, self._method, self._seed, self._grace_ms = trace, method, seed, grace_ms
        own = BUILT_IN_PROFILES if method.profile is None else {}
        self._scheduler = Scheduler(
            own, seed=seed, backoff_ms=(backoff_ms_min, backoff_ms_max), preempts=grace_ms is not None
        )
        self._victims = deque[Leaving]()
        self._measures = Measuring(trace)
        self._waiting: dict[str, PodSpec] = {}  # of a search, which places pods itself
        self._uids: dict[str, str] = {}  # of pods that were evicted or moved, and are new pods since
        self._tried: set[str] = set()  # of those, who found no node
        self._replaced_count = 0
        self._is_freed = False
        self._reads_usage = method.profile is None or ProfilePlan(method.profile).reads_usage
        self.counts = Counts()
        self.now_ms = 0
        self.seconds = 0.0

    @property
    def state(self) -> ClusterState:
        """The cluster."""
        return self._scheduler.state

    def profile_of(self, pod: PodSpec) -> ProfilePlan | None:
        """Return the profile that places a pod; None: the pod names one that does not exist."""
        return self._scheduler.profiles.plans.get(pod.template.profile)

    def meet(self, due: Due) -> None:
        """Let time pass until something is due, and do it; what a look shows is asked for apart."""
        self.pass_to(due.at_ms)
        if due.rank == HAPPEN:
            self.happen(due.moments)
        elif due.rank == MEASURE:
            self.measure()

    def pass_to(self, at_ms: int) -> None:
        """Let time pass. Pods are tried again when their backoff ends."""
        began = time.process_time()
        while self._method.search is None and (due_ms := self._due_ms()) < at_ms:
            self.now_ms = max(due_ms, self.now_ms + 1)
            self._let_victims_leave()
            self._cycle()
            self._settle()
        self.now_ms = max(self.now_ms, at_ms)
        self.seconds += time.process_time() - began

    def happen(self, moments: Sequence[Moment]) -> None:
        """Fold what happens now, and place who waits."""
        began = time.process_time()
        for moment in moments:
            match moment.event:
                case Drained(node=node):
                    self._evict(node)
                case Ended(pod=key):
                    self._end(key)
                case PodUpserted() | PodDeleted():
                    self._fold_pod(moment.event)
                case ProfileUpserted() | ProfileDeleted() if self._method.profile is not None:
                    pass
                case _:
                    self._is_freed |= isinstance(moment.event, NodeUpserted | NodeDeleted)
                    self._fold(moment.event)
        self._settle()
        self.seconds += time.process_time() - began

    def measure(self) -> None:
        """Tell the scheduler what the pods of each node use now."""
        curves, table = self._trace.curves, self.state.table
        if curves is None or not self._reads_usage:
            return
        began = time.process_time()
        used = usage_of(curves, self.state, self.now_ms)
        for row, node in enumerate(table.names[: table.count]):
            amounts = zip(curves.resources, used[:, row].astype(np.int64).tolist(), strict=True)
            self._fold(NodeUsed(NodeUsage(node=node, at_ms=self.now_ms, used=dict(amounts))))
        self._settle()
        self.seconds += time.process_time() - began

    def look(self) -> Look:
        """Return how the cluster stands; a search of large neighbourhoods improves it first."""
        if self._method.lns_steps:
            began = time.process_time()
            self._improve()
            self.seconds += time.process_time() - began
        curves, used = self._trace.curves, None
        if curves is not None:
            known = usage_of(curves, self.state, self.now_ms)
            none = np.zeros(known.shape[1])
            by_name = dict(zip(curves.resources, known, strict=True))
            columns = [self.state.resources.column(name) for name in self._trace.resources]
            requested = self.state.table.requested[columns, : self.state.table.count]
            used = np.array(
                [
                    by_name.get(name, requested[r] if len(requested) else none)
                    for r, name in enumerate(self._trace.resources)
                ]
            )
        groups = self._scheduler.queue.groups.values()
        return self._measures.look(self.state, groups, self.counts, self.now_ms, used)

    # ------------------------------------------------------------------------------------------ folding

    def _fold(self, event: Event | ProfileEvent) -> None:
        if self._scheduler.settles_first(event):
            self._settle()
        self._scheduler.fold(event)

    def _fold_pod(self, event: PodUpserted | PodDeleted) -> None:
        if isinstance(event, PodDeleted):
            key = f"{event.namespace}/{event.name}"
            self._waiting.pop(key, None)
            self._tried.discard(key)
            self._uids.pop(key, None)
            self._is_freed = True
            self._fold(msgspec.structs.replace(event, uid=""))
            return
        pod = event.pod
        known = self.state.pods.get(pod.key)
        if pod.key in self._uids:
            pod = msgspec.structs.replace(pod, uid=self._uids[pod.key])
        if known is None and not pod.node_name and not pod.finished:
            self.counts.arrived += 1
        if self._method.profile is not None:
            self._put_profile(pod.template.profile)
        if self._method.search is not None and not pod.node_name and not (known and known.node):
            self._waiting[pod.key] = pod
        self._fold(msgspec.structs.replace(event, pod=pod))
        if pod.node_name and not (known and known.node):
            self._write([pod.key])

    def _put_profile(self, name: str) -> None:
        """Put the method's profile in force under the name that a pod gives."""
        assert self._method.profile is not None
        if name not in self._scheduler.profiles.plans:
            profile = self._method.profile
            self._scheduler.profiles.restore(ProfileRevision(name=name, revision=1, profile=profile))

    def _evict(self, node: str) -> None:
        """Let the pods of a node wait again."""
        for key in [key for key, entry in self.state.pods.items() if entry.node == node]:
            self._end(key)

    def _end(self, key: str) -> None:
        """Let a pod wait again."""
        self._replace(key, "")
        self.counts.moved += 1
        self._is_freed = True

    def _due_ms(self) -> int:
        """Return when time alone changes anything: a pod is tried again, or a victim leaves."""
        due_ms = self._scheduler.due_ms(self.now_ms)
        return min(due_ms, self._victims[0].at_ms) if self._victims else due_ms

    def _let_victims_leave(self) -> None:
        while self._victims and self._victims[0].at_ms <= self.now_ms:
            victim = self._victims.popleft()
            entry = self.state.pods.get(victim.key)
            if entry is not None and entry.spec.uid == victim.uid:
                self._end(victim.key)

    def _replace(self, key: str, node: str) -> None:
        """Delete a pod, and make it anew: waiting (""), or on a node."""
        spec = self.state.pods[key].spec
        self._replaced_count += 1
        self._uids[key] = uid = f"{spec.uid.partition('~')[0]}~{self._replaced_count}"
        again = msgspec.structs.replace(spec, uid=uid, resource_version=None, node_name=node)
        self._fold(PodDeleted(spec.namespace, spec.name))
        self._fold(PodUpserted(again))
        if node:
            self._write([key])
        if self._method.search is not None and not node:
            self._waiting[key] = again

    # ------------------------------------------------------------------------------------------ placing

    def _settle(self) -> None:
        """Place waiting pods until none is worth an attempt."""
        if self._method.search is not None:
            self._search()
            return
        while self._scheduler.has_work:
            self._cycle()

    def _cycle(self) -> None:
        verdicts = self._scheduler.cycle(self.now_ms).verdicts
        for verdict in verdicts:
            if isinstance(verdict, Preemption):
                assert self._grace_ms is not None, "without a grace no pod preempts"
                at_ms = self.now_ms + self._grace_ms
                self._victims += [Leaving(at_ms, victim.key, victim.uid) for victim in verdict.victims]
        placed = [each.pod.key for each in verdicts if isinstance(each, Placement)]
        self._write(placed)
        self.counts.placements += len(placed)

    def _write(self, keys: Iterable[str]) -> None:
        """Say when pods were placed, as the ledger does: by it measurements cover them."""
        self._scheduler.fold(Written(dict.fromkeys(keys, max(self.now_ms, 1))))

    def _search(self) -> None:
        """Place new pods by search; try the oldest others again where something became free."""
        assert self._method.search is not None
        again = [key for key in self._waiting if key in self._tried][:_RETRIED_MAX] if self._is_freed else []
        keys = [*again, *(key for key in self._waiting if key not in self._tried)]
        pods = [self._waiting[key] for key in keys]
        found = place_by_search(
            self._scheduler, self._method.search, pods, seed=self._seed + self.counts.arrived
        )
        self._is_freed = False
        self._tried.update(keys)
        self.counts.placements += len(found)
        self._write(found)
        for key in found:
            del self._waiting[key]
            self._tried.remove(key)

    def _improve(self) -> None:
        """Search for a better placement of the pods, and move them there."""
        running = frozenset(key for key, entry in self.state.pods.items() if entry.node)
        if not running:
            return
        search = Optimising(
            self, running, objective="balance", moves_max=self._method.moves_max, seed=self._seed
        )
        steps = self._method.lns_steps
        search.improve(int(steps * (1 - _HOMING)))
        search.improve(int(steps * _HOMING), homing=True)
        for move in search.found().moves:
            self.counts.moved += move.source is not None
            self.counts.placements += move.target is not None
            self._replace(move.pod, move.target or "")
        self._settle()
