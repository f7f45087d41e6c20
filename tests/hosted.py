"""Manifests of hosted workloads, for tests."""

from __future__ import annotations

from typing import Any

from domain.model.config import HOSTED_REPLICAS
from tests.builders import Json, pod_manifest, usage_manifest


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
