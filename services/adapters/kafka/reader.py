"""Reads assigned partitions from Kafka: the positions are ours, the broker keeps none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import KafkaError

from domain.model.errors import BerthError, LogTruncated, Unavailable
from services.adapters.kafka.connection import Cluster, finish, guarded, uncut
from services.adapters.kafka.internals import (
    Budget,
    close_client,
    keep_topics,
    position_known,
    set_fetch_wait,
    stop_fetching,
    unpack_into_records,
)
from services.ports.log import Record, TopicPartition

_PARTITION_FETCH_BYTES = 4 << 20
_FETCH_BYTES_MAX = 16 << 20
_FETCH_WAIT_MS = 20
"""A fetch parks at the broker for so long when its partitions have nothing new. The client keeps one fetch in
flight per broker, so all other partitions, and the question for end offsets, wait for it."""
_FETCH_WAIT_BEHIND_MS = 100
"""The same while the caller is behind: what the client holds lasts for longer, and an empty fetch costs the
broker and us about half a millisecond each."""
_SILENCE_SECONDS_MAX = 5.0


unpack_into_records()


class KafkaReader:
    """See ``ports.LogReader``.

    After a fault the consumer is thrown away and the next ``poll`` goes on from the positions kept here.
    Transactions that were aborted are not read; as on any Kafka topic, offsets may have holes.
    """

    def __init__(self, cluster: Cluster, partitions_of: Callable[[str], Awaitable[int]]) -> None:
        self._cluster = cluster
        self._partitions_of = partitions_of
        self._consumer: AIOKafkaConsumer | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._topics: set[str] = set()  # that were asked for, ever
        self._paused: set[TopicPartition] = set()
        self._heard_at = 0.0
        self._budget = Budget()

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """See ``ports.LogReader``."""
        for topic in sorted({at.topic for at in positions}):
            count = await self._partitions_of(topic)
            wanted = max(at.partition for at in positions if at.topic == topic)
            if wanted >= count:
                raise Unavailable(f"partition {wanted} of topic {topic} does not exist")
        self._positions = dict(positions)
        self._paused = set()
        if self._consumer is not None:
            self._take_positions(self._consumer)

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        """See ``ports.LogReader``."""
        before = dict(self._positions)
        try:
            async with self._discarding_on_fault(timeout_seconds):
                return await self._poll(records_max, timeout_seconds)
        except BerthError:
            self._positions = before  # what was taken on the way was not returned
            raise

    async def _poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        consumer = await self._connected()
        self._budget.begin_poll()
        records = await self._take(consumer, records_max)
        if records or timeout_seconds <= 0:
            return records
        active = [KafkaPartition(*at) for at in self._positions if at not in self._paused]
        if not active:
            await asyncio.sleep(timeout_seconds)
            return []
        found = await consumer.getmany(
            *active, timeout_ms=max(1, int(timeout_seconds * 1000)), max_records=records_max
        )
        records = [record for batch in found.values() for record in self._read(batch)]
        if not records:
            await self._check_silence(consumer, active)
        return records

    async def _check_silence(self, consumer: AIOKafkaConsumer, active: Sequence[KafkaPartition]) -> None:
        """Find out now and then whether the log is quiet or the broker, or its client, has gone.

        aiokafka tries again for ever without a word, and when its fetching task has died it is only silent.
        """
        now = asyncio.get_running_loop().time()
        if now - self._heard_at < _SILENCE_SECONDS_MAX:
            return
        self._heard_at = now
        ends = await consumer.end_offsets(active)
        for at in active:
            if await consumer.position(at) < ends[at]:
                await self._discard()
                return

    async def _take(self, consumer: AIOKafkaConsumer, records_max: int) -> list[Record]:
        """Return what has been fetched already, an equal share of each partition."""
        taken: list[Record] = []
        active = [at for at in self._positions if at not in self._paused]
        for index, at in enumerate(active):
            share = -(-(records_max - len(taken)) // (len(active) - index))
            if not share or self._budget.bytes_left <= 0:
                break
            try:
                found = await consumer.getmany(KafkaPartition(*at), timeout_ms=0, max_records=share)
            except KafkaError:
                if taken:
                    break  # the records first; the fault comes again
                raise
            for batch in found.values():
                taken += self._read(batch)
        behind = len(taken) == records_max
        set_fetch_wait(consumer, _FETCH_WAIT_BEHIND_MS if behind else _FETCH_WAIT_MS)
        return taken

    def _read(self, records: list[Record]) -> list[Record]:
        """Note the records of one partition: move its position and its turn."""
        if records:
            self._heard_at = asyncio.get_running_loop().time()
            at = TopicPartition(records[-1].topic, records[-1].partition)
            # A partition that was read goes to the back, so that small reads reach every partition.
            del self._positions[at]
            self._positions[at] = records[-1].offset + 1
        return records

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """See ``ports.LogReader``; what was fetched ahead stays in memory."""
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """See ``ports.LogReader``."""
        self._paused.difference_update(partitions)

    async def end_offsets(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]:
        """See ``ports.LogReader``."""
        self._topics.update(at.topic for at in partitions or ())
        async with self._discarding_on_fault():
            consumer = await self._connected()
            of = self._positions if partitions is None else partitions
            ends = await consumer.end_offsets([KafkaPartition(*at) for at in of])
            return {TopicPartition(at.topic, at.partition): end for at, end in ends.items()}

    async def first_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See ``ports.LogReader``."""
        self._topics.update(at.topic for at in partitions)
        async with self._discarding_on_fault():
            consumer = await self._connected()
            firsts = await consumer.beginning_offsets([KafkaPartition(*at) for at in partitions])
            return {TopicPartition(at.topic, at.partition): first for at, first in firsts.items()}

    async def position(self, at: TopicPartition) -> int:
        """See ``ports.LogReader``. Cost: a microsecond, once the consumer is connected."""
        if self._consumer is not None:
            known = position_known(self._consumer, KafkaPartition(*at))
            if known is not None:
                return known
        async with self._discarding_on_fault():
            consumer = await self._connected()
            return int(await consumer.position(KafkaPartition(*at)))

    async def aclose(self) -> None:
        """See ``ports.LogReader``."""
        self._positions = {}
        await self._discard()

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                **self._cluster.options,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                max_partition_fetch_bytes=_PARTITION_FETCH_BYTES,
                fetch_max_bytes=_FETCH_BYTES_MAX,
                fetch_max_wait_ms=_FETCH_WAIT_MS,
                key_deserializer=self._budget,
            )
            self._consumer = consumer
            keep_topics(consumer, self._topics)
            await uncut(consumer.start())
            self._take_positions(consumer)
        return self._consumer

    def _take_positions(self, consumer: AIOKafkaConsumer) -> None:
        consumer.assign([KafkaPartition(*at) for at in self._positions])
        for at, offset in self._positions.items():
            consumer.seek(KafkaPartition(*at), offset)

    @contextlib.asynccontextmanager
    async def _discarding_on_fault(self, extra_seconds: float = 0.0) -> AsyncIterator[None]:
        try:
            async with guarded(self._cluster, extra_seconds):
                yield
        except LogTruncated:
            raise
        except BerthError:
            await self._discard()
            raise

    async def _discard(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await uncut(self._close(consumer))

    async def _close(self, consumer: AIOKafkaConsumer) -> None:
        await finish(self._cluster, stop_fetching(consumer))
        await finish(self._cluster, consumer.stop())
        await finish(self._cluster, close_client(consumer))
