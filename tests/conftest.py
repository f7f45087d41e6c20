"""Fixtures of all tests."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

import pytest

from domain.kernels.catalogue import FIRST, UNITS
from services.worker.compiling import compile_kernels
from tests.servers import database, embedded_dsn, fresh_kafka, kafka_bootstrap, postgres_dsn, server_dir
from tests.ways import choose_way

__all__ = ["database", "embedded_dsn", "fresh_kafka", "kafka_bootstrap", "postgres_dsn", "server_dir"]

_GROWTH_BYTES_MAX = 512 << 20
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES_MIN = 4 << 30
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4096
_resident_bytes = [0]  # after the last collection
_collected = [0]  # how often all objects were looked at
_TELL_SECONDS = 300
_running: dict[str, float] = {}  # the tests that run, and since when

ROOT = Path(__file__).parent.parent
BEGIN_WITH = (
    "tests/chaos/test_chaos.py",
    "tests/test_tidy.py",
    "tests/simulation/test_controls.py",
    "tests/documents/test_commands.py",
    "tests/acceptance/test_openb.py",
    "tests/simulation/test_simulation.py",
    "tests/simulation/test_replay.py",
)
"""Files that take a minute or more, or wait long: a core that is given one last works, or waits, alone."""

_REAL = {"kafka_bootstrap", "postgres_dsn", "fresh_kafka"}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile what is not on disk yet, before the clock of a test runs; for a few tests what most need."""
    if not session.config.option.collectonly:
        alone = not getattr(session.config.option, "numprocesses", None)
        asyncio.run(compile_kernels(FIRST if alone else UNITS))
    if _tells():
        threading.Thread(target=_tell_what_runs, daemon=True).start()


def _tells() -> bool:
    """Return whether this process is the one that reports what all others do."""
    return "PYTEST_XDIST_WORKER" not in os.environ


def _tell(text: str) -> None:
    print(f"\n{text}", file=sys.__stdout__, flush=True)


def _tell_what_runs() -> None:
    """Say now and then what runs: of a run that is cut, that is where it stood."""
    began = time.monotonic()
    while True:
        time.sleep(_TELL_SECONDS)
        now = time.monotonic()
        each = (f"{name} ({now - since:.0f} s)" for name, since in list(_running.items()))
        _tell(f"after {(now - began) / 60:.0f} min: {', '.join(each) or 'nothing runs'}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Give each core a worker, and one more, so that no core rests while a test waits for a server."""
    return (os.cpu_count() or 1) + 1


def pytest_configure() -> None:
    """Keep what tests and their servers write in memory; let children end at Ctrl-C also in the background.

    A database of 600 files is made and removed for each test: on a disk that others use it takes five times
    as long.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_there = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    if "TMPDIR" not in os.environ and is_there and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES_MIN:
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


def pytest_collection_finish() -> None:
    """Spare the collector what stays until the end: it would look at a million objects again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest; mark the tests that need the real servers by their fixtures."""
    first = {ROOT / name: place for place, name in enumerate(BEGIN_WITH)}
    items.sort(key=lambda item: first.get(item.path, len(first)))
    for item in items:
        if isinstance(item, pytest.Function) and _REAL & set(item.fixturenames):
            item.add_marker("real")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what failed at once: a run that is cut later would not say it."""
    if report.failed and _tells():
        _tell(f"{report.nodeid} failed ({report.when}, {report.duration:.0f} s)")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let each test find nodes in one of the ways, always the same."""
    choose_way(zlib.crc32(item.nodeid.encode()))


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note which tests run, in whichever process."""
    _running[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Collect what tests leave behind once it is much: large arrays are few objects for the collector."""
    _running.pop(nodeid, None)
    if _resident() > _resident_bytes[0] + _GROWTH_BYTES_MAX:
        gc.unfreeze()  # as workers that ran in this process freeze what they read
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # most of it is free by then, and the C library's
        _resident_bytes[0] = _resident()
    if (collected := gc.get_stats()[2]["collections"]) != _collected[0]:
        _collected[0] = collected
        gc.freeze()  # as workers that ran in this process look at everything when they end


def pytest_sessionfinish() -> None:
    """Let the last collection see all."""
    gc.unfreeze()


def _resident() -> int:
    """Return the bytes of memory that this process uses; 0 where the system does not say."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES if _STATM.exists() else 0
