"""Pods that wait, group by group, and which of them are worth an attempt now.

A pod is *fresh* until its first attempt. A group whose pods found no node is *parked*: none of its pods is
looked at again until some node has gained room for one of them or changed its spec. A flood of equal pods is
one group, so a parked million costs as much as a parked one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from domain.cycle.explanation import Attempt
from domain.kernels import placing as kernel
from domain.model.pods import PodSpec, PodTemplate
from domain.plugins.base import Demand
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.snapshot import Snapshot


class WaitingGroup:
    """The waiting pods of one signature: ``pods`` maps pod key to arrival, in order of arrival.

    ``attempt`` is the one that parked the group.
    """

    __slots__ = ("attempt", "demands", "held_by", "parked", "plan", "pods", "signature", "template")

    def __init__(self, signature: bytes, template: PodTemplate, plan: ProfilePlan | None) -> None:
        self.signature = signature
        self.template = template
        self.plan = plan
        self.pods: dict[str, int] = {}
        self.parked = False
        self.attempt: Attempt | None = None
        self.demands: list[Demand] | None = None  # what must be free, once a wake-up has asked
        self.held_by = self._hold()

    def _hold(self) -> tuple[str, ...]:
        """Name what keeps every pod of the group from being tried at all."""
        if self.plan is None:
            return (f"unknown-profile:{self.template.profile}",)
        gates = tuple(f"scheduling-gated:{gate}" for gate in self.template.gates)
        return gates + tuple(f"unsupported:{what}" for what in self.template.unsupported)


class Queue:
    """All waiting pods."""

    def __init__(self, state: ClusterState, plans: Mapping[str, ProfilePlan]) -> None:
        self._state = state
        self._plans = plans
        self.groups: dict[bytes, WaitingGroup] = {}
        self._fresh: dict[str, bytes] = {}
        self._woken: dict[bytes, None] = {}

    def add(self, pod: PodSpec, arrival: int, *, fresh: bool) -> None:
        """Let a pod wait; one that is not fresh was tried before a restart, and is tried again after it."""
        group = self.groups.get(pod.signature)
        if group is None:
            plan = self._plans.get(pod.template.profile)
            group = self.groups[pod.signature] = WaitingGroup(pod.signature, pod.template, plan)
        group.pods[pod.key] = arrival
        if fresh:
            self._fresh[pod.key] = pod.signature
        elif not group.held_by:
            self._woken[pod.signature] = None

    def remove(self, pod: PodSpec) -> None:
        """Forget a pod that waits no longer."""
        self._fresh.pop(pod.key, None)
        group = self.groups[pod.signature]
        del group.pods[pod.key]
        if not group.pods:
            del self.groups[pod.signature]
            self._woken.pop(pod.signature, None)

    def is_fresh(self, key: str) -> bool:
        """Say whether a pod has not been tried yet."""
        return key in self._fresh

    def tried(self, keys: Iterable[str]) -> None:
        """Note that pods have had their first attempt."""
        for key in keys:
            self._fresh.pop(key, None)

    def park(self, signature: bytes, attempt: Attempt) -> None:
        """Let a group wait for room."""
        self.groups[signature].parked = True
        self.groups[signature].attempt = attempt
        self._woken.pop(signature, None)

    def wake(self, snapshot: Snapshot, rows: Iterable[int]) -> None:
        """Wake the parked groups that have room for a pod on any of the rows.

        Only resources are looked at here: whether the other filters agree is the attempt's business.
        """
        parked = [g for g in self.groups.values() if g.parked and not g.held_by]
        where = np.array(sorted(rows), dtype=np.int64)
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
                columns[w, d], values[w, d] = demand
        fits = np.zeros(len(parked), dtype=np.uint8)
        kernel.could_fit(snapshot.columns, where, counts, columns, values, fits)
        for w in np.flatnonzero(fits).tolist():
            parked[w].parked = False
            self._woken[parked[w].signature] = None

    @property
    def has_work(self) -> bool:
        """Whether any pod is worth an attempt."""
        return bool(self._fresh or self._woken)

    def refused(self) -> Iterator[tuple[WaitingGroup, list[str]]]:
        """Yield parked and held groups, each with its fresh pods, which count as tried then.

        What parked the group holds for them too: since then, room was only taken away.
        """
        by_group: dict[bytes, list[str]] = {}
        for key, signature in self._fresh.items():
            group = self.groups[signature]
            if group.parked or group.held_by:
                by_group.setdefault(signature, []).append(key)
        for signature, keys in by_group.items():
            self.tried(keys)
            yield self.groups[signature], keys

    def candidates(self, woken_max: int) -> list[tuple[str, WaitingGroup]]:
        """Return the pods to try, by (priority, arrival): the fresh ones, and at most so many woken ones."""
        items: list[tuple[int, int, str, WaitingGroup]] = []
        for signature in self._woken:
            group = self.groups[signature]
            items.extend(
                (-group.template.priority, arrival, key, group)
                for key, arrival in islice(group.pods.items(), woken_max)
                if key not in self._fresh
            )
        items.sort(key=lambda item: item[:2])
        del items[woken_max:]
        for key, signature in self._fresh.items():
            group = self.groups[signature]
            items.append((-group.template.priority, group.pods[key], key, group))
        items.sort(key=lambda item: item[:2])
        return [(key, group) for _, _, key, group in items]
