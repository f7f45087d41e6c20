"""Does a placement get better, and never worse, while nothing that holds is broken?"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from domain.model.errors import FieldError
from domain.search.mix import Shape
from domain.search.packing import COSTS, Devices, Improving, Score

STEPS = 4_000
MIX = {Shape(10, 10, 8, 1000): 3, Shape(30, 30, 2, 1000): 1, Shape(5, 5, 0, 0): 1}
"""Shapes that ask for cpu and memory, both the second resource, and for devices, which are the first one."""


class Given(NamedTuple):
    """A small cluster: N nodes, two resources, K kinds, P pods, and where they are at first."""

    capacity: np.ndarray
    demand: np.ndarray
    kind: np.ndarray
    node: np.ndarray
    allowed: np.ndarray


def breaks(given: Given, node: np.ndarray) -> list[str]:
    """Return what a placement breaks: the plain definition of all that must hold."""
    nodes_count, found = len(given.capacity), []
    for each in range(nodes_count):
        kinds = given.kind[node == each].tolist()
        if (given.demand[kinds].sum(axis=0) > given.capacity[each]).any():
            found.append(f"{each} is too full")
        found += [f"{each} refuses {kind}" for kind in set(kinds) if not given.allowed[kind, each]]
    return found


def cost(given: Given, node: np.ndarray, objective: str) -> float:
    """Return what a placement costs, by the definitions of ``repacking.COSTS``."""
    parts = np.array(
        [given.demand[given.kind[node == n]].sum(axis=0) / each for n, each in enumerate(given.capacity)]
    )
    if objective == "variance":
        return float(parts.var(axis=0).sum())
    if objective == "z":
        return float(np.mean([np.sqrt(((u - u.mean()) ** 2).sum()) for u in parts]))
    total = 0.0
    target = given.demand[given.kind].sum(axis=0) / given.capacity.sum(axis=0)
    for each, capacity in enumerate(given.capacity):
        used = given.demand[given.kind[node == each]].sum(axis=0) / capacity
        holds = bool((node == each).any())
        match objective:
            case "balance":
                total += float(((used - target) ** 2).sum())
            case "nodes":
                total += (1 - 0.5 * used.max() ** 2) if holds else 0.0
            case "fragmentation":
                free, room = capacity - given.demand[given.kind[node == each]].sum(axis=0)
                for shape, weight in MIX.items():
                    is_useful = shape.number > 0 and shape.cpu <= room and shape.number <= free
                    total += 0.0 if is_useful else max(0.0, float(free)) * weight / sum(MIX.values())
    return total


def cluster(seed: int) -> Given:
    """Return a cluster that is nearly full; some nodes refuse some kinds."""
    rng = np.random.default_rng(seed)
    nodes_count, kinds_count, pods_count = 12, 30, 120
    capacity = rng.integers(80, 121, (nodes_count, 2))
    demand = rng.integers(1, 20, (kinds_count, 2))
    kind = rng.integers(0, kinds_count, pods_count).astype(np.int32)
    allowed = rng.random((kinds_count, nodes_count)) < 0.8
    given = Given(capacity, demand, kind, np.full(pods_count, nodes_count, np.int32), allowed)
    for pod in range(pods_count):
        for each in range(nodes_count):
            given.node[pod] = each
            if not breaks(given, given.node):
                break
            given.node[pod] = nodes_count
    return given


def improving(given: Given, objective: str = "placed", moves_max: int | None = None) -> Improving:
    whole = given.capacity[:, 0]
    none = np.zeros_like(whole)
    devices = Devices(whole, np.zeros((len(whole), 1), np.int64), none, (0, 1, 1), MIX)
    return Improving(*given, objective=objective, devices=devices, moves_max=moves_max, seed=len(given.kind))


def better(one: Score, other: Score) -> bool:
    return (one.waiting_count, one.cost - 1e-6) <= (other.waiting_count, other.cost)


@pytest.mark.parametrize("objective", COSTS)
@pytest.mark.parametrize("seed", range(4))
def test_it_gets_better_and_breaks_nothing(objective: str, seed: int) -> None:
    given = cluster(seed)
    search = improving(given, objective)
    assert search.score.cost == pytest.approx(cost(given, given.node, objective))
    assert (search.node == given.node).all()
    scores = [search.score, *(search.improve(STEPS, homing=i == 3) for i in range(4))]
    for earlier, later in pairwise(scores):
        assert better(later, earlier)
    assert scores[-1][:2] < scores[0][:2], "there is something to gain in each of these clusters"
    assert breaks(given, search.node) == []
    assert scores[-1].cost == pytest.approx(cost(given, search.node, objective))
    assert scores[-1].waiting_count == (search.node == len(given.capacity)).sum()
    moved = (given.node < len(given.capacity)) & (search.node != given.node)
    placed_elsewhere = moved & (search.node < len(given.capacity))
    assert scores[-1].moved_count == placed_elsewhere.sum()
    used = [given.demand[given.kind[search.node == n]].sum(axis=0) for n in range(len(given.capacity))]
    assert (search.used == used).all()


def test_steps_home_undo_moves_that_gain_nothing() -> None:
    given = cluster(1)
    search = improving(given)
    away = search.improve(STEPS)
    home = search.improve(STEPS, homing=True)
    assert better(home, away)
    assert home.moved_count < away.moved_count / 2


@pytest.mark.parametrize("moves_max", [0, 5])
def test_no_more_pods_move_than_may(moves_max: int) -> None:
    given = cluster(2)
    search = improving(given, "balance", moves_max)
    score = search.improve(STEPS)
    assert score.moved_count <= moves_max
    assert better(score, improving(given, "balance").score)
    assert breaks(given, search.node) == []


@pytest.mark.parametrize("objective", COSTS)
def test_gains_are_by_how_much_the_cost_falls(objective: str) -> None:
    """From home on, with every pod that changed its node one after another."""
    given = cluster(2)
    search = improving(given, objective)
    search.improve(STEPS)
    moved = np.flatnonzero(search.node != given.node)
    at, moves = given.node.copy(), [(int(pod), int(search.node[pod])) for pod in moved]
    for (pod, node), gain in zip(moves, search.gains(moves), strict=True):
        before = cost(given, at, objective)
        at[pod] = node
        assert gain == pytest.approx(before - cost(given, at, objective), abs=1e-9)
    assert len(moves) > 0


def test_equal_seeds_give_equal_placements() -> None:
    given = cluster(3)
    one, other = improving(given, "nodes"), improving(given, "nodes")
    one.improve(STEPS)
    for _ in range(4):
        other.improve(STEPS // 4)
    assert (one.node == other.node).all()


def test_what_stays_counts() -> None:
    """Pods that are not among those that may move hold their room."""
    capacity, demand = np.array([[10], [10]]), np.array([[6]])
    node, allowed = np.array([2, 2], np.int32), np.ones((1, 2), np.bool_)
    kinds = np.zeros(2, np.int32)
    search = Improving(capacity, demand, kinds, node, allowed, held=np.array([[5], [0]]))
    assert search.improve(100).waiting_count == 1
    assert sorted(search.node.tolist()) == [1, 2]


def test_what_no_node_offers_costs_nothing() -> None:
    capacity, demand, node = np.array([[10, 0]]), np.array([[5, 0]]), np.zeros(1, np.int32)
    held, allowed = np.array([[0, 1 << 40]]), np.ones((1, 1), np.bool_)
    search = Improving(capacity, demand, np.zeros(1, np.int32), node, allowed, held=held, objective="balance")
    assert search.score.cost == 0.0


def test_who_keeps_its_node_gives_it_to_nobody() -> None:
    """One large pod has the only node; two small ones wait."""
    capacity, demand = np.array([[10]]), np.array([[10], [5]])
    node, allowed = np.array([0, 1, 1], np.int32), np.ones((2, 1), np.bool_)
    kinds = np.array([0, 1, 1], np.int32)
    for keeps, left in ((False, 1), (True, 2)):
        search = Improving(capacity, demand, kinds, node, allowed, keeps=np.array([keeps, False, False]))
        assert search.improve(100).waiting_count == left


@pytest.mark.parametrize("objective", COSTS)
@pytest.mark.parametrize(("nodes", "pods"), [(0, 0), (0, 3), (3, 0)])
def test_where_there_is_nothing_nothing_is_drawn(objective: str, nodes: int, pods: int) -> None:
    kinds, allowed = np.zeros(pods, np.int32), np.ones((1, nodes), np.bool_)
    node, capacity = np.full(pods, nodes, np.int32), np.ones((nodes, 2), np.int64)
    search = improving(Given(capacity, np.array([[1 << 50, 1]]), kinds, node, allowed), objective)
    assert search.improve(1_000).waiting_count == pods


def test_a_node_with_more_pods_than_a_step_frees_takes_others() -> None:
    """Both nodes hold 3,000 small pods; the one that waits has its place on either."""
    count = 3_000
    node = np.repeat([0, 1, 2], [count, count, 1]).astype(np.int32)
    kinds = np.repeat([0, 1], [2 * count, 1]).astype(np.int32)
    capacity, demand = np.array([[count + 50], [count + 50]]), np.array([[1], [50]])
    search = Improving(capacity, demand, kinds, node, np.ones((2, 2), np.bool_))
    assert search.improve(50).waiting_count == 0
    assert (search.used.sum(), search.used.max()) == (2 * count + 50, count + 50)


def test_an_unknown_objective_is_named() -> None:
    given = cluster(0)
    with pytest.raises(FieldError, match=r"must be one of placed, .*, variance, not best"):
        improving(given, "best")
    with pytest.raises(FieldError, match="fragmentation needs nodes with devices"):
        Improving(*given, objective="fragmentation")
