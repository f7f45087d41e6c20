"""Measured usage from the event to the decision, on real servers, over a restart of the worker."""

from __future__ import annotations

import asyncio

import pytest

from services import bootstrap
from services.api import answers
from services.api.answers_decisions import Explanation
from services.config import Settings
from services.metrics import process_registry
from tests.builders import Json, event, node_manifest, pod_manifest, profile_manifest, usage_manifest
from tests.integration.api_world import World, answer_of, client_of
from tests.integration.live import send, servers

PROFILE = profile_manifest("packing", scores=["TargetLoadPacking"])


def pod(name: str) -> Json:
    return event("ADDED", pod_manifest(name, cpu="500m", scheduler_name="packing"))


def sample(node: str, at: str, **fields: Json) -> Json:
    return event("MODIFIED", usage_manifest(node, **fields), at=f"2026-01-02T{at}Z")


async def placed(world: World, name: str) -> tuple[str, float]:
    detail = await answer_of(world, f"/v1/pods/default/{name}", answers.PodDetail)
    return detail["decisions"][0]["node"], detail["decisions"][0]["score"]


async def inputs(world: World, name: str) -> Json:
    """Return what the chosen node was scored from, by the explanation of a pod's only decision."""
    detail = await answer_of(world, f"/v1/pods/default/{name}", answers.PodDetail)
    target = f"/v1/decisions/{detail['decisions'][0]['id']}/explanation"
    cycle = (await answer_of(world, target, Explanation))["cycle"]
    assert [each["node"] for each in cycle["candidates"]] == ["idle", "busy"]
    found: Json = cycle["candidates"][0]["inputs"]
    assert found["node_version"] == detail["decisions"][0]["node_version"] - 1
    return found


async def day(kind: str, request: pytest.FixtureRequest, *, restart: bool) -> list[object]:
    """Return what became of three pods, and what was measured; perhaps with restarts at each event."""
    async with servers(kind, request) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            world = World(place, client)
            full = pod_manifest("there", cpu="200m", node_name="idle")
            events = [
                event("ADDED", PROFILE),
                *(event("ADDED", thing) for thing in (node_manifest("idle"), node_manifest("busy"), full)),
                sample("busy", "12:00:00", percent={"cpu": 85}),
                sample("idle", "12:00:00", percent={"cpu": 5}),
                pod("first"),
                sample("idle", "12:00:30", used={"cpu": "600m"}, percent={"network": 3.5}),
                pod("second"),
                pod("third"),
            ]
            worker = None
            for each in events:
                if restart or worker is None:
                    await stop(worker)
                    settings = Settings(worker_name="test", seed=7)
                    worker = asyncio.create_task(bootstrap.run_worker(place, settings, process_registry()))
                await send(world, each)
            node = await answer_of(world, "/v1/nodes/idle", answers.NodeDetail)
            other = await answer_of(world, "/v1/nodes/busy", answers.NodeDetail)
            await stop(worker)
            return [
                *[await placed(world, name) for name in ("first", "second", "third")],
                node["usage"],
                other["usage"],
                await inputs(world, "second"),
            ]


async def stop(worker: asyncio.Task[None] | None) -> None:
    if worker is not None:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


@pytest.mark.parametrize(
    "kind", ["embedded", pytest.param("postgres", marks=[pytest.mark.real, pytest.mark.deep])]
)
async def test_pods_go_by_what_is_measured_and_restarts_change_nothing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    found = await day(kind, request, restart=False)
    # 0.75 cores are predicted for a pod, the one to place and each that came before it, and 0.3 for the one
    # that is there: no measurement was made a minute after any of them was placed.
    used = [5 + 7.5 + 18.75, 10 + 7.5 + 2 * 18.75, 10 + 7.5 + 3 * 18.75]
    scores = [60 * used[0] / 40 + 40, 40 * (100 - used[1]) / 60, 40 * (100 - used[2]) / 60]
    assert found[:3] == [("idle", pytest.approx(score)) for score in scores]
    assert found[3] == {
        "at": "2026-01-02T12:00:30.000Z",
        "resources": {
            "cpu": {"avg": 10.0, "std": 5.0, "latest": 15.0, "peak_yesterday": None, "samples": 2},
            "network": {"avg": 3.5, "std": 0.0, "latest": 3.5, "peak_yesterday": None, "samples": 1},
        },
    }
    then = found[5]
    assert isinstance(then, dict)
    assert then["usage"] == {
        "at": "2026-01-02T12:00:30.000Z",
        "resources": {
            "cpu": {"avg": 10.0, "std": 5.0, "latest": 15.0, "peak_yesterday": None},
            "network": {"avg": 3.5, "std": 0.0, "latest": 3.5, "peak_yesterday": None},
        },
    }
    assert then["sums"]["cpu"] == {"allocatable": "4", "requested": "700m"}  # `there` and `first`
    assert then["sums"]["~requested"]["requested"] == "700m"  # both are recent
    assert await day(kind, request, restart=True) == found
