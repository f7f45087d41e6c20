"""Do two workers that preempt side by side know the same promises and evictions as the ledger?"""

from __future__ import annotations

from random import Random

import pytest

from tests.builders import node_manifest, pod_manifest
from tests.property.site import Producer
from tests.property.team import Team, audit, keys_of, node_of


def live(seed: int) -> Team:
    """Live a day of two workers that follow each other now and then."""
    team, random = Team([0], [1], preempts=True), Random(seed)
    producer = Producer(random)
    for _ in range(25):
        records = producer.records(random.randrange(1, 12))
        for number in random.sample(range(2), 2):
            own = [record for record in records if record.partition == number]
            for part in [own[: len(own) // 2], own[len(own) // 2 :]] if own else []:
                team.step(number, part, follows=random.random() < 0.7)
        if random.random() < 0.4:
            team.rest()
            check(team)
    team.rest()
    check(team)
    return team


def check(team: Team) -> None:
    audit(team)
    tables = team.database.nominations
    for planner in team.planners:
        state = planner.scheduler.state
        known = {each.uid: each.node for each in state.nominations.entries.values()}
        assert known == {row.pod_uid: row.node for row in tables.rows.values()}
        evicted = {state.pods[key].spec.uid for key in state.nominations.evicted}
        assert evicted == {uid for uid, _ in tables.evictions}


@pytest.mark.parametrize("seed", range(10))
def test_two_workers_know_the_same_promises_as_the_ledger(seed: int) -> None:
    live(seed)


def test_some_of_them_lose_and_their_victims_are_spared() -> None:
    outcomes = {row["outcome"] for seed in range(10) for row in live(seed).decided()}
    assert outcomes >= {"nominated", "evicted", "spared", "conflict"}


def test_a_pod_is_placed_when_another_worker_promises_its_room_no_more() -> None:
    team = Team([0], [1], preempts=True)
    node, high = node_of(team, 0), keys_of(team, 0, 1, "high")[0]
    lows, small = keys_of(team, 1, 2, "low"), keys_of(team, 1, 1, "small")[0]
    team.tell("ADDED", node_manifest(node, cpu=4))
    team.tell("ADDED", *(pod_manifest(low, cpu=2, priority=0) for low in lows))
    team.tell("ADDED", pod_manifest(high, cpu=4, priority=10))
    team.tell("DELETED", pod_manifest(lows[0]))
    team.tell("ADDED", pod_manifest(small, cpu=1, priority=0))
    team.tell("DELETED", pod_manifest(high))
    told = [each["outcome"] for each in team.decided() if each["pod"]["name"] == small]
    assert told == ["unschedulable", "bound"]
    check(team)
