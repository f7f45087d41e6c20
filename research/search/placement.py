"""Places pods by search: a position says for each pod of a batch on which node it goes.

A position is one number per pod, the node's index. It is rounded, clamped, and repaired: in their order, pods
go to the nearest index where the filters allow them and that has room after the pods before them. What a
search minimises is what the repaired placements are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from domain.plugins.base import Term
from research.search.balance import imbalance, utilisation
from research.search.minimise import minimise
from research.search.population import Problem
from research.search.rating import rate_rows

UNPLACED = 10.0
"""What a pod without a node is worth. It is more than any difference between placements."""

NOWHERE = -1


class Batch(msgspec.Struct, frozen=True):
    """Pods that are placed together, and the nodes as they are before.

    Attributes
    ----------
    allocatable, requested : int64[R, N]
        Of the resources that the pods ask for, and of those that the fitness reads.
    asked : int64[P, R]
        What each pod asks for. Where that is not 0, a node must have as much free.
    allowed : bool[P, N]
        Which nodes the filters leave to it.
    """

    allocatable: np.ndarray
    requested: np.ndarray
    asked: np.ndarray
    allowed: np.ndarray


class Trial:
    """What many positions make of a batch: M placements, pod after pod.

    ``nodes`` int64[M, P] are the nodes, ``NOWHERE`` where there is none. ``requested`` int64[R, M, N] is what
    is requested with the pods placed so far.
    """

    def __init__(self, batch: Batch, members: int) -> None:
        self.batch = batch
        self.nodes = np.full((members, len(batch.asked)), NOWHERE, dtype=np.int64)
        resources, nodes = batch.allocatable.shape
        self.requested = np.broadcast_to(batch.requested[:, None, :], (resources, members, nodes)).copy()

    def place(self, pod: int, wanted: np.ndarray) -> np.ndarray:
        """Place a pod on the wanted nodes (int64[M]), or on the nearest ones that take it; return these."""
        batch, members = self.batch, np.arange(len(wanted))
        asked = batch.asked[pod, :, None]
        free = batch.allocatable[:, wanted] - self.requested[:, members, wanted]
        fits = batch.allowed[pod, wanted] & ((free >= asked) | (asked == 0)).all(axis=0)
        found, lost = wanted, np.flatnonzero(~fits)
        if len(lost):
            found = wanted.copy()
            found[lost] = self._nearest(pod, lost, wanted[lost])
        placed = np.flatnonzero(found != NOWHERE)
        self.requested[:, placed, found[placed]] += asked
        self.nodes[:, pod] = found
        return found

    def _nearest(self, pod: int, members: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        batch = self.batch
        asked = batch.asked[pod, :, None, None]
        free = batch.allocatable[:, None, :] - self.requested[:, members]
        fits = batch.allowed[pod] & ((free >= asked) | (asked == 0)).all(axis=0)
        apart = np.abs(np.arange(fits.shape[1]) - wanted[:, None])
        nearest = np.where(fits, apart, fits.shape[1]).argmin(axis=1)
        return np.where(fits[np.arange(len(members)), nearest], nearest, NOWHERE)


Fitness = Callable[[Trial, np.ndarray], np.ndarray]
"""Places the pods of a trial on the wanted nodes (int64[M, P]); returns what each is worth, float64[M]."""


def by_imbalance(rows: Sequence[int]) -> Fitness:
    """Return a fitness: Z, the mean imbalance of the nodes after the batch, over some rows of its arrays."""
    chosen = list(rows)

    def rated(trial: Trial, wanted: np.ndarray) -> np.ndarray:
        for pod in range(wanted.shape[1]):
            trial.place(pod, wanted[:, pod])
        shares = utilisation(trial.batch.allocatable[chosen], trial.requested[chosen])
        found: np.ndarray = imbalance(shares).mean(axis=-1)
        found += UNPLACED * (trial.nodes == NOWHERE).sum(axis=1)
        return found

    return rated


def by_score(terms: Sequence[Term]) -> Fitness:
    """Return a fitness: the mean score of the nodes that the pods get, each rated before the next is placed.

    ``terms`` are those of a resource score, one per pod, with rows of the batch's arrays as columns.
    """

    def rated(trial: Trial, wanted: np.ndarray) -> np.ndarray:
        members, score = np.arange(len(wanted)), np.zeros(len(wanted))
        for pod, term in enumerate(terms):
            found = trial.place(pod, wanted[:, pod])
            at = np.maximum(found, 0)
            before = trial.requested[:, members, at] - trial.batch.asked[pod, :, None]
            value = rate(term, trial.batch.allocatable[:, at], before)
            score += np.where(found == NOWHERE, -100.0 * UNPLACED, value)
        return -score / (100.0 * max(len(terms), 1))

    return rated


def rate(term: Term, allocatable: np.ndarray, requested: np.ndarray) -> np.ndarray:
    """Return the scores, 0..100, of nodes with int64[R, N] by a resource score that reads no measured
    usage."""
    count, parts = allocatable.shape[1], len(term.parts)
    found = np.zeros(count)
    rate_rows(
        term.kind,
        np.ascontiguousarray(allocatable),
        np.ascontiguousarray(requested),
        np.array([part.column for part in term.parts], dtype=np.int32),
        np.array([part.weight for part in term.parts], dtype=np.float64),
        np.array([part.value for part in term.parts], dtype=np.int64),
        np.array(term.numbers, dtype=np.float64),
        np.full((parts, count), np.nan),
        np.ones(count, dtype=np.uint8),
        np.zeros((5 + parts, count)),
        found,
    )
    return found


class Placed(msgspec.Struct, frozen=True):
    """What a search found: a node per pod (``NOWHERE``: none), what that is worth, and the evaluations."""

    nodes: list[int]
    value: float
    evaluations_count: int


def place_batch(
    algorithm: str,
    batch: Batch,
    fitness: Fitness,
    *,
    seed: int,
    population_count: int = 30,
    evaluations_max: int = 1_000,
) -> Placed:
    """Search for the nodes of a batch of pods by an algorithm of ``research.search.minimise``.

    Cost: per evaluation O(pods x nodes x resources).
    """
    pods, nodes = batch.allowed.shape

    def evaluate(positions: np.ndarray) -> np.ndarray:
        return fitness(Trial(batch, len(positions)), wanted_of(positions, nodes))

    problem = Problem(evaluate, np.zeros(pods), np.full(pods, float(nodes - 1)))
    found = minimise(
        algorithm,
        problem,
        seed=seed,
        population_count=population_count,
        evaluations_max=evaluations_max,
    )
    best = Trial(batch, 1)
    fitness(best, wanted_of(found.position[None, :], nodes))
    return Placed(best.nodes[0].tolist(), found.value, found.evaluations_count)


def wanted_of(positions: np.ndarray, nodes: int) -> np.ndarray:
    """Return the node indices (int64) that positions stand for: rounded, and clamped to those that exist."""
    wanted: np.ndarray = np.clip(np.rint(positions), 0, nodes - 1).astype(np.int64)
    return wanted
