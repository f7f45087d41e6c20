"""Do the scores and metrics of the paper on search give its worked examples, on the real engine?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from domain.engine.evaluate import evaluate
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.profiles import PluginUse, Profile
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from research.search.balance import balance, imbalance
from tests.conformance.tables import formula_cases
from tests.oracle import paper_scoring
from tests.values import node, pod, template

NAMES = {
    "cpu": "cpu",
    "mem": "memory",
    "memory": "memory",
    "net": "berth.io/bandwidth",
    "disk": "berth.io/disk",
}
KINDS = ("compressible", "incompressible", "balanced")


def cases(*equations: str) -> list[Any]:
    found = [case for case in formula_cases() if case["equation"] in equations]
    assert found
    return [pytest.param(case, id=case["name"]) for case in found]


def score(
    use: PluginUse, total: Mapping[str, int], used: Mapping[str, int], asked: Mapping[str, int]
) -> float:
    """Return the score of one node for a pod, by the kernel."""
    state = ClusterState(seed=1)
    offered = {NAMES.get(name, name): amount for name, amount in total.items()}
    extended = {name: amount for name, amount in offered.items() if "/" in name}
    state.apply(NodeUpserted(node("n", cpu=offered["cpu"], memory=offered["memory"], extended=extended)))
    for name, amounts, on in (("there", used, "n"), ("asked", asked, "")):
        requests = {NAMES.get(each, each): amount for each, amount in amounts.items()}
        if name == "there":
            state.apply(PodUpserted(pod(name, template(requests=requests), on=on)))
    plan = ProfilePlan(Profile(name="p", scores=(use,)))
    found = evaluate(state, plan, pod("asked", template(requests=requests))).scores["n"]
    return float(found)


@pytest.mark.parametrize("case", cases("1", "2"))
def test_the_baselines_are_ten_times_the_papers_scale(case: Any) -> None:
    use = PluginUse(name="LRA" if case["equation"] == "1" else "BRA")
    at = case["in"]
    half = {name: amount // 2 for name, amount in at["used_with_pod"].items()}
    found = score(use, at["total"], half, half)
    assert found / 10 == pytest.approx(case["expect"]["score"]["value"], abs=1e-12)


@pytest.mark.parametrize("case", cases("16"))
def test_types_of_pods(case: Any) -> None:
    """The type shows in the score: each has the weights of one resource alone."""
    at, wanted = case["in"], case["expect"]["type"] or "balanced"
    alone = {kind: [float(i == k) for i in range(4)] for k, kind in enumerate(KINDS)}
    use = PluginUse(name="SearchScore", args={"availableWeights": alone, "loadWeights": alone})
    nothing = dict.fromkeys(at["pod"], 0)
    found = 3 * score(use, at["node_total"], nothing, at["pod"]) / 100 - 1
    share = case["expect"]["C"][list(at["pod"])[KINDS.index(wanted)]]["value"]
    assert found == pytest.approx(1 - share + 0.8 - share)
    assert paper_scoring.pod_type([*at["pod"].values()], [*at["node_total"].values()]) == wanted


def paired() -> list[Any]:
    """Return the examples of R_N, L_N and S_N that belong together."""
    thirds = [[case for case in formula_cases() if case["equation"] == e] for e in ("17-21", "22-26", "27")]
    thirds[2] = [case for case in thirds[2] if "S_N" in case["expect"]]
    assert [len(each) for each in thirds] == [4, 4, 4]
    return [pytest.param(*each, id=each[2]["name"]) for each in zip(*thirds, strict=True)]


@pytest.mark.parametrize(("left", "loaded", "summed"), paired())
def test_the_score_of_a_node(left: Any, loaded: Any, summed: Any) -> None:
    at, then = left["in"], loaded["in"]
    asked, used, total, mu = ([*at[key].values()] for key in ("pod", "used", "total", "mu"))
    critical, v = ([*then[key].values()] for key in ("critical_load_T", "v"))
    assert paper_scoring.available(asked, used, total, mu) == pytest.approx(left["expect"]["R_N"]["value"])
    of_load = paper_scoring.load(asked, used, [None] * 4, total, critical, v, [0.0] * 4)
    assert of_load == pytest.approx(loaded["expect"]["L_N"]["value"])
    assert scored(at, then) == pytest.approx(summed["expect"]["S_N"]["value"], abs=1e-12)


def scored(left: Any, loaded: Any) -> float:
    """Return S_N of a node, from the score that the kernel gives it."""
    args = {
        "criticalLoads": [*loaded["critical_load_T"].values()],
        "availableWeights": {kind: [*left["mu"].values()] for kind in KINDS},
        "loadWeights": {kind: [*loaded["v"].values()] for kind in KINDS},
    }
    found = score(PluginUse(name="SearchScore", args=args), left["total"], left["used"], left["pod"])
    return 3 * found / 100 - 1


@pytest.mark.parametrize("case", [each for each in cases("27") if "candidates" in each.values[0]["in"]])
def test_the_preferred_node(case: Any) -> None:
    """Of both nodes of the examples with the same weights."""
    weights = case["name"].partition(", ")[2]
    found = {}
    for name in case["in"]["candidates"]:
        ((left, loaded, _),) = (each.values for each in paired() if each.id.endswith(f"{name}, {weights}"))
        found[name] = scored(left["in"], loaded["in"])
    assert max(found, key=found.__getitem__) == case["expect"]["node"]
    assert found == pytest.approx(case["in"]["candidates"], abs=1e-12)


@pytest.mark.parametrize("case", cases("32-34"))
def test_the_imbalance(case: Any) -> None:
    """By the sum of squares, as the formula has it, and not by their mean."""
    shares = np.array(case["in"]["A"])
    expect = case["expect"]
    assert balance(shares).imbalance == pytest.approx(expect["Z_avg"]["value"])
    if "Z" in expect:
        assert imbalance(shares).tolist() == pytest.approx([each["value"] for each in expect["Z"]])
        assert imbalance(shares) / 2 == pytest.approx(np.array(expect["with_division_by_m"]["Z"]))
