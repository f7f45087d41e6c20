"""Compiles kernels ahead of the first pod, several at once in processes of their own, and shows its progress.

What plain pods need under the default profile comes first. The rest is compiled behind it by one process of
low priority, or by the first pod that needs it. One process of an installation compiles, and the others wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path

from domain.kernels.catalogue import FIRST, LATER, prepare_all
from domain.kernels.compiling import Compilations, Unit
from ops.child import environment, python_module, python_path
from services.log_format import announce
from services.worker.compile_turn import Turn
from services.worker.thread import in_thread

_SILENT_SECONDS = 2.0
_TELL_SECONDS = 15.0
_NICE = 10
_PROCESSES_MAX = 4
"""The longest kernel takes a fifth of all, and a process 200 MiB: more would not be quicker."""
_NUMBA = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
"""Variables that say for which processor to compile; no other child needs them."""
_LOGGER = logging.getLogger(__name__)


async def compile_kernels(units: Collection[Unit] = FIRST) -> None:
    """Compile kernels that are not on disk yet, show the progress, and load them."""
    missing = await in_thread(_missing, units)
    if missing:
        if fault := await in_thread(_fault, missing):
            announce(f"warning: {fault}")
        async with _turn(missing[0]):
            await _compile(await in_thread(_missing, missing))
    await in_thread(prepare_all, units)


async def compile_later() -> None:
    """Compile behind the first pods what they do not need, without a word."""
    missing = await in_thread(_missing, LATER)
    if not missing or missing[0].kept_in is None:
        return
    async with _turn(missing[0], silent=True):
        await _compile_apart(await in_thread(_missing, missing), 1, lambda _: None, nice=_NICE)


@contextlib.contextmanager
def late_ones_told() -> Iterator[None]:
    """Say it where a pod has to wait for a kernel that is compiled when it is first called."""
    with Compilations(lambda name: announce(f"compiling the kernel {name}, needed for the first time")):
        yield


def _missing(units: Collection[Unit]) -> list[Unit]:
    return [each for each in units if not each.is_kept]


def _fault(units: Collection[Unit]) -> str:
    """Return the first reason why kernels that are kept, or could be, are compiled all the same."""
    return next(filter(None, (each.fault for each in units)), "")


@contextlib.asynccontextmanager
async def _turn(unit: Unit, *, silent: bool = False) -> AsyncIterator[None]:
    """Wait until no other process compiles, and say so where that takes long."""
    turn = Turn(None if unit.kept_in is None else Path(unit.kept_in))
    with contextlib.ExitStack() as stack:
        waiting = asyncio.create_task(in_thread(stack.enter_context, turn.taken()))
        await asyncio.wait({waiting}, timeout=_SILENT_SECONDS)
        if turn.waits and not silent:
            announce("another process compiles the placing kernels; waiting until it has")
        await waiting
        yield


async def _compile(units: Collection[Unit]) -> None:
    """Compile kernels as quickly as this machine can, and show the progress."""
    if not units:
        return
    progress = _Progress(len(units))
    kept_in = next(iter(units)).kept_in
    if kept_in is not None:
        await _compile_apart(units, min(_processors(), _PROCESSES_MAX), progress.show)
    for each in await in_thread(_missing, units):  # all where nothing is kept, or what no process compiled
        await in_thread(each.prepare)
        progress.show(each)
    progress.end(kept_in)


def _processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


async def _compile_apart(
    units: Collection[Unit], processes: int, done: Callable[[Unit], None], *, nice: int = 0
) -> None:
    """Compile kernels in so many processes, which take the next one as soon as they have compiled one.

    What remains where a process cannot be started, or ends, is compiled when it is loaded.
    """
    todo = list(units)
    command = python_module("services.worker.compile_apart", nice)

    async def run() -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd="/",
                env=environment(*_NUMBA, PYTHONPATH=python_path()),
            )
        except (OSError, TypeError) as error:  # TypeError: Python does not know its own program
            _LOGGER.warning("no process can be started to compile kernels: %s", error)
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while todo:
                unit = todo.pop(0)
                process.stdin.write(f"{unit.name}\n".encode())
                if not await process.stdout.readline():
                    return
                done(unit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    await asyncio.gather(*(run() for _ in range(min(processes, len(todo)))))


class _Progress:
    """Prints how far compiling is, from the third second on."""

    def __init__(self, expected: int) -> None:
        self._expected, self._done = expected, 0
        self._started = self._told = time.monotonic()
        announce(
            f"compiling the placing kernels for this processor ({expected} to go), once per installation: "
            "about half a minute of processor time"
        )

    def show(self, unit: Unit) -> None:
        """Count a kernel that is compiled."""
        self._done += 1
        now = time.monotonic()
        state = f"{self._done} of {self._expected} kernels compiled, {now - self._started:.0f} s"
        if sys.stderr.isatty():
            print(f"\r{state}: {unit.py_func.__name__:<24}", end="", file=sys.stderr, flush=True)
        elif now - self._told >= _TELL_SECONDS:
            self._told = now
            announce(f"still compiling: {state}")

    def end(self, kept_in: str | None) -> None:
        """Say how long it took, and where the result is."""
        if sys.stderr.isatty():
            print("\r" + " " * 72 + "\r", end="", file=sys.stderr)
        took = f"compiled what most pods need in {time.monotonic() - self._started:.0f} s"
        announce(f"{took}; {_fate(kept_in)}")


def _fate(kept_in: str | None) -> str:
    if kept_in is None:
        return "nothing can be kept, so every start compiles: set NUMBA_CACHE_DIR to a directory to write in"
    return f"kept in {kept_in}"
