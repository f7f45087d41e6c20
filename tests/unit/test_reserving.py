"""Does a stream of small pods not hold off a large one for ever, and is a node kept free for nothing else?"""

from __future__ import annotations

import pytest

from domain.model.colocation import QOS_CLASS_OF, Quality, UseByQuality
from domain.model.events import NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.pods import COLOCATION_PROFILE
from domain.model.usage import NodeUsage
from services.adapters.memory.ledger import state_of
from services.ports.log import TopicPartition
from tests.builders import Json, node_manifest, pod_group_manifest, pod_manifest
from tests.property.site import Site, audit, planner_at
from tests.unit.streams import SMALL, WAIT_SECONDS, Stream, large
from tests.values import node, pod, template


def test_without_a_reservation_a_large_pod_starves() -> None:
    stream = Stream(wait_seconds=0)
    stream.tell(large())
    assert stream.until_placed("large", 600) is None


def test_a_node_is_kept_free_for_a_large_pod_after_a_while() -> None:
    stream = Stream()
    stream.tell(large())
    took = stream.until_placed("large", 600)
    assert took is not None
    assert WAIT_SECONDS < took < WAIT_SECONDS + 20
    ((name, node_name),) = stream.promised
    assert (name, stream.ended) == ("large", [])
    assert stream.scheduler.state.pods["default/large"].node == node_name


def test_one_at_a_time_and_the_highest_priority_first() -> None:
    stream = Stream()
    stream.tell(large("old"), large("high", priority=5), large("young"))
    for name in ("high", "old", "young"):
        assert stream.until_placed(name, 120) is not None, name
        stream.tell(PodDeleted("default", name))
    assert [name for name, _ in stream.promised] == ["high", "old", "young"]


def test_a_pod_that_no_node_could_hold_has_none_and_keeps_it_from_nobody() -> None:
    stream = Stream()
    stream.tell(PodUpserted(pod("huge", template(5_000, priority=9))), large())
    assert stream.until_placed("large", 120) is not None
    assert {name for name, _ in stream.promised} == {"large"}


def test_room_on_another_node_ends_it() -> None:
    stream = Stream()
    stream.tell(large())
    while not stream.promised:
        assert stream.until_placed("large", 1) is None
    stream.tell(NodeUpserted(node("c", cpu=12_000)))
    took = stream.until_placed("large", 15)
    assert took is not None
    assert stream.ended == ["elsewhere"]
    assert stream.scheduler.state.pods["default/large"].node == "c"


def test_a_node_that_can_hold_the_pod_no_longer_is_kept_no_longer() -> None:
    stream = Stream()
    stream.tell(large())
    while not stream.promised:
        stream.second()
    ((_, kept),) = stream.promised
    stream.tell(NodeUpserted(node(kept, cpu=3_000, version=2)))
    stream.second()
    stream.second()
    assert stream.ended == ["not-held"]


def test_who_is_more_important_is_not_held_off() -> None:
    stream = Stream()
    stream.tell(large())
    while not stream.promised:
        stream.second()
    stream.tell(PodUpserted(pod("urgent", template(1_000, priority=1))))
    assert stream.until_placed("urgent", 2) is not None


def test_nothing_is_kept_for_pods_that_are_placed_in_time() -> None:
    stream = Stream()
    for _ in range(120):
        stream.second()
    assert stream.promised == []


def test_a_low_pod_may_have_a_node_kept_free_just_before_low_pods_have_their_turn() -> None:
    """It is awake, as its node has room when the cycle begins, and a pod of the lane before takes that."""
    stream = Stream(preempts=True)
    stream.tell(NodeUpserted(node("idle", pods=1)), PodUpserted(pod("first", SMALL, on="idle")))
    low = template(profile=COLOCATION_PROFILE, qos_class=QOS_CLASS_OF[Quality.LOW], priority=1)
    stream.tell(PodUpserted(pod("low", low)))
    stream.tell(NodeUsed(NodeUsage(node="idle", at_ms=stream.now_ms, quality=UseByQuality())))
    for _ in range(WAIT_SECONDS):
        stream.second()
    stream.come()
    stream.tell(PodDeleted("default", "first"))
    stream.second()
    assert stream.promised == [("low", "idle")]


@pytest.mark.parametrize("count", [1, 2])
def test_a_replay_keeps_the_same_node_free_at_the_same_time(count: int) -> None:
    """For a pod or a gang. Cycles without a trace are not in the journal: they must decide nothing later."""
    first, again = Site(), Site()
    for site in (first, again):
        state = state_of(site.database, site.leases)
        settings = {"seed": 3, "backoff_ms": (1_000, 10_000), "reservation_seconds": 10}
        site.planner = planner_at(site.leases, state, **settings)

    def live(events: list[tuple[str, Json, int]]) -> None:
        fresh = records = first.records(events)
        for _ in range(9):
            if (batch := first.planner.plan(fresh)) is not None:
                first.database.apply(batch)
                ends, until_ms = first.planner.positions(), batch.offsets.log_time_ms
                told = [r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)]]
                records = records[len(told) :]
                again.database.apply(again.planner.plan_batch(told, is_recorded=True, until_ms=until_ms))
            fresh = []

    def small(number: int) -> Json:
        return pod_manifest(f"small-{number}", cpu="1")

    at_ms = 1_700_000_000_000
    live([("ADDED", node_manifest("n", cpu=4), at_ms)])
    live([("ADDED", small(i), at_ms) for i in range(4)])
    labels = {"scheduling.x-k8s.io/pod-group": "gang"} if count > 1 else {}  # all are of one shard
    large = [pod_manifest(name, cpu=str(4 // count), labels=labels) for name in ("large", "other")[:count]]
    live([("ADDED", each, at_ms) for each in (pod_group_manifest("gang", 2), *large)])
    for number in range(4, 60):
        at_ms += 700
        live([("ADDED", small(number), at_ms)])
        placed = [row.opened.name for row in first.database.open_placements.values()]
        if "large" not in placed:
            live([("DELETED", pod_manifest(min(placed, key=lambda e: int(e[6:])), cpu="1"), at_ms)])
    promised = [each for each in first.decided() if each["outcome"] == "nominated"]
    told = {each["pod"]["name"]: each["reason"] for each in promised}
    for each in large:
        assert told[each["metadata"]["name"]].startswith("n is kept free for it; ")
    assert "large" in {each["pod"]["name"] for each in first.decided() if each["outcome"] == "bound"}
    assert again.database.decisions == first.database.decisions
    audit(first)
