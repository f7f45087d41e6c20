"""Does a worker take what others did as theirs, and answer for its own pods alone?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.model.errors import Fenced
from domain.model.events import NodeDeleted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.marks import PortMark
from domain.model.nodes import NodeSpec
from domain.model.pods import PodLife, PodSpec
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.usage import NodeUsage
from domain.state.changes import (
    Change,
    FollowRefused,
    NodeChanged,
    NodeMeasured,
    PodAdopted,
    PodOrphaned,
    PodReturned,
    Refused,
)
from domain.state.cluster import ClusterState
from domain.state.digest import digest_of
from domain.state.steps import (
    NodeFollowed,
    Owned,
    PodFollowedRefreshed,
    PodsFollowed,
    PodsFollowedCounted,
    PodsLeft,
    VersionsFollowed,
    Written,
)
from services.codec.feed import unpack_event
from services.ports.journal import Feed, Followed
from services.worker.batch import BatchBuilder
from services.worker.follow.events import SAID_MAX, as_folded, take_followed
from services.worker.ledger_view import LedgerView
from tests.property.site import Site
from tests.values import node, pod, template

OWN, FOREIGN, THIRD = 0, 1, 2
BIG = template(3_000, priority=5)
SHORT = msgspec.structs.replace(node("n"), usage_window_seconds=60)


@pytest.fixture
def state() -> ClusterState:
    state = ClusterState(seed=7)
    state.apply(Owned(frozenset((OWN,)), 3))
    return state


def seen(spec: NodeSpec, ordinal: int = 4, changes: int = 1, *, deleted: bool = False) -> NodeFollowed:
    """Return that another worker wrote a node's spec."""
    return NodeFollowed(
        name=spec.name, ordinal=ordinal, changes=changes, spec=spec, deleted=deleted, spec_count=1
    )


def come(*pods: PodSpec, on: str, shard: int = FOREIGN, uncounted: Sequence[PodSpec] = ()) -> PodsFollowed:
    """Return that pods of another worker were placed on a node."""
    count = len(pods)
    return PodsFollowed(
        pods=pods,
        nodes=[on] * count,
        adopted=[False] * count,
        shards=[shard] * count,
        uncounted=frozenset(each.uid for each in uncounted),
    )


def own_facts(state: ClusterState) -> dict[str, tuple[int, dict[str, int]]]:
    """Return what own events changed of nodes since the last batch: how often, and by how much."""
    return {fact.name: (fact.changes, dict(fact.delta)) for fact in state.own_changes.facts()}


def counts(state: ClusterState, name: str) -> tuple[int, list[str]]:
    """Return a node's version, and the pods that its row begins to count with the next batch."""
    return state.nodes[name].version, state.own_changes.counted


def test_pods_of_others_count_and_are_no_change_of_ones_own(state: ClusterState) -> None:
    assert state.apply(seen(node("n"))) == ()
    ports = template(1_000, 0, 80)
    assert state.apply(come(pod("a", ports), pod("b"), on="n")) == ()
    assert state.requested_of("n")["cpu"] == 1_100
    assert state.index.nodes_with(PortMark(80, "TCP", "any")) == {"n": 1}
    state.improved_rows.clear()
    assert state.apply(PodsLeft([pod("a").uid])) == ()
    assert state.requested_of("n")["cpu"] == 100
    assert state.index.nodes_with(PortMark(80, "TCP", "any")) == {}
    assert state.improved_rows == {0}
    assert state.nodes["n"].version == 1, "the version is the journal's, and it said nothing of pods yet"
    assert own_facts(state) == {}
    assert len(state.tombstones) == 0
    assert state.apply(NodeFollowed(name="n", ordinal=4, changes=3)) == ()
    assert (state.nodes["n"].version, state.nodes["n"].spec_count) == (4, 1)


