"""Does a ledger of an earlier version say what it lacks, and learn it from the log without moving any pod?"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from domain.model.errors import RefoldNeeded
from domain.model.pods import PodTemplate
from domain.model.signature import signature, template_to_json
from services import bootstrap
from services.adapters.postgres.audit import check
from services.bootstrap import Place
from services.config import Settings
from services.growing import ShardsHeld
from services.metrics import process_registry
from tests.builders import Json, node_manifest, pod_manifest
from tests.integration.api_world import client_of, fresh_database, query, work_off

ZONE = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
AWAY: Json = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ZONE]}}
SERVICE: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}},
}


def web(name: str, version: int, **spec: Any) -> Json:
    labels = {"app": "web"}
    return pod_manifest(name, cpu="1", labels=labels, uid=f"u-{name}", resource_version=version, spec=spec)


async def age(place: Place) -> None:
    """Make the ledger what an earlier version would have written: no constraint, no service."""
    for row in await query(place, "SELECT signature, spec FROM templates"):
        spec = json.loads(row["spec"])
        spec.pop("pod_anti_affinity", None)
        plain = PodTemplate(requests=spec["requests"])
        await query(
            place,
            "INSERT INTO templates VALUES ($1, $2) ON CONFLICT DO NOTHING",
            signature(plain),
            template_to_json(plain).decode(),
        )
        for table in ("placements", "pending"):
            await query(place, f"UPDATE {table} SET signature = $1", signature(plain))
    await query(place, "DELETE FROM config_objects")
    await query(place, "UPDATE shards SET refold = true")


@pytest.mark.asyncio
async def test_a_worker_refuses_an_old_ledger_and_a_refold_brings_what_it_lacks(embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        gone = web("gone", 2)
        async with client_of(place) as client:
            events = [
                {"type": "ADDED", "object": node_manifest("n", labels={"zone": "a"})},
                {"type": "ADDED", "object": SERVICE},
                {"type": "ADDED", "object": web("placed", 1, nodeName="n", affinity=AWAY)},
                {"type": "ADDED", "object": gone},
                {"type": "ADDED", "object": web("big", 3, nodeSelector={"no": "where"})},
            ]
            answer = await client.post("/v1/events", json=events)
            assert answer.status_code == 202, answer.text
            await work_off(place)
            deleted = {"type": "DELETED", "object": gone}
            assert (await client.post("/v1/events", json=[deleted])).status_code == 202
            await work_off(place)
        before = await query(place, "SELECT pod_uid, node FROM placements WHERE released_at_ms IS NULL")
        decided = (await query(place, "SELECT count(*) FROM decisions"))[0][0]
        await age(place)
        settings = Settings(worker_name="w")
        with pytest.raises(RefoldNeeded, match="berth refold"):
            async with asyncio.timeout(60):
                await bootstrap.run_worker(place, settings, process_registry())
        assert await bootstrap.refold(place) == 5
        await work_off(place)
        after = await query(place, "SELECT pod_uid, node FROM placements WHERE released_at_ms IS NULL")
        assert after == before
        rows = await query(
            place,
            "SELECT spec FROM placements JOIN templates USING (signature) WHERE released_at_ms IS NULL",
        )
        assert "pod_anti_affinity" in rows[0]["spec"]
        assert len(await query(place, "SELECT FROM config_objects WHERE kind = 'Service'")) == 1
        (waiting,) = await query(place, "SELECT t.spec FROM pending JOIN templates t USING (signature)")
        assert '"no":"where"' in waiting["spec"].replace(" ", "")
        outcomes = await query(
            place, "SELECT pod_uid, outcome FROM decisions ORDER BY seq OFFSET $1", decided
        )
        assert [tuple(each) for each in outcomes] == [("u-placed", "resized"), ("u-big", "unresolvable")]


@pytest.mark.asyncio
async def test_nobody_sets_back_what_a_worker_holds(embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        ledger = bootstrap.open_ledger(place)
        assert await ledger.acquire("w", 30)
        with pytest.raises(ShardsHeld, match="stop all workers"):
            await bootstrap.refold(place)
        await ledger.aclose()


async def test_a_shard_that_is_read_again_by_who_has_others_already_breaks_no_chain(
    embedded_dsn: str,
) -> None:
    """After a refold workers may take the shards one by one: only the first of them tells how they began."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            pods = [pod_manifest(f"p{i}", cpu="1m") for i in range(12)]
            events = [{"type": "ADDED", "object": thing} for thing in (node_manifest("n"), *pods)]
            assert (await client.post("/v1/events", json=events)).status_code == 202
        await work_off(place)
        assert (await bootstrap.audit(place, None, lambda _: None)).ok
        assert await bootstrap.refold(place) == 12
        other = bootstrap.open_ledger(place)
        (kept,) = await other.acquire("other", 60, [1])
        worker = asyncio.create_task(
            bootstrap.run_worker(place, Settings(worker_name="w"), process_registry())
        )
        try:
            await _folded_again(place, 0, worker)
            await other.release([kept])
            await _folded_again(place, 1, worker)
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            await other.aclose()
        told = await query(
            place, "SELECT start IS NULL AND owned IS NOT NULL AS t FROM journal WHERE shard = 0"
        )
        assert any(row["t"] for row in told), "it took shard 1 when it had begun"
        assert await check(place.dsn) == []
        assert (await bootstrap.audit(place, None, lambda _: None)).ok
        await query(place, "UPDATE shard_offsets SET refold_below = NULL WHERE topic = 'berth.pods'")
        assert "journal-ranges-chain" in {each.name for each in await check(place.dsn)}


async def _folded_again(place: Place, shard: int, worker: asyncio.Task[None]) -> None:
    """Wait until a shard has read again what it had read before."""
    text = "SELECT next_offset = refold_below FROM shard_offsets WHERE topic = 'berth.pods' AND shard = $1"
    async with asyncio.timeout(60):
        while not (await query(place, text, shard))[0][0]:
            assert not worker.done(), worker.result()
            await asyncio.sleep(0.05)
