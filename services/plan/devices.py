"""The devices of a plan's nodes and the mix of its pods: what the objective ``fragmentation`` looks at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

import numpy as np

from domain.model.devices import BUSY, DEVICE_ONE, GPU, asked
from domain.model.pods import PodSpec, PodTemplate
from domain.plugins.device_terms import SHAPES_MAX
from domain.plugins.registry import ProfilePlan
from domain.plugins.scores.fgd import MODEL_LABEL
from domain.plugins.view import NodeView
from domain.search.mix import ANY_MODEL, Shape, typical
from domain.search.packing import Devices
from domain.state.cluster import ClusterState
from domain.state.devices import free_milli
from domain.state.resources import CPU, MEMORY, NOWHERE

_MODELS_MAX = 62
"""Models that are told apart; all further ones count as one."""


class Placed(Protocol):
    """What has placed pods: a plan, or a simulation."""

    @property
    def state(self) -> ClusterState:
        """The cluster, with the pods that were placed."""

    def profile_of(self, pod: PodSpec) -> ProfilePlan | None:
        """Return the profile that places a pod; None: the pod names one that does not exist."""


def allowed_rows(plan: ProfilePlan, template: PodTemplate, view: NodeView) -> np.ndarray:
    """Return which nodes the filters allow that look at one pod and one node: bool[N]."""
    rows = view.all_rows()
    allowed = np.ones(len(rows), np.bool_)
    for _, each in plan.static_filters:
        codes = each.refuse(template, view, rows)
        if codes is not None:
            allowed &= codes == 0
    return allowed


def devices_of(plan: Placed, view: NodeView) -> Devices | None:
    """Return the nodes' devices, and how often the shapes of pods come; None: no node has a GPU.

    All pods count that are there, running and waiting ones, also those that a search cannot move. The most
    frequent shapes that make up 95 % of them are the mix.
    """
    state = plan.state
    table, resources = state.table, state.resources
    column, busy = resources.column(GPU), resources.column(BUSY)
    if NOWHERE in (column, busy) or not table.allocatable[column, : table.count].any():
        return None
    free = free_milli(table.allocatable, table.requested, resources, view.all_rows())
    names = [spec.labels.get(MODEL_LABEL, "") for spec in table.specs[: table.count]]
    bits = {name: min(bit, _MODELS_MAX - 1) for bit, name in enumerate(sorted(set(names)))}
    model = np.array([bits[name] for name in names], np.int64)
    mix = typical(_shapes(plan, view, model))
    return Devices(
        number=table.allocatable[column, : table.count].copy(),
        free=np.where(free < DEVICE_ONE, free, 0),
        model=model,
        columns=(busy, CPU, MEMORY),
        mix=dict(islice(mix.items(), SHAPES_MAX)),
    )


def _shapes(plan: Placed, view: NodeView, model: np.ndarray) -> Iterator[Shape]:
    """Yield the shape of each pod; of models it may have those of which its filters allow a node."""
    known: dict[tuple[bytes, int], Shape] = {}
    for entry in plan.state.pods.values():
        pod = entry.spec
        if pod.finished or pod.terminating:
            continue
        key = (pod.signature, id(entry.pod_class))
        if key not in known:
            profile, ask = plan.profile_of(pod), asked(pod.template.requests)
            models = ANY_MODEL
            if profile is not None and ask.number:
                models = _bits(model[allowed_rows(profile, pod.template, view)])
            cpu, memory = (pod.template.requests.get(name, 0) for name in ("cpu", "memory"))
            known[key] = Shape(cpu, memory, ask.number, ask.milli, models)
        yield known[key]


def _bits(models: Iterable[int]) -> int:
    return sum(1 << int(each) for each in set(models))
