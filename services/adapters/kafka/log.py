"""The log on Apache Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

from aiokafka.admin import AIOKafkaAdminClient

from domain.model.errors import Unavailable
from services.adapters.kafka.connection import PLAINTEXT, Cluster, guarded, uncut
from services.adapters.kafka.metadata import describe
from services.adapters.kafka.probe import Probe
from services.adapters.kafka.reader import KafkaReader
from services.adapters.kafka.topics import ensure, widen
from services.adapters.kafka.writer import KafkaWriter
from services.config import KafkaAccess
from services.ports.log import Backlog, Record, TopicPartition, TopicSpec, TopicState


class KafkaLog:
    """An implementation of ``ports.Log`` on aiokafka.

    Parameters
    ----------
    bootstrap : str
        ``host:port`` of one or more brokers, joined by commas.
    timeout_seconds : float
        How long one answer may take before the call is ``Unavailable``; an append may take two.
    access : KafkaAccess
        How brokers are made sure of, and our name to them.
    """

    def __init__(
        self, bootstrap: str, timeout_seconds: float = 10.0, access: KafkaAccess = PLAINTEXT
    ) -> None:
        self._cluster = Cluster(bootstrap, timeout_seconds, access)
        self._probe = Probe(self._cluster, self.partitions)
        # It writes several lines at every retry, ten times a second; what matters comes as ``Unavailable``.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See ``ports.Log``. Replication is the cluster's ``default.replication.factor``."""
        async with self._admin() as admin:
            await ensure(admin, specs)

    async def add_partitions(self, topics: Sequence[str], partitions: int) -> None:
        """See ``ports.Log``."""
        async with self._admin() as admin:
            await widen(admin, topics, partitions)

    async def partitions(self, topic: str) -> int:
        """See ``ports.Log``."""
        found = (await self.topics([topic])).get(topic)
        return 0 if found is None else found.partitions

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicState]:
        """See ``ports.Log``. Cost: a connection and a request."""
        async with self._admin() as admin:
            found = await describe(admin, names)
        return {name: TopicState(topic.id, topic.partitions) for name, topic in found.items()}

    async def reader(self) -> KafkaReader:
        """See ``ports.Log``; connects at the first use."""
        return KafkaReader(self._cluster, self.partitions)

    async def writer(self) -> KafkaWriter:
        """See ``ports.Log``; connects at the first use."""
        return KafkaWriter(self._cluster, self.partitions)

    async def backlogs(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Backlog]:
        """See ``ports.Log``; the connection for it stays open."""
        return await self._probe.backlogs(positions)

    async def last_record(self, at: TopicPartition) -> Record | None:
        """See ``ports.Log``. Cost: one record, unless the end of the partition was compacted away."""
        reader = await self.reader()
        try:
            first = (await reader.first_offsets([at]))[at]
            await reader.assign({at: first})
            end = (await reader.end_offsets())[at]
            reach = 1
            while end > first:
                start = max(first, end - reach)
                last = await _last_between(reader, at, start, end, self._cluster.timeout_seconds)
                if last is not None or start == first:
                    return last
                reach *= 16
            return None
        finally:
            await reader.aclose()

    async def aclose(self) -> None:
        """See ``ports.Log``."""
        await self._probe.aclose()

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        async with guarded(self._cluster, extra_seconds=self._cluster.timeout_seconds):
            admin = AIOKafkaAdminClient(**self._cluster.options)
            try:
                await uncut(admin.start())
                yield admin
            finally:
                await admin.close()


async def _last_between(
    reader: KafkaReader, at: TopicPartition, start: int, end: int, timeout_seconds: float
) -> Record | None:
    """Return the last record with ``start <= offset < end``."""
    await reader.assign({at: start})
    last: Record | None = None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while last is None or last.offset < end - 1:
        records = await reader.poll(1_000, timeout_seconds=0.5)
        if records:
            last = records[-1]
        elif await reader.position(at) >= end:
            break  # the rest is transaction markers or was compacted away
        elif loop.time() > deadline:
            raise Unavailable(f"{at.topic}/{at.partition} returns nothing from offset {start} on")
    return last
