"""Do pods and gangs preempt for devices, and is what is promised of these kept for them?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import Json, pod_group_manifest
from tests.property.device_team import check, devices_of, gpu_node, gpu_pod
from tests.property.team import Team

NOTHING: Mapping[str, int] = {}
LABEL = "scheduling.x-k8s.io/pod-group"


def asking(
    name: str, asks: Mapping[str, int] = NOTHING, *, priority: int = 10, cpu: str = "100m", gang: str = ""
) -> Json:
    manifest = gpu_pod(name, gpu=asks.get("gpu", 0), milli=asks.get("milli", 0))
    manifest["spec"]["priority"] = priority
    manifest["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    if gang:
        manifest["metadata"]["labels"] = {LABEL: gang}
    return manifest


def low(name: str, asks: Mapping[str, int] = NOTHING, *, priority: int = 0, cpu: str = "100m") -> Json:
    return asking(name, asks, priority=priority, cpu=cpu)


def full(devices: int, *pods: Json, nodes: int = 1) -> Team:
    """Return one worker, and nodes of 64 cores with so many devices each, on which these pods are placed."""
    team = Team([0], preempts=True)
    team.tell("ADDED", *(gpu_node(f"n{i}", devices) for i in range(nodes)))
    for pod in pods:
        team.tell("ADDED", pod)
    assert {each["outcome"] for each in team.decided()} <= {"bound"}
    return team


def told(team: Team, *outcomes: str) -> list[str]:
    return [row["pod"]["name"] for row in team.decided() if row["outcome"] in outcomes]


def leave(team: Team, *names: str) -> None:
    for name in names:
        team.tell("DELETED", gpu_pod(name, version=2))
    check(team)


def test_who_holds_a_whole_device_makes_way_for_one() -> None:
    team = full(2, low("plain"), low("dear", {"gpu": 1}, priority=5), low("cheap", {"gpu": 1}))
    team.tell("ADDED", asking("high", {"gpu": 1}))
    assert (told(team, "evicted"), told(team, "nominated")) == (["cheap"], ["high"])
    team.die(0)
    team.rest()
    leave(team, "cheap")
    assert devices_of(team)["high"] == ("n0", (1,))


def test_who_shares_a_device_stays_and_others_leave() -> None:
    team = full(2, low("share", {"milli": 300}, priority=5), low("whole", {"gpu": 1}))
    team.tell("ADDED", asking("high", {"gpu": 1}))
    assert told(team, "evicted") == ["whole"]
    leave(team, "whole")
    assert devices_of(team)["high"] == ("n0", (1,))


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("asks", [{"milli": 800}, {"gpu": 1}])
def test_who_shares_a_device_makes_way_for_more_of_it(asks: dict[str, int], is_restarted: bool) -> None:
    team = full(1, low("share", {"milli": 300}), low("plain"))
    team.tell("ADDED", asking("high", asks))
    assert (told(team, "evicted"), told(team, "nominated")) == (["share"], ["high"])
    if is_restarted:
        team.die(0)
        team.rest()
    leave(team, "share")
    assert devices_of(team)["high"] == ("n0", (0,))


def test_who_is_on_the_device_leaves_and_nobody_else() -> None:
    """A share of one device is lacking: who has room beside it stays, as does who is on another device."""
    pods = low("small", {"milli": 200}, priority=5), low("dear", {"milli": 700}), low("cheap", {"gpu": 1})
    team = full(2, *pods)
    team.tell("ADDED", asking("high", {"milli": 300}))
    assert told(team, "evicted") == ["cheap"]
    team = full(1, *pods[:2])
    team.tell("ADDED", asking("high", {"milli": 800}))
    assert told(team, "evicted") == ["dear"]


def test_two_devices_become_free_together_for_who_wants_both() -> None:
    shares = [low(f"share{i}", {"milli": 600}) for i in range(3)]
    team = full(3, *shares)
    team.tell("ADDED", asking("high", {"gpu": 2}))
    assert len(told(team, "evicted")) == 2
    leave(team, *told(team, "evicted"))
    ((_, devices),) = [held for name, held in devices_of(team).items() if name == "high"]
    assert len(devices) == 2


def test_nobody_leaves_where_shares_of_equal_priority_stay() -> None:
    team = full(1, low("share", {"milli": 300}), low("equal", {"milli": 300}, priority=10))
    team.tell("ADDED", asking("high", {"milli": 800}))
    assert told(team, "evicted", "nominated") == []


def test_who_could_not_be_helped_is_planned_for_when_devices_are_left_to_lower_pods() -> None:
    """A pod of equal priority leaves the device that a pod of lower priority shares."""
    team = full(1, low("share", {"milli": 300}), low("equal", {"milli": 300}, priority=10))
    team.tell("ADDED", asking("high", {"milli": 800}))
    leave(team, "equal")
    assert told(team, "evicted") == ["share"]


def test_two_shares_on_one_node_get_theirs_one_after_the_other() -> None:
    """Both are promised as if on the emptiest device: the second is promised once the first has its own."""
    team = full(2, *(low(f"low{i}", {"milli": 600}) for i in range(2)))
    team.tell("ADDED", *(asking(f"high{i}", {"milli": 600}) for i in range(2)))
    assert len(told(team, "evicted")) == 1
    leave(team, *told(team, "evicted"))
    assert len(told(team, "evicted")) == 2
    leave(team, told(team, "evicted")[1])
    assert {devices_of(team)[f"high{i}"] for i in range(2)} == {("n0", (0,)), ("n0", (1,))}


def test_who_lacks_more_than_a_share_gets_it_where_it_is_free() -> None:
    team = full(1, low("share", {"milli": 300}), low("large", cpu="60"))
    team.tell("ADDED", asking("high", {"milli": 600}, cpu="10"))
    assert told(team, "evicted") == ["large"]
    leave(team, "large")
    assert devices_of(team)["high"] == ("n0", (0,))


@pytest.mark.parametrize("late", [{"milli": 300}, {"gpu": 1}])
def test_devices_that_are_promised_are_given_to_nobody_else(late: dict[str, int]) -> None:
    team = full(2, low("a", {"gpu": 1}), low("b", {"gpu": 1}))
    team.tell("ADDED", asking("high", {"gpu": 2}))
    leave(team, "a")
    team.tell("ADDED", low("late", late))
    leave(team, "b")
    assert devices_of(team)["high"] == ("n0", (0, 1))
    assert "late" not in devices_of(team)


@pytest.mark.parametrize("late", [{"milli": 600}, {"gpu": 1}])
def test_a_share_that_is_promised_is_given_to_nobody_else(late: dict[str, int]) -> None:
    team = full(1, low("large", cpu="60"), low("medium", cpu="4"))
    team.tell("ADDED", asking("high", {"milli": 500}, cpu="62"))
    assert sorted(told(team, "evicted")) == ["large", "medium"]
    leave(team, "large")
    team.tell("ADDED", low("late", late, cpu="0"))
    leave(team, "medium")
    assert devices_of(team)["high"] == ("n0", (0,))
    assert "late" not in devices_of(team)


def test_two_that_find_one_share_do_not_evict_for_both() -> None:
    team = full(1, low("a", cpu="32"), low("b", cpu="31"))
    team.tell("ADDED", *(asking(f"high{i}", {"milli": 600}, cpu="30") for i in range(2)))
    assert len(told(team, "evicted")) == len(told(team, "nominated")) == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_gang_evicts_for_its_devices_and_gets_them(is_restarted: bool) -> None:
    lows = [low(f"low{i}", {"gpu": 1}) for i in range(4)]
    team = full(2, *lows, nodes=2)
    team.tell("ADDED", pod_group_manifest("g", 2), *(asking(f"g{i}", {"gpu": 2}, gang="g") for i in range(2)))
    assert (len(told(team, "evicted")), len(told(team, "nominated"))) == (4, 2)
    leave(team, "low0", "low1", "low2")
    assert "g0" not in devices_of(team)
    if is_restarted:
        team.die(0)
        team.rest()
    leave(team, "low3")
    of = devices_of(team)
    assert sorted(of[name] for name in ("g0", "g1")) == [("n0", (0, 1)), ("n1", (0, 1))]


@pytest.mark.parametrize("asks", [{"gpu": 1}, {"milli": 700}])
def test_a_gang_that_waits_gives_its_devices_back(asks: dict[str, int]) -> None:
    team = Team([0])
    gang = [asking(f"g{i}", asks, gang="g") for i in range(3)]
    others = [low("share", {"milli": 900}), low("whole", {"gpu": 1})]
    team.tell("ADDED", gpu_node("n0", 2), pod_group_manifest("g", 3), *gang, *others)
    assert set(told(team, "gang-waiting")) == {"g0", "g1", "g2"}
    assert devices_of(team) == {"share": ("n0", (0,)), "whole": ("n0", (1,))}
    check(team)
