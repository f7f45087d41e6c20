"""Is it the compiled kernels that run, and not Python in their place?"""

from __future__ import annotations

import inspect
import os
from typing import Any

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

from domain.cycle.warm import warm_up
from domain.kernels import placing

ENTRIES = (placing.place, placing.could_fit)


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


def test_the_compiled_finaliser_is_that_of_splitmix64() -> None:
    first_of_seed_0 = placing._mix(np.uint64(0x9E3779B97F4A7C15))
    assert int(first_of_seed_0) == 0xE220A8397B1DCDAF
