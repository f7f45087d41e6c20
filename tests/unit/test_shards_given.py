"""Does a scheduler leave a shard to others with all that waits, and keep what is placed?"""

from __future__ import annotations

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.changes import PodGiven
from domain.state.steps import Given, Owned
from tests.values import node, pod, template

LARGE, SMALL = template(3_000), template(500)


def scheduler_of_two() -> Scheduler:
    """Two nodes with room for a large pod each. Of three large pods the third waits, and is of shard 1."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    scheduler.fold(Owned(frozenset({0, 1}), 2))
    for i in range(2):
        scheduler.fold(NodeUpserted(node(f"n{i}")), i)
    for i in range(3):
        scheduler.fold(PodUpserted(pod(f"large-{i}", LARGE)), int(i > 0))
    scheduler.fold(PodUpserted(pod("small", SMALL)), 0)
    return scheduler


def given(scheduler: Scheduler, shards: set[int]) -> list[str]:
    """Give shards to others; return the keys of the pods that leave with them."""
    return [each.pod.key for each in scheduler.fold(Given(frozenset(shards))) if isinstance(each, PodGiven)]


def test_waiting_pods_leave_and_placed_ones_stay() -> None:
    scheduler = scheduler_of_two()
    scheduler.cycle()
    assert given(scheduler, {1}) == ["default/large-2"]
    assert set(scheduler.state.pods) == {"default/large-0", "default/large-1", "default/small"}
    assert scheduler.state.own == {0}
    assert not scheduler.waiting
    assert sum(len(entry.pods) for entry in scheduler.state.nodes.values()) == 3
    scheduler.fold(NodeUpserted(node("n9")), 0)
    assert scheduler.cycle().verdicts == []


def test_pods_that_were_not_tried_yet_leave_too() -> None:
    scheduler = scheduler_of_two()
    assert given(scheduler, {1}) == ["default/large-1", "default/large-2"]
    verdicts = scheduler.cycle().verdicts
    assert [v.pod.name for v in verdicts if isinstance(v, Placement)] == ["large-0", "small"]


def test_a_shard_that_comes_back_brings_its_pods() -> None:
    scheduler = scheduler_of_two()
    scheduler.cycle()
    waited = scheduler.state.pods["default/large-2"]
    given(scheduler, {1})
    scheduler.fold(Owned(frozenset({0, 1}), 2))
    scheduler.restore_pod(waited.spec, arrival=waited.arrival, shard=1)
    scheduler.fold(NodeUpserted(node("n9")), 0)
    (verdict,) = scheduler.cycle().verdicts
    assert isinstance(verdict, Placement)
    assert (verdict.pod.name, verdict.node, verdict.arrival) == ("large-2", "n9", waited.arrival)


def test_the_nodes_of_a_shard_that_was_given_are_no_home_nodes() -> None:
    scheduler = scheduler_of_two()
    scheduler.cycle()
    given(scheduler, {1})
    scheduler.fold(PodUpserted(pod("next", SMALL)), 0)
    result = scheduler.cycle()
    (verdict,) = result.verdicts
    assert isinstance(verdict, Placement)
    assert scheduler.state.nodes[verdict.node].ordinal % 2 == 0
    assert result.attempts[verdict.attempt].nodes_home == 1
