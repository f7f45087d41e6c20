"""Runs work in a thread that no process waits for at its end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Compute(Protocol):
    """Runs work that keeps a processor busy: in a thread, or in place in a simulation."""

    async def __call__(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return ``work(…)``."""


async def in_thread(work: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Return ``work(…)``, done in a thread of its own.

    The threads of ``asyncio.to_thread`` are waited for when the process ends, so one that hangs would keep a
    stopped process alive. Starting a thread takes 0.1 ms, once per batch.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def set_outcome(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, fault = None, None
        try:
            result = work(*args, **kwargs)
        except BaseException as error:
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(set_outcome, result, fault)

    threading.Thread(target=run, name="berth-work", daemon=True).start()
    return await done
