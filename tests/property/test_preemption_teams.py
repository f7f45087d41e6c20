"""Do two workers that preempt side by side know the same promises and evictions as the ledger?"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.builders import Json, node_manifest, pod_manifest
from tests.depth import some
from tests.property.site import Producer
from tests.property.team import Team, audit, budget_manifest, keys_of, node_of


def live(seed: int) -> Team:
    """Live a day of two workers that follow each other now and then."""
    team, random = Team([0], [1], preempts=True), Random(seed)
    if seed % 2:
        team.tell("ADDED", budget_manifest(1, "x", "a"))
    producer = Producer(random, shared_uids=False)
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


@pytest.mark.parametrize("seed", some(range(10)))
def test_two_workers_know_the_same_promises_as_the_ledger(seed: int) -> None:
    live(seed)


@pytest.mark.wide
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


def side_by_side(allowed: int, *, spare: bool) -> Team:
    """Let two workers evict a pod of one budget each, from a node each, at the same time.

    ``spare``: each node has a pod beside it that no budget counts, and that is worth more.
    """
    team = Team([0], [1], preempts=True)
    team.tell("ADDED", budget_manifest(allowed))
    for shard in range(2):
        team.tell("ADDED", node_manifest(node := node_of(team, shard), cpu=4, labels={"at": f"n{shard}"}))
        low, other = keys_of(team, shard, 1, "low")[0], keys_of(team, shard, 1, "other")[0]
        of: dict[str, Any] = {"cpu": 2, "node_name": node}
        team.tell("ADDED", pod_manifest(low, labels={"app": "web"}, priority=0, **of))
        team.tell("ADDED", pod_manifest(other, priority=5 if spare else 50, **of))
    for number in range(2):
        high = keys_of(team, number, 1, "high")[0]
        manifest = pod_manifest(high, cpu=2, priority=10, node_selector={"at": f"n{number}"})
        team.step(number, [team.record("ADDED", manifest)], follows=False)
    team.rest()
    check(team)
    return team


def told(team: Team, outcome: str) -> list[Json]:
    return [row for row in team.decided() if row["outcome"] == outcome]


def test_two_workers_do_not_both_take_the_last_pod_that_a_budget_lets_go() -> None:
    team = side_by_side(1, spare=True)
    assert len(told(team, "conflict")) == 1
    assert [row["preemption"]["violations"] for row in told(team, "nominated")] == [0, 0]
    evicted = sorted(row["pod"]["name"][:3] for row in told(team, "evicted"))
    assert evicted == ["low", "oth"], "the loser planned again, with a budget that is used up"


def test_who_has_nothing_else_to_evict_says_that_the_budget_is_violated() -> None:
    team = side_by_side(1, spare=False)
    assert sorted(row["preemption"]["violations"] for row in told(team, "nominated")) == [0, 1]


def test_a_pod_that_lost_to_the_budget_is_promised_its_node_next_where_the_budget_lets_two_go() -> None:
    team = side_by_side(2, spare=True)
    assert len(told(team, "conflict")) == 1, "the worker did not know the other eviction"
    assert [row["preemption"]["violations"] for row in told(team, "nominated")] == [0, 0]
    assert {row["pod"]["name"][:3] for row in told(team, "evicted")} == {"low"}


def test_nobody_is_placed_at_home_to_be_evicted_in_the_same_batch() -> None:
    """A pod finds no home node, and one of lower priority behind it does."""
    team = Team([0], [1], preempts=True)
    home, other = node_of(team, 0), node_of(team, 1)
    before, low = keys_of(team, 0, 2, "low")
    (high,) = keys_of(team, 0, 1, "high")
    team.tell("ADDED", node_manifest(home, cpu=2), node_manifest(other, cpu=2))
    team.tell("ADDED", pod_manifest(before, cpu=1, priority=0, node_name=home))
    team.tell("ADDED", pod_manifest("full", cpu=2, priority=50, node_name=other))
    both = [pod_manifest(low, cpu=1, priority=0), pod_manifest(high, cpu=2, priority=10)]
    team.step(0, [team.record("ADDED", each) for each in both])
    team.rest()
    assert [row["pod"]["name"] for row in told(team, "evicted")] == [before]
    assert [row["pod"]["name"] for row in told(team, "bound")] == []
    check(team)


def test_who_holds_no_shard_follows_promises_and_writes_nothing() -> None:
    team = Team([0], [1], preempts=True)
    team.join([])
    node, low, high = node_of(team, 0), keys_of(team, 0, 1, "low")[0], keys_of(team, 0, 1, "high")[0]
    team.tell("ADDED", node_manifest(node, cpu=1), pod_manifest(low, cpu=1))
    team.tell("ADDED", pod_manifest(high, cpu=1, priority=5))
    assert team.database.nominations.rows
    assert not team.step(2)
    check(team)
