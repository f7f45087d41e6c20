"""A flood becomes no waiting pods: hosted replicas on the real parts, from events to the API and back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from services import bootstrap
from services.adapters.postgres.audit import check
from services.api.answers import Replicas, ReplicasPage
from services.api.keys import key_hash, new_key
from services.bootstrap import Place
from services.config import Settings
from services.executor.scaling import ScaledFile, Scaler, templates_of
from services.metrics import process_registry
from services.ports.log import SCALES_TOPIC, TopicPartition
from services.ports.store import Grant
from services.replay.replay import Progress
from tests.builders import Json, event, node_manifest
from tests.hosted import hosted_manifest, member_manifest, use_manifest
from tests.integration.api_world import World, answer_of, client_of, fresh_database, query

NODES = ("n0", "n1", "n2", "n3")
CORES, FLOOD = 5, 1_000
SECONDS_MAX = 90
POLICY = {
    "apiVersion": "berth/v1",
    "kind": "CoLocationPolicy",
    "metadata": {"name": "quick"},
    "spec": {"replicas": {"step": "1s", "wait": "1s"}},
}
PENDING = "SELECT count(*) FROM pending"
PLACED = "SELECT count(*) FROM placements WHERE released_at_ms IS NULL"


@contextlib.asynccontextmanager
async def running(place: Place) -> AsyncIterator[None]:
    """Run a worker, a relay, and an executor that scales."""
    settings, log = Settings(worker_name="test", seed=7, checkpoint_batches=10), bootstrap.open_log(place)
    templates = templates_of([member_manifest("template", cpu=1)])
    tasks = [
        asyncio.create_task(bootstrap.run_worker(place, settings, process_registry())),
        asyncio.create_task(bootstrap.run_relay(place, settings, process_registry())),
        asyncio.create_task(Scaler(log, templates, ScaledFile(None)).run()),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await log.aclose()


async def post(world: World, *objects: Json) -> None:
    answer = await world.client.post("/v1/events", json=[event("ADDED", each) for each in objects])
    assert answer.status_code == 202, answer.text


async def count(place: Place, statement: str) -> int:
    ((found,),) = await query(place, statement)
    return int(found)


async def until(world: World, cores: float, placed: Any) -> list[int]:
    """Measure so much of each node once a second until so many pods run; return how many waited meanwhile."""
    began, waited = time.monotonic(), []
    while not placed(await count(world.place, PLACED)):
        assert time.monotonic() - began < SECONDS_MAX, await query(
            world.place, "SELECT * FROM hosted_replicas"
        )
        await post(world, *(use_manifest(node, cores) for node in NODES))
        for _ in range(5):
            waited.append(await count(world.place, PENDING))
            await asyncio.sleep(0.2)
    return waited


async def test_a_flood_becomes_no_more_pods_than_there_is_room_for(embedded_dsn: str) -> None:
    keys = [new_key() for _ in range(2)]
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place, keys_required=True) as client:
            world, store = World(place, client), bootstrap.open_store(place)
            await store.callers.create_key(key_hash(keys[0]), Grant("all", ["admin"]))
            await store.callers.create_key(key_hash(keys[1]), Grant("other", ["auditor"], ["other"]))
            await store.aclose()
            client.headers["Authorization"] = f"Bearer {keys[0]}"
            async with running(place):
                nodes = [node_manifest(name, cpu=CORES) for name in NODES]
                await post(world, POLICY, *nodes, hosted_manifest(min=1, max=FLOOD))
                waited = await until(world, 1, lambda placed: placed == CORES * len(NODES))
            async with running(place):
                waited += await until(world, 4.5, lambda placed: placed <= CORES * len(NODES) - 5)
            assert await count(place, PENDING) <= 1
            assert sum(waiting > 1 for waiting in waited) <= len(waited) // 5, "but for those just made"
            await shown(world, keys[1])
            assert await count(place, "SELECT count(*) FROM dead_letters") == 0
            await published(place)
            assert [found for found in await check(place.dsn) if not found.warning] == []
            await replayed(place)


async def shown(world: World, other_key: str) -> None:
    """Ask the API with a key that sees all, and with one of another namespace."""
    page = await answer_of(world, "/v1/replicas", ReplicasPage)
    (said,) = page["items"]
    assert (said["namespace"], said["name"], said["max"]) == ("default", "web", FLOOD)
    assert said["workload"] == {"kind": "ReplicaSet", "name": "web"}
    assert said["wanted"] < CORES * len(NODES)
    assert await answer_of(world, "/v1/replicas/default/web", Replicas) == said
    assert (await world.client.get("/v1/replicas/default/none")).status_code == 404
    world.client.headers["Authorization"] = f"Bearer {other_key}"
    assert (await answer_of(world, "/v1/replicas", ReplicasPage))["items"] == []
    assert (await world.client.get("/v1/replicas?namespace=default")).status_code == 403
    assert (await world.client.get("/v1/replicas/default/web")).status_code == 404


async def published(place: Place) -> None:
    """Compare the topic with the ledger: each scale once, in order."""
    rows = [row[0] for row in await query(place, "SELECT payload FROM scales ORDER BY seq")]
    log = bootstrap.open_log(place)
    reader, at = await log.reader(), TopicPartition(SCALES_TOPIC, 0)
    await reader.assign({at: 0})
    records = await reader.poll(1_000, 5.0)
    await reader.aclose()
    await log.aclose()
    noted = await count(place, "SELECT scales_seq FROM relay_cursor WHERE shard = 0")
    assert noted >= 3
    assert [record.value for record in records] == rows[: len(records)]
    assert noted <= len(records) <= len(rows)


async def replayed(place: Place) -> None:
    """Replay all of it, over the restart and from a checkpoint in the midst."""

    async def report(progress: Progress) -> None:
        pass

    whole = await bootstrap.replay(place, None, None, report)
    assert whole.difference is None
    assert whole.progress.restarts_count == 2
    part = await bootstrap.replay(place, whole.progress.last - 1, None, report)
    assert part.difference is None
    assert part.progress.checkpoint > whole.progress.checkpoint
