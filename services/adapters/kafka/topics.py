"""Creates Kafka topics, and sets existing ones so that what was acknowledged is neither lost nor misdated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from domain.model.errors import TopicMismatch
from services.adapters.kafka.metadata import Topic, describe
from services.codec.partition import TOPIC_MESSAGE_BYTES_MAX
from services.ports.log import TopicSpec

_LOOK_AGAIN_SECONDS = 0.1
_LOGGER = logging.getLogger(__name__)
_OF_THE_TOPIC = 1  # Kafka's number for "this setting was made for this topic"
_WEEK_MS = 7 * 24 * 3600 * 1000
_SAFE = {"message.timestamp.type": "LogAppendTime", "unclean.leader.election.enable": "false"}
"""Records carry the time of their append, since a producer's clock is only a claim. A replica that lacks
acknowledged records never leads: a partition rather waits for one that has them."""
_REPLICAS_FOR_TWO = 3
"""With so many replicas, two must have a record before it is acknowledged, and one may still fail."""


async def ensure(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> None:
    """Create the topics that do not exist; make all of them safe.

    Raises
    ------
    TopicMismatch
        A topic has another number of partitions.
    """
    names = [spec.name for spec in specs]
    there = await describe(admin, names)
    missing = [spec for spec in specs if spec.name not in there]
    if missing:
        await _create(admin, missing)
    while len(there) < len(specs) or not all(topic.led for topic in there.values()):
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)  # brokers learn of a topic one after another
        there = await describe(admin, names)
    for spec in specs:
        if there[spec.name].partitions != spec.partitions:
            found = there[spec.name].partitions
            raise TopicMismatch(f"topic {spec.name} has {found} partitions, not {spec.partitions}")
    await _make_safe(admin, specs, there)


async def widen(admin: AIOKafkaAdminClient, names: Sequence[str], partitions: int) -> None:
    """Give topics so many partitions, unless they have as many; wait until each has a leader."""
    there = await describe(admin, names)
    fewer = {name: NewPartitions(partitions) for name in names if there[name].partitions < partitions}
    if fewer:
        await admin.create_partitions(fewer)
    while not all(topic.partitions >= partitions and topic.led for topic in there.values()):
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        there = await describe(admin, names)


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


async def _make_safe(
    admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec], there: Mapping[str, Topic]
) -> None:
    """Change the settings of topics that lose or misdate records.

    Kafka replaces all settings of a topic at once, so those that were made for it are written again.
    """
    compacted = {spec.name: spec.compacted for spec in specs}
    altered, said = [], []
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in compacted]
    for response in await admin.describe_configs(wanted):
        for code, _, _, name, entries in response.resources:
            _check_allowed(for_code(code), name)
            settings = {key: value for key, value, *_ in entries}
            _warn(name, settings, compacted=compacted[name])
            if changes := unsafe(settings, there[name].replicas):
                own = {key: value for key, value, _, source, *_ in entries if source == _OF_THE_TOPIC}
                altered.append(ConfigResource(ConfigResourceType.TOPIC, name, {**own, **changes}))
                said.append((name, ", ".join(f"{key}={value}" for key, value in changes.items())))
    for response in await admin.alter_configs(altered) if altered else ():
        for code, message, _, name in response.resources:
            _check_allowed(for_code(code), name)
            if for_code(code) is not NoError:
                raise KafkaError(f"topic {name} cannot be altered: {for_code(code).__name__} {message}")
    for name, changes_text in said:
        _LOGGER.warning("topic %s: from now on %s", name, changes_text)


def unsafe(settings: Mapping[str, str | None], replicas: int) -> dict[str, str]:
    """Return the settings of a topic with so many replicas that have to change, with their new values."""
    changes = {key: value for key, value in _SAFE.items() if settings.get(key) != value}
    if replicas >= _REPLICAS_FOR_TWO and int(settings.get("min.insync.replicas") or 1) < 2:
        changes["min.insync.replicas"] = "2"
    return changes


def _check_allowed(error: type[Exception], topic: str) -> None:
    if error in (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
        raise TopicAuthorizationFailedError(topic)


def _warn(topic: str, settings: Mapping[str, str | None], *, compacted: bool) -> None:
    """Warn of what only an operator may change: what a topic takes, and what it throws away."""
    size = int(settings.get("max.message.bytes") or 0)
    if size > TOPIC_MESSAGE_BYTES_MAX:
        _LOGGER.warning(
            "topic %s takes batches of %d bytes; berth writes none above %d: "
            "lower max.message.bytes, so that no producer fills the log with larger ones",
            topic,
            size,
            TOPIC_MESSAGE_BYTES_MAX,
        )
    policy = settings.get("cleanup.policy") or ""
    if compacted and "delete" in policy:
        _LOGGER.warning(
            "topic %s has cleanup.policy=%s: it forgets nodes and pods that are still there, so that nothing "
            "can be read anew from it; set cleanup.policy=compact",
            topic,
            policy,
        )


def topic_configs(spec: TopicSpec) -> dict[str, str]:
    """Return the settings of a topic, as Kafka names them.

    A compacted topic keeps every record for a week, so that readers see fresh events in full; a tombstone
    stays a week longer than what it deletes. The other topics keep everything.
    """
    configs = {"max.message.bytes": str(TOPIC_MESSAGE_BYTES_MAX), **_SAFE}
    if spec.compacted:
        configs["cleanup.policy"] = "compact"
        configs["min.compaction.lag.ms"] = str(_WEEK_MS)
        configs["delete.retention.ms"] = str(_WEEK_MS)
    else:
        configs["cleanup.policy"] = "delete"
        configs["retention.ms"] = "-1"
        configs["retention.bytes"] = "-1"
    return configs
