"""What both sides do with aiokafka: look at topics without making any, and close what may not answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
)

from berth.client.errors import NotAllowed, NotConfigured, Unavailable
from berth.client.kafka.access import Brokers

_REFUSED = (ClusterAuthorizationFailedError, SaslAuthenticationFailed, TopicAuthorizationFailedError)


@contextlib.asynccontextmanager
async def answering(brokers: Brokers, seconds: float) -> AsyncIterator[None]:
    """Give up after so long, and say what went wrong in the client's errors.

    Raises
    ------
    NotAllowed
        The brokers do not let this principal do it.
    Unavailable
        They do not answer.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except _REFUSED as error:
        text = f"Kafka at {brokers.bootstrap} does not allow this: {error!r:.200}"
        raise NotAllowed(text, code="kafka-refused") from error
    except (KafkaError, OSError, TimeoutError) as error:
        detail = str(error) or type(error).__name__
        if isinstance(error, KafkaConnectionError) and brokers.are_asking:
            detail += " (it may refuse the name, the password or the certificate)"
        text = f"Kafka at {brokers.bootstrap} does not answer: {detail}"
        raise Unavailable(text, code="kafka-unavailable") from error


async def partitions_by_topic(brokers: Brokers, seconds: float) -> Mapping[str, int]:
    """Return how many partitions each topic has that may be seen, and make none.

    A client that asks for one topic by its name has the broker make it, where that is so configured.
    """
    admin = AIOKafkaAdminClient(**brokers.options, request_timeout_ms=int(seconds * 1000))
    try:
        async with answering(brokers, seconds):
            await admin.start()
            return {each["topic"]: len(each["partitions"]) for each in await admin.describe_topics()}
    finally:
        await finished(admin.close(), seconds)


def no_topic(brokers: Brokers, topic: str) -> NotConfigured:
    """Return the error that a topic is missing, which says what makes it."""
    text = f"Kafka at {brokers.bootstrap} shows no topic {topic}; `berth init` makes it"
    return NotConfigured(text, code="no-topic")


async def finished(closing: Awaitable[None], seconds: float) -> None:
    """Await what closes for so long; that it fails, or is not done, matters no more."""
    work = asyncio.ensure_future(closing)
    await asyncio.wait([work], timeout=seconds)
    if not work.done():
        work.cancel()
    elif not work.cancelled():
        work.exception()
