"""Is it the compiled kernels that run, and not Python in their place?"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

from domain.kernels import compiling, placing, repacking, ties
from domain.kernels.catalogue import UNITS, prepare_all
from domain.kernels.compiling import Unit
from domain.kernels.tables import Table, array


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    prepare_all()


def test_compilation_is_not_switched_off() -> None:
    assert os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_runs_is_compiled_without_python_objects(unit: Unit) -> None:
    dispatcher = unit.dispatcher
    assert isinstance(dispatcher, CPUDispatcher)
    assert len(dispatcher.nopython_signatures) == len(dispatcher.signatures) == 1
    assert dispatcher.targetoptions["nopython"]
    assert dispatcher.targetoptions["nogil"]
    assert not dispatcher.targetoptions["_nrt"]  # no kernel counts references


def test_every_unit_is_in_the_catalogue() -> None:
    """What is not there is compiled by the first pod that needs it."""
    assert {each for each in Unit.by_cell.values() if each.name.startswith("berth.domain.")} == set(UNITS)
    assert len(set(UNITS)) == len(UNITS)


COMPILE_ALL = """
import sys
from numba.core.registry import CPUDispatcher
from domain.kernels.catalogue import UNITS, prepare_all

assert not any(unit.is_kept for unit in UNITS)
prepare_all()
for name, module in sys.modules.items():
    if name.startswith("domain.kernels."):
        for each in vars(module).values():
            if isinstance(each, CPUDispatcher) and each.__module__ == name and len(each.signatures) > 1:
                print(each.py_func.__name__)
"""


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.wide
def test_no_function_is_compiled_twice(tmp_path: Path) -> None:
    """A second signature is another type or layout that some caller hands over, and costs as much.

    Two are meant: floating-point shares beside whole devices, and flags of two widths. Types are known before
    anything is optimised, which takes a third of the time.
    """
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_ALL],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.split()) == ["_clear", "stranded"]


def test_every_kernel_of_the_module_is_compiled() -> None:
    plain = [
        name
        for name, value in vars(placing).items()
        if inspect.isfunction(value) and value.__module__ == placing.__name__
    ]
    assert plain == []


KERNEL = """
from domain.kernels.compiling import entry, helper, unit
BOUND = 3

@helper
def twice(x):
    return 2 * x

@unit
def apart(x: int) -> int:
    return x + 7

@entry
def kernel(x):
    \"\"\"Do it.\"\"\"
    return twice(x) + apart(x) + BOUND
"""


def _made(text: str, file: str = "<string>") -> dict[str, Any]:
    """Return what a module of this text has; it is kept on disk where the file exists."""
    made = ModuleType("helpers")
    sys.modules["helpers"] = made
    exec(compile(text, file, "exec"), made.__dict__)
    return made.__dict__


def _digest(text: str) -> str:
    return compiling.digest_of(_made(text)["kernel"].py_func)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2 *", "3 *"),
        ("2 * x", "x - 2"),
        ("BOUND = 3", "BOUND = 4"),
        ("(x) + BOUND", "(x)"),
        ("x: int", "x: float"),
    ],
)
def test_a_kernel_is_compiled_anew_when_a_helper_or_a_constant_changes(before: str, after: str) -> None:
    assert before in KERNEL
    assert _digest(KERNEL) == _digest(KERNEL)
    assert _digest(KERNEL) != _digest(KERNEL.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after"), [("x + 7", "x + 8"), ("Do it.", "Do that."), ("BOUND = 3", "# Why.\nBOUND = 3")]
)
def test_it_is_kept_when_another_unit_or_a_text_changes(before: str, after: str) -> None:
    assert before in KERNEL
    assert _digest(KERNEL) == _digest(KERNEL.replace(before, after))


def test_a_kernel_calls_a_unit_that_was_compiled_after_it() -> None:
    made = _made(KERNEL)
    assert made["kernel"](10) == 20 + 17 + 3
    assert made["apart"](1) == 8


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_digest_is_the_same_in_every_process(seed: str) -> None:
    """Sets have another order there: of the options of a kernel, for one."""
    command = (
        "from domain.kernels import compiling, repacking\n"
        "print(compiling.digest_of(repacking.search.py_func))"
    )
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == compiling.digest_of(repacking.search.py_func)


def test_a_kernel_reads_nothing_that_the_digest_does_not_see() -> None:
    with pytest.raises(TypeError, match="BOUND"):
        _digest(KERNEL.replace("BOUND = 3", "BOUND = [3]"))


@pytest.mark.parametrize("damage", ["empty", "cut", "missing"])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_what_a_loss_of_power_cut_off_is_compiled_again(
    damage: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def tripled(value: int) -> int:
        return 3 * value

    Unit(tripled).prepare()
    (file,) = tmp_path.rglob(f"*.{kind}")
    whole = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(whole[: len(whole) // 2 if damage == "cut" else 0])
    assert Unit(tripled).is_kept == (kind == "nbc" and damage != "missing")
    assert Unit(tripled)(4) == 12
    assert Unit(tripled).is_kept


def test_another_build_leaves_no_code_under_the_name_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba writes the index first: a process that ends in between left another build's code under it."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    found: list[set[Path]] = []
    for text in (KERNEL, KERNEL.replace("BOUND = 3", "BOUND = 4")):
        _made(text, __file__)["kernel"](1)
        found.append({each for each in tmp_path.rglob("*.nbc") if "kernel" in each.name})
    assert len(found[0]) == 1
    assert len(found[1]) == 2


def test_two_threads_may_ask_for_one_unit_at_once() -> None:
    def shifted(value: int) -> int:
        return value << 1

    asked = Unit(shifted)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(asked, [5] * 4)) == [10] * 4


def test_a_full_disk_ends_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def halved(value: int) -> int:
        return value >> 1

    asked = Unit(halved)
    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", refuse)
    with pytest.warns(UserWarning, match="No space left"):
        assert asked(10) == 5


class Small(Table):
    row: np.ndarray = array(np.int32, "N")
    pair: np.ndarray = array(np.int64, "N", 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"row": np.zeros(3, np.int64)},
        {"row": np.zeros((3, 1), np.int32)},
        {"row": np.zeros(6, np.int32)[::2]},
        {"pair": np.zeros((3, 3), np.int64)},
        {"other": np.zeros(3)},
    ],
)
def test_a_table_takes_nothing_but_what_its_kernels_were_compiled_for(wrong: dict[str, np.ndarray]) -> None:
    right = {"row": np.zeros(3, np.int32), "pair": np.zeros((3, 2), np.int64)}
    small: Any = Small(**right)
    with pytest.raises(TypeError, match="Small"):
        Small(**{**right, **wrong})
    with pytest.raises(TypeError, match="Small"):
        small.replace(**wrong)
    with pytest.raises(TypeError, match="replaced"):
        small.row = right["row"]


def test_the_compiled_finaliser_is_that_of_splitmix64() -> None:
    first_of_seed_0 = ties.mix(np.uint64(0x9E3779B97F4A7C15))
    assert int(first_of_seed_0) == 0xE220A8397B1DCDAF
