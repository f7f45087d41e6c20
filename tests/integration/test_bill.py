"""The bill from the events to the API, on a real ledger, over a restart of the worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services import bootstrap
from services.api.bill import BillPage
from services.api.keys import key_hash, new_key
from services.config import Settings
from services.metrics import process_registry
from services.ports.store import Grant
from tests.builders import Json, event, node_manifest, pod_manifest, usage_manifest
from tests.integration.api_world import World, answer_of, client_of, fresh_database, query
from tests.integration.live import send

QUALITY = {"high": {"cpu": "1"}}


def pod(namespace: str, name: str, **resources: Json) -> Json:
    manifest = pod_manifest(name, namespace, uid=f"{namespace}-{name}", node_name="n")
    manifest["spec"]["containers"][0]["resources"] = resources
    return event("ADDED", manifest)


def report(at: str, **core_hours: float) -> Json:
    """Return what the pods of the node have used by then, as in ``a_web=1.5``."""
    pods = {uid.replace("_", "-"): {"cpuSeconds": 3600 * used} for uid, used in core_hours.items()}
    return event("MODIFIED", usage_manifest("n", quality=QUALITY, pods=pods), at=f"{at}Z")


async def work_off(world: World, *events: Json) -> None:
    """Send events to a worker that has just begun, and let it end."""
    settings = Settings(worker_name="test", seed=7)
    worker = asyncio.create_task(bootstrap.run_worker(world.place, settings, process_registry()))
    await send(world, *events)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_what_pods_use_is_on_the_bill(embedded_dsn: str) -> None:
    key, everything = new_key(), new_key()
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place, keys_required=True) as client:
            world = World(place, client)
            client.headers["Authorization"] = f"Bearer {everything}"
            store = bootstrap.open_store(place)
            await store.callers.create_key(key_hash(everything), Grant("all", ["admin"]))
            await store.callers.create_key(key_hash(key), Grant("a", ["auditor"], ["a"]))
            await store.aclose()
            await work_off(
                world,
                event("ADDED", node_manifest("n", cpu=40, memory="64Gi")),
                pod("a", "web", requests={"cpu": "1"}, limits={"cpu": "4"}),
                pod("b", "batch"),
            )
            first, last = (
                report("2026-01-02T23:10:00", a_web=10, b_batch=7),
                report("2026-01-03T01:10:00", a_web=15, b_batch=27),
            )
            await work_off(world, first)
            assert (await bill(world))["total"]["billed"] == 9.2, "10 within the request, 7 low"
            await work_off(world, last, first, last)
            for by, names in (
                ("namespace", ["a", "b"]),
                ("quality", ["low", "mid"]),
                ("day", ["2026-01-02", "2026-01-03"]),
            ):
                told = await bill(world, by=by)
                assert [each["name"] for each in told["items"]] == names
                assert told["total"] == {
                    "cpu_core_hours": 42.0,
                    "memory_gib_hours": 0.0,
                    "lent_cpu_core_hours": 30.0,
                    "lent_memory_gib_hours": 0.0,
                    "billed": 14.4,  # then 2 within it at 0.85, 3 beyond it at 0.5, 20 low ones at 0.1
                    "saved": 27.6,
                }
                for field in told["total"]:
                    assert sum(each[field] for each in told["items"]) == pytest.approx(told["total"][field])
            assert (await bill(world, namespace="a"))["total"]["billed"] == 11.7
            assert (await bill(world, since="2026-01-03T02:00:00Z"))["items"] == []
            assert (await bill(world, until="2026-01-03T01:00:00Z"))["total"]["billed"] == 9.2
            inside = await bill(world, since="2026-01-03T01:59:00Z", until="2026-01-03T01:00:01Z")
            assert (inside["since"], inside["total"]["billed"]) == ("2026-01-03T01:00:00.000Z", 5.2)
            assert await query(place, "SELECT count(*) FROM dead_letters") == [(0,)]
            client.headers["Authorization"] = f"Bearer {key}"
            assert [each["name"] for each in (await bill(world))["items"]] == ["a"]
            assert (await client.get("/v1/bill?namespace=b")).status_code == 403
            assert (await client.get("/v1/bill?by=pod")).status_code == 422


async def bill(world: World, **asked: str) -> Any:
    return await answer_of(world, "/v1/bill", BillPage, **asked)
