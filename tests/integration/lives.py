"""A ledger and a log that two workers have left, one after the other, and how a test changes them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from services import bootstrap
from services.bootstrap import Place
from tests.builders import node_manifest, pod_manifest
from tests.integration.api_world import client_of, fresh_database, query, work_off


@pytest_asyncio.fixture
async def place(embedded_dsn: str) -> AsyncIterator[Place]:
    """Return a ledger and a log after two workers' lives, with pods that are placed, adopted, wait and go."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            for life in range(2):
                pods = [pod_manifest(f"p{life}-{i}", cpu="500m") for i in range(6)]
                adopted = pod_manifest(f"there{life}", cpu="1", spec={"nodeName": f"n{life}"})
                waits = pod_manifest(f"big{life}", cpu=99)
                things = [node_manifest(f"n{life}", cpu=4), *pods, adopted, waits]
                events = [{"type": "ADDED", "object": thing} for thing in things]
                events.append({"type": "DELETED", "object": pods[0]})
                answer = await client.post("/v1/events", json=events)
                assert answer.status_code == 202, answer.text
                await work_off(place)
        yield place


async def change(place: Place, statement: str) -> None:
    """Change the ledger as somebody with psql would."""
    await query(place, f"WITH changed AS ({statement} RETURNING 1) SELECT count(*) FROM changed")
