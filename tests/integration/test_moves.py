"""Is a hot node relieved on the real parts, and where does the pod go that replaces one which left?"""

from __future__ import annotations

import asyncio

import pytest

from services import bootstrap
from services.adapters.postgres.audit import check
from services.api.answers import NodeDetail
from services.api.answers_decisions import Explanation
from services.config import Settings
from services.executor.run import Executor, Positions
from services.metrics import process_registry
from tests.builders import Json, event, node_manifest, pod_manifest, usage_manifest
from tests.integration.api_world import World, answer_of, client_of, fresh_database, query
from tests.integration.live import send

POLICY = {
    "apiVersion": "berth/v1",
    "kind": "CoLocationPolicy",
    "metadata": {"name": "quick"},
    "spec": {"view": {"settle": "0s"}},
}

pytestmark = pytest.mark.timeout(120)


def pod(name: str, node: str | None = None) -> Json:
    """Return a pod of a workload, under co-location."""
    manifest = pod_manifest(name, cpu=2, memory="1Gi", node_name=node, scheduler_name="colocation", uid=name)
    controller = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "w",
        "controller": True,
    }
    manifest["metadata"]["ownerReferences"] = [controller]
    return event("ADDED", manifest)


def measured(node: str, cores: float) -> Json:
    quality = {"mid": {"cpu": str(cores), "memory": "2Gi"}}
    return event("MODIFIED", usage_manifest(node, quality=quality))


async def until(world: World, statement: str, wanted: int) -> None:
    """Wait until a statement gives a value."""
    async with asyncio.timeout(60):
        while (await query(world.place, statement))[0][0] != wanted:
            await asyncio.sleep(0.05)


async def test_a_hot_node_is_relieved_and_the_new_pod_lands_elsewhere(embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        log = bootstrap.open_log(place)
        settings = Settings(worker_name="test", seed=7)
        running = [
            asyncio.create_task(each)
            for each in (
                bootstrap.run_worker(place, settings, process_registry()),
                bootstrap.run_relay(place, settings, process_registry()),
                Executor(log, Positions(None)).run(),
            )
        ]
        try:
            async with client_of(place) as client:
                await relieve(World(place, client))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await log.aclose()


async def relieve(world: World) -> None:
    nodes = [event("ADDED", node_manifest(name, cpu=10, memory="64Gi")) for name in ("hot", "cool")]
    await send(world, event("ADDED", POLICY), *nodes, pod("web-0", "hot"), measured("cool", 1.0))
    for _ in range(5):
        await send(world, measured("hot", 9.0))
    await until(world, "SELECT count(*) FROM decisions WHERE outcome = 'released'", 1)
    told = await query(world.place, "SELECT outcome, node FROM decisions ORDER BY recorded_at, seq")
    assert [tuple(row) for row in told] == [("adopted", "hot"), ("evicted", "hot"), ("released", "hot")]
    rows = await query(world.place, "SELECT node, name, target, is_open FROM moves")
    assert [tuple(row) for row in rows] == [("hot", "web-0", "cool", False)]

    await send(world, pod("web-1"), measured("cool", 1.5))
    await until(world, "SELECT count(*) FROM placements WHERE node = 'cool' AND released_at_ms IS NULL", 1)

    shown = await answer_of(world, "/v1/nodes/hot", NodeDetail)
    assert shown["heat"] == {"hot": True, "why": ["cpu is used to 90.0 %"]}
    assert (shown["moves"], shown["pods"]) == ([], [])
    (evicted,) = await query(world.place, "SELECT shard, seq FROM decisions WHERE outcome = 'evicted'")
    explained = await answer_of(world, f"/v1/decisions/{evicted[0]}-{evicted[1]}/explanation", Explanation)
    assert explained["decision"]["migration"]["from"] == "hot"
    assert explained["decision"]["migration"]["to"] == "cool"
    assert [found for found in await check(world.place.dsn) if not found.warning] == []
