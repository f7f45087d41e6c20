"""Asks Kafka which topics there are, with their ids, which the client library does not ask for."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    KafkaError,
    NoError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from services.adapters.kafka.internals import send

_UUID_BYTES = 16
_VERSION = 12  # the first one with topic ids that all brokers since Kafka 3.1 speak


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(_UUID_BYTES)


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = MetadataRequest_v5.API_KEY, _VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataRequest(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION = MetadataRequest_v5.API_KEY, _VERSION
    RESPONSE_TYPE = _MetadataResponse
    FLEXIBLE_VERSION = True
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Metadata(Request[MetadataRequest_v5 | _MetadataRequest]):  # type: ignore[misc]
    """Asks for topics by name; it creates none, whatever the broker's setting."""

    API_KEY = MetadataRequest_v5.API_KEY

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def build(
        self, request_struct_class: type[MetadataRequest_v5 | _MetadataRequest]
    ) -> MetadataRequest_v5 | _MetadataRequest:
        if request_struct_class is MetadataRequest_v5:
            return MetadataRequest_v5(list(self._topics), False)
        named: list[tuple[bytes, str, dict[int, bytes]]] = [
            (bytes(_UUID_BYTES), name, {}) for name in self._topics
        ]
        return _MetadataRequest(named, False, False, {})


class Topic(NamedTuple):
    """What the brokers know of a topic; ``replicas`` are those of its partition that has fewest."""

    id: str
    partitions: int
    replicas: int
    led: bool


async def describe(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, Topic]:
    """Return the topics that exist, by name. Brokers before Kafka 3.1 say no ids.

    Raises
    ------
    KafkaError
        A topic may not be seen, or the broker does not know at the moment.
    """
    found = {}
    answer: dict[str, Any] = (await send(admin, _Metadata(names))).to_object()
    for topic in answer["topics"]:
        error, partitions = for_code(topic["error_code"]), topic["partitions"]
        if error is TopicAuthorizationFailedError:
            raise error(topic["topic"])
        if error is UnknownTopicOrPartitionError:
            continue
        if error is not NoError:
            raise KafkaError(f"topic {topic['topic']}: {error.__name__}")
        found[topic["topic"]] = Topic(
            str(uuid.UUID(bytes=topic["topic_id"])) if "topic_id" in topic else "",
            len(partitions),
            min(len(each["replicas"]) for each in partitions),
            all(each["leader"] >= 0 for each in partitions),
        )
    return found
