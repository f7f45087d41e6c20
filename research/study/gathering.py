"""The study of gathering: nodes that are used unevenly, and where a batch of pods leaves them.

A hundred equal nodes carry unequal loads. A round of pods comes to them, by one of several profiles. The
points of the nodes in the plane of cpu and memory gather at their mean, or they do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.profiles import PluginUse, Profile
from research.search.balance import utilisation
from research.simulate.measuring import usage_of
from research.simulate.methods import Method
from research.simulate.running import LOOK, Every, Simulation, agenda
from research.simulate.trace import Curves, Moment, Trace, kind_of

RESOURCES = ("cpu", "memory")
NODES_COUNT = 100
PODS_COUNT = 800
_CPU_MILLI, _MEMORY_MIB = 32_000, 131_072
_LOAD = (0.05, 0.65)
"""Between which shares of a node its first pod asks for, of cpu and of memory apart."""

_POD_LEAST, _POD_MOST = (400, 1_600), (2_000, 8_000)
"""What a pod of the batch asks for at least, and at most: thousandths of a core, and MiB."""

_USED = ((0.5, 0.9), (0.7, 0.95))
"""Between which shares of its request a pod uses, of cpu and memory; it is drawn anew at each measurement."""

_STEP_MS = 60_000
_BEGINS_MS, _LASTS_MS = 5 * _STEP_MS, 10 * _STEP_MS
_WINDOW_SECONDS = 300

_FIT = PluginUse(name="NodeResourcesFit")
_LEAST = PluginUse(name="NodeResourcesFit", args={"scoringStrategy": {"type": "LeastAllocated"}})
_BALANCED = PluginUse(name="NodeResourcesBalancedAllocation")


def _trimaran(weight: float) -> tuple[PluginUse, ...]:
    names = ("TargetLoadPacking", "LoadVariationRiskBalancing")
    return tuple(PluginUse(name=name, weight=weight) for name in names)


_VARIANCE = tuple(
    PluginUse(name="GlobalVariance", weight=10.0, args={"resource": name}) for name in RESOURCES
)


def _variance(**args: Any) -> PluginUse:
    """Return the variances of both resources in sum, normalised once."""
    return PluginUse(name="GlobalVariance", args={"resources": list(RESOURCES), **args})


def _trimaran_in_flight() -> tuple[PluginUse, ...]:
    """Return Trimaran's scores, the packing of cpu and of memory, and the risk with pods in flight."""
    packing, risk = "TargetLoadPacking", "LoadVariationRiskBalancing"
    return (
        *(PluginUse(name=packing, args={"resource": name}) for name in RESOURCES),
        PluginUse(name=risk, args={"inFlight": True}),
    )


PROFILES: dict[str, tuple[PluginUse, ...]] = {
    "least": (_LEAST,),
    "balanced": (_BALANCED,),
    "least-balanced": (_LEAST, _BALANCED),
    "trimaran": _trimaran(1.0),
    "global-variance": _VARIANCE,
    "global-variance-trimaran": (*_VARIANCE, *_trimaran(1.0)),
    "memory-variance-trimaran": (_VARIANCE[1], *_trimaran(1.0)),
    "global-variance-sum": (_variance(),),
    "global-variance-measured": (_variance(of="measured"),),
    "global-variance-in-flight": (_variance(of="measured", inFlight=True),),
    "trimaran-in-flight": (*_trimaran_in_flight(),),
}
"""Name -> scores. Beside Trimaran's two scores, global variance has ten times their weight."""


