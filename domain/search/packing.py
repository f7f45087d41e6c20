"""Makes a placement better, step by step, and never worse: ``Improving``, a large-neighbourhood search.

A step frees a few nodes, packs their pods again together with some that wait, and keeps what places more
pods, or as many at no higher cost. The steps run in ``domain/kernels/repacking.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from domain.kernels import repacking
from domain.kernels import repacking_arrays as arrays
from domain.kernels.device_arrays import WHOLE_DEVICE
from domain.kernels.repacking_arrays import Desk, DevicesOf, Layout, Packing
from domain.model.errors import FieldError
from domain.search.mix import Shape, mix_of

COSTS: Mapping[str, int] = {
    "placed": arrays.PLACED,
    "balance": arrays.BALANCED,
    "nodes": arrays.FEWEST,
    "fragmentation": arrays.FRAGMENTED,
    "z": arrays.UNEVEN,
    "variance": arrays.VARIED,
}
"""What may be asked for, beyond as many pods as possible: nothing more; equal use of each resource on all
nodes; few nodes; few devices that the pods of a mix cannot use; equal use of a node's resources (the
mean of Z); equal use of each resource on the nodes that offer it (variances, summed over the resources)."""


class Score(NamedTuple):
    """How good a placement is: pods without a node, the cost of all nodes, pods that changed their node."""

    waiting_count: int
    cost: float
    moved_count: int


class Devices(NamedTuple):
    """The devices of N nodes, of which pods that move take whole ones, and the pods that are expected.

    Attributes
    ----------
    number : int64[N]
        How many devices each node has.
    free : int64[N, D]
        Thousandths free of those of which pods that stay take a part; 0 or less stands for all others.
    model : int64[N]
        The model of each node, as the number of a bit of ``Shape.models``.
    columns : tuple of int
        The resources that count devices in use, wholly or in part, then cpu and memory.
    mix : mapping of Shape to int
        The expected shapes, and how often they come.
    """

    number: np.ndarray
    free: np.ndarray
    model: np.ndarray
    columns: tuple[int, int, int]
    mix: Mapping[Shape, int]


_NONE = np.zeros(0, np.int64)
_NO_DEVICES = Devices(_NONE, _NONE.reshape(0, 0), _NONE, (0, 0, 0), {})


class Improving:
    """A placement that gets better.

    Parameters
    ----------
    capacity : int64[N, R]
        What each node has of each resource.
    demand : int64[K, R]
        What a pod of each kind asks for.
    kind : int32[P]
        The kind of each pod.
    node : int32[P]
        Where each pod is; N where it waits. Places are believed, also where a filter would refuse it.
    allowed : bool[K, N]
        Which nodes the filters allow that look at one pod and one node.
    home : int32[P], optional
        Where each pod is at home, N: nowhere; ``node`` where nothing is given. A pod on another node
        than its home has moved.
    held : int64[N, R], optional
        What pods use that stay where they are, and are not among the P.
    keeps : bool[P], optional
        Pods that must not lose their node to others; nothing given: any may.
    objective : str
        A key of ``COSTS``.
    devices : Devices, optional
        What the objective ``fragmentation`` looks at.
    weights : float64[R], optional
        How much each resource counts; 1 each where nothing is given. For ``z`` and ``variance`` whether it
        counts: if it is above 0, and pods ask for it.
    moves_max : int, optional
        How many pods may move.
    seed : int
        Equal seeds and equal numbers of steps give equal placements.

    Raises
    ------
    FieldError
        There is no such objective, or it needs devices.
    """

    def __init__(
        self,
        capacity: np.ndarray,
        demand: np.ndarray,
        kind: np.ndarray,
        node: np.ndarray,
        allowed: np.ndarray,
        *,
        home: np.ndarray | None = None,
        held: np.ndarray | None = None,
        keeps: np.ndarray | None = None,
        objective: str = "placed",
        devices: Devices | None = None,
        weights: np.ndarray | None = None,
        moves_max: int | None = None,
        seed: int = 0,
    ) -> None:
        if objective not in COSTS:
            raise FieldError("objective", f"must be one of {', '.join(COSTS)}, not {objective}")
        if COSTS[objective] == arrays.FRAGMENTED and devices is None:
            raise FieldError("objective", "fragmentation needs nodes with devices")
        devices = devices or _NO_DEVICES
        self._moves_max = len(kind) if moves_max is None else min(moves_max, len(kind))
        nodes_count, resources_count = capacity.shape
        total = np.maximum(capacity.sum(axis=0, dtype=np.float64), 1.0)
        asked = demand[kind].sum(axis=0) + (0 if held is None else held.sum(axis=0))
        weight = np.ones(resources_count) if weights is None else np.asarray(weights, np.float64)
        if COSTS[objective] in (arrays.UNEVEN, arrays.VARIED):
            weight = ((weight > 0.0) & (asked > 0)).astype(np.float64)
            if COSTS[objective] == arrays.VARIED:
                weight /= np.maximum((capacity > 0).sum(axis=0), 1)
        self._packing = Packing(
            capacity=np.ascontiguousarray(capacity, np.int64),
            share=np.divide(1.0, capacity, out=np.zeros(capacity.shape), where=capacity > 0),
            demand=np.ascontiguousarray(demand, np.int64),
            kind=np.ascontiguousarray(kind, np.int32),
            allowed=np.ascontiguousarray(allowed, np.bool_),
            size=(demand * (nodes_count / total)).max(axis=1, initial=0.0),
            keeps=np.zeros(len(kind), np.bool_) if keeps is None else keeps,
            weight=weight,
            target=np.where(capacity.any(axis=0), asked / total, 0.0),
            cost=COSTS[objective],
            devices=_devices_of(devices),
            mix=mix_of(devices.mix),
        )
        self._home = np.array(node if home is None else home, np.int32)
        self._held, self._seed = held, seed
        self._layout = self._with(np.asarray(node, np.int32))
        size = arrays.CANDIDATES_MAX
        nodes = np.zeros(arrays.NODES_MAX, np.int32)
        self._desk = Desk(np.zeros(size, np.int32), np.zeros(size, np.int32), np.zeros(size), nodes)

    @property
    def node(self) -> np.ndarray:
        """Where each pod is (int32[P]); N where it waits."""
        return self._layout.node.copy()

    @property
    def used(self) -> np.ndarray:
        """What the pods of each node ask for in all (int64[N, R])."""
        return self._layout.used.copy()

    @property
    def score(self) -> Score:
        """How good the placement is now."""
        waiting, moved = self._layout.totals[[arrays.WAITING, arrays.MOVED]]
        cost = self._layout.costs.sum()
        if self._packing.cost == arrays.VARIED:  # as ``repacking_costs.common_cost`` says
            means = self._packing.weight * (self._layout.used * self._packing.share).sum(axis=0)
            cost -= np.square(means).sum()
        return Score(int(waiting), float(cost), int(moved))

    def improve(self, steps: int, *, homing: bool = False) -> Score:
        """Do so many steps; with ``homing`` such that bring pods back, where nothing gets worse by that."""
        self._layout.homing[0] = homing
        repacking.search(self._packing, self._layout, self._desk, steps, self._moves_max)
        return self.score

    def gains(self, moves: Iterable[tuple[int, int]]) -> Iterator[float]:
        """Yield by how much the cost falls with each move of a pod to a node (N: it waits), from home on."""
        layout = self._with(self._home)
        for pod, node in moves:
            yield repacking.move(self._packing, layout, pod, node)

    def _with(self, node: np.ndarray) -> Layout:
        """Return a layout with each pod where ``node`` (int32[P]) says."""
        layout = _empty(self._packing, self._home, self._seed)
        if self._held is not None:
            layout.used[:] = self._held
            layout.sums[:] = (self._held * self._packing.share).sum(axis=0)
        repacking.begin(self._packing, layout, node)
        return layout


def _devices_of(devices: Devices) -> DevicesOf:
    """Return devices as arrays for the kernel, those of which a part is taken first."""
    shared = -np.sort(-np.maximum(devices.free, 0), axis=1)
    return DevicesOf(
        np.ascontiguousarray(devices.number, np.int64),
        (shared > 0).sum(axis=1),
        np.ascontiguousarray(shared, np.int64),
        np.ascontiguousarray(devices.model, np.int64),
        *devices.columns,
        1.0 / (WHOLE_DEVICE * max(1, sum(devices.mix.values()))),
    )


def generator(seed: int) -> np.ndarray:
    """Return the state of a kernel's generator (uint64[1]); it is never 0."""
    return np.array([seed * 2 + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF | 1], np.uint64)


def _empty(packing: Packing, home: np.ndarray, seed: int) -> Layout:
    """Return a layout in which all pods wait."""
    nodes_count, resources_count = packing.capacity.shape
    pods_count = len(packing.kind)
    none = np.full(pods_count, -1, np.int32)
    order = np.arange(pods_count, dtype=np.int32)
    return Layout(
        node=np.full(pods_count, nodes_count, np.int32),
        home=home,
        head=np.full(nodes_count + 1, -1, np.int32),
        after=none.copy(),
        before=none,
        waiting=order.copy(),
        waiting_at=order,
        used=np.zeros((nodes_count, resources_count), np.int64),
        sums=np.zeros(resources_count),
        costs=np.zeros(nodes_count),
        totals=np.array([pods_count, 0], np.int64),
        homing=np.zeros(1, np.bool_),
        random=generator(seed),
        free=np.zeros(packing.devices.number.max(initial=0), np.int64),
    )
