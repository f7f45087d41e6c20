"""Tells a worker that gets further from one that hangs, which has to give its shards back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Progress:
    """Whether the worker still gets further: each step gives it time for the next one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._batches_count = 0
        self.step()

    def step(self, seconds: float | None = None) -> None:
        """Note a step. The next one may take so long, else the usual time."""
        self._deadline = asyncio.get_running_loop().time() + (seconds or self._seconds)

    def excuse(self) -> None:
        """Give the next step the usual time from now on, or what it had if that is more."""
        self._deadline = max(self._deadline, asyncio.get_running_loop().time() + self._seconds)

    async def of_batch(self, work: Awaitable[T]) -> T:
        """Await the planning or the commit of a batch."""
        self._batches_count += 1
        try:
            return await work
        finally:
            self._batches_count -= 1

    @property
    def has_batch(self) -> bool:
        """Whether a batch is planned or committed now."""
        return self._batches_count > 0

    @property
    def is_late(self) -> bool:
        """Whether the next step is overdue."""
        return asyncio.get_running_loop().time() > self._deadline
