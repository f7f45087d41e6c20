"""The arrays of the large-neighbourhood search (``repacking.py``), and its costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from domain.kernels.device_arrays import Mix

PLACED, BALANCED, FEWEST, FRAGMENTED, UNEVEN, VARIED = range(6)
"""What a node costs, with u the part of each resource that is used:

``PLACED`` nothing, so that only the number of pods counts; ``BALANCED`` the sum of weight times
(u - target) squared; ``FEWEST`` 1 less half the square of its fullest resource if it holds anything, so that
nodes become empty; ``FRAGMENTED`` how many of its devices a pod of the mix cannot use, on average; ``UNEVEN``
its part of the mean of Z, which says how alike a node uses its resources; ``VARIED`` the sum of weight times
u squared, and from the sum over the nodes the squares of the means are taken (see ``common_cost``).
"""

WAITING, MOVED = range(2)
"""The places of ``Layout.totals``."""

WAITING_MAX = 32
FREED_MAX = 2_048
CANDIDATES_MAX = FREED_MAX + WAITING_MAX
NODES_MIN, NODES_MAX = 2, 8


class DevicesOf(NamedTuple):
    """The devices of N nodes, for ``FRAGMENTED``. Pods that move take whole ones alone.

    Attributes
    ----------
    number : int64[N]
        How many devices a node has.
    shared_count : int64[N]
        Of how many of them a part is taken by pods that stay.
    shared : int64[N, D]
        What is free of these, in thousandths; they come first.
    model : int64[N]
        The model, as the number of a bit.
    busy_column, cpu_column, memory_column : int
        Resources: devices in use, wholly or in part; cpu; memory.
    unit : float
        1 / (thousandths of a device times the weight of the mix).
    """

    number: np.ndarray
    shared_count: np.ndarray
    shared: np.ndarray
    model: np.ndarray
    busy_column: int
    cpu_column: int
    memory_column: int
    unit: float


class Packing(NamedTuple):
    """What does not change: N nodes, R resources, K kinds of equal pods, P pods; all amounts are whole.

    Attributes
    ----------
    capacity, demand : int64[N, R], int64[K, R]
    share : float64[N, R]
        1 / capacity, and 0 where there is none.
    kind : int32[P]
    allowed : bool[K, N]
        Whether all filters that look at one pod and one node agree.
    size : float64[K]
        The largest part of a mean node that a pod of the kind asks for.
    keeps : bool[P]
        Pods that must not lose their node to others.
    weight, target : float64[R], float64[R]
        See ``cost``. For ``UNEVEN`` the weight is 1 or 0, for ``VARIED`` 1 / (nodes that offer it), or 0.
    cost : int
        One of the costs above.
    devices, mix : DevicesOf, Mix
        Of no nodes and no shapes where ``cost`` is not ``FRAGMENTED``.
    """

    capacity: np.ndarray
    share: np.ndarray
    demand: np.ndarray
    kind: np.ndarray
    allowed: np.ndarray
    size: np.ndarray
    keeps: np.ndarray
    weight: np.ndarray
    target: np.ndarray
    cost: int
    devices: DevicesOf
    mix: Mix


class Layout(NamedTuple):
    """Where pods are, and what follows from it. Node N stands for none.

    Attributes
    ----------
    node, home : int32[P], int32[P]
        Where each pod is, and where it is at home.
    head, after, before : int32[N + 1], int32[P], int32[P]
        The pods of each node as a list.
    waiting, waiting_at : int32[P], int32[P]
        The pods without a node, and where in that list each one is.
    used : int64[N, R]
    sums : float64[R]
        The parts that are used, summed over the nodes; followed for ``VARIED`` alone.
    costs : float64[N]
    totals : int64[2]
        Waiting pods; pods that have a home and another node.
    random : uint64[1]
    homing : bool[1]
        Whether steps bring pods home, at equal numbers and cost.
    free : int64[D]
        Room for one node's devices.
    """

    node: np.ndarray
    home: np.ndarray
    head: np.ndarray
    after: np.ndarray
    before: np.ndarray
    waiting: np.ndarray
    waiting_at: np.ndarray
    used: np.ndarray
    sums: np.ndarray
    costs: np.ndarray
    totals: np.ndarray
    random: np.ndarray
    homing: np.ndarray
    free: np.ndarray


class Desk(NamedTuple):
    """What a step works with: pods and where each was (int32[C]), keys (float64[C]), nodes (int32[8])."""

    pods: np.ndarray
    was: np.ndarray
    keys: np.ndarray
    nodes: np.ndarray
