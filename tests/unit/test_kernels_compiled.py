"""Is it the compiled kernels that run, and not Python in their place?"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

from domain.kernels import compiling, placing, ties
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


@pytest.mark.slow
def test_no_function_is_compiled_twice(tmp_path: Path) -> None:
    """A second signature is another type or layout that some caller hands over, and costs as much.

    Two are meant: floating-point shares beside whole devices, and flags of two widths.
    """
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_ALL],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
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


def _digest(text: str) -> str:
    made = ModuleType("helpers")
    sys.modules["helpers"] = made
    exec(text, made.__dict__)
    return compiling.digest_of(made.__dict__["kernel"].py_func)


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
    made = ModuleType("helpers")
    sys.modules["helpers"] = made
    exec(KERNEL, made.__dict__)
    assert made.__dict__["kernel"](10) == 20 + 17 + 3
    assert made.__dict__["apart"](1) == 8


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
    Small(**right)
    with pytest.raises(TypeError, match="Small"):
        Small(**{**right, **wrong})


def test_the_compiled_finaliser_is_that_of_splitmix64() -> None:
    first_of_seed_0 = ties.mix(np.uint64(0x9E3779B97F4A7C15))
    assert int(first_of_seed_0) == 0xE220A8397B1DCDAF
