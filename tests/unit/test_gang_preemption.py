"""What becomes of the promises of a gang: they begin together, start together and end together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Json, node_manifest, pod_group_manifest, pod_manifest
from tests.property.team import AT_MS, Team

LABEL = "scheduling.x-k8s.io/pod-group"


def members(count: int, gang: str = "g", **more: Any) -> list[Json]:
    more = {"cpu": 4, "priority": 10} | more
    return [pod_manifest(f"{gang}{i}", labels={LABEL: gang}, **more) for i in range(count)]


def lows(count: int, **more: Any) -> list[Json]:
    return [pod_manifest(f"low{i}", cpu=4, priority=0, node_name=f"n{i}", **more) for i in range(count)]


def full(nodes: int, least: int, *, pods: int | None = None, **of: Any) -> Team:
    """Return one worker whose nodes are full of low pods, and a gang that needs some of them."""
    team = Team([0], preempts=True)
    team.tell("ADDED", *(node_manifest(f"n{i}", cpu=4, labels={"rack": f"r{i // 2}"}) for i in range(nodes)))
    team.tell("ADDED", *lows(nodes), pod_group_manifest("g", least))
    team.tell("ADDED", *members(least if pods is None else pods, **of))
    return team


def told(team: Team, *outcomes: str) -> list[tuple[str, str]]:
    return [(row["pod"]["name"], row["outcome"]) for row in team.decided() if row["outcome"] in outcomes]


def leave(team: Team, *numbers: int) -> None:
    for number in numbers:
        team.tell("DELETED", pod_manifest(f"low{number}"))


def test_all_start_with_the_last_victim_that_leaves() -> None:
    team = full(3, 3)
    assert len(told(team, "nominated")) == len(told(team, "evicted")) == 3
    leave(team, 0, 1)
    assert told(team, "bound") == []
    leave(team, 2)
    assert sorted(told(team, "bound")) == [("g0", "bound"), ("g1", "bound"), ("g2", "bound")]


def test_nobody_is_evicted_where_that_is_not_enough() -> None:
    team = full(3, 4)
    assert told(team, "nominated", "evicted") == []


def test_nobody_is_evicted_for_pods_beyond_the_least_number() -> None:
    team = full(3, 2, pods=3)
    assert len(told(team, "nominated")) == len(told(team, "evicted")) == 2
    waits = [row for row in team.decided() if row["outcome"] == "gang-waiting"]
    assert {row["pod"]["name"] for row in waits} == {"g2"}


def test_a_pod_that_comes_late_waits_for_the_promises() -> None:
    team = full(2, 2)
    late = pod_manifest("late", cpu=1, priority=10, labels={LABEL: "g"})
    team.tell("ADDED", late)
    assert [*team.decided()[-1]["reasons"]] == ["gang-promised"]
    assert team.decided()[-1]["reason"] == "gang default/g: gang-promised"
    leave(team, 0, 1)
    assert ("late", "bound") not in told(team, "bound"), "both nodes are full"
    team.tell("ADDED", node_manifest("n9", cpu=4))
    assert ("late", "bound") in told(team, "bound")


def test_who_found_a_node_waits_for_the_others() -> None:
    team = Team([0], preempts=True)
    team.tell("ADDED", node_manifest("n0", cpu=4), node_manifest("n1", cpu=4), pod_group_manifest("g", 2))
    team.tell("ADDED", *lows(1), *members(2))
    victims = [row["preemption"]["victims"] for row in team.decided() if row["outcome"] == "nominated"]
    assert sorted(map(len, victims)) == [0, 1]
    team.tell("ADDED", pod_manifest("small", cpu=1, priority=5))
    assert ("small", "bound") not in told(team, "bound"), "the free node is promised"
    leave(team, 0)
    assert sorted(told(team, "bound"))[:2] == [("g0", "bound"), ("g1", "bound")]


@pytest.mark.parametrize("what", ["node", "member", "changed", "outbid", "cordon", "gone", "more", "group"])
def test_all_promises_end_with_one(what: str) -> None:
    team = full(2, 2)
    if what == "node":
        team.tell("DELETED", node_manifest("n0"))
    elif what == "member":
        team.tell("DELETED", members(1)[0])
    elif what == "changed":
        team.tell("MODIFIED", pod_manifest("g0", cpu=3, priority=10, resource_version=9, labels={LABEL: "g"}))
    elif what == "cordon":
        team.tell("MODIFIED", node_manifest("n0", cpu=4, labels={"rack": "r0"}, unschedulable=True))
    elif what == "gone":
        team.tell("DELETED", pod_group_manifest("g", 2))
    elif what == "more":
        team.tell("MODIFIED", pod_group_manifest("g", 3))
    elif what == "group":
        team.tell("MODIFIED", pod_group_manifest("g", 2, annotations={"berth.dev/topology-key": "rack"}))
    else:
        team.tell("ADDED", pod_manifest("top", cpu=4, priority=99))
    cleared = told(team, "cleared")
    assert [name for name, _ in cleared[:2]] in (["g0", "g1"], ["g1", "g0"])
    assert told(team, "spared"), "who still runs may stay"
    assert [outcome for _, outcome in told(team, "bound") if outcome == "g0"] == []


def test_promises_stay_where_nothing_changed_of_the_group() -> None:
    team = full(2, 2)
    team.tell("MODIFIED", pod_group_manifest("g", 2) | {"status": {"phase": "Pending"}})
    team.tell("ADDED", pod_group_manifest("h", 2), pod_group_manifest("g", 5, "other"))
    assert told(team, "cleared", "spared") == []


def test_promises_run_out_together_and_the_gang_waits_before_it_evicts_again() -> None:
    team = full(2, 2)
    for seconds, count in ((61, 2), (122, 2), (125, 2)):
        team.tell("ADDED", node_manifest("tiny", cpu=1), at_ms=AT_MS + seconds * 1_000)
        assert len(told(team, "cleared")) == min(seconds // 61, 2) * count
    assert len(told(team, "nominated")) == 4, "once more at once, and then not for a minute"
    assert len(told(team, "spared")) == 4


def test_a_gang_in_one_domain_evicts_in_one_domain() -> None:
    team = Team([0], preempts=True)
    team.tell("ADDED", *(node_manifest(f"n{i}", cpu=4, labels={"rack": f"r{i % 2}"}) for i in range(4)))
    group = pod_group_manifest("g", 2)
    group["metadata"]["annotations"] = {"berth.dev/topology-key": "rack"}
    team.tell("ADDED", *lows(4), group)
    team.tell("ADDED", *members(2))
    nodes = {row["node"] for row in team.decided() if row["outcome"] == "nominated"}
    assert nodes in ({"n0", "n2"}, {"n1", "n3"})


def test_two_gangs_of_equal_priority_do_not_evict_in_turns() -> None:
    team = full(3, 3)
    team.tell("ADDED", pod_group_manifest("h", 3), *members(3, gang="h"))
    leave(team, 0, 1, 2)
    assert {name[0] for name, _ in told(team, "bound")} == {"g"}
    assert {name[0] for name, _ in told(team, "nominated")} == {"g"}
    for each in members(3):
        team.tell("DELETED", each)
    assert {name[0] for name, _ in told(team, "bound")} == {"g", "h"}


def test_least_resources_count_what_pods_of_lower_priority_hold() -> None:
    team = Team([0], preempts=True)
    group = pod_group_manifest("g", 2)
    group["spec"]["minResources"] = {"cpu": "8"}
    team.tell("ADDED", *(node_manifest(f"n{i}", cpu=4) for i in range(2)), *lows(2), group)
    team.tell("ADDED", *members(2))
    assert len(told(team, "nominated")) == 2


def test_a_gang_with_a_pod_that_never_preempts_evicts_nobody() -> None:
    team = Team([0], preempts=True)
    team.tell(
        "ADDED", *(node_manifest(f"n{i}", cpu=4) for i in range(2)), *lows(2), pod_group_manifest("g", 2)
    )
    never = {"preemptionPolicy": "Never"}
    team.tell("ADDED", members(1)[0], members(2, spec=never)[1])
    assert told(team, "nominated", "evicted") == []


def test_a_restart_knows_the_promises_of_a_gang() -> None:
    team = full(2, 2)
    team.die(0)
    leave(team, 0)
    assert told(team, "bound") == []
    leave(team, 1)
    assert len(told(team, "bound")) == 2
