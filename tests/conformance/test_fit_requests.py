"""Do effective requests, subtracted one by one, give kube-scheduler's verdicts on fitting?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.model.nodes import NodeSpec
from domain.model.pods import PodTemplate

CASES = json.loads((Path(__file__).parent / "cases" / "fit.json").read_text())["cases"]
ORDER = ("cpu", "memory", "ephemeral-storage")


def free_after(node: NodeSpec, bound: list[PodTemplate]) -> dict[str, int]:
    free = dict(node.allocatable)
    for template in bound:
        free["pods"] -= 1
        for name, value in template.requests.items():
            free[name] = free.get(name, 0) - value
    return free


def verdict(free: dict[str, int], template: PodTemplate) -> str:
    if free["pods"] < 1:
        return "too-many-pods"
    short = [name for name, value in template.requests.items() if value > free.get(name, 0)]
    short.sort(key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    return ",".join(f"insufficient:{name}" for name in short)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_verdict(case: dict[str, Any]) -> None:
    nodes = [node_from_manifest(item, strict=False) for item in case["objects"] if item["kind"] == "Node"]
    pods = [pod_from_manifest(item, strict=False) for item in case["objects"] if item["kind"] == "Pod"]
    (asked,) = [pod for pod in pods if pod.key in case["schedule"]]
    found = {
        node.name: verdict(
            free_after(node, [pod.template for pod in pods if pod.node_name == node.name]), asked.template
        )
        for node in nodes
    }
    expected = dict.fromkeys(case["expect"]["feasible"], "") | case["expect"].get("infeasible", {})
    assert found == expected