def test_own_pods_are_orphaned_and_return_with_a_node_of_others(state: ClusterState) -> None:
    state.apply(seen(node("n")))
    state.apply(PodUpserted(pod("own", on="n")), OWN)
    state.apply(come(pod("other"), on="n"))
    gone = state.apply(seen(node("n", version=2), changes=2, deleted=True))
    own = state.pods["default/own"].spec
    assert gone == (PodOrphaned(own, "n", 4, ("node-deleted",)),)
    assert "n" not in state.table.rows
    assert state.requested_of("n")["cpu"] == 200
    back = state.apply(seen(node("n", version=3)))
    assert back == (PodReturned(own, "n", 5, ()),)
    assert int(state.table.requested[0, 0]) == 200
    assert state.apply(seen(node("n", cpu=5_000, version=4))) == ()


def test_pods_of_others_are_not_told_what_became_of_ones_own_node(state: ClusterState) -> None:
    state.apply(NodeUpserted(node("n")), OWN)
    state.apply(come(pod("other"), on="n"))
    assert state.apply(NodeDeleted("n"), OWN) == (NodeChanged("n"),)
    assert state.apply(NodeUpserted(node("n", version=2)), OWN) == (NodeChanged("n"),)


def test_own_pods_begin_to_count_when_another_tells_of_their_node(state: ClusterState) -> None:
    early, other = pod("early", on="n"), pod("other")
    (adopted,) = state.apply(PodUpserted(early), OWN)
    assert isinstance(adopted, PodAdopted)
    assert adopted.node_version is None
    state.apply(come(other, on="n", uncounted=[other]))
    assert own_facts(state) == {}
    assert state.apply(seen(node("n"), changes=5)) == ()
    assert counts(state, "n") == (6, [early.uid])
    assert own_facts(state) == {"n": (1, {"cpu": 100, "memory": 1 << 30, "pods": 1})}
    assert dict(state.uncounted) == {other.key: "n"}
    state.apply(PodsFollowedCounted([other.uid]))
    assert dict(state.uncounted) == {}


def test_a_new_row_counts_own_pods_by_the_change_that_makes_it(state: ClusterState) -> None:
    early, other = pod("early", on="n"), pod("other")
    state.apply(PodUpserted(early), OWN)
    state.apply(come(other, on="n", uncounted=[other]))
    changes = state.apply(NodeUpserted(node("n")), OWN)
    assert changes == (NodeChanged("n"),)
    assert counts(state, "n") == (1, [early.uid])
    assert own_facts(state) == {"n": (1, {"cpu": 100, "memory": 1 << 30, "pods": 1})}
    assert state.requested_of("n")["cpu"] == 200


def test_who_takes_a_shard_counts_what_its_owner_did_not(state: ClusterState) -> None:
    first, second = pod("first"), pod("second")
    state.apply(NodeUpserted(node("n")), OWN)
    state.apply(Written())
    state.apply(come(first, on="n", uncounted=[first]))
    state.apply(come(second, on="n", shard=THIRD, uncounted=[second]))
    state.apply(Owned(frozenset((OWN, FOREIGN)), 3))
    assert counts(state, "n") == (2, [first.uid])
    assert own_facts(state) == {"n": (1, {"cpu": 100, "memory": 1 << 30, "pods": 1})}
    assert dict(state.uncounted) == {second.key: "n"}


def test_who_takes_a_shard_tells_its_pods_what_nobody_told_them(state: ClusterState) -> None:
    """The node went while nobody held the shard, or before its owner had followed that."""
    first, second = pod("first"), pod("second")
    state.apply(seen(node("n")))
    state.apply(come(second, first, on="n"))
    assert state.apply(seen(node("n", version=2), deleted=True)) == ()
    both = Owned(frozenset((OWN, FOREIGN)), 3)
    reasons = ("node-deleted",)
    assert state.apply(both) == (PodOrphaned(first, "n", 2, reasons), PodOrphaned(second, "n", 2, reasons))
    assert state.apply(both) == ()
    assert state.apply(seen(node("n", version=3))) == (
        PodReturned(first, "n", 3, ()),
        PodReturned(second, "n", 3, ()),
    )


