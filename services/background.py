"""Tasks that run beside what waits for them: none of them ends without a word.

A task without an end begins anew where it fails. A task with an end says its fault in the log, for where
nothing waits for its result. What a process cannot go on without is neither: ``supervise`` ends the
process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, NoReturn, TypeVar

from domain.model.errors import BerthError
from domain.model.limits import retry_backoff_ms_max
from services.backoff import Backoff
from services.log_limit import LogLimit

T = TypeVar("T")
_log = logging.getLogger("berth.background")
_log.addFilter(LogLimit())


def endless(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[NoReturn]:
    """Begin a task that works until it is cancelled. Where the work fails or returns, it begins anew."""
    return asyncio.create_task(_again(what, work), name=what)


async def _again(what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
    backoff, loop = Backoff(), asyncio.get_running_loop()
    this = asyncio.current_task()
    assert this is not None
    while True:
        began = loop.time()
        try:
            await work()
            _log.error(f"{what} ended by itself and begins anew")
        except (Exception, asyncio.CancelledError) as error:
            if this.cancelling():
                raise
            _say(f"{what} failed and begins anew", error)
        if loop.time() - began > retry_backoff_ms_max / 1000:
            backoff.reset()
        await backoff.wait()


def begin(what: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin a task that is done when the work returns."""

    def say(task: asyncio.Task[T]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _say(f"{what} failed", error)

    task = asyncio.create_task(work, name=what)
    task.add_done_callback(say)
    return task


def _say(text: str, error: BaseException) -> None:
    """Log a fault: what the world does to us in a line, what only a bug does with its traceback."""
    # LogLimit counts lines by their text before its arguments are put in: that of each task apart.
    if isinstance(error, BerthError):
        _log.warning(f"{text}: %s", error)
    else:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _log.error(f"{text}: %s", why, exc_info=error)


async def every(
    seconds: float, step: Callable[[], Awaitable[object]], done: Callable[[], object]
) -> NoReturn:
    """Take a step, again and again after a pause, and call ``done`` after each one that went well."""
    while True:
        await asyncio.sleep(seconds)
        await step()
        done()


async def ended(tasks: Collection[asyncio.Task[Any]], *, cancel: bool = True) -> None:
    """End tasks, and wait until they have ended."""
    for each in tasks:
        if cancel:
            each.cancel()
    if tasks:
        await asyncio.wait(tasks)
