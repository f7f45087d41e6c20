"""Are devices given once, known to every worker, and the same after restarts, crashes and take-overs?"""

from __future__ import annotations

from random import Random

import pytest

from tests.depth import some
from tests.property.device_team import asking, check, devices_of, gpu_node, gpu_pod
from tests.property.team import Team, keys_of, node_of


def test_two_workers_do_not_give_one_device_twice() -> None:
    team = Team([0], [1])
    team.tell("ADDED", gpu_node(node_of(team, 0), 2))
    near, far = keys_of(team, 0, 1)[0], keys_of(team, 1, 1)[0]
    records = [team.record("ADDED", gpu_pod(name, gpu=1)) for name in (near, far)]
    for number, record in enumerate(records):  # the second plans before it hears of the first
        team.step(number, [record], follows=False)
    assert sum(map(len, team.lost)) == 1
    team.rest()
    check(team)
    assert sorted(devices for _, devices in devices_of(team).values()) == [(0,), (1,)]
    conflicts = [each for each in team.decided() if each["outcome"] == "conflict"]
    assert [each.get("devices") for each in conflicts] == [None]


def test_the_decision_names_the_devices() -> None:
    team = Team([0])
    team.tell("ADDED", gpu_node("n", 4))
    for name, asks in (
        ("a", {"milli": 600}),
        ("b", {"milli": 300}),
        ("c", {"gpu": 2}),
        ("d", {"milli": 200}),
    ):
        team.tell("ADDED", asking(name, asks))
    assert {each["pod"]["name"]: each["devices"] for each in team.decided()} == {
        "a": [0], "b": [0], "c": [1, 2], "d": [3],
    }  # fmt: skip
    check(team)
    team.tell("ADDED", gpu_pod("e", gpu=1))
    assert team.decided()[-1]["reasons"] == {"insufficient:nvidia.com/gpu": 1}
    team.tell("DELETED", gpu_pod("d", version=2))
    assert devices_of(team)["e"] == ("n", (3,))
    check(team)


@pytest.mark.parametrize("is_node_first", [True, False])
def test_bound_pods_are_given_devices_once(is_node_first: bool) -> None:
    team = Team([0], [1])
    name = node_of(team, 0)
    pods = [*keys_of(team, 0, 2), *keys_of(team, 1, 2)]
    stated = gpu_pod(pods[0], node=name, gpu=1)
    stated["metadata"]["annotations"] = {"berth.dev/devices": "2"}
    bound = [stated, *(gpu_pod(each, node=name, gpu=1) for each in pods[1:])]
    for manifests in ([gpu_node(name)], bound) if is_node_first else (bound, [gpu_node(name)]):
        team.tell("ADDED", *manifests)
    check(team, is_full=True)
    known = devices_of(team)
    assert known[pods[0]] == (name, (2,))
    assert all(len(devices) == 1 for _, devices in known.values())
    for number in range(2):
        team.die(number)
        team.rest()
        check(team, is_full=True)
    team.tell("MODIFIED", *(gpu_pod(each, version=2, node=name, gpu=1) for each in pods[1:]))
    assert devices_of(team) == known


def test_who_does_not_fit_is_said_to_overcommit() -> None:
    team = Team([0])
    team.tell("ADDED", gpu_node("n", 1))
    team.tell("ADDED", gpu_pod("a", node="n", milli=700))
    team.tell("ADDED", gpu_pod("b", node="n", gpu=1))
    told = team.decided()[-1]
    assert (told["devices"], list(told["reasons"])) == ([0], ["overcommitted:nvidia.com/gpu#0"])
    check(team, is_full=True)


@pytest.mark.parametrize("seed", some(range(12)))
def test_days_of_devices_with_crashes(seed: int) -> None:
    random, team = Random(seed), Team([0], [1])
    nodes = [node_of(team, shard, f"n{number}-") for number in range(2) for shard in (0, 1)]
    team.tell("ADDED", *(gpu_node(name, random.choice((1, 4, 8, 17))) for name in nodes))
    alive: dict[str, dict[str, int]] = {}
    has_shrunk = False
    for step in range(40):
        kind = random.choice(("pods", "pods", "pods", "gone", "gone", "crash", "node", "hand"))
        if kind == "pods":
            new = {f"p{step}-{i}": random.choice(({"gpu": 1}, {"gpu": 2}, {"milli": 300}, {"milli": 700}))
                   for i in range(random.randint(1, 5))}  # fmt: skip
            alive |= new
            team.tell("ADDED", *(asking(name, asks) for name, asks in new.items()))
        elif kind == "gone" and alive:
            name = random.choice(sorted(alive))
            team.tell("DELETED", asking(name, alive.pop(name), 2))
        elif kind == "crash":
            team.die(random.randrange(2))
            team.rest()
        elif kind == "node":
            has_shrunk = True
            team.tell("MODIFIED", gpu_node(random.choice(nodes), random.choice((8, 17)), version=2 + step))
        elif kind == "hand" and all(planner.owned for planner in team.planners):
            before = devices_of(team)
            team.give(0, [0])
            team.rest()
            team.take(team.planners[0], [0])
            team.rest()
            assert devices_of(team).items() >= before.items()
        check(team, is_full=has_shrunk)
