"""The programs that the kernels are compared with: plain NumPy, and plain Python node by node.

Both return the score of every node for one pod, minus infinity where the pod does not fit. The NumPy program
is well written: whole columns, no loop over nodes, no needless copy. Neither breaks ties or keeps what an
explanation needs, as the kernel does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

METRIC_ONE = 1 << 20
METRIC_MAX = 4 * METRIC_ONE
MEMORY = 1
"""Row of memory in the columns, whose spread GlobalVariance looks at."""


class Picture(NamedTuple):
    """Nodes as columns: int64[R, N] offered and requested; the last row counts pods and is not scored."""

    allocatable: np.ndarray
    requested: np.ndarray


class Spread(NamedTuple):
    """The number of nodes and the sum of their metrics: all that GlobalVariance needs of the other nodes."""

    nodes: int
    total: int


Nodes = Sequence[Sequence[int]]


def numpy_scores(scoring: str, nodes: Picture, ask: np.ndarray) -> np.ndarray:
    """Return float64[N] for a pod that asks int64[R]."""
    used = nodes.requested + ask[:, None]
    fits = (used <= nodes.allocatable).all(axis=0)
    return np.where(fits, _IN_NUMPY[scoring](nodes, used, ask), -np.inf)


def python_scores(
    scoring: str, allocatable: Nodes, requested: Nodes, ask: Sequence[int], spread: Spread
) -> list[float]:
    """Return the same for nodes given as one list per node. ``spread`` is that of all nodes."""
    rate = _IN_PYTHON[scoring]
    scores = []
    for offered, held in zip(allocatable, requested, strict=True):
        used = [a + b for a, b in zip(held, ask, strict=True)]
        fits = all(a <= b for a, b in zip(used, offered, strict=True))
        scores.append(rate(offered, held, used, *spread) if fits else -math.inf)
    return scores


# ---------------------------------------------------------------------------------------------- NumPy


def _least(nodes: Picture, used: np.ndarray, ask: np.ndarray) -> np.ndarray:
    return 100.0 - _most(nodes, used, ask)


def _most(nodes: Picture, used: np.ndarray, _: np.ndarray) -> np.ndarray:
    share: np.ndarray = used[:-1] / nodes.allocatable[:-1]
    mean: np.ndarray = share.mean(axis=0) * 100.0
    return mean


def _ratio(nodes: Picture, used: np.ndarray, _: np.ndarray) -> np.ndarray:
    score = np.interp(used[:-1] / nodes.allocatable[:-1], (0.0, 0.6, 1.0), (0.0, 100.0, 20.0))
    weight = (score > 0).sum(axis=0)
    mean: np.ndarray = score.sum(axis=0) / np.maximum(weight, 1)
    return mean


def _balanced(nodes: Picture, used: np.ndarray, _: np.ndarray) -> np.ndarray:
    with_pod = (used[:-1] / nodes.allocatable[:-1]).std(axis=0)
    without = (nodes.requested[:-1] / nodes.allocatable[:-1]).std(axis=0)
    rating: np.ndarray = 75.0 + 50.0 * (without - with_pod)
    return rating


def _variance(nodes: Picture, _: np.ndarray, ask: np.ndarray) -> np.ndarray:
    offered, held = nodes.allocatable[MEMORY], nodes.requested[MEMORY]
    metric = np.minimum((held * float(METRIC_ONE) / offered).astype(np.int64), METRIC_MAX)
    added = np.minimum((float(ask[MEMORY] * METRIC_ONE) / offered).astype(np.int64), METRIC_MAX)
    n = len(metric)
    growth: np.ndarray = added * (2 * (metric * n - metric.sum()) + added * (n - 1))
    return -growth.astype(np.float64)


_IN_NUMPY: Mapping[str, Callable[[Picture, np.ndarray, np.ndarray], np.ndarray]] = {
    "LeastAllocated": _least,
    "MostAllocated": _most,
    "RequestedToCapacityRatio": _ratio,
    "BalancedAllocation": _balanced,
    "GlobalVariance": _variance,
}

# --------------------------------------------------------------------------------------------- Python


def _shares(used: Sequence[int], offered: Sequence[int]) -> list[float]:
    return [a / b for a, b in zip(used[:-1], offered[:-1], strict=True)]


def _least_of_one(offered: Sequence[int], _: Sequence[int], used: Sequence[int], *__: int) -> float:
    shares = _shares(used, offered)
    return 100.0 - sum(shares) / len(shares) * 100.0


def _most_of_one(offered: Sequence[int], _: Sequence[int], used: Sequence[int], *__: int) -> float:
    shares = _shares(used, offered)
    return sum(shares) / len(shares) * 100.0


def _ratio_of_one(offered: Sequence[int], _: Sequence[int], used: Sequence[int], *__: int) -> float:
    scores = [
        share / 0.6 * 100.0 if share <= 0.6 else 100.0 - (share - 0.6) / 0.4 * 80.0
        for share in _shares(used, offered)
    ]
    counted = [score for score in scores if score > 0]
    return sum(counted) / len(counted) if counted else 0.0


def _balanced_of_one(offered: Sequence[int], held: Sequence[int], used: Sequence[int], *__: int) -> float:
    return 75.0 + 50.0 * (_deviation(_shares(held, offered)) - _deviation(_shares(used, offered)))


def _deviation(shares: list[float]) -> float:
    mean = sum(shares) / len(shares)
    return math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))


def _variance_of_one(
    offered: Sequence[int], held: Sequence[int], used: Sequence[int], n: int, total: int
) -> float:
    metric = _metric(held[MEMORY], offered[MEMORY])
    added = _metric(used[MEMORY] - held[MEMORY], offered[MEMORY])
    return -float(added * (2 * (metric * n - total) + added * (n - 1)))


def spread_of(nodes: Picture) -> Spread:
    """Return the sums over all nodes."""
    offered, held = nodes.allocatable[MEMORY].tolist(), nodes.requested[MEMORY].tolist()
    return Spread(len(offered), sum(_metric(b, a) for a, b in zip(offered, held, strict=True)))


def _metric(amount: int, offered: int) -> int:
    return min(int(amount * float(METRIC_ONE) / offered), METRIC_MAX)


_IN_PYTHON: Mapping[str, Callable[..., float]] = {
    "LeastAllocated": _least_of_one,
    "MostAllocated": _most_of_one,
    "RequestedToCapacityRatio": _ratio_of_one,
    "BalancedAllocation": _balanced_of_one,
    "GlobalVariance": _variance_of_one,
}
