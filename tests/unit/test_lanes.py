"""Does a pod that can be placed wait behind a flood that cannot, or behind low pods?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pytest

from domain.cycle import schedule as schedule_module
from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Failure, Placement
from domain.model.config import POD_GROUP, PodGroup
from domain.model.events import ConfigUpserted, NodeUpserted, PodUpserted, ProfileUpserted
from domain.model.limits import cycle_pods_max, cycle_work_low_max
from domain.model.pods import DEFAULT_PROFILE, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse
from domain.model.selectors import LabelRequirement, LabelSelector, SpreadConstraint
from tests.values import node, pod, template

LARGE, SMALL = template(5_000, qos_class="Burstable"), template(10, qos_class="Guaranteed")
LOW = template(qos_class="BestEffort")
LABELS = {"app": "flood"}
SPREAD = SpreadConstraint(
    topology_key="zone", hard=True, selector=LabelSelector((LabelRequirement("app", "In", ("flood",)),))
)
SPREAD_OUT = template(500, qos_class="Burstable", spread=(SPREAD,))
"""One finds a node in zone a; the others would have to be in zone b, where there is no room."""


def scheduler_of(*, colocates: bool = False, cpu: int = 4_000, pods: int = 10_000) -> Scheduler:
    """Return a scheduler with a node in zone a, and a full one in zone b."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for plan in scheduler.profiles.plans.values():
        plan.colocates = colocates
    scheduler.fold(NodeUpserted(node("a", cpu=cpu, pods=pods, labels={"zone": "a"})))
    scheduler.fold(NodeUpserted(node("b", pods=0, labels={"zone": "b"})))
    return scheduler


def add(scheduler: Scheduler, name: str, of: PodTemplate, count: int, namespace: str = "default") -> None:
    for i in range(count):
        scheduler.fold(PodUpserted(pod(f"{name}{i}", of, labels=LABELS, namespace=namespace)))


def placed(result: CycleResult, name: str = "") -> list[str]:
    names = [each.pod.name for each in result.verdicts if isinstance(each, Placement)]
    return [each for each in names if each.startswith(name)]


def told(result: CycleResult, name: str = "") -> list[str]:
    names = [each.pod.name for each in result.verdicts if isinstance(each, Failure)]
    return [each for each in names if each.startswith(name)]


def cycles(scheduler: Scheduler, most: int) -> Iterator[CycleResult]:
    """Yield what cycles decide until nothing is left to do."""
    for _ in range(most):
        if not scheduler.has_work:
            return
        yield scheduler.cycle()
    assert not scheduler.has_work


def numbered(names: Iterable[str]) -> list[int]:
    return [int("".join(filter(str.isdigit, name))) for name in names]


