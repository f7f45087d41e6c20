"""Large-neighbourhood search: free a few nodes, pack their pods in another order, keep what is no worse.

The idea is Shaw's (1998). Each step looks at a few nodes only, so its time depends neither on how many
nodes nor on how many pods there are.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.compiling import entry, helper
from domain.kernels.repacking_arrays import (
    BALANCED,
    FREED_MAX,
    MOVED,
    NODES_MAX,
    NODES_MIN,
    PLACED,
    UNEVEN,
    VARIED,
    WAITING,
    WAITING_MAX,
)
from domain.kernels.repacking_costs import common_cost, cost_of, unevenness

_SLACK = 1e-12


@helper
def draw(random):  # type: ignore[no-untyped-def]
    """Return a float64 in [0, 1): xorshift64* (Vigna, 2016)."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return np.float64((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) * (1.0 / (1 << 53))


@helper
def draw_below(random, bound):  # type: ignore[no-untyped-def]
    """Return a whole number from 0 to ``bound`` - 1."""
    return int(draw(random) * bound)


@helper
def fits(packing, layout, pod, node):  # type: ignore[no-untyped-def]
    """Say whether a pod has its place on a node as that is."""
    kind = packing.kind[pod]
    if not packing.allowed[kind, node]:
        return False
    for r in range(packing.capacity.shape[1]):
        asked = packing.demand[kind, r]
        if asked > 0 and layout.used[node, r] + asked > packing.capacity[node, r]:
            return False
    return True


@helper
def put_pod(packing, layout, pod, node):  # type: ignore[no-untyped-def]
    """Give a waiting pod a node."""
    at = layout.waiting_at[pod]
    last = layout.waiting[layout.totals[WAITING] - 1]
    layout.waiting[at] = last
    layout.waiting_at[last] = at
    layout.totals[WAITING] -= 1
    head = layout.head[node]
    layout.after[pod] = head
    layout.before[pod] = -1
    if head >= 0:
        layout.before[head] = pod
    layout.head[node] = pod
    layout.node[pod] = node
    _count(packing, layout, pod, node, 1)


@helper
def remove_pod(packing, layout, pod):  # type: ignore[no-untyped-def]
    """Let a pod wait that has a node."""
    node, before, after = layout.node[pod], layout.before[pod], layout.after[pod]
    if before >= 0:
        layout.after[before] = after
    else:
        layout.head[node] = after
    if after >= 0:
        layout.before[after] = before
    at = layout.totals[WAITING]
    layout.waiting[at] = pod
    layout.waiting_at[pod] = at
    layout.totals[WAITING] += 1
    layout.node[pod] = layout.head.shape[0] - 1
    _count(packing, layout, pod, node, -1)


@helper
def _count(packing, layout, pod, node, sign):  # type: ignore[no-untyped-def]
    kind = packing.kind[pod]
    for r in range(packing.capacity.shape[1]):
        layout.used[node, r] += sign * packing.demand[kind, r]
    if packing.cost == VARIED:
        for r in range(packing.capacity.shape[1]):
            layout.sums[r] += sign * packing.demand[kind, r] * packing.share[node, r]
    home = layout.home[pod]
    if home != layout.head.shape[0] - 1 and home != node:
        layout.totals[MOVED] += sign


@helper
def _sort(desk, begin, end):  # type: ignore[no-untyped-def]
    """Sort a part of the pods by their keys, smallest first: shellsort with Ciura's gaps."""
    for gap in (701, 301, 132, 57, 23, 10, 4, 1):
        for i in range(begin + gap, end):
            key, pod, was = desk.keys[i], desk.pods[i], desk.was[i]
            j = i
            while j >= begin + gap and desk.keys[j - gap] > key:
                desk.keys[j], desk.pods[j], desk.was[j] = (
                    desk.keys[j - gap],
                    desk.pods[j - gap],
                    desk.was[j - gap],
                )
                j -= gap
            desk.keys[j], desk.pods[j], desk.was[j] = key, pod, was


@helper
def _choose_nodes(layout, desk, nodes_count):  # type: ignore[no-untyped-def]
    """Draw different nodes: half of the time dear and cheap ones in turn, else any."""
    total = layout.costs.shape[0]
    by_cost = draw(layout.random) < 0.5
    chosen = 0
    while chosen < nodes_count:
        node = draw_below(layout.random, total)
        if by_cost:
            for _ in range(3):
                other = draw_below(layout.random, total)
                is_dearer = layout.costs[other] > layout.costs[node]
                if is_dearer == (chosen % 2 == 0):
                    node = other
        is_new = True
        for i in range(chosen):
            is_new = is_new and desk.nodes[i] != node
        if is_new:
            desk.nodes[chosen] = node
            chosen += 1


