"""What happens to pods after they were placed: resized, orphaned by their node, back on it, released."""

from __future__ import annotations

from typing import Any

import pytest

from domain.model.limits import pods_per_node_max
from services.codec.partition import partition_for
from services.ports.log import Record
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import SHARDS, Site, audit, kept

AT_MS = 1_700_000_000_000


@pytest.fixture(params=[False, True], ids=["steady", "restarted"])
def site(request: pytest.FixtureRequest) -> Site:
    """A site whose worker starts anew after each event, or never."""
    site = Site()
    if request.param:
        take = site.take

        def take_and_restart(records: list[Record]) -> None:
            take(records)
            again = site.restarted()
            assert kept(again) == kept(site.planner)
            site.planner = again

        site.take = take_and_restart  # type: ignore[method-assign]
    return site


def told(site: Site, name: str = "p") -> list[tuple[str, str | None, str, dict[str, int]]]:
    """Return the decisions of a pod: outcome, node, reason, reasons."""
    rows = [row for row in site.decided() if row["pod"]["name"] == name]
    return [(row["outcome"], row["node"], row["reason"], row["reasons"]) for row in rows]


def open_spans(site: Site) -> list[tuple[str, str, bool, str]]:
    rows = site.database.open_placements.values()
    return [
        (row.opened.name, row.opened.node, row.opened.adopted, row.opened.signature.hex()) for row in rows
    ]


def cpu_held(site: Site, node: str) -> int:
    (row,) = (row for row in site.database.nodes.values() if row.name == node)
    return row.requested.get("cpu", 0)


def pod(version: int, cpu: int, **more: Any) -> Json:
    return pod_manifest("p", cpu=cpu, resource_version=version, **more)


# ------------------------------------------------------------------------------------------------ resized


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("names_its_node", [False, True])
def test_a_pod_that_is_resized_keeps_its_placement(site: Site, adopted: bool, names_its_node: bool) -> None:
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=1))
    site.tell("ADDED", pod(1, 1, node_name="n" if adopted else None))
    site.tell("MODIFIED", pod(2, 100, node_name="n" if names_its_node else None), at_ms=AT_MS + 5)
    first, second = told(site)
    assert first == ("adopted" if adopted else "bound", "n", "", {})
    reason = "n holds more than it offers: cpu"
    assert second == ("resized", "n", reason, {"overcommitted:cpu": 1})
    assert cpu_held(site, "n") == 100_000
    ((_, node, still_adopted, signature),) = open_spans(site)
    assert (node, still_adopted) == ("n", adopted)
    record = site.decided()[-1]
    assert (record["template"]["signature"], record["template"]["requests"]) == (signature, {"cpu": 100_000})
    spans = [(row.opened.at_ms, row.released_at_ms) for row in site.database.placements]
    assert spans == [(AT_MS, AT_MS + 5), (AT_MS + 5, None)]
    audit(site)


def test_a_pod_that_is_resized_within_its_node_overcommits_nothing(site: Site) -> None:
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=1))
    for version, cpu in ((1, 4), (2, 8), (2, 8), (3, 1)):
        site.tell("MODIFIED", pod(version, cpu))
    assert told(site) == [("bound", "n", "", {}), ("resized", "n", "", {}), ("resized", "n", "", {})]
    assert cpu_held(site, "n") == 1_000


def test_what_a_resized_pod_no_longer_holds_is_free_for_others(site: Site) -> None:
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=1))
    site.tell("ADDED", pod(1, 8))
    site.tell("ADDED", pod_manifest("q", cpu=7))
    site.tell("MODIFIED", pod(2, 1))
    assert [each[:2] for each in told(site, "q")] == [("unschedulable", None), ("bound", "n")]


def test_an_adopted_pod_says_what_it_overcommits(site: Site) -> None:
    site.tell("ADDED", node_manifest("n", cpu=2, memory="1Gi", resource_version=1))
    site.tell("ADDED", pod(1, 4, memory="4Gi", node_name="n"))
    reasons = {"overcommitted:cpu,overcommitted:memory": 1}
    assert told(site) == [("adopted", "n", "n holds more than it offers: cpu, memory", reasons)]


# ----------------------------------------------------------------------------------------------- orphaned

GONE = "n was deleted; the pod counts there again when a node of that name returns"


def test_pods_of_a_deleted_node_are_orphaned_and_return_with_it(site: Site) -> None:
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=1))
    for name in "pqr":
        site.tell("ADDED", pod_manifest(name, cpu=1, resource_version=1))
    for _ in range(2):
        site.tell("DELETED", node_manifest("n", resource_version=2))
    site.tell("DELETED", pod_manifest("q", resource_version=2))
    for _ in range(2):
        site.tell("ADDED", node_manifest("n", cpu=1, resource_version=3))
    orphaned = ("orphaned", "n", GONE, {"node-deleted": 1})
    over = ("returned", "n", "n holds more than it offers: cpu", {"overcommitted:cpu": 1})
    assert told(site, "p") == [("bound", "n", "", {}), orphaned, over]
    assert told(site, "r") == told(site, "p")
    assert told(site, "q") == [("bound", "n", "", {}), orphaned, ("released", "n", "deleted", {})]
    assert sorted(name for name, *_ in open_spans(site)) == ["p", "r"]
    assert cpu_held(site, "n") == 2_000
    assert [row.released_at_ms for row in site.database.placements].count(None) == 2
    audit(site)


