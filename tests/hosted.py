"""Hosted workloads for tests: their manifests, and a scheduler that hosts one."""

from __future__ import annotations

from typing import Any

from domain.cycle.schedule import Scheduler
from domain.manifests.objects import convert_manifest, node_from_manifest, pod_from_manifest
from domain.manifests.usage import WireNodeUsage, usage_from_wire
from domain.model.config import HOSTED_REPLICAS
from domain.model.events import ConfigUpserted, NodeUpserted, NodeUsed, PodUpserted
from domain.model.hosting import HostedReplicas, ReplicasSaid, WorkloadKey
from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.steps import HostedSaid, Written
from tests.builders import Json, node_manifest, pod_manifest, usage_manifest

STEP_MS = 30_000
WEB = WorkloadKey("default", "ReplicaSet", "web")


def hosted_manifest(name: str = "web", namespace: str = "default", **spec: Any) -> Json:
    """Return a HostedReplicas of the ReplicaSet ``web``; ``spec`` replaces fields of its spec."""
    whole = {"workload": {"kind": "ReplicaSet", "name": "web"}, "min": 1, "max": 100} | spec
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "berth/v1", "kind": HOSTED_REPLICAS, "metadata": metadata, "spec": whole}


def member_manifest(name: str, owner: str = "web", *, terminating: bool = False, **fields: Any) -> Json:
    """Return a Pod that a ReplicaSet controls."""
    made = pod_manifest(name, **fields)
    if terminating:
        made["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    ]
    return made


def use_manifest(node: str, cores: float) -> Json:
    """Return a NodeUsage by which high pods use so many cores."""
    return usage_manifest(node, quality={"high": {"cpu": f"{round(1_000 * cores)}m", "memory": "1Gi"}})


class House:
    """Nodes with 10 cores each, and a workload whose pods ask for one."""

    def __init__(self, nodes: int = 2) -> None:
        self.scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
        self.now_ms, self.waits = 10 * STEP_MS, dict[WorkloadKey, int]()
        for number in range(nodes):
            self.node(f"n{number}")

    @property
    def state(self) -> Any:
        return self.scheduler.state

    def node(self, name: str, **fields: Any) -> None:
        self.scheduler.fold(NodeUpserted(node_from_manifest(node_manifest(name, cpu=10, **fields))))

    def host(self, least: int = 1, most: int = 100, name: str = "web", workload: str = "web") -> None:
        content = HostedReplicas(kind="ReplicaSet", workload=workload, least=least, most=most)
        self.scheduler.fold(ConfigUpserted(HOSTED_REPLICAS, "default", name, content, None))

    def pod(self, name: str, **fields: Any) -> None:
        self.scheduler.fold(PodUpserted(pod_from_manifest(member_manifest(name, **{"cpu": 1} | fields))))

    def measure(self, node: str, cores: float, at_ms: int | None = None) -> None:
        wire = convert_manifest(use_manifest(node, cores), WireNodeUsage, "")
        self.scheduler.fold(NodeUsed(usage_from_wire(wire, at_ms or self.now_ms, "")))

    def cycle(self) -> None:
        placed = {}
        while self.scheduler.has_work:
            for verdict in self.scheduler.cycle(self.now_ms).verdicts:
                placed[verdict.pod.key] = self.now_ms
        self.scheduler.fold(Written(placed))

    def say(self) -> list[ReplicasSaid]:
        change = self.scheduler.decide_replicas(self.now_ms, self.waits)
        self.scheduler.fold(HostedSaid(change))
        self.now_ms += STEP_MS
        return change.said

    def one(self) -> ReplicasSaid:
        (said,) = self.say()
        return said
