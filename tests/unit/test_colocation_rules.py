"""Does each rule of co-location say what it does, and why, in the situations that it was made for?"""

from __future__ import annotations

import pytest

from domain.colocation.estimate import ClaimSums, expected
from domain.colocation.eviction import (
    Candidate,
    Cause,
    LowCpu,
    choose_victims,
    is_pausing,
    memory_is_short,
    memory_release_bytes,
    node_release_milli,
    starved_release_milli,
)
from domain.colocation.hot_spots import Movable, Sample, bad_signs, relief
from domain.colocation.pricing import Part, Used, price_micro, saved_micro
from domain.colocation.replicas import Observed, replicas_of
from domain.colocation.suppression import Boxes, BoxSettings, plan_suppression
from domain.colocation.view import Requests, available, room_without_recent
from domain.model.colocation import (
    Amounts,
    EvictionRule,
    HotSpotRule,
    LendingForm,
    Portion,
    Prices,
    Quality,
    ReplicasRule,
    SuppressionRule,
    UseByQuality,
    ViewRule,
)

GIB = 1 << 30


def test_the_estimate_of_a_pod_is_by_container() -> None:
    """A limit of 2 cores, a request of 1.001 cores, and a container that says nothing."""
    cpu = ClaimSums(fixed=2_000, requested=1_001, silent_count=1)
    assert expected(cpu, 150, 1_000) == 2_000 + 1_502 + 1_000
    assert expected(ClaimSums(silent_count=3), 125, GIB) == 3 * GIB
    memory = ClaimSums(fixed=GIB, requested=4 * GIB)
    assert expected(memory, 125, GIB) == 6 * GIB


@pytest.mark.parametrize(("form", "mid_milli"), [("usage", 26_000), ("request", 8_000)])
def test_forms_of_lending(form: str, mid_milli: int) -> None:
    rule = ViewRule(mid_form=LendingForm(form), low_form=LendingForm(form))
    use = UseByQuality(high=Amounts(8_000), mid=Amounts(1_000), system=Amounts(2_000))
    requests = Requests(high=Amounts(26_000), mid=Amounts(4_000))
    boxes = available(rule, Amounts(40_000), use, requests)
    assert boxes.mid.cpu_milli == mid_milli
    assert boxes.low.cpu_milli == mid_milli - (1_000 if form == "usage" else 4_000)


def test_what_pods_use_is_in_their_box_and_not_in_the_room_for_others() -> None:
    use = UseByQuality(high=Amounts(10_000, GIB), mid=Amounts(5_000), low=Amounts(6_000, 2 * GIB))
    rule = ViewRule(margin_cpu=Portion(amount=4_000), margin_memory=Portion())
    boxes = available(rule, Amounts(40_000, 4 * GIB), use)
    assert boxes == (Amounts(26_000, 3 * GIB), Amounts(21_000, 3 * GIB))
    assert room_without_recent(boxes, use) == (Amounts(21_000, 3 * GIB), Amounts(15_000, GIB))


def test_a_box_of_mid_is_widened_before_low_pods_get_more() -> None:
    rule, requests = SuppressionRule(), Requests(mid=Amounts(1_000))
    squeezed = BoxSettings(True, low_quota_us=2_000, mid_quota_us=100_000)
    first = plan_suppression(rule, 40_000, Boxes(8_000, 30_000), squeezed, requests, has_idle=True)
    assert first.settings == (True, 2_000, 500_000)
    then = plan_suppression(rule, 40_000, Boxes(8_000, 30_000), first.settings, requests, has_idle=True)
    assert then.settings == (True, 402_000, 800_000)
    assert [(step.box, step.value) for step in then.steps] == [("mid", 800_000), ("low", 402_000)]
    assert then.steps[0].reason == "8.00 cores are left for mid pods; they had 5.00 and get 8.00"


def test_low_pods_yield_before_any_quota_is_set() -> None:
    rule, boxes = SuppressionRule(), Boxes(8_000, 5_000)
    plan = plan_suppression(rule, 40_000, boxes, BoxSettings(), Requests(), has_idle=False)
    assert [(step.box, step.setting, step.value) for step in plan.steps] == [
        ("low", "cpu.weight", 1),
        ("low", "cpu.quota", 500_000),
        ("mid", "cpu.quota", 800_000),
    ]
    assert plan_suppression(rule, 40_000, boxes, plan.settings, Requests(), has_idle=False).steps == ()


