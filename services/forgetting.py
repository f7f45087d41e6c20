"""Forgets old rows some thousand at a time, so that their tables do not grow for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

FORGET_SECONDS = 60.0
FORGET_AT_ONCE_MAX = 5_000


async def forget_old(forget: Callable[[float, int], Awaitable[int]], age_seconds: float) -> None:
    """Forget all that is older, some thousand rows at a time."""
    while await forget(age_seconds, FORGET_AT_ONCE_MAX) == FORGET_AT_ONCE_MAX:
        pass
