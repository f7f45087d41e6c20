"""Does a first start say how long it takes, and where what it compiled is kept?"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path

import pytest

from domain.kernels.compiling import Compilations, entry
from services.worker import compiling


def test_what_is_compiled_is_counted_and_its_place_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def doubled(value: int) -> int:
        return 2 * value

    kernel = entry()(doubled)
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

    kernel = entry()(doubled)
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