def test_who_takes_a_shard_tells_its_pods_no_more_than_that(state: ClusterState) -> None:
    """Its owner before had told one pod already that the node is gone."""
    first, second = pod("first"), pod("second")
    state.apply(seen(node("n")))
    state.apply(come(first, second, on="n"))
    state.apply(seen(node("n", version=2), deleted=True))
    changes = state.apply(Owned(frozenset((OWN, FOREIGN)), 3, [first.key]))
    assert [type(each) for each in changes] == [PodOrphaned]
    assert set(state.orphaned) == {first.key, second.key}
    assert state.apply(Owned(frozenset((OWN,)), 3)) == ()
    assert not state.orphaned
    assert state.apply(seen(node("n", version=3))) == ()
    assert state.apply(Owned(frozenset((OWN, FOREIGN)), 3, [first.key])) == (PodReturned(first, "n", 3, ()),)
    assert not state.orphaned


def test_a_pod_adopted_on_a_node_that_is_gone_is_told_that_it_is_back(state: ClusterState) -> None:
    late = pod("late", on="n")
    state.apply(NodeUpserted(node("n")), OWN)
    state.apply(NodeDeleted("n"), OWN)
    state.apply(PodUpserted(late), OWN)
    assert set(state.orphaned) == {late.key}
    back = state.apply(NodeUpserted(node("n", version=2)), OWN)
    assert [type(each) for each in back] == [NodeChanged, PodReturned]
    state.apply(NodeDeleted("n"), OWN)
    state.apply(PodDeleted("default", "late"), OWN)
    assert not state.orphaned


def test_what_is_not_counted_stays_so_with_the_shard_that_is_given(state: ClusterState) -> None:
    state.apply(PodUpserted(pod("p", on="n")), OWN)
    digest = digest_of(state)
    assert state.apply(Owned(frozenset(), 3)) == ()
    assert dict(state.uncounted) == {"default/p": "n"}
    assert state.apply(seen(node("n"))) == ()
    state.apply(Owned(frozenset((OWN,)), 3))
    assert counts(state, "n") == (2, [pod("p").uid])
    assert digest_of(state) != digest


def test_a_restored_pod_that_is_not_counted_is_as_it_was(state: ClusterState) -> None:
    state.apply(PodUpserted(pod("p", on="n")), OWN)
    again = ClusterState(seed=7)
    again.apply(Owned(frozenset((OWN,)), 3))
    again.restore_pod(pod("p", on="n"), node="n", adopted=True, shard=OWN, counted=False)
    assert digest_of(again) == digest_of(state)
    late = ClusterState(seed=7)
    late.restore_node(name="n", ordinal=4, version=3, spec=node("n"), deleted=False)
    late.restore_pod(pod("p", on="n"), node="n", adopted=True, shard=FOREIGN, counted=False)
    late.apply(Owned(frozenset((FOREIGN,)), 3))
    assert counts(late, "n") == (4, [pod("p").uid])


def test_a_refreshed_pod_of_another_has_its_new_labels(state: ClusterState) -> None:
    state.apply(seen(node("n")))
    state.apply(come(pod("p"), on="n"))
    life = PodLife(terminating=True)
    assert state.apply(PodFollowedRefreshed(pod("p").uid, 9, {"app": "web"}, life)) == ()
    expected = msgspec.structs.replace(pod("p"), resource_version=9, labels={"app": "web"}, terminating=True)
    assert state.pods["default/p"].spec == expected


