"""Runs a search by name until its budget is spent: ``minimise``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import numpy as np

from domain.model.errors import FieldError
from research.search import bald_eagle, library, rivals
from research.search.chaos import spread
from research.search.population import BudgetSpent, Evaluations, Population, Problem, uniform

Search = Callable[[Evaluations, int, np.random.Generator, Callable[[int], None]], None]
"""Evaluates positions until it is done or nothing is left. It is given the evaluations, how many members a
population has, what draws, and who is told the number of each iteration that is done."""


class Algorithm(msgspec.Struct, frozen=True):
    """A search by its title; those of ``library.py`` need SciPy."""

    title: str
    search: Search


def _moves(
    move: Callable[[], Callable[[Population], None]],
    begin: Callable[[Problem, int, np.random.Generator], np.ndarray] = uniform,
) -> Search:
    """Return the search that repeats a move of its population; ``begin`` says where the members start."""

    def search(
        evaluations: Evaluations, count: int, rng: np.random.Generator, told: Callable[[int], None]
    ) -> None:
        population = Population(begin(evaluations.problem, count, rng), evaluations, rng)
        step = move()
        while True:
            population.iteration += 1
            step(population)
            told(population.iteration)

    return search


ALGORITHMS: Mapping[str, Algorithm] = {
    "bes": Algorithm("bald eagle search, 2020", _moves(lambda: bald_eagle.move_published)),
    "bes-2023": Algorithm("bald eagle search as revised in 2023", _moves(lambda: bald_eagle.move_revised)),
    "tbesk": Algorithm("TBESK: Tent map and t mutation", _moves(lambda: bald_eagle.move_mutated, spread)),
    "tssa": Algorithm("sparrow search with t mutation", _moves(lambda: rivals.move_sparrows, spread)),
    "tsbo": Algorithm("satin bowerbird with t mutation", _moves(lambda: rivals.move_bowerbirds, spread)),
    "tpso": Algorithm("particle swarm with t mutation", _moves(rivals.particles, spread)),
    "de": Algorithm("differential evolution, rand/1/bin", _moves(lambda: rivals.move_differences)),
    "scipy-de": Algorithm("differential evolution of SciPy, best/1/bin", library.differential_evolution),
    "scipy-annealing": Algorithm("dual annealing of SciPy", library.dual_annealing),
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
        There is no such algorithm, or it is not installed; or the population is too small, or larger than
        the budget.
    """
    if name not in ALGORITHMS:
        raise FieldError("algorithm", f"must be one of {', '.join(ALGORITHMS)}, not {name}")
    if not 4 <= population_count <= evaluations_max:
        raise FieldError("population", "must be 4 or more, and no more than the evaluations")
    rng, evaluations, steps = np.random.default_rng(seed), Evaluations(problem, evaluations_max), list[Step]()

    def told(iteration: int) -> None:
        steps.append(Step(iteration, evaluations.count, evaluations.best_value))
        report(steps[-1])

    with suppress(BudgetSpent):
        ALGORITHMS[name].search(evaluations, population_count, rng, told)
    return Found(evaluations.best, evaluations.best_value, evaluations.count, steps)
