"""How a cluster stands at one moment of a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from domain.model.devices import GPU_MILLI
from domain.model.pods import PodTemplate
from domain.queue.groups import WaitingGroup
from domain.state.cluster import ClusterState
from domain.state.resources import PODS
from research.search.balance import balance, imbalance, utilisation
from research.simulate.devices import Fragments
from research.simulate.trace import Curves, Trace


class Counts(msgspec.Struct):
    """What was counted so far: pods that came, placements, pods that were evicted or moved."""

    arrived: int = 0
    placements: int = 0
    moved: int = 0


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment. Lists are in the order of the trace's resources.

    Attributes
    ----------
    seconds : float
        Since the trace began.
    arrived, placements, moved : int
        Pods that came so far, decisions for a node, and pods that were evicted or moved.
    running, waiting : int
        Pods with a node now, and without.
    unplaced : dict
        Size -> how many of that size wait (``size_of``).
    allocated : list of float
        What is requested of all nodes together, as a share of what they offer.
    imbalance : float
        Z of a node's resources (``research/search/balance.py``), on the mean of the nodes. Of each node only
        what it offers is compared.
    deviation, lowest, highest : list of float
        Of the utilisation, over the nodes that offer the resource.
    overloaded : list of int
        Nodes that are used beyond what they offer.
    stranded : list of float
        What is free on nodes where no pod fits that asks for the resource, as a share of what all offer. The
        pods are the most frequent kinds of the trace; only requests count.
    fragmentation : float, optional
        Which part of all GPUs is free and of no use to pods of the trace, on their mean; None: no GPUs.
    by_usage : bool
        Whether deviation, extremes and overload are those of what pods use, not of what they request.
    """

    seconds: float
    arrived: int
    placements: int
    moved: int
    running: int
    waiting: int
    unplaced: dict[str, int]
    allocated: list[float]
    imbalance: float
    deviation: list[float]
    lowest: list[float]
    highest: list[float]
    overloaded: list[int]
    stranded: list[float]
    fragmentation: float | None
    by_usage: bool = False

    @property
    def ranges(self) -> list[float]:
        """The differences of the extremes."""
        return [high - low for low, high in zip(self.lowest, self.highest, strict=True)]


def size_of(template: PodTemplate) -> str:
    """Return the size of a pod: its GPUs where it asks for any, else its cpu up to a power of two."""
    gpu_milli = template.requests.get(GPU_MILLI, 0)
    if gpu_milli >= 1000:
        return f"{gpu_milli // 1000} gpu"
    if gpu_milli:
        return "<1 gpu"
    cores = max(1, -(-template.requests.get("cpu", 0) // 1000))
    return f"{1 << (cores - 1).bit_length()} cpu"


def in_order(size: str) -> tuple[str, int]:
    """Return by what sizes are sorted."""
    amount, _, unit = size.partition(" ")
    return unit, 0 if amount.startswith("<") else int(amount)


class Measuring:
    """Looks at a cluster by what a trace says of its resources and pods."""

    def __init__(self, trace: Trace) -> None:
        self._resources = trace.resources
        self._shapes = trace.shapes()
        self._fragments = Fragments(trace)

    def look(
        self,
        state: ClusterState,
        groups: Iterable[WaitingGroup],
        counts: Counts,
        at_ms: int,
        used: np.ndarray | None,
    ) -> Look:
        """Return how the cluster stands. ``used`` float64[R, N]: what pods use, where that is measured."""
        table = state.table
        rows = slice(0, table.count)
        columns = [state.resources.column(name) for name in self._resources]
        allocatable, requested = table.allocatable[columns, rows], table.requested[columns, rows]
        offered = allocatable > 0
        total = np.maximum(allocatable.sum(axis=1), 1)
        shares = utilisation(allocatable, requested if used is None else used)
        each = [
            balance(shares[offers, r : r + 1] if offers.any() else np.zeros((1, 1)))
            for r, offers in enumerate(offered)
        ]
        unplaced: dict[str, int] = {}
        for group in groups:
            size = size_of(group.template)
            unplaced[size] = unplaced.get(size, 0) + group.pods_count
        return Look(
            seconds=at_ms / 1e3,
            arrived=counts.arrived,
            placements=counts.placements,
            moved=counts.moved,
            running=int(table.requested[PODS, rows].sum()),
            waiting=sum(unplaced.values()),
            unplaced={size: unplaced[size] for size in sorted(unplaced, key=in_order)},
            allocated=(requested.sum(axis=1) / total).tolist(),
            imbalance=_imbalance(shares, offered.T),
            deviation=[found.deviation[0] for found in each],
            lowest=[found.lowest[0] for found in each],
            highest=[found.highest[0] for found in each],
            overloaded=[found.overloaded[0] for found in each],
            stranded=(self._stranded(state) / total).tolist(),
            fragmentation=self._fragments.share(state),
            by_usage=used is not None,
        )

    def _stranded(self, state: ClusterState) -> np.ndarray:
        """Return what of each resource is free where no pod fits that asks for it, int64[R]."""
        table, rows = state.table, slice(0, state.table.count)
        columns = [state.resources.column(name) for name in self._resources]
        free = np.maximum(table.allocatable[:, rows] - table.requested[:, rows], 0)
        taken = np.zeros((len(columns), table.count), np.bool_)
        for shape in self._shapes:
            fits = free[PODS] > 0
            for name, amount in shape.requests.items():
                fits = fits & (free[state.resources.column(name)] >= amount)
            for r, name in enumerate(self._resources):
                if name in shape.requests:
                    taken[r] |= fits
        stranded: np.ndarray = np.where(taken, 0, free[columns]).sum(axis=1)
        return stranded


def _imbalance(shares: np.ndarray, offered: np.ndarray) -> float:
    """Return the mean imbalance of nodes (float64[N, R]), each over the resources that it offers."""
    found = np.zeros(len(shares))
    for offers in np.unique(offered, axis=0):
        rows = (offered == offers).all(axis=1)
        if offers.any():
            found[rows] = imbalance(shares[rows][:, offers])
    return float(found.mean()) if len(found) else 0.0


def usage_of(curves: Curves, state: ClusterState, at_ms: int) -> np.ndarray:
    """Return what the pods of each node use at a moment, float64[R, N]."""
    step = min(at_ms // curves.step_ms, curves.steps_count - 1)
    rows, kinds = [], []
    for key, entry in state.pods.items():
        if entry.node in state.table.rows:
            rows.append(state.table.rows[entry.node])
            kinds.append(curves.kinds[key])
    each = [
        np.bincount(rows, used[kinds, step], minlength=state.table.count)
        for used in (curves.used if rows else curves.used[:0])
    ]
    return np.array(each) if each else np.zeros((len(curves.resources), state.table.count))


def titles(resources: Sequence[str]) -> list[str]:
    """Return short names of resources: what is after the slash."""
    return [name.rpartition("/")[2] for name in resources]
