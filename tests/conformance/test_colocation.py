"""Do lending, suppression, eviction and prices of co-location follow the published rules?

Cases give amounts in cores, thousandths or GB. Cores become thousandths, and GB bytes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.colocation.eviction import (
    LowCpu,
    all_low_leave,
    below_one_core_since,
    node_release_milli,
    starved_release_milli,
)
from domain.colocation.pricing import Part, Parts, price_micro, split
from domain.colocation.suppression import boxes_of, next_quota_us
from domain.colocation.view import Requests, available, reclaimable_amount
from domain.manifests.objects import pod_from_manifest
from domain.model.colocation import (
    QUALITY_OF,
    Amounts,
    EvictionRule,
    LendingForm,
    PodCounters,
    Portion,
    Prices,
    Quality,
    SuppressionRule,
    UseByQuality,
    ViewRule,
)
from services.plan.scenario import plan_scenario
from tests.builders import node_manifest, pod_manifest, usage_manifest
from tests.conformance.tables import CASES

GROUPS = {
    group["id"]: group["cases"] for group in json.loads((CASES / "colocation.json").read_text())["groups"]
}
GB = 10**9


def cases(group: str) -> list[Any]:
    return [pytest.param(case, id=f"{case['id']} {case['name']}") for case in GROUPS[group]]


def milli(cores: float) -> int:
    return int(cores * 1000 + 0.5)


def cpu(cores: float) -> Amounts:
    return Amounts(cpu_milli=milli(cores))


@pytest.mark.parametrize("case", cases("quality-class"))
def test_quality_of_a_pod(case: dict[str, Any]) -> None:
    resources = {
        name: {"cpu": str(case[key]), "memory": f"{case[key]}Gi"}
        for name, key in (("requests", "request"), ("limits", "limit"))
        if case[key] is not None
    }
    pod = pod_from_manifest(
        pod_manifest("p", spec={"containers": [{"name": "c", "image": "i", "resources": resources}]})
    )
    assert QUALITY_OF[pod.template.qos_class] == case["expect"]["quality"]


def view_of(case: dict[str, Any]) -> ViewRule:
    return ViewRule(margin_cpu=Portion(amount=milli(case["margin"])))


@pytest.mark.parametrize("case", cases("quality-view"))
def test_what_is_available_to_mid_and_low(case: dict[str, Any]) -> None:
    use = UseByQuality(high=cpu(case["high_used"]), mid=cpu(case["mid_used"]))
    boxes = available(view_of(case), cpu(case["max_cpu"]), use)
    assert boxes.mid == cpu(case["expect"]["mid_available"])
    assert boxes.low == cpu(case["expect"]["low_available"])


@pytest.mark.parametrize("case", cases("batch-allocatable"))
def test_what_is_lent_to_batch_pods(case: dict[str, Any]) -> None:
    """Both resources follow one rule: each case is put to cpu and to memory."""
    unit = GB if case["unit"] == "GB" else 1

    def both(amount: float) -> Amounts:
        return Amounts(int(amount * unit), int(amount * unit))

    margin = Portion(percent=100 - case["reclaim_percent"])
    rule = ViewRule(
        margin_cpu=margin,
        margin_memory=margin,
        reserved=both(case["reserved"]),
        cap_percent=case["cap_percent"],
        low_form=LendingForm(case["policy"]),
    )
    high, capacity = both(case["high_priority"]), both(case["capacity"])
    by_use = case["policy"] == "usage"
    use = UseByQuality(system=both(case["system_used"]), high=high if by_use else Amounts())
    requests = Requests() if by_use else Requests(high=high)
    assert margin.of(capacity.cpu_milli) == case["expect"]["margin"] * unit
    assert available(rule, capacity, use, requests).low == both(case["expect"]["batch"])


@pytest.mark.parametrize("case", cases("mid-allocatable"))
def test_what_is_lent_to_mid_pods(case: dict[str, Any]) -> None:
    capacity, idle, unused = case["capacity"], case["prod_reclaimable"], case["node_unused"]
    rule = ViewRule(
        mid_form=LendingForm.RECLAIMABLE,
        unallocated_percent=case["unallocated_ratio"] * 100,
        threshold_percent=case["threshold_ratio"] * 100,
    )
    assert reclaimable_amount(rule, capacity, idle, unused, case["unallocated"]) == case["expect"]["mid"]

    requested = capacity - case["unallocated"]
    high_use = requested - idle
    low_use = capacity - unused - high_use
    if min(requested, high_use, low_use) < 0:
        return  # no node has such pods: the formula alone answers
    both = UseByQuality(high=Amounts(high_use, high_use), low=Amounts(low_use, low_use))
    requests = Requests(high=Amounts(requested, requested))
    boxes = available(rule, Amounts(capacity, capacity), both, requests)
    assert boxes.mid == Amounts(case["expect"]["mid"], case["expect"]["mid"])


@pytest.mark.parametrize("case", cases("quality-boxes"))
def test_boxes_of_mid_and_low(case: dict[str, Any]) -> None:
    use = UseByQuality(high=cpu(case["high_used"]), mid=cpu(case["mid_used"]))
    requests = Requests(mid=cpu(case["mid_requests"]))
    boxes = boxes_of(view_of(case), SuppressionRule(), cpu(case["max_cpu"]), use, requests)
    assert boxes.mid_milli == milli(case["expect"]["mid_box"])
    assert boxes.low_milli == milli(case["expect"]["low_box"])


@pytest.mark.parametrize("case", cases("be-suppress"))
def test_what_low_pods_may_use_now(case: dict[str, Any]) -> None:
    used = case["pods"] + case["host_processes"]
    stronger = sum(cores for quality, cores in used if quality != "BE")
    system = max(0, case["node_used"] - sum(cores for _, cores in used))
    boxes = boxes_of(
        ViewRule(margin_cpu=Portion(percent=100 - case["threshold_percent"])),
        SuppressionRule(floor_percent=case["floor_percent"] or 0),
        cpu(case["capacity"]),
        UseByQuality(high=cpu(stronger), system=cpu(system)),
        Requests(),
    )
    assert boxes.low_milli == milli(case["expect"]["be_cpu"])


@pytest.mark.parametrize("case", cases("be-quota-step"))
def test_steps_of_the_quota(case: dict[str, Any]) -> None:
    rule = SuppressionRule(period_us=case["period_us"])
    quota_us = next_quota_us(
        rule, milli(case["node_cpus"]), milli(case["target_cpus"]), case["quota_before_us"]
    )
    assert quota_us == case["expect"]["quota_us"]


@pytest.mark.parametrize("case", cases("quality-boxes"))
def test_all_low_pods_leave_a_box_below_one_core(case: dict[str, Any]) -> None:
    rule, box_milli = EvictionRule(), milli(case["expect"]["low_box"])
    since_ms = below_one_core_since(box_milli, None, now_ms=5_000)
    since_ms = below_one_core_since(box_milli, since_ms, now_ms=15_000)
    assert all_low_leave(rule, since_ms, now_ms=15_000) is case["expect"]["evict_all_low"]
    assert not all_low_leave(rule, since_ms, now_ms=14_999)


def low_cpu(amounts: dict[str, int] | None) -> LowCpu | None:
    if amounts is None:
        return None
    return LowCpu(amounts["limit_m"], amounts["used_m"], amounts["requested_m"])


@pytest.mark.parametrize("case", cases("be-satisfaction-evict"))
def test_what_starved_pods_release(case: dict[str, Any]) -> None:
    rule = EvictionRule(
        lower_percent=case["lower_percent"],
        upper_percent=case["upper_percent"],
        busy_percent=case["busy_percent"],
    )
    release_milli = starved_release_milli(rule, low_cpu(case["average"]), low_cpu(case["now"]))
    assert release_milli == case["expect"]["release_m"]


@pytest.mark.parametrize("case", cases("node-evict"))
def test_what_a_busy_node_releases(case: dict[str, Any]) -> None:
    rule = EvictionRule(node_percent=case["evict_percent"], node_lower_percent=case["lower_percent"])
    release_milli = node_release_milli(rule, case["capacity_m"], case["used_m"])
    assert release_milli == case["expect"]["release_m"]


@pytest.mark.parametrize("case", cases("pricing"))
def test_the_price_of_use(case: dict[str, Any]) -> None:
    """A pod on a lending node has used the parts request and burst in one hour; other pods the others."""
    hours: dict[str, float] = {}
    for part, amount in case["usage_core_hours"]:
        hours[part] = hours.get(part, 0.0) + amount
    within, beyond = hours.pop("request", 0.0), hours.pop("burst", 0.0)
    pods = [
        split_of(Quality.MID, True, cpu(within), within + beyond),
        split_of(Quality.LOW, True, Amounts(), hours.pop("best-effort", 0.0)),
        split_of(Quality.HIGH, False, cpu(1), hours.pop("plain", 0.0)),
    ]
    assert hours == {}
    prices = Prices()
    micro = sum(price_micro(prices, part, parts.of(part)) for parts in pods for part in Part)
    assert micro == int(case["expect"]["bill"] * 1e6 + 0.5)


def split_of(quality: Quality, is_lending: bool, requests: Amounts, core_hours: float) -> Parts:
    later = PodCounters(cpu_seconds=core_hours * 3600, memory_byte_seconds=0.0)
    return split(quality, is_lending, requests, PodCounters(0.0, 0.0), later, seconds=3600)


def test_all_groups_of_the_file_are_run() -> None:
    assert set(GROUPS) == {
        "quality-class", "quality-view", "batch-allocatable", "mid-allocatable", "quality-boxes",
        "be-suppress", "be-quota-step", "be-satisfaction-evict", "node-evict", "pricing", "two-node-example",
    }  # fmt: skip
    assert sum(len(group) for group in GROUPS.values()) >= 50


@pytest.mark.parametrize("case", cases("two-node-example"))
@pytest.mark.parametrize(
    ("profile", "expected"), [("default-scheduler", "by_allocation"), ("colocation", "by_view")]
)
def test_the_two_nodes_of_the_study(case: dict[str, Any], profile: str, expected: str) -> None:
    """Each is of 40 cores, of which 38 are requested; 35 are in use on A, and 10 on B."""
    asked = case["pod"]
    container: dict[str, Any] = {"name": "c", "image": "i"}
    if asked["request"] is None:  # a container that says nothing is expected to use a core
        containers = [{**container, "name": f"c{i}"} for i in range(asked["expected_use"])]
    else:
        memory = {"memory": "1Gi"}
        amounts = {"cpu": str(asked["request"])} | memory, {"cpu": str(asked["limit"])} | memory
        containers = [{**container, "resources": dict(zip(("requests", "limits"), amounts, strict=True))}]
    pod = pod_manifest("p", scheduler_name=profile)
    pod["spec"]["containers"] = containers
    objects: list[Any] = [pod]
    for name, used in (("a", 35), ("b", 10)):
        held = pod_manifest(f"held-{name}", node_name=name)
        whole = {"cpu": "38", "memory": "1Gi"}
        held["spec"]["containers"][0]["resources"] = {"requests": whole, "limits": whole}
        usage = usage_manifest(name, quality={"high": {"cpu": str(used), "memory": "1Gi"}})
        objects += [node_manifest(name, cpu=40, memory="64Gi"), held, usage]
    (verdict,) = plan_scenario({"objects": objects, "schedule": ["p"]})
    assert sorted(name.upper() for name in verdict.feasible) == case["expect"][expected]