@pytest.mark.parametrize(
    ("limit", "used", "asked", "release"),
    [
        (999, 0, 10_000, 3_001),  # less than one core counts as used
        (1_000, 899, 10_000, 0),
        (1_000, 900, 10_000, 3_000),
        (3_000, 3_000, 10_000, 0),  # 30 percent is not below 30 percent
        (0, 0, 10_000, 0),
    ],
)
def test_edges_of_starving(limit: int, used: int, asked: int, release: int) -> None:
    cpu = LowCpu(limit, used, asked)
    assert starved_release_milli(EvictionRule(), cpu, cpu) == release
    assert starved_release_milli(EvictionRule(), cpu, None) == 0


def test_a_busy_node_is_brought_two_points_below_unless_told_otherwise() -> None:
    rule = EvictionRule(node_percent=80)
    assert node_release_milli(rule, 40_000, 31_999) == 0
    assert node_release_milli(rule, 40_000, 32_000) == 800
    assert node_release_milli(EvictionRule(node_percent=80, node_lower_percent=80), 40_000, 34_000) == 2_000
    assert node_release_milli(EvictionRule(), 40_000, 40_000) == 0
    assert node_release_milli(rule, 0, 40_000) == 0


def test_memory_is_short_from_70_percent_until_it_is_below_68() -> None:
    rule = EvictionRule()
    used = (69, 70, 69, 68, 67, 69)
    short, found = False, []
    for each in used:
        short = memory_is_short(rule, 100, each, short)
        found.append(short)
    assert found == [False, True, True, True, False, False]
    assert memory_release_bytes(rule, 100, 70) == 3
    assert not memory_is_short(rule, 100, 70 - 3, was_short=True)
    assert memory_release_bytes(rule, 0, 70) == 0
    assert not memory_is_short(rule, 0, 70, was_short=True)


def test_starved_pods_are_ended_at_most_each_20_seconds() -> None:
    assert [is_pausing(EvictionRule(), last_ms, 30_000) for last_ms in (None, 10_000, 10_001)] == [
        False,
        False,
        True,
    ]


def candidate(name: str, quality: Quality, priority: int, used: int, expected: int) -> Candidate:
    """Return a pod whose request, or estimate where it is low, is ``expected`` bytes."""
    base = Amounts(memory_bytes=expected)
    requests = Amounts() if quality is Quality.LOW else base
    return Candidate(f"default/{name}", quality, priority, Amounts(memory_bytes=used), requests, base)


def test_each_victim_is_told_why_it_and_not_its_neighbour() -> None:
    pods = [
        candidate("high", Quality.HIGH, 0, 8 * GIB, 8 * GIB),
        candidate("within", Quality.MID, 0, 3 * GIB, 4 * GIB),
        candidate("beyond", Quality.MID, 9, 6 * GIB, 4 * GIB),
        candidate("late", Quality.LOW, 5, GIB, GIB),
        candidate("large", Quality.LOW, 0, 3 * GIB, GIB),
        candidate("small-b", Quality.LOW, 0, GIB, GIB),
        candidate("small-a", Quality.LOW, 0, GIB, GIB),
        candidate("idle", Quality.LOW, 0, 0, GIB),
    ]
    lead = "the node's memory is short: {} MiB must be freed; it goes and default/{} stays, as "
    for release, whole, spared, why in (
        (1, "0.0", "small-a", "it uses 3.00 of its estimate, the other 1.00"),
        (3 * GIB + 1, "3072.0", "small-b", "it uses 3.00 of its estimate, the other 1.00"),
        (4 * GIB + 1, "4096.0", "late", "its priority 0 is below 5"),
        (6 * GIB, "6144.0", "beyond", "low pods go before mid pods"),
    ):
        victims = choose_victims(Cause.MEMORY, pods, release)
        assert victims[0] == ("default/large", lead.format(whole, spared) + why)
    *_, last = choose_victims(Cause.MEMORY, pods, 3 * GIB + 1)
    assert last.name == "default/small-a"
    assert last.reason.endswith("as the two are equal and it is the first by name")
    everything = choose_victims(Cause.MEMORY, pods, 99 * GIB)
    assert [victim.name.removeprefix("default/") for victim in everything] == [
        "large", "small-a", "small-b", "late", "beyond",
    ]  # fmt: skip
    assert everything[-1].reason.endswith("no other pod may go in its place")


