"""The producer: offers records to the log, at a fixed rate or as fast as the log takes them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

import numpy as np
from aiokafka import AIOKafkaProducer

from benchmarks.workloads import batches
from services.codec.partition import split
from services.ports.log import Entry, LogWriter

_BATCH_RECORDS = 1_000
_HIDDEN_MS_MAX = 600_000
_TICK_SECONDS = 0.005


class Offered(NamedTuple):
    """When the records were produced, by their order, and when the last one was acknowledged."""

    produced_at: np.ndarray
    started: float
    ended: float


async def offer(
    writer: LogWriter, topic: str, entries: Sequence[Entry], rate: float | None = None
) -> Offered:
    """Produce the records in order.

    Parameters
    ----------
    rate : float, optional
        Records per second. A record counts as produced when it was due, whether or not the log was ready to
        take it then: the worker cannot slow the offer down. Records that fall due within 5 ms are sent
        together. Without a rate, a record counts as produced when it was handed to the log's client, and the
        next batch follows when the last one is acknowledged.
    """
    if rate is None:
        return await _as_fast_as_possible(writer, topic, entries)
    started = time.perf_counter()
    sent = 0
    while sent < len(entries):
        due = min(len(entries), 1 + int((time.perf_counter() - started) * rate))
        if due > sent:
            await writer.append(topic, entries[sent:due])
            sent = due
        next_due = started + sent / rate
        await asyncio.sleep(max(_TICK_SECONDS, next_due - time.perf_counter()))
    return Offered(started + np.arange(len(entries)) / rate, started, time.perf_counter())


async def _as_fast_as_possible(writer: LogWriter, topic: str, entries: Sequence[Entry]) -> Offered:
    produced_at = np.empty(len(entries))
    started = time.perf_counter()
    sent = 0
    for batch in batches(list(entries), _BATCH_RECORDS):
        produced_at[sent : sent + len(batch)] = time.perf_counter()
        await writer.append(topic, batch)
        sent += len(batch)
    return Offered(produced_at, started, time.perf_counter())


@contextlib.asynccontextmanager
async def hidden(
    bootstrap: str, topic: str, partitions: int, entries: Sequence[Entry]
) -> AsyncIterator[Callable[[], Awaitable[Offered]]]:
    """Write the records to Kafka in a transaction; what is given ends it, which shows all of them at once.

    Workers read what is committed, so they see none of the records before. All count as produced then.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id="berth-bench",
        transaction_timeout_ms=_HIDDEN_MS_MAX,
        compression_type="zstd",
    )
    await producer.start()
    try:
        await producer.begin_transaction()
        for batch in batches(list(entries), _BATCH_RECORDS):
            for partition, records in split(batch, partitions, None).items():
                for record in records:
                    await producer.send(topic, record.value, record.key, partition)
            await producer.flush()

        async def show() -> Offered:
            started = time.perf_counter()
            await producer.commit_transaction()
            return Offered(np.full(len(entries), started), started, time.perf_counter())

        yield show
    finally:
        await producer.stop()
