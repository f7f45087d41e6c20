"""The data of Tianchi's contest: read from its four files, and told as watch events."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from research.contest.judging import judge, peaks_of
from research.traces import tianchi
from services.cli.main import app
from services.plan.objects import Given
from services.plan.plan import Plan
from services.traces.openb import TraceError

FLAT = "|".join(["0.5"] * tianchi.POINTS)
RISING = "|".join(str(point / 8) for point in range(tianchi.POINTS))
RISING_CORES = np.arange(tianchi.POINTS) / 8
FILES = {
    "machine_resources": "machine_1,32,64,1440,7,3,7\nmachine_2,92,288,2457,7,7,9\n",
    "app_resources": f"app_a,{FLAT},{FLAT},60,0,0,0\napp_b,{RISING},{FLAT},100,1,0,1\n",
    "instance_deploy": "inst_1,app_a,machine_2\ninst_2,app_b,\ninst_3,app_a,machine_1\n",
    "app_interference": "app_a,app_a,2\napp_a,app_b,0\napp_b,app_b,0\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / f"scheduling_{name}_20180726.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_the_four_files_are_read(folder: Path) -> None:
    trace = tianchi.read(folder)
    assert trace.machines == ["machine_1", "machine_2"]
    assert trace.machine_cpu.tolist() == [32_000_000, 92_000_000]
    assert trace.machine_counts.tolist() == [[1440, 7, 3, 7], [2457, 7, 7, 9]]
    assert trace.app_cpu[1].tolist() == [point * 125_000 for point in range(98)]
    assert trace.app.tolist() == [0, 1, 0]
    assert trace.machine.tolist() == [1, 2, 0]
    # "k beside the first": a rule about itself allows one more.
    assert trace.rules == [(0, 0, 3), (0, 1, 0), (1, 1, 1)]


def test_pods_ask_for_the_peaks_and_shun_what_they_cannot_stand(folder: Path) -> None:
    events = list(tianchi.events(tianchi.read(folder)))
    assert len({event["id"] for event in events}) == 5
    plan = Plan(seed=0)
    for event in events:
        plan.add(Given("ADDED", event["object"]))
    plan.place()
    assert {name: pod.node for name, pod in plan.state.pods.items()} == {
        "tianchi/inst-1": "machine-2",
        "tianchi/inst-2": "",
        "tianchi/inst-3": "machine-1",
    }
    # Nothing of app_b may be beside app_a, which is on both machines.
    requests = plan.state.pods["tianchi/inst-2"].spec.template.requests
    assert (requests["cpu"], requests["memory"]) == (12_125, 500_000_000)
    first, second = (event["object"]["spec"]["affinity"]["podAntiAffinity"] for event in events[2:4])
    for terms, apps in ((first, ["app_b"]), (second, ["app_b"])):
        (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchExpressions"][0]["values"] == apps
    waiting = list(tianchi.events(tianchi.read(folder), keep_placed=False))
    assert not any("nodeName" in event["object"]["spec"] for event in waiting)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("machine_resources", "machine_1,32\n", "row 1 has 2 fields, not 7"),
        ("instance_deploy", "inst_1,app_c,\n", "app_c"),
        ("app_resources", "app_a,1|2,1|2,60,0,0,0\n", "does not read"),
    ],
)
def test_rows_that_do_not_read_are_named(folder: Path, name: str, text: str, message: str) -> None:
    (folder / f"scheduling_{name}_20180726.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(TraceError, match=message):
        tianchi.read(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "scheduling_app_interference_20180726.csv.gz").unlink()
    with pytest.raises(TraceError, match="app_interference"):
        tianchi.read(folder)


def test_plain_files_are_read_too(folder: Path, tmp_path: Path) -> None:
    packed = folder / "scheduling_app_resources_20180726.csv.gz"
    (folder / "app_resources.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert np.array_equal(tianchi.read(folder).app_memory, np.full((2, 98), 500_000))


def test_a_packing_is_judged_by_the_rules_of_the_contest(folder: Path) -> None:
    """Curves of 0.5 and up to 12.125 cores stay below half of 32, but must not be beside each other."""
    trace = tianchi.read(folder)
    assert judge(trace, np.array([0, 2, 0])) == (1.0, 1, 1, 0, 0)
    assert judge(trace, np.array([0, 0, 1])) == (2.0, 0, 2, 0, 1)
    many = trace._replace(app=np.full(4, 1, np.int32))
    used = 4 * RISING_CORES / 32
    score = 1 + 10 * (np.exp(np.maximum(0, used - 0.5)) - 1).mean()
    assert judge(many, np.zeros(4, np.int32)) == pytest.approx((score, 0, 1, 1, 1))


def test_the_search_and_the_judge_agree(folder: Path) -> None:
    search = peaks_of(tianchi.read(folder), seed=1)
    assert judge(tianchi.read(folder), search.node)[:3] == search.before[1::-1] + search.before[2:]


def test_optimise_packs_a_trace_and_judges_it(folder: Path) -> None:
    """Nothing of app_b may be beside app_a: two machines, one for each."""
    given = ["optimise", "--trace", "tianchi", "--data", str(folder), "--steps", "1000"]
    found = orjson.loads(CliRunner().invoke(app, [*given, "-o", "json"]).stdout)
    assert found["before"]["pending_count"] == 1
    assert found["after"] == {
        "score": 2.0,
        "pending_count": 0,
        "used_count": 2,
        "overloaded_count": 0,
        "broken_count": 0,
    }
    placement = found["placement"]
    assert placement["inst_1"] == placement["inst_3"] != placement["inst_2"]
    assert found["way"][0]["pending"] == 1
    assert found["way"][-1]["steps"] == 1000
    shown = CliRunner().invoke(app, given).stdout
    assert "2 machines, 3 instances, 3 rules" in shown


def test_the_way_there_is_drawn(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    given = ["optimise", "--trace", "tianchi", "--data", str(folder), "--steps", "1000"]
    done = CliRunner().invoke(app, [*given, "--plots", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["tianchi.png", "tianchi.svg"]
    assert "processor seconds" in (tmp_path / "new" / "tianchi.svg").read_text()


def test_pictures_go_with_a_trace(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["optimise", "--plots", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "--plots goes with --trace" in done.stderr
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    given = ["optimise", "--trace", "tianchi", "--data", str(folder), "--plots", str(tmp_path / "none")]
    done = CliRunner().invoke(app, given)
    assert "pip install 'berth[plots]'" in " ".join(done.stderr.split())
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "given",
    [
        ["--trace", "tianchi"],
        ["--trace", "tianchi", "--data", "/nowhere"],
        ["--trace", "tianchi", "--data", "/nowhere", "--objective", "nodes"],
        ["--data", "/nowhere"],
    ],
)
def test_what_optimise_needs_is_named(given: list[str]) -> None:
    result = CliRunner().invoke(app, ["optimise", *given])
    assert result.exit_code == 1
    assert "--data" in result.stderr or "/nowhere has 0 files" in result.stderr
