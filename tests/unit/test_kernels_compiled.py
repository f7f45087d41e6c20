"""Is it the compiled kernels that run, and not Python in their place?"""

from __future__ import annotations

import inspect
import os
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

from domain.cycle.warm import warm_up
from domain.kernels import compiling, nominated, placing, ties

ENTRIES = (placing.place, placing.could_fit, nominated.place_nominated)


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    warm_up()


def test_compilation_is_not_switched_off() -> None:
    assert os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__)
def test_what_runs_is_compiled_without_python_objects(entry: Any) -> None:
    assert all(each.signatures for each in ENTRIES)
    assert isinstance(entry, CPUDispatcher)
    assert len(entry.nopython_signatures) == len(entry.signatures) > 0
    assert entry.targetoptions["nopython"]
    assert entry.targetoptions["nogil"]
    assert not entry.targetoptions["_nrt"]  # no kernel counts references


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.__name__)
def test_one_compilation_serves_all_calls(entry: Any) -> None:
    """A second signature would mean that some caller passes another dtype or layout."""
    assert len(entry.signatures) == 1


def test_every_kernel_of_the_module_is_compiled() -> None:
    plain = [
        name
        for name, value in vars(placing).items()
        if inspect.isfunction(value) and value.__module__ == placing.__name__
    ]
    assert plain == []


def test_the_key_of_what_is_kept_changes_with_any_helper_or_constant() -> None:
    """The file of an entry stays the same then, and numba looks at that file alone."""

    def module(text: str) -> ModuleType:
        made = ModuleType("helpers")
        exec(f"from domain.kernels.compiling import helper\nBOUND = 3\n{text}", made.__dict__)
        return made

    text = "@helper\ndef twice(x):\n    return 2 * x\n"
    keys = [
        _key_of(module(each))
        for each in (
            text,
            text.replace("2 *", "3 *"),
            text.replace("2 * x", "x - 2"),
            text + "BOUND = 4\n",
            text.replace("twice", "doubled"),
        )
    ]
    assert _key_of(module(text)) == keys[0]
    assert len(set(keys)) == len(keys)


def _key_of(module: ModuleType) -> tuple[Any, ...]:
    def alike(x: int) -> int:
        return x

    entry = compiling.entry(module)(alike)
    signature = (numba.int64,)
    index_key: tuple[Any, ...] = entry._cache._index_key(signature, entry.targetctx.codegen())
    return index_key


def test_the_compiled_finaliser_is_that_of_splitmix64() -> None:
    first_of_seed_0 = ties.mix(np.uint64(0x9E3779B97F4A7C15))
    assert int(first_of_seed_0) == 0xE220A8397B1DCDAF