def test_what_others_took_away_leaves_nothing_in_the_sums(state: ClusterState) -> None:
    state.apply(seen(node("n")))
    state.apply(come(pod("before", template(limits={"cpu": 900}, requests={"x/y": 2})), on="n"))
    state.apply(NodeUsed(NodeUsage(node="n", at_ms=5, percent={"cpu": 50.0})))
    state.apply(come(pod("after"), on="n"))
    state.apply(come(pod("nowhere"), on="m"))
    state.apply(PodsLeft([pod(name).uid for name in ("after", "before", "nowhere")]))
    assert not state.table.requested[:, 0].any()
    assert state.requested_of("n") == {}
    assert (state.nodes["n"].pods, state.nodes["n"].elsewhere, state.nodes["n"].recent) == ({}, {}, set())
    assert "m" not in state.nodes
    assert state.pods == {}


def refusal(changes: tuple[Change, ...]) -> str:
    (refused,) = changes
    assert isinstance(refused, FollowRefused)
    return refused.message


def test_what_contradicts_is_passed_over_and_named(state: ClusterState) -> None:
    state.apply(seen(node("n")))
    state.apply(PodUpserted(pod("own")), OWN)
    before = digest_of(state)
    for changes, message in (
        (state.apply(come(pod("p"), on="n", shard=OWN)), "is of shard 0"),
        (state.apply(come(pod("own"), on="n")), "is known as a pod of shard 0"),
        (state.apply(come(pod("p", uid=pod("own").uid), on="n")), "has the uid of default/own"),
        (state.apply(PodsLeft([pod("own").uid])), "left, and is no known pod"),
        (state.apply(PodsLeft(["never"])), "left, and is no known pod"),
        (
            state.apply(PodFollowedRefreshed(pod("own").uid, 2, {}, None)),
            "was refreshed, and is no known pod",
        ),
        (state.apply(NodeFollowed(name="m", ordinal=5, changes=1)), "is not known here"),
        (state.apply(VersionsFollowed(["m"], [1])), "is not known here"),
        (state.apply(seen(node("n"), ordinal=5)), "has the id 5 there, and 4 here"),
        (state.apply(seen(node("m", extended={f"x/{i}": 1 for i in range(9_999)}))), "brings more names"),
    ):
        assert message in refusal(changes)
    assert digest_of(state) == before
    assert "m" not in state.nodes


def test_a_flood_of_what_contradicts_is_counted_and_not_all_of_it_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site, book = Site(), LedgerView()
    builder = BatchBuilder(site.planner.scheduler, book, 0)
    for number in range(SAID_MAX + 100):
        take_followed(FollowRefused("pod", f"default/p-{number}", "is known here"), builder, book)
    assert book.refused_count == SAID_MAX + 100
    assert len(caplog.messages) == SAID_MAX + 1
    assert "berth_worker_follow_refused_total" in caplog.messages[-1]


def test_no_record_of_ones_own_touches_a_pod_of_another(state: ClusterState) -> None:
    state.apply(seen(node("n")))
    state.apply(come(pod("p"), on="n"))
    for event in (PodUpserted(pod("p", version=5, finished=True)), PodDeleted("default", "p")):
        (refused,) = state.apply(event, OWN)
        assert isinstance(refused, Refused)
        assert refused.code == "other-shard"
    assert state.requested_of("n")["pods"] == 1


@pytest.mark.parametrize("own", [0, 1])
def test_the_owner_of_what_is_measured_hears_that_a_node_went_and_so_does_its_home(own: int) -> None:
    state = ClusterState(seed=7)
    state.apply(Owned(frozenset((own,)), 3))
    for name, ordinal in (("n", 1), ("m", 2)):
        state.apply(seen(node(name), ordinal))
        state.apply(NodeUsed(NodeUsage(node=name, at_ms=5, percent={"cpu": 50.0})))
    dropped = () if own else (NodeMeasured("n"),)
    assert state.apply(seen(node("n", version=2), 1, deleted=True)) == dropped
    told = state.apply(NodeDeleted("m"), own)
    assert told == (NodeChanged("m"), NodeMeasured("m"))