@helper
def _best_of(packing, layout, desk, nodes_count, pod, fullest):  # type: ignore[no-untyped-def]
    """Return the best of the freed nodes for a pod, or -1: the fullest, or the one that costs least more."""
    kind = packing.kind[pod]
    best, best_value = -1, np.inf
    for i in range(nodes_count):
        node = desk.nodes[i]
        if not fits(packing, layout, pod, node):
            continue
        if layout.homing[0] and layout.home[pod] == node:
            return node
        value = 0.0
        if fullest or packing.cost != BALANCED:
            for r in range(packing.capacity.shape[1]):
                free = packing.capacity[node, r] - layout.used[node, r] - packing.demand[kind, r]
                value += free * packing.share[node, r] * (packing.demand[kind, r] > 0)
        else:
            for r in range(packing.capacity.shape[1]):
                more = packing.demand[kind, r] * packing.share[node, r]
                off = layout.used[node, r] * packing.share[node, r] - packing.target[r]
                value += packing.weight[r] * more * (2.0 * off + more)
        if value < best_value:
            best, best_value = node, value
    return best


@helper
def _best_by_rise(packing, layout, desk, nodes_count, pod):  # type: ignore[no-untyped-def]
    """Return the one of the freed nodes that costs least more with a pod, or -1; of Z and of the variance."""
    kind = packing.kind[pod]
    best, best_value = -1, np.inf
    for i in range(nodes_count):
        node = desk.nodes[i]
        if not fits(packing, layout, pod, node):
            continue
        if layout.homing[0] and layout.home[pod] == node:
            return node
        value = 0.0
        if packing.cost == UNEVEN:
            value = unevenness(packing, layout, node, kind) - unevenness(packing, layout, node, -1)
        else:
            for r in range(packing.capacity.shape[1]):
                more = packing.demand[kind, r] * packing.share[node, r]
                off = layout.used[node, r] * packing.share[node, r] - packing.weight[r] * layout.sums[r]
                value += packing.weight[r] * more * (2.0 * off + more)
        if value < best_value:
            best, best_value = node, value
    return best


@helper
def _repack(packing, layout, desk, moves_max):  # type: ignore[no-untyped-def]
    """Free a few nodes and pack their pods, and some that wait, again; undo that where it is worse."""
    total = layout.costs.shape[0]
    nodes_count = min(total, NODES_MIN + draw_below(layout.random, NODES_MAX - NODES_MIN + 1))
    _choose_nodes(layout, desk, nodes_count)
    freed, cost_before, moved = 0, common_cost(packing, layout), layout.totals[MOVED]
    for i in range(nodes_count):
        node = desk.nodes[i]
        cost_before += layout.costs[node]
        pod = layout.head[node]
        while pod >= 0 and freed < FREED_MAX:  # further ones stay, and count as they are
            desk.pods[freed] = pod
            desk.was[freed] = node
            freed += 1
            pod = layout.after[pod]
    waiting = min(WAITING_MAX, layout.totals[WAITING])
    begin = draw_below(layout.random, max(1, layout.totals[WAITING]))
    for i in range(waiting):
        desk.pods[freed + i] = layout.waiting[(begin + i) % layout.totals[WAITING]]
        desk.was[freed + i] = total
    for i in range(freed):
        remove_pod(packing, layout, desk.pods[i])
    way = draw(layout.random)
    noise = 0.6 * draw(layout.random)
    for i in range(freed + waiting):
        size = packing.size[packing.kind[desk.pods[i]]] * (1.0 + noise * (draw(layout.random) - 0.5))
        is_smallest_first = way < 0.15 or (i >= freed and way > 0.7)
        desk.keys[i] = size if is_smallest_first else -size
    if way < 0.4:
        _sort(desk, 0, freed + waiting)  # a pod that waits may take the place of one that had it
    else:
        _sort(desk, 0, freed)
        _sort(desk, freed, freed + waiting)
    fullest = draw(layout.random) < 0.5
    placed, is_kept = 0, True
    for i in range(freed + waiting):
        if fullest or packing.cost < UNEVEN:
            node = _best_of(packing, layout, desk, nodes_count, desk.pods[i], fullest)
        else:
            node = _best_by_rise(packing, layout, desk, nodes_count, desk.pods[i])
        if node >= 0:
            put_pod(packing, layout, desk.pods[i], node)
            placed += 1
        elif desk.was[i] != total and packing.keeps[desk.pods[i]]:
            is_kept = False
    cost_after = common_cost(packing, layout)
    for i in range(nodes_count):
        cost_after += cost_of(packing, layout, desk.nodes[i])
    is_kept = is_kept and (placed > freed or (placed == freed and cost_after <= cost_before + _SLACK))
    is_kept = is_kept and layout.totals[MOVED] <= (moved if layout.homing[0] else moves_max)
    if is_kept:
        for i in range(nodes_count):
            layout.costs[desk.nodes[i]] = cost_of(packing, layout, desk.nodes[i])
        return
    for i in range(freed + waiting):
        if layout.node[desk.pods[i]] != total:
            remove_pod(packing, layout, desk.pods[i])
    for i in range(freed + waiting):
        if desk.was[i] != total:
            put_pod(packing, layout, desk.pods[i], desk.was[i])


