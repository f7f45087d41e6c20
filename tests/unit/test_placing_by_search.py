"""Does placement by search keep to the filters, repair what has no room, and find what is best?"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import evaluate
from domain.kernels.arrays import LEAST_ALLOCATED
from domain.model.events import NodeUpserted
from domain.model.profiles import PluginUse, Profile
from domain.plugins.base import Term, TermPart
from domain.plugins.pairwise import weights_of
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from research.search.balance import balance, utilisation
from research.search.minimise import ALGORITHMS
from research.search.placement import (
    NOWHERE,
    Batch,
    Trial,
    by_imbalance,
    by_score,
    place_batch,
    rate,
    wanted_of,
)
from research.search.setting import RESOURCES, generate
from research.simulate.generated import PROFILE, nodes_of, pods_of
from research.simulate.searching import Search, place_by_search
from research.study.methods import METHODS
from tests.oracle.paper_scoring import search_score
from tests.oracle.scoring import Seen
from tests.values import node, pod, template


def batch(*asked: tuple[int, int], nodes: int = 4, allowed: np.ndarray | None = None) -> Batch:
    """Return pods, and empty nodes that offer 10 of two resources."""
    return Batch(
        allocatable=np.full((2, nodes), 10, dtype=np.int64),
        requested=np.zeros((2, nodes), dtype=np.int64),
        asked=np.array(asked, dtype=np.int64),
        allowed=np.ones((len(asked), nodes), dtype=bool) if allowed is None else allowed,
    )


# ------------------------------------------------------------------------------------------- the metrics


def test_balance_shows_what_z_hides() -> None:
    """A full node and an empty one are both in balance with themselves."""
    found = balance(np.array([[1.25, 1.25], [0.0, 0.0]]))
    assert found.imbalance == 0.0
    assert (found.deviation, found.ranges) == ([0.625, 0.625], [1.25, 1.25])
    assert found.overloaded == [1, 1]


def test_utilisation_is_by_node_and_0_where_nothing_is_offered() -> None:
    offered, held = np.array([[4, 0], [8, 2]]), np.array([[1, 3], [2, 2]])
    assert utilisation(offered, held).tolist() == [[0.25, 0.25], [0.0, 1.0]]
    both = utilisation(offered, np.stack([held, 2 * held], axis=1))
    assert both.tolist() == [[[0.25, 0.25], [0.0, 1.0]], [[0.5, 0.5], [0.0, 2.0]]]


# -------------------------------------------------------------------------------------------- the repair


def test_positions_are_rounded_and_clamped() -> None:
    assert wanted_of(np.array([[-3.0, 0.4, 1.6, 9.0]]), 4).tolist() == [[0, 0, 2, 3]]


def test_a_pod_goes_to_the_nearest_node_that_takes_it() -> None:
    allowed = np.ones((3, 4), dtype=bool)
    allowed[2] = [False, False, False, True]
    trial = Trial(batch((6, 1), (6, 1), (1, 1), allowed=allowed), 2)
    assert trial.place(0, np.array([1, 3])).tolist() == [1, 3]
    assert trial.place(1, np.array([1, 3])).tolist() == [0, 2]  # of two as near the lower index
    assert trial.place(2, np.array([0, 0])).tolist() == [3, 3]
    assert trial.requested[0].tolist() == [[6, 6, 0, 1], [0, 0, 6, 7]]


def test_a_pod_that_nothing_takes_has_no_node_and_costs_more_than_any_placement() -> None:
    pods = batch((6, 1), (6, 1), nodes=1)
    trial = Trial(pods, 1)
    assert by_imbalance([0, 1])(trial, np.zeros((1, 2), dtype=np.int64)) > 10.0
    assert trial.nodes.tolist() == [[0, NOWHERE]]
    found = place_batch("de", pods, by_imbalance([0, 1]), seed=1, population_count=4, evaluations_max=20)
    assert found.nodes == [0, NOWHERE]


def test_nothing_is_needed_where_nothing_is_asked() -> None:
    pods = batch((0, 1))
    pods.requested[0] = 11
    assert Trial(pods, 1).place(0, np.array([2])).tolist() == [2]


# -------------------------------------------------------------------------------------------- the search


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_any_search_finds_the_best_of_few_placements(algorithm: str) -> None:
    if algorithm.startswith("scipy-"):
        pytest.importorskip("scipy")
    pods = batch((8, 2), (2, 8), (5, 3), nodes=3)
    fitness = by_imbalance([0, 1])
    every = np.array(list(itertools.product(range(3), repeat=3)))
    best = fitness(Trial(pods, len(every)), every).min()
    found = place_batch(algorithm, pods, fitness, seed=2, evaluations_max=1_500)
    again = place_batch(algorithm, pods, fitness, seed=2, evaluations_max=1_500)
    assert found.value == pytest.approx(best)
    assert (found.nodes, found.value) == (again.nodes, again.value)
    assert found.evaluations_count <= 1_500
    assert fitness(Trial(pods, 1), np.array([found.nodes]))[0] == found.value


def test_scores_are_taken_before_the_next_pod_comes() -> None:
    pods = batch((4, 4), (4, 4), nodes=2)
    term = Term(LEAST_ALLOCATED, (TermPart(0, 1.0, 4), TermPart(1, 1.0, 4)))
    value = by_score([term, term])(Trial(pods, 2), np.array([[0, 0], [0, 1]]))
    assert value.tolist() == pytest.approx([-(0.6 + 0.2) / 2, -0.6])
    assert rate(term, pods.allocatable, pods.requested).tolist() == [60.0, 60.0]


def test_a_search_by_score_goes_by_the_score_of_the_kernel() -> None:
    setting = generate(3, pods_count=40)
    profile = Profile(name=PROFILE, scores=METHODS["search-score"].scores)
    state = ClusterState(seed=1)
    for spec in nodes_of(setting):
        state.apply(NodeUpserted(spec))
    asked = pods_of(setting)[0]
    found = evaluate(state, ProfilePlan(profile), asked).scores
    args = profile.scores[0].args
    plain = {spec.name: search_score(args, asked.template, Seen(spec, 1)) for spec in nodes_of(setting)}
    assert found == pytest.approx(plain)


def test_a_search_honours_the_filters_of_the_profile() -> None:
    """Also where a pod of the same window stands in the way of another."""
    filters = (PluginUse(name="NodeResourcesFit"), PluginUse(name="NodePorts"), PluginUse(name="NodeName"))
    scheduler = Scheduler({PROFILE: Profile(name=PROFILE, filters=filters)}, seed=1)
    offered = dict.fromkeys(RESOURCES[2:], 100)
    for name in ("a", "b", "c"):
        scheduler.fold(NodeUpserted(node(name, extended=offered)))
    asked = [template(100, 1, 80, profile=PROFILE) for _ in range(4)]
    asked.append(template(100, 1, profile=PROFILE, node_name="b"))
    pods = [pod(f"p{i}", each) for i, each in enumerate(asked)]
    placed = place_by_search(scheduler, Search("tbesk", 5, 200, RESOURCES), pods, seed=1)
    assert (len(placed), placed["default/p4"]) == (4, "b")
    nodes = scheduler.state.nodes
    assert [len(set(nodes[name].pods) - {"default/p4"}) for name in ("a", "b", "c")] == [1, 1, 1]
    assert "default/p4" in nodes["b"].pods


# ------------------------------------------------------------------------------------------- the weights


def test_weights_by_comparison_are_the_main_eigenvector() -> None:
    rows = [[1.0, 3.0, 5.0], [1 / 3, 1.0, 2.0], [0.2, 0.5, 1.0]]
    values, vectors = np.linalg.eig(np.array(rows))
    main = np.abs(vectors[:, values.real.argmax()].real)
    assert weights_of(rows, "x") == pytest.approx((main / main.sum()).tolist())
