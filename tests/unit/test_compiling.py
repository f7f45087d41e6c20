"""Does a first start say how long it takes, and where what it compiled is kept?"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernels import placing, preempting
from domain.kernels.compiling import Compilations, Unit
from services.worker import compiling
from services.worker.compile_turn import Turn
from services.worker.thread import in_thread

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of the test's own, in which no other one waits for its turn."""
    return tmp_path


def test_what_is_compiled_is_told_and_its_place_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def doubled(value: int) -> int:
        return 2 * value

    kernel, begun = Unit(doubled), list[str]()
    assert not kernel.is_kept
    with Compilations(begun.append):
        assert kernel(21) == 42
        assert kernel(21) == 42
    assert begun == ["doubled"]
    assert kernel.kept_in is not None
    assert Path(kernel.kept_in).is_relative_to(tmp_path)
    assert list(Path(kernel.kept_in).glob("*doubled*.nbc"))
    assert Unit(doubled).is_kept


def test_without_a_directory_to_write_in_a_kernel_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_LOCATOR_CLASSES", "ZipCacheLocator")  # finds none for a file

    def doubled(value: int) -> int:
        return 2 * value

    kernel = Unit(doubled)
    assert kernel(21) == 42
    assert kernel.kept_in is None
    assert kernel.is_kept, "in memory"


class Kernels:
    """Stand for units that take a while to compile, once they are there do not, and are counted."""

    def __init__(self, kept_in: Path | None, seconds: float = 0.2) -> None:
        self.kept_in, self._seconds = None if kept_in is None else str(kept_in), seconds
        self.compiled_count, self.is_kept = 0, False
        self.py_func = self.prepare
        self.fault = ""

    def prepare(self) -> None:
        if not self.is_kept:
            time.sleep(self._seconds)
            self.compiled_count += 1
            self.is_kept = True

    async def apart(self, units: list[Any], _: int, done: Callable[[Any], None]) -> None:
        for each in units:
            await in_thread(each.prepare)
            done(each)


def compile_now(kernels: Kernels) -> Awaitable[None]:
    return compiling.compile_kernels([kernels])  # type: ignore[list-item]


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_first_start_says_what_it_does(
    is_kept: bool, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = Kernels(folder if is_kept else None)
    monkeypatch.setattr(compiling, "_compile_apart", kernels.apart)
    asyncio.run(compiling.compile_kernels([kernels]))  # type: ignore[list-item]
    first, last = capsys.readouterr().err.splitlines()
    assert re.match(r"compiling the placing kernels for this processor .1 to go., once per", first)
    assert (f"kept in {folder}" in last) == is_kept
    assert ("every start compiles: set NUMBA_CACHE_DIR" in last) != is_kept


def test_a_process_that_is_stopped_does_not_wait_for_the_compiler() -> None:
    kernels = Kernels(None, seconds=5)

    async def stopped() -> None:
        task = asyncio.create_task(compiling.compile_kernels([kernels]))  # type: ignore[list-item]
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})

    began = time.monotonic()
    asyncio.run(stopped())
    assert time.monotonic() - began < 2, "SIGTERM during the first start took as long as it"


def test_a_start_that_finds_the_kernels_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(compiling.compile_kernels())
    assert capsys.readouterr().err == ""


PLAN = """
import sys
from domain.kernels.catalogue import PLANNING, UNITS
from services.cli.main import main
sys.argv[1:] = ["plan", "-f", "docs/examples/cluster.yaml"]
try:
    main()
except SystemExit:
    pass
used = {each.name for each in UNITS if each._cell.value}
print("DIFFERS", sorted(used ^ {each.name for each in PLANNING}))
"""


def test_a_plan_compiles_ahead_what_it_needs() -> None:
    """A process of its own, since this one has all kernels."""
    run = subprocess.run([sys.executable, "-c", PLAN], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "DIFFERS []", run.stderr


def test_units_are_compiled_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smallest two, with real processes: they find each other's work where it is kept."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    done: list[Unit] = []
    chosen = [preempting.sum_below, placing.could_fit]
    asyncio.run(compiling._compile_apart(chosen, 2, done.append))
    assert set(done) == set(chosen)
    for each in chosen:
        assert list(tmp_path.rglob(f"*{each.py_func.__name__}*.nbc"))
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------------------- many that start together


def test_of_many_that_start_together_one_compiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Kernels(folder, seconds=0.5)
    monkeypatch.setattr(compiling, "_compile_apart", kernels.apart)

    async def start_all() -> None:
        await asyncio.gather(*(compile_now(kernels) for _ in range(4)))

    asyncio.run(start_all())
    assert kernels.compiled_count == 1


HOLDER = """
import fcntl, os, sys, time
file = os.open(sys.argv[1] + "/berth-compile.lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Return another process, which compiles."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_event_loop_goes_on_while_another_compiles_and_a_kill_ends_the_wait(
    holder: subprocess.Popen[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kernels = Kernels(folder, seconds=0)
    monkeypatch.setattr(compiling, "_compile_apart", kernels.apart)
    monkeypatch.setattr(compiling, "_SILENT_SECONDS", 0.2)

    async def start() -> None:
        waiting = asyncio.ensure_future(compile_now(kernels))
        clock, slowest = asyncio.get_running_loop().time, 0.0
        for _ in range(40):
            before = clock()
            await asyncio.sleep(0.01)
            slowest = max(slowest, clock() - before)
        assert not kernels.compiled_count
        assert slowest < 0.2
        assert "another process compiles the placing kernels" in capsys.readouterr().err
        holder.kill()
        async with asyncio.timeout(5):
            await waiting

    asyncio.run(start())
    assert kernels.compiled_count == 1


@pytest.mark.usefixtures("holder")
def test_nobody_waits_for_ever(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Turn(folder, wait_seconds_max=0.3).taken():
        pass
    assert "another process has compiled for" in caplog.text


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.ENOENT])
def test_in_a_folder_that_is_read_only_everybody_compiles(
    error: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = 0

    def refuse(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "open", refuse)
    with Turn(folder).taken(), Turn(folder).taken(), Turn(None).taken():
        entered += 1
    assert entered == 1


def test_who_fails_leaves_the_turn_to_the_next(folder: Path) -> None:
    def fail() -> None:
        with Turn(folder).taken():
            raise MemoryError

    for _ in range(2):
        with pytest.raises(MemoryError):
            fail()
    with Turn(folder, wait_seconds_max=1).taken():
        late = Turn(folder, wait_seconds_max=0.2)
        with late.taken():
            pass  # its time was over: nothing is whole yet
    assert (folder / "berth-compile.lock").read_bytes() == b"1"