@helper
def _is_dearer(layout, node, other):  # type: ignore[no-untyped-def]
    total = layout.costs.shape[0]
    return node < total and (other == total or layout.costs[node] > layout.costs[other])


@helper
def _exchange(packing, layout, moves_max):  # type: ignore[no-untyped-def]
    """Move one pod to another node, or let two change places, where that is no worse."""
    total, pods = layout.costs.shape[0], layout.node.shape[0]
    one, other = draw_below(layout.random, pods), draw_below(layout.random, pods)
    is_swap = draw(layout.random) < 0.5
    b = layout.node[other] if is_swap else draw_below(layout.random, total)
    if draw(layout.random) < 0.7:  # from a dear node to a cheap one
        for _ in range(3):
            again = draw_below(layout.random, pods)
            if _is_dearer(layout, layout.node[again], layout.node[one]):
                one = again
            again = draw_below(layout.random, pods)
            node = layout.node[again] if is_swap else draw_below(layout.random, total)
            if _is_dearer(layout, b, node):
                b, other = node, again
    a = layout.node[one]
    if max(a, b) == total or a == b or (is_swap and packing.kind[one] == packing.kind[other]):
        return
    before, most = layout.costs[a] + layout.costs[b] + common_cost(packing, layout), moves_max
    if layout.homing[0]:
        most = layout.totals[MOVED]
    remove_pod(packing, layout, one)
    if is_swap:
        remove_pod(packing, layout, other)
    can = fits(packing, layout, one, b)
    if can:
        put_pod(packing, layout, one, b)
        can = not is_swap or fits(packing, layout, other, a)
    if can:
        if is_swap:
            put_pod(packing, layout, other, a)
        cost_a, cost_b = cost_of(packing, layout, a), cost_of(packing, layout, b)
        after = cost_a + cost_b + common_cost(packing, layout)
        if after <= before + _SLACK and layout.totals[MOVED] <= most:
            layout.costs[a], layout.costs[b] = cost_a, cost_b
            return
        if is_swap:
            remove_pod(packing, layout, other)
    if layout.node[one] != total:
        remove_pod(packing, layout, one)
    put_pod(packing, layout, one, a)
    if is_swap:
        put_pod(packing, layout, other, b)


@entry
def begin(packing, layout, node):  # type: ignore[no-untyped-def]
    """Put pods where ``node`` (int32[P]) says that they are, N: nowhere, and count the costs."""
    total = layout.costs.shape[0]
    for pod in range(node.shape[0]):
        if node[pod] < total:
            put_pod(packing, layout, pod, node[pod])
    for i in range(total):
        layout.costs[i] = cost_of(packing, layout, i)


@entry
def move(packing, layout, pod, node):  # type: ignore[no-untyped-def]
    """Give a pod another node, N: it waits, and return by how much the costs fall."""
    total, was, fall = layout.costs.shape[0], layout.node[pod], common_cost(packing, layout)
    if was < total:
        remove_pod(packing, layout, pod)
        fall += layout.costs[was]
        layout.costs[was] = cost_of(packing, layout, was)
        fall -= layout.costs[was]
    if node < total:
        put_pod(packing, layout, pod, node)
        fall += layout.costs[node]
        layout.costs[node] = cost_of(packing, layout, node)
        fall -= layout.costs[node]
    return fall - common_cost(packing, layout)


@entry
def search(packing, layout, desk, steps, moves_max):  # type: ignore[no-untyped-def]
    """Do so many steps. Nothing gets worse: no pod is lost, and at equal numbers no cost rises."""
    if layout.node.shape[0] == 0 or layout.costs.shape[0] == 0:
        return  # nothing can be drawn
    for _ in range(steps):
        exchanges = 0.8 if layout.totals[WAITING] > 0 else 0.98  # one costs a hundredth of the other
        if packing.cost != PLACED and draw(layout.random) < exchanges:
            _exchange(packing, layout, moves_max)
        else:
            _repack(packing, layout, desk, moves_max)
