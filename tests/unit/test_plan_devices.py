"""Do the verdicts of a plan follow the devices that its pods got, one after another?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from domain.model.decisions import Outcome
from services.cli.main import app
from services.plan.objects import Given
from services.plan.plan import Plan
from tests.builders import Json, profile_manifest
from tests.property.device_team import asking, gpu_node, gpu_pod

SCORES = [{"name": "GpuBestFit", "args": {"arithmetic": "real"}}]


def verdicts(*things: Json) -> dict[str, Any]:
    plan = Plan()
    for thing in things:
        plan.add(Given("ADDED", thing))
    found = {each.pod.key: each for each in plan.place()}
    said = {each.pod: each for each in plan.verdicts()}
    assert {key: each.node for key, each in found.items()} == {key: each.node for key, each in said.items()}
    return said


def rated(name: str, asks: dict[str, int]) -> Json:
    manifest = asking(name, asks)
    manifest["spec"]["schedulerName"] = "sharing"
    return manifest


def test_each_pod_is_evaluated_with_the_devices_of_those_before_it() -> None:
    profile = profile_manifest("sharing", filters=["NodeResourcesFit"], scores=SCORES)
    pods = [
        rated("a", {"milli": 600}),
        rated("b", {"milli": 300}),
        rated("c", {"gpu": 1}),
        rated("d", {"milli": 200}),
    ]
    found = verdicts(profile, gpu_node("small", 2), gpu_node("large", 4), *pods)
    assert [found[f"default/{name}"].outcome for name in "abcd"] == [Outcome.BOUND] * 4
    assert [found[f"default/{name}"].devices for name in "abcd"] == [[0], [0], [1], [0]]
    assert len({tuple(sorted(each.scores.items())) for each in found.values()}) > 1


def test_the_answer_names_the_devices(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps([gpu_node("n", 4), asking("p", {"gpu": 2})]))
    done = CliRunner().invoke(app, ["plan", "-f", str(file)])
    assert "default/p: to devices 0 and 1 of n, score" in done.output
    short = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"])
    assert json.loads(short.stdout)[0]["devices"] == [0, 1]


def test_a_share_is_refused_where_no_device_has_so_much_free() -> None:
    pods = [gpu_pod(f"p{i}", milli=600) for i in range(3)]
    found = verdicts(gpu_node("n", 2), *pods)
    assert found["default/p2"].infeasible == {"n": "insufficient:berth.dev/gpu-milli"}
    whole = verdicts(gpu_node("n", 2), *pods[:2], gpu_pod("whole", gpu=1))
    assert whole["default/whole"].infeasible == {"n": "insufficient:nvidia.com/gpu"}
    assert whole["default/whole"].unresolvable == []


@pytest.mark.parametrize(
    ("asks", "node", "said"),
    [
        ({"gpu": 3}, gpu_node("n", 2), "insufficient:nvidia.com/gpu"),
        ({"milli": 700}, gpu_node("n", 0), "insufficient:berth.dev/gpu-milli"),
    ],
)
def test_who_finds_no_device_is_told_so(tmp_path: Path, asks: dict[str, int], node: Json, said: str) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps([node, asking("p", asks)]))
    done = CliRunner().invoke(app, ["plan", "-f", str(file)])
    assert said in done.output
