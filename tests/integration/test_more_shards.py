"""Does a deployment get more shards in the way that a worker tells, without missing an event?"""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from domain.model.errors import TopicMismatch
from services.bootstrap import Place, initialise, open_log, run_worker
from services.config import Settings
from services.metrics import process_registry
from services.ports.log import DECISIONS_TOPIC, NODES_TOPIC, PODS_TOPIC, Entry
from tests.builders import event_bytes, pod_manifest
from tests.servers import MakeDatabase

pytestmark = pytest.mark.real


async def _send(place: Place, names: list[str]) -> None:
    log = open_log(place)
    writer = await log.writer()
    pods = [pod_manifest(name, uid=name) for name in names]
    entries = [
        Entry(f"default/{n}".encode(), event_bytes("ADDED", pod)) for n, pod in zip(names, pods, strict=True)
    ]
    await writer.append(PODS_TOPIC, entries)
    await writer.aclose()
    await log.aclose()


async def test_partitions_first_then_shards(
    fresh_kafka: str, postgres_dsn: str, database: MakeDatabase
) -> None:
    place = Place(await database(postgres_dsn), fresh_kafka)
    await initialise(place, 1)
    with pytest.raises(TopicMismatch, match="has 1 partitions, not 3"):
        await initialise(place, 3)
    before, after = [f"b{i}" for i in range(20)], [f"a{i}" for i in range(20)]
    await _send(place, before)
    admin = AIOKafkaAdminClient(bootstrap_servers=fresh_kafka)
    await admin.start()
    more = {topic: NewPartitions(3) for topic in (NODES_TOPIC, PODS_TOPIC, DECISIONS_TOPIC)}
    await admin.create_partitions(more)
    await admin.close()
    await _send(place, after)
    with pytest.raises(TopicMismatch, match="berth init --shards 3"):
        await run_worker(place, Settings(worker_name="w"), process_registry())
    assert await initialise(place, 3) == ["3 shards laid down"]
    worker = asyncio.create_task(run_worker(place, Settings(worker_name="w"), process_registry()))
    connection = await asyncpg.connect(place.dsn)
    try:
        async with asyncio.timeout(120):
            found: set[str] = set()
            while found != {*before, *after}:
                assert not worker.done(), worker.result()
                await asyncio.sleep(0.2)
                found = {row["name"] for row in await connection.fetch("SELECT name FROM pending")}
    finally:
        await connection.close()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
