"""Small makers of domain values, with what a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import HostPort, PodSpec, PodTemplate
from domain.model.signature import signature

GIB = 1 << 30


def node(
    name: str,
    cpu: int = 4_000,
    memory: int = 8 * GIB,
    pods: int = 110,
    *,
    version: int | None = 1,
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    extended: Mapping[str, int] | None = None,
    declared_features: tuple[str, ...] = (),
) -> NodeSpec:
    """Return a node; ``extended`` names further resources."""
    return NodeSpec(
        name=name,
        uid=uid or f"uid-of-{name}",
        resource_version=version,
        labels=dict(labels or {}),
        taints=taints,
        unschedulable=unschedulable,
        allocatable={"cpu": cpu, "memory": memory, "pods": pods, **(extended or {})},
        declared_features=declared_features,
    )


def template(cpu: int = 0, memory: int = 0, *ports: int, **fields: Any) -> PodTemplate:
    """Return a template; what asks for no cpu or memory scores as 100m and 200 MiB."""
    requests = {**fields.pop("requests", {}), **({"cpu": cpu} if cpu else {})}
    if memory:
        requests["memory"] = memory
    return PodTemplate(
        requests=requests,
        scoring_cpu_milli=requests.get("cpu", 100),
        scoring_memory_bytes=requests.get("memory", 200 << 20),
        host_ports=fields.pop("host_ports", tuple(HostPort(port) for port in ports)),
        **fields,
    )


def pod(
    name: str,
    of: PodTemplate | None = None,
    *,
    on: str = "",
    version: int | None = 1,
    uid: str = "",
    namespace: str = "default",
    finished: bool = False,
    labels: Mapping[str, str] | None = None,
) -> PodSpec:
    """Return a pod of a template, bound to node ``on`` if one is named."""
    shape = of if of is not None else template(cpu=100, memory=GIB)
    return PodSpec(
        uid=uid or f"uid-of-{namespace}-{name}",
        key=f"{namespace}/{name}",
        resource_version=version,
        template=shape,
        signature=signature(shape),
        labels=dict(labels or {}),
        node_name=on,
        finished=finished,
    )
