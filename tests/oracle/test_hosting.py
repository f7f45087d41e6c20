"""Are the load of the nodes of a workload, and how many more pods fit, what plain looks at all nodes say?"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.model.events import ConfigUpserted, NodeUpserted, PodUpserted
from domain.model.hosting import HostedReplicas
from domain.model.pods import PodSpec
from domain.state.steps import Written
from services.plan.capacity import how_many
from services.plan.objects import Given
from services.plan.plan import Plan
from tests.builders import Json, node_manifest
from tests.hosted import House, member_manifest

GI = 1 << 30
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


def drawn(random: Random) -> tuple[list[Json], list[Json], dict[str, float]]:
    """Return nodes, pods that run on them, the last of them of the workload, and the cores that are used."""
    nodes = [
        node_manifest(
            f"n{i}",
            cpu=random.choice((4, 8, 16)),
            memory=random.choice(("8Gi", "64Gi")),
            labels={"zone": random.choice("abc"), "kubernetes.io/hostname": f"n{i}"},
            taints=[TAINT] if random.random() < 0.3 else [],
            unschedulable=random.random() < 0.1,
        )
        for i in range(random.randrange(2, 9))
    ]
    fields: dict[str, Any] = {"cpu": random.choice(("500m", 1, 3)), "memory": "1Gi", "labels": {"app": "web"}}
    if random.random() < 0.5:
        fields["node_selector"] = {"zone": random.choice("ab")}
    if random.random() < 0.5:
        fields["tolerations"] = [{"key": "k", "operator": "Exists"}]
    if random.random() < 0.4:
        term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
        fields["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    elif random.random() < 0.5:
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        fields["spec"] = {
            "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": "web"}}}]
        }
    pods = [
        member_manifest(f"db{i}", owner="db", cpu=1, node_name=f"n{random.randrange(len(nodes))}")
        for i in range(random.randrange(6))
    ]
    pods.append(member_manifest("web-0", **fields, node_name=f"n{random.randrange(len(nodes))}"))
    used = {f"n{i}": random.randrange(30) / 10 for i in range(len(nodes)) if random.random() < 0.8}
    return nodes, pods, used


def house_of(nodes: list[Json], pods: list[Json], used: dict[str, float], most: int) -> House:
    house = House(0)
    for node in nodes:
        house.scheduler.fold(NodeUpserted(node_from_manifest(node)))
    for pod in pods:
        house.scheduler.fold(PodUpserted(pod_from_manifest(pod)))
    house.scheduler.fold(Written({f"default/{pod['metadata']['name']}": house.now_ms for pod in pods}))
    content = HostedReplicas(kind="ReplicaSet", workload="web", least=1, most=most)
    house.scheduler.fold(ConfigUpserted("HostedReplicas", "default", "web", content, None))
    for name, cores in used.items():
        house.measure(name, cores)
    house.cycle()
    return house


def planned(nodes: list[Json], pods: list[Json]) -> int:
    """Return how many more pods like the last one fit, by ``berth plan --how-many``."""
    plan = Plan(seed=1)
    for manifest in (*nodes, *pods):
        plan.add(Given("ADDED", manifest))
    made = pod_from_manifest({**pods[-1], "spec": {**pods[-1]["spec"], "nodeName": None}})
    assert isinstance(made, PodSpec)
    return len(how_many(plan, made).placed)


def plain_load(nodes: list[Json], pod: Json, used: dict[str, float]) -> float | None:
    """Return the load of the nodes that a pod may go to, in percent, node by node."""
    amounts = {"cpu": [0.0, 0.0], "memory": [0.0, 0.0]}
    for node in nodes:
        name, spec = node["metadata"]["name"], node["spec"]
        selector, tolerates = pod["spec"].get("nodeSelector", {}), bool(pod["spec"].get("tolerations"))
        fits = selector.items() <= node["metadata"]["labels"].items() and not spec.get("unschedulable")
        if name not in used or not fits or (spec.get("taints") and not tolerates):
            continue
        amounts["cpu"][0] += used[name]
        amounts["cpu"][1] += float(node["status"]["capacity"]["cpu"])
        amounts["memory"][0] += 1
        amounts["memory"][1] += float(node["status"]["capacity"]["memory"].removesuffix("Gi"))
    return max((100 * use / there for use, there in amounts.values() if there), default=None)


@pytest.mark.parametrize("seed", range(60))
def test_load_and_room_are_those_of_plain_looks(seed: int) -> None:
    nodes, pods, used = drawn(Random(seed))
    said = house_of(nodes, pods, used, 10_000).one()
    load, fit = plain_load(nodes, pods[-1], used), planned(nodes, pods)
    assert said.load_percent == (None if load is None else pytest.approx(load, abs=0.051))
    assert said.running == 1
    if load is None or said.load_percent is None or 60 <= said.load_percent <= 80:
        assert said.wanted == 1
    elif said.load_percent > 80:
        assert said.wanted == 1, "the least"
    else:
        assert said.wanted == 1 + fit
        assert f": {fit} more fit" in said.reason


def test_the_draws_see_all_of_it() -> None:
    draws = [drawn(Random(seed)) for seed in range(60)]
    fits = [planned(nodes, pods) for nodes, pods, _ in draws]
    loads = [plain_load(nodes, pods[-1], used) for nodes, pods, used in draws]
    assert sum(fit > 1 for fit in fits) > 20
    assert any(fit == 0 for fit in fits)
    assert any(load is None for load in loads)
