"""Places pods with curves on few nodes with low peaks: ``Peaks``, simulated annealing.

What is minimised is the score of Tianchi's contest of 2018: the mean over the points of time of the sum over
all nodes that hold a pod of 1 + 10 (exp(max(0, u - 0.5)) - 1), where u is the part that is used of a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from domain.model.errors import FieldError
from domain.search.packing import generator
from research.contest import annealing
from research.contest.annealing import Curves, Loads

TEMPERATURE_FIRST, TEMPERATURE_LAST = 0.03, 0.0001
"""In nodes: what a step may cost that is done one time in e, at first and at last."""

_AMOUNT_MAX = 2**30 - 1


class Beside(NamedTuple):
    """A node that holds a pod of kind ``kind`` holds ``most`` pods of kind ``other`` at most."""

    kind: int
    other: int
    most: int


class PeakScore(NamedTuple):
    """How good a placement is: pods without a node, the score of the contest, nodes that hold a pod."""

    waiting_count: int
    cost: float
    used_count: int


class Peaks:
    """A search for a placement with low peaks on few nodes; it keeps the best one.

    Parameters
    ----------
    room : int[N]
        What each node has of the resource whose curve is priced.
    curve : int[K, T]
        What a pod of each kind uses of it at each point.
    capacity, demand : int[N, R], int[K, R]
        All other resources; a resource with a curve is a column for each point.
    kind : int32[P]
        The kind of each pod.
    node : int32[P]
        Where each pod is; N where it waits.
    beside : iterable of Beside
        Which kinds limit each other on a node.
    seed : int
        Equal seeds and equal steps give equal placements.

    Raises
    ------
    FieldError
        An amount is 2**30 or more; choose a larger unit.
    """

    def __init__(
        self,
        room: np.ndarray,
        curve: np.ndarray,
        capacity: np.ndarray,
        demand: np.ndarray,
        kind: np.ndarray,
        node: np.ndarray,
        *,
        beside: Iterable[Beside] = (),
        seed: int = 0,
    ) -> None:
        if max(each.max(initial=0) for each in (room, curve, capacity, demand)) > _AMOUNT_MAX:
            raise FieldError("capacity", f"must be at most {_AMOUNT_MAX:,}; choose a larger unit")
        rules = sorted(beside)
        self._curves = Curves(
            room=np.ascontiguousarray(room, np.int32),
            share=np.divide(1.0, room, out=np.zeros(len(room)), where=room > 0).astype(np.float32),
            curve=_with_none(curve),
            capacity=np.ascontiguousarray(capacity, np.int32),
            demand=_with_none(demand),
            kind=np.ascontiguousarray(kind, np.int32),
            **_limits("beside", len(curve), [(r.kind, r.other, r.most) for r in rules]),
            **_limits("beside_of", len(curve), sorted((r.other, r.kind, r.most) for r in rules)),
        )
        self._seed = seed
        self._loads = self._placed(np.asarray(node, np.int32))
        self._best, self._best_score = self._loads.node.copy(), self._now()
        self.before = self._best_score

    @property
    def node(self) -> np.ndarray:
        """Where each pod is in the best placement so far (int32[P]); N where it waits."""
        return self._best.copy()

    @property
    def score(self) -> PeakScore:
        """How good the best placement so far is."""
        return self._best_score

    def bound(self) -> tuple[float, int]:
        """Return a cost below which no placement is, and how many nodes it uses.

        The bound lets a pod be cut at will: the largest nodes are filled to one half, and what is left at a
        point goes where it costs least, by the Karush-Kuhn-Tucker conditions.
        """
        room = np.sort(self._curves.room.astype(np.float64))[::-1]
        room = room[room > 0]
        counts = np.bincount(self._curves.kind, minlength=len(self._curves.curve))
        load = counts @ self._curves.curve.astype(np.float64)
        low, high = min(1, len(room)), len(room)
        while high - low > 2:  # the bound is convex in the number of nodes
            third = (high - low) // 3
            one, other = low + third, high - third
            if _cost_of_largest(room[:one], load) <= _cost_of_largest(room[:other], load):
                high = other
            else:
                low = one
        return min((_cost_of_largest(room[:n], load), n) for n in range(low, high + 1))

    def rebuild(self) -> PeakScore:
        """Place all pods anew, on as many of the largest nodes as the bound uses, and return the score."""
        curves = self._curves
        nodes = np.argsort(-curves.room, kind="stable").astype(np.int32)
        loads = self._placed(np.full(len(curves.kind), len(nodes), np.int32))
        if len(nodes):
            annealing.spread(curves, loads, self._hardest_first(), nodes, max(1, self.bound()[1]))
        self._loads = loads
        return self._keep()

    def improve(self, steps: int, part: float) -> PeakScore:
        """Do so many steps, with ``part`` (0 to 1) of all of them done, and return the score reached."""
        cooled = TEMPERATURE_LAST / TEMPERATURE_FIRST
        if len(self._curves.kind):
            annealing.anneal(self._curves, self._loads, steps, TEMPERATURE_FIRST * cooled**part)
        return self._keep()

    def _keep(self) -> PeakScore:
        now = self._now()
        if now[:2] < self._best_score[:2]:
            self._best, self._best_score = self._loads.node.copy(), now
        return now

    def _now(self) -> PeakScore:
        loads = self._loads
        waiting = int((loads.node == len(loads.costs)).sum())
        return PeakScore(waiting, float(loads.costs.sum()), int((loads.held > 0).sum()))

    def _placed(self, node: np.ndarray) -> Loads:
        nodes_count, kinds_count = len(self._curves.room), len(self._curves.curve) - 1
        loads = Loads(
            node=np.full(len(node), nodes_count, np.int32),
            load=np.zeros((nodes_count, self._curves.curve.shape[1]), np.int32),
            used=np.zeros((nodes_count, self._curves.demand.shape[1]), np.int32),
            counts=np.zeros((nodes_count, kinds_count), np.int16),
            held=np.zeros(nodes_count, np.int32),
            costs=np.zeros(nodes_count),
            random=generator(self._seed),
        )
        annealing.begin(self._curves, loads, node)
        return loads

    def _hardest_first(self) -> np.ndarray:
        """Return the pods by what they ask for, as parts of a mean node, and by how many pods refuse them."""
        curves, kinds_count = self._curves, len(self._curves.curve) - 1
        kinds = np.bincount(curves.kind, minlength=kinds_count)
        size = curves.curve[:-1].max(axis=1, initial=0) / max(1.0, curves.room.mean())
        mean = np.maximum(curves.capacity.mean(axis=0), 1.0)
        size += (curves.demand[:-1] / mean).max(axis=1, initial=0.0)
        limited = np.repeat(np.arange(kinds_count), np.diff(curves.beside_begin))
        others = limited != curves.beside_kind
        refused = np.zeros(kinds_count)
        for these, those in ((limited, curves.beside_kind), (curves.beside_kind, limited)):
            np.add.at(refused, these[others], kinds[those[others]])
        size += 10.0 * refused / max(1, len(curves.kind))
        return np.argsort(-size[curves.kind], kind="stable").astype(np.int32)


def _cost_of_largest(room: np.ndarray, load: np.ndarray) -> float:
    """Return what these nodes cost at least with a load (float64[T]) that can be cut at will."""
    sizes, counts = np.unique(room, return_counts=True)
    left = np.maximum(0.0, load - 0.5 * room.sum())
    low, high = np.full(len(load), -np.log(room.max(initial=1.0))), np.full(len(load), 700.0)

    def above(level: np.ndarray) -> np.ndarray:
        over: np.ndarray = np.maximum(0.0, np.log(sizes)[:, None] + level)
        return over

    for _ in range(60):  # the level at which the excess is used up, by bisection
        middle = 0.5 * (low + high)
        is_enough = (counts * sizes) @ above(middle) >= left
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    return float(len(room) + 10.0 * (counts @ np.expm1(above(low))).mean())


def _with_none(amounts: np.ndarray) -> np.ndarray:
    """Return the amounts of all kinds and those of none."""
    return np.vstack([amounts, np.zeros((1, amounts.shape[1]))]).astype(np.int32)


def _limits(name: str, kinds_count: int, rules: list[tuple[int, int, int]]) -> dict[str, np.ndarray]:
    """Return limits, sorted by their first kind, as arrays."""
    columns = np.array(rules, np.int32).reshape(-1, 3)
    begin = np.searchsorted(columns[:, 0], np.arange(kinds_count + 1)).astype(np.int32)
    kinds, most = np.ascontiguousarray(columns[:, 1]), np.ascontiguousarray(columns[:, 2])
    return {f"{name}_begin": begin, f"{name}_kind": kinds, f"{name}_max": most}
