"""Compares searches on functions whose least value is known: several runs each, and what a shift shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from domain.search.functions import FUNCTIONS, drawn_shift, problem
from domain.search.minimise import Step, minimise

SOLVED = 1e-6
"""A search that comes so near to the least value, 0, has found it."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one search on one function: least values found, and when they were found.

    ``iterations_mean`` is after how many iterations the value was within 1 % of what the run found in the
    end, on the mean of the runs.
    """

    function: str
    is_shifted: bool
    algorithm: str
    best: float
    worst: float
    median: float
    iterations_mean: float
    solved_count: int
    runs_count: int


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
    for name in functions:
        for is_shifted in (False, True):
            for algorithm in algorithms:
                values, iterations = np.empty(runs), np.empty(runs)
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
                found.append(
                    Compared(
                        function=name,
                        is_shifted=is_shifted,
                        algorithm=algorithm,
                        best=float(values.min()),
                        worst=float(values.max()),
                        median=float(np.median(values)),
                        iterations_mean=float(iterations.mean()),
                        solved_count=int((values < SOLVED).sum()),
                        runs_count=runs,
                    )
                )
                report(found[-1])
    return found


def _settled(steps: Sequence[Step]) -> int:
    """Return after which iteration the value was within 1 % of the last one."""
    last = steps[-1].best_value if steps else 0.0
    return next((step.iteration for step in steps if step.best_value <= last * 1.01), 0)