def bound(scheduler: Scheduler) -> list[str]:
    return [v.pod.name for v in scheduler.cycle().verdicts if isinstance(v, Placement)]


@pytest.mark.parametrize("was_gone", [False, True])
def test_what_was_measured_of_a_node_before_it_was_known_ends_as_it_comes_and_goes(
    state: ClusterState, was_gone: bool
) -> None:
    """It came and went in one batch of another worker, whose own state forgot the measurement."""
    state.apply(NodeUsed(NodeUsage(node="n", at_ms=5, percent={"cpu": 50.0})))
    told = msgspec.structs.replace(seen(node("n"), changes=2, deleted=not was_gone), was_gone=was_gone)
    assert state.apply(told) == (NodeMeasured("n"),)
    assert (state.usage.known(), state.usage.unknown) == ({}, set())


@pytest.mark.parametrize("of_owner", [node("n", 4_000), SHORT])
@pytest.mark.parametrize("known", [None, node("n", 8_000), SHORT])
def test_who_follows_a_measurement_has_it_as_its_owner_folded_it(
    known: NodeSpec | None, of_owner: NodeSpec
) -> None:
    """Here the node has another size or window by then, or is not known at all."""
    owner, follower = ClusterState(seed=7), ClusterState(seed=7)
    owner.apply(seen(of_owner))
    if known is not None:
        follower.apply(seen(known))
    for at_ms in (5, 100_000):
        event = NodeUsed(NodeUsage(node="n", at_ms=at_ms, used={"cpu": 2_000}))
        told = as_folded(event, owner.apply(event))
        assert isinstance(told, NodeUsed)
        again = unpack_event("NodeUsed", msgspec.msgpack.encode(told))
        assert isinstance(again, NodeUsed)
        follower.apply(again)
    assert follower.usage.known() == owner.usage.known() != {}
    assert follower.usage.measured == owner.usage.measured == {"n": {"cpu": ANY}}


def test_room_that_another_made_wakes_who_waits() -> None:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    scheduler.fold(Owned(frozenset([OWN]), 3))
    scheduler.fold(seen(node("n", cpu=4_000)))
    scheduler.fold(come(pod("other", BIG), on="n"))
    scheduler.fold(PodUpserted(pod("p", BIG)), OWN)
    assert bound(scheduler) == []
    assert not scheduler.has_work
    scheduler.fold(PodsLeft([pod("other").uid]))
    assert bound(scheduler) == ["p"]
    scheduler.fold(PodUpserted(pod("q", BIG)), OWN)
    assert bound(scheduler) == []
    scheduler.fold(seen(node("m", cpu=4_000), ordinal=8))
    assert bound(scheduler) == ["q"]


def test_a_host_port_that_another_took_is_taken() -> None:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    scheduler.fold(Owned(frozenset([OWN]), 3))
    ports = template(100, 0, 80)
    scheduler.fold(seen(node("n")))
    scheduler.fold(PodUpserted(pod("p", template(100))), OWN)
    assert bound(scheduler) == ["p"]
    scheduler.fold(come(pod("other", ports), on="n"))
    scheduler.fold(PodUpserted(pod("q", ports)), OWN)
    assert bound(scheduler) == []
    scheduler.fold(PodsLeft([pod("other").uid]))
    assert bound(scheduler) == ["q"]


def test_who_follows_decisions_of_a_shard_of_its_own_has_lost_that() -> None:
    """A worker that stood still reads what the next owner did before it hears of that owner."""
    planner = Site().planner
    ((shard, batch),) = planner.give_shards([1]).items()
    told: dict[str, Any] = {"position": 1, "log_time_ms": 0, "feed": Feed(), "templates": {}}
    with pytest.raises(Fenced):
        planner.plan([], followed=[Followed(shard=shard, batch=batch + 1, seqs={0: (1, 3)}, **told)])
