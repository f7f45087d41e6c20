"""Many small groups in one thread and in two: what a cycle takes, and how often pods met on a node.

Two schedulers get the same nodes and pods, one with threads and one without, and take turns; what they
decide must be the same. All groups are new and their pods come in turns: most pods need a look at all nodes,
unless their scores have bounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.stage import BenchError
from domain.cycle.schedule import CycleResult, Scheduler
from domain.manifests.profile import profile_from_manifest
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec, PodTemplate
from domain.model.signature import signature
from services.worker.collector import as_in_a_worker
from services.worker.threads import threads_for

_GIB = 1 << 30
_PROFILE = "default-scheduler"
_FIT = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "LeastAllocated"}}}
_PACK = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
_SCORES: dict[str, list[Any]] = {
    "least-allocated": [_FIT],
    "balanced": [_FIT, {"name": "NodeResourcesBalancedAllocation"}],
    "packing": [_PACK],
}


class ThreadsReport(msgspec.Struct, frozen=True, kw_only=True):
    """One profile: seconds in cycles without and with threads, medians of all turns, and what pods met.

    ``ratio`` is that of the same pods' cycles, median, least and greatest of all turns. ``moved`` and
    ``conflicts`` count pods whose best row of the list had changed before their turn.
    """

    scoring: str
    nodes: int
    pods: int
    groups: int
    threads: int
    one_seconds: float
    threads_seconds: float
    ratio: float
    ratio_min: float
    ratio_max: float
    moved: int
    conflicts: int
    nodes_beyond_capacity: int


def measure_threads(
    *, nodes: int = 20_000, groups: int = 1_000, pods_per_group: int = 10, threads: int = 2, turns: int = 5
) -> list[ThreadsReport]:
    """Measure each profile; every turn has groups of its own.

    Raises
    ------
    BenchError
        The threads decided anything else than one thread did.
    """
    with as_in_a_worker():
        return [_measure(name, nodes, groups, pods_per_group, threads, turns) for name in _SCORES]


def _measure(
    scoring: str, nodes: int, groups: int, pods_per_group: int, threads: int, turns: int
) -> ThreadsReport:
    profile = profile_from_manifest({"filters": ["NodeResourcesFit"], "scores": _SCORES[scoring]})
    pair = [Scheduler({_PROFILE: profile}, seed=0, threads=threads_for(count)) for count in (1, threads)]
    for scheduler in pair:
        for i in range(nodes):
            room = {"cpu": 16_000 + i % 7 * 4_000, "memory": 64 * _GIB, "pods": 110}
            spec = NodeSpec(name=f"node-{i:05}", uid=f"u{i}", resource_version=1, allocatable=room)
            scheduler.fold(NodeUpserted(spec))
        for pod in _pods(0, 64, 1):
            scheduler.fold(PodUpserted(pod))
        scheduler.cycle()
    seconds: list[list[float]] = [[], []]
    moved = conflicts = 0
    for turn in range(1, turns + 1):
        results = []
        pods = _pods(turn, groups, pods_per_group)
        for which in (0, 1) if turn % 2 else (1, 0):
            for pod in pods:
                pair[which].fold(PodUpserted(pod))
            began = time.perf_counter()
            results.append(pair[which].cycle())
            seconds[which].append(time.perf_counter() - began)
        if _decided(results[0]) != _decided(results[1]):
            raise BenchError("threads decided otherwise than one thread")
        attempts = [attempt for result in results for attempt in result.attempts]  # one thread counts none
        moved += sum(attempt.moved_count for attempt in attempts)
        conflicts += sum(attempt.conflict_count for attempt in attempts)
    ratios = [one / many for one, many in zip(*seconds, strict=True)]
    return ThreadsReport(
        scoring=scoring,
        nodes=nodes,
        pods=groups * pods_per_group,
        groups=groups,
        threads=threads,
        one_seconds=round(statistics.median(seconds[0]), 3),
        threads_seconds=round(statistics.median(seconds[1]), 3),
        ratio=round(statistics.median(ratios), 2),
        ratio_min=round(min(ratios), 2),
        ratio_max=round(max(ratios), 2),
        moved=moved,
        conflicts=conflicts,
        nodes_beyond_capacity=sum(_beyond(scheduler) for scheduler in pair),
    )


def _pods(turn: int, groups: int, pods_per_group: int) -> Sequence[PodSpec]:
    """Return pods in turns: one of each group, then the next of each."""
    templates = []
    for g in range(groups):
        requests = {"cpu": 50 + g % 50, "memory": (_GIB >> 3) + (turn * groups + g << 12)}
        templates.append(
            PodTemplate(
                requests=requests,
                scoring_cpu_milli=requests["cpu"],
                scoring_memory_bytes=requests["memory"],
            )
        )
    signatures = [signature(template) for template in templates]
    return [
        PodSpec(
            uid=f"{turn}-{i}",
            key=f"bench/pod-{turn}-{i}",
            resource_version=1,
            template=templates[i % groups],
            signature=signatures[i % groups],
        )
        for i in range(groups * pods_per_group)
    ]


def _decided(result: CycleResult) -> list[tuple[str, str]]:
    return [(verdict.pod.key, getattr(verdict, "node", "")) for verdict in result.verdicts]


def _beyond(scheduler: Scheduler) -> int:
    """Count the nodes that hold more than they offer."""
    state, beyond = scheduler.state, 0
    for name, requested in zip(state.table.names, state.requested_of_each(state.table.names), strict=True):
        entry = state.nodes[name]
        assert entry.spec is not None
        offered = entry.spec.allocatable
        beyond += any(amount > offered.get(resource, 0) for resource, amount in requested.items())
    return beyond
