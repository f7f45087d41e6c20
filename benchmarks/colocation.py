"""`berth bench colocation`: what measured nodes, and low pods that wait for room, cost high pods."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import msgspec

from benchmarks import machine
from benchmarks.stage import BenchError
from benchmarks.workloads import NAMESPACE, node_manifest
from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.model.colocation import Amounts, UseByQuality
from domain.model.events import NodeUpserted, NodeUsed, PodUpserted
from domain.model.limits import backoff_ms_max, backoff_ms_min
from domain.model.pods import COLOCATION_PROFILE, PodSpec
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.usage import NodeUsage
from domain.state.steps import Written
from services.worker.collector import as_in_a_worker

CLOCK = "processor time of folding measurements and pods and of the cycles, without log and ledger"
_PERIOD_SECONDS = 10  # each node is measured once in that time
_HIGH_GROUPS = 1_000
_CORES_MILLI, _MEMORY_BYTES = 4_000, 32 << 30  # of a node


class ColocationReport(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, as ``-o json`` shows it. benchmarks/README.md says what each key means."""

    nodes: int
    low_groups: int
    low_pods: int
    high_pods: int
    seconds: int
    alone_us: list[float]
    beside_us: list[float]
    ratio: float
    measurements: int
    low_placed: int
    clock: str
    machine: dict[str, Any]


class Size(NamedTuple):
    """How many nodes there are, groups and pods of low quality, and high pods that come each second."""

    nodes: int
    low_groups: int
    low_pods: int
    high_rate: int
    seconds: int


def measure(size: Size, runs: int) -> ColocationReport:
    """Place high pods alone, and beside all that co-location does, in turns.

    Raises
    ------
    BenchError
        A high pod found no node.
    """
    described = machine.describe()
    _Day(Size(64, 2, 20, 20, 2), lends=True).live()  # what has to be compiled
    alone, beside = list[float](), list[float]()
    measured = placed = 0
    for _ in range(runs):
        with as_in_a_worker():
            alone.append(_Day(size, lends=False).live())
        with as_in_a_worker():
            day = _Day(size, lends=True)
            beside.append(day.live())
        measured, placed = day.measured_count, day.low_placed
    return ColocationReport(
        nodes=size.nodes,
        low_groups=size.low_groups,
        low_pods=size.low_pods,
        high_pods=size.high_rate * size.seconds,
        seconds=size.seconds,
        alone_us=alone,
        beside_us=beside,
        ratio=round(sorted(alone)[len(alone) // 2] / sorted(beside)[len(beside) // 2], 3),
        measurements=measured,
        low_placed=placed,
        clock=CLOCK,
        machine=described,
    )


class _Day:
    """Some seconds of log time: nodes are measured, and high pods come; low pods wait since before."""

    def __init__(self, size: Size, *, lends: bool) -> None:
        self._size, self._lends, self._random = size, lends, Random(7)
        backoff_ms = backoff_ms_min, backoff_ms_max  # as a worker has it
        self._scheduler = Scheduler(BUILT_IN_PROFILES, seed=0, backoff_ms=backoff_ms)
        self._now_ms = 1_000_000
        self.measured_count = self.low_placed = 0
        specs = [node_from_manifest(node_manifest(i)) for i in range(size.nodes)]
        self._names = [spec.name for spec in specs]
        self._use_milli = [self._random.randrange(2_600, 3_400) for _ in specs]
        for spec in specs:
            self._scheduler.fold(NodeUpserted(spec))

    def live(self) -> float:
        """Return the processor time of a high pod, in microseconds."""
        size = self._size
        if self._lends:
            for i in range(size.nodes):
                self._measure(i)
            for pod in self._low_pods():
                self._scheduler.fold(PodUpserted(pod))
            self._cycles()
        high = self._high_pods()
        spent, placed_count = 0.0, 0
        for second in range(size.seconds):
            self._now_ms += 1_000
            pods = [next(high) for _ in range(size.high_rate)]
            began = time.thread_time()
            if self._lends:
                for i in range(second % _PERIOD_SECONDS, size.nodes, _PERIOD_SECONDS):
                    self._measure(i)
            for pod in pods:
                self._scheduler.fold(PodUpserted(pod))
            placed_count += self._cycles()
            spent += time.thread_time() - began
        if placed_count != size.high_rate * size.seconds:
            raise BenchError(f"{placed_count} of {size.high_rate * size.seconds} high pods were placed")
        return round(1e6 * spent / placed_count, 2)

    def _cycles(self) -> int:
        """Try what has its turn; return how many high pods were placed."""
        high_count = 0
        while self._scheduler.has_work:
            result = self._scheduler.cycle(self._now_ms)
            placed = [each.pod for each in result.verdicts if isinstance(each, Placement)]
            self._scheduler.fold(Written({pod.key: self._now_ms for pod in placed}))
            low_count = sum(pod.template.qos_class == "BestEffort" for pod in placed)
            self.low_placed += low_count
            high_count += len(placed) - low_count
        return high_count

    def _measure(self, i: int) -> None:
        """Measure a node, whose use moves by up to five percent."""
        used = int(self._use_milli[i] * self._random.uniform(0.95, 1.05))
        use = UseByQuality(high=Amounts(used, _MEMORY_BYTES // 4))
        percent = {"cpu": 100.0 * used / _CORES_MILLI, "memory": 25.0}
        usage = NodeUsage(node=self._names[i], at_ms=self._now_ms, percent=percent, quality=use)
        self._scheduler.fold(NodeUsed(usage))
        self.measured_count += 1

    def _low_pods(self) -> Iterator[PodSpec]:
        for group in range(self._size.low_groups):
            yield from _like(
                _pod(f"low-{group}", {}), f"low-{group}-", self._size.low_pods // self._size.low_groups
            )

    def _high_pods(self) -> Iterator[PodSpec]:
        asked = [{"cpu": f"{20 + i % 50}m", "memory": "64Mi"} for i in range(_HIGH_GROUPS)]
        shapes = [_pod(f"high-{i}", each) for i, each in enumerate(asked)]
        count = 0
        while True:
            yield next(_like(shapes[count % len(shapes)], f"high-{count}-", 1))
            count += 1


def _pod(name: str, amounts: dict[str, str]) -> PodSpec:
    """Return a pod of a group of its own: groups differ by their image."""
    container = {"name": "c", "image": name, "resources": {"requests": amounts, "limits": amounts}}
    manifest = {
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
        "spec": {"schedulerName": COLOCATION_PROFILE, "containers": [container]},
    }
    return pod_from_manifest(manifest)


def _like(pod: PodSpec, prefix: str, count: int) -> Iterator[PodSpec]:
    for i in range(count):
        name = f"{prefix}{i}"
        yield msgspec.structs.replace(pod, uid=name, key=f"{NAMESPACE}/{name}")
