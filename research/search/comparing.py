"""Compares searches on functions whose least value is known: several runs each, and what a shift shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from research.search import library
from research.search.functions import FUNCTIONS, drawn_shift, problem
from research.search.minimise import Found, Step, minimise

WAY_POINTS = 100
"""At so many numbers of evaluations, all equally far apart, is said how far a search has come."""

SOLVED = 1e-6
"""A search that comes so near to the least value, 0, has found it."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one search on one function: least values found, and when they were found.

    Attributes
    ----------
    deviation : float
        Of the values of a sample of runs (divided by the number of runs less one); 0 for one run.
    iterations_mean : float
        After how many iterations the value was within 1 % of what the run found in the end, on the mean of
        the runs.
    values : list of float
        What each run found, in the order of the seeds.
    evaluations, way : list
        The median over the runs of the least value after so many evaluations; None: some found none yet.
    """

    function: str
    is_shifted: bool
    algorithm: str
    best: float
    worst: float
    median: float
    mean: float
    deviation: float
    iterations_mean: float
    solved_count: int
    runs_count: int
    values: list[float]
    evaluations: list[int]
    way: list[float | None]


def compare(
    algorithms: Sequence[str],
    functions: Sequence[str],
    *,
    dimensions: int,
    runs: int,
    evaluations_max: int,
    population_count: int,
    seed: int,
    report: Callable[[Compared], None],
) -> list[Compared]:
    """Run each search on each function, with the optimum at the origin and elsewhere.

    Run k has seed ``seed + k`` in all searches. Its optimum lies elsewhere by a shift drawn with that seed.
    """
    found = []
    points = np.arange(1, WAY_POINTS + 1) * evaluations_max // WAY_POINTS
    for name in functions:
        for is_shifted in (False, True):
            for algorithm in algorithms:
                values, iterations, ways = np.empty(runs), np.empty(runs), np.empty((runs, WAY_POINTS))
                for k in range(runs):
                    rng = np.random.default_rng([seed + k, 1])
                    shift = drawn_shift(FUNCTIONS[name], dimensions, rng) if is_shifted else None
                    ended = minimise(
                        algorithm,
                        problem(FUNCTIONS[name], dimensions, shift),
                        seed=seed + k,
                        population_count=population_count,
                        evaluations_max=evaluations_max,
                    )
                    values[k], iterations[k] = ended.value, _settled(ended.steps)
                    ways[k] = _way(ended, points)
                found.append(
                    Compared(
                        function=name,
                        is_shifted=is_shifted,
                        algorithm=algorithm,
                        best=float(values.min()),
                        worst=float(values.max()),
                        median=float(np.median(values)),
                        mean=float(values.mean()),
                        deviation=float(values.std(ddof=1)) if runs > 1 else 0.0,
                        iterations_mean=float(iterations.mean()),
                        solved_count=int((values < SOLVED).sum()),
                        runs_count=runs,
                        values=values.tolist(),
                        evaluations=points.tolist(),
                        way=[None if at == np.inf else at for at in np.median(ways, axis=0).tolist()],
                    )
                )
                report(found[-1])
    return found


def _way(ended: Found, points: np.ndarray) -> np.ndarray:
    """Return the least value found after these numbers of evaluations; infinite before the first iteration.

    The budget mostly ends within an iteration, which is the last step of the way.
    """
    counts = np.array([*(step.evaluations_count for step in ended.steps), ended.evaluations_count], np.int64)
    values = np.array([np.inf, *(step.best_value for step in ended.steps), ended.value])
    way: np.ndarray = values[np.searchsorted(counts, points, side="right")]
    return way


def rank_tests(found: Sequence[Compared], against: str) -> list[float | None]:
    """Return by which chance the runs of two searches would rank so far apart if both were alike.

    The rank-sum test of Wilcoxon, Mann and Whitney, two-sided, on the same function and place; None: of the
    other search itself. It says nothing of how far the values are apart.
    """
    others = {(each.function, each.is_shifted): each for each in found if each.algorithm == against}
    return [
        None
        if each.algorithm == against
        else library.rank_test(each.values, others[each.function, each.is_shifted].values)
        for each in found
    ]


def _settled(steps: Sequence[Step]) -> int:
    """Return after which iteration the value was within 1 % of the last one."""
    last = steps[-1].best_value if steps else 0.0
    return next((step.iteration for step in steps if step.best_value <= last * 1.01), 0)
