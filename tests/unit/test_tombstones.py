"""Does a pod that is gone stay gone, for as long as berth says, whatever comes late and however many go?"""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from domain.model.events import PodDeleted, PodUpserted
from domain.model.pods import PodSpec
from domain.state import tombstones as module
from domain.state.changes import Change, PodMissed, PodReleased, PodWaits, Skipped
from domain.state.cluster import ClusterState
from domain.state.digest import digest_of
from domain.state.remembering import fair_share
from domain.state.steps import Passed
from domain.state.tombstones import Tombstones
from tests.builders import node_manifest, pod_manifest
from tests.property.site import Site
from tests.values import pod

HOUR_MS = 3_600_000


@pytest.fixture
def state() -> ClusterState:
    return ClusterState(seed=7)


def put(state: ClusterState, *pods: PodSpec) -> tuple[Change, ...]:
    """Apply an event per pod and return the changes."""
    return tuple(change for each in pods for change in state.apply(PodUpserted(each)))


def _end(state: ClusterState, name: str, version: int | None = None) -> None:
    (change,) = state.apply(PodDeleted("default", name, resource_version=version))
    assert isinstance(change, PodReleased)


def test_a_late_duplicate_stays_late_after_a_million_other_pods_went(state: ClusterState) -> None:
    first = pod("p", version=1)
    put(state, first)
    _end(state, "p", 2)
    for number in range(300_000):  # more than were remembered once
        state.tombstones.add(f"default/q-{number}", f"uid-{number}", 3)
    assert put(state, first) == (Skipped("older"),)


def test_a_duplicate_without_a_version_stays_late(state: ClusterState) -> None:
    first = pod("p", version=None, uid="u")
    put(state, first)
    _end(state, "p")
    assert put(state, first) == (Skipped("known"),)
    (change,) = put(state, pod("p", version=None, uid="another"))
    assert isinstance(change, PodWaits)


def test_a_version_that_a_duplicate_lacks_brings_no_pod_back(state: ClusterState) -> None:
    first = pod("p", version=4, uid="u")
    put(state, first)
    _end(state, "p", 5)
    assert put(state, msgspec.structs.replace(first, resource_version=None)) == (Skipped("known"),)
    assert put(state, first) == (Skipped("older"),)
    (change,) = put(state, msgspec.structs.replace(first, resource_version=6))
    assert isinstance(change, PodWaits), "its producer says that it is newer than its end"


def test_a_pod_of_which_only_the_end_was_read_stays_gone(state: ClusterState) -> None:
    """The log may have lost what came before, and bring it late."""
    late = pod("p", version=3, uid="late")
    deleted = PodDeleted("default", "p", uid="late", resource_version=5)
    assert state.apply(deleted) == (PodMissed("default/p", "late", 5),)
    assert state.apply(deleted) == (Skipped(),), "it is remembered already"
    put(state, pod("p", version=7, uid="next"))
    _end(state, "p", 8)
    assert put(state, late) == (Skipped("older"),)


def test_so_does_one_that_ended_while_another_one_had_its_name(state: ClusterState) -> None:
    put(state, pod("p", version=7, uid="present"))
    deleted = PodDeleted("default", "p", uid="late", resource_version=5)
    assert state.apply(deleted) == (PodMissed("default/p", "late", 5, "other-uid"),)
    assert put(state, pod("p", version=6, uid="later", finished=True)) == (
        PodMissed("default/p", "later", 7, "older"),
    )
    assert state.apply(deleted) == (Skipped("other-uid"),)
    _end(state, "p", 8)
    assert put(state, pod("p", version=3, uid="late"), pod("p", version=4, uid="later")) == (
        Skipped("older"),
        Skipped("older"),
    )


def test_so_does_one_that_is_heard_of_when_another_one_has_its_name(state: ClusterState) -> None:
    """The log lost its events and its end; a producer sends one of them again, twice."""
    put(state, pod("p", version=7, uid="present"))
    late = pod("p", version=5, uid="late")
    assert put(state, late) == (PodMissed("default/p", "late", 7, "older"),)
    assert put(state, late) == (Skipped("older"),), "it is remembered already"
    _end(state, "p", 8)
    assert put(state, late, pod("p", version=6, uid="late")) == (Skipped("older"), Skipped("older"))


def test_a_finished_pod_that_takes_the_name_of_another_one_stays_gone(state: ClusterState) -> None:
    put(state, pod("p", version=1, uid="present"))
    released, missed = put(state, pod("p", version=7, uid="late", finished=True))
    assert isinstance(released, PodReleased)
    assert missed == PodMissed("default/p", "late", 7)
    assert put(state, pod("p", version=5, uid="late")) == (Skipped("older"),)


