"""`berth bench domains`: what pods cost that ask where other pods are, in the engine alone.

Every row folds pods and lets cycles place them. Only these two are timed, in processor time of the thread;
decoding is not. The nodes are there before, and so are the pods ``before``, bound evenly over the nodes, and
one pod of each group, which compiles what the group needs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from benchmarks import machine
from benchmarks.flow import bring_in, decode
from benchmarks.shapes import SHAPES
from benchmarks.stage import BenchError
from benchmarks.workloads import WORKLOADS, Material, Workload, batches, entry_of, material, pod_of, resized
from domain.cycle.schedule import Scheduler
from domain.model.events import PodUpserted
from domain.model.limits import batch_records_max
from domain.model.profiles import BUILT_IN_PROFILES
from services.codec.decode import Decoder
from services.ports.log import PODS_TOPIC
from services.worker.collector import as_in_a_worker

PLAIN = Workload(
    name="plain-zones",
    about="equal pods on the same nodes",
    nodes=5_000,
    pods_before=5_000,
    pods=20_000,
    shape="plain-zones",
)
_WARM_UP = Workload(name="warm-up", about="what has to be compiled", nodes=4, pods_before=4, pods=8)
NAMES = tuple(name for name, workload in WORKLOADS.items() if workload.shape != "plain")
TIMES_PLAIN_MAX = 5.0
TIMES_FIRST_MAX = 1.5
_SMALL = {"cpu": "20m", "memory": "64Mi"}
"""What a pod asks for that is there before: fifty of them fit a node beside what is measured."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a table, as ``-o json`` shows it; benchmarks/README.md explains the keys."""

    table: str
    workload: str
    profile: str
    nodes: int
    pods_before: int
    pods: int
    groups: int
    fold_us_per_pod: float
    cycle_us_per_pod: float
    us_per_pod: float
    times_first: float
    times_first_target: float


class DomainsRun(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, and where they were measured."""

    runs: int
    domains: list[Row]
    machine: dict[str, Any]
    versions: dict[str, str]


class Table(NamedTuple):
    """Workloads that are compared with the first of them."""

    name: str
    workloads: tuple[Workload, ...]
    times_first_max: float = TIMES_FIRST_MAX


def shapes(names: Sequence[str], *, nodes: int | None = None, pods: int | None = None) -> Table:
    """Return the table of shapes beside plain pods."""
    wanted = [PLAIN, *(WORKLOADS[name] for name in names)]
    cut = [resized(each, nodes=nodes, pods=min(pods or each.pods, each.pods)) for each in wanted]
    return Table("shape", tuple(cut), TIMES_PLAIN_MAX)


def growth() -> list[Table]:
    """Return the tables of the cost of a pod by nodes, by groups and by pods that are there."""
    plain = resized(WORKLOADS["groups-1000"], pods=20_000)
    least = msgspec.structs.replace(plain, profile="least-allocated")
    ours = resized(WORKLOADS["deployments-500"], pods=20_000)
    sizes = (5_000, 20_000)
    by_nodes = [Table("nodes", tuple(resized(each, nodes=n) for n in sizes)) for each in (plain, least, ours)]
    by_groups = [
        Table("groups", tuple(resized(each, groups=groups) for groups in (100, 1_000, 10_000)))
        for each in (plain, least, ours)
    ]
    by_placed = [
        Table(
            "pods before",
            tuple(
                msgspec.structs.replace(each, nodes=20_000, pods_before=before)
                for before in (10_000, 100_000, 1_000_000)
            ),
        )
        for each in (plain, least, ours)
    ]
    return [*by_nodes, *by_groups, *by_placed]


def measure(tables: Iterable[Table], runs: int = 3) -> DomainsRun:
    """Measure each row ``runs`` times, in turns with the others of its table, and take medians."""
    described = machine.describe()
    with as_in_a_worker():
        _cost(_WARM_UP, batch_records_max)
        rows = [row for table in tables for row in _rows(table, runs)]
    return DomainsRun(runs=runs, domains=rows, machine=described, versions=machine.versions())


def _rows(table: Table, runs: int) -> Iterator[Row]:
    costs: list[list[_Cost]] = [[] for _ in table.workloads]
    for _ in range(runs):
        for i, workload in enumerate(table.workloads):
            costs[i].append(_cost(workload, batch_records_max))
    totals = [statistics.median(cost.fold_us + cost.cycle_us for cost in found) for found in costs]
    for workload, found, total in zip(table.workloads, costs, totals, strict=True):
        yield Row(
            table=table.name,
            workload=workload.name,
            profile=workload.profile,
            nodes=workload.nodes,
            pods_before=workload.pods_before,
            pods=workload.pods,
            groups=workload.groups,
            fold_us_per_pod=round(statistics.median(cost.fold_us for cost in found), 2),
            cycle_us_per_pod=round(statistics.median(cost.cycle_us for cost in found), 2),
            us_per_pod=round(total, 2),
            times_first=round(total / totals[0], 2),
            times_first_target=table.times_first_max,
        )


class _Cost(NamedTuple):
    """Microseconds of processor time per pod."""

    fold_us: float
    cycle_us: float


def _cost(workload: Workload, pods_per_cycle: int) -> _Cost:
    """Measure one workload once, in a scheduler of its own."""
    scheduler, decoder = Scheduler(BUILT_IN_PROFILES, seed=0), Decoder()
    made = material(msgspec.structs.replace(workload, pods_before=0, pods=workload.groups + workload.pods))
    bring_in(scheduler, decoder, Material(made.config, made.nodes, [], []))
    for there in _bound(workload, decoder):
        scheduler.fold(there)
    bring_in(scheduler, decoder, Material([], [], made.pods[: workload.groups], []))
    fold_seconds = cycle_seconds = 0.0
    placed = 0
    for batch in batches(made.pods[workload.groups :], pods_per_cycle):
        events = decode(decoder, PODS_TOPIC, batch)
        began = time.thread_time()
        for event in events:
            scheduler.fold(event)
        folded = time.thread_time()
        while scheduler.has_work:
            result = scheduler.cycle()
            placed += sum(attempt.bound_count for attempt in result.attempts)
        cycle_seconds += time.thread_time() - folded
        fold_seconds += folded - began
    if placed != workload.pods:
        raise BenchError(f"{workload.name}: {placed} of {workload.pods} pods found a node")
    return _Cost(fold_seconds * 1e6 / workload.pods, cycle_seconds * 1e6 / workload.pods)


def _bound(workload: Workload, decoder: Decoder) -> Iterator[PodUpserted]:
    """Return the pods that are there before. One of each kind is decoded; the others differ in name."""
    kinds: dict[tuple[int, int], PodUpserted] = {}
    for i in range(workload.pods_before):
        kind = (i % workload.groups, i % SHAPES[workload.shape].namespaces)
        if kind not in kinds:
            manifest = pod_of(workload, "before", i)
            manifest["spec"]["containers"][0]["resources"]["requests"] = _SMALL
            (event,) = decode(decoder, PODS_TOPIC, [entry_of(manifest, i)])
            assert isinstance(event, PodUpserted)
            kinds[kind] = event
        pod = kinds[kind].pod
        name = f"before-{i:07}"
        yield PodUpserted(
            msgspec.structs.replace(
                pod,
                uid=f"uid-{name}",
                key=f"{pod.namespace}/{name}",
                node_name=f"node-{i % workload.nodes:05}",
            )
        )
