"""Whose turn is it where there is more to try than one cycle may? Nobody's pods wait for all of another's."""

from __future__ import annotations

import pytest

from domain.cycle.queue import WaitingGroup
from domain.cycle.turns import Candidate, Works, group_work, in_turn, pod_work
from domain.model.events import NodeUpserted
from domain.model.pods import DEFAULT_PROFILE, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import SpreadConstraint
from domain.model.signature import signature
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from tests.values import node, template

PLAN = ProfilePlan(BUILT_IN_PROFILES[DEFAULT_PROFILE])
TABLE = ClusterState(seed=0).table
WORKS = Works(TABLE)
ONE = group_work(template(1), PLAN, TABLE) + pod_work(template(1), PLAN, TABLE)


def candidates(*wanted: tuple[str, int, int]) -> list[Candidate]:
    """Return pods in order: per namespace and priority so many, each of a group of its own."""
    found: list[Candidate] = []
    for namespace, priority, count in wanted:
        for _ in range(count):
            shape: PodTemplate = template(1_000 + len(found), priority=priority)
            group = WaitingGroup(signature(shape), shape, PLAN)
            found.append((-priority, len(found), f"{namespace}/p{len(found)}", group))
    return sorted(found)


def counts(chosen: list[Candidate]) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, _, key, _ in chosen:
        namespace = key.partition("/")[0]
        found[namespace] = found.get(namespace, 0) + 1
    return found


def test_all_have_their_turn_where_that_is_not_too_much() -> None:
    pods = candidates(("a", 0, 30), ("b", 5, 10))
    assert in_turn(pods, WORKS, 40 * ONE) is pods


def test_who_comes_behind_a_burst_does_not_wait_for_it() -> None:
    pods = candidates(("burst", 0, 1_000), ("late", 0, 3), ("later", 0, 1))
    chosen = list(in_turn(pods, WORKS, 20 * ONE))
    assert counts(chosen) == {"burst": 16, "late": 3, "later": 1}
    assert chosen == sorted(chosen)


def test_who_says_a_high_priority_takes_half_and_not_all() -> None:
    pods = candidates(("modest", -10, 500), ("loud", 1_000, 500))
    assert counts(list(in_turn(pods, WORKS, 20 * ONE))) == {"loud": 10, "modest": 10}


def test_within_a_namespace_priority_and_age_decide() -> None:
    pods = candidates(("a", 0, 50), ("a", 7, 5))
    assert list(in_turn(pods, WORKS, 10 * ONE)) == pods[:10]


def test_the_work_of_a_cycle_is_bounded_and_everybody_has_a_turn_in_the_end() -> None:
    left = candidates(*((f"n{i % 7}", i % 3, 1) for i in range(200)))
    cycles = 0
    while left:
        chosen = list(in_turn(left, WORKS, 9 * ONE + 1))
        assert 0 < len(chosen) <= 10
        left = [each for each in left if each not in chosen]
        cycles += 1
    assert cycles <= 23


@pytest.mark.parametrize("work_max", [0, 1])
def test_one_has_its_turn_whatever_it_costs(work_max: int) -> None:
    pods = candidates(("a", 0, 3))
    assert len(list(in_turn(pods, WORKS, work_max))) == work_max


def test_a_group_is_paid_for_once() -> None:
    (one,) = candidates(("a", 0, 1))
    pods = [(0, i, f"a/p{i}", one[3]) for i in range(100)] + candidates(("b", 0, 1))
    room = ONE + 99 * pod_work(template(1), PLAN, TABLE) + ONE
    assert len(list(in_turn(pods, WORKS, room))) == 101


def test_a_pod_costs_more_the_more_it_asks_of_other_pods() -> None:
    state = ClusterState(seed=0)
    for n in range(1_000):
        state.apply(NodeUpserted(node(f"n{n}")))
    asking = template(1, spread=(SpreadConstraint(topology_key="zone", hard=False),) * 16)
    plain = pod_work(template(1), PLAN, state.table)
    assert pod_work(asking, PLAN, state.table) == plain + 16 * 1_000 // 400
