"""Does a plan give the verdicts that kube-scheduler and the published studies give?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from domain.cycle.evaluate import Verdict
from domain.manifests.profile import profile_from_manifest
from domain.model.events import Event
from domain.model.usage import usage_from_manifest
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from services.cli.main import app
from services.plan.objects import Given, event_of
from services.plan.scenario import plan_scenario

CASES = Path(__file__).parent / "cases"
FILES = (
    "fit",
    "node_affinity",
    "taint_toleration",
    "node_ports",
    "least_allocated",
    "most_allocated",
    "requested_to_capacity_ratio",
    "balanced_allocation",
    "trimaran",
    "seed_examples",
)
CHECKED = {
    "any_of", "feasible", "infeasible", "node", "nodes", "scores", "unresolvable", "unschedulable",
}  # fmt: skip
RAW = {"raw_scores", "variance"}
ELSEWHERE = {"integer_scores", "unrounded"}  # other forms of ``scores``


def cases(*files: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{name}[{i}] {case['name']}")
        for name in files
        for i, case in enumerate(json.loads((CASES / f"{name}.json").read_text())["cases"])
    ]


def asked(case: dict[str, Any]) -> dict[str, Any]:
    """Return the case as a user would write it."""
    return {key: case[key] for key in ("objects", "schedule", "profile", "usage", "given") if key in case}


def tolerance(case: dict[str, Any]) -> float:
    """Return how far a score may be off: upstream truncates once per plugin, the studies do not."""
    uses = [use for use in case["profile"]["scores"] if isinstance(use, dict)]
    real = {"arithmetic", "formula"}
    if any(real & set(use.get("args", {})) for use in uses):
        return 1e-9
    return sum(float(use.get("weight", 1)) for use in uses)


def check(case: dict[str, Any], verdicts: list[Verdict]) -> None:
    expect = dict(case["expect"])
    assert set(expect) <= CHECKED | RAW | ELSEWHERE, "a case expects what no check looks at"
    assert [verdict.pod for verdict in verdicts] == case["schedule"]
    last = verdicts[-1]
    if "feasible" in expect:
        assert sorted(last.feasible) == sorted(expect["feasible"])
    if "infeasible" in expect:
        assert last.infeasible == expect["infeasible"]
    if "unresolvable" in expect:
        assert sorted(last.unresolvable) == sorted(expect["unresolvable"])
    if "scores" in expect:
        assert last.scores == pytest.approx(expect["scores"], rel=0, abs=tolerance(case))
    if "node" in expect:
        assert last.node == expect["node"]
    if "any_of" in expect:
        assert last.node in expect["any_of"]
    if "nodes" in expect:
        assert {verdict.pod: verdict.node for verdict in verdicts} == expect["nodes"]
    if expect.get("unschedulable"):
        assert (last.feasible, last.node) == ([], None)


def raw(case: dict[str, Any]) -> dict[str, float]:
    """Return what the case's only score gives before it is normalised."""
    profile = profile_from_manifest(case["profile"])
    state = ClusterState(seed=0)
    for manifest in case["objects"]:
        event = event_of(Given("ADDED", manifest), lenient=True)
        assert isinstance(event, Event)
        state.apply(event)
    (use,) = ProfilePlan(profile).scores
    view = NodeView(state, usage_from_manifest(case["usage"]))
    template = state.pods[case["schedule"][0]].spec.template
    return dict(zip(view.table.names, use.plugin.raw(template, view, view.all_rows()).tolist(), strict=True))


def expecting(key: str) -> list[Any]:
    return [case for case in cases(*FILES) if key in case.values[0]["expect"]]


@pytest.mark.parametrize("case", expecting("raw_scores"))
def test_growth_of_power(case: dict[str, Any]) -> None:
    """Upstream counts in 1e-15, as integers."""
    found = {name: value * 1e15 for name, value in raw(case).items()}
    assert found == pytest.approx(case["expect"]["raw_scores"], rel=1e-12)


@pytest.mark.parametrize("case", expecting("variance"))
def test_variance_with_the_pod_on_each_node(case: dict[str, Any]) -> None:
    """The plugin says by how much n^2 times the variance of metrics in 2^-20 grows: all but a constant."""
    expected = {name: variance["value"] for name, variance in case["expect"]["variance"].items()}
    found, least = raw(case), min(expected, key=lambda name: expected[name])
    unit = (len(found) << 20) ** 2
    differences = {name: (growth - found[least]) / unit for name, growth in found.items()}
    assert differences == pytest.approx(
        {name: value - expected[least] for name, value in expected.items()}, abs=1e-6
    )


@pytest.mark.parametrize("case", cases(*FILES))
def test_verdict(case: dict[str, Any]) -> None:
    check(case, plan_scenario(asked(case)))


def test_the_table_has_all_cases_of_its_files() -> None:
    assert {path.stem for path in CASES.glob("*.json")} >= set(FILES)
    assert len(cases(*FILES)) > 150


@pytest.mark.parametrize("case", cases(*FILES))
def test_the_command_says_the_same(case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(asked(case)))
    done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    fields = {key for verdict in said for key in verdict}
    assert fields == {
        "pod", "outcome", "node", "feasible", "infeasible", "unresolvable", "scores", "score_parts",
        "weights", "held_by",
    }  # fmt: skip
    check(case, [Verdict(**verdict) for verdict in said])