@pytest.fixture
def short_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a cycle try 40 pods, and 16 low ones."""
    defaults = Scheduler.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "cycle_pods_max", 40)
    monkeypatch.setattr(schedule_module, "cycle_pods_low_max", 16)


# ------------------------------------------------------------------ what fits, and what does not fit


def test_small_pods_behind_a_hundred_thousand_that_fit_nowhere_are_placed_at_once() -> None:
    scheduler = scheduler_of()
    add(scheduler, "large", LARGE, 100_000)
    add(scheduler, "small", SMALL, 20)
    results = list(cycles(scheduler, 30))
    assert len(placed(results[0], "small")) == 20
    assert sum(len(told(each)) for each in results) == 100_000
    assert max(len(each.verdicts) for each in results) == cycle_pods_max
    assert len(results) == 26


@pytest.mark.usefixtures("short_cycles")
@pytest.mark.parametrize("flood", [LARGE, SPREAD_OUT], ids=["no room", "rules over pods"])
def test_every_pod_of_a_flood_is_told_why_it_waits(flood: PodTemplate) -> None:
    """A pod that is placed could cure what rules refused: such a flood is tried in each cycle."""
    scheduler = scheduler_of()
    add(scheduler, "flood", flood, 500)
    add(scheduler, "small", SMALL, 4)
    results = list(cycles(scheduler, 20))
    assert len(placed(results[0], "small")) == 4
    assert sum(len(told(each, "flood")) for each in results) == 500 - (flood is SPREAD_OUT)
    assert max(len(each.verdicts) for each in results) == 40


@pytest.mark.usefixtures("short_cycles")
def test_a_flood_that_is_tried_in_each_cycle_holds_up_neither_others_nor_its_own_news() -> None:
    """Nodes that come have it tried as often, as fresh pods of it do not back off."""
    scheduler = scheduler_of()
    add(scheduler, "flood", LARGE, 500)
    fresh = 500
    for i in range(20):
        scheduler.fold(NodeUpserted(node(f"n{i}", cpu=100)))
        add(scheduler, f"small{i}-", SMALL, 3)
        result = scheduler.cycle()
        assert len(placed(result, "small")) == 3
        assert len(told(result)) == min(fresh, 37)
        fresh -= len(told(result))
    assert fresh == 0


@pytest.mark.usefixtures("short_cycles")
def test_to_tell_why_goes_on_however_much_there_is_to_place() -> None:
    scheduler = scheduler_of(cpu=10**9)
    add(scheduler, "gated", template(10, gates=("wait",)), 200)
    add(scheduler, "small", SMALL, 400)
    for _ in range(5):
        result = scheduler.cycle()
        assert (len(placed(result)), len(told(result))) == (30, 10)


@pytest.mark.usefixtures("short_cycles")
def test_no_pod_is_placed_before_an_older_one_of_its_namespace_and_priority_that_fits() -> None:
    """The last pods of the flood are tried before those behind it, though other pods of the draw failed."""
    scheduler = scheduler_of(cpu=10**6, pods=54)
    add(scheduler, "large", template(10**7), 20)
    add(scheduler, "fits", SMALL, 50)
    add(scheduler, "late", template(20), 10)
    results = list(cycles(scheduler, 10))
    names = [name for each in results for name in placed(each)]
    assert names == [*(f"fits{i}" for i in range(50)), *(f"late{i}" for i in range(4))]
    assert [len(placed(each)) for each in results[:2]] == [10, 30]


@pytest.mark.usefixtures("short_cycles")
def test_a_gang_behind_a_flood_has_its_turn_in_the_next_cycle() -> None:
    scheduler = scheduler_of()
    scheduler.fold(ConfigUpserted(POD_GROUP, "default", "g", PodGroup(min_member=3)))
    add(scheduler, "flood", LARGE, 200)
    add(scheduler, "early", SMALL, 2)
    add(scheduler, "member", msgspec.structs.replace(SMALL, gang="default/g"), 3)
    add(scheduler, "late", SMALL, 2)
    assert placed(scheduler.cycle()) == ["early0", "early1"]
    assert placed(scheduler.cycle()) == ["member0", "member1", "member2", "late0", "late1"]


# ------------------------------------------------------------------------------------------ low pods


@pytest.mark.usefixtures("short_cycles")
@pytest.mark.parametrize("priority", [0, 1_000])
def test_low_pods_have_what_is_left_once_all_others_had_their_turn(priority: int) -> None:
    """Also where they are older, and say a higher priority."""
    scheduler = scheduler_of(colocates=True, pods=36)
    add(scheduler, "low", msgspec.structs.replace(LOW, priority=priority), 100)
    add(scheduler, "high", SMALL, 25)
    result = scheduler.cycle()
    assert placed(result) == [*(f"high{i}" for i in range(25)), *(f"low{i}" for i in range(11))]
    assert told(result, "high") == []


@pytest.mark.usefixtures("short_cycles")
@pytest.mark.parametrize("is_fresh", [True, False], ids=["fresh", "parked"])
def test_a_flood_of_low_pods_costs_others_nothing_but_its_budget(is_fresh: bool) -> None:
    scheduler = scheduler_of(colocates=True, cpu=10**9)
    add(scheduler, "low", msgspec.structs.replace(LOW, node_selector={"zone": "c"}), 300)
    if not is_fresh:
        assert sum(len(told(each)) for each in cycles(scheduler, 30)) == 300
    add(scheduler, "high", SMALL, 90)
    results = [scheduler.cycle() for _ in range(3)]
    assert [len(placed(each, "high")) for each in results] == [30, 30, 30]
    assert [len(told(each, "low")) for each in results] == ([16, 16, 16] if is_fresh else [0, 0, 0])


def test_the_work_of_low_pods_has_a_budget_of_its_own() -> None:
    """Each group of them is looked at by itself, and costs as much as another's."""
    scheduler = scheduler_of(colocates=True)
    for i in range(200):
        add(scheduler, f"low{i}-", msgspec.structs.replace(LOW, node_selector={"zone": f"z{i}"}), 1)
    add(scheduler, "high", SMALL, 3)
    works: list[int] = []
    for result in cycles(scheduler, 20):
        assert placed(result) == ([] if works else ["high0", "high1", "high2"])
        works.append(scheduler.work)
    assert len(works) > 3
    assert max(works) <= 2 * cycle_work_low_max


