"""How talking to Kafka fails: all ways of not answering are ``Unavailable``, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OffsetOutOfRangeError

from domain.model.errors import FieldError, LogTruncated, Unavailable

REQUEST_TIMEOUT_SECONDS = 10.0
RETRY_BACKOFF_MS = 200


@contextlib.asynccontextmanager
async def guarded(bootstrap: str, timeout_seconds: float | None) -> AsyncIterator[None]:
    """Translate the faults of the client library, and give up after ``timeout_seconds`` (None: never)."""
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except OffsetOutOfRangeError as error:
        ((at, offset),) = error.args[0].items()
        raise LogTruncated(f"{at.topic}/{at.partition} does not hold offset {offset}") from error
    except MessageSizeTooLargeError as error:
        raise FieldError("value", "larger than max.message.bytes of the topic") from error
    except (KafkaError, OSError, TimeoutError) as error:
        detail = str(error) or type(error).__name__
        raise Unavailable(f"Kafka at {bootstrap} does not answer: {detail}") from error


async def finish(closing: Coroutine[Any, Any, None]) -> None:
    """Await a closing call of the client library, whose failure interests nobody, but not for ever.

    It runs as a task of its own, because the library lets the cancellation of its inner tasks escape, which
    would look like a cancellation of ours.
    """
    task = asyncio.ensure_future(closing)
    await asyncio.wait([task], timeout=REQUEST_TIMEOUT_SECONDS)
    if not task.done():
        task.cancel()
    elif not task.cancelled():
        task.exception()
