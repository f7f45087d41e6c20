"""Reads what a broker holds with a plain client, in a process that has nothing of berth's own reader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition

from services.ports.log import Record, TopicPartition

_POLL_MS = 1_000


def read_log(bootstrap: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[Record]]:
    """Read partitions from their beginning to their end, without what transactions took back."""
    return asyncio.run(_read(bootstrap, partitions))


async def _read(bootstrap: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, list[Record]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    try:
        found: dict[TopicPartition, list[Record]] = {}
        for at in partitions:
            there = KafkaPartition(*at)
            consumer.assign([there])
            await consumer.seek_to_beginning(there)
            end, rows = (await consumer.end_offsets([there]))[there], found.setdefault(at, [])
            while await consumer.position(there) < end:
                for read in (await consumer.getmany(there, timeout_ms=_POLL_MS)).values():
                    named = [(r, dict(r.headers).get("berth-ledger")) for r in read]
                    rows += [Record(*at, r.offset, r.key, r.value, r.timestamp, ledger=n) for r, n in named]
        return found
    finally:
        await consumer.stop()