def test_a_deletion_without_uid_and_version_leaves_nothing(state: ClusterState) -> None:
    assert state.apply(PodDeleted("default", "p")) == (Skipped(),)
    assert len(state.tombstones) == 0


def test_the_ledger_keeps_pods_of_which_only_the_end_was_read() -> None:
    site = Site()
    gone = pod_manifest("p", cpu=1, uid="late", resource_version=5)
    site.tell("DELETED", gone)
    site.planner = site.restarted()
    site.tell("ADDED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": "3"}})
    assert site.planner.scheduler.state.pods == {}


def test_a_name_without_uid_and_version_may_come_again(state: ClusterState) -> None:
    first = pod("p", version=None, uid="default/p")
    for _ in range(2):
        (change,) = put(state, first)
        assert isinstance(change, PodWaits)
        _end(state, "p")


def test_time_forgets_and_nothing_else(state: ClusterState) -> None:
    first, second = pod("p", version=1), pod("q", version=1)
    state.apply(Passed(10 * HOUR_MS, 0))
    put(state, first, second)
    _end(state, "p", 2)
    state.apply(Passed(11 * HOUR_MS, HOUR_MS))
    _end(state, "q", 2)
    state.apply(Passed(20 * HOUR_MS, 10 * HOUR_MS))
    assert put(state, first) == put(state, second) == (Skipped("older"),)
    state.apply(Passed(21 * HOUR_MS, 11 * HOUR_MS))
    (change,) = put(state, first)
    assert isinstance(change, PodWaits)
    assert put(state, second) == (Skipped("older"),)


def test_the_digest_sees_when_a_pod_went(state: ClusterState) -> None:
    other = ClusterState(seed=7)
    state.tombstones.add("a/b", "u", 1, 5)
    other.tombstones.add("a/b", "u", 1, 6)
    assert digest_of(state) != digest_of(other)


def test_a_flood_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tombstones_max", 160)
    gone = Tombstones()
    for number in range(200):
        gone.add("default/p", str(number), 1)
    assert len(gone) + gone.lost_count == 200
    assert 140 <= len(gone) <= 160
    assert gone.why_late("default/p", "199", 1)
    assert not gone.why_late("default/p", "0", 1)


def test_a_flood_of_one_namespace_lets_none_of_another_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tombstones_max", 160)
    gone = Tombstones()
    for name in ("desk/p", "shop/p", "node"):
        gone.add(name, "first", 1)
    for number in range(1_000):
        gone.add("default/p", str(number), 1)
        assert len(gone) <= 160
    assert all(gone.why_late(name, "first", 1) for name in ("desk/p", "shop/p", "node"))
    assert gone.why_late("default/p", "999", 1)


def test_of_more_namespaces_than_there_is_room_for_those_that_came_first_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "tombstones_max", 16)
    gone = Tombstones()
    for number in range(100):
        gone.add(f"n{number}/p", "u", 1)
        assert len(gone) <= 16
    assert gone.why_late("n99/p", "u", 1)
    assert not gone.why_late("n0/p", "u", 1)


@pytest.mark.parametrize(
    ("counts", "most", "share"),
    [((), 5, 5), ((3, 4), 7, 4), ((3, 4), 6, 3), ((1, 100), 10, 9), ((100, 1, 100), 11, 5), ((1, 1), 1, 0)],
)
def test_the_largest_shares_are_cut_and_no_others(counts: tuple[int, ...], most: int, share: int) -> None:
    assert fair_share(counts, most) == share


def test_a_tombstone_takes_no_more_memory_than_the_docs_say() -> None:
    gone = Tombstones()
    tracemalloc.start()
    try:
        for number in range(50_000):
            gone.add(f"namespace-of-a-team/pod-{number:06}", f"{number:036}", number)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / 50_000 < 260


def test_a_node_that_another_replaced_stays_gone_after_a_restart() -> None:
    site = Site()
    first = node_manifest("n", uid="first", resource_version=3)
    site.tell("ADDED", first)
    site.tell("ADDED", node_manifest("n", uid="second", resource_version=5))
    site.tell("DELETED", node_manifest("n", uid="second", resource_version=6))
    site.planner = site.restarted()
    site.tell("ADDED", first)
    state = site.planner.scheduler.state
    assert state.nodes["n"].deleted
    site.tell("ADDED", node_manifest("n", uid="third", resource_version=1))
    assert not state.nodes["n"].deleted
