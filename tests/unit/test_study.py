"""Is the generated setting what its page says, and does a study say what was done with it?"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from research.cli.study import MethodName, ProfileName
from research.search.balance import balance
from research.search.setting import KINDS, LOAD, TYPES, generate
from research.study import gathering
from research.study.imbalance import place_all, study
from research.study.methods import METHODS
from services.cli.main import app
from tests.oracle.paper_scoring import pod_type


def test_the_setting_is_what_its_page_says() -> None:
    found = generate(1)
    assert (found.allocatable.shape, found.asked.shape) == ((4, 31), (1_800, 4))
    assert {kind: found.kinds.count(kind) for kind in KINDS} == {k: count for k, (count, _) in KINDS.items()}
    assert {kind: found.types.count(kind) for kind in TYPES} == dict.fromkeys(TYPES, 600)
    assert found.asked.sum(axis=0) / found.allocatable.sum(axis=1) == pytest.approx(LOAD, abs=1e-3)
    assert (found.asked > 0).all()
    general = found.allocatable[:, 0].tolist()
    assert [pod_type(each, general) for each in found.asked.tolist()] == found.types
    assert (generate(1).asked == found.asked).all()
    assert not (generate(2).asked == found.asked).all()


def test_a_study_is_the_same_with_the_same_seed() -> None:
    once, again = (study(["least-balanced", "tbesk"], [1], pods_count=100) for _ in range(2))
    for first, second in zip(once, again, strict=True):
        assert (first.imbalance, first.utilisation) == (second.imbalance, second.utilisation)
        assert first.unplaced_count == second.unplaced_count < 20  # of 100 large pods


def test_what_the_baselines_do_not_see_they_overload() -> None:
    """They are asked for cpu and memory alone; the others never go beyond what a node offers."""
    seen: dict[str, list[int]] = {}
    for name in ("lra", "least-balanced"):
        _, steps, _ = place_all(METHODS[name], generate(1), 1)
        seen[name] = balance(steps[-1]).overloaded
    assert seen["lra"][:2] == [0, 0]
    assert sum(seen["lra"][2:]) > 0
    assert seen["least-balanced"] == [0, 0, 0, 0]


def test_the_command_knows_all_methods() -> None:
    assert [each.value for each in MethodName] == list(METHODS)
    assert [each.value for each in ProfileName] == list(gathering.PROFILES)


def test_the_command_prints_a_row_per_method_and_writes_files(tmp_path: Path) -> None:
    asked = ["-m", "lra", "-m", "least-balanced", "--runs", "2", "--pods", "200"]
    shown = CliRunner().invoke(app, ["study", "imbalance", *asked, "--csv", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert [line.split("\t")[0] for line in shown.stdout.splitlines()[1:]] == ["lra", "least-balanced"]
    lines = (tmp_path / "imbalance.csv").read_text().splitlines()
    assert lines[0] == "method,seed,pods,z"
    assert [line.rpartition(",")[0] for line in lines[1:3]] == ["lra,1,100", "lra,1,200"]
    assert len((tmp_path / "utilisation.csv").read_text().splitlines()) == 1 + 2 * 2 * 31
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["command"], manifest["seeds"]) == ("berth study imbalance", [1, 2])
    assert manifest["settings"] == {"methods": ["lra", "least-balanced"], "runs": 2, "pods": 200}
    shown = CliRunner().invoke(app, ["study", "imbalance", *asked, "-o", "json"])
    document = json.loads(shown.stdout)
    assert [run["method"] for run in document["runs"]] == ["lra", "least-balanced"] * 2
    assert document["runs"][0]["imbalance"][0] == float(lines[1].rpartition(",")[2])


@pytest.mark.parametrize("command", ["study imbalance", "study gather", "simulate openb"])
def test_pictures_without_matplotlib_are_refused_before_anything_is_placed(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = CliRunner().invoke(app, [*command.split(), "--plots", str(tmp_path / "x")])
    assert shown.exit_code == 1
    assert "pip install 'berth[plots]'" in " ".join(shown.output.split())
    assert not (tmp_path / "x").exists()


def test_a_placement_made_better_is_more_even_and_keeps_all_pods() -> None:
    setting = generate(1, pods_count=600)
    found = {}
    for name in ("least-balanced", "lns"):
        placed_count, steps, _ = place_all(METHODS[name], setting, 1)
        found[name] = balance(steps[-1])
        assert placed_count == 600
        assert (steps[-1] * setting.allocatable.T).sum(axis=0) == pytest.approx(setting.asked.sum(axis=0))
    assert found["lns"].imbalance < 0.3 * found["least-balanced"].imbalance
    assert found["lns"].overloaded == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["lra", "search-score", "least-balanced"])
def test_the_page_shows_what_comes_out(name: str) -> None:
    """The files beside the pictures have the figures that the command gives."""
    (run,) = study([name], [1])
    folder = Path(__file__).parent.parent.parent / "docs" / "pictures"
    for file, count in (("imbalance.csv", 18), ("utilisation.csv", 31)):
        with (folder / file).open(newline="") as lines:
            kept = [line for line in list(csv.reader(lines))[1:] if line[:2] == [name, "1"]]
        assert len(kept) == count
        given: dict[str, list[float]] = run.utilisation
        if file == "imbalance.csv":
            given = {str(pods): [z] for pods, z in zip(run.pods, run.imbalance, strict=True)}
        for line in kept:
            assert [float(each) for each in line[3:]] == pytest.approx(given[line[2]], rel=1e-9)


PICTURES = Path(__file__).parent.parent.parent / "docs" / "pictures"


def test_all_gather_from_the_same_nodes_and_lose_no_pod() -> None:
    found = gathering.gather(["least", "trimaran"], [1])
    least, trimaran = gathering.spreads(found)
    assert found[0].before == found[1].before
    assert found[0].used_before == found[1].used_before
    assert [each.unplaced_count for each in found] == [0, 0]
    held = [sum(cpu for cpu, _ in each.after.values()) for each in found]
    assert held[0] == pytest.approx(held[1])
    assert max(least.requested_after) < min(least.requested_before)
    assert trimaran.requested_after[0] < least.requested_after[0]  # it looks at the use of cpu
    for each in found:
        assert all(
            used <= asked
            for node in each.after
            for used, asked in zip(each.used_after[node], each.after[node], strict=True)
        )


@pytest.mark.parametrize("name", ["least-balanced", "global-variance-trimaran"])
def test_the_page_shows_where_the_nodes_gather(name: str) -> None:
    (found,) = gathering.gather([name], [1])
    with (PICTURES / "gather.csv").open(newline="") as lines:
        kept = [line for line in csv.reader(lines) if line[:2] == [name, "1"]]
    assert len(kept) == gathering.NODES_COUNT
    for line in kept:
        node = line[2]
        given = [*found.before[node], *found.after[node], *found.used_before[node], *found.used_after[node]]
        assert [float(each) for each in line[3:]] == pytest.approx(given, rel=1e-9)


def test_the_command_shows_deviations_before_and_after(tmp_path: Path) -> None:
    asked = ["study", "gather", "-p", "least", "--runs", "1", "--csv", str(tmp_path)]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    titles, row = (line.split("\t") for line in shown.stdout.splitlines())
    assert titles == ["PROFILE", "BEFORE", "AFTER", "USED BEFORE", "USED AFTER", "UNPLACED"]
    assert row[:3] == ["least", "16.5 17.0", "12.4 12.4"]
    assert len((tmp_path / "gather.csv").read_text().splitlines()) == 1 + 100


def test_pictures_are_drawn_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from research.simulate import plots as of_traces
    from research.simulate.generated import imbalance_trace
    from research.simulate.methods import method_of
    from research.simulate.running import Every, simulate
    from research.study import plots

    found = gathering.gather(["least"], [1])
    trace = imbalance_trace(1).cut(pods_max=50, until_ms=None, stay=False)
    run = simulate(trace, method_of("own", None, (), 0), seed=1, every=Every(pods=10))
    drawn = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        paths = [*plots.draw_gathering(folder, found), *of_traces.draw(folder, [run], by_pods=True)]
        drawn.append({path.name: path.read_bytes() for path in paths})
    assert drawn[0] == drawn[1]
    assert sorted(drawn[0]) == [
        f"{name}.{form}"
        for name in ("gather", "imbalance-nodes", "imbalance-pods")
        for form in ("png", "svg")
    ]
