"""The clock: wall time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall time; waiting goes through the event loop, which a simulation owns."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
