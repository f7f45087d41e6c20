"""Whose turn is it where there is more to try than one cycle may? Nobody's pods wait for all of another's."""

from __future__ import annotations

import pytest

from domain.model.events import NodeUpserted
from domain.model.limits import cycle_pods_max, cycle_work_max
from domain.model.pods import DEFAULT_PROFILE, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import SpreadConstraint
from domain.model.signature import signature
from domain.plugins.registry import ProfilePlan
from domain.queue.groups import Candidate, Line, WaitingGroup
from domain.queue.turns import Works, draw, group_work, pod_work, static_work
from domain.state.cluster import ClusterState
from tests.values import node, template

PLAN = ProfilePlan(BUILT_IN_PROFILES[DEFAULT_PROFILE])
STATE = ClusterState(seed=0)
TABLE = STATE.table
WORKS = Works(STATE)
ONE = group_work(template(1), TABLE) + pod_work(template(1), PLAN, TABLE)
MANY = 1 << 20


@pytest.fixture(autouse=True)
def _static_plugins_are_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pod of a group cost the same whether or not its like was seen."""
    monkeypatch.setattr("domain.queue.turns._STATIC", 0)


def lines(*wanted: tuple[str, int, int], pods: int = 1) -> list[Line]:
    """Return lines: per namespace and priority so many, each of a group of its own with so many pods."""
    found: list[Line] = []
    for namespace, priority, count in wanted:
        for _ in range(count):
            shape: PodTemplate = template(1_000 + len(found), priority=priority)
            line = Line(namespace, WaitingGroup(signature(shape), shape, PLAN))
            for _ in range(pods):
                arrival = len(found) * pods + len(line.pods)
                line.add_pod(f"{namespace}/p{arrival}", arrival, fresh=False)
            found.append(line)
    return found


def drawn(of: list[Line], work_max: int, pods_max: int = MANY) -> list[Candidate]:
    waiting: dict[str, list[Candidate]] = {}
    for line in of:
        first = line.first()
        if first is not None:
            waiting.setdefault(line.namespace, []).append(first)
    heads = {namespace: sorted(entries) for namespace, entries in waiting.items()}
    return [*draw(heads, WORKS, work_max=work_max, pods_max=pods_max).drawn]


def counts(chosen: list[Candidate]) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, _, _, line in chosen:
        found[line.namespace] = found.get(line.namespace, 0) + 1
    return found


def test_all_have_their_turn_where_that_is_not_too_much() -> None:
    assert counts(drawn(lines(("a", 0, 30), ("b", 5, 10)), 80 * ONE)) == {"a": 30, "b": 10}


def test_who_comes_behind_a_burst_does_not_wait_for_it() -> None:
    chosen = drawn(lines(("burst", 0, 1_000), ("late", 0, 3), ("later", 0, 1)), 20 * ONE)
    assert counts(chosen) == {"burst": 16, "late": 3, "later": 1}
    assert chosen == sorted(chosen)


def test_who_comes_behind_a_burst_of_equal_pods_does_not_wait_for_it() -> None:
    chosen = drawn([*lines(("burst", 0, 1), pods=1_000), *lines(("late", 0, 3))], MANY, 20)
    assert counts(chosen) == {"burst": 17, "late": 3}


def test_who_says_a_high_priority_takes_half_and_not_all() -> None:
    assert counts(drawn(lines(("modest", -10, 500), ("loud", 1_000, 500)), 20 * ONE)) == {
        "loud": 10,
        "modest": 10,
    }


def test_within_a_namespace_priority_and_age_decide() -> None:
    chosen = drawn(lines(("a", 0, 50), ("a", 7, 5)), 10 * ONE)
    assert [(-minus, arrival) for minus, arrival, _, _ in chosen] == [
        *((7, arrival) for arrival in range(50, 55)),
        *((0, arrival) for arrival in range(5)),
    ]


def test_the_work_of_a_cycle_is_bounded_and_everybody_has_a_turn_in_the_end() -> None:
    left = lines(*((f"n{i % 7}", i % 3, 1) for i in range(200)))
    cycles = 0
    while left:
        chosen = [line for _, _, _, line in drawn(left, 9 * ONE + 1)]
        assert 0 < len(chosen) <= 10
        left = [each for each in left if each not in chosen]
        cycles += 1
    assert cycles <= 23


@pytest.mark.parametrize("work_max", [0, 1])
def test_one_has_its_turn_whatever_it_costs(work_max: int) -> None:
    assert len(drawn(lines(("a", 0, 3)), work_max)) == work_max


def test_who_asks_for_more_than_a_cycle_may_do_does_not_take_it_all() -> None:
    chosen = drawn(lines(("dear", 0, 9), ("late", 0, 2)), 2)
    assert counts(chosen) == {"dear": 1, "late": 1}


def test_all_of_another_have_their_turn_beside_one_who_asks_for_more_than_a_cycle_may_do() -> None:
    """What the first pod cost beyond its half is not taken from what the others get."""
    shape = template(1, 0, *range(1, 101))
    heavy = Line("heavy", WaitingGroup(signature(shape), shape, PLAN))
    for number in range(4):
        heavy.add_pod(f"heavy/p{number}", number, fresh=False)
    work_max = 20 * ONE
    assert group_work(shape, TABLE) > work_max
    assert counts(drawn([heavy, *lines(("light", 0, 8))], work_max)) == {"heavy": 1, "light": 8}


def test_a_group_is_paid_for_once() -> None:
    burst, other = lines(("a", 0, 1), pods=100), lines(("b", 0, 1))
    room = ONE + 99 * pod_work(template(1), PLAN, TABLE) + ONE
    assert len(drawn([*burst, *other], room)) == 101


def test_an_ordinary_batch_is_drawn_whole() -> None:
    """2,000 pods of 1,000 plain groups, on the nodes of a large cluster."""
    state = ClusterState(seed=0)
    for n in range(5_000):
        state.apply(NodeUpserted(node(f"n{n}")))
    of = lines(("a", 0, 1_000), pods=2)
    heads = {"a": sorted(first for line in of if (first := line.first()) is not None)}
    turns = draw(heads, Works(state), work_max=cycle_work_max, pods_max=cycle_pods_max)
    assert (len(turns.drawn), turns.pods_count, turns.is_cut) == (2_000, 2_000, False)
    assert turns.work < cycle_work_max


def test_what_static_plugins_say_is_paid_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domain.queue.turns._STATIC", 1_000)
    works = Works(STATE)
    shapes = [template(i, node_selector=(("pool", f"{i // 10}"),)) for i in range(20)]
    several = [Line("a", WaitingGroup(signature(shape), shape, PLAN)) for shape in shapes]
    for i, line in enumerate(several):
        line.add_pod(f"a/p{i}", i, fresh=True)
    heads = {"a": sorted(first for line in several if (first := line.first()) is not None)}
    static = static_work(shapes[0], TABLE)
    assert static > 1_000
    assert draw(heads, works, work_max=MANY, pods_max=MANY).work == 20 * ONE + 2 * static


def test_what_is_not_drawn_is_not_looked_at() -> None:
    several = lines(("a", 0, 100), pods=3)
    waiting = {"a": sorted(first for line in several if (first := line.first()) is not None)}
    turns = draw(waiting, WORKS, work_max=MANY, pods_max=9)
    assert turns.opened == several[:4]  # the next pod, which had no turn any more, among them
    assert turns.is_cut


def test_to_tell_a_pod_why_it_waits_costs_the_same_whatever_it_asks_for() -> None:
    several = lines(("a", 0, 3), ("b", 0, 2), pods=2)
    heads = {name: [first for x in several if x.namespace == name and (first := x.first())] for name in "ab"}
    turns = draw(heads, WORKS, work_max=MANY, pods_max=MANY, is_told=True)
    assert (turns.pods_count, turns.work) == (10, 10 * pod_work(template(1), PLAN, TABLE))


def test_a_pod_costs_more_the_more_it_asks_of_other_pods() -> None:
    state = ClusterState(seed=0)
    for n in range(1_000):
        state.apply(NodeUpserted(node(f"n{n}")))
    asking = template(1, spread=(SpreadConstraint(topology_key="zone", hard=False),) * 16)
    plain = pod_work(template(1), PLAN, state.table)
    assert pod_work(asking, PLAN, state.table) == plain + 16 * 1_000 // 400
