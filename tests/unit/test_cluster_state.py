"""Does each single event do to the cluster what it says?"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from domain.model.config import Namespace
from domain.model.events import (
    ConfigUpserted,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
)
from domain.model.marks import PortMark, ports_held
from domain.model.nodes import NodeSpec
from domain.model.pods import HostPort, PodSpec
from domain.model.timestamps import MOMENT_MS_MAX
from domain.model.usage import NodeUsage
from domain.state.changes import (
    Change,
    NodeChanged,
    PodAdopted,
    PodMissed,
    PodRefreshed,
    PodReleased,
    PodResized,
    PodWaits,
    Refused,
    Skipped,
)
from domain.state.cluster import ClusterState
from domain.state.digest import digest_of, sums_digest
from domain.state.resources import ResourceIndex
from domain.state.steps import Assumed, Owned, Passed, Reached, Written
from domain.state.table import NodeTable
from tests.values import GIB, node, pod, template

SKIPPED, OLDER, OTHER_UID = (Skipped(),), (Skipped("older"),), (Skipped("other-uid"),)


@pytest.fixture
def state() -> ClusterState:
    return ClusterState(seed=7)


def put(state: ClusterState, *specs: NodeSpec | PodSpec) -> tuple[Change, ...]:
    """Apply upserts; return what the last one changed."""
    changes: tuple[Change, ...] = ()
    for spec in specs:
        event = NodeUpserted(spec) if isinstance(spec, NodeSpec) else PodUpserted(spec)
        changes = state.apply(event)
    return changes


def cpu_on(state: ClusterState, name: str) -> int:
    return state.requested_of(name).get("cpu", 0)


# ------------------------------------------------------------------------------------------------- nodes


def ports_on(state: ClusterState) -> dict[PortMark, dict[str, int]]:
    """Return who holds port 80, by mark and node."""
    return {mark: held for mark in ports_held(HostPort(80)) if (held := state.index.nodes_with(mark))}


def written(state: ClusterState) -> list[tuple[str, int, int, bool]]:
    """Write the changed nodes: name, version, the version before, and if the spec changed."""
    facts = state.own_changes.facts()
    found = [(fact.name, fact.entry.version, fact.version, fact.is_spec) for fact in facts]
    assert state.apply(Written()) == ()
    return found


def test_an_older_node_event_never_overwrites_a_newer_one(state: ClusterState) -> None:
    put(state, node("a", cpu=8_000, version=5))
    assert put(state, node("a", cpu=1_000, version=4)) == OLDER
    assert put(state, node("a", cpu=1_000, version=5)) == SKIPPED
    assert state.table.allocatable[0, 0] == 8_000
    assert put(state, node("a", cpu=1_000, version=6)) == (NodeChanged("a"),)
    assert state.table.allocatable[0, 0] == 1_000


def test_a_node_event_without_version_applies_unless_it_says_nothing_new(state: ClusterState) -> None:
    put(state, node("a", version=None))
    assert put(state, node("a", version=None)) == SKIPPED
    assert put(state, node("a", cpu=1, version=None)) == (NodeChanged("a"),)


def test_a_late_duplicate_does_not_bring_a_deleted_node_back(state: ClusterState) -> None:
    put(state, node("a", version=3))
    assert state.apply(NodeDeleted("a", resource_version=4)) == (NodeChanged("a"),)
    assert put(state, node("a", version=3)) == OLDER
    assert state.apply(NodeDeleted("a", resource_version=4)) == SKIPPED
    assert put(state, node("a", version=5)) == (NodeChanged("a"),)


def test_a_late_duplicate_of_an_older_object_does_not_bring_a_deleted_node_back(state: ClusterState) -> None:
    put(state, node("a", version=3, uid="first"), node("a", version=5, uid="second"))
    state.apply(NodeDeleted("a", resource_version=6))
    assert put(state, node("a", version=3, uid="first")) == SKIPPED
    assert put(state, node("a", version=2, uid="first")) == OLDER
    assert put(state, node("a", version=None, uid="first")) == SKIPPED
    assert put(state, node("a", version=5, uid="second")) == OLDER
    assert "a" not in state.table.rows
    (changed,) = put(state, node("a", version=1, uid="third"))
    assert changed == NodeChanged("a", replaced=("second", 6)), "no version blocks a name"


def test_a_late_duplicate_without_a_version_does_not_replace_a_newer_node(state: ClusterState) -> None:
    put(state, node("a", version=None, uid="first"), node("a", cpu=1, version=None, uid="second"))
    assert put(state, node("a", version=None, uid="first")) == SKIPPED
    assert state.table.allocatable[0, 0] == 1


def test_a_name_is_not_blocked_by_an_object_that_was_gone_before_the_horizon(state: ClusterState) -> None:
    put(state, node("a", version=3, uid="first"), node("a", version=5, uid="second"))
    state.apply(NodeDeleted("a", resource_version=6))
    state.apply(Passed(10, 5))
    assert put(state, node("a", version=3, uid="first")) == (NodeChanged("a", replaced=("second", 6)),)


def test_a_late_deletion_does_not_remove_a_newer_node(state: ClusterState) -> None:
    put(state, node("a", version=5, uid="new"))
    assert state.apply(NodeDeleted("a", resource_version=4)) == OLDER
    assert state.apply(NodeDeleted("a", uid="old")) == OTHER_UID
    assert state.apply(NodeDeleted("unknown")) == SKIPPED
    assert state.apply(NodeDeleted("a")) == (NodeChanged("a"),)


def test_a_node_that_returns_keeps_its_pods_and_its_place_in_the_order(
    state: ClusterState,
) -> None:
    put(state, node("a"), node("b"), pod("p", template(700), on="a"))
    state.apply(NodeDeleted("a", resource_version=2))
    assert "a" not in state.table.rows
    assert cpu_on(state, "a") == 700
    put(state, node("c"), pod("q", template(50), on="a"), node("a", cpu=2_000, version=3))
    row = state.table.rows["a"]
    assert state.table.requested[0, row] == cpu_on(state, "a") == 750
    assert [int(state.table.ordinal[state.table.rows[n]]) for n in "abc"] == [1, 2, 3]


def test_pods_count_on_a_node_that_is_not_known_yet(state: ClusterState) -> None:
    changes = put(state, pod("p", template(300, 0, 80), on="late"))
    assert changes == (PodAdopted(state.pods["default/p"].spec, "late", None, reasons=("node-unknown",)),)
    assert written(state) == []
    put(state, node("first"), node("late"))
    assert cpu_on(state, "late") == 300
    assert ports_on(state) == {mark: {"late": 1} for mark in ports_held(HostPort(80))}
    assert int(state.table.ordinal[state.table.rows["late"]]) == 2


def test_removing_a_row_moves_the_last_one_into_the_hole() -> None:
    table = NodeTable(ResourceIndex(), seed=1)
    specs = [
        node(name, cpu=i, labels={"zone": name, **({"only": name} if name in "bd" else {})})
        for i, name in enumerate("abcd")
    ]
    for i, spec in enumerate(specs):
        table.upsert(spec, i + 1)
        table.requested[0, i] = 100 + i
    tie_of_d = table.tie[3]
    before = table.last_generation
    table.remove("b")
    assert table.names == ["a", "d", "c"]
    assert table.rows == {"a": 0, "d": 1, "c": 2}
    assert table.allocatable[0, :3].tolist() == [0, 3, 2]
    assert table.requested[0, :3].tolist() == [100, 103, 102]
    assert (table.tie[1], table.ordinal[1]) == (tie_of_d, 4)
    only = table.labels.column("only")
    assert only is not None
    assert [only[row] == table.labels.values.id_of("d") for row in range(3)] == [False, True, False]
    assert sorted(table.changed_since(before).tolist()) == [1, 3]
    table.upsert(node("e", cpu=9), 5)
    assert (table.requested[0, 3], only[3]) == (0, -1)


def test_the_table_grows_in_both_directions(state: ClusterState) -> None:
    for i in range(200):
        put(state, node(f"n{i}", cpu=i, labels={"i": str(i)}, extended={f"x.io/{i % 30}": i}))
    for i in (0, 63, 64, 199):
        row = state.table.rows[f"n{i}"]
        labels = state.table.labels.column("i")
        assert labels is not None
        assert state.table.allocatable[0, row] == i
        assert state.table.allocatable[state.resources.column(f"x.io/{i % 30}"), row] == i
        assert state.table.labels.values.text(int(labels[row])) == str(i)


def test_generations_order_nodes_by_their_last_change(state: ClusterState) -> None:
    put(state, node("a"), node("b"), node("c"), pod("p", on="a"))
    assert list(state.table.newest_first()) == ["a", "c", "b"]


def test_a_heartbeat_makes_no_new_version_of_a_node(state: ClusterState) -> None:
    put(state, node("a", version=5))
    version = state.nodes["a"].version
    written(state)
    assert put(state, node("a", version=6)) == SKIPPED
    assert (state.nodes["a"].version, written(state)) == (version, [])
    not_ready = msgspec.structs.replace(node("a", version=7), ready=False)
    assert put(state, not_ready) == (NodeChanged("a"),)


# -------------------------------------------------------------------------------------------------- pods


def test_the_texts_of_a_pod_are_kept_once_however_often_it_changes(state: ClusterState) -> None:
    first = pod("p", on="a")
    put(state, node("a"), first)
    for version in (2, 3):
        put(state, pod("p", on="a", version=version, labels={"v": str(version)}))
    (key,) = state.pods
    (key_on_node,) = state.nodes["a"].pods
    spec = state.pods[key].spec
    assert spec.labels == {"v": "3"}
    assert key is key_on_node is spec.key is first.key
    assert spec.uid is first.uid
    assert (spec.namespace, spec.name) == ("default", "p")


def test_a_pod_waits_is_assumed_and_leaves(state: ClusterState) -> None:
    waiting = pod("p", template(500, 0, 80))
    assert put(state, node("a"), waiting) == (PodWaits(waiting, 1),)
    state.apply(Assumed(["default/p"], np.array([0])))
    entry = state.pods["default/p"]
    assert (entry.node, entry.adopted, cpu_on(state, "a")) == ("a", False, 500)
    assert ports_on(state) == {mark: {"a": 1} for mark in ports_held(HostPort(80))}
    gone = state.apply(PodDeleted("default", "p", resource_version=2))
    assert gone == (PodReleased(waiting, "a", 3, "deleted", 2),)
    assert state.requested_of("a") == {}
    assert (ports_on(state), state.pods) == ({}, {})


def test_a_binding_seen_in_the_log_confirms_what_was_assumed(state: ClusterState) -> None:
    put(state, node("a"), pod("p", template(500)))
    state.apply(Assumed(["default/p"], np.array([0])))
    confirmed = pod("p", template(500), on="a", version=2)
    assert put(state, confirmed) == (PodRefreshed(confirmed, placed=True, arrival=0),)
    assert cpu_on(state, "a") == 500
    assert not state.pods["default/p"].adopted


def test_a_binding_elsewhere_moves_the_pod(state: ClusterState) -> None:
    put(state, node("a"), node("b"), pod("p", template(500, 0, 80), on="a"))
    moved = pod("p", template(500, 0, 80), on="b", version=2)
    assert put(state, moved) == (PodAdopted(moved, "b", 2, "a"),)
    assert (cpu_on(state, "a"), cpu_on(state, "b")) == (0, 500)
    assert ports_on(state) == {mark: {"b": 1} for mark in ports_held(HostPort(80))}


def test_a_waiting_pod_that_the_log_binds_is_adopted(state: ClusterState) -> None:
    waited = pod("p")
    put(state, node("a"), waited)
    bound = pod("p", on="a", version=2)
    assert put(state, bound) == (PodAdopted(bound, "a", 2, waited=waited),)


def test_resize_counts_the_new_size_once(state: ClusterState) -> None:
    put(state, node("a"), pod("p", template(500), on="a"))
    bigger = pod("p", template(900), on="a", version=2)
    assert put(state, bigger) == (PodResized(bigger, "a", 4, adopted=True, reasons=()),)
    assert cpu_on(state, "a") == 900
    assert put(state, pod("p", template(500), on="a", version=1)) == OLDER
    assert cpu_on(state, "a") == 900


def test_a_waiting_pod_with_another_template_waits_from_anew(state: ClusterState) -> None:
    first = pod("p", template(500))
    put(state, first, pod("q"))
    changed = pod("p", template(900), version=2)
    assert put(state, changed) == (PodWaits(changed, 3, first),)
    assert state.pods["default/p"].arrival > state.pods["default/q"].arrival


def test_labels_alone_refresh_a_pod(state: ClusterState) -> None:
    put(state, pod("p"))
    arrival = state.pods["default/p"].arrival
    relabelled = pod("p", version=2, labels={"app": "x"})
    assert put(state, relabelled) == (PodRefreshed(relabelled, placed=False, arrival=arrival),)
    assert state.pods["default/p"].arrival == arrival


@pytest.mark.parametrize("on", ["", "a"])
def test_a_finished_pod_frees_its_room(state: ClusterState, on: str) -> None:
    put(state, node("a"), pod("p", template(500, 0, 80), on=on))
    (change,) = put(state, pod("p", template(500, 0, 80), on=on, version=2, finished=True))
    assert isinstance(change, PodReleased)
    assert (change.node, change.reason) == (on, "finished")
    assert (state.requested_of("a"), ports_on(state)) == ({}, {})
    assert put(state, pod("p", template(500, 0, 80), on=on, version=1)) == OLDER


def test_a_pod_that_arrives_finished_was_never_there(state: ClusterState) -> None:
    assert put(state, pod("p", on="a", finished=True)) == (PodMissed("default/p", "uid-of-default-p", 1),)
    assert put(state, pod("p", on="a", finished=True)) == SKIPPED
    assert state.pods == {}


def test_a_late_duplicate_does_not_resurrect_a_deleted_pod(state: ClusterState) -> None:
    put(state, pod("p", version=3))
    state.apply(PodDeleted("default", "p", resource_version=5))
    assert put(state, pod("p", version=3)) == OLDER
    assert put(state, pod("p", version=5)) == SKIPPED
    assert state.pods == {}
    assert put(state, pod("p", version=6, uid="next")) == (PodWaits(state.pods["default/p"].spec, 2),)
    put(state, pod("p", version=None, uid="next"))
    state.apply(PodDeleted("default", "p"))
    assert put(state, pod("p", version=4)) == OLDER, "also when a pod without a version was there since"


def test_a_late_deletion_does_not_remove_a_successor(state: ClusterState) -> None:
    put(state, pod("p", version=6, uid="next"))
    late = PodDeleted("default", "p", uid="first", resource_version=7)
    assert state.apply(late) == (PodMissed("default/p", "first", 7, "other-uid"),)
    assert state.apply(late) == OTHER_UID
    assert state.apply(PodDeleted("default", "p", resource_version=5)) == OLDER
    assert state.apply(PodDeleted("default", "q")) == SKIPPED
    assert "default/p" in state.pods


def test_a_new_uid_under_a_known_name_replaces_the_pod(state: ClusterState) -> None:
    old, new = pod("p", template(500), on="a"), pod("p", template(300), version=2, uid="new")
    put(state, node("a"), old)
    assert put(state, new) == (PodReleased(old, "a", 3, "replaced", 2), PodWaits(new, 2))
    assert cpu_on(state, "a") == 0
    assert put(state, pod("q", uid=old.uid)) == (PodWaits(state.pods["default/q"].spec, 3),)


def test_a_uid_under_two_names_is_refused(state: ClusterState) -> None:
    put(state, pod("p", uid="u"))
    (refused,) = put(state, pod("q", uid="u"))
    assert isinstance(refused, Refused)
    assert refused.path == "object.metadata.uid"
    assert "default/p" in refused.message
    assert list(state.pods) == ["default/p"]


# ---------------------------------------------------------------------------------------- ledger and digest


def test_the_committer_learns_each_changed_node_once_with_its_versions(state: ClusterState) -> None:
    put(state, node("b"), node("a"), pod("p", on="a"), pod("q", on="a"))
    drained = written(state)
    assert drained == [("a", 3, 0, True), ("b", 1, 0, True)]
    assert written(state) == []
    state.apply(PodDeleted("default", "p"))
    assert written(state) == [("a", 4, 3, False)]


def test_digest_depends_on_values_not_on_how_they_were_written(state: ClusterState) -> None:
    other = ClusterState(seed=7)
    for which, labels in ((state, {"a": "1", "b": "2"}), (other, {"b": "2", "a": "1"})):
        shape = template(100, GIB, node_selector=labels)
        put(which, node("n", labels=labels), pod("p", shape, labels=labels))
    assert digest_of(state) == digest_of(other)
    put(other, pod("p", template(100, GIB, node_selector={"a": "1"}), version=2))
    assert digest_of(state) != digest_of(other)


@pytest.mark.parametrize("change", ["node", "placement", "deletion", "tombstone", "usage", "config"])
def test_the_digest_of_sums_sees_what_is_counted(state: ClusterState, change: str) -> None:
    put(state, node("n"), pod("p"), pod("q"))
    before = sums_digest(state)
    match change:
        case "node":
            put(state, node("n", cpu=1, version=2))
        case "placement":
            state.apply(Assumed(["default/p"], np.array([0])))
        case "deletion":
            state.apply(NodeDeleted("n"))
        case "tombstone":
            state.apply(PodDeleted("default", "p", resource_version=9))
        case "usage":
            state.apply(NodeUsed(NodeUsage(node="n", at_ms=1, percent={"cpu": 1.0})))
        case "config":
            state.apply(ConfigUpserted("Namespace", "", "a", Namespace()))
    assert sums_digest(state) != before


@pytest.mark.parametrize("change", ["node", "pod", "placement", "deletion", "tombstone"])
def test_digest_sees_every_kind_of_difference(state: ClusterState, change: str) -> None:
    put(state, node("n"), pod("p"), pod("q"))
    before = digest_of(state)
    match change:
        case "node":
            put(state, node("n", version=2, unschedulable=True))
        case "pod":
            put(state, pod("p", version=2))
        case "placement":
            state.apply(Assumed(["default/p"], np.array([0])))
        case "deletion":
            state.apply(NodeDeleted("n"))
        case "tombstone":
            state.apply(PodDeleted("default", "p", resource_version=9))
    assert digest_of(state) != before


def test_a_pod_larger_than_its_spec_can_hold_is_a_value_like_any_other(state: ClusterState) -> None:
    """Sums stay exact at the limits: a node full of the largest requests does not overflow."""
    largest = template(0, requests={"x.io/big": 2**50})
    put(state, node("a", pods=4_096, extended={"x.io/big": 2**50}))
    for i in range(64):
        put(state, pod(f"p{i}", largest, on="a"))
    assert state.requested_of("a")["x.io/big"] == 64 * 2**50
    replaced = msgspec.structs.replace(state.pods["default/p0"].spec, resource_version=2, finished=True)
    put(state, replaced)
    assert state.requested_of("a")["x.io/big"] == 63 * 2**50


# ------------------------------------------------------------------------------------------------- shards


def test_nodes_are_numbered_as_they_come(state: ClusterState) -> None:
    state.apply(Owned(frozenset(range(4)), 4))
    for name, shard in (("a", 3), ("b", 0), ("c", 3)):
        state.apply(NodeUpserted(node(name)), shard)
    assert [state.nodes[name].ordinal for name in "abc"] == [1, 2, 3]


@pytest.mark.parametrize("known", [1, 6, 8])
def test_owners_of_different_shards_number_nodes_differently(known: int) -> None:
    given: list[int] = []
    for own in ((0, 2), (1,), (3,)):
        state = ClusterState(seed=1)
        state.apply(Owned(frozenset(own), 4))
        state.restore_node(name="old", ordinal=known, version=1, spec=node("old"), deleted=True)
        for i, shard in enumerate(own * 3):
            state.apply(NodeUpserted(node(f"n{i}")), shard)
            given.append(state.nodes[f"n{i}"].ordinal)
            assert given[-1] % 4 == shard
    assert len(set(given)) == len(given)
    assert min(given) > known


def test_pods_come_later_than_all_that_came_before_a_moment(state: ClusterState) -> None:
    put(state, pod("a"), pod("b"))
    first = [state.pods[f"default/{name}"].arrival for name in "ab"]
    state.apply(Reached(1_700_000_000_000))
    put(state, pod("c"), pod("d"))
    state.apply(Reached(1_600_000_000_000))
    put(state, pod("e"))
    later = [state.pods[f"default/{name}"].arrival for name in "cde"]
    assert first == [1, 2]
    assert later == [(1_700_000_000_000 << 15) + i for i in range(3)]
    state.apply(Reached(MOMENT_MS_MAX))
    put(state, pod("z"))
    assert state.pods["default/z"].arrival < 1 << 63, "the ledger can hold it"


def test_a_pod_is_of_the_shard_of_its_latest_placing(state: ClusterState) -> None:
    state.apply(Owned(frozenset((1, 2)), 3))
    state.apply(PodUpserted(pod("p", version=1)), 1)
    assert state.pods["default/p"].shard == 1
    state.apply(PodUpserted(pod("p", version=2, on="n")), 2)
    assert state.pods["default/p"].shard == 2
