"""Dry runs: the engine tries a waiting pod, or a gang, on the cluster as it would be after some changes.

Each trial folds its changes into the state as events would bring them, lets the kernel place, and takes all
of it back. So a cure is found out by what decides in a worker, and by nothing that resembles it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, cast

import msgspec
import numpy as np

from domain.counting.counters import CounterTable
from domain.cures.changes import AnyChange, Change, Cure, Leave, MoreNodes
from domain.cycle.gang_trial import CHANGES, domains_to_try, take_back, try_gang
from domain.cycle.kernel_call import call_kernel, compile_groups, undo
from domain.cycle.nominated import count_again, uncount_below
from domain.cycle.preempt import decided_for
from domain.cycle.preempt_gang import plan_below
from domain.cycle.run import CycleRun, Preempting
from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import Alone, look_at_rows
from domain.engine.preemption import Planned
from domain.engine.program import Program
from domain.model.events import NodeDeleted, NodeUpserted, PodDeleted
from domain.model.limits import cure_dry_runs_max, cure_pods_max
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec, PodTemplate
from domain.model.signature import signature
from domain.plugins.base import Demand, Reason
from domain.plugins.registry import ProfilePlan
from domain.queue.gangs import lacking
from domain.queue.groups import Gang, Tried, WaitingGroup
from domain.state.cluster import ClusterState
from domain.state.resources import PODS
from domain.state.steps import Written

_ROOMY = 1 << 40
"""So many more pods may be on each node while it is looked at what else refuses a pod."""


class Bounds(NamedTuple):
    """What a search may cost. ``is_over`` says that its time is up; ``now_ms`` is log time."""

    dry_runs_max: int = cure_dry_runs_max
    pods_max: int = cure_pods_max
    is_over: Callable[[], bool] = bool
    now_ms: int = 0


class BudgetSpent(Exception):
    """The budget of a search ended before the search did."""


class Look(NamedTuple):
    """One pod against every node, by row.

    ``codes`` int64[N]: the code of the first filter that refuses it, 0: none. ``hopeless`` uint8[N]: it does
    whatever pods leave. ``short`` int64[D, N]: what is missing of each of the ``demands``, 0 and less:
    nothing; the last ``firm_count`` of these are such as no node can be given more of.
    """

    codes: np.ndarray
    hopeless: np.ndarray
    reasons: Mapping[int, Reason]
    demands: Sequence[Demand]
    firm_count: int
    short: np.ndarray


class Trials:
    """The dry runs of one search: for the pods of a group, or for the members of a gang.

    Parameters
    ----------
    scheduler : Scheduler
        What a worker of all shards knows. It is as it was before after each trial.
    pod : PodSpec
        A pod that waits; of a gang any member.
    plan : ProfilePlan
        The profile that places it.
    waiting_count : int
        How many pods are like it.
    """

    def __init__(
        self, scheduler: Scheduler, pod: PodSpec, plan: ProfilePlan, waiting_count: int, bounds: Bounds
    ) -> None:
        self.scheduler, self.state = scheduler, scheduler.state
        self.pod, self.plan = pod, plan
        self.count = min(waiting_count, bounds.pods_max)
        self.gang = _gang_of(scheduler, pod)
        self.dry_runs_count = 0
        self._bounds = bounds
        self._ghosts_count = 0

    def _spend(self) -> None:
        if self.dry_runs_count >= self._bounds.dry_runs_max or self._bounds.is_over():
            raise BudgetSpent
        self.dry_runs_count += 1

    def cure(self, *changes: Change) -> Cure | None:
        """Return changes as a cure, if they are one."""
        found = self.placed(changes)
        if not found:
            return None
        known = cast("tuple[AnyChange, ...]", changes)
        return Cure(changes=known, pods_count=len(found), counted_count=self.tried_count)

    @property
    def tried_count(self) -> int:
        """How many pods a trial tries."""
        return self.count if self.gang is None else len(self.gang.members())

    def placed(self, changes: Sequence[Change], count: int | None = None) -> list[str]:
        """Return the nodes of the pods that the engine places after some changes; of a gang all or none.

        At most ``count`` are tried one by one, None: as many as wait, up to the bound.
        """
        self._spend()
        with changed(self.state, changes):
            if self.gang is not None:
                return self._placed_gang(self.gang, changes)
            template = template_after(self.pod.template, changes)
            with self._group(self.pod, template) as group, self._dry_run(template.priority) as run:
                tried = [(self.pod.key, group)] * (count or self.count)
                return [] if group.held_by else _placed(run, tried)

    def _placed_gang(self, gang: Gang, changes: Sequence[Change]) -> list[str]:
        """Try the members in one domain after another, as a cycle does; return the nodes where enough do."""
        if not gang.ready:  # all of its pods are held
            return []
        with self._members(gang, changes) as members, self._dry_run(gang.lowest_priority) as run:
            if lacking(gang, self.state, run.snapshot):
                return []
            for domain in domains_to_try(run, gang, members)[0]:
                trial = try_gang(run, members, domain)
                if trial is None:
                    return []
                found = [self.state.table.names[row] for row in trial.placed.row.tolist() if row >= 0]
                take_back(run, trial)
                if len(found) >= gang.lacking_count:
                    return found
        return []

    def look(self, template: PodTemplate, *, is_roomy: bool = False) -> Look:
        """Return what refuses a pod of a template on each node; ``is_roomy``: the number of pods does not."""
        self._spend()
        with self._group(self.pod, template) as group, self._dry_run(template.priority) as run:
            program = _program(run, group, self.plan)
            columns, count = run.snapshot.columns, self.state.table.count
            columns.allocatable[PODS, :count] += _ROOMY * is_roomy
            codes, hopeless, _, _ = look_at_rows(self.plan, Alone(run.snapshot, run.slots, program))
            columns.allocatable[PODS, :count] -= _ROOMY * is_roomy
            at = [each.column for each in program.demands]
            asked = np.array([each.value for each in program.demands], dtype=np.int64)[:, None]
            short = asked - (columns.allocatable[at, :count] - columns.requested[at, :count])
            reasons = {code: program.reason(code) for code in np.unique(codes[codes != 0]).tolist()}
            return Look(codes, hopeless, reasons, list(program.demands), program.firm_count, short)

    def fewest(self, template: PodTemplate, below: int, count: int) -> list[Planned]:
        """Return the nodes that a pod could have with the fewest pods below a priority gone."""
        self._spend()
        with self._group(self.pod, template) as group, self._dry_run(template.priority) as run:
            of = _preempting(run)
            decided, _ = decided_for(run, of, template.priority)
            return of.preemptor.fewest(_program(run, group, self.plan), decided, count, below)

    def evicting(self, template: PodTemplate, count: int) -> list[Planned]:
        """Return what the engine would plan for so many pods where they may evict others."""
        self._spend()
        with self._group(self.pod, template) as group, self._dry_run(template.priority) as run:
            of = _preempting(run)
            decided, _ = decided_for(run, of, template.priority)
            return of.preemptor.plan(_program(run, group, self.plan), count, decided).planned

    def evicting_for_gang(self, changes: Sequence[Change]) -> list[Planned]:
        """Return what the engine would plan for the members of the gang where they may evict others."""
        self._spend()
        gang = self.gang
        assert gang is not None
        if not gang.ready:
            return []
        with self._members(gang, changes) as members:
            below = min(group.template.priority for _, group in members)
            with self._dry_run(below) as run:
                plan = plan_below(run, _preempting(run), below, gang, members)
                return [] if plan is None else [*plan.chosen(self.state.table.names).values()]

    def budgets_against(self, pods: Sequence[str]) -> tuple[str, ...]:
        """Return the disruption budgets of which one lets fewer of these pods go than they are."""
        budgets = _preempting(self.scheduler.dry_run(self._bounds.now_ms)).budgets
        budgets.sync()
        left = budgets.allowed.astype(np.int64).tolist()
        names = set()
        for key in pods:
            for number in budgets.of(self.state.pods[key]):
                left[number] -= 1
                if left[number] < 0:
                    names.add("/".join(budgets.names[number]))
        return tuple(sorted(names))

    @contextmanager
    def _members(self, gang: Gang, changes: Sequence[Change]) -> Iterator[list[Tried]]:
        """Let the members of a gang wait as some changes make them, each kind as a copy."""
        with ExitStack() as stack:
            kinds: dict[object, WaitingGroup] = {}
            members: list[Tried] = []
            for key, group in gang.members():
                if group.key not in kinds:
                    copy = self._group(self.state.pods[key].spec, template_after(group.template, changes))
                    kinds[group.key] = stack.enter_context(copy)
                members.append((key, kinds[group.key]))
            yield members

    @contextmanager
    def _dry_run(self, priority: int) -> Iterator[CycleRun]:
        """Begin a dry run in which nominations of pods of lower priority do not count."""
        run = self.scheduler.dry_run(self._bounds.now_ms)
        of = _preempting(run)
        uncount_below(run, of, priority)
        yield run
        count_again(run, of)

    @contextmanager
    def _group(self, pod: PodSpec, template: PodTemplate) -> Iterator[WaitingGroup]:
        """Let a copy of a pod wait that has this template: it has a class of its own, as any pod."""
        state, entry = self.state, self.state.pods[pod.key]
        if template is pod.template:
            yield _waiting(pod, self.plan, state)
            return
        self._ghosts_count += 1
        key = f"{pod.key}~{self._ghosts_count}"
        named = {"key": key, "uid": f"{pod.uid}~{self._ghosts_count}"}
        copy = msgspec.structs.replace(pod, template=template, signature=signature(template), **named)
        assert state.restore_pod(copy, node="", adopted=False, shard=entry.shard), "no pod has such a name"
        try:
            yield _waiting(copy, self.plan, state)
        finally:
            state.apply(PodDeleted(copy.namespace, copy.name, uid=copy.uid), entry.shard)


def _waiting(pod: PodSpec, plan: ProfilePlan, state: ClusterState) -> WaitingGroup:
    pod_class = state.pods[pod.key].pod_class
    number = 0 if pod_class is None else pod_class.number
    return WaitingGroup(pod.signature, pod.template, plan, pod_class, number)


def _gang_of(scheduler: Scheduler, pod: PodSpec) -> Gang | None:
    gang = scheduler.queue.gangs.known.get(pod.template.gang) if pod.template.gang else None
    if gang is not None:
        gang.update_status(scheduler.state)
    return gang


def _preempting(run: CycleRun) -> Preempting:
    assert run.preempting is not None, "a dry run may plan evictions"
    return run.preempting


def _program(run: CycleRun, group: WaitingGroup, plan: ProfilePlan) -> Program:
    run.slots.start_call()
    program = run.slots.program(group.key, group.signature, group.template, plan, group.pod_class)
    assert program is not None, "the first program of a call has room"
    return program


def _placed(run: CycleRun, pods: Sequence[Tried]) -> list[str]:
    """Return the nodes on which the kernel places pods of one group, one after another."""
    run.make_room_for_changes(CHANGES * len(pods))
    tried, programs, _ = compile_groups(run, pods, 0, programs_max=1)
    counters: CounterTable = run.slots.counters
    versions = counters.arrays.version.copy()
    placed = call_kernel(run, tried, programs, changes=CHANGES, is_explained=False)
    rows, bits = placed.row.tolist(), placed.devices.tolist()
    found = [(tried[i][1].key, row, bits[i]) for i, row in enumerate(rows) if row >= 0]
    undo(run, found, programs, versions)
    return [run.state.table.names[row] for _, row, _ in found]


def template_after(template: PodTemplate, changes: Sequence[Change]) -> PodTemplate:
    """Return what changes make of a template."""
    for each in changes:
        template = each.of_template(template)
    return template


@contextmanager
def changed(state: ClusterState, changes: Sequence[Change]) -> Iterator[None]:
    """Have the nodes, and the pods on them, as some changes make them."""
    with ExitStack() as stack:
        for each in changes:
            if isinstance(each, Leave):
                stack.enter_context(_without(state, each.pods))
            elif isinstance(each, MoreNodes):
                of = state.nodes[each.like].spec
                assert of is not None
                stack.enter_context(_with_nodes(state, each.made(of, state.table.rows)))
            elif (node := getattr(each, "node", "")) in state.table.rows:
                stack.enter_context(_with_node(state, node, each))
        yield


@contextmanager
def _with_node(state: ClusterState, name: str, change: Change) -> Iterator[None]:
    before = state.nodes[name].spec
    assert before is not None
    after = change.of_node(before)
    if after is before:
        yield
        return
    state.apply(NodeUpserted(msgspec.structs.replace(after, resource_version=None)))
    try:
        yield
    finally:
        state.apply(NodeUpserted(msgspec.structs.replace(before, resource_version=None)))


@contextmanager
def _with_nodes(state: ClusterState, nodes: Sequence[NodeSpec]) -> Iterator[None]:
    for node in nodes:
        state.apply(NodeUpserted(msgspec.structs.replace(node, resource_version=None)))
    try:
        yield
    finally:
        for node in nodes:
            state.apply(NodeDeleted(node.name))


@contextmanager
def _without(state: ClusterState, keys: Sequence[str]) -> Iterator[None]:
    """Let pods be gone, and bring them back as they were."""
    before = [state.pods[key] for key in keys]
    known = [(each.spec, each.node, each.placed_ms, each.spec.key not in state.uncounted) for each in before]
    for each in before:
        state.apply(PodDeleted(each.spec.namespace, each.spec.name, uid=each.spec.uid), each.shard)
    try:
        yield
    finally:
        for each, (spec, node, placed_ms, counted) in zip(before, known, strict=True):
            state.restore_pod(
                spec,
                node=node,
                adopted=each.adopted,
                shard=each.shard,
                counted=counted,
                placed_ms=placed_ms,
            )
        state.apply(Written())  # nothing of it is for the ledger
