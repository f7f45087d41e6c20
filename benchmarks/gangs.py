"""`berth bench gangs`: what gangs cost in the engine alone, and how fast they get nodes on real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from benchmarks import machine
from benchmarks.course import Course, Running, measure_course, prepared, running
from benchmarks.shapes import Json
from benchmarks.stage import BenchError
from benchmarks.workloads import NAMESPACE, Material, entry_of, node_manifest, pod_manifest
from domain.cycle.schedule import Scheduler
from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.model.config import POD_GROUP, PodGroup
from domain.model.decisions import Outcome
from domain.model.events import ConfigUpserted, NodeUpserted, PodUpserted
from domain.model.limits import batch_records_max
from domain.model.pods import POD_GROUP_LABEL, PodSpec
from domain.model.profiles import BUILT_IN_PROFILES

CLOCK = (
    "starts before the first pod is handed to the log's client; stops when a poll of the ledger first sees "
    "the last of them bound"
)
_LARGE_MILLI = 2_100  # one pod of it fits on a node


class GangReport(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, as ``-o json`` shows it. benchmarks/README.md says what each key means."""

    gangs: int
    members: int
    nodes: int
    engine_us_per_pod: dict[str, float]
    log: str
    ledger: str
    clock: str
    rate_offered: float
    seconds: float
    gangs_per_second: float
    pods_per_second: float
    decisions: int
    outcomes: dict[str, int]
    cpu_seconds: dict[str, float | None]
    batches: int
    plan_ms_mean: float
    commit_ms_mean: float
    machine: dict[str, Any]
    versions: dict[str, str]


class _Size(NamedTuple):
    gangs: int
    members: int
    nodes: int


def measure(gangs: int, members: int, nodes: int, timeout_seconds: float = 300.0) -> GangReport:
    """Measure the engine, then start everything, measure once, and stop everything again.

    Raises
    ------
    BenchError
        The measurement did not end in time, a process ended, or not every pod came to a node.
    """
    size, described = _Size(gangs, members, nodes), machine.describe()
    engine = measure_engine(size)
    with running(("worker", "relay")) as servers:
        return asyncio.run(_measure(size, engine, servers, described, timeout_seconds))


# --------------------------------------------------------------------------------------------- the engine


def measure_engine(size: _Size) -> dict[str, float]:
    """Return the processor time of a pod to be folded and placed: alone, in a gang, in one that is undone."""
    _place(_Size(2, 2, 4), in_gangs=True)  # what has to be compiled
    alone, together = (_place(size, in_gangs=each) for each in (False, True))
    few = _Size(min(size.gangs, 20), size.members, max(1, size.members // 2))
    undone = _place(few, in_gangs=True, cpu_milli=_LARGE_MILLI, placed=False)
    return {"alone": alone, "in gangs": together, "undone": undone}


def _place(size: _Size, *, in_gangs: bool, cpu_milli: int = 100, placed: bool = True) -> float:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=0)
    for i in range(size.nodes):
        scheduler.fold(NodeUpserted(node_from_manifest(node_manifest(i))))
    for i in range(size.gangs):
        spec = PodGroup(min_member=size.members)
        scheduler.fold(ConfigUpserted(POD_GROUP, NAMESPACE, f"gang-{i:04}", spec))
    scheduler.cycle()
    pods = list(_pods(size, cpu_milli, in_gangs=in_gangs))
    bound_count, began = 0, time.thread_time()
    for first in range(0, len(pods), batch_records_max):
        for pod in pods[first : first + batch_records_max]:
            scheduler.fold(PodUpserted(pod))
        while scheduler.has_work:
            bound_count += sum(attempt.bound_count for attempt in scheduler.cycle().attempts)
    seconds = time.thread_time() - began
    if bound_count != (len(pods) if placed else 0):
        raise BenchError(f"{bound_count} of {len(pods)} pods were placed in the engine")
    return round(1e6 * seconds / len(pods), 2)


def _pods(size: _Size, cpu_milli: int, *, in_gangs: bool) -> Iterator[PodSpec]:
    for i in range(size.gangs):
        label = {POD_GROUP_LABEL: f"gang-{i:04}"} if in_gangs else {"group": f"gang-{i:04}"}
        first = pod_from_manifest(_pod(i, 0, f"{cpu_milli}m", label))
        for k in range(size.members):
            name = f"{first.key.removesuffix('00000')}{k:05}"
            yield msgspec.structs.replace(first, key=name, uid=name)


# ------------------------------------------------------------------------------------------- the whole way


def material(size: _Size) -> Material:
    """Return the nodes, the PodGroups and their pods, gang after gang."""
    return Material(
        config=[entry_of(_pod_group(i, size.members), i) for i in range(size.gangs)],
        nodes=[entry_of(node_manifest(i), i) for i in range(size.nodes)],
        before=[],
        pods=[
            entry_of(_pod(i, k, "100m", {POD_GROUP_LABEL: f"gang-{i:04}"}), i * size.members + k)
            for i in range(size.gangs)
            for k in range(size.members)
        ],
    )


def _pod_group(number: int, members: int) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": POD_GROUP,
        "metadata": {"name": f"gang-{number:04}", "namespace": NAMESPACE},
        "spec": {"minMember": members},
    }


def _pod(gang: int, number: int, cpu: str, labels: dict[str, str]) -> Json:
    manifest = pod_manifest(f"gang-{gang:04}-{number:05}", number, cpu, "64Mi")
    manifest["metadata"]["labels"] = labels
    return manifest


async def _measure(
    size: _Size,
    engine: dict[str, float],
    running: Running,
    described: dict[str, Any],
    timeout_seconds: float,
) -> GangReport:
    records, course, count = material(size), Course(), size.gangs * size.members
    async with prepared(running, records, course, timeout_seconds) as ready:
        await measure_course(ready, records, course)
        if course.outcomes[Outcome.BOUND] != count or await ready.watcher.pending():
            raise BenchError(f"not all of {count} pods came to a node: {course.outcomes}")
        return GangReport(
            **size._asdict(),
            **course.figures(count),
            engine_us_per_pod=engine,
            log=running.servers.log_kind,
            ledger=running.servers.ledger_kind,
            clock=CLOCK,
            gangs_per_second=round(size.gangs / course.seconds, 1),
            pods_per_second=round(count / course.seconds, 1),
            machine=described,
            versions={**machine.versions(), "postgres": await ready.watcher.server_version()},
        )
