"""The cluster on which single parts of the engine are measured: nodes of many sizes, partly used."""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.plain import Picture
from benchmarks.shapes import HOST, ZONE
from domain.cycle.schedule import Scheduler
from domain.kernels import placing
from domain.manifests.profile import profile_from_manifest
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import Profile
from domain.model.signature import signature

RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu-milli")
_GIB = 1 << 30
_WEIGHED = [{"name": name, "weight": 1} for name in RESOURCES]
_SHAPE = [
    {"utilization": 0, "score": 0},
    {"utilization": 60, "score": 10},
    {"utilization": 100, "score": 2},
]
_PROFILE = "default-scheduler"


def _strategy(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "NodeResourcesFit",
        "args": {"scoringStrategy": {"type": name, "resources": _WEIGHED, **more}},
    }


SCORES: Mapping[str, dict[str, Any]] = {
    "LeastAllocated": _strategy("LeastAllocated"),
    "MostAllocated": _strategy("MostAllocated"),
    "RequestedToCapacityRatio": _strategy(
        "RequestedToCapacityRatio", requestedToCapacityRatio={"shape": _SHAPE}
    ),
    "BalancedAllocation": {"name": "NodeResourcesBalancedAllocation", "args": {"resources": _WEIGHED}},
    "GlobalVariance": {"name": "GlobalVariance"},
}
"""The scores that are measured, each with the four resources where it takes several."""


class Cluster:
    """A scheduler with nodes, each of which holds a pod that takes 10 to 60 % of every resource."""

    def __init__(
        self, nodes: int, scoring: str = "LeastAllocated", *, profile: Profile | None = None
    ) -> None:
        profile = profile or profile_from_manifest(
            {"filters": ["NodeResourcesFit"], "scores": [SCORES[scoring]]}
        )
        self.scheduler = Scheduler({_PROFILE: profile}, seed=0)
        self.table = self.scheduler.state.table
        self.random = Random(0)
        self._pods = 0
        for i in range(nodes):
            offered = self._offered()
            name = f"node-{i:05}"
            labels = {HOST: name, ZONE: f"zone-{i % 3}"}
            spec = NodeSpec(name=name, uid=f"u{i}", resource_version=1, allocatable=offered, labels=labels)
            self.scheduler.fold(NodeUpserted(spec))
            share = self.random.uniform(0.1, 0.6)
            self.fold_pod({name: int(offered[name] * share) for name in RESOURCES}, spec.name)
        self.scheduler.cycle()

    def _offered(self) -> dict[str, int]:
        size = self.random.choice((4, 8, 16, 32, 64))
        amounts = (size * 1_000, size * self.random.choice((2, 4, 8)) * _GIB, size * 20 * _GIB, size * 250)
        return dict(zip(RESOURCES, amounts, strict=True)) | {"pods": 256}

    def fold_pod(self, requests: Mapping[str, int], node: str = "") -> PodSpec:
        """Fold a new pod, bound to ``node`` if one is named."""
        self._pods += 1
        template = PodTemplate(
            requests=dict(requests),
            scoring_cpu_milli=requests["cpu"],
            scoring_memory_bytes=requests["memory"],
        )
        pod = PodSpec(
            uid=f"uid-{self._pods}",
            key=f"bench/pod-{self._pods}",
            resource_version=1,
            template=template,
            signature=signature(template),
            node_name=node,
        )
        self.scheduler.fold(PodUpserted(pod))
        return pod

    def asks(self) -> dict[str, int]:
        """Return requests that no pod had before."""
        self._pods += 1
        amounts = (100 + self._pods % 900, _GIB // 8 + self._pods, _GIB // 4 + self._pods, 10)
        return dict(zip(RESOURCES, amounts, strict=True))

    def picture(self) -> Picture:
        """Return the nodes as contiguous columns, as a NumPy program would keep them."""
        index = self.scheduler.state.resources
        rows = [index.column(name) for name in (*RESOURCES, "pods")]
        count = self.table.count
        return Picture(self.table.allocatable[rows, :count], self.table.requested[rows, :count])


def ask_of(requests: Mapping[str, int]) -> np.ndarray:
    """Return requests in the order of the columns' rows. The pod itself counts 1."""
    return np.array([*(requests[name] for name in RESOURCES), 1], dtype=np.int64)


class KernelClock:
    """Measures the processor seconds of the kernel in a cycle, by wrapping the kernel."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._place: Any = placing.place

    def __enter__(self) -> Self:
        self.seconds = 0.0
        placing.place = self._timed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        placing.place = self._place

    def _timed(self, *arguments: Any) -> Any:
        began = time.thread_time()
        answer = self._place(*arguments)
        self.seconds += time.thread_time() - began
        return answer
