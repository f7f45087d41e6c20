"""Does a first start say how long it takes, and where what it compiled is kept?"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.kernels.compiling import Compilations, entry
from services.worker import compiling
from services.worker.compile_turn import Turn


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the test's own, in which no other one waits for its turn."""
    monkeypatch.setattr(compiling, "_folder", lambda: tmp_path)
    return tmp_path


def test_what_is_compiled_is_counted_and_its_place_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def doubled(value: int) -> int:
        return 2 * value

    kernel = entry(doubled)
    with Compilations() as seen:
        assert seen.expected > 20
        assert kernel(21) == 42
        assert kernel(21) == 42
    assert seen.kept_in is not None
    assert Path(seen.kept_in).is_relative_to(tmp_path)
    assert list(Path(seen.kept_in).glob("*doubled*.nbc"))


def test_without_a_directory_to_write_in_a_kernel_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_LOCATOR_CLASSES", "ZipCacheLocator")  # finds none for a file

    def doubled(value: int) -> int:
        return 2 * value

    kernel = entry(doubled)
    with Compilations() as seen:
        assert kernel(21) == 42
    assert seen.kept_in is None


@pytest.mark.parametrize("kept_in", [None, "/somewhere"])
def test_a_first_start_says_what_it_does(
    kept_in: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warm_up() -> None:
        time.sleep(0.2)

    class Seen(Compilations):
        done = 3
        current = "place"

        def __enter__(self) -> Seen:
            self.kept_in = kept_in
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(compiling, "warm_up", warm_up)
    monkeypatch.setattr(compiling, "Compilations", Seen)
    monkeypatch.setattr(compiling, "_SILENT_SECONDS", 0.05)
    asyncio.run(compiling.compile_kernels())
    first, last = capsys.readouterr().err.splitlines()
    assert re.match(r"compiling \d+ placing kernels for this processor, once per installation", first)
    assert ("kept in /somewhere" in last) == (kept_in is not None)
    assert ("every start compiles: set NUMBA_CACHE_DIR" in last) == (kept_in is None)


def test_a_process_that_is_stopped_does_not_wait_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = threading.Event()
    monkeypatch.setattr(compiling, "warm_up", lambda: compiled.wait(5))

    async def stopped() -> None:
        task = asyncio.create_task(compiling.compile_kernels())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})

    began = time.monotonic()
    asyncio.run(stopped())
    compiled.set()
    assert time.monotonic() - began < 2, "SIGTERM during the first start took as long as it"


def test_a_start_that_finds_the_kernels_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(compiling.compile_kernels())
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------------------- many that start together


class Kernels:
    """What takes a while to compile, once it is there does not, and is counted."""

    def __init__(self) -> None:
        self.compiled_count, self.loading_count, self.loading_count_max = 0, 0, 0
        self._there = False

    def warm_up(self) -> None:
        if self._there:
            self.loading_count += 1
            self.loading_count_max = max(self.loading_count_max, self.loading_count)
            time.sleep(0.3)
            self.loading_count -= 1
            return
        self.compiled_count += 1
        time.sleep(0.5)
        self._there = True


def test_of_many_that_start_together_one_compiles_and_the_others_load_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = Kernels()
    monkeypatch.setattr(compiling, "warm_up", kernels.warm_up)

    async def start_all() -> None:
        await asyncio.gather(*(compiling.compile_kernels() for _ in range(4)))

    asyncio.run(start_all())
    assert kernels.compiled_count == 1
    assert kernels.loading_count_max > 1, "there is nothing to wait for any more"


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
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = threading.Event()
    monkeypatch.setattr(compiling, "warm_up", compiled.set)
    monkeypatch.setattr(compiling, "_SILENT_SECONDS", 0.2)

    async def start() -> None:
        waiting = asyncio.create_task(compiling.compile_kernels())
        clock, slowest = asyncio.get_running_loop().time, 0.0
        for _ in range(40):
            before = clock()
            await asyncio.sleep(0.01)
            slowest = max(slowest, clock() - before)
        assert not compiled.is_set()
        assert slowest < 0.2
        assert "another process compiles the placing kernels" in capsys.readouterr().err
        holder.kill()
        async with asyncio.timeout(5):
            await waiting

    asyncio.run(start())
    assert compiled.is_set()


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
