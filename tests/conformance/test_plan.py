"""Does a plan give the verdicts that kube-scheduler and the published studies give?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from domain.engine.evaluate import Verdict
from domain.manifests.profile import profile_from_manifest
from domain.model.events import Event
from domain.model.usage import usage_from_manifest
from domain.plugins.base import StaticScore
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from services.cli.main import app
from services.plan.objects import Given, event_of
from services.plan.scenario import plan_scenario
from tests.conformance.tables import CASES, FILES, PREEMPTION, cases, check
from tests.depth import some


def asked(case: dict[str, Any]) -> dict[str, Any]:
    """Return the case as a user would write it."""
    return {key: case[key] for key in ("objects", "schedule", "profile", "usage", "given") if key in case}


def raw(case: dict[str, Any]) -> dict[str, float]:
    """Return what the case's only score gives before it is normalised."""
    profile = profile_from_manifest(case["profile"])
    state = ClusterState(seed=0)
    for manifest in case["objects"]:
        event = event_of(Given("ADDED", manifest), lenient=True)
        assert isinstance(event, Event)
        state.apply(event)
    (use,) = ProfilePlan(profile).scores
    assert isinstance(use.plugin, StaticScore)
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
    """The score places each variance between the lowest and the highest, in metrics of 2^-20."""
    expected = {name: variance["value"] for name, variance in case["expect"]["variance"].items()}
    low, high = min(expected.values()), max(expected.values())
    found = {n: parts["GlobalVariance"] for n, parts in plan_scenario(asked(case))[-1].score_parts.items()}
    assert found == pytest.approx(
        {name: 100 * (high - value) / (high - low) for name, value in expected.items()}, abs=1e-2
    )


@pytest.mark.parametrize("case", cases(*FILES, *PREEMPTION))
def test_verdict(case: dict[str, Any]) -> None:
    check(case, plan_scenario(asked(case)))


def test_the_table_has_all_cases_of_its_files() -> None:
    assert {path.stem for path in CASES.glob("*.json")} >= set(FILES)
    assert len(cases(*FILES)) > 150


@pytest.mark.parametrize("case", some(cases(*FILES, *PREEMPTION)))
def test_the_command_says_the_same(case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(asked(case)))
    done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    fields = {key for verdict in said for key in verdict}
    of_preemption = {"preemption_might_help", "victims", "pdb_violations", "pdb_groups", "evictions"}
    assert fields - {"warnings", "rules", "devices"} - of_preemption == {
        "pod", "outcome", "node", "feasible", "infeasible", "unresolvable", "scores", "score_parts",
        "weights", "held_by", "eligible_to_preempt",
    }  # fmt: skip
    finds_none = [verdict for verdict in said if not verdict["feasible"] and not verdict["held_by"]]
    assert all(of_preemption <= verdict.keys() for verdict in finds_none)
    check(case, msgspec.convert(said, list[Verdict]))