def test_a_deleted_node_keeps_its_sums_of_resources_that_no_other_object_names(site: Site) -> None:
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=1, fpga=4))
    pods = [pod_manifest(name, cpu=1, fpga=1) for name in "pq"]
    site.tell("ADDED", *pods)
    site.tell("DELETED", node_manifest("n", resource_version=2))
    site.tell("DELETED", pods[0])
    (row,) = site.database.nodes.values()
    assert row.requested == {"cpu": 1_000, "pods": 1, "fpga": 1}
    audit(site)


def test_a_decision_stays_with_the_shard_that_reads_the_pod(site: Site) -> None:
    site.tell("ADDED", node_manifest("n", cpu=64, resource_version=1))
    names = [f"p{i}" for i in range(8)]
    for name in names:
        site.tell("ADDED", pod_manifest(name, cpu=1, resource_version=1))
    site.tell("DELETED", node_manifest("n", resource_version=2))
    rows = [row for row in site.decided() if row["outcome"] == "orphaned"]
    home = {name: partition_for(f"default/{name}".encode(), None, SHARDS) for name in names}
    assert {row["pod"]["name"]: row["shard"] for row in rows} == home
    assert len(set(home.values())) == SHARDS
    for shard in range(SHARDS):
        there = [row["pod"]["name"] for row in rows if row["shard"] == shard]
        assert there == sorted(there), "one order, whatever the worker remembers"


def test_a_pod_adopted_onto_a_node_that_is_not_there_is_told_so(site: Site) -> None:
    site.tell("ADDED", pod(1, 1, node_name="n"))
    reason = "n is not known; the pod counts there as soon as an event names it"
    assert told(site) == [("adopted", "n", reason, {"node-unknown": 1})]
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=1))
    assert len(told(site)) == 1, "the node is new: it does not return"
    site.tell("DELETED", node_manifest("n", resource_version=2))
    site.tell("ADDED", pod_manifest("q", cpu=1, node_name="n"))
    assert told(site, "q") == [("adopted", "n", GONE, {"node-deleted": 1})]
    site.tell("MODIFIED", pod(2, 2))
    assert told(site)[-1] == ("resized", "n", GONE, {"node-deleted": 1})
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=3))
    assert [told(site, name)[-1][0] for name in "pq"] == ["returned", "returned"]
    assert cpu_held(site, "n") == 3_000


def test_a_full_node_that_is_deleted_orphans_all_of_its_pods() -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n", cpu=64, pods=pods_per_node_max, resource_version=1))
    pods = [pod_manifest(f"p{i:04}", cpu="1m", resource_version=1) for i in range(pods_per_node_max)]
    site.tell("ADDED", *pods)
    site.tell("DELETED", node_manifest("n", resource_version=2))
    site.tell("ADDED", node_manifest("n", cpu=64, pods=pods_per_node_max, resource_version=3))
    outcomes = [row["outcome"] for row in site.decided()]
    assert [outcomes.count(each) for each in ("bound", "orphaned", "returned")] == [pods_per_node_max] * 3


# ------------------------------------------------------------------------------------------- unresolvable


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"cpu": 9}, "unresolvable"),
        ({"cpu": 8}, "unschedulable"),
        ({"node_selector": {"zone": "none"}}, "unresolvable"),
        ({"spec": {"schedulingGates": [{"name": "wait"}]}}, "unresolvable"),
        ({"scheduler_name": "nowhere"}, "unresolvable"),
    ],
)
def test_what_no_leaving_pod_could_cure_is_unresolvable(
    site: Site, more: dict[str, Any], outcome: str
) -> None:
    site.tell("ADDED", node_manifest("n", cpu=8, resource_version=1))
    site.tell("ADDED", pod_manifest("full", cpu=8))
    site.tell("ADDED", pod_manifest("p", **more))
    assert told(site)[-1][0] == outcome


def test_without_any_node_only_what_holds_the_pod_itself_is_unresolvable(site: Site) -> None:
    site.tell("ADDED", pod_manifest("p", cpu=1))
    site.tell("ADDED", pod_manifest("gated", cpu=1, spec={"schedulingGates": [{"name": "wait"}]}))
    assert told(site) == [("unschedulable", None, "there are no nodes", {"no-nodes": 0})]
    gated = ("unresolvable", None, "held by scheduling-gated:wait", {"scheduling-gated:wait": 0})
    assert told(site, "gated") == [gated]


def test_a_pod_is_bound_no_earlier_than_the_room_was_made_that_it_takes(site: Site) -> None:
    site.tell("ADDED", node_manifest("n", cpu=1))
    site.tell("ADDED", pod_manifest("first", cpu=1, resource_version=1), at_ms=AT_MS)
    site.tell_all(
        [
            ("ADDED", pod_manifest("second", cpu=1, resource_version=1), AT_MS + 10),
            ("DELETED", pod_manifest("first", resource_version=2), AT_MS + 50),
        ]
    )
    spans = {row.opened.name: (row.opened.at_ms, row.released_at_ms) for row in site.database.placements}
    assert spans == {"first": (AT_MS, AT_MS + 50), "second": (AT_MS + 50, None)}
