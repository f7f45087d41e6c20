"""Do the waits between tries double, stop at their bound, and pass on the event loop's own time?"""

from __future__ import annotations

import asyncio

import pytest

from domain.model import limits
from services.backoff import Backoff


def test_each_wait_is_twice_as_long_up_to_the_bound() -> None:
    backoff = Backoff()
    waits = [backoff.next_ms() for _ in range(10)]
    assert waits[:4] == [50, 100, 200, 400]
    assert waits[0] == limits.retry_backoff_ms_min
    assert waits[-2:] == [limits.retry_backoff_ms_max] * 2


def test_after_a_try_that_went_well_the_wait_is_short_again() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.next_ms()
    backoff.reset()
    assert backoff.next_ms() == limits.retry_backoff_ms_min


async def test_it_waits_with_the_sleep_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    backoff = Backoff()
    await backoff.wait()
    await backoff.wait()
    assert slept == [0.05, 0.1]
