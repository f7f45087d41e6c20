"""Does a worker notice on a real broker that a topic was made anew, cut or grew?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from prometheus_client import CollectorRegistry

from domain.model.errors import TopicMismatch
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.kafka.log import KafkaLog
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.ports.log import CONFIG_TOPIC, PODS_TOPIC, USAGE_TOPIC, Entry, topic_specs
from services.worker.metrics import WorkerMetrics
from services.worker.run import Worker, WorkerSettings
from tests.builders import event_bytes, pod_manifest
from tests.contract.ledgers import ManualClock

pytestmark = pytest.mark.real


class _Site:
    """A worker on a real log, with its ledger in memory."""

    def __init__(self, bootstrap: str, admin: AIOKafkaAdminClient) -> None:
        self.log = KafkaLog(bootstrap)
        self.admin = admin
        self.database = MemoryDatabase(1)
        settings = WorkerSettings(name="w", profiles=BUILT_IN_PROFILES, topics_seconds=0.2)
        ledger = MemoryLedger(self.database, ManualClock())
        worker = Worker(self.log, ledger, settings, WorkerMetrics(CollectorRegistry()))
        self.run = worker.run

    async def send(self, *names: str) -> None:
        entries = [
            Entry(f"default/{name}".encode(), event_bytes("ADDED", pod_manifest(name, uid=name)))
            for name in names
        ]
        writer = await self.log.writer()
        await writer.append(PODS_TOPIC, entries)
        await writer.aclose()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.05)

    def waits(self, *names: str) -> bool:
        return {pod.name for pod in self.database.pending.values()} >= set(names)


@pytest.fixture
async def site(fresh_kafka: str) -> AsyncIterator[_Site]:
    admin = AIOKafkaAdminClient(bootstrap_servers=fresh_kafka)
    await admin.start()
    site = _Site(fresh_kafka, admin)
    await site.log.ensure_topics(topic_specs(1))
    yield site
    await site.log.aclose()
    await admin.close()


async def test_a_topic_made_anew_is_read_from_its_first_record(site: _Site) -> None:
    worker = asyncio.create_task(site.run())
    await site.send("p", "q")
    await site.until(lambda: site.waits("p", "q"))
    await site.admin.delete_topics([PODS_TOPIC])
    while await site.log.partitions(PODS_TOPIC):
        await asyncio.sleep(0.05)
    await site.log.ensure_topics(topic_specs(1))
    await site.send("r0", "q", "r1", "r2", "r3")
    await site.until(lambda: site.waits("p", "q", "r0", "r1", "r2", "r3"))
    (fault,) = site.database.log_faults
    assert fault.code == "recreated"
    assert [each.key for each in fault.unmentioned if each.key != "default/q"] == ["default/p"]
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_measurements_that_expired_are_passed_over(site: _Site) -> None:
    writer = await site.log.writer()
    await writer.append(USAGE_TOPIC, [Entry(b"n", b"{")] * 10)
    worker = asyncio.create_task(site.run())
    await site.until(lambda: len(site.database.dead_letters[0]) == 10)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await writer.append(USAGE_TOPIC, [Entry(b"n", b"{")] * 10)
    await writer.aclose()
    await site.admin.delete_records({KafkaPartition(USAGE_TOPIC, 0): RecordsToDelete(before_offset=15)})
    site.database.worker_leases[0].owner = None
    worker = asyncio.create_task(site.run())
    await site.until(lambda: len(site.database.dead_letters[0]) == 15)
    assert [fault.code for fault in site.database.log_faults] == ["truncated"]
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


@pytest.mark.parametrize("topic", [PODS_TOPIC, CONFIG_TOPIC])
async def test_partitions_that_nobody_would_read_end_the_worker(site: _Site, topic: str) -> None:
    worker = asyncio.create_task(site.run())
    await site.send("p")
    await site.until(lambda: site.waits("p"))
    await site.admin.create_partitions({topic: NewPartitions(3)})
    with pytest.raises(TopicMismatch, match=f"{topic} has 3 partitions, and berth uses 1"):
        async with asyncio.timeout(20):
            await worker
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(worker, return_exceptions=True)
