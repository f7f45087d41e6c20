"""Does `berth optimise` read a real ledger, with what runs and what waits, and change nothing there?"""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from services import bootstrap
from services.cli.main import app
from tests.builders import Json, node_manifest, pod_manifest
from tests.integration.api_world import client_of, fresh_database, query, work_off


def owned(manifest: Json) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    manifest["metadata"]["ownerReferences"] = [owner]
    return manifest


async def test_the_ledger_is_optimised_and_stays_as_it_is(embedded_dsn: str) -> None:
    """Small pods are on the only node that is large enough for a large one; a bare one must not move."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        things = [
            node_manifest("small", cpu=2),
            node_manifest("large", cpu=4),
            owned(pod_manifest("web", cpu="1", node_name="large")),
            pod_manifest("job", cpu="4"),
            pod_manifest("bare", cpu="1", node_name="small"),
        ]
        async with client_of(place) as client:
            events = [{"type": "ADDED", "object": thing} for thing in things]
            assert (await client.post("/v1/events", json=events)).status_code == 202
            await work_off(place)
        before = await query(place, "SELECT * FROM shard_offsets ORDER BY 1, 2, 3")
        asked = ["optimise", "--postgres-dsn", place.dsn, "--steps", "500", "-o", "json"]
        done = await asyncio.to_thread(CliRunner().invoke, app, asked)
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        assert answer["moves"] == [
            {"pod": "default/web", "from": "large", "to": "small", "gain": 0.0},
            {"pod": "default/job", "from": None, "to": "large", "gain": 0.0},
        ]
        assert (answer["before"]["waiting_count"], answer["staying"]) == (1, 1)
        assert await query(place, "SELECT * FROM shard_offsets ORDER BY 1, 2, 3") == before
