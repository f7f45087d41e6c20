"""Other searches to compare with: sparrow, satin bowerbird, particle swarm, and differential evolution.

The first three mutate as TBESK does (``mutated``), so that only the moves differ. Differential evolution
moves along differences of members alone, and so does not know where zero is.

Sources: Xue and Shen (sparrow search, 2020); Samareh Moosavi and Khatibi Bardsiri (satin bowerbird, 2017);
Kennedy and Eberhart (1995) with Shi and Eberhart's inertia (1998); Storn and Price (DE/rand/1/bin, 1997).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from research.search.chaos import mutated
from research.search.population import Population

_PRODUCERS, _SCOUTS, _SAFETY = 0.2, 0.1, 0.8
_STEP, _MUTATION_RATE, _MUTATION_WIDTH = 0.94, 0.05, 0.02
_INERTIA = (0.9, 0.4)
_PULL, _SPEED_MAX = 2.0, 0.2
_DIFFERENCE, _CROSSOVER = 0.5, 0.9
_TINY = 1e-50


def move_sparrows(of: Population) -> None:
    """Move once by tSSA: producers roam or flee, others follow them or fly off, scouts raise the alarm."""
    rng, count = of.rng, of.size
    of.sort()
    producers = max(1, int(_PRODUCERS * count))
    ranks = np.arange(1.0, count + 1.0)[:, None]
    moved, worst = of.positions.copy(), of.worst.copy()
    if rng.random() < _SAFETY:
        pace = 100.0 * (1.0 - rng.random((producers, 1)))
        moved[:producers] *= np.exp(-ranks[:producers] / pace)
    else:
        moved[:producers] += rng.standard_normal((producers, 1))
    leader, late = moved[0], np.arange(count) > count / 2
    late[:producers] = False
    near = ~late
    near[:producers] = False
    fled = np.exp(np.minimum((worst - of.positions[late]) / ranks[late] ** 2, 50.0))
    moved[late] = rng.standard_normal((int(late.sum()), 1)) * fled
    signs = rng.choice((-1.0, 1.0), moved[near].shape)
    gap = (np.abs(of.positions[near] - leader) * signs).mean(axis=1, keepdims=True)
    moved[near] = leader + gap
    of.offer(moved)
    scouts = rng.choice(count, max(1, int(_SCOUTS * count)), replace=False)
    moved = of.positions.copy()
    here, values = of.positions[scouts], of.values[scouts][:, None]
    outside = values > of.values.min()
    step = rng.uniform(-1.0, 1.0, (len(scouts), 1)) / (values - of.values.max() - _TINY)
    moved[scouts] = np.where(
        outside,
        of.best + rng.standard_normal((len(scouts), 1)) * np.abs(here - of.best),
        here + step * np.abs(here - worst),
    )
    of.offer(moved)
    of.offer(mutated(of))


def move_bowerbirds(of: Population) -> None:
    """Move once by tSBO: each bower grows towards a rival, drawn by its fitness, and the best one."""
    rng, count = of.rng, of.size
    values = of.values
    fitness = np.where(values >= 0.0, 1.0 / (1.0 + values), 1.0 + np.abs(values))
    chance = fitness / fitness.sum()
    rivals = rng.choice(count, of.positions.shape, p=chance)
    towards = np.take_along_axis(of.positions, rivals, axis=0)
    step = _STEP / (1.0 + chance[rivals])
    moved = of.positions + step * ((towards + of.best) / 2.0 - of.positions)
    width = _MUTATION_WIDTH * (of.problem.high - of.problem.low)
    drifts = rng.random(moved.shape) < _MUTATION_RATE
    moved += np.where(drifts, rng.standard_normal(moved.shape) * width, 0.0)
    of.select(moved)
    of.offer(mutated(of))


def particles() -> Callable[[Population], None]:
    """Return a move by tPSO, which remembers how fast each particle flies, and where it was best."""
    speed = np.zeros(0)
    own_best = np.zeros(0)
    own_value = np.zeros(0)

    def move(of: Population) -> None:
        nonlocal speed, own_best, own_value
        if not len(own_value):
            speed, own_best, own_value = np.zeros_like(of.positions), of.positions.copy(), of.values.copy()
        inertia = _INERTIA[0] + (_INERTIA[1] - _INERTIA[0]) * of.progress
        pulls = _PULL * of.rng.random((2, *speed.shape))
        speed = inertia * speed + pulls[0] * (own_best - of.positions) + pulls[1] * (of.best - of.positions)
        fastest = _SPEED_MAX * (of.problem.high - of.problem.low)
        speed = np.clip(speed, -fastest, fastest)
        of.replace(of.positions + speed)
        of.offer(mutated(of))
        better = of.values < own_value
        own_best[better], own_value[better] = of.positions[better], of.values[better]

    return move


def move_differences(of: Population) -> None:
    """Move once by DE/rand/1/bin: a random member plus a scaled difference of two others, crossed over."""
    rng, (count, dimensions) = of.rng, of.positions.shape
    others = np.argsort(rng.random((count, count - 1)), axis=1)[:, :3]
    others += others >= np.arange(count)[:, None]  # three of all members but oneself
    base, one, another = of.positions[others.T]
    donor = base + _DIFFERENCE * (one - another)
    crosses = rng.random((count, dimensions)) < _CROSSOVER
    crosses[np.arange(count), rng.integers(dimensions, size=count)] = True
    of.offer(np.where(crosses, donor, of.positions))
