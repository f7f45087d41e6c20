"""A consumer is closed at once, even if its fetching task misses that it was cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

from services.adapters.kafka.internals import stop_fetching


async def test_a_cancellation_that_was_lost_is_repeated() -> None:
    begun = asyncio.Event()

    async def fetch() -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):  # as when an answer arrives at that moment
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    task = asyncio.create_task(fetch())
    await begun.wait()
    consumer: Any = SimpleNamespace(_fetcher=SimpleNamespace(_fetch_task=task))
    async with asyncio.timeout(5):
        await stop_fetching(consumer)
    assert task.cancelled()


async def test_a_consumer_that_never_started_has_nothing_to_end() -> None:
    consumer: Any = SimpleNamespace(_fetcher=None)
    await stop_fetching(consumer)
