"""Do a pod's containers add up to what kube-scheduler says the pod asks for?"""

from __future__ import annotations

from typing import Any

import pytest

from domain.manifests.objects import pod_from_manifest
from domain.model.pods import PodTemplate

GI, MI = 1 << 30, 1 << 20


def container(
    requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests, "limits": limits}, **more}


def sidecar(requests: dict[str, Any]) -> dict[str, Any]:
    return container(requests, restartPolicy="Always")


def template(**spec: Any) -> PodTemplate:
    return pod_from_manifest({"metadata": {"name": "p"}, "spec": spec}, strict=False).template


EFFECTIVE: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "containers add up": (
        {"containers": [container({"cpu": "100m", "memory": "1Gi"}), container({"cpu": "1", "a.b/c": "2"})]},
        {"cpu": 1100, "memory": GI, "a.b/c": 2},
    ),
    "zero is nothing": ({"containers": [container({"cpu": "0", "memory": "1"})]}, {"memory": 1}),
    "the largest init container counts": (
        {
            "containers": [container({"cpu": "1", "memory": "1Gi"})],
            "initContainers": [container({"cpu": "3"}), container({"cpu": "2", "memory": "2Gi"})],
        },
        {"cpu": 3000, "memory": 2 * GI},
    ),
    "sidecars run beside the containers": (
        {"containers": [container({"cpu": "2"})], "initContainers": [sidecar({"cpu": "1"})]},
        {"cpu": 3000},
    ),
    "an init container runs beside the sidecars before it": (
        {
            "containers": [container({"cpu": "1"})],
            "initContainers": [sidecar({"cpu": "1"}), container({"cpu": "5"}), sidecar({"cpu": "2"})],
        },
        {"cpu": 6000},
    ),
    "and not beside those after it": (
        {
            "containers": [container({"cpu": "1"})],
            "initContainers": [container({"cpu": "5"}), sidecar({"cpu": "3"}), sidecar({"cpu": "2"})],
        },
        {"cpu": 6000},
    ),
    "overhead comes on top": (
        {
            "containers": [container({"cpu": "1"})],
            "initContainers": [container({"cpu": "4"})],
            "overhead": {"cpu": "250m", "memory": "120Mi"},
        },
        {"cpu": 4250, "memory": 120 * MI},
    ),
    "pod-level requests replace the sum, overhead still comes on top": (
        {
            "containers": [container({"cpu": "1", "memory": "1Gi", "a.b/c": "1"})],
            "resources": {"requests": {"cpu": "3", "hugepages-2Mi": "4Mi", "a.b/c": "9"}},
            "overhead": {"cpu": "1"},
        },
        {"cpu": 4000, "memory": GI, "hugepages-2Mi": 4 * MI, "a.b/c": 1},
    ),
    "a limit is a request where there is none": (
        {"containers": [container({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"})]},
        {"cpu": 1000, "memory": GI},
    ),
    "a pod-level limit is a request where nobody has one": (
        {"containers": [container({"cpu": "1"})], "resources": {"limits": {"cpu": "4", "memory": "2Gi"}}},
        {"cpu": 1000, "memory": 2 * GI},
    ),
    "fractions are rounded after they are added": (
        {"containers": [container({"memory": "500m"}), container({"memory": "400m"})]},
        {"memory": 1},
    ),
    "each container's cpu is rounded to thousandths": (
        {"containers": [container({"cpu": "0.1m"}), container({"cpu": "0.1m"})]},
        {"cpu": 2},
    ),
}


@pytest.mark.parametrize("case", EFFECTIVE)
def test_effective_requests(case: str) -> None:
    spec, expected = EFFECTIVE[case]
    assert template(**spec).requests == expected


SCORING: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "a container that asks for nothing": ({"containers": [container()]}, (100, 200 * MI)),
    "each of them": ({"containers": [container(), container({"cpu": "1"})]}, (1100, 400 * MI)),
    "an explicit zero stays zero": ({"containers": [container({"cpu": "0", "memory": "0"})]}, (0, 0)),
    "an init container too": (
        {"containers": [container({"cpu": "10m", "memory": "1Mi"})], "initContainers": [container()]},
        (100, 200 * MI),
    ),
    "overhead on top": ({"containers": [container()], "overhead": {"cpu": "1"}}, (1100, 200 * MI)),
    "pod-level requests count as they are": (
        {"containers": [container(), container()], "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
        (1000, GI),
    ),
    "what neither pod nor container names": (
        {"containers": [container(), container()], "resources": {"requests": {"cpu": "1"}}},
        (1000, 400 * MI),
    ),
    "what one container names, beside pod-level requests": (
        {"containers": [container({"memory": "1Mi"}), container()], "resources": {"requests": {"cpu": "1"}}},
        (1000, MI),
    ),
}


@pytest.mark.parametrize("case", SCORING)
def test_scoring_requests(case: str) -> None:
    spec, expected = SCORING[case]
    made = template(**spec)
    assert (made.scoring_cpu_milli, made.scoring_memory_bytes) == expected


FULL = {"cpu": "1", "memory": "1Gi"}
QOS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"containers": [container()]}, "BestEffort"),
    "only a device": ({"containers": [container({"a.b/c": "1"})]}, "BestEffort"),
    "zero": ({"containers": [container({"cpu": "0"}, {"cpu": "0"})]}, "BestEffort"),
    "a request": ({"containers": [container({"cpu": "1"})]}, "Burstable"),
    "limits for all": ({"containers": [container(None, FULL)]}, "Guaranteed"),
    "requests equal to limits": ({"containers": [container(FULL, FULL)]}, "Guaranteed"),
    "a smaller request": ({"containers": [container({"cpu": "500m"}, FULL)]}, "Burstable"),
    "one container without": ({"containers": [container(FULL, FULL), container()]}, "Burstable"),
    "an init container without": (
        {"containers": [container(FULL, FULL)], "initContainers": [container()]},
        "Burstable",
    ),
    "pod-level limits": ({"containers": [container()], "resources": {"limits": FULL}}, "Guaranteed"),
    "pod-level requests": (
        {"containers": [container(FULL, FULL)], "resources": {"requests": FULL}},
        "Burstable",
    ),
}


@pytest.mark.parametrize("case", QOS)
def test_qos_class(case: str) -> None:
    spec, expected = QOS[case]
    assert template(**spec).qos_class == expected


def test_the_qos_class_that_the_cluster_gives_wins() -> None:
    manifest = {
        "metadata": {"name": "p"},
        "spec": {"containers": [container()]},
        "status": {"qosClass": "Guaranteed"},
    }
    assert pod_from_manifest(manifest).template.qos_class == "Guaranteed"
