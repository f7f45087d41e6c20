"""Asks Kafka what lies ahead of a position: the ends of partitions, and the time of the next record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition

from domain.model.errors import Unavailable
from services.adapters.kafka.connection import Cluster, finish, guarded, uncut
from services.adapters.kafka.internals import Budget, close_client
from services.ports.log import Backlog, TopicPartition

_POLL_MS = 100


class Probe:
    """A consumer that looks at single records; it connects at the first use and after a fault."""

    def __init__(self, cluster: Cluster, partitions_of: Callable[[str], Awaitable[int]]) -> None:
        self._cluster = cluster
        self._partitions_of = partitions_of
        self._counts: dict[str, int] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._turn = asyncio.Lock()
        self._budget = Budget()

    async def backlogs(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Backlog]:
        """See ``ports.Log``. Cost: a request per broker, and one more per partition with something ahead."""
        return await uncut(self._backlogs(positions)) if positions else {}

    async def _backlogs(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Backlog]:
        async with self._turn:
            await self._check(positions)
            try:
                async with guarded(self._cluster):
                    return await self._look(await self._connected(), positions)
            except BaseException:
                await self._discard()
                raise

    async def _check(self, positions: Mapping[TopicPartition, int]) -> None:
        """Refuse a partition that does not exist: the client would wait for it without end."""
        for topic, partition in positions:
            if partition >= self._counts.get(topic, 0):
                self._counts[topic] = await self._partitions_of(topic)
            if partition >= self._counts[topic]:
                raise Unavailable(f"partition {partition} of topic {topic} does not exist")

    async def _look(
        self, consumer: AIOKafkaConsumer, positions: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Backlog]:
        ends = await consumer.end_offsets([KafkaPartition(*at) for at in positions])
        behind = {KafkaPartition(*at): start for at, start in positions.items() if start < ends[at]}
        times: dict[tuple[str, int], int] = {}
        if behind:
            firsts = await consumer.beginning_offsets(list(behind))
            consumer.assign(list(behind))
            for at, start in behind.items():
                consumer.seek(at, max(start, firsts[at]))
            try:
                while missing := [at for at in behind if at not in times]:
                    self._budget.begin_poll()
                    found = await consumer.getmany(*missing, timeout_ms=_POLL_MS, max_records=1)
                    times |= {at: records[0].timestamp_ms for at, records in found.items()}
                    if not found:
                        await self._give_up_on_holes(consumer, behind, missing, ends)
            finally:
                consumer.unsubscribe()  # or it would go on fetching
        return {at: Backlog(ends[at], times.get(at)) for at in positions}

    async def _give_up_on_holes(
        self,
        consumer: AIOKafkaConsumer,
        behind: dict[KafkaPartition, int],
        missing: list[KafkaPartition],
        ends: Mapping[KafkaPartition, int],
    ) -> None:
        """Drop partitions whose last offsets hold no record: a transaction's marker, or compacted away."""
        for at in missing:
            if await consumer.position(at) >= ends[at]:
                del behind[at]

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            self._consumer = AIOKafkaConsumer(
                **self._cluster.options,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                max_partition_fetch_bytes=1,  # which still is one batch: the next record is enough
                key_deserializer=self._budget,
            )
            await self._consumer.start()
        return self._consumer

    async def aclose(self) -> None:
        """Close the consumer."""
        async with self._turn:
            await self._discard()

    async def _discard(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._counts = {}
        if consumer is not None:
            await uncut(self._close(consumer))

    async def _close(self, consumer: AIOKafkaConsumer) -> None:
        await finish(self._cluster, consumer.stop())
        await finish(self._cluster, close_client(consumer))
