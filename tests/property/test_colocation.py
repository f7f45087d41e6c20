"""Do the rules of co-location keep their promises, whatever is used and requested?"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.colocation.eviction import Candidate, Cause, LowCpu, choose_victims, starved_release_milli
from domain.colocation.hot_spots import Movable, next_heat, relief
from domain.colocation.pricing import Part, price_micro, split, used_between
from domain.colocation.replicas import Observed, replicas_of
from domain.colocation.suppression import (
    BoxSettings,
    Setting,
    SuppressionPlan,
    boxes_of,
    next_quota_us,
    plan_suppression,
)
from domain.colocation.view import Requests, available, room_without_recent
from domain.model.colocation import (
    Amounts,
    EvictionRule,
    Heat,
    HotSpotRule,
    LendingForm,
    PodCounters,
    Portion,
    Prices,
    Quality,
    ReplicasRule,
    SuppressionRule,
    UseByQuality,
    ViewRule,
)
from tests.depth import examples

THOROUGH = settings(deadline=None, max_examples=examples(200))

CORES = 40_000
PERIOD_US = SuppressionRule().period_us
STRONGER = (Quality.HIGH, Quality.MID, Quality.SYSTEM)

milli = st.integers(0, CORES + 5_000)
amounts = st.builds(Amounts, milli, st.integers(0, 1 << 40))
uses = st.builds(UseByQuality, high=amounts, mid=amounts, low=amounts, system=amounts)
all_requests = st.builds(Requests, amounts, amounts)
portions = st.builds(Portion, percent=st.floats(0, 100)) | st.builds(Portion, amount=st.integers(0, 5_000))
views = st.builds(
    ViewRule,
    margin_cpu=portions,
    margin_memory=portions,
    reserved=amounts,
    cap_percent=st.none() | st.floats(0, 100),
    mid_form=st.sampled_from(LendingForm),
    low_form=st.sampled_from((LendingForm.USAGE, LendingForm.REQUEST)),
    unallocated_percent=st.floats(0, 100),
    threshold_percent=st.floats(0, 100),
)
suppressions = st.builds(
    SuppressionRule,
    grow_percent=st.floats(1, 100),
    ignore_percent=st.floats(0, 5),
    floor_percent=st.sampled_from((0.0, 5.0)),
)


@THOROUGH
@given(view=views, capacity=amounts, use=uses, requests=all_requests, more=amounts)
def test_more_use_never_lends_more(
    view: ViewRule, capacity: Amounts, use: UseByQuality, requests: Requests, more: Amounts
) -> None:
    boxes = available(view, capacity, use, requests)
    room = room_without_recent(boxes, use)
    flat = (*boxes.mid, *boxes.low, *room.mid, *room.low)
    assert min(flat) >= 0
    assert all(lent <= whole for box in boxes for lent, whole in zip(box, capacity, strict=True))
    for quality in Quality:
        values = {each: getattr(use, each) for each in Quality}
        values[quality] = Amounts(*(x + y for x, y in zip(values[quality], more, strict=True)))
        busier = UseByQuality(**values)
        smaller = available(view, capacity, busier, requests)
        left = room_without_recent(smaller, busier)
        now = (*smaller.mid, *smaller.low, *left.mid, *left.low)
        assert all(after <= before for after, before in zip(now, flat, strict=True)), quality


@THOROUGH
@given(view=views, rule=suppressions, cores=milli, use=uses, requests=all_requests)
def test_low_pods_are_squeezed_before_mid_pods_and_these_have_their_requests(
    view: ViewRule, rule: SuppressionRule, cores: int, use: UseByQuality, requests: Requests
) -> None:
    boxes = boxes_of(view, rule, Amounts(cores), use, requests)
    floor = Portion(percent=rule.floor_percent).of(cores)
    assert boxes.mid_milli >= requests.mid.cpu_milli
    assert boxes.low_milli >= floor
    if boxes.mid_milli < use.mid.cpu_milli:
        assert boxes.low_milli == floor
    if boxes.low_milli > floor:
        system = max(use.system.cpu_milli, view.reserved.cpu_milli)
        stronger = system + use.high.cpu_milli + min(use.mid.cpu_milli, boxes.mid_milli)
        assert stronger + boxes.low_milli + view.margin_cpu.of(cores) == cores


def quota_us(cores_milli: int) -> int:
    return cores_milli * PERIOD_US // 1000


@THOROUGH
@given(
    rule=suppressions,
    moments=st.lists(st.tuples(uses, all_requests), min_size=1, max_size=12),
    start=st.tuples(st.booleans(), st.integers(-1, 4_000_000), st.integers(-1, 4_000_000)),
    has_idle=st.booleans(),
)
def test_quotas_keep_floors_order_and_steps(
    rule: SuppressionRule,
    moments: list[tuple[UseByQuality, Requests]],
    start: tuple[bool, int, int],
    has_idle: bool,
) -> None:
    before = BoxSettings(*start)
    grow_us = quota_us(CORES) * rule.grow_percent / 100
    low_floor_us = max(rule.floor_us, quota_us(Portion(percent=rule.floor_percent).of(CORES)))
    for use, requests in moments:
        boxes = boxes_of(ViewRule(), rule, Amounts(CORES), use, requests)
        plan = plan_suppression(rule, CORES, boxes, before, requests, has_idle)
        after, mid_floor_us = plan.settings, quota_us(requests.mid.cpu_milli)
        assert after.low_yields
        assert after.mid_quota_us >= mid_floor_us
        assert after.low_quota_us >= low_floor_us
        if boxes.mid_milli < use.mid.cpu_milli:
            assert after.low_quota_us == low_floor_us
        for was_us, is_us, floor_us, box_milli in (
            (before.low_quota_us, after.low_quota_us, low_floor_us, boxes.low_milli),
            (before.mid_quota_us, after.mid_quota_us, mid_floor_us, boxes.mid_milli),
        ):
            assert is_us <= max(was_us, quota_us(box_milli), floor_us), "a quota passes its box"
            if was_us >= 0:
                assert is_us <= max(was_us + grow_us, floor_us)
        lacking_us = quota_us(boxes.mid_milli) - after.mid_quota_us
        if lacking_us >= quota_us(CORES) * rule.ignore_percent / 100 and lacking_us > 0:
            assert after.low_quota_us <= max(before.low_quota_us, low_floor_us) or before.low_quota_us < 0
        check_steps(plan, before, has_idle)
        before = after


def check_steps(plan: SuppressionPlan, before: BoxSettings, has_idle: bool) -> None:
    """Steps lead from the settings before to those of the plan, and never touch a box of high pods."""
    made = before
    for step in plan.steps:
        if step.setting is Setting.QUOTA and step.box is Quality.LOW:
            made = made._replace(low_quota_us=step.value)
        elif step.setting is Setting.QUOTA:
            assert step.box is Quality.MID
            made = made._replace(mid_quota_us=step.value)
        else:
            assert step.setting is (Setting.IDLE if has_idle else Setting.WEIGHT)
            assert (step.box, step is plan.steps[0]) == (Quality.LOW, True)
            made = made._replace(low_yields=True)
    assert made == plan.settings
    quotas = [step.box for step in plan.steps if step.setting is Setting.QUOTA]
    is_shrinking = not 0 <= before.low_quota_us < plan.settings.low_quota_us
    assert quotas == sorted(quotas, key=lambda box: (box is Quality.MID) is is_shrinking)


@THOROUGH
@given(
    high=st.integers(0, CORES),
    mid=st.integers(0, CORES),
    noise=st.lists(st.tuples(st.floats(-0.05, 0.05), st.floats(-0.05, 0.05)), min_size=30, max_size=30),
)
def test_noise_makes_no_quota_flap(high: int, mid: int, noise: list[tuple[float, float]]) -> None:
    """Once it has grown, a quota stays between its targets, and what moves them by little moves no quota."""
    rule, before, targets = SuppressionRule(), BoxSettings(), []
    small_us = quota_us(CORES) * rule.ignore_percent / 100
    settled = []
    for moment, (first, second) in enumerate(noise):
        use = UseByQuality(high=Amounts(int(high * (1 + first))), mid=Amounts(int(mid * (1 + second))))
        boxes = boxes_of(ViewRule(), rule, Amounts(CORES), use, Requests())
        targets.append(max(rule.floor_us, quota_us(boxes.low_milli)))
        before = plan_suppression(rule, CORES, boxes, before, Requests(), has_idle=True).settings
        if moment >= 12:
            settled.append(before.low_quota_us)
    assert min(targets) <= min(settled)
    assert max(settled) <= max(targets)
    assert all(
        is_us == was_us or is_us == rule.floor_us or abs(is_us - was_us) >= small_us
        for was_us, is_us in pairwise(settled)
    )
    if max(targets) - min(targets) < small_us and min(targets) > rule.floor_us:
        assert len(set(settled)) == 1


@THOROUGH
@given(
    node=st.just(0) | st.integers(1_000, 200_000),
    target=st.integers(0, 200_000),
    quota=st.integers(-1, 20_000_000),
)
def test_a_quota_reaches_its_target_and_stays(node: int, target: int, quota: int) -> None:
    rule = SuppressionRule()
    steps_max = 2_001  # a core grows by 10 ms a step, and 2,000 of them are the largest target
    for _ in range(steps_max):
        quota = next_quota_us(rule, node, target, quota)
    wanted_us = max(rule.floor_us, quota_us(target))
    assert next_quota_us(rule, node, target, quota) == quota
    if node:
        assert quota == wanted_us or abs(quota - wanted_us) < quota_us(node) * rule.ignore_percent / 100


low_cpus = st.builds(LowCpu, milli, milli, milli)


@THOROUGH
@given(average=st.none() | low_cpus, now=st.none() | low_cpus)
def test_starved_pods_release_no_more_than_they_ask_for(average: LowCpu | None, now: LowCpu | None) -> None:
    rule = EvictionRule()
    release = starved_release_milli(rule, average, now)
    assert release >= 0
    if average is None or now is None:
        assert release == 0
    elif release:
        for cpu in (average, now):
            assert cpu.limit_milli / cpu.asked_milli < 0.3
            assert cpu.limit_milli < 1000 or cpu.used_milli >= 0.9 * cpu.limit_milli
            # what stays is satisfied to 40 percent at most
            assert release <= 0.4 * cpu.asked_milli - cpu.limit_milli


small = st.builds(Amounts, st.integers(0, 6), st.integers(0, 6))
candidates = st.lists(
    st.builds(
        Candidate,
        name=st.just(""),
        quality=st.sampled_from((Quality.HIGH, Quality.MID, Quality.LOW)),
        priority=st.integers(0, 1),
        used=small,
        requests=small,
        estimate=small,
    ),
    max_size=8,
).map(lambda pods: [pod._replace(name=f"default/p{i}") for i, pod in enumerate(pods)])


def short(cause: Cause, value: Amounts) -> int:
    return value.memory_bytes if cause is Cause.MEMORY else value.cpu_milli


@THOROUGH
@given(cause=st.sampled_from(Cause), pods=candidates, release=st.integers(0, 20))
def test_no_more_pods_leave_than_must_and_none_that_was_promised(
    cause: Cause, pods: list[Candidate], release: int
) -> None:
    by_name = {pod.name: pod for pod in pods}
    victims = choose_victims(cause, pods, release)
    assert victims == choose_victims(cause, pods[::-1], release), "the order of the list decides nothing"
    gone = [by_name[victim.name] for victim in victims]
    assert all(victim.reason for victim in victims)
    assert all(pod.quality is not Quality.HIGH for pod in gone)
    low = [pod for pod in pods if pod.quality is Quality.LOW]
    if cause is Cause.NO_BOX:
        assert {pod.name for pod in gone} == {pod.name for pod in low}
        return
    freed = [short(cause, pod.estimate if cause is Cause.STARVED else pod.used) for pod in gone]
    assert sum(freed[:-1]) < release or not gone
    assert min(freed, default=1) > 0
    mid = [pod for pod in gone if pod.quality is Quality.MID]
    assert all(short(cause, pod.used) > short(cause, pod.requests) for pod in mid)
    if mid:
        assert cause is not Cause.STARVED
        assert all(pod in gone for pod in low if short(cause, pod.used) > 0)
    spared_low = [pod.priority for pod in low if pod not in gone and short(cause, pod.used)]
    if spared_low and cause is not Cause.STARVED:
        assert max((pod.priority for pod in gone), default=0) <= min(spared_low)


movables = st.lists(
    st.builds(
        Movable,
        name=st.just(""),
        quality=st.sampled_from((Quality.LOW, Quality.LOW, Quality.MID, Quality.HIGH)),
        estimate=st.builds(Amounts, st.integers(0, 9), st.just(0)),
        workload=st.just(""),
    ),
    max_size=7,
).map(lambda pods: [pod._replace(name=f"default/p{i}") for i, pod in enumerate(pods)])


@THOROUGH
@given(used=st.integers(60, 100), pods=movables)
def test_the_fewest_pods_move_low_ones_first(used: int, pods: list[Movable]) -> None:
    rule, capacity = HotSpotRule(), Amounts(100, 100)
    moved = relief(rule, capacity, Amounts(used), pods)
    ways = [
        weight(way)
        for count in range(1, len(pods) + 1)
        for way in combinations(pods, count)
        if used - sum(pod.estimate.cpu_milli for pod in way) < rule.target_percent
    ]
    assert (weight(moved) if moved else None) == min(ways, default=None)


def weight(pods: Any) -> tuple[int, int, int]:
    counts = Counter(pod.quality for pod in pods)
    return counts[Quality.HIGH], counts[Quality.MID], counts[Quality.LOW]


@THOROUGH
@given(samples=st.lists(st.booleans(), max_size=40))
def test_a_node_is_hot_after_five_bad_samples_and_calm_after_three_good_ones(samples: list[bool]) -> None:
    rule, heat, is_hot = HotSpotRule(), Heat(), False
    for end in range(1, len(samples) + 1):
        heat = next_heat(rule, heat, ("bad",) if samples[end - 1] else ())
        if end >= 5 and all(samples[end - 5 : end]):
            is_hot = True
        if end >= 3 and not any(samples[end - 3 : end]):
            is_hot = False
        assert heat.is_hot is is_hot


@THOROUGH
@given(
    least=st.integers(0, 50),
    further=st.integers(0, 50),
    running=st.integers(0, 200),
    before=st.integers(0, 200),
    load=st.none() | st.floats(0, 120),
    wait=st.none() | st.floats(0, 100),
    fit=st.integers(0, 50),
)
def test_replicas_stay_within_bounds_and_a_waiting_pod_adds_none(
    least: int,
    further: int,
    running: int,
    before: int,
    load: float | None,
    wait: float | None,
    fit: int,
) -> None:
    most = least + further
    wanted = replicas_of(ReplicasRule(), least, most, Observed(running, before, load, wait, fit)).wanted
    assert least <= wanted <= most
    if wait is not None and wait > 30:
        assert wanted == min(max(running, least), most)
    elif load is not None and load > 80:
        assert wanted < max(running, 1) or wanted == least
        assert wanted >= min(running * 0.9 - 1, most)
    elif load is not None and load < 60:
        assert wanted == min(max(running + fit, least), most)
    else:
        assert wanted == min(max(before, least), most)


counters = st.builds(PodCounters, st.floats(0, 1e7), st.floats(0, 1e17))


@THOROUGH
@given(
    pods=st.lists(
        st.tuples(
            st.sampled_from((Quality.HIGH, Quality.MID, Quality.LOW)),
            st.booleans(),
            amounts,
            counters,
            counters,
            st.floats(0, 3600),
        ),
        max_size=8,
    ),
    prices=st.builds(Prices, core_hour=st.floats(0, 10), gib_hour=st.floats(0, 10)),
)
def test_parts_sum_to_all_use_and_qualities_to_the_total(pods: list[Any], prices: Prices) -> None:
    total, by_quality = 0, Counter[Quality]()
    for quality, is_lending, requests, earlier, later, seconds in pods:
        parts = split(quality, is_lending, requests, earlier, later, seconds)
        used = used_between(earlier, later)
        assert tuple(sum(column) for column in zip(*parts, strict=True)) == used
        assert min(min(part) for part in parts) >= 0
        assert parts.request.cpu_milli_seconds <= requests.cpu_milli * seconds
        expected = {Part.PLAIN} if not is_lending else {Part.LOW} if quality is Quality.LOW else set()
        expected = expected or {Part.REQUEST, Part.BURST}
        assert {part for part in Part if any(parts.of(part))} <= expected
        for part in Part:
            price = price_micro(prices, part, parts.of(part))
            by_quality[quality] += price
            total += price
    assert by_quality.total() == total


@THOROUGH
@given(
    reports=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e16)), min_size=2, max_size=8),
    kept=st.data(),
)
def test_lost_and_repeated_reports_change_no_amount(
    reports: list[tuple[float, float]], kept: st.DataObject
) -> None:
    cpu, memory = (sorted(column) for column in zip(*reports, strict=True))
    grown = [PodCounters(*each) for each in zip(cpu, memory, strict=True)]
    middle = kept.draw(st.lists(st.sampled_from(range(len(grown))), max_size=6).map(sorted))
    seen = [grown[0], *(grown[index] for index in middle), grown[-1]]
    whole = used_between(grown[0], grown[-1])
    steps = [used_between(earlier, later) for earlier, later in pairwise(seen)]
    assert tuple(sum(column) for column in zip(*steps, strict=True)) == whole
    assert used_between(grown[-1], grown[0]) <= (0, 0)
