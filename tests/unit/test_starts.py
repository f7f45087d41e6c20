"""Is who has to leave decided by when pods were placed, as long as nobody says when they started?"""

from __future__ import annotations

import pytest

from domain.state.cluster import ClusterState
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site
from tests.property.team import Team, keys_of, node_of
from tests.unit.preempted import AT_MS, high

SECOND_MS = 1_000
# By uid alone "c" would be the most important one, and "a" would go first.
PLACED = {"a": AT_MS + SECOND_MS, "b": AT_MS + 2 * SECOND_MS, "c": AT_MS + 3 * SECOND_MS}


def filled(names: dict[str, int], *, adopted: bool = False) -> Site:
    """Return a site with one node, on which these pods were placed at these times."""
    site = Site(preempts=True)
    site.tell("ADDED", node_manifest("n0", cpu=3, resource_version=1))
    for name, at_ms in names.items():
        node = "n0" if adopted else None
        site.tell("ADDED", pod_manifest(name, cpu=1, priority=0, node_name=node), at_ms=at_ms)
    return site


def evicted(decided: list[Json]) -> list[str]:
    return [row["pod"]["name"] for row in decided if row["outcome"] == "evicted"]


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_pod_that_was_placed_last_goes_first(adopted: bool, is_restarted: bool) -> None:
    site = filled(PLACED, adopted=adopted)
    if is_restarted:
        site.planner = site.restarted()
    site.tell("ADDED", high(cpu=1), at_ms=AT_MS + 9 * SECOND_MS)
    assert evicted(site.decided()) == ["c"]
    site.tell("ADDED", high("second", cpu=1), at_ms=AT_MS + 9 * SECOND_MS)
    assert sorted(evicted(site.decided())) == ["b", "c"]


def test_what_the_status_says_comes_first() -> None:
    site = filled(PLACED)
    long_ago = pod_manifest("c", cpu=1, priority=0, node_name="n0", resource_version=2)
    long_ago["status"] = {"startTime": "2001-01-01T00:00:00Z"}
    site.tell("MODIFIED", long_ago, at_ms=AT_MS + 4 * SECOND_MS)
    site.tell("ADDED", high(cpu=1), at_ms=AT_MS + 9 * SECOND_MS)
    assert evicted(site.decided()) == ["b"]


def test_of_equal_nodes_the_one_goes_whose_pods_were_placed_last() -> None:
    for late in ("n0", "n1"):
        site = Site(preempts=True)
        site.tell("ADDED", *(node_manifest(n, cpu=1, resource_version=1) for n in ("n0", "n1")))
        for node in ("n0", "n1"):
            at_ms = AT_MS + SECOND_MS * (2 if node == late else 1)
            site.tell("ADDED", pod_manifest(f"on-{node}", cpu=1, priority=0, node_name=node), at_ms=at_ms)
        site.tell("ADDED", high(cpu=1), at_ms=AT_MS + 9 * SECOND_MS)
        assert evicted(site.decided()) == [f"on-{late}"]


def times(state: ClusterState) -> dict[str, int]:
    return {key: entry.placed_ms for key, entry in state.pods.items() if entry.node}


def test_who_follows_another_worker_knows_the_same_times() -> None:
    team = Team([0], [1], preempts=True)
    names = keys_of(team, 1, 3)
    team.tell("ADDED", node_manifest(node_of(team, 0), cpu=3))
    at_ms = dict(zip(names, PLACED.values(), strict=True))
    for name, moment_ms in at_ms.items():
        team.tell("ADDED", pod_manifest(name, cpu=1, priority=0), at_ms=moment_ms)
    known = {f"default/{name}": moment_ms for name, moment_ms in at_ms.items()}
    assert [times(planner.scheduler.state) for planner in team.planners] == [known, known]
    team.die(0)
    assert times(team.planners[0].scheduler.state) == known
    team.tell("ADDED", pod_manifest(keys_of(team, 0, 1, "high")[0], cpu=1, priority=10), at_ms=AT_MS + 9_000)
    assert evicted(team.decided()) == [names[2]]
