"""The data of Tianchi's contest: read from its four files, and told as watch events."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from services.plan.objects import Given
from services.plan.plan import Plan
from services.traces import tianchi
from services.traces.openb import TraceError

FLAT = "|".join(["0.5"] * tianchi.POINTS)
RISING = "|".join(str(point / 8) for point in range(tianchi.POINTS))
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
