"""Is a gang of the plain oracle placed whole or not at all, and does it say who was missing?"""

from __future__ import annotations

from random import Random

import pytest

from domain.model.events import NodeUpserted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from tests.oracle.gangs import Gang, place, survives
from tests.oracle.placing import Oracle
from tests.values import GIB, node, pod, template


def cluster(*cpu_milli: int) -> Oracle:
    """Return an oracle with nodes of these sizes."""
    oracle = Oracle(BUILT_IN_PROFILES, seed=1)
    for i, cpu in enumerate(cpu_milli):
        oracle.take(NodeUpserted(node(f"n{i}", cpu=cpu)))
    return oracle


def arrive(oracle: Oracle, count: int, cpu: int, prefix: str = "m", on: str = "", **fields: int) -> list[str]:
    """Let pods come, and return their keys."""
    specs = [pod(f"{prefix}{i}", template(cpu, GIB, **fields), on=on) for i in range(count)]
    for each in specs:
        oracle.take(PodUpserted(each))
    return [each.key for each in specs]


def placed(oracle: Oracle) -> dict[str, str]:
    return {key: each.node for key, each in oracle.pods.items() if each.node}


@pytest.mark.parametrize(
    ("members", "minimum", "failed", "ignored", "scheduled_before", "goes_on"),
    [
        (5, 5, 1, 0, False, False),
        (5, 3, 2, 0, False, True),
        (5, 3, 3, 0, False, False),
        (5, 3, 1, 2, False, False),
        (5, 5, 1, 0, True, True),
        (5, 5, 5, 0, True, False),
        (5, 1, 4, 0, False, True),
    ],
)
def test_who_goes_on(
    members: int, minimum: int, failed: int, ignored: int, scheduled_before: bool, goes_on: bool
) -> None:
    assert survives(members, failed, ignored, minimum, was_scheduled=scheduled_before) is goes_on


def test_a_gang_that_fits_is_placed_whole() -> None:
    oracle = cluster(1000, 1000)
    keys = arrive(oracle, 4, 500)
    assert sorted(place(oracle, Gang(keys, 4)).nodes) == keys
    assert len(placed(oracle)) == 4


def test_a_gang_that_lacks_one_member_holds_no_room_and_says_why() -> None:
    oracle = cluster(1000, 500)
    keys = arrive(oracle, 4, 500)
    answer = place(oracle, Gang(keys, 4))
    assert answer.nodes == placed(oracle) == {}
    assert answer.failed == {keys[3]: {"insufficient:cpu": 2}}
    others = arrive(oracle, 3, 500, "other")
    assert len(place(oracle, Gang(others, 3)).nodes) == 3


def test_more_members_than_the_minimum_go_as_far_as_there_is_room() -> None:
    oracle = cluster(1000, 500)
    answer = place(oracle, Gang(arrive(oracle, 4, 500), 3))
    assert (len(answer.nodes), len(answer.failed)) == (3, 1)


def test_members_that_run_already_count() -> None:
    oracle = cluster(1500)
    running = arrive(oracle, 2, 500, "old", on="n0")
    waiting = arrive(oracle, 2, 500)
    assert len(place(oracle, Gang(waiting, 3, placed=running)).nodes) == 1
    oracle = cluster(1000)
    running = arrive(oracle, 2, 500, "old", on="n0")
    assert place(oracle, Gang(arrive(oracle, 1, 500), 3, placed=running)).nodes == {}


def test_the_most_important_members_come_first() -> None:
    oracle = cluster(500)
    low, high = arrive(oracle, 1, 500, "low"), arrive(oracle, 1, 500, "high", priority=5)
    assert place(oracle, Gang([*low, *high], 1)).nodes == {high[0]: "n0"}


def test_least_resources_are_asked_for_before_any_member() -> None:
    oracle = cluster(1000, 1000)
    running = arrive(oracle, 1, 500, "old", on="n0")
    keys = arrive(oracle, 2, 100)
    assert place(oracle, Gang(keys, 2, min_resources={"cpu": 1800})).short == {"cpu": 300}
    assert placed(oracle) == dict.fromkeys(running, "n0")
    own = Gang(keys, 2, placed=running, min_resources={"cpu": 1800})
    assert sorted(place(oracle, own).nodes) == keys


@pytest.mark.parametrize("seed", range(40))
def test_never_a_part(seed: int) -> None:
    random = Random(seed)
    oracle = cluster(*(random.choice((500, 1000, 2000)) for _ in range(random.randint(1, 6))))
    for gang in range(4):
        keys = arrive(oracle, random.randint(1, 6), random.choice((200, 500, 900)), f"g{gang}-")
        minimum, before = random.randint(1, len(keys)), placed(oracle)
        answer = place(oracle, Gang(keys, minimum))
        assert placed(oracle) == before | answer.nodes
        if answer.nodes:
            assert len(answer.nodes) >= minimum
            assert answer.nodes.keys() | answer.failed.keys() == set(keys)
        else:
            assert len(keys) - len(answer.failed) < minimum
