"""Six functions on which searches are compared, with the least value, 0, at the origin or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from research.search.population import Objective, Problem

SHIFT = 0.6
"""How far from the middle, as a part of the way to the bound, a shifted optimum lies at most."""


class TestFunction(msgspec.Struct, frozen=True):
    """A function of positions (float64[N, D]) whose least value is 0, at the origin; bound to +-``bound``."""

    __test__ = False  # it is no test of pytest

    of: Objective
    bound: float


def problem(function: TestFunction, dimensions: int, shift: np.ndarray | None = None) -> Problem:
    """Return the problem to minimise a function, moved by ``shift`` (float64[D]) if that is given."""
    high = np.full(dimensions, function.bound)
    offset = np.zeros(dimensions) if shift is None else shift
    return Problem(lambda positions: function.of(positions - offset), -high, high)


def drawn_shift(function: TestFunction, dimensions: int, rng: np.random.Generator) -> np.ndarray:
    """Return a random place (float64[D]) for the optimum, within ``SHIFT`` of the bounds."""
    return rng.uniform(-SHIFT, SHIFT, dimensions) * function.bound


def _sphere(x: np.ndarray) -> np.ndarray:
    total: np.ndarray = np.square(x).sum(axis=1)
    return total


def _schwefel(x: np.ndarray) -> np.ndarray:
    size = np.abs(x)
    found: np.ndarray = size.sum(axis=1) + size.prod(axis=1)
    return found


def _rosenbrock(x: np.ndarray) -> np.ndarray:
    at = x + 1.0  # its least value lies at (1, ..., 1)
    rise = at[:, 1:] - np.square(at[:, :-1])
    found: np.ndarray = (100.0 * np.square(rise) + np.square(at[:, :-1] - 1.0)).sum(axis=1)
    return found


def _rastrigin(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = (np.square(x) - 10.0 * np.cos(2.0 * np.pi * x) + 10.0).sum(axis=1)
    return found


def _ackley(x: np.ndarray) -> np.ndarray:
    spread = np.exp(-0.2 * np.sqrt(np.square(x).mean(axis=1)))
    waves = np.exp(np.cos(2.0 * np.pi * x).mean(axis=1))
    found: np.ndarray = np.maximum(20.0 - 20.0 * spread + np.e - waves, 0.0)
    return found


def _griewank(x: np.ndarray) -> np.ndarray:
    waves = np.cos(x / np.sqrt(np.arange(1.0, x.shape[1] + 1.0))).prod(axis=1)
    found: np.ndarray = np.square(x).sum(axis=1) / 4000.0 - waves + 1.0
    return found


FUNCTIONS: Mapping[str, TestFunction] = {
    "sphere": TestFunction(_sphere, 100.0),
    "schwefel-2.22": TestFunction(_schwefel, 10.0),
    "rosenbrock": TestFunction(_rosenbrock, 30.0),
    "rastrigin": TestFunction(_rastrigin, 5.12),
    "ackley": TestFunction(_ackley, 32.0),
    "griewank": TestFunction(_griewank, 600.0),
}
