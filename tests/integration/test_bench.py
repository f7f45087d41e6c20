"""`berth bench e2e` on the real servers: it measures what it was asked, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from benchmarks.gangs import GangReport
from benchmarks.preemption import PreemptionReport
from benchmarks.report import Report
from tests.servers import MakeDatabase

BENCH = (sys.executable, "-m", "services.cli.main", "bench", "e2e")
TINY = ("--workload", "plain-500", "--nodes", "20", "--pods", "60", "--timeout", "120", "-o", "json")


def run(*options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | settings
    return subprocess.run([*BENCH, *options], env=environment, capture_output=True, text=True, timeout=200)


def check(report: dict[str, Any]) -> None:
    assert list(report) == list(Report.__struct_fields__)
    assert (report["workload"], report["nodes"], report["pods"]) == ("plain-500", 20, 60)
    assert (report["pods_before"], report["groups"]) == (500, 1)
    assert (report["decisions"], report["placed"], report["pending"]) == (60, 60, 0)
    assert report["seconds"] > 0
    assert report["decisions_per_second"] == pytest.approx(60 / report["seconds"], rel=0.01)
    latency = report["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"] <= 1000 * report["seconds"] + 1
    assert report["batches"] >= 1
    assert report["commit_ms_mean"] > 0
    assert report["plan_ms_mean"] > 0
    assert report["cpu_seconds"]["worker"] >= 0, "so short a run may stay below the clock's tick"


@pytest.mark.deep
async def test_measures_on_given_servers(fresh_kafka: str, postgres_dsn: str, database: MakeDatabase) -> None:
    own = urlsplit(await database(postgres_dsn))
    dsn = own._replace(netloc=f"{own.username}@{own.hostname}:{own.port}").geturl()
    password = {"BERTH_POSTGRES_PASSWORD": own.password or ""}
    done = run(*TINY, "--kafka", fresh_kafka, "--dsn", dsn, "--shards", "2", "--rate", "200", **password)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    check(report)
    assert (report["shards"], report["rate_asked"]) == (2, 200)
    assert report["seconds"] >= 59 / 200, "the last pod is due only then"
    assert report["cpu_seconds"]["broker"] is None, "a given server is not ours to look into"

    again = run(*TINY, "--kafka", fresh_kafka, "--dsn", dsn, "--shards", "2", **password)
    assert again.returncode == 1
    assert "hold events already" in again.stderr


@pytest.mark.deep
def test_measures_on_the_embedded_default() -> None:
    done = run(*TINY, "--embedded")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    check(report)
    assert report["cpu_seconds"]["database"] >= 0
    assert report["cpu_seconds"]["broker"] is None


@pytest.mark.deep
def test_measures_preemption() -> None:
    options = ("preemption", "--nodes", "5", "--timeout", "120", "-o", "json")
    done = subprocess.run([*BENCH[:-1], *options], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert list(report) == list(PreemptionReport.__struct_fields__)
    assert (report["nodes"], report["pods_before"], report["pods"]) == (5, 20, 5)
    outcomes = report["outcomes"]
    assert (outcomes["nominated"], outcomes["evicted"], outcomes["released"]) == (5, 15, 15)
    assert outcomes["bound"] == 5
    assert 0 < report["nominated_seconds"] <= report["seconds"]
    assert sum(second.get("bound", 0) for second in report["each_second"]) == 5
    assert report["nominations_per_second"] == pytest.approx(5 / report["nominated_seconds"], rel=0.02)


@pytest.mark.deep
def test_measures_gangs() -> None:
    options = ("gangs", "--gangs", "3", "--members", "4", "--nodes", "5", "--timeout", "120", "-o", "json")
    done = subprocess.run([*BENCH[:-1], *options], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert list(report) == list(GangReport.__struct_fields__)
    assert (report["gangs"], report["members"], report["nodes"]) == (3, 4, 5)
    assert report["outcomes"]["bound"] == 12
    assert report["pods_per_second"] == pytest.approx(12 / report["seconds"], rel=0.02)
    assert report["engine_us_per_pod"].keys() == {"alone", "in gangs", "undone"}
    assert min(report["engine_us_per_pod"].values()) > 0


def test_ctrl_c_stops_all_that_was_started() -> None:
    process = subprocess.Popen([*BENCH, *TINY, "--embedded", "--rate", "1"], start_new_session=True)
    try:
        started = wait_for_worker(psutil.Process(process.pid))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        gone, alive = psutil.wait_procs(started, timeout=30)
        assert len(gone) >= 4, "worker, relay and the database's processes"
        assert alive == []
    finally:
        process.kill()


def wait_for_worker(bench: psutil.Process) -> list[psutil.Process]:
    """Wait until worker and relay run; return all processes below the measurement."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        below = bench.children(recursive=True)
        if {"worker", "relay"} <= {last_word(process) for process in below}:
            return below
        time.sleep(0.1)
    raise AssertionError("worker and relay do not run")


def last_word(process: psutil.Process) -> str:
    try:
        return process.cmdline()[-1]
    except (psutil.Error, IndexError):  # gone, or about to be
        return ""
