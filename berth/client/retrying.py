"""When a request is sent again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct

_AGAIN = frozenset((429, 502, 503, 504))
_DOUBLINGS_MAX = 30
"""So many double any wait to its maximum, and no more are counted: a float has no room for a thousand."""

WAIT_SECONDS_MAX = 60.0
"""How long an answer may tell a client to wait before it asks again."""

Told = Callable[[float, str], None]
"""Is told before each wait: how many seconds it is, and why."""


class Retry(Struct, frozen=True, kw_only=True):
    """How often a request is sent, and for how long it is tried at all.

    The waits double from ``seconds_min`` up to ``seconds_max``, and vary by a quarter, so that many clients
    do not come back at once. What the API says (`Retry-After`) goes before. ``statuses`` are those on which a
    request is sent again; without ``reconnects`` it is not where there was no answer at all.
    """

    tries: int = 12
    seconds_min: float = 0.1
    seconds_max: float = 5.0
    total_seconds: float = 60.0
    statuses: frozenset[int] = _AGAIN
    reconnects: bool = True

    def wait(self, tried: int, retry_after: str | None = None) -> float:
        """Return how many seconds to wait after so many tries."""
        if retry_after is not None and retry_after.isdecimal():
            return min(float(retry_after), WAIT_SECONDS_MAX)
        wait: float = min(self.seconds_min * 2.0 ** min(tried - 1, _DOUBLINGS_MAX), self.seconds_max)
        return wait * (0.75 + random.random() / 2)

    def goes_on(self, tried: int, seconds_passed: float) -> bool:
        """Return whether to try once more after so many tries, in so much time."""
        return tried < self.tries and seconds_passed < self.total_seconds


NEVER = Retry(tries=1)
"""Every request is sent once."""