class Gathering(msgspec.Struct, frozen=True, kw_only=True):
    """What one profile did with one setting.

    Attributes
    ----------
    before, after : dict
        Node -> what is requested of its cpu and of its memory, as shares.
    used_before, used_after : dict
        The same of what its pods use.
    unplaced_count : int
        Pods of the batch that found no node.
    """

    method: str
    seed: int
    before: dict[str, tuple[float, float]]
    after: dict[str, tuple[float, float]]
    used_before: dict[str, tuple[float, float]]
    used_after: dict[str, tuple[float, float]]
    unplaced_count: int


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one profile: medians over the seeds of the standard deviations over the nodes."""

    method: str
    requested_before: list[float]
    requested_after: list[float]
    used_before: list[float]
    used_after: list[float]
    unplaced_count: float


def gather(
    names: Sequence[str], seeds: Sequence[int], *, report: Callable[[Gathering], None] = lambda each: None
) -> list[Gathering]:
    """Place the same batch of pods by each profile, for each seed."""
    found = []
    for seed in seeds:
        trace = setting(seed)
        for name in names:
            found.append(_gathered(name, trace, seed))
            report(found[-1])
    return found


def spreads(gatherings: Sequence[Gathering]) -> Iterator[Spread]:
    """Yield the medians over the seeds for each profile."""
    for name in dict.fromkeys(each.method for each in gatherings):
        own = [each for each in gatherings if each.method == name]
        yield Spread(
            method=name,
            requested_before=_medians([each.before for each in own]),
            requested_after=_medians([each.after for each in own]),
            used_before=_medians([each.used_before for each in own]),
            used_after=_medians([each.used_after for each in own]),
            unplaced_count=statistics.median(each.unplaced_count for each in own),
        )


def _medians(shares: Sequence[dict[str, tuple[float, float]]]) -> list[float]:
    deviations = [np.array(list(each.values())).std(axis=0) for each in shares]
    medians: list[float] = np.median(deviations, axis=0).tolist()
    return medians


def setting(seed: int) -> Trace:
    """Return equal nodes, each with a pod of a drawn size, and the batch of pods that comes to them."""
    rng = np.random.default_rng(seed)
    room = {"cpu": _CPU_MILLI, "memory": _MEMORY_MIB << 20, "pods": 256}
    names = [f"node-{i:03}" for i in range(NODES_COUNT)]
    moments = [
        Moment(
            0,
            NodeUpserted(
                NodeSpec(
                    name=name,
                    uid=name,
                    resource_version=None,
                    allocatable=room,
                    capacity=room,
                    usage_window_seconds=_WINDOW_SECONDS,
                )
            ),
        )
        for name in names
    ]
    load = rng.uniform(*_LOAD, (NODES_COUNT, 2))
    asked = [
        *(load * (_CPU_MILLI, _MEMORY_MIB)).astype(np.int64).tolist(),
        *rng.integers(np.array(_POD_LEAST), np.array(_POD_MOST), (PODS_COUNT, 2)).tolist(),
    ]
    kinds = {}
    for i, (cpu, memory) in enumerate(asked):
        is_first = i < NODES_COUNT
        pod = kind_of({"cpu": cpu, "memory": memory << 20}).pod(f"study/pod-{i:03}")
        kinds[pod.key] = i
        if is_first:
            pod = msgspec.structs.replace(pod, node_name=names[i])
        at_ms = 0 if is_first else _BEGINS_MS + (i - NODES_COUNT + 1) * _LASTS_MS // PODS_COUNT
        moments.append(Moment(at_ms, PodUpserted(pod)))
    steps = (_BEGINS_MS + _LASTS_MS) // _STEP_MS + 1
    parts = [rng.uniform(*between, (len(asked), steps)) for between in _USED]
    requested = np.array(asked, np.float64).T * np.array([[1.0], [1 << 20]])
    curves = Curves(
        step_ms=_STEP_MS, resources=RESOURCES, kinds=kinds, used=requested[:, :, None] * np.array(parts)
    )
    return Trace(name="gather", moments=moments, resources=RESOURCES, curves=curves)


def _gathered(name: str, trace: Trace, seed: int) -> Gathering:
    profile = Profile(name=name, filters=(_FIT,), scores=PROFILES[name])
    simulation = Simulation(trace, Method(name=name, profile=profile), seed=seed)
    before = None
    for due in agenda(trace, Every(ms=_BEGINS_MS)):
        simulation.meet(due)
        if due.rank == LOOK and before is None:
            before = _shares(simulation, trace)
    assert before is not None
    after = _shares(simulation, trace)
    return Gathering(
        method=name,
        seed=seed,
        before=before[0],
        after=after[0],
        used_before=before[1],
        used_after=after[1],
        unplaced_count=PODS_COUNT - simulation.counts.placements,
    )


_Shares = dict[str, tuple[float, float]]


def _shares(simulation: Simulation, trace: Trace) -> tuple[_Shares, _Shares]:
    """Return what is requested, and what is used, of each node."""
    assert trace.curves is not None
    table = simulation.state.table
    columns = [simulation.state.resources.column(name) for name in RESOURCES]
    allocatable = table.allocatable[columns, : table.count]
    each = (
        table.requested[columns, : table.count],
        usage_of(trace.curves, simulation.state, simulation.now_ms),
    )
    requested, used = (
        dict(zip(table.names[: table.count], map(tuple, utilisation(allocatable, of).tolist()), strict=True))
        for of in each
    )
    return requested, used
