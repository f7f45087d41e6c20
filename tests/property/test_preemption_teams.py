"""Do two workers that preempt side by side know the same promises and evictions as the ledger?"""

from __future__ import annotations

from random import Random

import pytest

from tests.property.site import Producer
from tests.property.team import Team, audit


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
