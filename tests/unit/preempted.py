"""Sites whose nodes are full of pods of low priority, and what was told of pods there."""

from __future__ import annotations

from typing import Any

from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site, audit, kept

AT_MS = 1_700_000_000_000


def site_of(nodes: int = 1, *, pods_each: int = 2) -> Site:
    """Return a site whose nodes of 4 cores are full of pods of priority 0."""
    site = Site(preempts=True)
    site.tell("ADDED", *(node_manifest(f"n{i}", cpu=4, resource_version=1) for i in range(nodes)))
    low = [pod_manifest(f"low{i}", cpu=4 // pods_each, priority=0) for i in range(nodes * pods_each)]
    site.tell("ADDED", *low)
    return site


def high(name: str = "high", **more: Any) -> Json:
    return pod_manifest(name, **{"cpu": 4, "priority": 10, **more})


def told(site: Site, *names: str) -> list[tuple[str, str, str | None]]:
    """Return name, outcome and node of each decision about some pods; of all but the first ones."""
    rows = [row for row in site.decided() if row["pod"]["name"] in names]
    return [(row["pod"]["name"], row["outcome"], row["node"]) for row in rows]


def victims(site: Site) -> list[str]:
    return sorted(row["pod"]["name"] for row in site.decided() if row["outcome"] == "evicted")


def leave(site: Site, *names: str, at_ms: int = AT_MS) -> None:
    site.tell("DELETED", *(pod_manifest(name) for name in names), at_ms=at_ms)


def same_after_a_restart(site: Site) -> None:
    audit(site)
    assert kept(site.planner) == kept(site.restarted())
