"""Nodes and pods with devices, and what a team of workers holds of them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.builders import Json, node_manifest, pod_manifest
from tests.property.fold_audit import audit_devices
from tests.property.team import Team, audit

GPU, MILLI = "nvidia.com/gpu", "berth.dev/gpu-milli"


def gpu_node(name: str, count: int = 4, version: int = 1) -> Json:
    manifest = node_manifest(name, cpu="64", resource_version=version)
    for offered in (manifest["status"]["allocatable"], manifest["status"].get("capacity", {})):
        offered[GPU] = str(count)
    return manifest


def gpu_pod(name: str, version: int = 1, node: str | None = None, *, gpu: int = 0, milli: int = 0) -> Json:
    requests = {name: value for name, value in ((GPU, gpu), (MILLI, milli)) if value}
    manifest = pod_manifest(name, cpu="100m", node_name=node, resource_version=version)
    manifest["spec"]["containers"][0]["resources"]["requests"].update(
        (n, str(v)) for n, v in requests.items()
    )
    manifest["spec"]["containers"][0]["resources"]["limits"] = {n: str(v) for n, v in requests.items()}
    return manifest


def asking(name: str, asks: Mapping[str, int], version: int = 1) -> Json:
    return gpu_pod(name, version, gpu=asks.get("gpu", 0), milli=asks.get("milli", 0))


def devices_of(team: Team) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return node and devices of each placed pod, as the ledger has them."""
    return {
        row.opened.name: (row.opened.node, () if row.opened.life is None else row.opened.life.devices)
        for row in team.database.open_placements.values()
    }


def check(team: Team, *, is_full: bool = False) -> None:
    """Compare workers and ledger; unless pods came bound, no device has more than all of it taken."""
    audit(team)
    for planner in team.planners:
        state = planner.scheduler.state
        for name, row in state.table.rows.items():
            audit_devices(state, name, row)
    for node in team.database.nodes.values():
        taken = [value for name, value in node.requested.items() if "#" in name]
        assert is_full or all(0 < each <= 1000 for each in taken)
