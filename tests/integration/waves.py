"""Events that a worker of a test works off, wave after wave."""

from __future__ import annotations

from tests.builders import Json, node_manifest, pod_manifest

SELECTOR = {"matchLabels": {"app": "web"}}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": SELECTOR,
}


def wave(number: int) -> list[Json]:
    """Return events of one of the worker's lives: nodes, pods that spread, one that waits, one that goes."""
    labels = {"app": "web"}
    nodes = [node_manifest(f"n{number}-{zone}", labels={"zone": zone}, cpu=4) for zone in "ab"]
    pods = [
        pod_manifest(
            f"p{number}-{i}", cpu="500m", labels=labels, spec={"topologySpreadConstraints": [SPREAD]}
        )
        for i in range(5)
    ]
    return [
        *(
            {"type": "ADDED", "object": thing}
            for thing in (*nodes, *pods, pod_manifest(f"big{number}", cpu=99))
        ),
        {"type": "DELETED", "object": pods[0]},
    ]
