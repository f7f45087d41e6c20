"""Is a placement with low peaks what it says, within all that must hold, and never worse than the start?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from domain.model.errors import FieldError
from research.contest.peaks import Beside, Peaks

STEPS = 20_000


class Given(NamedTuple):
    """A small cluster, as ``Peaks`` takes it."""

    room: np.ndarray
    curve: np.ndarray
    capacity: np.ndarray
    demand: np.ndarray
    kind: np.ndarray
    node: np.ndarray
    beside: list[Beside]


def breaks(given: Given, node: np.ndarray) -> list[str]:
    """Return what a placement breaks: the plain definition of all that must hold."""
    found = []
    for each in range(len(given.room)):
        kinds = given.kind[node == each].tolist()
        if (given.curve[kinds].sum(axis=0) > given.room[each]).any():
            found.append(f"{each}: the curve is too high")
        if (given.demand[kinds].sum(axis=0) > given.capacity[each]).any():
            found.append(f"{each}: too full")
        found += [
            f"{each}: {rule}"
            for rule in given.beside
            if rule.kind in kinds and kinds.count(rule.other) > rule.most
        ]
    return found


def cost(given: Given, node: np.ndarray) -> float:
    """Return the contest's score by its definition."""
    total = 0.0
    for each in np.unique(node[node < len(given.room)]):
        used = given.curve[given.kind[node == each]].sum(axis=0) / given.room[each]
        total += float((1 + 10 * (np.exp(np.maximum(0, used - 0.5)) - 1)).mean())
    return total


def cluster(seed: int) -> Given:
    """Return a cluster of two sizes of nodes; half of the pods are on the first nodes that take them."""
    rng = np.random.default_rng(seed)
    nodes_count, kinds_count, pods_count = 16, 30, 120
    room = np.repeat([92, 32], nodes_count // 2) * 1000
    curve = rng.integers(0, 5_000, (kinds_count, 7))
    demand = rng.integers(1, 20, (kinds_count, 3))
    kind = rng.integers(0, kinds_count, pods_count).astype(np.int32)
    pairs = rng.integers(0, kinds_count, (20, 2)).tolist()
    beside = [Beside(a, b, int(rng.integers(1 if a == b else 0, 3))) for a, b in pairs]
    capacity = np.full((nodes_count, 3), 200)
    node = np.full(pods_count, nodes_count, np.int32)
    given = Given(room, curve, capacity, demand, kind, node, beside)
    for pod in range(pods_count // 2):
        for each in range(nodes_count):
            node[pod] = each
            if not breaks(given, node):
                break
            node[pod] = nodes_count
    return given


def search_of(given: Given, seed: int = 1) -> Peaks:
    return Peaks(*given[:6], beside=given.beside, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_it_says_what_it_costs_and_breaks_nothing(seed: int) -> None:
    given = cluster(seed)
    search = search_of(given)
    assert search.score == search.before
    assert search.before.cost == pytest.approx(cost(given, given.node), rel=1e-5)
    assert search.before.waiting_count == (given.node == len(given.room)).sum()
    rebuilt = search.rebuild()
    assert rebuilt.waiting_count == 0
    for part in range(10):
        best = search.score
        now = search.improve(STEPS // 10, part / 10)
        assert search.score[:2] <= min(best[:2], now[:2])
        assert breaks(given, search.node) == []
        assert search.score.cost == pytest.approx(cost(given, search.node), rel=1e-5)
        assert search.score.used_count == len(np.unique(search.node))
    assert search.score.cost < rebuilt.cost, "there is something to gain in each of these clusters"
    assert search.score.cost >= search.bound()[0]


def test_a_start_that_nothing_beats_is_kept() -> None:
    """Two pods whose curves complement each other are on one node; a step apart is worse."""
    curve, node = np.array([[400, 0], [0, 400]]), np.zeros(2, np.int32)
    search = Peaks(np.array([1000, 1000]), curve, np.ones((2, 1)), np.ones((2, 1)) * 0, np.arange(2), node)
    search.improve(STEPS, 0.0)
    assert search.node.tolist() == [0, 0]
    assert search.score == search.before == (0, 1.0, 1)


def test_pods_that_fit_nowhere_wait() -> None:
    curve = np.array([[600], [2000]])
    search = Peaks(
        np.array([1000, 500]), curve, np.ones((2, 1)), np.zeros((2, 1)), np.arange(2), np.array([2, 2])
    )
    assert search.before == (2, 0.0, 0)
    assert search.rebuild().waiting_count == 1
    search.improve(STEPS, 0.5)
    assert search.node.tolist() == [0, 2]


def test_equal_seeds_give_equal_placements() -> None:
    given = cluster(3)
    one, other, third = search_of(given), search_of(given), search_of(given, seed=2)
    for each in (one, other, third):
        each.rebuild()
        each.improve(STEPS, 0.4)
    assert (one.node == other.node).all()
    assert (one.node != third.node).any()


def test_the_bound_is_the_least_of_pods_that_can_be_cut() -> None:
    """Two nodes of 100 and one load of 120: one node at 1.2, or two at 0.6 each."""
    for load in (40, 60, 80, 100, 120, 150):
        search = Peaks(
            np.array([100, 100]),
            np.array([[load]]),
            np.ones((2, 1)),
            np.zeros((1, 1)),
            np.zeros(1, np.int32),
            np.array([2]),
        )
        of_one, of_two = (n + 10 * n * np.expm1(max(0.0, load / 100 / n - 0.5)) for n in (1, 2))
        assert search.bound() == pytest.approx(min((of_one, 1), (of_two, 2)))


@pytest.mark.parametrize(("nodes", "pods"), [(0, 0), (0, 3), (3, 0)])
def test_where_there_is_nothing_nothing_is_drawn(nodes: int, pods: int) -> None:
    room, capacity, node = np.ones(nodes), np.ones((nodes, 1)), np.full(pods, nodes, np.int32)
    search = Peaks(room, np.ones((1, 2)), capacity, np.ones((1, 1)), np.zeros(pods, np.int32), node)
    assert search.rebuild() == search.improve(100, 0.5) == (pods, 0.0, 0)


def test_amounts_that_are_too_large_are_refused() -> None:
    with pytest.raises(FieldError, match="choose a larger unit"):
        Peaks(
            np.array([1 << 30]),
            np.ones((1, 1)),
            np.ones((1, 1)),
            np.ones((1, 1)),
            np.zeros(1, np.int32),
            np.ones(1),
        )
