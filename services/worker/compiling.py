"""Compiles the placing kernels before the first pod comes, and shows its progress."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from domain.cycle.warm import warm_up
from domain.kernels import placing
from domain.kernels.compiling import Compilations
from services.worker.compile_turn import Turn
from services.worker.thread import in_thread

_SILENT_SECONDS = 2.0
_TELL_SECONDS = 30.0


def _folder() -> Path | None:
    """Return where compiled kernels are kept; None: nowhere."""
    kept_in = placing.place._cache.cache_path
    return None if kept_in is None else Path(kept_in)


def _compile(turn: Turn) -> None:
    with turn.taken():
        warm_up()


async def compile_kernels() -> None:
    """Compile kernels that are not on disk yet, and show the progress. One process of many does so."""
    started = time.monotonic()
    turn = Turn(_folder())
    with Compilations() as seen:
        compiling = asyncio.create_task(in_thread(_compile, turn))
        await asyncio.wait({compiling}, timeout=_SILENT_SECONDS)
        if turn.waits:
            _say("another process compiles the placing kernels; waiting until it has")
        told = 0.0
        while not compiling.done():
            await asyncio.wait({compiling}, timeout=1.0)
            if not seen.current:  # they are read from disk, which takes long where others want the processor
                continue
            if not told:
                told = time.monotonic()
                _say(
                    f"compiling {seen.expected} placing kernels for this processor, once per installation: "
                    "about a minute of processor time"
                )
            passed_seconds = time.monotonic() - started
            state = f"{seen.done} of {seen.expected} kernels compiled, {passed_seconds:.0f} s"
            if sys.stderr.isatty():
                print(f"\r{state}: {seen.current:<24}", end="", file=sys.stderr, flush=True)
            elif time.monotonic() - told >= _TELL_SECONDS:
                told = time.monotonic()
                _say(f"still compiling: {state}")
        await compiling
    if seen.done and time.monotonic() - started > _SILENT_SECONDS:
        if sys.stderr.isatty():
            print("\r" + " " * 72 + "\r", end="", file=sys.stderr)
        _say(f"compiled in {time.monotonic() - started:.0f} s; {_fate(seen.kept_in)}")


def _fate(kept_in: str | None) -> str:
    if kept_in is None:
        return "nothing can be kept, so every start compiles: set NUMBA_CACHE_DIR to a directory to write in"
    return f"kept in {kept_in}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
