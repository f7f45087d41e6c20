"""The log on Apache Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from domain.model.errors import TopicMismatch, Unavailable
from services.adapters.kafka.connection import PLAINTEXT, Cluster, guarded
from services.adapters.kafka.internals import forbidden
from services.adapters.kafka.probe import Probe
from services.adapters.kafka.reader import KafkaReader
from services.adapters.kafka.writer import KafkaWriter
from services.codec.partition import TOPIC_MESSAGE_BYTES_MAX
from services.config import KafkaAccess
from services.ports.log import Ahead, Record, TopicPartition, TopicSpec

_LOOK_AGAIN_SECONDS = 0.1
_LOGGER = logging.getLogger(__name__)
_LOG_TIME = {"message.timestamp.type": "LogAppendTime"}
_OF_THE_TOPIC = 1  # Kafka's number for "this setting was made for this topic"
_WEEK_MS = 7 * 24 * 3600 * 1000


class KafkaLog:
    """An implementation of ``ports.Log`` on aiokafka.

    Parameters
    ----------
    bootstrap : str
        ``host:port`` of one or more brokers, joined by commas.
    timeout_seconds : float
        How long one answer may take before the call is ``Unavailable``; an append may take two.
    access : KafkaAccess
        How brokers are made sure of, and who we are to them.
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
            there = await _partition_counts(admin)
            missing = [spec for spec in specs if spec.name not in there]
            if missing:
                await _create(admin, missing)
            while any(spec.name not in there for spec in specs):
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)  # brokers learn of a topic one after another
                there = await _partition_counts(admin)
            for spec in specs:
                if there[spec.name] != spec.partitions:
                    raise TopicMismatch(
                        f"topic {spec.name} has {there[spec.name]} partitions, not {spec.partitions}"
                    )
            await _date_by_the_log(admin, [spec.name for spec in specs])

    async def partitions(self, topic: str) -> int:
        """See ``ports.Log``."""
        async with self._admin() as admin:
            count = (await _partition_counts(admin)).get(topic, 0)
            if not count and await forbidden(admin, topic):
                raise TopicAuthorizationFailedError(topic)
            return count

    async def reader(self) -> KafkaReader:
        """See ``ports.Log``; connects at the first use."""
        return KafkaReader(self._cluster, self.partitions)

    async def writer(self) -> KafkaWriter:
        """See ``ports.Log``; connects at the first use."""
        return KafkaWriter(self._cluster, self.partitions)

    async def ahead(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Ahead]:
        """See ``ports.Log``; the connection for it stays open."""
        return await self._probe.ahead(positions)

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
                await admin.start()
                yield admin
            finally:
                await admin.close()


async def _partition_counts(admin: AIOKafkaAdminClient) -> dict[str, int]:
    # All topics, since asking for one by name would create it where the broker creates topics by itself.
    return {
        topic["topic"]: len(topic["partitions"])
        for topic in await admin.describe_topics()
        if for_code(topic["error_code"]) is NoError
        and all(partition["leader"] >= 0 for partition in topic["partitions"])
    }


async def _create(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> None:
    topics = [
        NewTopic(spec.name, spec.partitions, -1, replica_assignments={}, topic_configs=topic_configs(spec))
        for spec in specs
    ]
    response = await admin.create_topics(topics)
    for name, code, *message in response.topic_errors:
        error = for_code(code)
        _check_allowed(error, name)
        if error not in (NoError, TopicAlreadyExistsError):
            raise KafkaError(f"topic {name} cannot be created: {error.__name__} {message}")


async def _date_by_the_log(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> None:
    """Make existing topics record the time of the append, too.

    Kafka replaces all settings of a topic at once, so those that were made for it are written again.
    """
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    altered = []
    for response in await admin.describe_configs(wanted):
        for code, _, _, name, entries in response.resources:
            _check_allowed(for_code(code), name)
            _check_sizes(name, {key: value for key, value, *_ in entries})
            own = {key: value for key, value, _, source, *_ in entries if source == _OF_THE_TOPIC}
            if not own.items() >= _LOG_TIME.items():
                altered.append(ConfigResource(ConfigResourceType.TOPIC, name, {**own, **_LOG_TIME}))
    if not altered:
        return
    for response in await admin.alter_configs(altered):
        for code, message, _, name in response.resources:
            _check_allowed(for_code(code), name)
            if for_code(code) is not NoError:
                raise KafkaError(f"topic {name} cannot be altered: {for_code(code).__name__} {message}")
            _LOGGER.warning("topic %s: from now on records carry the time of their append", name)


def _check_allowed(error: type[Exception], topic: str) -> None:
    if error in (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
        raise TopicAuthorizationFailedError(topic)


def _check_sizes(topic: str, settings: Mapping[str, str | None]) -> None:
    """Warn about a topic that takes more in one batch than berth ever writes."""
    size = int(settings.get("max.message.bytes") or 0)
    if size > TOPIC_MESSAGE_BYTES_MAX:
        _LOGGER.warning(
            "topic %s takes batches of %d bytes; berth writes none above %d: "
            "lower max.message.bytes, so that nobody fills the log with larger ones",
            topic,
            size,
            TOPIC_MESSAGE_BYTES_MAX,
        )


def topic_configs(spec: TopicSpec) -> dict[str, str]:
    """Return the settings of a topic, as Kafka names them.

    Records carry the time of their append, since a producer's clock is only a claim. A compacted topic keeps
    every record for a week, so that readers see fresh events in full; a tombstone stays a week longer than
    what it deletes. The other topics keep everything.
    """
    configs = {"max.message.bytes": str(TOPIC_MESSAGE_BYTES_MAX), **_LOG_TIME}
    if spec.compacted:
        configs["cleanup.policy"] = "compact"
        configs["min.compaction.lag.ms"] = str(_WEEK_MS)
        configs["delete.retention.ms"] = str(_WEEK_MS)
    else:
        configs["cleanup.policy"] = "delete"
        configs["retention.ms"] = "-1"
        configs["retention.bytes"] = "-1"
    return configs


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
