"""Does `berth plan` place the pods of a PodGroup together or not at all, and say what a gang lacks?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from domain.model.decisions import Outcome
from services.cli.main import app
from services.plan.objects import Given
from services.plan.plan import Plan, Planned
from tests.builders import Json, node_manifest, pod_group_manifest, pod_manifest

LABEL = "scheduling.x-k8s.io/pod-group"


def members(count: int, cpu: int = 2, gang: str = "team", **more: Any) -> list[Json]:
    return [pod_manifest(f"{gang}-{i}", cpu=cpu, labels={LABEL: gang}, **more) for i in range(count)]


def planned(*things: Json) -> tuple[Plan, dict[str, Planned]]:
    plan = Plan()
    for thing in things:
        plan.add(Given("ADDED", thing))
    return plan, {each.pod.name: each for each in plan.place()}


def nodes(count: int, cpu: int = 4) -> list[Json]:
    return [node_manifest(f"n{i}", cpu=cpu) for i in range(count)]


def berth_plan(folder: Path, *things: Json, options: tuple[str, ...] = ()) -> str:
    file = folder / "all.json"
    file.write_text(json.dumps(things))
    done = CliRunner().invoke(app, ["plan", "-f", str(file), *options])
    assert done.exit_code == 0, done.output
    assert done.stderr == "", "there is nothing to warn of"
    return done.stdout


@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_gang_that_fits_is_placed_whole(where: str) -> None:
    group, pods = pod_group_manifest("team", 4), members(4)
    things = [group, *pods] if where == "before" else [*pods, group]
    _, found = planned(*nodes(2), *things)
    assert {each.outcome for each in found.values()} == {Outcome.BOUND}
    assert sorted(each.node or "" for each in found.values()) == ["n0", "n0", "n1", "n1"]


def test_a_gang_that_does_not_fit_holds_nothing_and_every_pod_says_so() -> None:
    small = pod_manifest("small", cpu=4)
    plan, found = planned(*nodes(2), pod_group_manifest("team", 5), *members(5), small)
    assert found.pop("small").node is not None, "it takes what the gang does not hold"
    assert {each.outcome for each in found.values()} == {Outcome.GANG_WAITING}
    verdicts = {each.pod.partition("/")[2]: each for each in plan.verdicts()}
    gang = verdicts["team-0"].gang
    assert gang is not None
    assert (gang.name, gang.min_member, gang.waiting_count) == ("default/team", 5, 5)
    assert gang.found_count == 4, "it was tried before the small one, which came last"
    assert gang.missing == "default/team-4"
    for name in found:
        assert verdicts[name].outcome is Outcome.GANG_WAITING
        assert verdicts[name].node is None
        assert verdicts[name].feasible, "alone it would have a node"


def test_more_than_the_least_go_where_there_is_room() -> None:
    _, found = planned(*nodes(2), pod_group_manifest("team", 3), *members(5))
    outcomes = [each.outcome for each in found.values()]
    assert (outcomes.count(Outcome.BOUND), outcomes.count(Outcome.UNSCHEDULABLE)) == (4, 1)


def test_members_that_are_bound_count() -> None:
    there, *others = members(3)
    there["spec"]["nodeName"] = "n0"
    _, found = planned(*nodes(2), pod_group_manifest("team", 3), there, *others)
    assert [each.outcome for each in found.values()] == [Outcome.BOUND] * 2


@pytest.mark.parametrize(
    ("things", "said"),
    [
        ([pod_group_manifest("team", 5), *members(5)],
         "gang default/team: 4 of at least 5 pods find a node; default/team-4: all nodes lack cpu"),
        ([pod_group_manifest("team", 5), *members(2)], "gang default/team: 2 of at least 5 pods exist"),
        (members(2), "gang default/team: there is no such PodGroup"),
        ([pod_group_manifest("team", 2, minResources={"cpu": "99"}), *members(2)],
         "gang default/team: no node was tried: for the gang, all nodes together have too little cpu"),
    ],
)  # fmt: skip
def test_the_table_says_what_a_gang_lacks(things: list[Json], said: str, tmp_path: Path) -> None:
    lines = berth_plan(tmp_path, *nodes(2), *things).splitlines()
    assert said in " ".join(line.strip() for line in lines)
    assert any(line.startswith("default/team-0: gang-waiting") for line in lines)


def test_on_a_terminal_a_pod_takes_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.cli.plan_answers.on_terminal", lambda: True)
    monkeypatch.setattr("services.cli.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = berth_plan(tmp_path, *nodes(2), pod_manifest("p", cpu=1)).splitlines()
    assert any("3*TaintToleration=100" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_summary_has_a_line_for_each_gang(tmp_path: Path) -> None:
    things = [pod_group_manifest("team", 9), *members(9), pod_group_manifest("other", 6)]
    others = members(5, gang="other")
    said = berth_plan(tmp_path, *nodes(2), *things, *others, pod_manifest("small", cpu=4))
    text = " ".join(line.strip() for line in said.splitlines())
    assert "1 of 15 pods placed, on 1 of 2 nodes" in text
    assert (
        "9, such as default/team-0: gang default/team: 4 of at least 9 pods find a node; default/team-4: "
        "all nodes lack cpu" in text
    )
    assert "5, such as default/other-0: gang default/other: 5 of at least 6 pods exist" in text


@pytest.mark.parametrize("compact", [True, False])
def test_json_has_what_was_seen_of_the_gang(
    compact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compact:
        monkeypatch.setattr("services.cli.plan.CELLS_MAX", 0)
    file = tmp_path / "all.json"
    file.write_text(json.dumps([*nodes(1), pod_group_manifest("team", 3), *members(3)]))
    done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"])
    pods = json.loads(done.stdout)
    assert [pod["outcome"] for pod in pods] == ["gang-waiting"] * 3
    seen = {"name": "default/team", "min_member": 3, "waiting_count": 3, "found_count": 2}
    assert [pod["gang"] for pod in pods] == [{**seen, "missing": "default/team-2"}] * 3
