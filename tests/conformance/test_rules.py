"""Do plans keep to rules of kube-scheduler and its plugins that no case of the tables shows?"""

from __future__ import annotations

from typing import Any

import pytest

from domain.engine.evaluate import Verdict
from domain.model.errors import FieldError
from services.plan.objects import Given
from services.plan.plan import Plan
from services.plan.scenario import plan_scenario

MIB = 1 << 20
RISING = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
FALLING = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node(name: str = "n", labels: dict[str, str] | None = None, **offered: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"} | offered
    status = {"capacity": amounts, "allocatable": amounts}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels or {}}, "status": status}


def pod(*containers: dict[str, str], **spec: Any) -> dict[str, Any]:
    written = [{"name": f"c{i}", "resources": {"requests": asked}} for i, asked in enumerate(containers)]
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": written, **spec}}


def affine(terms: list[Any] | None = None, preferred: list[Any] | None = None) -> dict[str, Any]:
    affinity: dict[str, Any] = {} if terms is None else {REQUIRED: {"nodeSelectorTerms": terms}}
    return pod({}, affinity={"nodeAffinity": affinity | ({PREFERRED: preferred} if preferred else {})})


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def planned(
    asked: dict[str, Any],
    *nodes: dict[str, Any],
    filters: tuple[Any, ...] = (),
    score: dict[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
) -> Verdict:
    profile = {"filters": list(filters), "scores": [] if score is None else [score]}
    objects = [*(nodes or (node(),)), asked]
    (verdict,) = plan_scenario({"objects": objects, "profile": profile, "usage": usage})
    return verdict


def strategy(kind: str, *resources: str, shape: list[Any] | None = None) -> dict[str, Any]:
    listed = [{"name": name, "weight": 1} for name in resources]
    ratio = {} if shape is None else {"requestedToCapacityRatio": {"shape": shape}}
    args = {"scoringStrategy": {"type": kind, "resources": listed, **ratio}}
    return {"name": "NodeResourcesFit", "args": args}


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["a.io/x", "a.kubernetes.io/x", "hugepages-2Mi"], []),
        ([], ["a.io", "a.kubernetes.io", "hugepages-2Mi"]),
    ],
)
def test_only_extended_resources_can_be_ignored(names: list[str], groups: list[str]) -> None:
    fit = {"name": "NodeResourcesFit", "args": {"ignoredResources": names, "ignoredResourceGroups": groups}}
    asked = pod({"a.io/x": "1", "a.kubernetes.io/x": "1", "hugepages-2Mi": "2Mi"})
    assert planned(asked, filters=(fit,)).infeasible == {
        "n": "insufficient:a.kubernetes.io/x,insufficient:hugepages-2Mi"
    }


@pytest.mark.parametrize(
    ("cpu", "shape", "score"),
    [
        ("30m", RISING, 50.0),  # less than one whole percent is 0 in whole numbers: memory alone counts
        ("40m", RISING, 25.5),
        ("3990m", FALLING, 25.125),  # below 100 % the falling line is still above 0 in whole numbers
        ("4", FALLING, 50.0),
        ("30m", FALLING, 74.625),
    ],
)
def test_a_curve_counts_where_it_is_above_zero_in_whole_numbers(
    cpu: str, shape: list[Any], score: float
) -> None:
    use = strategy("RequestedToCapacityRatio", "cpu", "memory", shape=shape)
    assert planned(pod({"cpu": cpu, "memory": "4Gi"}), score=use).scores == {"n": pytest.approx(score)}


def test_a_curve_may_count_in_several_spans() -> None:
    bumps = [{"utilization": u, "score": s} for u, s in ((0, 5), (25, 0), (50, 0), (75, 5))]
    use = strategy("RequestedToCapacityRatio", "cpu", "memory", shape=bumps)
    found = {
        cpu: planned(pod({"cpu": cpu, "memory": "8Gi"}), score=use).scores["n"] for cpu in ("0", "1", "3")
    }
    assert found == {"0": pytest.approx(50.0), "1": pytest.approx(50.0), "3": pytest.approx(50.0)}
    low = planned(pod({"cpu": "960m", "memory": "8Gi"}), score=use).scores["n"]
    assert low == pytest.approx((2.0 + 50.0) / 2)


