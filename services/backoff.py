"""How long to wait before trying again: twice as long each time, up to a bound."""

from __future__ import annotations

import asyncio

from domain.model import limits


class Backoff:
    """The waits between tries, up to ``ms_max``; they start short again after ``reset``."""

    def __init__(self, ms_max: int = limits.retry_backoff_ms_max) -> None:
        self._ms, self._ms_max = limits.retry_backoff_ms_min, ms_max

    def reset(self) -> None:
        """Forget the failed tries: the last one went well."""
        self._ms = limits.retry_backoff_ms_min

    def next_ms(self) -> int:
        """Return how long to wait now; the next wait is twice as long, up to the bound."""
        now, self._ms = self._ms, min(self._ms * 2, self._ms_max)
        return now

    async def wait(self) -> None:
        """Wait on the event loop, whose time a simulation may replace."""
        await asyncio.sleep(self.next_ms() / 1000)
