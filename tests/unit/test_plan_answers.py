"""Does `berth plan` answer a question about thousands of pods in a few lines, and in bounded JSON?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli import plan as command
from services.cli.main import app
from tests.builders import node_manifest, pod_manifest

Json = dict[str, Any]
INSTANCE = "node.kubernetes.io/instance-type"


def berth_plan(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["plan", *arguments])
    assert done.exit_code == 0, done.output
    return done


def write(folder: Path, *objects: Json) -> str:
    file = folder / "all.json"
    file.write_text(json.dumps(objects))
    return str(file)


def pooled(folder: Path, *more: Json) -> str:
    """Write two pools of nodes, of 8 and 2 cpu."""
    large = [node_manifest(f"large-{i}", cpu=4, labels={INSTANCE: "large"}) for i in range(2)]
    small = [node_manifest(f"small-{i}", cpu=1, labels={INSTANCE: "small"}) for i in range(2)]
    return write(folder, *large, *small, *more)


def pods(count: int, **fields: Any) -> list[Json]:
    return [pod_manifest(f"p{i}", **fields) for i in range(count)]


def test_many_pods_are_summed_up_by_node_pool_and_by_reason(tmp_path: Path) -> None:
    gpu: Json = {"nvidia.com/gpu": 2}
    waiting = [pod_manifest(f"gpu{i}", cpu=1, **gpu) for i in range(3)]
    lines = berth_plan("-f", pooled(tmp_path, *pods(13, cpu=1), *waiting)).stdout.splitlines()
    assert lines[0] == "10 of 16 pods placed, on 4 of 4 nodes"
    assert f"node pools by {INSTANCE}; requested of each resource:" in lines
    table = [line.split("\t") for line in lines if "\t" in line]
    assert table[0] == ["POOL", "NODES", "PLACED", "CPU", "MEMORY"]
    assert [row[:4] for row in table[1:]] == [["large", "2", "8", "100%"], ["small", "2", "2", "100%"]]
    said = " ".join(line.strip() for line in lines)
    assert "6 pods wait: 3, such as default/p10: all nodes lack cpu" in said
    assert "3, such as default/gpu0: 4 lack cpu; 4 lack nvidia.com/gpu" in said
    assert "short of: 6 cpu, 6 nvidia.com/gpu" in said
    assert max(map(len, lines)) <= 80


def test_details_show_every_pod_however_many(tmp_path: Path) -> None:
    file = pooled(tmp_path, *pods(12, cpu=1))
    heads = [line for line in berth_plan("-f", file, "--details").stdout.splitlines() if " feasible)" in line]
    assert len(heads) == 12
    assert " feasible)" not in berth_plan("-f", file).stdout


def test_without_a_label_equal_nodes_are_a_pool(tmp_path: Path) -> None:
    nodes = [node_manifest(f"n{i}", cpu=2 + i % 2) for i in range(5)]
    done = berth_plan("-f", write(tmp_path, *nodes, *pods(11, cpu=1)))
    table = [line.split("\t")[:3] for line in done.stdout.splitlines() if "\t" in line]
    assert table[1:] == [["2 cpu, 8Gi", "3", "5"], ["3 cpu, 8Gi", "2", "6"]]


def test_json_beyond_the_bound_is_compact_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pooled(tmp_path, *pods(11, cpu=1))
    full = json.loads(berth_plan("-f", file, "-o", "json").stdout)
    assert "feasible" in full[0]
    monkeypatch.setattr(command, "CELLS_MAX", 43)
    done = berth_plan("-f", file, "-o", "json")
    assert "44 pods times nodes are more than 43" in done.stderr
    compact = json.loads(done.stdout)
    assert [list(pod) for pod in compact] == [
        ["pod", "outcome", "node", "score", "reasons", "warnings", "candidates"]
    ] * 11
    same = ("pod", "outcome", "node")
    assert [[pod[key] for key in same] for pod in compact] == [[pod[key] for key in same] for pod in full]
    assert compact[0]["candidates"][0]["node"] == compact[0]["node"]
    assert compact[10]["reasons"] == {"insufficient:cpu": 4}
    assert json.loads(berth_plan("-f", file, "-o", "json", "--details").stdout) == full
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps({"objects": json.loads(Path(file).read_text()), "profile": {}}))
    assert "feasible" in json.loads(berth_plan("-f", str(scenario), "-o", "json").stdout)[0]


def test_json_is_written_pod_by_pod(tmp_path: Path) -> None:
    lines = berth_plan("-f", pooled(tmp_path, *pods(3, cpu=1)), "-o", "json").stdout.splitlines()
    assert [lines[0], lines[-1], len(lines)] == ["[", "]", 5]
    assert json.loads(lines[1].rstrip(","))["pod"] == "default/p0"


def test_replicas_are_copies_of_each_waiting_pod(tmp_path: Path) -> None:
    bound = pod_manifest("bound", cpu=1, node_name="large-0")
    file = pooled(tmp_path, bound, *pods(2, cpu=2))
    found = json.loads(berth_plan("-f", file, "--replicas", "2", "-o", "json").stdout)
    assert [pod["pod"] for pod in found] == [f"default/p{i}-{copy}" for i in (0, 1) for copy in (0, 1)]
    assert [pod["outcome"] for pod in found].count("bound") == 3


def test_how_many_more_fit_and_what_stops_the_next(tmp_path: Path) -> None:
    other = pod_manifest("other", cpu=4)
    file = pooled(tmp_path, pod_manifest("bound", cpu=3, node_name="large-0"), *pods(2, cpu=1), other)
    one, large = json.loads(berth_plan("-f", file, "--how-many", "-o", "json").stdout)
    assert (one["pod"], one["count"], one["nodes"]) == ("default/p0", 7, 4), "the other waiting pods are not"
    assert one["pools"] == {"large": 5, "small": 2}
    assert one["stopped_by"] == {"insufficient:cpu": 4}
    assert (large["count"], large["is_all"]) == (1, True)
    lines = berth_plan("-f", file, "--how-many").stdout.splitlines()
    assert lines[0] == "default/p0: 7 more fit on 4 nodes"
    assert lines[3] == "  the next one waits: all nodes lack cpu"


def test_another_profile_is_compared_pod_by_pod_and_pool_by_pool(tmp_path: Path) -> None:
    file = pooled(tmp_path, *pods(4, cpu="500m"))
    found = json.loads(berth_plan("-f", file, "--diff", "most-allocated", "-o", "json").stdout)
    assert found["placed"] == [4, 4]
    assert found["pools"] == {"large": [4, 0], "small": [0, 4]}
    assert len(found["moved"]) == 4
    even, uneven = found["cpu_imbalance_percent"]
    assert (even, uneven) == (pytest.approx(12.5), pytest.approx(50.0))
    said = berth_plan("-f", file, "--diff", "most-allocated").stdout
    assert said.startswith("4 of 4 pods would go elsewhere with most-allocated than with the pods' own")


@pytest.mark.parametrize("option", [("--how-many",), ("--replicas", "2"), ("--diff", "first-fit")])
def test_what_is_for_manifests_is_refused_for_a_scenario(option: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps({"objects": [node_manifest("n")]}))
    done = CliRunner().invoke(app, ["plan", "-f", str(file), *option])
    assert (done.exit_code, "is a scenario" in done.stderr) == (1, True)
