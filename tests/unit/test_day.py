"""Does a simulated day of co-location keep promises, count what was done, and name a broken agent?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from domain.colocation.eviction import Cause
from domain.colocation.suppression import UNLIMITED_US, BoxSettings
from domain.colocation.view import Requests
from domain.model.colocation import DEFAULT_POLICY, Amounts, Quality
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import COLOCATION_PROFILE, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from research.simulate import boxes
from research.simulate.boxes import Demand, LowPods, NodeBoxes, share_cpu
from research.simulate.day import Day, Job, simulate_day
from research.simulate.demands import promised
from research.simulate.generated import day_trace
from research.simulate.methods import Method
from research.simulate.running import Simulation
from research.simulate.tianchi import tianchi_trace
from research.simulate.trace import Curves, Kind, Moment, Trace, kind_of
from services.agent.plan import Plan, Seen, plan
from services.cli.main import app

TIANCHI = Path(__file__).parent.parent.parent.parent / "shared" / "data" / "tianchi2018-prelim-b"
GIB = 1 << 30
PERIOD_US = DEFAULT_POLICY.suppression.period_us
YIELDS = BoxSettings(low_yields=True)
METHOD = Method(name=COLOCATION_PROFILE, profile=BUILT_IN_PROFILES[COLOCATION_PROFILE])


def demand(high: int, *, mid: int = 0, mid_requests: int = 0, memory: int = 0) -> Demand:
    """Return what is wanted: thousandths of a core, and GiB of high pods, which request all they want."""
    promise = min(mid, mid_requests)
    requests = Requests(Amounts(high), Amounts(mid_requests))
    return Demand(Amounts(high, memory * GIB), Amounts(mid), high, promise, requests)


def low(count: int, *, memory: int = 0) -> LowPods:
    keys = tuple(f"job/{i}" for i in range(count))
    return LowPods(keys, Amounts(1_000, memory * GIB), Amounts(1_000, GIB))


def node() -> NodeBoxes:
    """Return a node of 32 cores and 100 GiB, whose agent has worked for a minute."""
    found = NodeBoxes(Amounts(32_000, 100 * GIB), DEFAULT_POLICY)
    found.pass_minute(-60_000, demand(0), low(0))
    return found


def short(trace: Trace, steps: int, first: int = 0) -> Trace:
    """Return a day that is only some steps of one."""
    assert trace.curves is not None
    used = trace.curves.used[:, :, first : first + steps + 1]
    return msgspec.structs.replace(trace, curves=msgspec.structs.replace(trace.curves, used=used))


def day_of(trace: Trace, job: Job | None) -> Day:
    return simulate_day(trace, job, METHOD, seed=1)


# ------------------------------------------------------------------------------------------ one node


def test_low_pods_that_yield_get_what_is_left_and_others_their_requests_first() -> None:
    wants = demand(20_000, mid=15_000, mid_requests=4_000)
    assert share_cpu(32_000, PERIOD_US, wants, 9_000, YIELDS) == (20_000, 12_000, 0)
    assert share_cpu(40_000, PERIOD_US, wants, 9_000, YIELDS) == (20_000, 15_000, 5_000)
    held = BoxSettings(low_yields=True, low_quota_us=200_000, mid_quota_us=600_000)
    assert share_cpu(40_000, PERIOD_US, wants, 9_000, held) == (20_000, 6_000, 2_000)


def test_low_pods_that_do_not_yield_take_from_all() -> None:
    assert share_cpu(32_000, PERIOD_US, demand(32_000), 32_000, BoxSettings()) == (16_000, 0, 16_000)
    assert share_cpu(32_000, PERIOD_US, demand(8_000), 8_000, BoxSettings()) == (8_000, 0, 8_000)


def test_a_box_holds_low_pods_to_what_is_idle_less_the_margin() -> None:
    minute = node().pass_minute(0, demand(20_000), low(20))
    left = 32_000 - 20_000 - 3_200
    assert minute.use.low.cpu_milli == left
    assert minute.low_wanted == 20 * 1_000 * 60
    assert 59 * left <= sum(minute.low.values()) <= 59 * left + 12_000, (
        "in the first second there is no quota"
    )
    assert minute.ended == []


@pytest.mark.parametrize(
    ("wants", "pods", "causes", "stay"),
    [
        (demand(28_500), low(3), {Cause.NO_BOX}, 0),
        (demand(26_000), low(20), {Cause.STARVED}, 11),
        (demand(4_000, memory=65), low(8, memory=1), {Cause.MEMORY}, 2),
    ],
)
def test_low_pods_end_where_a_node_is_short(
    wants: Demand, pods: LowPods, causes: set[Cause], stay: int
) -> None:
    minute = node().pass_minute(0, wants, pods)
    assert {cause for _, cause in minute.ended} == causes
    assert len(pods.keys) - len(minute.ended) == stay
    assert minute.cut == 0


def test_seconds_that_are_passed_over_are_those_in_which_the_agent_decides_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(5)
    minutes = [
        (
            demand(int(random.integers(33)) * 1_000, mid_requests=2_000, memory=int(random.integers(75))),
            low(int(random.integers(30)), memory=1),
        )
        for _ in range(40)
        for _ in range(int(random.integers(1, 3)))
    ]
    minutes = [each for each in minutes for _ in range(2)]
    quick, slow = node(), node()
    found = [quick.pass_minute(i * 60_000, *each) for i, each in enumerate(minutes)]
    monkeypatch.setattr(NodeBoxes, "_is_steady", lambda *_: False)
    assert found == [slow.pass_minute(i * 60_000, *each) for i, each in enumerate(minutes)]
    assert len({cause for minute in found for _, cause in minute.ended}) == 3


# ------------------------------------------------------------------------------------------ a day


def full_trace(*, jumps: bool = False) -> Trace:
    """Return two nodes of 8 cores, and six high pods of 4 cores, of which two find no node.

    Each uses a core; where it ``jumps``, nearly four after 75 minutes.
    """
    room = {"cpu": 8_000, "memory": 100 * GIB, "pods": 50}
    nodes = [NodeSpec(name=f"n{i}", uid=f"n{i}", resource_version=None, allocatable=room) for i in range(2)]
    kind = kind_of({"cpu": 4_000, "memory": GIB})
    moments = [Moment(0, NodeUpserted(each)) for each in nodes]
    moments += [Moment(60_000 * (20 + 5 * i), PodUpserted(kind.pod(f"a/p{i}"))) for i in range(6)]
    used = np.array([np.full((1, 9), 1_000.0), np.full((1, 9), GIB / 2)])
    used[0, 0, 5:] = 3_900 if jumps else 1_000
    curves = Curves(900_000, ("cpu", "memory"), {f"a/p{i}": 0 for i in range(6)}, used)
    return Trace(name="full", moments=moments, resources=("cpu", "memory"), curves=curves)


def test_low_pods_let_high_pods_wait_as_without_them() -> None:
    trace = full_trace()
    without, beside = day_of(trace, None), day_of(trace, Job(6, Quality.LOW))
    end_s, came_s = 8 * 900, (40 * 60, 45 * 60)
    assert (without.waits_count, without.waits_seconds) == (2, sum(end_s - each for each in came_s))
    assert (beside.waits_count, beside.waits_seconds) == (without.waits_count, without.waits_seconds)
    assert beside.cut_core_seconds == 0
    assert beside.done_core_hours > 5


def test_services_have_the_pods_of_a_job_evicted_and_wait_for_their_grace() -> None:
    """Ten pods of a core come after three services of 4 cores, and take the 4 cores left of 16."""
    without, beside = day_of(full_trace(), None), day_of(full_trace(), Job(100, Quality.HIGH))
    assert beside.ended == {"preempted": 4}
    assert beside.waits_count == without.waits_count + 1
    assert beside.waits_seconds == without.waits_seconds + 30
    assert beside.job_pods_count == 10
    assert 0 < beside.done_core_hours < 1, "what was done before they left is kept"
    assert beside.cut_core_seconds == 0


def test_pods_that_are_ended_keep_what_they_have_done() -> None:
    """Eight low pods get at most a core each from the 30th minute to the 75th; then their boxes are gone."""
    found = day_of(full_trace(jumps=True), Job(8, Quality.LOW))
    assert found.ended == {"no-box": 8}
    assert 5 < found.done_core_hours <= 8 * 45 / 60
    assert found.done_core_hours == pytest.approx(sum(step.job for step in found.steps) / 4)
    assert found.steps[-1].waiting == 8
    assert found.cut_core_seconds == 0


@pytest.fixture(scope="module")
def generated() -> Trace:
    """Return the morning of a day, in which services use more and more."""
    return short(day_trace(1, 4), 20, first=24)


@pytest.mark.parametrize("quality", [Quality.HIGH, Quality.LOW])
def test_what_is_done_is_what_is_billed(generated: Trace, quality: Quality) -> None:
    job = Job(500, quality)
    found = day_of(generated, job)
    (line,) = [each for each in found.bill if each.of == "job"]
    assert found.done_core_hours == pytest.approx(line.core_hours)
    assert sum(step.job for step in found.steps) / 4 == pytest.approx(line.core_hours)
    assert line.price == pytest.approx(line.core_hours * (0.1 if quality is Quality.LOW else 0.85))
    assert line.as_high == pytest.approx(line.core_hours * 0.85)
    assert found.cut_core_seconds == 0
    if quality is Quality.LOW:
        assert found.done_core_hours < job.core_hours
        assert found.done_seconds is None
        assert found.suppressed_core_hours > 0


def test_what_services_use_does_not_depend_on_low_pods(generated: Trace) -> None:
    days = [day_of(generated, job) for job in (None, Job(120, Quality.LOW))]
    high = [sum(each.core_hours for each in day.bill if each.quality == "high") for day in days]
    assert high[0] == high[1] > 0


def test_an_agent_that_does_nothing_is_named(generated: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(seen: Seen, *more: Any) -> Plan:
        return plan(seen, *more)._replace(acts=(), needs=())

    monkeypatch.setattr(boxes, "plan", idle)
    found = day_of(generated, Job(300, Quality.LOW))
    assert found.cut_core_seconds > 0, "low pods that do not yield take from the others' requests"
    assert found.cut_nodes_count > 0


def test_a_kernel_that_does_not_let_low_pods_yield_is_named(
    generated: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy(cores: int, period_us: int, wants: Demand, low_milli: int, _: BoxSettings) -> boxes.Given:
        return share_cpu(cores, period_us, wants, low_milli, BoxSettings(False, UNLIMITED_US, UNLIMITED_US))

    monkeypatch.setattr(boxes, "share_cpu", greedy)
    assert day_of(generated, Job(300, Quality.LOW)).cut_core_seconds > 0


def test_equal_seeds_give_equal_bytes(generated: Trace) -> None:
    once, again = (msgspec.json.encode(day_of(generated, Job(60, Quality.LOW))) for _ in range(2))
    assert once == again


def test_services_are_high_unless_a_limit_is_above_the_request() -> None:
    asked = {"cpu": 1_000, "memory": GIB}
    high = promised(PodTemplate(requests=asked), "mine")
    assert (high.qos_class, high.limits, high.profile) == ("Guaranteed", asked, "mine")
    mid = promised(PodTemplate(requests=asked, limits={**asked, "cpu": 2_000}), "mine")
    assert mid.qos_class == "Burstable"


def test_a_victim_leaves_after_its_grace_and_waits_again() -> None:
    room = {"cpu": 4_000, "memory": 8 * GIB, "pods": 10}
    spec = NodeSpec(name="n", uid="n", resource_version=None, allocatable=room)
    first, later = (kind_of({"cpu": 4_000}, priority=each, qos_class="Guaranteed") for each in (0, 10))
    trace = Trace(name="two", moments=[], resources=("cpu",))
    simulation = Simulation(trace, METHOD, seed=1, grace_ms=30_000)

    def come(at_ms: int, kind: Kind, name: str) -> None:
        simulation.pass_to(at_ms)
        simulation.happen([Moment(at_ms, PodUpserted(kind.pod(f"a/{name}")))])

    simulation.happen([Moment(0, NodeUpserted(spec))])
    come(1_000, first, "first")
    come(2_000, later, "later")
    simulation.pass_to(32_000)
    assert {key: entry.node for key, entry in simulation.state.pods.items()} == {
        "a/first": "n",
        "a/later": "",
    }
    simulation.pass_to(32_001)
    assert {key: entry.node for key, entry in simulation.state.pods.items()} == {
        "a/first": "",
        "a/later": "n",
    }
    assert simulation.counts.moved == 1


# ------------------------------------------------------------------------------------------ the command


def ask(*words: str) -> Any:
    return CliRunner().invoke(app, ["simulate", *words])


def test_the_command_compares_days(tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    asked = ("day", "--nodes", "2", "--job", "20", "--seed", "1", "--csv", str(file))
    found = json.loads(ask(*asked, "-o", "json").stdout)
    assert [day["job"] for day in found["days"]] == ["none", "high", "low"]
    assert [day["cut_core_seconds"] for day in found["days"]] == [0, 0, 0]
    assert [day["waits_count"] for day in found["days"]] == [0, 0, 0]
    assert [day["done_core_hours"] for day in found["days"]] == pytest.approx([0, 20, 20])
    lines = file.read_text().splitlines()
    assert lines[0] == "trace,seed,job_as,seconds,services,job,lent,suppressed,running,waiting,ended"
    assert len(lines) == 1 + 3 * 96
    table = ask("day", "--nodes", "1", "--job", "1", "--as", "low").stdout
    assert table.startswith("JOB AS")
    assert "1h00m" in table or "1h01m" in table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("imbalance", "--job", "10"), "--job needs a trace that says what pods use"),
        (("day", "--job", "10", "-p", "colocation", "-p", "first-fit"), "--job takes one profile"),
        (("day", "--job", "10", "--policy", "docs/examples/policy.yaml"), "holds on all nodes"),
        (("day", "--job", "10", "--every", "6h"), "--every says nothing beside --job"),
        (("day", "--as", "low"), "--as says nothing without --job"),
    ],
)
def test_what_cannot_be_compared_is_said(words: tuple[str, ...], said: str) -> None:
    found = ask(*words)
    assert found.exit_code == 1
    assert said in " ".join(found.output.split())


@pytest.mark.skipif(not TIANCHI.exists(), reason="the trace does not come with berth")
def test_a_part_of_the_contest_is_one() -> None:
    trace = tianchi_trace(TIANCHI, 60)
    nodes = [each.event.node for each in trace.moments if isinstance(each.event, NodeUpserted)]
    assert len(nodes) == 60
    assert {node.allocatable["cpu"] for node in nodes} == {32_000, 92_000}
    assert trace.pods_count == 682
    assert trace.choices[-1].startswith("60 of 6,000 nodes")
    found = day_of(short(trace.cut(pods_max=None, until_ms=None, stay=True), 5), Job(500, Quality.LOW))
    assert found.cut_core_seconds == 0
    assert found.done_core_hours > 0
