"""Chaotic maps that spread a first population, and the mutation by Student's t distribution.

Source: equations 13 to 15 of the paper on an improved bald eagle search for batch placement (TBESK, 2023).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from research.search.population import Population, Problem

STEPS_MAX = 40
"""Both maps shift one binary digit out a step: a double is 0 after some 55. Sequences are seeded anew."""


def tent(x: np.ndarray) -> np.ndarray:
    """Return the next values of the Tent map, for values in [0, 1]: 2x up to one half, else 2(1 - x)."""
    return np.where(x <= 0.5, 2.0 * x, 2.0 * (1.0 - x))


def bernoulli(x: np.ndarray) -> np.ndarray:
    """Return the next values of the Bernoulli shift, for values in [0, 1]: 2x modulo 1."""
    return (2.0 * x) % 1.0


def spread(
    problem: Problem,
    count: int,
    rng: np.random.Generator,
    map_: Callable[[np.ndarray], np.ndarray] = tent,
) -> np.ndarray:
    """Return positions (float64[count, D]) along a chaotic sequence in each dimension.

    A sequence begins anew at a random value after ``STEPS_MAX`` steps, and where it has reached 0 or 1, as
    it would stay there.
    """
    drawn = np.empty((count, len(problem.low)))
    x = rng.random(len(problem.low))
    for row in range(count):
        fixed = (x <= 0.0) | (x >= 1.0) | (row % STEPS_MAX == 0)
        x = np.where(fixed, rng.random(len(x)), x)
        drawn[row] = x
        x = map_(x)
    found: np.ndarray = problem.low + drawn * (problem.high - problem.low)
    return found


def mutated(population: Population) -> np.ndarray:
    """Return the members moved by x + x t(n), where n, the degrees of freedom, is the iteration.

    Few of them let t have the heavy tails of a Cauchy distribution, many make it normal. A step is as long as
    the position is far from zero, so what lies at zero is found more easily than anything else.
    """
    shape = population.positions.shape
    return population.positions * (1.0 + population.rng.standard_t(population.iteration, shape))
