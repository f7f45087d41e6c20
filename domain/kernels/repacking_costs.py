"""What a node costs in the large-neighbourhood search (``repacking.py``), by ``repacking_arrays``."""

from __future__ import annotations

import numpy as np

from domain.kernels.compiling import helper
from domain.kernels.device_arrays import WHOLE_DEVICE
from domain.kernels.fragmentation import unusable
from domain.kernels.repacking_arrays import BALANCED, FEWEST, FRAGMENTED, UNEVEN, VARIED


@helper
def _unusable_count(packing, layout, node):  # type: ignore[no-untyped-def]
    """Return how many devices of a node a pod of the mix cannot use, on average."""
    of, free, used = packing.devices, layout.free, layout.used
    number, shared = of.number[node], of.shared_count[node]
    whole = number - used[node, of.busy_column]
    for d in range(number):
        free[d] = WHOLE_DEVICE if shared <= d < shared + whole else 0
        if d < shared:
            free[d] = of.shared[node, d]
    cpu = packing.capacity[node, of.cpu_column] - used[node, of.cpu_column]
    memory = packing.capacity[node, of.memory_column] - used[node, of.memory_column]
    return of.unit * unusable(packing.mix, cpu, memory, free, number, of.model[node])


@helper
def unevenness(packing, layout, node, kind):  # type: ignore[no-untyped-def]
    """Return Z of a node over the number of nodes, with one more pod of a kind; -1: as it is."""
    resources, count, mean, squares = packing.capacity.shape[1], 0, 0.0, 0.0
    for r in range(resources):
        if packing.weight[r] > 0.0 and packing.share[node, r] > 0.0:
            more = packing.demand[kind, r] if kind >= 0 else 0
            mean += (layout.used[node, r] + more) * packing.share[node, r]
            count += 1
    mean /= max(1, count)
    for r in range(resources):
        if packing.weight[r] > 0.0 and packing.share[node, r] > 0.0:
            more = packing.demand[kind, r] if kind >= 0 else 0
            squares += ((layout.used[node, r] + more) * packing.share[node, r] - mean) ** 2
    return np.sqrt(squares) / layout.costs.shape[0]


@helper
def common_cost(packing, layout):  # type: ignore[no-untyped-def]
    """Return the part of the cost that is of no node alone: of a variance, less the squares of the means."""
    total = 0.0
    if packing.cost == VARIED:
        for r in range(packing.capacity.shape[1]):
            total -= (packing.weight[r] * layout.sums[r]) ** 2
    return total


@helper
def cost_of(packing, layout, node):  # type: ignore[no-untyped-def]
    """Return what a node costs as it is."""
    total = 0.0
    is_empty = layout.head[node] < 0
    if packing.cost == BALANCED:
        for r in range(packing.capacity.shape[1]):
            off = layout.used[node, r] * packing.share[node, r] - packing.target[r]
            total += packing.weight[r] * off * off
    elif packing.cost == FEWEST and not is_empty:
        fullest = 0.0
        for r in range(packing.capacity.shape[1]):
            fullest = max(fullest, packing.weight[r] * layout.used[node, r] * packing.share[node, r])
        total = 1.0 - 0.5 * fullest * fullest
    elif packing.cost == FRAGMENTED:
        total = _unusable_count(packing, layout, node)
    elif packing.cost == UNEVEN:
        total = unevenness(packing, layout, node, -1)
    elif packing.cost == VARIED:
        for r in range(packing.capacity.shape[1]):
            total += packing.weight[r] * (layout.used[node, r] * packing.share[node, r]) ** 2
    return total
