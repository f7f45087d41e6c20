"""Runs a search by name until its budget is spent: ``minimise``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from domain.model.errors import FieldError
from domain.search import bald_eagle, rivals
from domain.search.chaos import spread
from domain.search.population import BudgetSpent, Population, Problem, uniform

Move = Callable[[Population], None]


class Algorithm(msgspec.Struct, frozen=True):
    """A search: how its population begins, and a maker of the move that it repeats."""

    title: str
    move: Callable[[], Move]
    begin: Callable[[Problem, int, np.random.Generator], np.ndarray] = uniform


ALGORITHMS: Mapping[str, Algorithm] = {
    "bes": Algorithm("bald eagle search, 2020", lambda: bald_eagle.move_published),
    "bes-2023": Algorithm("bald eagle search as revised in 2023", lambda: bald_eagle.move_revised),
    "tbesk": Algorithm("TBESK: Tent map and t mutation", lambda: bald_eagle.move_mutated, spread),
    "tssa": Algorithm("sparrow search with t mutation", lambda: rivals.move_sparrows, spread),
    "tsbo": Algorithm("satin bowerbird with t mutation", lambda: rivals.move_bowerbirds, spread),
    "tpso": Algorithm("particle swarm with t mutation", rivals.particles, spread),
    "de": Algorithm("differential evolution, rand/1/bin", lambda: rivals.move_differences),
}


class Step(msgspec.Struct, frozen=True, gc=False):
    """How far a search is after an iteration: evaluations so far, and the least value found."""

    iteration: int
    evaluations_count: int
    best_value: float


class Found(msgspec.Struct, frozen=True):
    """What a search found: the best position (float64[D]), its value, and the way there."""

    position: np.ndarray
    value: float
    evaluations_count: int
    steps: list[Step]


def minimise(
    name: str,
    problem: Problem,
    *,
    seed: int,
    population_count: int = 30,
    evaluations_max: int = 30_000,
    report: Callable[[Step], None] = lambda step: None,
) -> Found:
    """Search for the position with the least value; a search that ends early has found what it found.

    Parameters
    ----------
    name : str
        A key of ``ALGORITHMS``.
    evaluations_max : int
        The budget: how many positions are evaluated at most.
    report : callable
        Is told of each iteration.

    Raises
    ------
    FieldError
        There is no such algorithm, or the population is too small, or larger than the budget.
    """
    if name not in ALGORITHMS:
        raise FieldError("algorithm", f"must be one of {', '.join(ALGORITHMS)}, not {name}")
    if not 4 <= population_count <= evaluations_max:
        raise FieldError("population", "must be 4 or more, and no more than the evaluations")
    algorithm, rng = ALGORITHMS[name], np.random.default_rng(seed)
    begun = algorithm.begin(problem, population_count, rng)
    population, move, steps = Population(problem, begun, evaluations_max, rng), algorithm.move(), list[Step]()
    while True:
        population.iteration += 1
        try:
            move(population)
        except BudgetSpent:
            break
        steps.append(Step(population.iteration, population.evaluations_count, population.best_value))
        report(steps[-1])
    return Found(population.best, population.best_value, population.evaluations_count, steps)
