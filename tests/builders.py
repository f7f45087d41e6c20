"""Small makers of manifests and events, as a producer would write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from services.ports.log import Record

Json = dict[str, Any]


def node_manifest(
    name: str,
    cpu: str | int | None = "4",
    memory: str | int | None = "8Gi",
    pods: str | int | None = 110,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
    uid: str | None = None,
    resource_version: int | None = None,
    **extended: str | int,
) -> Json:
    """Return a v1 Node; ``extended`` names further resources, ``{"nvidia.com/gpu": 8}`` with ``**``."""
    resources = {"cpu": cpu, "memory": memory, "pods": pods, **extended}
    offered = {key: str(value) for key, value in resources.items() if value is not None}
    spec: Json = {}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, None, labels, uid, resource_version),
        "spec": spec,
        "status": {"capacity": offered, "allocatable": dict(offered)},
    }


def pod_manifest(
    name: str,
    namespace: str = "default",
    cpu: str | int | None = None,
    memory: str | int | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    node_name: str | None = None,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
    affinity: Mapping[str, Any] | None = None,
    host_port: int | None = None,
    priority: int | None = None,
    scheduler_name: str | None = None,
    phase: str | None = None,
    uid: str | None = None,
    resource_version: int | None = None,
    spec: Mapping[str, Any] | None = None,
    **extended: str | int,
) -> Json:
    """Return a v1 Pod with one container; ``spec`` adds or replaces fields of its spec."""
    resources = {"cpu": cpu, "memory": memory, **extended}
    requests = {key: str(value) for key, value in resources.items() if value is not None}
    container: Json = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    if host_port is not None:
        container["ports"] = [{"containerPort": host_port, "hostPort": host_port}]
    optional: Json = {
        "nodeName": node_name,
        "nodeSelector": node_selector,
        "tolerations": [dict(item) for item in tolerations] or None,
        "affinity": affinity,
        "priority": priority,
        "schedulerName": scheduler_name,
    }
    body: Json = {"containers": [container]}
    body.update((key, value) for key, value in optional.items() if value is not None)
    body.update(spec or {})
    manifest: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, namespace, labels, uid, resource_version),
        "spec": body,
    }
    if phase is not None:
        manifest["status"] = {"phase": phase}
    return manifest


def profile_manifest(
    name: str, strategy: str = "MostAllocated", *, resource_version: int | None = None, **spec: Any
) -> Json:
    """Return a SchedulingProfile that packs or spreads; ``spec`` adds or replaces fields of its spec."""
    args = {"scoringStrategy": {"type": strategy}}
    body: Json = {"filters": ["NodeResourcesFit"], "scores": [{"name": "NodeResourcesFit", "args": args}]}
    return {
        "apiVersion": "berth/v1",
        "kind": "SchedulingProfile",
        "metadata": _metadata(name, None, None, None, resource_version),
        "spec": body | spec,
    }


def priority_class_manifest(
    name: str, value: int = 1000, *, resource_version: int | None = None, **fields: Any
) -> Json:
    """Return a PriorityClass; ``fields`` are globalDefault, preemptionPolicy and others."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": _metadata(name, None, None, None, resource_version),
        "value": value,
        **fields,
    }


def pod_group_manifest(
    name: str,
    min_member: int,
    namespace: str = "default",
    *,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Return a PodGroup of scheduler-plugins; ``spec`` adds fields of its spec."""
    more = {} if annotations is None else {"annotations": dict(annotations)}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": _metadata(name, namespace, None, None, None) | more,
        "spec": {"minMember": min_member, **spec},
    }


def action_manifest(node: str = "n1", **fields: Any) -> dict[str, Any]:
    """Return a NodeAction: low pods have another quota; ``fields`` say something else."""
    said = {"action": "quota", "quality": "low", "amount": "2", "reason": "2.00 cores are left for low pods"}
    return {"apiVersion": "berth/v1", "kind": "NodeAction", "metadata": {"name": node}, **said, **fields}


def usage_manifest(node: str, **fields: Any) -> Json:
    """Return a NodeUsage; ``fields`` are percent, used and window."""
    return {"apiVersion": "berth/v1", "kind": "NodeUsage", "metadata": {"name": node}, **fields}


def _metadata(
    name: str,
    namespace: str | None,
    labels: Mapping[str, str] | None,
    uid: str | None,
    resource_version: int | None,
) -> Json:
    fields: Json = {
        "name": name,
        "namespace": namespace,
        "labels": None if labels is None else dict(labels),
        "uid": uid,
        "resourceVersion": None if resource_version is None else str(resource_version),
    }
    return {key: value for key, value in fields.items() if value is not None}


def event(type: str, object: Mapping[str, Any], at: str | None = None, id: str | None = None) -> Json:
    """Return an event about an object."""
    fields = {"type": type, "object": dict(object), "at": at, "id": id}
    return {key: value for key, value in fields.items() if value is not None}


def event_bytes(type: str, object: Mapping[str, Any], at: str | None = None, id: str | None = None) -> bytes:
    """Return an event about an object as the log carries it."""
    return orjson.dumps(event(type, object, at, id))


def without_recorded_at(value: bytes) -> bytes:
    """Return a record of ``berth.decisions`` as the ledger holds it: less when that was committed."""
    payload, _, stamp = value.rpartition(b',"recorded_at":"')
    assert stamp.endswith(b'Z"}'), f"no recorded_at at the end of {value!r}"
    return payload + b"}"


def record(
    topic: str,
    value: bytes | None,
    key: bytes | None = None,
    *,
    partition: int = 0,
    offset: int = 0,
    timestamp_ms: int = 1_700_000_000_000,
) -> Record:
    """Return a record as a reader gives it."""
    return Record(topic, partition, offset, key, value, timestamp_ms)
