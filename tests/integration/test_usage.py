"""Usage over time from events to the command line, beside a worker."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from services import bootstrap, rolling_up
from services.api.usage import UsagePage
from services.config import Settings
from services.metrics import process_registry
from tests.builders import event, node_manifest, pod_manifest
from tests.integration.api_world import World, all_items, answer_of, client_of, fresh_database
from tests.integration.commands import berth
from tests.integration.live import send


async def rolled_up(world: World, count: int) -> Any:
    """Return what is said of the cluster once so many decisions are counted."""
    async with asyncio.timeout(60):
        while True:
            answer = await answer_of(world, "/v1/usage", UsagePage, since="1h")
            if sum(sum(each["decisions"].values()) for each in answer["items"]) >= count:
                return answer
            await asyncio.sleep(0.05)


@pytest.mark.deep
async def test_a_worker_rolls_up_beside_placing(
    embedded_dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quick = functools.partial(rolling_up.roll_up, pause_seconds=0.1)
    monkeypatch.setattr(rolling_up, "roll_up", quick)
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            world = World(place, client)
            settings = Settings(worker_name="test", seed=7)
            worker = asyncio.create_task(bootstrap.run_worker(place, settings, process_registry()))
            pods = [
                pod_manifest(f"p{i}", "ab"[i % 2], uid=f"u{i}", cpu="500m", memory="1Gi") for i in range(6)
            ]
            big = pod_manifest("big", "a", uid="big", cpu="99")
            await send(world, event("ADDED", node_manifest("n1", cpu=40, memory="64Gi")))
            await send(world, *(event("ADDED", each) for each in (*pods, big)))
            answer = await rolled_up(world, 7)
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            (item,) = answer["items"]
            assert item["decisions"] == {"bound": 6, "unresolvable": 1}
            assert item["samples"] >= 1
            assert item["allocatable_cpu_milli"] == 40_000
            namespaces = await all_items(world, "/v1/usage", UsagePage, by="namespace", step="5m", limit=1)
            assert {each["name"] for each in namespaces} == {"a", "b"}
            assert sum(each["decisions"].get("bound", 0) for each in namespaces) == 6
            assert (await client.get("/v1/usage?step=7m")).status_code == 422
            asked = functools.partial(berth, tmp_path, "top", "--postgres-dsn", place.dsn)
            shown = (await asyncio.to_thread(asked, "namespaces", "-o", "json")).stdout
            assert {each["name"]: each["decisions"] for each in json.loads(shown)} == {
                "a": {"bound": 3, "unresolvable": 1},
                "b": {"bound": 3},
            }
            table = (await asyncio.to_thread(asked, "nodes", "--step", "5m")).stdout
            assert table.splitlines()[0].startswith("AT\tNODE\tPODS\tCPU")
            file = tmp_path / "decisions.csv"
            exporting = ("export", "decisions", "--postgres-dsn", place.dsn, "-n", "a")
            done = await asyncio.to_thread(berth, tmp_path, *exporting, "--to", str(file))
            assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
            assert len(file.read_text().splitlines()) == 1 + 4
            assert os.listdir(tmp_path) == ["decisions.csv"]
            printed = await asyncio.to_thread(berth, tmp_path, *exporting)
            assert printed.stdout == file.read_text()
            lines = await asyncio.to_thread(
                berth, tmp_path, *exporting, "--format", "ndjson", "--since", "1d"
            )
            assert [json.loads(line)["namespace"] for line in lines.stdout.splitlines()] == ["a"] * 4
            refused = await asyncio.to_thread(berth, tmp_path, "export", "nodes", *exporting[2:])
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "nodes are of no namespace" in refused.stderr
            listing = functools.partial(
                berth, tmp_path, "get", "pods", "--postgres-dsn", place.dsn, "-o", "jsonl"
            )
            whole = (await asyncio.to_thread(listing)).stdout.splitlines()
            assert [json.loads(line)["uid"] for line in whole] == ["big", *(f"u{i}" for i in range(6))]
            assert (await asyncio.to_thread(listing, "--limit", "3")).stdout.splitlines() == whole[:3]
            of_b = (await asyncio.to_thread(listing, "-n", "b", "--sort-by", ".name")).stdout.splitlines()
            assert [json.loads(line)["name"] for line in of_b] == ["p1", "p3", "p5"]
