"""START HERE: a population of positions that an algorithm moves, to find the least value of an objective.

An algorithm is a function that moves a whole population once: it offers other positions, and each member
takes its own if that is better. ``minimise`` (``research/search/minimise.py``) repeats it until the budget of
evaluations is spent. All randomness comes from one generator, so equal seeds give equal results.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

Objective = Callable[[np.ndarray], np.ndarray]
"""Returns the values (float64[N]) of positions (float64[N, D]); the least is the best. It is pure."""


class Problem(msgspec.Struct, frozen=True):
    """What is to be minimised, within bounds ``low`` and ``high`` (float64[D])."""

    objective: Objective
    low: np.ndarray
    high: np.ndarray


class BudgetSpent(Exception):
    """No evaluation is left. ``Evaluations`` raises it, and ``minimise`` ends with it."""


class Evaluations:
    """Evaluates positions until the budget is spent, and keeps the best one (float64[D]) and its value.

    Parameters
    ----------
    evaluations_max : int
        How many positions may be evaluated.
    """

    def __init__(self, problem: Problem, evaluations_max: int) -> None:
        self.problem = problem
        self.count = 0
        self.best = problem.low
        self.best_value = np.inf
        self._evaluations_max = evaluations_max

    @property
    def progress(self) -> float:
        """The part of the budget that is spent, 0 to 1."""
        return self.count / self._evaluations_max

    def of(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions (float64[N, D]), clamped to the bounds, and their values (float64[N]).

        Raises
        ------
        BudgetSpent
            Fewer than N evaluations are left; nothing is evaluated.
        """
        if self._evaluations_max - self.count < len(positions):
            raise BudgetSpent
        positions = np.clip(positions, self.problem.low, self.problem.high)
        values = self.problem.objective(positions)
        self.count += len(positions)
        first = int(values.argmin())
        if values[first] < self.best_value:
            self.best, self.best_value = positions[first].copy(), float(values[first])
        return positions, values


class Population:
    """Positions within the bounds, each with its value, and the best that was ever seen.

    Parameters
    ----------
    positions : float64[N, D]
        Where the members begin. N is 4 or more.
    evaluations : Evaluations
        What the members are evaluated by, these positions at once.
    """

    def __init__(self, positions: np.ndarray, evaluations: Evaluations, rng: np.random.Generator) -> None:
        self.problem = evaluations.problem
        self.rng = rng
        self.iteration = 0
        """Which move of the population this is, from 1 on."""
        self._evaluate = evaluations.of
        self._evaluations = evaluations
        self.positions, self.values = self._evaluate(positions)

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.positions)

    @property
    def progress(self) -> float:
        """The part of the budget that is spent, 0 to 1."""
        return self._evaluations.progress

    @property
    def best(self) -> np.ndarray:
        """The best position that was ever seen (float64[D])."""
        return self._evaluations.best

    @property
    def mean(self) -> np.ndarray:
        """The mean position (float64[D])."""
        mean: np.ndarray = self.positions.mean(axis=0)
        return mean

    @property
    def worst(self) -> np.ndarray:
        """The position of the worst member (float64[D])."""
        worst: np.ndarray = self.positions[self.values.argmax()]
        return worst

    def offer(self, moved: np.ndarray) -> None:
        """Let each member move, if that is better.

        Parameters
        ----------
        moved : float64[N, D]
            Where the members would be, clamped to the bounds here. They stand for members 0 to N - 1.
        """
        moved, values = self._evaluate(moved)
        better = values < self.values[: len(values)]
        rows = np.flatnonzero(better)
        self.positions[rows], self.values[rows] = moved[rows], values[rows]

    def replace(self, moved: np.ndarray) -> None:
        """Let all members move, whether that is better or not: for algorithms that keep their own best."""
        self.positions, self.values = self._evaluate(moved)

    def select(self, moved: np.ndarray) -> None:
        """Keep the best of the members and of others; older ones where they are equal."""
        moved, values = self._evaluate(moved)
        everyone, all_values = np.vstack([self.positions, moved]), np.concatenate([self.values, values])
        kept = np.argsort(all_values, kind="stable")[: self.size]
        self.positions, self.values = everyone[kept], all_values[kept]

    def sort(self) -> None:
        """Put the members in order, the best first."""
        order = np.argsort(self.values, kind="stable")
        self.positions, self.values = self.positions[order], self.values[order]


def uniform(problem: Problem, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return positions (float64[count, D]) drawn evenly within the bounds."""
    return rng.uniform(problem.low, problem.high, (count, len(problem.low)))
