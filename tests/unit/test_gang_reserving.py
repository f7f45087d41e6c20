"""Does a stream of small pods not hold off a gang for ever, and is what it needs kept free as a whole?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from domain.model.colocation import QOS_CLASS_OF, Quality, UseByQuality
from domain.model.config import POD_GROUP, PodGroup
from domain.model.events import (
    ConfigUpserted,
    Event,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
)
from domain.model.limits import reservation_lasts_seconds
from domain.model.pods import COLOCATION_PROFILE
from domain.model.usage import NodeUsage
from tests.unit.streams import SMALL, WAIT_SECONDS, Stream, large
from tests.values import node, pod, template


def group(name: str, least: int, version: int = 1, **of: object) -> Event:
    spec = PodGroup(min_member=least, **of)  # type: ignore[arg-type]
    return ConfigUpserted(POD_GROUP, "default", name, spec, version)


def members(name: str, count: int, *, cpu: int = 4_000, priority: int = 0) -> list[Event]:
    of = template(cpu, priority=priority, gang=f"default/{name}")
    return [PodUpserted(pod(f"{name}-{i}", of)) for i in range(count)]


def gang(name: str = "g", least: int = 2, *, priority: int = 0) -> list[Event]:
    """Return a gang of which each pod needs a whole node."""
    return [group(name, least), *members(name, least, priority=priority)]


def promised(stream: Stream) -> Stream:
    """Let time pass until something is promised."""
    for _ in range(2 * WAIT_SECONDS):
        if stream.promised:
            return stream
        stream.second()
    raise AssertionError("nothing is promised")


def kept_for(stream: Stream) -> Mapping[str, str]:
    """Return which node is promised to whom now."""
    return {key.partition("/")[2]: e.node for key, e in stream.scheduler.state.nominations.entries.items()}


def names(stream: Stream) -> Sequence[str]:
    return [name for name, _ in stream.promised]


def test_without_a_reservation_a_gang_starves() -> None:
    stream = Stream(wait_seconds=0)
    stream.tell(*gang())
    assert stream.until_placed("g-0", 600) is None


def test_nodes_are_kept_free_for_a_gang_after_a_while() -> None:
    stream = Stream()
    stream.tell(*gang())
    took = stream.until_placed("g-0", 600)
    assert took is not None
    assert WAIT_SECONDS < took < WAIT_SECONDS + 20
    assert sorted(name for name, _ in stream.promised) == ["g-0", "g-1"]
    assert {name: stream.scheduler.state.pods[f"default/{name}"].node for name in ("g-0", "g-1")} == dict(
        stream.promised
    )
    assert stream.ended == []


def test_small_pods_use_what_is_not_kept_free() -> None:
    stream = Stream()
    stream.tell(NodeUpserted(node("c")), *gang())
    promised(stream)
    (other,) = {"a", "b", "c"} - {node_name for _, node_name in stream.promised}
    before = {entry.spec.key for entry in stream.scheduler.state.pods.values() if entry.node == other}
    assert stream.until_placed("g-0", 20) is not None
    after = {entry.spec.key for entry in stream.scheduler.state.pods.values() if entry.node == other}
    assert after - before, "small pods came to the third node meanwhile"


def test_only_nodes_that_it_needs_are_kept_free() -> None:
    """One pod of the gang goes beside small ones, and beyond the least number nothing is kept."""
    stream = Stream()
    stream.tell(group("g", 1), *members("g", 3))
    promised(stream)
    assert len(kept_for(stream)) == 1
    assert stream.until_placed(stream.promised[0][0], 20) is not None
    for _ in range(3 * WAIT_SECONDS):
        stream.second()
    assert len(stream.promised) == 1, "the gang has its least number"


@pytest.mark.parametrize("order", [("g", "large"), ("large", "g"), ("g", "h")])
def test_one_reservation_at_a_time_of_either_kind_the_oldest_first(order: tuple[str, str]) -> None:
    stream = Stream()
    for name in order:
        stream.tell(*([large()] if name == "large" else gang(name)))
        stream.second()
    first, last = (["large"] if name == "large" else [f"{name}-0", f"{name}-1"] for name in order)
    promised(stream)
    assert sorted(kept_for(stream)) == first
    while first[0] not in stream.second():
        assert sorted(kept_for(stream)) == first, "who waits for the other has nothing"
    stream.tell(*(PodDeleted("default", name) for name in first))
    assert stream.until_placed(last[0], 120) is not None
    assert sorted(names(stream)) == sorted(first + last)
    assert stream.ended == []


def test_the_highest_priority_first() -> None:
    stream = Stream()
    stream.tell(*gang(), large("high", priority=5), *gang("h", priority=7))
    promised(stream)
    assert set(kept_for(stream)) == {"h-0", "h-1"}
    assert stream.until_placed("h-0", 60) is not None
    stream.tell(PodDeleted("default", "h-0"), PodDeleted("default", "h-1"))
    assert stream.until_placed("high", 120) is not None
    assert not {"g-0", "g-1"} & set(names(stream))


def test_an_incomplete_gang_has_none_and_keeps_it_from_nobody() -> None:
    stream = Stream()
    stream.tell(group("g", 3), *members("g", 2, priority=9), large())
    assert stream.until_placed("large", 120) is not None
    assert set(names(stream)) == {"large"}


def test_a_gang_that_lost_a_pod_before_it_had_one_waits_anew() -> None:
    stream = Stream()
    stream.tell(*gang())
    for _ in range(WAIT_SECONDS - 2):
        stream.second()
    stream.tell(PodDeleted("default", "g-1"))
    stream.second()
    stream.tell(members("g", 3)[2])
    for _ in range(WAIT_SECONDS - 2):
        stream.second()
    assert not stream.promised
    promised(stream)


@pytest.mark.parametrize("name", ["big", "vast"])
def test_a_gang_that_could_not_start_has_none_and_keeps_it_from_nobody(name: str) -> None:
    stream = Stream()
    if name == "big":
        stream.tell(*gang("big", 3, priority=9))
    else:
        stream.tell(group("vast", 2, min_resources={"cpu": 9_000}), *members("vast", 2, priority=9))
    stream.tell(large())
    assert stream.until_placed("large", 120) is not None
    assert set(names(stream)) == {"large"}


def test_more_hopeless_ones_than_are_looked_at_a_second_keep_it_from_nobody() -> None:
    stream = Stream()
    for i in range(9):
        stream.tell(*gang(f"h{i}", 3 + i, priority=9))
    stream.tell(large())
    assert stream.until_placed("large", 120) is not None


def test_a_gang_does_not_wait_for_its_own_pods() -> None:
    stream = Stream()
    stream.tell(NodeUpserted(node("c")), group("g", 2))
    own = template(4_000, gang="default/g")
    stream.tell(PodUpserted(pod("g-9", own, on="c")), *members("g", 1))
    promised(stream)
    assert kept_for(stream)["g-0"] in ("a", "b"), "on c one pod alone would have to leave"
    assert stream.until_placed("g-0", 20) is not None


def test_a_gang_that_only_its_own_pods_are_in_the_way_of_has_none() -> None:
    stream = Stream()
    stream.tell(NodeUpserted(node("c", cpu=8_000)), group("g", 2))
    own = template(8_000, gang="default/g")
    stream.tell(PodUpserted(pod("g-9", own, on="c")), *members("g", 1, cpu=8_000))
    stream.tell(large())
    for _ in range(2 * WAIT_SECONDS):
        stream.second()
    assert set(names(stream)) == {"large"}


def test_room_for_all_of_it_ends_it() -> None:
    stream = Stream()
    stream.tell(*gang())
    promised(stream)
    stream.tell(NodeUpserted(node("c", cpu=12_000)))
    assert stream.until_placed("g-0", 15) is not None
    assert stream.ended == ["elsewhere", "elsewhere"]
    assert stream.scheduler.state.pods["default/g-1"].node == "c"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("cordon", "not-held"),
        ("smaller", "not-held"),
        ("node", "node-deleted"),
        ("member", "released"),
        ("group", "gang-changed"),
        ("room", "not-held"),
    ],
)
def test_all_of_it_ends_together(what: str, reason: str) -> None:
    stream = Stream()
    stream.tell(*gang())
    promised(stream)
    node_name = kept_for(stream)["g-0"]
    if what == "cordon":
        stream.tell(NodeUpserted(node(node_name, version=2, unschedulable=True)))
    elif what == "smaller":
        stream.tell(NodeUpserted(node(node_name, cpu=3_000, version=2)))
    elif what == "node":
        stream.tell(NodeDeleted(node_name))
    elif what == "member":
        stream.tell(PodDeleted("default", "g-0"))
    elif what == "group":
        stream.tell(group("g", 3, 2))
    else:
        stream.tell(*(PodUpserted(pod(f"top-{i}", template(500, priority=9))) for i in range(9)))
    stream.second()
    stream.second()
    assert stream.ended[0] == reason
    assert not kept_for(stream), "it waits anew"


def test_a_node_that_has_room_for_only_some_of_its_pods_is_kept_no_longer() -> None:
    stream = Stream()
    stream.tell(NodeUpserted(node("c", cpu=100)), group("g", 4), *members("g", 4, cpu=2_000))
    promised(stream)
    assert sorted(kept_for(stream).values()) == ["a", "a", "b", "b"]
    stream.tell(NodeUpserted(node("a", cpu=3_000, version=2)))
    stream.second()
    stream.second()
    assert stream.ended[:1] == ["not-held"]


def test_it_ends_when_its_time_is_over_and_the_next_has_its_turn() -> None:
    stream = Stream()
    stream.tell(*gang(), *gang("h"))
    promised(stream)
    stream.running.clear()  # nobody leaves any more
    for _ in range(reservation_lasts_seconds + 2):
        stream.second()
    assert set(stream.ended) == {"expired"}
    assert set(names(stream)) == {"g-0", "g-1", "h-0", "h-1"}


def test_who_is_more_important_is_not_held_off() -> None:
    stream = Stream()
    stream.tell(*gang())
    promised(stream)
    stream.tell(PodUpserted(pod("urgent", template(1_000, priority=1))))
    assert stream.until_placed("urgent", 2) is not None


def test_nodes_of_one_domain_are_kept_free_for_a_gang_that_asks_for_one() -> None:
    stream = Stream()
    racks = {"a": "r0", "b": "r1", "c": "r0", "d": "r1"}
    stream.tell(*(NodeUpserted(node(n, version=2, labels={"rack": rack})) for n, rack in racks.items()))
    for _ in range(8):
        stream.come()
    stream.cycle()
    stream.tell(group("g", 2, topology_key="rack"), *members("g", 2))
    promised(stream)
    assert len({racks[node_name] for node_name in kept_for(stream).values()}) == 1
    assert stream.until_placed("g-0", 60) is not None


def test_beside_preemption_nobody_is_evicted_for_it() -> None:
    stream = Stream(preempts=True)
    stream.tell(PodUpserted(pod("least", template(100, priority=-5))), *gang())
    assert stream.until_placed("g-0", 120) is not None


def test_a_pod_that_may_not_preempt_may_be_in_a_gang_that_has_one() -> None:
    stream = Stream(preempts=True)
    of = template(4_000, gang="default/g", preemption_policy="Never", priority=3)
    stream.tell(group("g", 2), *(PodUpserted(pod(f"g-{i}", of)) for i in range(2)))
    assert stream.until_placed("g-0", 120) is not None
    assert SMALL.priority < of.priority


def test_a_gang_of_low_pods_may_have_nodes_kept_free_just_before_low_pods_have_their_turn() -> None:
    """It is awake, as its nodes have room when the cycle begins, and pods of the lane before take that."""
    stream, quality = Stream(preempts=True), UseByQuality()
    config, *_ = gang()
    low = template(profile=COLOCATION_PROFILE, qos_class=QOS_CLASS_OF[Quality.LOW], gang="default/g")
    for number in range(2):
        stream.tell(NodeUpserted(node(f"idle-{number}", cpu=1_000, pods=1)))
        stream.tell(PodUpserted(pod(f"first-{number}", SMALL, on=f"idle-{number}")))
    stream.tell(config, *(PodUpserted(pod(f"g{number}", low)) for number in range(2)))
    for _ in range(WAIT_SECONDS):
        stream.second()
    for number in range(2):
        stream.tell(NodeUsed(NodeUsage(node=f"idle-{number}", at_ms=stream.now_ms, quality=quality)))
        stream.come()
        stream.tell(PodDeleted("default", f"first-{number}"))
    stream.second()
    assert sorted(stream.promised) == [("g0", "idle-0"), ("g1", "idle-1")]
