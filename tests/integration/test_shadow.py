"""A shadow profile from a worker that runs to the answer of the API: what it says, and who may ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from services import bootstrap
from services.api.keys import key_hash
from services.api.shadow import ShadowPage
from services.config import Settings
from services.metrics import process_registry
from services.ports.store import Grant
from tests.builders import event, node_manifest, pod_manifest, profile_manifest
from tests.integration.api_world import World, answer_of, client_of, fresh_database
from tests.integration.live import send

PODS = 6


@pytest_asyncio.fixture
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    """Return a cluster on which a worker places one pod after another, beside a profile that packs."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        registry = process_registry()
        async with client_of(place) as client:
            world = World(place, client)
            settings = Settings(worker_name="one", seed=7, shadow_profile="packed")
            running = asyncio.create_task(bootstrap.run_worker(place, settings, registry))
            world_events = [
                event("ADDED", profile_manifest("packed", "MostAllocated")),
                *(event("ADDED", node_manifest(f"n{i}", cpu=2 + 2 * i)) for i in range(3)),
                *(event("ADDED", pod_manifest(f"secret-{i}", "team", cpu="500m")) for i in range(PODS)),
            ]
            await send(world, *world_events)
            yield world
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        counted = {
            (sample.name, *sample.labels.values()): sample.value
            for metric in registry.collect()
            if metric.name.startswith("berth_shadow")
            for sample in metric.samples
            if sample.name.endswith("_total")
        }
        attempts = sum(
            count for (name, *_), count in counted.items() if name == "berth_shadow_attempts_total"
        )
        skipped = sum(count for (name, *_), count in counted.items() if name == "berth_shadow_skipped_total")
        assert attempts + skipped == PODS


async def told(world: World) -> Any:
    """Return what is told once a heartbeat has told of all pods."""
    async with asyncio.timeout(30):
        while True:
            found = await answer_of(world, "/v1/shadow", ShadowPage)
            items = found["items"]
            if items and sum(items[0][name] for name in ("attempts", "skipped", "skipped_lagging")) == PODS:
                return found
            await asyncio.sleep(0.1)


async def test_what_a_worker_compared_is_told_and_names_no_pod(world: World) -> None:
    found = await told(world)
    (item,) = found["items"]
    assert (item["profile"], item["state"], item["revision"], found["next"]) == ("packed", "on", 1, None)
    assert item["attempts"] >= 1
    assert item["neither"] == item["only_live"] == item["only_shadow"] == 0
    assert 0 <= item["agreement"] < 1
    assert item["regret"] > 0
    (worker,) = item["workers"]
    assert {name: worker[name] for name in ("attempts", "regret", "live_regret", "skipped")} == {
        name: item[name] for name in ("attempts", "regret", "live_regret", "skipped")
    }
    for asked in ("", "?profile=packed"):
        text = (await world.client.get(f"/v1/shadow{asked}")).text
        assert "secret" not in text
        assert "team" not in text
        assert '"packed"' in text
    assert (await answer_of(world, "/v1/shadow", ShadowPage, profile="other"))["items"] == []


async def test_who_reads_may_ask(world: World) -> None:
    await told(world)
    store = bootstrap.open_store(world.place)
    keys = {"auditor": "a" * 40, "operator": "o" * 40, "producer": "p" * 40, "agent": "g" * 40}
    for role, key in keys.items():
        node = "n0" if role == "agent" else None
        await store.callers.create_key(key_hash(key), Grant(role, [role], node=node))
    await store.aclose()
    async with client_of(world.place, keys_required=True) as client:
        found = {}
        for role, key in keys.items():
            headers = {"Authorization": f"Bearer {key}"}
            found[role] = (await client.get("/v1/shadow", headers=headers)).status_code
        found["none"] = (await client.get("/v1/shadow")).status_code
    assert found == {"auditor": 200, "operator": 200, "producer": 403, "agent": 403, "none": 401}