@pytest.mark.usefixtures("short_cycles")
def test_among_low_pods_priority_and_namespaces_decide_as_among_all() -> None:
    scheduler = scheduler_of(colocates=True)
    add(scheduler, "burst", LOW, 100, namespace="burst")
    add(scheduler, "late", LOW, 2, namespace="late")
    add(scheduler, "urgent", msgspec.structs.replace(LOW, priority=5), 3, namespace="burst")
    result = scheduler.cycle()
    assert placed(result)[:3] == ["urgent0", "urgent1", "urgent2"]
    assert placed(result, "late") == ["late0", "late1"]
    assert len(placed(result)) == 12


def test_without_the_plugin_there_is_one_order() -> None:
    scheduler = scheduler_of(pods=2)
    add(scheduler, "low", LOW, 1)
    add(scheduler, "high", SMALL, 2)
    assert placed(scheduler.cycle()) == ["low0", "high0"]


def test_a_profile_that_changes_moves_its_low_pods_to_the_other_lane() -> None:
    """They stand in the queue by the same pod, fresh as before."""
    scheduler = scheduler_of(pods=2)
    add(scheduler, "low", LOW, 1)
    add(scheduler, "high", SMALL, 2)
    assert scheduler.has_work
    before = BUILT_IN_PROFILES[DEFAULT_PROFILE]
    changed = msgspec.structs.replace(before, scores=(PluginUse(name="NodeResourcesFit"),))
    scheduler.fold(ProfileUpserted(changed))
    scheduler.profiles.plans[DEFAULT_PROFILE].colocates = True
    scheduler.queue.replan(DEFAULT_PROFILE)
    assert placed(scheduler.cycle()) == ["high0", "high1"]


@pytest.mark.parametrize("other", [LOW, SMALL], ids=["low", "mixed"])
def test_a_gang_of_low_pods_alone_is_low(other: PodTemplate) -> None:
    scheduler = scheduler_of(colocates=True, pods=3)
    scheduler.fold(ConfigUpserted(POD_GROUP, "default", "g", PodGroup(min_member=2)))
    add(scheduler, "member", msgspec.structs.replace(LOW, gang="default/g"), 1)
    add(scheduler, "other", msgspec.structs.replace(other, gang="default/g"), 1)
    add(scheduler, "high", SMALL, 2)
    result = scheduler.cycle()
    if other is LOW:
        assert (placed(result), told(result)) == (["high0", "high1"], ["member0", "other0"])
    else:
        assert (placed(result), told(result)) == (["member0", "other0", "high0"], ["high1"])
