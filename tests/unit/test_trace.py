"""The openb trace as events: what docs/trace.md promises."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from services.cli.main import app
from services.traces import openb
from services.traces.pacing import due


@pytest.fixture(scope="module")
def default() -> list[dict[str, Any]]:
    return list(openb.events())


def test_all_nodes_then_all_pods(default: list[dict[str, Any]]) -> None:
    kinds = [event["object"]["kind"] for event in default]
    assert kinds == ["Node"] * 1523 + ["Pod"] * 8152
    assert {event["type"] for event in default} == {"ADDED"}


def test_names_uids_and_ids_are_unique_and_the_same_in_every_run(default: list[dict[str, Any]]) -> None:
    assert len({event["id"] for event in default}) == len(default)
    assert len({event["object"]["metadata"]["uid"] for event in default}) == len(default)
    assert list(openb.events()) == default


def test_creation_order_is_kept(default: list[dict[str, Any]]) -> None:
    pods = [event for event in default if event["object"]["kind"] == "Pod"]
    assert [pod["object"]["metadata"]["name"] for pod in pods] == [f"openb-pod-{n:04d}" for n in range(8152)]
    times = [event["at"] for event in default]
    assert times == sorted(times)
    assert times[0] == "2023-01-01T00:00:00Z"


def test_a_node_offers_whole_and_shared_gpus(default: list[dict[str, Any]]) -> None:
    node = default[400]["object"]
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "openb-node-0400",
        "nvidia.com/gpu.product": "V100M16",
    }
    assert node["status"]["allocatable"] == {
        "cpu": "32000m",
        "memory": "131072Mi",
        "pods": "128",
        "nvidia.com/gpu": "4",
        "berth.dev/gpu-milli": "4000",
    }
    without = default[0]["object"]
    assert "nvidia.com/gpu" not in without["status"]["allocatable"]
    assert "nvidia.com/gpu.product" not in without["metadata"]["labels"]


def test_whole_gpu_pods_draw_on_both_and_sharing_pods_on_thousandths(default: list[dict[str, Any]]) -> None:
    def requests(index: int) -> dict[str, str]:
        pod = default[1523 + index]["object"]
        found: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
        return found

    assert requests(0) == {
        "cpu": "12000m",
        "memory": "16384Mi",
        "nvidia.com/gpu": "1",
        "berth.dev/gpu-milli": "1000",
    }
    assert requests(1) == {"cpu": "6000m", "memory": "12288Mi", "berth.dev/gpu-milli": "460"}
    for event in default[1523:]:
        asked = event["object"]["spec"]["containers"][0]["resources"]["requests"]
        if "nvidia.com/gpu" in asked:
            assert int(asked["berth.dev/gpu-milli"]) == 1000 * int(asked["nvidia.com/gpu"])


def test_no_pod_count_can_decide(default: list[dict[str, Any]]) -> None:
    def cpu(text: str) -> int:
        return int(text.removesuffix("m"))

    largest = max(cpu(event["object"]["status"]["allocatable"]["cpu"]) for event in default[:1523])
    smallest = min(
        cpu(event["object"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        for event in default[1523:]
    )
    assert largest // smallest <= openb.PODS_PER_NODE


def test_models_become_required_affinity_without_repeats() -> None:
    sets: Counter[tuple[str, ...]] = Counter()
    for event in openb.events(pods="gpuspec33"):
        affinity = event["object"]["spec"].get("affinity")
        if affinity:
            terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            (expression,) = terms["nodeSelectorTerms"][0]["matchExpressions"]
            assert (expression["key"], expression["operator"]) == ("nvidia.com/gpu.product", "In")
            sets[tuple(expression["values"])] += 1
    assert sum(sets.values()) == 2388
    assert all(len(set(models)) == len(models) for models in sets)
    assert sets[("T4",)] == 1291


def test_deletions_come_by_time_and_after_creations_of_the_same_second() -> None:
    events = [event for event in openb.events(with_deletions=True) if event["object"]["kind"] == "Pod"]
    assert Counter(event["type"] for event in events) == {"ADDED": 8152, "DELETED": 8152}
    keys = [(event["at"], event["type"] == "DELETED") for event in events]
    assert keys == sorted(keys)
    version: dict[str, int] = {}
    for event in events:
        meta = event["object"]["metadata"]
        assert int(meta["resourceVersion"]) > version.get(meta["name"], 0)
        version[meta["name"]] = int(meta["resourceVersion"])


def test_a_missing_list_names_those_that_are_there() -> None:
    with pytest.raises(openb.TraceError, match="pod lists there: default, gpuspec33"):
        openb.events(pods="no-such")


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    (tmp_path / openb.NODE_FILE).write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,many,1,0,\n")
    (tmp_path / "openb_pod_list_x.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n")
    with pytest.raises(openb.TraceError, match="row 1"):
        list(openb.events(tmp_path, "x"))


def test_the_bundled_data_carries_its_licence() -> None:
    notice = openb.bundled().joinpath("NOTICE").read_text()
    assert "Weng" in notice
    assert "Apache License 2.0" in notice
    assert "Apache License" in openb.bundled().joinpath("LICENSE.upstream").read_text()


def test_events_are_due_so_many_times_faster_and_no_silence_lasts() -> None:
    times = ["00:00:00Z", "00:00:00Z", "00:00:10Z", "00:00:11Z", "12:00:00Z"]
    events = [{"at": f"2023-01-01T{time}"} for time in times]
    assert [seconds for seconds, _ in due(events, 100)] == pytest.approx([0, 0, 0.1, 0.11, 1.11])
    assert [event for _, event in due(events, 100)] == events


def test_events_are_written_when_they_are_due() -> None:
    """Also the last one before a pause: it must not wait in a buffer until more come."""
    command = [sys.executable, "-m", "services.cli.main", "trace", "openb", "--speed", "1000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        nodes = [process.stdout.readline() for _ in range(1523)]  # the first pod comes after a silence
        assert b'"ADDED"' in nodes[-1]
        pod = orjson.loads(process.stdout.readline())
        assert pod["object"]["kind"] == "Pod"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize(("arguments", "warned"), [([], False), (["--with-deletions"], True)])
def test_deletions_that_come_at_once_are_warned_of(arguments: list[str], warned: bool) -> None:
    done = CliRunner().invoke(app, ["trace", "openb", *arguments])
    assert done.exit_code == 0
    assert ("--speed 1000" in done.stderr) == warned
