"""Do workers that follow each other know what one worker would, and decide only for their own pods?"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.builders import (
    Json,
    node_manifest,
    pod_manifest,
    priority_class_manifest,
    profile_manifest,
    usage_manifest,
)
from tests.depth import some
from tests.property.site import Producer
from tests.property.team import AT_MS, Team, audit, columns, keys_of, node_of


def both() -> tuple[Team, Team]:
    """Return two workers with a shard each, and one with both."""
    return Team([0], [1]), Team([0, 1])


def tell(teams: tuple[Team, ...], kind: str, *manifests: Json, **more: Any) -> None:
    for team in teams:
        team.tell(kind, *manifests, **more)
    check(teams)


def check(teams: tuple[Team, ...]) -> None:
    for team in teams:
        audit(team)
        assert columns(team.planners[0]) == columns(teams[0].planners[0])


@pytest.mark.parametrize("is_node_first", [True, False])
def test_nodes_and_bound_pods_come_in_either_order(is_node_first: bool) -> None:
    teams = both()
    near, far = node_of(teams[0], 0), node_of(teams[0], 1)
    nodes = [node_manifest(near, resource_version=1), node_manifest(far, resource_version=1)]
    names = [*keys_of(teams[0], 0, 2), *keys_of(teams[0], 1, 2)]
    pods = [
        pod_manifest(name, cpu="500m", node_name=node, resource_version=1, labels={"app": name})
        for name, node in zip(names, (near, far, near, far), strict=True)
    ]
    for manifests in (nodes, pods) if is_node_first else (pods, nodes):
        tell(teams, "ADDED", *manifests)
    for name in names[::2]:
        tell(teams, "DELETED", pod_manifest(name, resource_version=2))
    for team in teams:
        assert all(row.opened.counted for row in team.database.open_placements.values())


def test_each_owner_writes_what_became_of_its_pods_when_a_node_goes_and_returns() -> None:
    teams = both()
    two, _ = teams
    node = node_of(two, 0)
    names = [keys_of(two, 0, 1)[0], keys_of(two, 1, 1)[0]]
    tell(teams, "ADDED", node_manifest(node, resource_version=1))
    tell(teams, "ADDED", *(pod_manifest(n, cpu=1, node_name=node, resource_version=1) for n in names))
    tell(teams, "DELETED", node_manifest(node, resource_version=2))
    tell(teams, "ADDED", node_manifest(node, resource_version=3))
    for team in teams:
        found = Counter((each["shard"], each["pod"]["name"], each["outcome"]) for each in team.decided())
        assert found == Counter(
            {
                (shard, name, outcome): 1
                for shard, name in enumerate(names)
                for outcome in ("adopted", "orphaned", "returned")
            }
        )


def test_a_pod_that_its_owner_counted_before_it_knew_the_node_is_counted_once() -> None:
    """The node's owner writes the node with its own pods, the pod's owner adds its own to it."""
    teams = both()
    two = teams[0]
    node = node_of(two, 0)
    near, far = keys_of(two, 0, 1)[0], keys_of(two, 1, 1)[0]
    pods = [pod_manifest(name, cpu=1, node_name=node, resource_version=1) for name in (near, far)]
    tell(teams, "ADDED", *pods)
    assert not any(row.opened.counted for row in two.database.open_placements.values())
    two.step(0, [two.record("ADDED", node_manifest(node, resource_version=1))])
    (row,) = two.database.nodes.values()
    assert row.requested == {"cpu": 1000, "pods": 1}, "its owner knows only its own pod's count"
    two.rest()
    (row,) = two.database.nodes.values()
    assert (row.requested, row.version) == ({"cpu": 2000, "pods": 2}, 2)
    audit(two)


def test_pods_of_other_workers_are_resized_moved_and_refreshed() -> None:
    teams = both()
    a, b = node_of(teams[0], 0), node_of(teams[0], 1)
    name = keys_of(teams[0], 1, 1)[0]
    tell(teams, "ADDED", node_manifest(a, resource_version=1), node_manifest(b, resource_version=1))
    for version, (cpu, node, labels) in enumerate(
        (
            (1, a, {}),
            (2, a, {}),
            (2, a, {"app": "web"}),
            (2, b, {"app": "web"}),
            (1, b, {"app": "db"}),
        ),
        1,
    ):
        pod = pod_manifest(name, cpu=cpu, node_name=node, labels=labels, resource_version=version)
        tell(teams, "MODIFIED", pod)
    assert columns(teams[0].planners[0])["placed"][f"default/{name}"][4] == b


def test_what_all_read_reaches_the_others_by_the_feed() -> None:
    teams = both()
    node = node_of(teams[0], 1)
    waiting = keys_of(teams[0], 1, 1)[0]
    tell(teams, "ADDED", node_manifest(node, resource_version=1))
    tell(teams, "ADDED", pod_manifest(waiting, cpu=1, spec={"priorityClassName": "high"}))
    tell(teams, "ADDED", priority_class_manifest("high", 7))
    for team in teams:
        outcomes = [each["outcome"] for each in team.decided() if each["pod"]["name"] == waiting]
        assert outcomes[-1] == "bound", "what it waited for came to another worker"
    two = teams[0]
    assert columns(two.planners[1])["config"] == [("PriorityClass", "", "high")]
    assert [row.name for row in two.database.config_objects.values()] == ["high"]


@pytest.mark.parametrize("seed", some(range(12)))
def test_workers_know_the_same_after_any_log(seed: int) -> None:
    """Also pods that berth places, and records that are late, wrong or come twice."""
    team, random = Team([0], [1]), Random(seed)
    producer = Producer(random)
    for _ in range(25):
        records = producer.records(random.randrange(1, 12))
        for number in random.sample(range(2), 2):
            own = [record for record in records if record.partition == number]
            for record_batch in [own[: len(own) // 2], own[len(own) // 2 :]] if own else []:
                team.step(number, record_batch, follows=random.random() < 0.7)
        if random.random() < 0.4:
            team.rest()
            audit(team)
    team.rest()
    audit(team)


def test_two_workers_at_rest_stay_so() -> None:
    team = Team([0], [1])
    names = [*keys_of(team, 0, 3), *keys_of(team, 1, 3)]
    team.tell("ADDED", *(pod_manifest(name, cpu=9) for name in names))
    team.tell("ADDED", node_manifest(node_of(team, 0)), node_manifest(node_of(team, 1)))
    before = team.batches_count
    for _ in range(5):
        team.rest()
        assert not team.step(0)
        assert not team.step(1)
    assert team.batches_count == before


def test_measurements_and_profiles_of_another_worker_hold_here_too() -> None:
    teams = both()
    near, far = node_of(teams[0], 0), node_of(teams[0], 1)
    tell(teams, "ADDED", *(node_manifest(node, resource_version=1) for node in (near, far)))
    names = keys_of(teams[0], 1, 3)
    tell(teams, "ADDED", pod_manifest(names[0], cpu=1, node_name=far, resource_version=1))
    tell(teams, "ADDED", usage_manifest(far, percent={"cpu": 40.0}), at_ms=AT_MS + 60_000)
    tell(teams, "ADDED", pod_manifest(names[1], cpu=1, node_name=far, resource_version=1))
    assert columns(teams[0].planners[1])["recent"][far] == [f"default/{names[1]}"]
    tell(teams, "ADDED", profile_manifest("packing", resource_version=1))
    tell(teams, "ADDED", pod_manifest(names[2], cpu=1, scheduler_name="packing", resource_version=1))
    for team in teams:
        last = team.decided()[-1]
        assert (last["outcome"], last["profile"], last["profile_revision"]) == ("bound", "packing", 1)
    tell(teams, "DELETED", profile_manifest("packing", resource_version=2))
    tell(teams, "DELETED", node_manifest(far, resource_version=2))
    for team in teams:
        assert not team.database.measured.usage, "the owner of shard 0 forgets what was measured"
    assert "packing" not in columns(teams[0].planners[1])["profiles"]


def test_a_pod_that_waits_is_placed_when_another_worker_makes_room() -> None:
    team = Team([0], [1])
    node = node_of(team, 0)
    big, other = keys_of(team, 0, 1)[0], keys_of(team, 1, 1)[0]
    team.tell("ADDED", node_manifest(node, cpu=2))
    team.tell("ADDED", pod_manifest(big, cpu=2))
    team.tell("ADDED", pod_manifest(other, cpu=2))
    team.tell("DELETED", pod_manifest(big))
    assert [(each["pod"]["name"], each["outcome"]) for each in team.decided()] == [
        (big, "bound"),
        (big, "released"),
        (other, "unschedulable"),
        (other, "bound"),
    ]
    audit(team)


@pytest.mark.parametrize("seed", some(range(6)))
def test_whoever_begins_later_or_takes_shards_knows_what_the_others_know(seed: int) -> None:
    """What is read from the ledger and what was followed lead to the same, in the middle of a day too."""
    team, random = Team([0, 1]), Random(seed)
    producer = Producer(random)
    for round_number in range(12):
        if round_number == 3:
            team.rest()
            team.give(0, [1])
            team.join([1])
        if round_number == 8:
            team.rest()
            team.give(1, [1])
            team.take(team.planners[0], [1])
        records = producer.records(10)
        for number, planner in enumerate(team.planners):
            if own := [record for record in records if record.partition in planner.owned]:
                team.step(number, own, follows=random.random() < 0.7)
        if random.random() < 0.5:
            team.rest()
            audit(team)
    team.rest()
    audit(team)


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("is_measured_again", [True, False])
def test_what_was_measured_of_a_node_that_goes_and_returns_at_once_holds_nowhere(
    shard: int, is_measured_again: bool
) -> None:
    """A batch tells its followers what became of a node, and not how."""
    team = Team([0], [1])
    node = node_of(team, shard)
    team.tell("ADDED", node_manifest(node, resource_version=1))
    team.tell("ADDED", usage_manifest(node, percent={"cpu": 40.0}), at_ms=AT_MS + 1_000)
    name = keys_of(team, shard, 1)[0]
    team.tell("ADDED", pod_manifest(name, cpu=1, node_name=node, resource_version=1))
    records = []
    if is_measured_again and shard == 0:
        used = usage_manifest(node, percent={"cpu": 50.0})
        records.append(team.record("ADDED", used, at_ms=AT_MS + 2_000))
    records.append(team.record("DELETED", node_manifest(node, resource_version=2)))
    records.append(team.record("ADDED", node_manifest(node, resource_version=3)))
    team.step(shard, records)
    team.rest()
    audit(team)
    assert not team.database.measured.usage
    assert columns(team.planners[0])["recent"][node] == []


@pytest.mark.parametrize("comes_back", [True, False])
def test_no_measurement_outlives_a_node_though_nobody_who_measures_hears_of_its_end(comes_back: bool) -> None:
    team = Team([0], [1])
    name = node_of(team, 1)
    team.tell("ADDED", node := node_manifest(name, cpu=1))
    team.tell("MODIFIED", usage_manifest(name, percent={"cpu": 5}))
    assert team.database.measured.usage.keys() == {name}
    team.step(1, [team.record("DELETED", node)])
    if comes_back:
        team.step(1, [team.record("ADDED", node)])
    team.die(0)
    assert not team.database.measured.usage
    assert not team.planners[0].scheduler.state.usage.windows
    audit(team)
