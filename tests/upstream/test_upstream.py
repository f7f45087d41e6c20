"""Does berth answer as kube-scheduler's own code does, and would the comparison notice if it did not?"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from domain.engine.evaluate import Verdict
from domain.model.decisions import Outcome
from tests.upstream.compare import code_of, compared, differences
from tests.upstream.pods import FEATURES_OF_PODS
from tests.upstream.program import BINARY, VERSION, Answer, NotBuilt, Program, Refusal, build
from tests.upstream.scenarios import FAMILIES, PREEMPTING, family_of, scenario_of

FAMILIES_COUNT = len(FAMILIES) + len(PREEMPTING)
WEIGHTS = {"NodeResourcesFit": 1, "TaintToleration": 3}


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    """Return the program with kube-scheduler's plugins, where it has been built."""
    if not BINARY.exists():
        pytest.skip(
            "kube-scheduler's code takes minutes to build: `make upstream` builds and runs it, nightly"
        )
    try:
        binary = build()
    except NotBuilt as error:
        pytest.skip(str(error))
    with Program(binary) as running:
        yield running


def test_the_program_is_the_version_that_berth_follows(program: Program) -> None:
    assert program.greeting.version == VERSION
    assert program.greeting.weights == {
        "TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "PodTopologySpread": 2,
        "InterPodAffinity": 2, "DynamicResources": 2, "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }  # fmt: skip


def test_the_program_names_the_object_that_the_api_server_would_refuse(program: Program) -> None:
    scenario = scenario_of(0)
    scenario["objects"][-1]["spec"]["containers"] = []
    with pytest.raises(ValueError, match=r"objects\[\d+\]: Pod .*spec.containers: Required value"):
        program.ask(scenario, {})
    assert program.ask(scenario_of(0), {}) != []


def test_the_program_counts_a_pod_where_berth_placed_it(program: Program) -> None:
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}},
    }  # fmt: skip
    pods = [
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        }
        for name in ("a", "b")
    ]  # fmt: skip
    scenario = {"objects": [node, *pods], "schedule": ["default/a", "default/b"]}
    taken = program.ask(scenario, {"default/a": "n"})[1]
    assert taken.infeasible == {"n": Refusal("NodeResourcesFit", ["Insufficient cpu"], False)}
    assert program.ask(scenario, {"default/a": None})[1].feasible == ["n"]


@pytest.mark.parametrize("seed", range(2 * FAMILIES_COUNT))
def test_the_api_server_would_take_every_scenario(program: Program, seed: int) -> None:
    assert program.ask(scenario_of(seed), {}) != []


def test_scenarios_are_made_of_their_seed_alone_and_take_turns() -> None:
    assert [scenario_of(seed) for seed in range(30)] == [scenario_of(seed) for seed in range(30)]
    assert {family_of(seed) for seed in range(FAMILIES_COUNT)} == {*FAMILIES, *PREEMPTING}
    of_nodes = {"pods", "resize"}
    assert set().union(*FAMILIES.values()) == of_nodes | set(FEATURES_OF_PODS)


# ------------------------------------------------------------------------------ does the comparison look


def answer(**changes: object) -> Answer:
    """Return an answer for one pod over two nodes that take it and one that does not."""
    scores = {"TaintToleration": 100, "NodeResourcesFit": 40}
    given = Answer(
        pod="default/p",
        feasible=["a", "b"],
        infeasible={"c": Refusal("NodeResourcesFit", ["Too many pods", "Insufficient cpu"], False)},
        scores={"a": scores, "b": {**scores, "NodeResourcesFit": 50}},
        totals={"a": 340, "b": 350},
    )
    return msgspec.structs.replace(given, **changes)


def verdict(**changes: object) -> Verdict:
    """Return berth's verdict that agrees with ``answer``."""
    given = Verdict(
        pod="default/p",
        outcome=Outcome.BOUND,
        node="b",
        feasible=["a", "b"],
        infeasible={"c": "too-many-pods,insufficient:cpu"},
        unresolvable=[],
        held_by=[],
        scores={"a": 340.0, "b": 350.0},
        score_parts={
            "a": {"TaintToleration": 100.0, "NodeResourcesFit": 40.0},
            "b": {"TaintToleration": 100.0, "NodeResourcesFit": 50.0},
        },
        weights={"TaintToleration": 3.0, "NodeResourcesFit": 1.0},
    )
    return msgspec.structs.replace(given, **changes)


def kinds(mine: Verdict, theirs: Answer, *, pod_level: bool = False) -> list[str]:
    return [each.what for each in differences(mine, theirs, WEIGHTS, pod_level=pod_level)]


def test_equal_answers_do_not_differ() -> None:
    assert kinds(verdict(), answer()) == []


def test_each_kind_of_difference_is_noticed() -> None:
    parts = {node: dict(each) for node, each in verdict().score_parts.items()}
    parts["a"]["NodeResourcesFit"] = 40.5
    assert kinds(verdict(feasible=["a"]), answer()) == ["feasible"]
    assert kinds(verdict(infeasible={"c": "too-many-pods"}), answer()) == ["reason"]
    assert kinds(verdict(unresolvable=["c"]), answer()) == ["unresolvable"]
    assert kinds(verdict(score_parts=parts), answer()) == ["score NodeResourcesFit"]
    assert kinds(verdict(node="a"), answer()) == ["node"]
    assert kinds(verdict(weights={"TaintToleration": 2.0, "NodeResourcesFit": 1.0}), answer()) == ["weights"]


def test_a_plugin_that_one_side_leaves_out_counts_as_zero() -> None:
    skipped = {node: {"TaintToleration": 100} for node in "ab"}
    assert kinds(verdict(), answer(scores=skipped)) == ["score NodeResourcesFit"]
    more = {node: {**parts, "ImageLocality": 0.0} for node, parts in verdict().score_parts.items()}
    assert kinds(verdict(score_parts=more), answer()) == []


def test_only_the_fit_score_of_a_pod_with_its_own_resources_may_deviate() -> None:
    """Upstream's score does not look at them; the node is then the best by berth's figure."""
    parts = {node: dict(each) for node, each in verdict().score_parts.items()}
    parts["a"]["NodeResourcesFit"] = 60.0
    assert kinds(verdict(score_parts=parts, node="a"), answer(), pod_level=True) == []
    assert kinds(verdict(score_parts=parts, node="b"), answer(), pod_level=True) == ["node"]
    parts["a"]["TaintToleration"] = 0.0
    assert "score TaintToleration" in kinds(verdict(score_parts=parts), answer(), pod_level=True)


def test_reasons_of_the_fit_filter_are_in_no_order() -> None:
    reasons = ["Too many pods", "Insufficient example.com/b", "Insufficient example.com/a"]
    code = code_of(Refusal("NodeResourcesFit", reasons, True))
    assert code == "insufficient:example.com/a,insufficient:example.com/b,too-many-pods"


# ------------------------------------------------------------------------------------- the comparison


@pytest.mark.parametrize("seed", range(4 * FAMILIES_COUNT))
def test_berth_agrees_with_kube_scheduler(program: Program, seed: int) -> None:
    assert compared(program, scenario_of(seed))[1] == []
