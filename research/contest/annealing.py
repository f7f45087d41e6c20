"""Simulated annealing of curves: single pods move and pairs change places, worse steps with falling chance.

The idea is Kirkpatrick, Gelatt and Vecchi's (1983). A step prices two nodes, whatever else there is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from domain.kernels.compiling import entry, helper, reordered
from domain.kernels.repacking import draw, draw_below

_SPREAD_TRIES = 100


class Curves(NamedTuple):
    """What does not change: N nodes, K kinds of equal pods, P pods, T points, R other resources.

    Attributes
    ----------
    room : int32[N]
        What each node has of the resource whose curve is priced.
    share : float32[N]
        1 / room, and 0 where there is none.
    curve : int32[K + 1, T]
        What a pod of each kind uses of it; the last kind is none, and uses nothing.
    capacity, demand : int32[N, R], int32[K + 1, R]
        All other resources: they have to fit, and cost nothing.
    kind : int32[P]
    beside_begin, beside_kind, beside_max : int32[K + 1], int32[B], int32[B]
        A node that holds a pod of kind k holds ``beside_max[i]`` pods of kind ``beside_kind[i]`` at most,
        for i from ``beside_begin[k]`` to ``beside_begin[k + 1]``; itself counts where both are one kind.
    beside_of_begin, beside_of_kind, beside_of_max : int32[K + 1], int32[B], int32[B]
        The same, by the kind that is limited.
    """

    room: np.ndarray
    share: np.ndarray
    curve: np.ndarray
    capacity: np.ndarray
    demand: np.ndarray
    kind: np.ndarray
    beside_begin: np.ndarray
    beside_kind: np.ndarray
    beside_max: np.ndarray
    beside_of_begin: np.ndarray
    beside_of_kind: np.ndarray
    beside_of_max: np.ndarray


class Loads(NamedTuple):
    """Where pods are, and what follows from it.

    Attributes
    ----------
    node : int32[P]
        Where each pod is; N where it waits.
    load, used : int32[N, T], int32[N, R]
    counts : int16[N, K]
        Pods of each kind on each node.
    held : int32[N]
        Pods on each node.
    costs : float64[N]
        What each node costs.
    random : uint64[1]
    """

    node: np.ndarray
    load: np.ndarray
    used: np.ndarray
    counts: np.ndarray
    held: np.ndarray
    costs: np.ndarray
    random: np.ndarray


@reordered
def price(load, more, less, share):  # type: ignore[no-untyped-def]
    """Return the mean over the points of 10 (exp(max(0, u - 0.5)) - 1), u = (load + more - less) share.

    The exponential is its Taylor polynomial of degree 6, which is off by less than 3e-6 of the price where u
    is at most 1.
    """
    total = np.float32(0.0)
    for t in range(load.shape[0]):
        x = np.float32(load[t] + more[t] - less[t]) * share - np.float32(0.5)
        x = x if x > np.float32(0.0) else np.float32(0.0)
        sixth = np.float32(1 / 120) + x * np.float32(1 / 720)
        third = np.float32(0.5) + x * (np.float32(1 / 6) + x * (np.float32(1 / 24) + x * sixth))
        total += x * (np.float32(1.0) + x * third)
    return np.float64(total) * 10.0 / load.shape[0]


@reordered
def _swell(load, more, share):  # type: ignore[no-untyped-def]
    """Return by how much the eighth powers of the points grow: what rises highest is dearest."""
    total = np.float32(0.0)
    for t in range(load.shape[0]):
        before = np.float32(load[t]) * share
        after = np.float32(load[t] + more[t]) * share
        before, after = before * before, after * after
        before, after = before * before, after * after
        total += after * after - before * before
    return total


@helper
def _has_room(curves, loads, node, kind, left):  # type: ignore[no-untyped-def]
    """Say whether a pod of ``kind`` has its place on a node that one of ``left`` leaves."""
    for t in range(loads.load.shape[1]):
        if loads.load[node, t] + curves.curve[kind, t] - curves.curve[left, t] > curves.room[node]:
            return False
    for r in range(loads.used.shape[1]):
        more = curves.demand[kind, r] - curves.demand[left, r]
        if more > 0 and loads.used[node, r] + more > curves.capacity[node, r]:
            return False
    return True


@helper
def _may_be_beside(curves, loads, node, kind, left):  # type: ignore[no-untyped-def]
    """Say whether the rules allow a pod of ``kind`` on a node that one of ``left`` leaves."""
    counts = loads.counts[node]
    for i in range(curves.beside_begin[kind], curves.beside_begin[kind + 1]):
        other = curves.beside_kind[i]
        if counts[other] - (other == left) + (other == kind) > curves.beside_max[i]:
            return False
    for i in range(curves.beside_of_begin[kind], curves.beside_of_begin[kind + 1]):
        other = curves.beside_of_kind[i]
        is_there = other != kind and counts[other] - (other == left) > 0
        if is_there and counts[kind] + 1 > curves.beside_of_max[i]:
            return False
    return True


@helper
def _count(curves, loads, pod, node, sign):  # type: ignore[no-untyped-def]
    kind = curves.kind[pod]
    for t in range(loads.load.shape[1]):
        loads.load[node, t] += sign * curves.curve[kind, t]
    for r in range(loads.used.shape[1]):
        loads.used[node, r] += sign * curves.demand[kind, r]
    loads.counts[node, kind] += sign
    loads.held[node] += sign


@helper
def put(curves, loads, pod, node):  # type: ignore[no-untyped-def]
    """Give a pod a node, and price that again."""
    none = curves.curve[curves.curve.shape[0] - 1]
    loads.node[pod] = node
    _count(curves, loads, pod, node, 1)
    loads.costs[node] = 1.0 + price(loads.load[node], none, none, curves.share[node])


@entry
def begin(curves, loads, node):  # type: ignore[no-untyped-def]
    """Put pods where ``node`` (int32[P]) says that they are, N: nowhere."""
    for pod in range(node.shape[0]):
        if node[pod] < loads.costs.shape[0]:
            put(curves, loads, pod, node[pod])


@entry
def spread(curves, loads, order, nodes, open_count):  # type: ignore[no-untyped-def]
    """Place the waiting pods of ``order`` (int32[Q]), each where the highest points rise least.

    Each looks at some of the first ``open_count`` of ``nodes`` (int32[N]); if none takes it, the first one
    that does of all takes it. Return how many still wait.
    """
    waiting_count = 0
    for pod in order:
        kind, best, best_rise = curves.kind[pod], -1, np.float32(np.inf)
        none = curves.curve.shape[0] - 1
        for i in range(_SPREAD_TRIES + nodes.shape[0]):
            if i < _SPREAD_TRIES:
                node = nodes[draw_below(loads.random, open_count)]
            elif best < 0:
                node = nodes[i - _SPREAD_TRIES]
            else:
                break
            if not _has_room(curves, loads, node, kind, none):
                continue
            if not _may_be_beside(curves, loads, node, kind, none):
                continue
            rise = _swell(loads.load[node], curves.curve[kind], curves.share[node])
            if rise < best_rise:
                best, best_rise = node, rise
        if best >= 0:
            put(curves, loads, pod, best)
        else:
            waiting_count += 1
    return waiting_count


@entry
def anneal(curves, loads, steps, temperature):  # type: ignore[no-untyped-def]
    """Do so many steps: a step that costs d more is done with the chance exp(-d / temperature).

    A pod moves to the node of another one, or both change places; so no empty node is opened.
    """
    pods, total = loads.node.shape[0], loads.costs.shape[0]
    none = curves.curve.shape[0] - 1
    for _ in range(steps):
        one, other = draw_below(loads.random, pods), draw_below(loads.random, pods)
        a, b = loads.node[one], loads.node[other]
        kind = curves.kind[one]
        back = curves.kind[other] if draw(loads.random) < 0.6 else none
        if max(a, b) == total or a == b or kind == back:
            continue
        there, here = curves.curve[kind], curves.curve[back]
        cost_a = 0.0
        if back != none or loads.held[a] > 1:
            cost_a = 1.0 + price(loads.load[a], here, there, curves.share[a])
        cost_b = 1.0 + price(loads.load[b], there, here, curves.share[b])
        more = cost_a + cost_b - loads.costs[a] - loads.costs[b]
        if more > 0.0 and draw(loads.random) >= np.exp(-more / temperature):
            continue
        if not (_has_room(curves, loads, b, kind, back) and _may_be_beside(curves, loads, b, kind, back)):
            continue
        if back != none:
            if not (_has_room(curves, loads, a, back, kind) and _may_be_beside(curves, loads, a, back, kind)):
                continue
            _count(curves, loads, other, b, -1)
            _count(curves, loads, other, a, 1)
            loads.node[other] = a
        _count(curves, loads, one, a, -1)
        _count(curves, loads, one, b, 1)
        loads.node[one] = b
        loads.costs[a], loads.costs[b] = cost_a, cost_b
