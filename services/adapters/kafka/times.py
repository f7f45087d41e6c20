"""What a record's time is worth: the broker's own is taken; a producer's is a claim, and ends with today."""

from __future__ import annotations

import logging
import time
from functools import lru_cache

_LOGGER = logging.getLogger(__name__)


def until_now(topic: str, claimed_ms: int) -> int:
    """Return a producer's time, but no later than now: one year 2199 would be log time for ever."""
    now_ms = time.time_ns() // 1_000_000
    if claimed_ms <= now_ms:
        return claimed_ms
    _say_once(topic)
    return now_ms


@lru_cache(maxsize=64)
def _say_once(topic: str) -> None:
    _LOGGER.warning(
        "%s holds records from the future, by their producers' clocks; they count as written now. "
        "`berth init` makes the broker write its own time (message.timestamp.type=LogAppendTime)",
        topic,
    )
