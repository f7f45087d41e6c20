"""An event loop without input, output or waiting: its time jumps to whatever is scheduled next."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Mapping
from typing import Any

STEPS_MAX = 300_000
"""A day takes about 10,000 steps of the event loop."""


class Deadlock(Exception):
    """Every task waits for another one and nothing is scheduled."""


class Livelock(Exception):
    """Tasks go on for ever while no time passes, or for far longer than any day takes."""


class _NoInput(selectors.BaseSelector):
    """A selector over nothing: to wait means to let virtual time pass."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.steps_count = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing is scheduled")
        self.steps_count += 1
        if self.steps_count > STEPS_MAX:
            raise Livelock(f"{STEPS_MAX} steps, and it is {self.now_seconds:.3f} s")
        self.now_seconds += max(timeout, 0.0)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError("a simulation has no files")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise NotImplementedError("a simulation has no files")

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs tasks deterministically on virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _NoInput()
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return virtual seconds since the start."""
        return self._selector.now_seconds

    def end(self) -> None:
        """Cancel the tasks that a day left which was broken off, and close."""
        self._selector.steps_count = 0
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(Deadlock, Livelock):
            if tasks:
                self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.close()

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


class VirtualClock:
    """The ``Clock`` port on the loop's time, from a fixed day on."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """See ``Clock``."""
        return 1_700_000_000_000 + round(self._loop.time() * 1000)