def test_all_low_pods_leave_a_node_without_a_box_for_them() -> None:
    pods = [candidate("a", Quality.LOW, 9, 0, 0), candidate("b", Quality.MID, 0, 9, 1)]
    (victim,) = choose_victims(Cause.NO_BOX, pods)
    assert victim == ("default/a", "less than one core is left for low pods, so all of them leave")


def test_signs_of_a_hot_node() -> None:
    rule, capacity = HotSpotRule(), Amounts(40_000, 100)
    assert bad_signs(rule, capacity, Sample(Amounts(31_999, 79), 39.9, 1.19)) == ()
    assert bad_signs(rule, capacity, Sample(Amounts(32_000, 90), 40.0, 1.2)) == (
        "cpu is used to 80.0 %",
        "memory is used to 90.0 %",
        "pods wait for cpu 40.0 % of the time",
        "a pod's latency is 1.20 of its bound",
    )
    assert bad_signs(rule, Amounts(), Sample(Amounts(1, 1))) == ()


def movable(name: str, quality: Quality, cpu: int, memory: int = 0, workload: str = "") -> Movable:
    return Movable(name, quality, Amounts(cpu, memory), workload)


@pytest.mark.parametrize(
    ("used", "moved"),
    [
        (Amounts(80, 50), ["low"]),
        (Amounts(71, 85), ["both"]),  # one pod relieves both resources
        (Amounts(84, 50), ["low", "both"]),
        (Amounts(95, 50), ["low", "both", "mid"]),
        (Amounts(60, 50), ["low"]),  # hot by pressure: one pod moves
        (Amounts(99, 50), []),  # the high pod as well would not suffice
    ],
)
def test_which_pods_would_cool_a_node(used: Amounts, moved: list[str]) -> None:
    pods = [
        movable("mid", Quality.MID, 9),
        movable("low", Quality.LOW, 11),
        movable("both", Quality.LOW, 8, 20),
        movable("high", Quality.HIGH, 1),
    ]
    assert [pod.name for pod in relief(HotSpotRule(), Amounts(100, 100), used, pods)] == moved


def test_one_pod_of_a_workload_moves() -> None:
    pods = [movable(name, Quality.LOW, 9, workload="default/web") for name in ("a", "b")]
    assert relief(HotSpotRule(), Amounts(100), Amounts(85), pods) == ()
    others = [*pods, movable("c", Quality.LOW, 8)]
    moved = relief(HotSpotRule(), Amounts(100), Amounts(85), others)
    assert [pod.name for pod in moved] == ["a", "c"]


@pytest.mark.parametrize(
    ("load", "wait", "wanted", "reason"),
    [
        (50.0, 31.0, 20, "a pod has waited for 31 s: as many as run"),
        (50.0, 30.0, 24, "the load is 50.0 %: 4 more fit"),
        (80.1, None, 18, "the load is 80.1 %: 10 % fewer than run"),
        (80.0, None, 22, "the load is 80.0 %: as many as before"),
        (60.0, None, 22, "the load is 60.0 %: as many as before"),
        (None, None, 22, "the load is not known: as many as before"),
    ],
)
def test_how_many_replicas(load: float | None, wait: float | None, wanted: int, reason: str) -> None:
    seen = Observed(running=20, wanted_before=22, load_percent=load, wait_seconds_max=wait, more_fit_count=4)
    assert replicas_of(ReplicasRule(), 1, 30, seen) == (wanted, reason)
    assert replicas_of(ReplicasRule(), 1, 10, seen) == (10, f"{reason}; not more than 10")
    assert replicas_of(ReplicasRule(), 30, 40, seen) == (30, f"{reason}; not fewer than 30")


def test_memory_has_a_price_of_its_own_and_low_use_saves_most_of_it() -> None:
    prices = Prices(core_hour=2.0, gib_hour=0.5)
    used = Used(cpu_milli_seconds=3_600_000, memory_byte_seconds=4 * 3600 * GIB)
    assert price_micro(prices, Part.PLAIN, used) == 4_000_000
    assert price_micro(prices, Part.LOW, used) == 400_000
    assert saved_micro(prices, Part.LOW, used) == 3_600_000
