"""The only file that reaches into aiokafka's private parts, for what its API does not offer.

pyproject.toml holds aiokafka to the 0.14 series. ``tests/unit/test_kafka_internals.py`` fails with any other
until somebody has looked at each function here again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.consumer import fetcher

from services.adapters.kafka.times import CREATE_TIME, until_now
from services.ports.log import Record

SERIES = "0.14."
"""The versions of aiokafka that this was written for."""


class _Unpacked(fetcher.PartitionRecords):  # type: ignore[misc]
    """Unpacks a fetch into our records.

    The client would make a record of twelve fields, and we would make ours from that. The client's record
    alone costs more than all the rest of reading.
    """

    def _consumer_record(self, tp: TopicPartition, record: Any) -> Record:
        timestamp_ms = record.timestamp
        if record.timestamp_type == CREATE_TIME:
            timestamp_ms = until_now(tp.topic, timestamp_ms)
        return Record(tp.topic, tp.partition, record.offset, record.key, record.value, timestamp_ms)


def unpack_into_records() -> None:
    """Make all consumers of this process return ``ports.Record``."""
    fetcher.PartitionRecords = _Unpacked


def set_fetch_wait(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """Change how long the broker may hold the next fetches. The API sets this only for a new consumer."""
    consumer._fetcher._fetch_max_wait_ms = wait_ms


async def close_client(consumer: AIOKafkaConsumer) -> None:
    """Close the connections of a consumer, which ``stop`` leaves open when it fails half-way."""
    await consumer._client.close()


async def drop_undelivered(producer: AIOKafkaProducer) -> None:
    """End the sending task and forget its batches; the API can only wait until they are delivered."""
    sending = producer._sender.sender_task
    while sending is not None and not sending.done():
        sending.cancel()
        await asyncio.wait([sending], timeout=0.05)
    accumulator = producer._message_accumulator
    for batches in accumulator._batches.values():
        accumulator._pending_batches.update(batches)
    accumulator._batches.clear()
    for batch in tuple(accumulator._pending_batches):
        batch.future.cancel()
