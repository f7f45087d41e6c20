"""An event loop without input, output or waiting: its time jumps to whatever is scheduled next."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import heapq
from collections.abc import Callable
from typing import Any

STEPS_PER_SECOND_MAX = 20_000
"""Four workers that follow each other, and their relays, take up to 2,500 steps of the event loop."""

SECONDS_MAX = 3_600.0
"""A day takes some minutes, and half an hour where a shard is added again and again."""

_LOOKS_EVERY = 100_000


class Deadlock(Exception):
    """Every task waits for another one and nothing is scheduled."""


class Livelock(Exception):
    """Tasks go on for ever while no time passes, or for far longer than any day takes."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs tasks deterministically on virtual time.

    It takes the place of the standard library's loop where that one spends most of a day: on a selector that
    it does not have, and on checks of a debug mode that is off.
    """

    def __init__(self) -> None:
        super().__init__()
        self._steps_count = 0  # since so many steps were looked at last
        self._looked_seconds = 0.0
        self._now_seconds = 0.0
        self._queue: collections.deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        self._timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]

    def time(self) -> float:
        """Return virtual seconds since the start."""
        return self._now_seconds

    def end(self) -> None:
        """Cancel the tasks that a day left which was broken off, and close."""
        self._steps_count = 0
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(Deadlock, Livelock):
            if tasks:
                self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.close()

    def call_soon(  # type: ignore[override]  # callbacks of this loop take what they are given
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """See ``asyncio.AbstractEventLoop``."""
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """See ``asyncio.AbstractEventLoop``."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, timer)
        return timer

    def _run_once(self) -> None:
        """Run what is ready; where nothing is, let time pass up to what is scheduled next."""
        queue, timers = self._queue, self._timers
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        if not queue and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise Deadlock("nothing is scheduled")
            self._now_seconds = max(self._now_seconds, timers[0].when())
        self._steps_count += 1
        if self._steps_count >= _LOOKS_EVERY:
            self._look()
        while timers and timers[0].when() <= self._now_seconds:
            queue.append(heapq.heappop(timers))
        for _ in range(len(queue)):
            handle = queue.popleft()
            if not handle.cancelled():
                handle._run()

    def _look(self) -> None:
        """Raise ``Livelock`` where no time passes, or too much of it."""
        seconds = self._now_seconds - self._looked_seconds
        if self._steps_count > STEPS_PER_SECOND_MAX * seconds or self._now_seconds > SECONDS_MAX:
            raise Livelock(
                f"{self._steps_count} steps in {seconds:.3f} s, and it is {self._now_seconds:.3f} s"
            )
        self._steps_count, self._looked_seconds = 0, self._now_seconds

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer that was cancelled is passed over when its time comes."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


class VirtualClock:
    """The ``Clock`` port on the loop's time, from a fixed day on."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """See ``Clock``."""
        return 1_700_000_000_000 + round(self._loop.time() * 1000)
