"""What a search for cures says of pods that are held, promised a node, or need nothing; and where it ends."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from domain.cures.changes import (
    Change,
    Cure,
    Findings,
    Leave,
    LiftGates,
    MoreNodes,
    MoreRoom,
    RaisePriority,
    RelaxSpread,
    RepairNode,
    SmallerGang,
    Tolerate,
)
from domain.cures.search import find_cures
from domain.cures.trials import Bounds
from domain.cycle.schedule import Scheduler
from domain.model.config import DisruptionBudget, PodGroup
from domain.model.devices import GPU, GPU_MILLI
from domain.model.events import ConfigUpserted, Event, NodeUpserted, PodUpserted
from domain.model.nodes import Taint
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import LabelRequirement, LabelSelector, SpreadConstraint
from tests.values import GIB, node, pod, template

ZONE = "topology.kubernetes.io/zone"
WEB = LabelSelector((LabelRequirement("app", "In", ("web",)),))


def known(*events: Event) -> Scheduler:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for event in events:
        scheduler.fold(event)
    return scheduler


def asked(of: PodSpec, *events: Event, waiting: int = 1, bounds: Bounds | None = None) -> Findings:
    scheduler = known(*events, PodUpserted(of))
    return find_cures(scheduler, of, waiting, bounds or Bounds())


def nodes(*cpu: int) -> list[Event]:
    return [NodeUpserted(node(f"n{i}", cpu=each)) for i, each in enumerate(cpu)]


def rooms(found: Findings) -> dict[str, dict[str, int]]:
    changes = (cure.changes[0] for cure in found.cures if len(cure.changes) == 1)
    return {each.node: each.amounts for each in changes if isinstance(each, MoreRoom)}


def singles(found: Findings, kind: type[Change]) -> list[Change]:
    return [cure.changes[0] for cure in found.cures if type(cure.changes[0]) is kind]


def test_a_pod_that_fits_needs_no_cure() -> None:
    found = asked(pod("w", template(cpu=500)), *nodes(1_000))
    assert (found.fits_on, found.cures, found.reached) == ("n0", [], True)


def test_a_pod_of_no_profile_is_held_and_nothing_is_tried() -> None:
    found = asked(pod("w", template(cpu=500, profile="none")), *nodes(1_000))
    assert (found.held_by, found.cures, found.dry_runs_count) == (("unknown-profile:none",), [], 0)


def test_a_gate_is_lifted() -> None:
    found = asked(pod("w", template(cpu=500, gates=("g",))), *nodes(1_000))
    assert found.held_by == ("scheduling-gated:g",)
    assert [cure.changes for cure in found.cures] == [(LiftGates(gates=("g",)),)]


@pytest.mark.parametrize("cpu", [2_000, 5_000])
def test_a_gate_and_a_second_change(cpu: int) -> None:
    found = asked(pod("w", template(cpu=cpu, gates=("g",))), *nodes(1_000))
    room = MoreRoom(node="n0", zone="", amounts={"cpu": cpu - 1_000}, part=(cpu - 1_000) * 1_000 // cpu + 1)
    assert (LiftGates(gates=("g",)), room) in [cure.changes for cure in found.cures]


def test_no_nodes_no_cure() -> None:
    found = asked(pod("w", template(cpu=500)))
    assert (found.cures, found.reasons, found.reached) == ([], {}, True)


def test_what_is_missing_is_told_for_each_resource_that_is_missing_alone() -> None:
    events = [
        NodeUpserted(node("much", cpu=1_000, memory=64 * GIB)),
        NodeUpserted(node("fast", cpu=64_000, memory=2 * GIB)),
        NodeUpserted(node("full", cpu=64_000, memory=64 * GIB, pods=0)),
    ]
    found = asked(pod("w", template(cpu=4_000, memory=4 * GIB)), *events)
    assert rooms(found) == {"much": {"cpu": 3_000}, "fast": {"memory": 2 * GIB}, "full": {"pods": 1}}


@pytest.mark.parametrize(("asks", "missing"), [({GPU: 2}, 1), ({GPU_MILLI: 700}, 1)])
def test_devices_are_missing_as_whole_ones(asks: dict[str, int], missing: int) -> None:
    events: list[Event] = [
        NodeUpserted(node("g", extended={GPU: 2})),
        PodUpserted(pod("a", template(requests={GPU_MILLI: 500}), on="g")),
        PodUpserted(pod("b", template(requests={GPU_MILLI: 500} if GPU_MILLI in asks else {}), on="g")),
    ]
    busy = [PodUpserted(pod("c", template(requests={GPU_MILLI: 900}), on="g"))] if GPU_MILLI in asks else []
    found = asked(pod("w", template(requests=asks)), *events, *busy)
    assert [each.amounts for each in singles(found, MoreRoom) if isinstance(each, MoreRoom)] == [
        {GPU: missing}
    ]


def test_a_node_that_is_not_well_is_repaired_and_not_tolerated() -> None:
    ill = Taint("node.kubernetes.io/not-ready", "", "NoExecute")
    found = asked(pod("w", template(cpu=500)), NodeUpserted(node("n", taints=(ill,), unschedulable=True)))
    assert singles(found, RepairNode) == [RepairNode(node="n", cordoned=True, taints=(ill,))]
    assert singles(found, Tolerate) == []
    assert singles(found, MoreNodes) == [MoreNodes(like="n")], "a new one comes well"


def test_the_fewest_pods_leave_and_a_budget_that_holds_them_is_named() -> None:
    low = [pod(f"low{i}", template(cpu=1_000, priority=i), on="n0", labels={"app": "web"}) for i in range(3)]
    big = pod("big", template(cpu=3_000, priority=4), on="n1")
    budget = DisruptionBudget(selector=WEB, disruptions_allowed=1)
    events = [*nodes(3_000, 3_000), ConfigUpserted("PodDisruptionBudget", "default", "b", budget, 1)]
    waits = pod("w", template(cpu=2_000, priority=9))
    found = asked(waits, *events, *map(PodUpserted, [*low, big]))
    assert singles(found, Leave) == [Leave(node="n1", pods=("default/big",), below=9)]
    found = asked(
        waits,
        *events,
        *map(PodUpserted, low),
        PodUpserted(pod("top", template(cpu=3_000, priority=9), on="n1")),
    )
    assert singles(found, Leave) == [
        Leave(node="n0", pods=("default/low0", "default/low1"), below=9, budgets=("default/b",))
    ]


def test_a_spread_is_relaxed_to_the_smallest_skew_that_does() -> None:
    spread = (SpreadConstraint(topology_key=ZONE, selector=WEB),)
    web = template(cpu=100, spread=spread)
    events = [NodeUpserted(node(f"n{z}", cpu=cpu, labels={ZONE: z})) for z, cpu in (("a", 4_000), ("b", 100))]
    placed = [PodUpserted(pod(f"p{i}", web, on="na", labels={"app": "web"})) for i in range(3)]
    placed.append(PodUpserted(pod("full", template(cpu=100), on="nb")))
    found = asked(pod("w", web, labels={"app": "web"}), *events, *placed)
    assert singles(found, RelaxSpread) == [RelaxSpread(at=0, topology_key=ZONE, max_skew=4)]


def gang(least: int, members: int, **more: int) -> tuple[Scheduler, PodSpec]:
    of = template(cpu=1_000, gang="default/g", **more)
    pods = [pod(f"m{i}", of) for i in range(members)]
    group = ConfigUpserted("PodGroup", "default", "g", PodGroup(min_member=least), 1)
    return known(group, *nodes(1_000, 1_000, 1_000), *map(PodUpserted, pods)), pods[0]


def test_a_gang_starts_with_as_many_as_find_a_node_or_with_more_nodes() -> None:
    scheduler, member = gang(5, 6)
    found = find_cures(scheduler, member, 6, Bounds())
    assert [cure.changes for cure in found.cures if cure.changes[0].size == 2] == [
        (SmallerGang(gang="default/g", min_member=3, before=5),),
        (MoreNodes(like="n0", count=2),),
    ]


def test_a_higher_priority_counts_who_would_be_evicted_for_all_pods() -> None:
    low = [PodUpserted(pod(f"low{i}", template(cpu=1_000, priority=3), on=f"n{i}")) for i in range(2)]
    waits = pod("w", template(cpu=1_000, priority=1))
    found = asked(waits, *nodes(1_000, 1_000), *low, waiting=2)
    assert singles(found, RaisePriority) == [RaisePriority(priority=4, node="", victims_count=2)]
    (cure,) = [each for each in found.cures if isinstance(each.changes[0], RaisePriority)]
    assert (cure.pods_count, cure.counted_count) == (2, 2)


def test_a_priority_that_evicts_for_all_already_is_not_raised() -> None:
    low = pod("low", template(cpu=1_000, priority=1), on="n0")
    same = pod("same", template(cpu=1_000, memory=GIB, priority=3), on="n1")
    waits = pod("w", template(cpu=1_000, priority=3))
    assert not singles(asked(waits, *nodes(1_000, 1_000), *map(PodUpserted, (low, same))), RaisePriority)
    two = asked(waits, *nodes(1_000, 1_000), *map(PodUpserted, (low, same)), waiting=2)
    assert singles(two, RaisePriority) == [RaisePriority(priority=4, node="", victims_count=2)]


def test_the_lowest_priority_that_evicts_for_more_of_them_is_told() -> None:
    low = [
        PodUpserted(pod(f"low{i}", template(cpu=1_000, priority=i), on=f"n{n}"))
        for n, i in enumerate((2, 6, 100))
    ]
    waits = pod("w", template(cpu=1_000, priority=5))
    found = asked(waits, *nodes(1_000, 1_000, 1_000), *low, waiting=3)
    raised = [each.priority for each in singles(found, RaisePriority) if isinstance(each, RaisePriority)]
    assert raised == [7], "its own evicts for one of three, 7 for two, 101 for all"


def test_pods_like_those_that_wait_are_not_evicted_for_them() -> None:
    equal = template(cpu=1_000)
    found = asked(pod("w", equal), *nodes(1_000), PodUpserted(pod("placed", equal, on="n0")))
    assert singles(found, RaisePriority) == []


def test_pods_of_lower_priority_may_leave_for_a_gang() -> None:
    scheduler, member = gang(3, 3, priority=5)
    others = [pod(f"other{i}", template(cpu=500, priority=i + 1), on=f"n{i}") for i in range(2)]
    for each in others:
        scheduler.fold(PodUpserted(each))
    found = find_cures(scheduler, member, 3, Bounds())
    (left,) = [each for each in singles(found, Leave) if isinstance(each, Leave)]
    assert (left.node, left.below, sorted(left.pods)) == ("", 5, [each.key for each in others])


def test_a_gang_may_evict_others_at_a_higher_priority() -> None:
    scheduler, member = gang(3, 3, priority=1)
    for i in range(3):
        scheduler.fold(PodUpserted(pod(f"other{i}", template(cpu=500, priority=i + 1), on=f"n{i}")))
    found = find_cures(scheduler, member, 3, Bounds())
    raised = RaisePriority(priority=4, node="", victims_count=3)
    assert (raised,) in [cure.changes for cure in found.cures if cure.cures_all]


def test_a_gang_of_which_too_few_exist_may_be_smaller() -> None:
    scheduler, member = gang(4, 2)
    found = find_cures(scheduler, member, 2, Bounds())
    assert found.held_by == ("gang-incomplete",)
    assert [cure.changes for cure in found.cures] == [
        (SmallerGang(gang="default/g", min_member=2, before=4),)
    ]
    assert found.cures[0].cures_all


def test_a_gang_of_which_all_are_held_has_no_cures() -> None:
    of = template(cpu=1_000, gang="default/g", gates=("g",), priority=5)
    group = ConfigUpserted("PodGroup", "default", "g", PodGroup(min_member=1), 1)
    low = PodUpserted(pod("low", template(cpu=1_000), on="n0"))
    found = asked(pod("m", of), group, *nodes(1_000), low)
    assert (found.held_by, found.cures) == (("scheduling-gated:g",), [])


def test_a_gang_that_nothing_says_anything_of_is_held() -> None:
    of = template(cpu=1_000, gang="default/none")
    found = asked(pod("m", of), *nodes(1_000))
    assert (found.held_by, found.cures) == (("gang-unknown",), [])


def test_a_pod_that_has_a_node_promised_is_told_which() -> None:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, preempts=True)
    low, high = pod("low", template(cpu=1_000), on="n0"), pod("w", template(cpu=1_000, priority=5))
    for event in (*nodes(1_000), PodUpserted(low), PodUpserted(high)):
        scheduler.fold(event)
    scheduler.cycle()
    assert find_cures(scheduler, high, 1, Bounds()).nominated_on == "n0"


def crowded() -> tuple[PodSpec, list[Event]]:
    taints = [Taint("team", str(i)) for i in range(3)]
    events: list[Event] = [NodeUpserted(node(f"t{i}", taints=(each,))) for i, each in enumerate(taints)]
    return pod("w", template(cpu=2_000, node_selector={"disk": "ssd"})), [*events, *nodes(1_000)]


def test_a_budget_that_ends_first_is_told_and_what_was_found_stays() -> None:
    waits, events = crowded()
    whole = asked(waits, *events)
    assert whole.reached
    assert whole.cures
    for most in range(whole.dry_runs_count):
        cut = asked(waits, *events, bounds=Bounds(dry_runs_max=most))
        assert not cut.reached
        assert cut.dry_runs_count == most
        assert all(each in [*whole.cures, *cut.cures] for each in cut.cures)
    ticks = count()
    late = asked(waits, *events, bounds=Bounds(is_over=lambda: next(ticks) > 5))
    assert (late.reached, late.dry_runs_count) == (False, 6)


def test_a_group_of_many_costs_no_more_than_one_of_some() -> None:
    waits, events = crowded()
    some = asked(waits, *events, waiting=50)
    many = asked(waits, *events, waiting=100_000, bounds=Bounds(pods_max=50))
    assert many == some


def test_cures_of_all_come_first_then_the_fewest_and_smallest_changes() -> None:
    def cure(pods: int, *changes: Change) -> Cure:
        return Cure(changes=changes, pods_count=pods, counted_count=3)  # type: ignore[arg-type]

    small, large = (MoreRoom(node="n", zone="", amounts={"cpu": p}, part=p) for p in (1, 9))
    taint = Tolerate(taints=(Taint("a"),))
    ordered = [
        cure(3, taint),
        cure(3, large),
        cure(3, taint, small),
        cure(2, taint),
        cure(1, small),
        cure(1, large),
        cure(2, MoreNodes(like="n")),
    ]
    orders = [each.order for each in ordered]
    assert orders == sorted(orders)


def test_each_change_is_told_as_itself() -> None:
    waits, events = crowded()
    found = asked(waits, *events)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Findings) == found


def test_a_template_without_what_a_change_takes_stays_as_it_is() -> None:
    of = PodTemplate(requests={"cpu": 1})
    for each in (MoreNodes(like="n"), Leave(node="n", pods=(), below=0), RepairNode(node="n", cordoned=True)):
        assert each.of_template(of) is of
