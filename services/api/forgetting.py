"""Forgets old event ids and old entries of the access log, so that their tables do not grow for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

FORGET_SECONDS = 60.0
FORGET_AT_ONCE_MAX = 5_000

_log = logging.getLogger("berth.api")


async def forget_old(what: str, forget: Callable[[float, int], Awaitable[int]], age_seconds: float) -> None:
    """Forget what is older, once a minute, until cancelled. A fault is logged and tried again."""
    while True:
        await asyncio.sleep(FORGET_SECONDS)
        try:
            while await forget(age_seconds, FORGET_AT_ONCE_MAX) == FORGET_AT_ONCE_MAX:
                pass
        except Exception as error:
            _log.warning("%s are not forgotten: %s", what, error)
