"""Translates Kafka's faults: whatever does not answer is ``Unavailable``, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple, TypeVar

from aiokafka.errors import KafkaConnectionError, KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError

from domain.model.errors import FieldError, LogTruncated, Unavailable

_RETRY_BACKOFF_MS = 200
_UNCUT_SECONDS_MAX = 1.0

T = TypeVar("T")


class Cluster(NamedTuple):
    """A Kafka cluster, and how long we wait for one answer of it."""

    bootstrap: str
    timeout_seconds: float

    @property
    def options(self) -> dict[str, Any]:
        """The options of every client of the library."""
        return {
            "bootstrap_servers": self.bootstrap,
            "request_timeout_ms": int(self.timeout_seconds * 1000),
            "retry_backoff_ms": _RETRY_BACKOFF_MS,
        }


@contextlib.asynccontextmanager
async def guarded(cluster: Cluster, extra_seconds: float = 0.0) -> AsyncIterator[None]:
    """Translate the faults of the client library; give up ``extra_seconds`` after the time of one answer."""
    try:
        async with asyncio.timeout(cluster.timeout_seconds + extra_seconds):
            yield
    except OffsetOutOfRangeError as error:
        ((at, offset),) = error.args[0].items()
        raise LogTruncated(f"{at.topic}/{at.partition} does not hold offset {offset}") from error
    except MessageSizeTooLargeError as error:
        raise FieldError("value", "larger than max.message.bytes of the topic") from error
    except KafkaConnectionError as error:
        raise Unavailable(f"Kafka at {cluster.bootstrap} does not answer: no connection") from error
    except (KafkaError, OSError, TimeoutError) as error:
        detail = str(error) or type(error).__name__
        raise Unavailable(f"Kafka at {cluster.bootstrap} does not answer: {detail}") from error


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """Await work that a cancellation of ours does not cut in its middle, for a second at most.

    The library leaves a connection open that nobody can close, where it is cut while it opens one.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _settle(task, _UNCUT_SECONDS_MAX)
        raise


async def finish(cluster: Cluster, closing: Coroutine[Any, Any, None]) -> None:
    """Await a closing call of the client library for a limited time, and ignore its failure.

    It runs as a task of its own, because the library lets the cancellation of its inner tasks escape, which
    would look like a cancellation of ours.
    """
    await _settle(asyncio.ensure_future(closing), cluster.timeout_seconds)


async def _settle(task: asyncio.Future[Any], seconds_max: float) -> None:
    """Wait until a task has ended, for a limited time; then cancel it. Its failure is ignored."""
    await asyncio.wait([task], timeout=seconds_max)
    if not task.done():
        task.cancel()
    elif not task.cancelled():
        task.exception()
