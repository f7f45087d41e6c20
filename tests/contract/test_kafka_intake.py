"""Does the merged log flow on a real broker, whatever its producers do?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer

from services.adapters.kafka.log import KafkaLog
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, LogWriter, Record, TopicPartition, topic_specs
from services.worker.intake import Intake

pytestmark = pytest.mark.real

NODES, PODS = TopicPartition(NODES_TOPIC, 0), TopicPartition(PODS_TOPIC, 0)


@contextlib.asynccontextmanager
async def _intake(fresh_kafka: str) -> AsyncIterator[tuple[Intake, LogWriter]]:
    log = KafkaLog(fresh_kafka)
    await log.ensure_topics(topic_specs(1))
    reader, writer = await log.reader(), await log.writer()
    intake = Intake(reader)
    await intake.add({NODES: 0, PODS: 0})
    yield intake, writer
    for closing in (reader, writer, log):
        await closing.aclose()


async def _trickle(writer: LogWriter) -> None:
    while True:
        await writer.append(PODS_TOPIC, [Entry(b"pod", b"v")])
        await asyncio.sleep(0.01)


async def _take(intake: Intake, count: int) -> list[Record]:
    taken: list[Record] = []
    while len(taken) < count:
        taken += await intake.next_batch(2_000, 0.1)
    return taken


async def test_a_transaction_that_ended_does_not_hold_up_other_partitions(fresh_kafka: str) -> None:
    """Its end is an offset without a record. Seen: 75 seconds without a decision at 50 records a second."""
    producer = AIOKafkaProducer(bootstrap_servers=fresh_kafka, transactional_id="t")
    async with _intake(fresh_kafka) as (intake, writer), producer:
        async with producer.transaction():
            await producer.send_and_wait(NODES_TOPIC, b"v", b"node")
        trickle = asyncio.create_task(_trickle(writer))
        async with asyncio.timeout(5):
            taken = await _take(intake, 30)
        trickle.cancel()
    assert {record.topic for record in taken} == {NODES_TOPIC, PODS_TOPIC}


async def test_a_transaction_that_is_open_does_not_hold_up_other_partitions(fresh_kafka: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=fresh_kafka, transactional_id="t")
    async with _intake(fresh_kafka) as (intake, writer), producer:
        await producer.begin_transaction()
        await producer.send_and_wait(NODES_TOPIC, b"v", b"node")
        trickle = asyncio.create_task(_trickle(writer))
        async with asyncio.timeout(5):
            taken = await _take(intake, 30)
        await producer.commit_transaction()
        async with asyncio.timeout(5):
            while taken[-1].topic != NODES_TOPIC:
                taken += await intake.next_batch(1, 0.1)
        trickle.cancel()
