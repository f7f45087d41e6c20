"""Bald eagle search: select a space, search it in spirals, swoop; as published, and as improved for pods.

Sources: Alsattar, Zaidan and Zaidan, "Novel meta-heuristic bald eagle search optimisation algorithm" (2020),
and the paper on TBESK (2023), whose search and swoop differ: the swoop uses the spiral's coordinates again,
and pulls away from the mean twice.
"""

from __future__ import annotations

import math

import numpy as np

from research.search.chaos import mutated
from research.search.population import Population


def selected(
    best: np.ndarray, mean: np.ndarray, positions: np.ndarray, alpha: float, weight: np.ndarray
) -> np.ndarray:
    """Return the positions of the select stage: best + alpha weight (mean - position)."""
    found: np.ndarray = best + alpha * weight * (mean - positions)
    return found


def spiral(alpha: float, radius: float, turn: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the spiral's coordinates x and y (float64[N]), each divided by its largest absolute value.

    Parameters
    ----------
    alpha, radius : float
        Between which arms, 5 to 10, and how far out, 0.5 to 2.
    turn, reach : float64[N]
        Random numbers of [0, 1) for the angle, and for the distance.
    """
    angle = alpha * math.pi * turn
    distance = angle + radius * reach
    return _scaled(distance * np.sin(angle)), _scaled(distance * np.cos(angle))


def dive(alpha: float, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates x and y (float64[N]) of the swoop of 2020, by hyperbolic sine and cosine."""
    angle = alpha * math.pi * turn
    return _scaled(angle * np.sinh(angle)), _scaled(angle * np.cosh(angle))


def _scaled(coordinates: np.ndarray) -> np.ndarray:
    return coordinates / max(float(np.abs(coordinates).max()), np.finfo(float).tiny)


def searched(
    positions: np.ndarray,
    following: np.ndarray,
    mean: np.ndarray,
    away: np.ndarray | float,
    along: np.ndarray | float,
) -> np.ndarray:
    """Return the positions of the search stage, away from the mean and along the line to the next member."""
    found: np.ndarray = positions + away * (positions - mean) + along * (positions - following)
    return found


def swooped(
    positions: np.ndarray,
    best: np.ndarray,
    mean: np.ndarray,
    other: np.ndarray,
    x: np.ndarray | float,
    y: np.ndarray | float,
    pulls: tuple[float, float],
    share: np.ndarray | float,
) -> np.ndarray:
    """Return the positions of the swoop; ``other`` is the best position (2020) or the mean again (2023)."""
    first, second = pulls
    return share * best + x * (positions - first * mean) + y * (positions - second * other)


def move_published(population: Population) -> None:
    """Move once as in the publication of 2020."""
    of, rng = population, population.rng
    of.offer(_selected(of))
    x, y = _spiral(of)
    of.offer(searched(of.positions, _following(of), of.mean, x, y))
    x, y = (each[:, None] for each in dive(rng.uniform(5.0, 10.0), rng.random(of.size)))
    of.offer(swooped(of.positions, of.best, of.mean, of.best, x, y, _pulls(of), rng.random((of.size, 1))))


def move_revised(population: Population) -> None:
    """Move once as in the paper of 2023, without its mutation."""
    population.offer(_selected(population))
    _search_and_swoop(population)


def move_mutated(population: Population) -> None:
    """Move once as in the paper of 2023: a mutation follows the select stage. From a chaotic start: TBESK."""
    population.offer(_selected(population))
    population.offer(mutated(population))
    _search_and_swoop(population)


def _search_and_swoop(of: Population) -> None:
    x, y = _spiral(of)
    of.offer(searched(of.positions, _following(of), of.mean, x, y))
    mean = of.mean
    of.offer(swooped(of.positions, of.best, mean, mean, x, y, _pulls(of), of.rng.random((of.size, 1))))


def _selected(of: Population) -> np.ndarray:
    alpha, weight = of.rng.uniform(1.5, 2.0), of.rng.random((of.size, 1))
    return selected(of.best, of.mean, of.positions, alpha, weight)


def _spiral(of: Population) -> tuple[np.ndarray, np.ndarray]:
    rng = of.rng
    x, y = spiral(rng.uniform(5.0, 10.0), rng.uniform(0.5, 2.0), rng.random(of.size), rng.random(of.size))
    return x[:, None], y[:, None]


def _following(of: Population) -> np.ndarray:
    return np.roll(of.positions, -1, axis=0)


def _pulls(of: Population) -> tuple[float, float]:
    first, second = of.rng.uniform(1.0, 2.0, 2)
    return float(first), float(second)
