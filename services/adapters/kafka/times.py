"""What a record's time is worth: the broker's own is taken; a producer's is a claim, and ends with today."""

from __future__ import annotations

import logging
import time
from functools import lru_cache

_LOGGER = logging.getLogger(__name__)


def until_now(topic: str, claimed_ms: int) -> int:
    """Return a producer's time, but no later than now: one year 2199 would be log time for ever."""
    _say_once(topic)
    return min(claimed_ms, time.time_ns() // 1_000_000)


@lru_cache(maxsize=64)
def _say_once(topic: str) -> None:
    _LOGGER.warning(
        "%s has the times of its producers' clocks, which decide in which order its records are read; what "
        "comes from the future counts as written now. "
        "`berth init` makes the broker write its own time (message.timestamp.type=LogAppendTime)",
        topic,
    )
