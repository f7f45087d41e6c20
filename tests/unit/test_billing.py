"""What is billed when the pods of a node are reported, and what is not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from domain.colocation.pricing import BillLine
from domain.manifests.objects import convert_manifest, node_from_manifest, pod_from_manifest
from domain.manifests.usage import WireNodeUsage, usage_from_wire
from domain.model.colocation import CoLocationPolicy, Prices, ViewRule
from domain.model.config import CO_LOCATION_POLICY
from domain.model.errors import FieldError
from domain.model.events import ConfigUpserted, NodeDeleted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.limits import pod_counters_seconds
from domain.model.usage import NodeUsage, QualityRecord
from domain.state.changes import NodeMeasured, Skipped
from domain.state.cluster import ClusterState
from domain.state.steps import Owned, Written
from tests.builders import node_manifest, pod_manifest, usage_manifest

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
START_MS = 400_000 * HOUR_MS


def usage(minute: float, logged: float = 0, **core_seconds: float) -> NodeUsage:
    """Return what the node says at a minute, which the log takes at another one."""
    manifest = usage_manifest("n", quality={"high": {"cpu": "1"}})
    manifest["pods"] = {uid: {"cpuSeconds": used} for uid, used in core_seconds.items()}
    at_ms, logged_ms = (int(START_MS + each * MINUTE_MS) for each in (minute, logged))
    found = usage_from_wire(convert_manifest(manifest, WireNodeUsage, ""), at_ms, "")
    return msgspec.structs.replace(found, logged_ms=logged_ms)


class World:
    """A node that was first measured at ``START_MS``, and the lines of its bill so far."""

    def __init__(self, policy: CoLocationPolicy | None = None, *, is_measured: bool = True) -> None:
        self.state = ClusterState(seed=1)
        self.lines: list[BillLine] = []
        self.unbilled = Counter[str]()
        if policy is not None:
            self.state.apply(ConfigUpserted(CO_LOCATION_POLICY, "", "all", policy, 1))
        self.state.apply(NodeUpserted(node_from_manifest(node_manifest("n", cpu=40, memory="1Gi"))))
        if is_measured:
            self.report(0)

    def pod(
        self, uid: str, minute: float, *, cpu: str | None = None, limit: str | None = None, **more: Any
    ) -> None:
        """Let a pod be placed on the node, so many minutes after the start."""
        manifest = pod_manifest("p-" + uid, uid=uid, cpu=cpu, **{"node_name": "n", **more})
        if limit is not None:
            resources = manifest["spec"]["containers"][0]["resources"]
            resources["limits"] = {"cpu": limit} | ({"memory": "1Mi"} if limit == cpu else {})
        self.state.apply(PodUpserted(pod_from_manifest(manifest)))
        self.state.apply(Written({"default/p-" + uid: int(START_MS + minute * MINUTE_MS)}))

    def report(self, minute: float, **core_seconds: float) -> NodeMeasured:
        """Let the node report what its pods have used since they started."""
        (change,) = self.state.apply(NodeUsed(usage(minute, minute, **core_seconds)))
        assert isinstance(change, NodeMeasured)
        self.lines += change.bill
        self.unbilled.update(change.unbilled)
        return change

    @property
    def used(self) -> dict[str, float]:
        """Core-seconds by part."""
        found = Counter[str]()
        for line in self.lines:
            found[line.part] += line.amount
        return {part: amount / 1_000 for part, amount in found.items()}


def test_use_is_split_by_what_was_promised_and_priced() -> None:
    world = World()
    world.pod("high", 1, cpu="2", limit="2")
    world.pod("mid", 1, cpu="1", limit="4")
    world.pod("low", 1)
    world.report(11, high=600.0, mid=1_000.0, low=500.0)
    at = START_MS, "default"
    assert sorted(world.lines) == [
        BillLine(*at, "high", "request", "cpu", 600_000, 141_667, 25_000),
        BillLine(*at, "low", "low", "cpu", 500_000, 13_889, 125_000),
        BillLine(*at, "mid", "burst", "cpu", 400_000, 55_556, 55_555),
        BillLine(*at, "mid", "request", "cpu", 600_000, 141_667, 25_000),
    ]


def test_memory_has_a_price_of_its_own() -> None:
    world = World(CoLocationPolicy(prices=Prices(core_hour=2.0, gib_hour=0.5)))
    world.pod("low", 1)
    manifest = usage_manifest("n", quality={}, pods={"low": {"memoryByteSeconds": 3600.0 * 2**31}})
    told = usage_from_wire(convert_manifest(manifest, WireNodeUsage, ""), START_MS + HOUR_MS, "")
    (change,) = world.state.apply(NodeUsed(told))
    assert isinstance(change, NodeMeasured)
    assert change.bill == (
        BillLine(START_MS + HOUR_MS, "default", "low", "low", "memory", 7_200 << 30, 100_000, 900_000),
    )


def test_where_nothing_is_ever_lent_all_use_is_plain() -> None:
    world = World(CoLocationPolicy(view=ViewRule(cap_percent=0.0)))
    world.pod("low", 1)
    world.pod("mid", 1, cpu="1", limit="4")
    world.report(11, low=500.0, mid=1_000.0)
    assert world.used == {"plain": 1_500.0}
    assert {line.quality: line.price_micro for line in world.lines} == {
        "low": round(500 / 3.6 * 1_000),
        "mid": round(1_000 / 3.6 * 1_000),
    }
    assert not any(line.saved_micro for line in world.lines)


def test_only_what_is_new_is_billed_whatever_was_lost_comes_late_or_twice() -> None:
    world = World()
    world.pod("p", 1)
    for minute, used in ((5, 100.0), (5, 100.0), (3, 60.0), (20, 250.0), (19, 240.0), (20, 999.0)):
        world.report(minute, p=used)
    assert world.used == {"low": 250.0}
    assert not world.unbilled


def test_a_counter_that_went_down_began_anew() -> None:
    world = World()
    world.pod("p", 1)
    for minute, used in ((5, 100.0), (6, 30.0), (7, 50.0)):
        world.report(minute, p=used)
    assert world.used == {"low": 150.0}


def test_use_belongs_to_the_hour_of_its_report() -> None:
    world = World()
    world.pod("p", 1)
    world.report(59, p=10.0)
    world.report(61, p=15.0)
    assert [(line.hour_ms, line.amount) for line in world.lines] == [
        (START_MS, 10_000),
        (START_MS + HOUR_MS, 5_000),
    ]


def test_a_pod_that_ran_before_its_node_was_measured_is_billed_from_its_first_report_on() -> None:
    world = World()
    world.pod("old", -1)
    world.pod("adopted", 5, phase="Running")
    started = pod_manifest("p-adopted", uid="adopted", node_name="n", phase="Running")
    started["status"] = {"phase": "Running", "startTime": "2000-01-01T00:00:00Z"}
    world.state.apply(PodUpserted(pod_from_manifest(started)))
    world.report(10, old=1e6, adopted=1e6)
    assert (world.used, world.unbilled) == ({}, {"before": 2})
    world.report(11, old=1e6 + 5, adopted=1e6 + 7)
    assert world.used == {"low": 12.0}


def went_and_came_back(world: World) -> None:
    world.state.apply(NodeDeleted("n"))
    assert world.state.apply(NodeUsed(usage(6, 6, p=110.0))) == (Skipped(),)
    world.state.apply(NodeUpserted(node_from_manifest(node_manifest("n", cpu=40, memory="1Gi"))))


def test_a_node_that_went_and_came_back_does_not_bill_its_pods_twice() -> None:
    """What was measured is forgotten with it, so only a report as of later says what is new."""
    world = World()
    world.pod("p", 1)
    world.report(4, p=90.0)
    world.report(5, p=100.0)
    went_and_came_back(world)
    late = world.state.apply(NodeUsed(usage(4, 7, p=90.0)))  # it comes twice
    assert isinstance(late[0], NodeMeasured)
    assert late[0].unbilled == {"late": 1}
    for minute, used in ((7.5, 120.0), (9, 130.0), (10, 140.0)):
        world.report(minute, p=used)
    assert world.used == {"low": 110.0}
    assert world.unbilled == {"late": 1, "before": 1}
    world.pod("q", 11)
    world.report(12, q=5.0)
    assert world.used == {"low": 115.0}


def test_a_node_that_never_went_has_any_clock() -> None:
    """A report of any time says what was not billed yet: there was none before."""
    world = World(is_measured=False)
    world.pod("p", 1, cpu="1", limit="2")
    for minute, used in ((-9_000, 100.0), (-8_999, 105.0), (-9_000, 100.0)):
        (change,) = world.state.apply(NodeUsed(usage(minute, 2, p=used)))
        assert isinstance(change, NodeMeasured)
        world.lines += change.bill
    assert world.used == {"request": 105.0}


def test_the_use_of_a_pod_that_is_not_known_here_waits() -> None:
    world = World()
    world.pod("elsewhere", 1, node_name="m")
    told = world.report(5, unknown=100.0, elsewhere=50.0)
    assert told.usage is not None
    assert told.usage.pods == {}, "others count what is counted here"
    assert (world.used, world.unbilled) == ({}, {"unknown": 1, "elsewhere": 1})
    world.pod("unknown", 4)
    world.report(10, unknown=200.0)
    assert world.used == {"low": 200.0}
    world.state.apply(PodDeleted("default", "p-unknown", "unknown", None))
    world.report(11, unknown=210.0)
    assert world.used == {"low": 200.0}


def test_a_pod_that_was_placed_in_the_same_batch_waits_for_its_next_report() -> None:
    world = World()
    manifest = pod_manifest("p-p", uid="p", node_name="n")
    world.state.apply(PodUpserted(pod_from_manifest(manifest)))
    world.report(5, p=100.0)
    assert world.used == {}
    world.state.apply(Written({"default/p-p": START_MS + MINUTE_MS}))
    world.report(6, p=110.0)
    assert world.used == {"low": 110.0}


def test_a_pod_that_was_not_reported_for_an_hour_is_not_billed_from_its_start_again() -> None:
    world = World()
    world.pod("p", 1)
    world.pod("q", 1)
    world.report(5, p=100.0, q=1.0)
    later = 5 + pod_counters_seconds / 60
    world.report(later, q=2.0)
    world.report(later - 1, p=160.0)
    assert world.used == {"low": 162.0}, "an hour is not over yet"
    world.report(2 * later + 1, q=3.0)
    assert "p" not in world.state.usage.qualities["n"].counted
    world.report(2 * later + 2, p=200.0)
    world.report(2 * later + 3, p=220.0)
    assert world.used == {"low": 183.0}
    assert world.unbilled == {"before": 1}


def test_the_pods_of_a_node_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domain.state.pod_counters.reported_pods_max", 2)
    world = World()
    for uid in "abc":
        world.pod(uid, 1)
    for minute, uid in enumerate("abc", 5):
        world.report(minute, **{uid: 10.0})
    assert sorted(world.state.usage.qualities["n"].counted) == ["b", "c"]
    assert world.used == {"low": 30.0}
    world.report(9, a=15.0)
    assert world.used == {"low": 30.0}, "it may have been billed before"


def test_a_worker_without_the_shard_of_usage_counts_alike_and_bills_nothing() -> None:
    world, other = World(), World()
    other.state.apply(Owned(frozenset((1,)), 2))
    for each in (world, other):
        each.pod("p", 1)
    told = world.report(5, p=100.0, unknown=7.0)
    assert told.usage is not None
    (followed,) = other.state.apply(NodeUsed(told.usage))
    assert isinstance(followed, NodeMeasured)
    assert (followed.bill, followed.unbilled) == ((), {})
    assert other.state.usage.known() == world.state.usage.known()


@pytest.mark.parametrize("name", ["cpuSeconds", "memoryByteSeconds"])
def test_a_counter_has_a_limit(name: str) -> None:
    manifest = usage_manifest("n", quality={}, pods={"u": {name: 1.1e24}})
    with pytest.raises(FieldError, match=r"out of range; allowed is 0 to 1e\+24") as raised:
        usage_from_wire(convert_manifest(manifest, WireNodeUsage, ""), 1, "object")
    assert raised.value.path == f"object.pods.u.{name}"


def test_a_record_of_a_build_that_counted_nothing_bills_no_pod_from_its_start() -> None:
    """Such a build may have owned the shard of usage for a while, and dropped what was counted."""
    world = World()
    world.pod("p", 1)
    world.report(5, p=100.0)
    written = b'{"at_ms":%d,"use":{},"pods_at_ms":9,"pods":{"p":[1.0,2.0]}}' % (START_MS + 6 * MINUTE_MS)
    world.state.usage.qualities["n"] = msgspec.json.decode(written, type=QualityRecord)
    world.report(7, p=130.0)
    world.pod("q", 8.5)
    world.report(9, p=140.0, q=5.0)
    world.report(10, p=150.0, q=6.0)
    assert world.used == {"low": 116.0}
    assert world.unbilled == {"late": 1, "before": 1}
