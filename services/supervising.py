"""How a process runs until it is told to stop, and ends: small, as an agent on a node imports it, too."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn

from domain.model.errors import BerthError
from services.log_format import announce

STOP_SECONDS_MAX = 5.0
_log = logging.getLogger("berth")


class Ended(BerthError):
    """What works until it is told to stop has ended by itself, which only a fault of berth does."""

    code = "ended"


async def supervise(
    *works: Coroutine[Any, Any, None], until: Coroutine[Any, Any, None] | None = None
) -> None:
    """Run until a signal comes, ``until`` is over or one of the works fails; then stop the others.

    Raises
    ------
    Ended
        One of the works returned.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    tasks = [asyncio.create_task(work) for work in works]
    asked = [asyncio.create_task(work) for work in (_when(stopped), until) if work is not None]
    try:
        done, _ = await asyncio.wait([*tasks, *asked], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, *asked):
            task.cancel()
        _, late = await asyncio.wait([*tasks, *asked], timeout=STOP_SECONDS_MAX)
        for task in late:
            _log.warning("%s does not stop in time", task.get_coro())
    for task in done:
        task.result()
    if done.isdisjoint(asked):
        names = ", ".join(getattr(task.get_coro(), "__qualname__", "a task") for task in done)
        raise Ended(f"{names} ended by itself, so this process ends; this is a fault of berth")


async def _when(event: asyncio.Event) -> None:
    await event.wait()


async def announced(line: str, work: Coroutine[Any, Any, None]) -> None:
    """Say that a process is up, and run it: signals are waited for by now."""
    announce(line)
    await work


def leave() -> NoReturn:
    """End this process, all that it held is closed.

    The interpreter would take itself apart first: 0.3 s of processor time with what numba loads, and where a
    kernel is being compiled, only once the compiler lets go of its lock.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # the reader is gone
            stream.flush()
    os._exit(0)
