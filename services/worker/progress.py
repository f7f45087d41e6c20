"""Tells a worker that gets further from one that hangs, which has to give its shards back."""

from __future__ import annotations

import asyncio


class Progress:
    """Whether the worker still gets further: each step gives it time for the next one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.step()

    def step(self, seconds: float | None = None) -> None:
        """Note a step. The next one may take so long, else the usual time."""
        self._deadline = asyncio.get_running_loop().time() + (seconds or self._seconds)

    @property
    def is_late(self) -> bool:
        """Whether the next step is overdue."""
        return asyncio.get_running_loop().time() > self._deadline
