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


def reported(name: str, **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


def pending(reason: str) -> list[dict[str, str]]:
    return [{"type": "PodReady"}, {"type": "PodResizePending", "reason": reason}]


ONE = {"containers": [{**container({"cpu": "2", "memory": "1Gi"}), "name": "a"}]}
RESIZED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = {
    "what is in force still counts": (
        ONE,
        {"containerStatuses": [reported("a", cpu="3", memory="512Mi")]},
        {"cpu": 3000, "memory": GI},
    ),
    "what is set aside counts": (
        ONE,
        {"containerStatuses": [{**reported("a", cpu="1"), "allocatedResources": {"memory": "2Gi"}}]},
        {"cpu": 2000, "memory": 2 * GI},
    ),
    "but not where nothing is in force": (
        ONE,
        {"containerStatuses": [{"name": "a", "allocatedResources": {"memory": "2Gi"}}]},
        {"cpu": 2000, "memory": GI},
    ),
    "what a node cannot give does not count": (
        ONE,
        {"containerStatuses": [reported("a", cpu="1", memory="1Gi")], "conditions": pending("Infeasible")},
        {"cpu": 1000, "memory": GI},
    ),
    "what it gives later does": (
        ONE,
        {"containerStatuses": [reported("a", cpu="1", memory="1Gi")], "conditions": pending("Deferred")},
        {"cpu": 2000, "memory": GI},
    ),
    "another container's status is of no matter": (
        ONE,
        {"containerStatuses": [reported("b", cpu="9")]},
        {"cpu": 2000, "memory": GI},
    ),
    "a limit is a request": (
        {"containers": [{**container(limits={"cpu": "2"}), "name": "a"}]},
        {"containerStatuses": [reported("a", cpu="1")]},
        {"cpu": 2000},
    ),
    "sidecars change, plain init containers do not": (
        {
            **ONE,
            "initContainers": [
                {**sidecar({"cpu": "1"}), "name": "s"},
                {**container({"cpu": "1"}), "name": "i"},
            ],
        },
        {"initContainerStatuses": [reported("s", cpu="4"), reported("i", cpu="9")]},
        {"cpu": 6000, "memory": GI},
    ),
    "so does the pod as a whole": (
        {**ONE, "resources": {"requests": {"cpu": "4"}}},
        {"resources": {"requests": {"cpu": "5", "memory": "9Gi"}}, "allocatedResources": {"cpu": "6"}},
        {"cpu": 6000, "memory": GI},
    ),
    "and falls to nothing": (
        {**ONE, "resources": {"requests": {"cpu": "4"}}},
        {"resources": {}, "conditions": pending("Infeasible")},
        {"memory": GI},
    ),
}


@pytest.mark.parametrize("case", RESIZED)
def test_a_bound_pod_counts_what_its_status_says(case: str) -> None:
    spec, status, requests = RESIZED[case]
    bound = {"metadata": {"name": "p"}, "spec": {**spec, "nodeName": "n"}, "status": status}
    assert pod_from_manifest(bound, strict=False).template.requests == requests
    waiting = {"metadata": {"name": "p"}, "spec": spec, "status": status}
    assert pod_from_manifest(waiting, strict=False).template == template(**spec)


def test_scoring_assumes_a_default_only_for_what_no_status_gives() -> None:
    spec = {"containers": [{"name": "a"}], "nodeName": "n"}
    status = {"containerStatuses": [reported("a", cpu="3")]}
    found = pod_from_manifest({"metadata": {"name": "p"}, "spec": spec, "status": status}).template
    assert (found.scoring_cpu_milli, found.scoring_memory_bytes) == (3000, 200 * MI)
