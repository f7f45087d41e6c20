"""Says how many replicas of each hosted workload there should be, once a step of log time.

What a pod of the workload asks for is taken from the newest pod of it that counts on a node, of equals the
last by key; where none does, from the newest one that waits here. So it is the same after a restart and with
another worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from domain.colocation.replicas import Observed, Replicas, replicas_of
from domain.cycle.kernel_call import call_kernel, compile_groups, undo
from domain.cycle.run import CycleRun
from domain.engine.evaluate import less_urgent, slots_apart
from domain.engine.nominated_room import count_in_snapshot
from domain.model.hosting import HostedChange, HostedReplicas, ReplicasSaid, WorkloadKey
from domain.model.limits import hosted_growth_max, hosted_said_seconds
from domain.model.pods import PodTemplate
from domain.model.resources import CPU, MEMORY
from domain.model.timestamps import NEVER_MS
from domain.plugins.base import StaticFilter
from domain.plugins.filters.node_affinity import NodeAffinity
from domain.plugins.filters.node_name import NodeName
from domain.plugins.filters.node_unschedulable import NodeUnschedulable
from domain.plugins.filters.taint_toleration import TaintToleration
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.queue.groups import WaitingGroup
from domain.state.cluster import ClusterState
from domain.state.hosted import workload_of
from domain.state.pods import PodEntry
from domain.state.usage import USAGE_SHARD, capacity_of

_BY_SPEC = (NodeUnschedulable, NodeName, TaintToleration, NodeAffinity)
"""The filters that say where pods may go at all, whatever is used there."""
_UNITS = (1, 1 << 10)
"""Of cpu and memory, in which use is summed up over all nodes."""
_FIELDS_SHOWN = ("namespace", "name", "kind", "workload", "least", "most")


class _Use(NamedTuple):
    """What nodes use and have, int64[2, N]: cpu (thousandths of a core) and memory (KiB) by row.

    Both are 0 where nothing recent was measured. Sums of whole numbers are the same in any order.
    """

    used: np.ndarray
    capacity: np.ndarray


class Hosting:
    """Decides for the worker that holds the shard of usage; for others nothing is due.

    Parameters
    ----------
    plans : mapping
        The profiles in force, by name.
    """

    def __init__(self, state: ClusterState, plans: Mapping[str, ProfilePlan], view: NodeView) -> None:
        self._state, self._plans, self._view = state, plans, view
        self._looked_ms = 0
        self._was_deciding = False
        self._tried_count = 0

    @property
    def _step_ms(self) -> int:
        return self._state.config.policies.of_all.policy.replicas.step_seconds * 1_000

    def pass_to(self, now_ms: int) -> bool:
        """Let log time pass; say whether a step ended since it was told last, so that it is time to decide.

        Steps end at multiples of their length, so a restart moves none. The first object is decided on at the
        end of the step in which it came.
        """
        before_ms, self._looked_ms = self._looked_ms, max(self._looked_ms, now_ms)
        was_deciding, self._was_deciding = self._was_deciding, self._is_deciding
        is_over = before_ms // self._step_ms < self._looked_ms // self._step_ms
        return was_deciding and self._is_deciding and is_over

    @property
    def _is_deciding(self) -> bool:
        hosted = self._state.hosted  # what was said of the last object that went is still to be withdrawn
        return bool(hosted.objects or hosted.said) and USAGE_SHARD in self._state.own

    def due_ms(self, now_ms: int) -> int:
        """Return when the next step ends; ``NEVER_MS`` where nothing is hosted, or another worker decides."""
        step_ms = self._step_ms
        return now_ms - now_ms % step_ms + step_ms if self._is_deciding else NEVER_MS

    def decide(self, run: CycleRun, waits: Mapping[WorkloadKey, int]) -> HostedChange:
        """Return what is to be said of all objects; what is as before is left out.

        Parameters
        ----------
        run : CycleRun
            A cycle of this moment (log time ``at_ms``); nothing is decided with it.
        waits : mapping
            Log time since when the pod of a workload waits that has waited longest, in all shards.

        Notes
        -----
        Cost: O(nodes), and per object O(its pods) and a look at all nodes.
        """
        self._tried_count = 0
        with slots_apart(self._state, self._plans.values(), self._view) as (snapshot, slots):
            of = (self._state, run.queue, snapshot, slots, self._view)
            return self._decide(CycleRun(*of, seed=run.seed, at_ms=run.at_ms), waits)

    def _decide(self, run: CycleRun, waits: Mapping[WorkloadKey, int]) -> HostedChange:
        hosted, use = self._state.hosted, self._use(run.at_ms)
        said, seq = list[ReplicasSaid](), hosted.seq_next
        for (namespace, name), each in sorted(hosted.objects.items(), key=lambda item: item[0]):
            before = hosted.said.get((namespace, name))
            workload = workload_of(namespace, each)
            since_ms, wanted = waits.get(workload), None if before is None else before.wanted
            observed, found = self._look(each, workload, wanted, since_ms, use, run)
            new = ReplicasSaid(
                namespace=namespace,
                name=name,
                kind=each.kind,
                workload=each.workload,
                least=each.least,
                most=each.most,
                wanted=found.wanted,
                running=observed.running,
                waiting_since_ms=since_ms,
                load_percent=observed.load_percent,
                reason=found.reason,
                at_ms=run.at_ms,
                seq=seq if before is None or before.wanted != found.wanted else before.seq,
            )
            if before is None or _is_news(before, new):
                said.append(new)
                seq += new.seq == seq
        return HostedChange(said, sorted(hosted.said.keys() - hosted.objects.keys()))

    def _look(
        self,
        hosted: HostedReplicas,
        workload: WorkloadKey,
        before: int | None,
        since_ms: int | None,
        use: _Use,
        run: CycleRun,
    ) -> tuple[Observed, Replicas]:
        pods = self._state.hosted.pods_of(workload, self._state.pods)
        running = sum(bool(pod.node) for pod in pods)
        wanted = running if before is None else before
        if not pods:
            reason = f"no pod of it is known, so not what one asks for: {hosted.least}, the least"
            return Observed(0, wanted, None, None, 0), Replicas(hosted.least, reason)
        rule = self._state.config.policies.of_all.policy.replicas
        newest = max(pods, key=_age)
        load = self._load(newest.spec.template, use)
        waited = None if since_ms is None else max(0, run.at_ms - since_ms) / 1_000
        seen = Observed(running, wanted, load, waited, 0)
        if load is not None and load < rule.low_percent and not (waited or 0) > rule.wait_seconds:
            most = min(max(0, hosted.most - running), hosted_growth_max)
            seen = seen._replace(more_fit_count=self._fit_count(newest, most, run))
        return seen, replicas_of(rule, hosted.least, hosted.most, seen)

    def _use(self, now_ms: int) -> _Use:
        """Return what is used of each node by what was measured last, by quality or else in sum."""
        state, table = self._state, self._state.table
        shape = (2, table.count)
        found = _Use(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))
        for row, name in enumerate(table.names[: table.count]):
            window = state.usage.windows.get(name)
            if window is None:
                continue
            spec, record = table.specs[row], state.usage.qualities.get(name)
            capacity, age_ms = capacity_of(spec), self._age_ms_max(spec.labels)
            if record is not None and now_ms - record.at_ms <= age_ms:
                used = record.use.total
                found.used[:, row] = [used[i] // _UNITS[i] for i in (0, 1)]
                found.capacity[:, row] = [capacity[i] // _UNITS[i] for i in (0, 1)]
            elif now_ms - window.at_ms <= age_ms:
                measured = state.usage.measured[name]
                for i, resource in enumerate((CPU, MEMORY)):
                    latest = measured[resource].latest if resource in measured else None
                    if latest is not None:
                        found.used[i, row] = int(latest * capacity[i] / 100.0) // _UNITS[i]
                        found.capacity[i, row] = capacity[i] // _UNITS[i]
        return found

    def _age_ms_max(self, labels: Mapping[str, str]) -> int:
        return self._state.config.policies.of(labels).policy.view.age_seconds_max * 1_000

    def _load(self, template: PodTemplate, use: _Use) -> float | None:
        """Return the load of the nodes that a pod may go to by their specs, in percent.

        It is that of cpu or of memory, whichever is larger, in tenths; None: nothing recent was measured
        there.
        """
        plan, rows = self._plans.get(template.profile), self._view.all_rows()
        if plan is None:
            return None
        passing = np.ones(len(rows), dtype=bool)
        for _, plugin in plan.static_filters:
            if isinstance(plugin, _BY_SPEC):
                assert isinstance(plugin, StaticFilter)
                refused = plugin.refuse(template, self._view, rows)
                if refused is not None:
                    passing &= refused == 0
        used, capacity = use.used[:, passing].sum(axis=1), use.capacity[:, passing].sum(axis=1)
        loads = [int(1_000 * int(used[i]) / int(capacity[i]) + 0.5) / 10 for i in (0, 1) if capacity[i]]
        return max(loads, default=None)

    def _fit_count(self, pod: PodEntry, most: int, run: CycleRun) -> int:
        """Return how many further pods like this one find a node, ``most`` at most; none of them stays.

        The placing kernel places them on the snapshot of ``run``, as it would place pods that came now.
        """
        spec, state = pod.spec, self._state
        plan = self._plans.get(spec.template.profile)
        if plan is None or not most or WaitingGroup(spec.signature, spec.template, plan).held_by:
            return 0
        self._tried_count += 1  # no two objects share a program
        group = WaitingGroup(spec.signature, spec.template, plan, pod.pod_class, self._tried_count)
        out = less_urgent(state, spec)
        run.make_room_for_changes(2 * (most + len(out)))
        count_in_snapshot(state, run.snapshot, out.values(), -1)
        run.slots.counters.nominated.out = out
        tried, programs, _ = compile_groups(run, [(spec.key, group)] * most, 0, programs_max=1)
        versions = run.slots.counters.arrays.version.copy()
        placed = call_kernel(run, tried, programs, changes=2, stopping=[group.key], is_explained=False)
        rows = placed.row[: int(placed.done[0])].tolist()
        placed_on = zip(rows, placed.devices.tolist(), strict=False)
        on = [(group.key, row, bits) for row, bits in placed_on if row >= 0]
        undo(run, on, programs, versions)
        count_in_snapshot(state, run.snapshot, out.values(), 1)
        run.slots.counters.nominated.out = {}
        return len(on)


def _age(pod: PodEntry) -> tuple[bool, int, int, str]:
    return bool(pod.node), pod.placed_ms, pod.arrival, pod.spec.key


def _is_news(before: ReplicasSaid, new: ReplicasSaid) -> bool:
    """Say whether something else is wanted or asked, or there has been another reason for long enough."""
    if new.wanted != before.wanted or any(getattr(new, f) != getattr(before, f) for f in _FIELDS_SHOWN):
        return True
    return new.reason != before.reason and new.at_ms - before.at_ms >= hosted_said_seconds * 1_000
