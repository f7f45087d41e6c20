"""Do two workers that place gangs side by side ever leave a part of one in the ledger?"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from services.codec.settling import doubt, lost_together
from services.ports.ledger import GangPlaced
from tests.batches import batch_of
from tests.builders import Json, node_manifest, pod_group_manifest, pod_manifest
from tests.contract.batches import load_node
from tests.depth import some
from tests.property.team import Team, audit, keys_of, node_of, running

LABEL = "scheduling.x-k8s.io/pod-group"


def member(name: str, gang: str, cpu: int = 1) -> Json:
    return pod_manifest(name, cpu=cpu, labels={LABEL: gang})


def live(seed: int) -> tuple[Team, Counter[str]]:
    """Let two workers place gangs while they see little of each other."""
    team, random = Team([0], [1]), Random(seed)
    seen = Counter[str]()
    team.tell("ADDED", *(node_manifest(node_of(team, i % 2, f"n{i}-"), cpu=4) for i in range(8)))
    least = {f"g{i}": random.randint(2, 7) for i in range(8)}
    team.tell("ADDED", *(pod_group_manifest(name, count) for name, count in least.items()))
    for i, name in enumerate(least):
        count = least[name] + random.randint(-1, 2)
        pods = [member(key, name) for key in keys_of(team, i % 2, count, f"{name}-")]
        records = [team.record("ADDED", pod) for pod in pods]
        team.step(i % 2, records, follows=random.random() < 0.3)
        check(team, least)
        if random.random() < 0.3:
            team.rest()
            check(team, least)
    team.rest()
    check(team, least)
    audit(team)
    seen.update(each["outcome"] for each in team.decided())
    return team, seen


def check(team: Team, least: dict[str, int]) -> None:
    for name, count in running(team).items():
        assert count >= least[name], f"{name}: {count} of {least[name]}"


@pytest.mark.parametrize("seed", some(range(20)))
def test_a_gang_is_in_the_ledger_whole_or_not_at_all(seed: int) -> None:
    live(seed)


@pytest.mark.wide
def test_some_of_them_lose_their_nodes_and_some_wait() -> None:
    seen = Counter[str]()
    for seed in range(20):
        seen += live(seed)[1]
    assert min(seen["conflict"], seen["gang-waiting"], seen["bound"]) > 20, seen


def test_members_that_were_placed_beside_a_gang_that_lost_lose_too() -> None:
    claims = [load_node(i, 1, cpu=1) for i in (1, 2)]
    batch = batch_of(advances=[], claims=claims, gangs=[GangPlaced("default/g", 0, (1,))])
    assert lost_together(batch, set()) == set()
    assert lost_together(doubt(batch, set(), gangs={"default/other"}), set()) == set()
    assert lost_together(doubt(batch, set(), gangs={"default/g"}), set()) == {1}


def test_a_gang_that_waits_for_one_more_is_placed_when_it_comes() -> None:
    team = Team([0])
    team.tell("ADDED", node_manifest("n", cpu=4))
    team.tell("ADDED", member("a", "g"), member("b", "g"))
    assert [each["outcome"] for each in team.decided()] == ["gang-waiting"] * 2
    assert {*(code for each in team.decided() for code in each["reasons"])} == {"gang-unknown"}
    team.tell("ADDED", pod_group_manifest("g", 3))
    assert running(team) == {}
    team.tell("ADDED", member("c", "g"))
    assert running(team) == {"g": 3}


def test_two_gangs_that_each_need_most_of_the_cluster_do_not_hold_each_other_up() -> None:
    team = Team([0])
    team.tell("ADDED", *(node_manifest(f"n{i}", cpu=4) for i in range(4)))
    team.tell("ADDED", pod_group_manifest("a", 12), pod_group_manifest("b", 12))
    mixed = [member(f"{gang}{i}", gang) for i in range(12) for gang in "ab"]
    for pod in mixed:
        team.tell("ADDED", pod)
    assert running(team) == {"a": 12}
    team.tell("ADDED", pod_manifest("small", cpu=1))
    assert team.decided()[-1]["outcome"] == "bound", "who waits holds no room"
    for i in range(12):
        team.tell("DELETED", mixed[2 * i])
    assert running(team) == {"b": 12}


def test_the_reason_says_who_is_missing() -> None:
    team = Team([0])
    team.tell("ADDED", node_manifest("n", cpu=2), pod_group_manifest("g", 3))
    team.tell("ADDED", member("a", "g"), member("b", "g"))
    team.tell("ADDED", member("c", "g"))
    reasons = [each["reason"] for each in team.decided()]
    assert reasons == [
        *["gang default/g: 2 of at least 3 pods exist"] * 2,
        "gang default/g: 2 of at least 3 pods find a node; default/c: 0/1 nodes: 1 insufficient:cpu",
    ]
