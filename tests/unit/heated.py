"""Sites with a hot node, whose pods have run for long."""

from __future__ import annotations

from typing import Any

from tests.builders import Json, node_manifest, pod_manifest, usage_manifest
from tests.property.site import Site
from tests.unit.preempted import AT_MS

STEP_MS = 10_000
HOT_MS = AT_MS + 600_000
"""The moment of the fifth bad sample of node hot."""


def owned(name: str, by: str = "", kind: str = "ReplicaSet", **more: Any) -> Json:
    """Return a pod of a controller, of its own where none is named."""
    pod = pod_manifest(name, **{"cpu": 2, **more})
    controller = {"kind": kind, "name": by or f"of-{name}", "uid": f"u-{by or name}", "controller": True}
    pod["metadata"]["ownerReferences"] = [{**controller, "apiVersion": "apps/v1"}]
    return pod


def measure(node: str, cores: float = 9.0) -> Json:
    """Return a measurement of a node of ten cores; nine of them in use are a bad sample."""
    return usage_manifest(node, quality={"mid": {"cpu": str(cores), "memory": "1Gi"}})


def heat(site: Site, node: str = "hot", until_ms: int = HOT_MS) -> None:
    """Measure a node five times, up to a moment."""
    for ago in range(4, -1, -1):
        site.tell("ADDED", measure(node), at_ms=until_ms - ago * STEP_MS)


def cluster(*pods: Json) -> Site:
    """Return a site of two nodes, on one of which some pods run."""
    site = Site(preempts=True)
    site.tell("ADDED", *(node_manifest(name, cpu=10, memory="64Gi") for name in ("hot", "cool")))
    site.tell("ADDED", *pods)
    return site


def hot_site(*pods: Json) -> Site:
    """Return a site on whose hot node a pod that suffices was just told to leave."""
    site = cluster(*(pods or [owned("web", node_name="hot"), owned("small", node_name="hot", cpu=1)]))
    heat(site)
    return site
