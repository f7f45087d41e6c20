"""Searches of SciPy with the same budget, to compare with: differential evolution and dual annealing.

SciPy is optional. What it does is its own; here is what it is asked: to end with the budget, to draw from our
generator, and not to polish the end, which would be another search.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np

from domain.model.errors import FieldError
from research.search.population import Evaluations, uniform

_FOREVER = 2**31 - 1


def is_there() -> bool:
    """Say whether SciPy is installed."""
    return importlib.util.find_spec("scipy") is not None


def differential_evolution(
    evaluations: Evaluations, count: int, rng: np.random.Generator, told: Callable[[int], None]
) -> None:
    """Search by ``scipy.optimize.differential_evolution`` with its own settings: best/1/bin, F drawn.

    It ends early only where all members have one value.
    """
    problem = evaluations.problem
    optimize().differential_evolution(
        _counted(evaluations, count, told),
        list(zip(problem.low, problem.high, strict=True)),
        init=uniform(problem, count, rng),
        maxiter=_FOREVER,
        tol=0.0,
        polish=False,
        vectorized=True,
        updating="deferred",
        rng=rng,
    )


def dual_annealing(
    evaluations: Evaluations, count: int, rng: np.random.Generator, told: Callable[[int], None]
) -> None:
    """Search by ``scipy.optimize.dual_annealing``, which descends by L-BFGS-B from what the annealing finds.

    It has no population: ``count`` evaluations are one iteration.
    """
    problem = evaluations.problem
    values = _counted(evaluations, count, told)
    optimize().dual_annealing(
        lambda position: float(values(position[:, None])[0]),
        list(zip(problem.low, problem.high, strict=True)),
        maxiter=_FOREVER,
        maxfun=_FOREVER,
        rng=rng,
    )


def optimize() -> ModuleType:
    """Return ``scipy.optimize``.

    Raises
    ------
    FieldError
        SciPy is not installed.
    """
    try:
        from scipy import optimize
    except ImportError:
        message = "needs SciPy, which is not installed; get it by: pip install 'berth[search]'"
        raise FieldError("algorithm", message) from None
    found: ModuleType = optimize
    return found


def rank_test(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the chance of the rank-sum test of SciPy, two-sided; 1 where all values are one."""
    optimize()  # or say what is missing
    from scipy import stats

    if len({*ones, *others}) == 1:
        return 1.0
    return float(stats.mannwhitneyu(ones, others, alternative="two-sided").pvalue)


def _counted(
    evaluations: Evaluations, count: int, told: Callable[[int], None]
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the values (float64[N]) of columns (float64[D, N]), and tell of each ``count`` evaluations."""
    done = 0

    def values(columns: np.ndarray) -> np.ndarray:
        nonlocal done
        _, found = evaluations.of(columns.T)
        if evaluations.count // count > done:
            done = evaluations.count // count
            told(done)
        return found

    return values