@pytest.mark.parametrize("other", ["pods", "attachable-volumes-csi", "a.io/x"])
def test_only_cpu_memory_and_ephemeral_storage_count_unasked(other: str) -> None:
    asked, has = (
        pod({"cpu": "1", "memory": "4Gi"}),
        node("n", None, **{other: "10", "ephemeral-storage": "1Gi"}),
    )
    assert planned(asked, has, score=strategy("LeastAllocated", "cpu", other)).scores == {"n": 75.0}
    both = strategy("LeastAllocated", "cpu", "ephemeral-storage", other)
    assert planned(asked, has, score=both).scores == {"n": 87.5}
    alone = {"name": "NodeResourcesBalancedAllocation", "args": {"resources": [{"name": other}]}}
    assert planned(asked, has, score=alone).scores == {"n": 0.0}


def test_nodes_that_differ_by_less_than_the_unit_are_equally_large() -> None:
    nodes = (node("a", memory=str(8 * MIB + 10_000)), node("b", memory=str(8 * MIB + 900_000)))
    assert planned(pod({}), *nodes, score={"name": "NodeResourcesAllocatable"}).scores == {"a": 0.0, "b": 0.0}
    larger = (*nodes, node("c", memory=str(10 * MIB)))
    found = planned(pod({}), *larger, score={"name": "NodeResourcesAllocatable"}).scores
    assert found == {"a": 100.0, "b": 100.0, "c": 0.0}


def test_a_container_that_asks_for_no_cpu_draws_power() -> None:
    use = {"name": "Peaks", "args": {"nodePowerModel": {n: {"k1": 1, "k2": 0.01} for n in ("n", "m")}}}
    usage = {name: {"cpu": {"avg": 10}} for name in ("n", "m")}
    nodes = (node(), node("m", cpu="8"))
    silent, said = (
        planned(each, *nodes, score=use, usage=usage).scores for each in (pod({}, {}), pod({"cpu": "200m"}))
    )
    assert silent == said == {"n": 0.0, "m": 100.0}
    assert planned(pod(), *nodes, score=use, usage=usage).scores == {"n": 0.0, "m": 0.0}


def test_a_weight_of_risk_that_is_no_share_is_the_default() -> None:
    usage = {"n": {"cpu": {"avg": 90, "std": 5}, "memory": {"avg": 90, "std": 5}}}
    asked = pod({"cpu": "1", "memory": "6Gi"})
    asked["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "8", "memory": "9Gi"}

    def scored(cpu: float, memory: float) -> float:
        weights = {"riskLimitWeights": {"cpu": cpu, "memory": memory}}
        use = {"name": "LowRiskOverCommitment", "args": weights}
        return planned(asked, score=use, usage=usage).scores["n"]

    assert scored(-1, 2) == scored(0.5, 0.5) != scored(1, 0)


# What the API of Kubernetes refuses, its scheduler still has a rule for; a scenario may hold such objects.


@pytest.mark.parametrize(
    "wrong",
    [
        expression("zone", "NotIn", "no value!"),
        expression("zone", "NotIn"),
        expression("zone", "Exists", "a"),
        expression("no key!", "DoesNotExist"),
        expression("rank", "Gt", "1.5"),
        expression("rank", "Gt", "-5"),
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]},
    ],
    ids=str,
)
def test_a_term_with_a_mistake_matches_no_node_but_another_may(wrong: dict[str, Any]) -> None:
    has = node(labels={"zone": "a", "rank": "7"})
    verdict = planned(affine([wrong]), has, filters=("NodeAffinity",))
    assert (verdict.infeasible, verdict.unresolvable) == ({"n": "node-affinity"}, ["n"])
    right = expression("zone", "In", "a")
    assert planned(affine([wrong, right]), has, filters=("NodeAffinity",)).feasible == ["n"]


def test_a_preferred_term_of_weight_zero_is_not_there() -> None:
    nodes = (node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}))
    terms = [{"weight": w, "preference": expression("zone", "In", z)} for w, z in ((0, "a"), (3, "b"))]
    found = planned(affine(preferred=terms), *nodes, score={"name": "NodeAffinity"}).scores
    assert found == {"a": 0.0, "b": 100.0}


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        (
            affine([expression("zone", "NotIn", "no value!")]),
            "nodeSelectorTerms[0].matchExpressions[0].values[0]",
        ),
        (affine(preferred=[{"weight": 0, "preference": expression("zone", "Exists")}]), "weight"),
    ],
)
def test_among_plain_manifests_a_mistake_is_an_error(asked: dict[str, Any], path: str) -> None:
    with pytest.raises(FieldError) as error:
        Plan().add(Given("ADDED", asked, "object"))
    assert error.value.path.endswith(path)
