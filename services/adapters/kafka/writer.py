"""Appends to Kafka in bulk: idempotent, compressed, one batch after another per partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import RecordMetadata

from services.adapters.kafka.connection import Cluster, finish, guarded, uncut
from services.adapters.kafka.internals import AFTER_HEADER, LEDGER_HEADER, SEAL_HEADER, drop_undelivered
from services.codec.partition import split
from services.ports.log import Entry, Span, no_topic

_BATCH_BYTES_MAX = 512 << 10


class KafkaWriter:
    """See ``ports.LogWriter``.

    The client library would send a batch again and again for as long as the broker is away, also after the
    caller has given up. So a producer that failed, or was left waiting, is thrown away with all it holds.
    """

    def __init__(self, cluster: Cluster, partitions_of: Callable[[str], Awaitable[int]]) -> None:
        self._cluster = cluster
        self._partitions_of = partitions_of
        self._counts: dict[str, int] = {}
        self._producer: AIOKafkaProducer | None = None
        self._turn = asyncio.Lock()

    async def append(
        self, topic: str, entries: Sequence[Entry], partition: int | None = None
    ) -> Sequence[Span]:
        """See ``ports.LogWriter``."""
        groups = split(entries, await self._count(topic), partition)
        if not groups:
            return []
        spans: list[Span] = []
        async with self._turn:
            try:
                async with guarded(self._cluster, self._cluster.timeout_seconds, topic):
                    producer = await self._connected()
                    sends = [self._send(producer, topic, at, group) for at, group in groups.items()]
                    for outcome in await asyncio.gather(*sends, return_exceptions=True):
                        if isinstance(outcome, BaseException):
                            raise outcome
                        spans += outcome
            except BaseException:
                await self._abandon()
                raise
        return spans

    async def _send(
        self, producer: AIOKafkaProducer, topic: str, partition: int, entries: Sequence[Entry]
    ) -> list[Span]:
        delivered: list[asyncio.Future[RecordMetadata]] = []
        counts: list[int] = []

        async def deliver(batch: BatchBuilder) -> None:
            future = await producer.send_batch(batch, topic, partition=partition)
            # A caller that gave up hears no more of it, and the event loop shall not complain of that.
            future.add_done_callback(lambda future: future.cancelled() or future.exception())
            delivered.append(future)
            counts.append(batch.record_count())

        batch = producer.create_batch()
        said, headers = None, list[tuple[str, bytes]]()
        for key, value, *more in entries:
            if more != said:  # nearly always as before
                said = more
                named = zip((SEAL_HEADER, LEDGER_HEADER, AFTER_HEADER), more, strict=True)
                headers = [(name, each) for name, each in named if each is not None]
            if batch.append(key=key, value=value, timestamp=None, headers=headers) is None:
                await deliver(batch)
                batch = producer.create_batch()
                # The first record of a batch is taken whatever its size.
                batch.append(key=key, value=value, timestamp=None, headers=headers)
        batch.close()
        await deliver(batch)
        # Not gather: it would cancel the futures with us, and they could not be told the outcome later.
        await asyncio.wait(delivered, return_when=asyncio.FIRST_EXCEPTION)
        spans = []
        for future, count in zip(delivered, counts, strict=True):
            if future.done() and (first := future.result().offset) >= 0:  # else a late answer to a repetition
                spans.append(Span(topic, partition, first, first + count))
        return spans

    async def aclose(self) -> None:
        """See ``ports.LogWriter``."""
        async with self._turn:
            producer, self._producer = self._producer, None
            if producer is not None:
                await uncut(self._stop(producer))

    async def _count(self, topic: str) -> int:
        if topic not in self._counts:
            count = await self._partitions_of(topic)
            if not count:
                raise no_topic(topic)
            self._counts[topic] = count
        return self._counts[topic]

    async def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._producer = AIOKafkaProducer(
                **self._cluster.options,
                enable_idempotence=True,
                compression_type="zstd",  # the client packs lz4 at its level 9, six times as slow
                max_batch_size=_BATCH_BYTES_MAX,
            )
            await uncut(self._producer.start())
        return self._producer

    async def _abandon(self) -> None:
        producer, self._producer = self._producer, None
        self._counts = {}
        if producer is not None:
            await uncut(self._drop(producer))

    async def _drop(self, producer: AIOKafkaProducer) -> None:
        await drop_undelivered(producer)
        await self._stop(producer)

    async def _stop(self, producer: AIOKafkaProducer) -> None:
        await finish(self._cluster, producer.stop())
        await finish(self._cluster, producer.client.close())  # which a stop that failed leaves open
