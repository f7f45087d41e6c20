"""Do the machine filters refuse where a person with a pencil would, and say so?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import Verdict
from domain.engine.verdicts import Failure, Placement
from domain.model.errors import FieldError
from domain.model.events import Event, NodeDeleted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.pods import PodSpec
from domain.model.profiles import PluginUse, Profile
from domain.model.usage import Measured, NodeUsage
from domain.plugins.registry import ProfilePlan
from services.cli.main import app
from services.plan.scenario import plan_scenario
from tests.builders import Json, node_manifest, pod_manifest
from tests.values import GIB, node, pod, template


def plan(filters: list[Any], objects: list[Json], *, usage: Json | None = None) -> Verdict:
    """Return the verdict of the only pod that waits; each of the objects is a node or a pod."""
    scenario = {"objects": objects, "profile": {"filters": filters, "scores": []}, "usage": usage}
    (verdict,) = plan_scenario(scenario)
    return verdict


def use(name: str, **args: Any) -> Json:
    return {"name": name, "args": args}


def limited(name: str, memory: str | None, limit: str | None, **fields: Any) -> Json:
    """Return a pod with a memory request and limit."""
    asked = {"requests": {"memory": memory} if memory else {}, "limits": {"memory": limit} if limit else {}}
    return pod_manifest(name, spec={"containers": [{"name": "c", "resources": asked}]}, **fields)


def master(name: str, cluster: str = "c", role: str = "master", **fields: Any) -> Json:
    labels = {"berth.io/cluster": cluster, "berth.io/role": role}
    return pod_manifest(name, cpu="100m", labels=labels, **fields)


# ------------------------------------------------------------------------------------- ResourceThreshold


@pytest.mark.parametrize(
    ("cpu", "outcome"),
    [("1200m", {}), ("1201m", {"n": "over-threshold:cpu"})],
    ids=["at the threshold", "a thousandth above"],
)
def test_a_pod_may_reach_the_threshold_and_not_pass_it(cpu: str, outcome: dict[str, str]) -> None:
    """80 % of 4 cores are 3.2, of which 2 are taken."""
    filters = [use("ResourceThreshold", resources=[{"name": "cpu", "threshold": 80}])]
    objects = [node_manifest("n"), pod_manifest("q", cpu="2", node_name="n"), pod_manifest("p", cpu=cpu)]
    verdict = plan(filters, objects)
    assert verdict.infeasible == outcome
    assert verdict.unresolvable == []


def test_what_the_pod_alone_passes_no_eviction_cures() -> None:
    filters = [use("ResourceThreshold", resources=[{"name": "memory", "threshold": 50}])]
    objects = [node_manifest("small"), node_manifest("large", memory="16Gi"), pod_manifest("p", memory="5Gi")]
    objects.append(pod_manifest("q", memory="4Gi", node_name="large"))
    verdict = plan(filters, objects)
    assert verdict.infeasible == {"small": "over-threshold:memory", "large": "over-threshold:memory"}
    assert verdict.unresolvable == ["small"]
    assert verdict.outcome == "unschedulable"


def test_thresholds_are_exact_where_hundredths_are_not() -> None:
    """29 % of 100 are 29, though 0.29 * 100 is less in binary."""
    for percent in range(101):
        filters = [use("ResourceThreshold", resources=[{"name": "network", "threshold": percent}])]
        for asked in (percent, percent + 1):
            verdict = plan(filters, [node_manifest("n", network=100), pod_manifest("p", network=asked)])
            assert (verdict.node is None) == (asked > percent), (percent, asked)


def test_any_resource_has_a_threshold_and_the_first_one_passed_is_told() -> None:
    resources = [
        {"name": "network", "threshold": 60},
        {"name": "pods", "threshold": 50},
        {"name": "cpu", "threshold": 10},
    ]
    filters = [use("ResourceThreshold", resources=resources), "NodeResourcesFit"]
    objects = [
        node_manifest("busy", pods=4, network=100),
        node_manifest("crowded", pods=2, network=100),
        node_manifest("free", pods=4, network=100, cpu=8),
        node_manifest("without", pods=4),
        pod_manifest("q", network=50, node_name="busy"),
        pod_manifest("r", node_name="crowded"),
        pod_manifest("p", cpu="500m", network=20),
    ]
    verdict = plan(filters, objects)
    assert verdict.infeasible == {
        "busy": "over-threshold:network",
        "crowded": "over-threshold:pods",
        "without": "over-threshold:network",
    }
    assert verdict.unresolvable == ["without"]
    assert verdict.node == "free"


@pytest.mark.parametrize(
    ("figures", "refused"),
    [
        ({"avg": 70.0}, False),
        ({"avg": 70.1}, True),
        ({"avg": 69.0, "latest": 99.0}, False),
        ({"latest": 70.5}, True),
        ({"std": 99.0}, False),
        ({"peak": 99.0}, False),
        ({}, False),
    ],
)
def test_the_average_counts_else_the_latest_value_and_what_was_not_measured_passes(
    figures: dict[str, float], refused: bool
) -> None:
    filters = [use("ResourceThreshold", resources=[{"name": "network", "threshold": 70, "of": "measured"}])]
    verdict = plan(filters, [node_manifest("n"), pod_manifest("p")], usage={"n": {"network": figures}})
    assert verdict.infeasible == ({"n": "over-threshold-measured:network"} if refused else {})
    assert verdict.unresolvable == list(verdict.infeasible)


def test_one_resource_may_have_a_threshold_for_what_is_requested_and_one_for_what_is_measured() -> None:
    resources = [
        {"name": "cpu", "threshold": 50},
        {"name": "cpu", "threshold": 30, "of": "measured"},
        {"name": "memory", "threshold": 40, "of": "measured"},
    ]
    usage = {"hot": {"cpu": {"avg": 31}, "memory": {"avg": 90}}, "tight": {"memory": {"avg": 41}}}
    objects = [*(node_manifest(name, cpu=2) for name in ("hot", "tight", "taken")), node_manifest("free")]
    objects.append(pod_manifest("p", cpu="1100m"))
    verdict = plan([use("ResourceThreshold", resources=resources)], objects, usage=usage)
    assert verdict.infeasible == {
        "hot": "over-threshold-measured:cpu",
        "tight": "over-threshold-measured:memory",
        "taken": "over-threshold:cpu",
    }
    assert verdict.unresolvable == ["hot", "tight", "taken"]


# ------------------------------------------------------------------------------------------ MaxMemorySum


@pytest.mark.parametrize(
    ("request_", "limit", "fits"),
    [("1Gi", "2Gi", True), ("1Gi", "2049Mi", False), ("2Gi", None, True), ("2049Mi", None, False),
     (None, None, True), ("2049Mi", "1Gi", False)],
)  # fmt: skip
def test_a_pod_counts_with_its_limit_and_without_one_with_its_request(
    request_: str | None, limit: str | None, fits: bool
) -> None:
    """The node has 8 GiB, of which 6 may be used already: 5 by a limit, 1 by a request."""
    others = [limited("a", "1Gi", "5Gi", node_name="n"), limited("b", "1Gi", None, node_name="n")]
    verdict = plan(["MaxMemorySum"], [node_manifest("n"), *others, limited("p", request_, limit)])
    assert verdict.infeasible == ({} if fits else {"n": "max-memory-sum"})
    assert verdict.unresolvable == []


def test_memory_is_counted_against_the_capacity_and_its_share() -> None:
    small = node_manifest("n", memory="4Gi")
    small["status"]["capacity"]["memory"] = "5Gi"
    for share, most in ((100, 5 * 1024), (120, 6 * 1024), (50, 2560)):
        for mebibytes, fits in ((most, True), (most + 1, False)):
            pods = [limited("p", None, f"{mebibytes}Mi")]
            verdict = plan([use("MaxMemorySum", share=share)], [small, *pods])
            assert (verdict.node == "n") == fits
            assert verdict.unresolvable == ([] if fits else ["n"])


# ------------------------------------------------------------------------------------------- MasterShare


def test_at_most_half_of_the_masters_share_a_node() -> None:
    """Of 5 masters 2 may be together; of another cluster, or with another role, any number."""
    objects = [node_manifest("a"), node_manifest("b")]
    objects += [master(f"m{i}", node_name="a") for i in range(2)] + [master("m2", node_name="b")]
    objects += [master(f"r{i}", role="replica", node_name="b") for i in range(3)]
    objects += [master(f"o{i}", cluster="other", node_name="b") for i in range(3)]
    scenario = {
        "objects": [*objects, master("m3"), master("m4"), master("r4", role="replica")],
        "profile": {"filters": [use("MasterShare", share=50)], "scores": []},
    }
    third, fourth, replica = plan_scenario(scenario)
    assert (third.node, third.infeasible) == ("b", {"a": "master-share"})
    assert (fourth.node, fourth.infeasible) == (None, {"a": "master-share", "b": "master-share"})
    assert (fourth.outcome, fourth.unresolvable) == ("unschedulable", [])
    assert replica.feasible == ["a", "b"]


@pytest.mark.parametrize(
    ("share", "masters", "allowed"),
    [(0, 5, 1), (50, 1, 1), (50, 2, 1), (50, 3, 1), (50, 4, 2), (30, 10, 3), (100, 3, 3), (33.4, 3, 1)],
)
def test_the_share_is_rounded_down_but_one_is_always_allowed(
    share: float, masters: int, allowed: int
) -> None:
    scenario = {
        "objects": [node_manifest("n"), *(master(f"m{i}") for i in range(masters))],
        "profile": {"filters": [use("MasterShare", share=share)], "scores": []},
    }
    assert sum(verdict.node == "n" for verdict in plan_scenario(scenario)) == allowed


# --------------------------------------------------------------------------------------------- PeakUsage


def test_yesterdays_peak_refuses_and_an_unknown_one_passes() -> None:
    usage = {
        "hot": {"cpu": {"peak": 80.5, "avg": 3}},
        "warm": {"cpu": {"peak": 80}},
        "busy": {"cpu": {"avg": 99, "latest": 99}},
        "wide": {"memory": {"peak": 99}},
    }
    objects = [*(node_manifest(name) for name in (*usage, "new")), pod_manifest("p")]
    verdict = plan(["PeakUsage"], objects, usage=usage)
    assert verdict.infeasible == {"hot": "peak-usage:cpu"}
    assert verdict.unresolvable == ["hot"]
    both = use("PeakUsage", resources=[{"name": "memory", "threshold": 90}, {"name": "cpu", "threshold": 0}])
    verdict = plan([both], objects, usage=usage)
    assert verdict.infeasible == {
        "hot": "peak-usage:cpu",
        "warm": "peak-usage:cpu",
        "wide": "peak-usage:memory",
    }


# -------------------------------------------------------------------------------------------- everywhere

WRONG: dict[str, tuple[str, Json, str, str]] = {
    "no thresholds": ("ResourceThreshold", {}, "resources", "is missing"),
    "empty thresholds": ("ResourceThreshold", {"resources": []}, "resources", "is missing"),
    "no list": ("ResourceThreshold", {"resources": {"cpu": 80}}, "resources", "list"),
    "no object": ("ResourceThreshold", {"resources": ["cpu"]}, "resources[0]", "object"),
    "no name": ("ResourceThreshold", {"resources": [{"threshold": 1}]}, "resources[0].name", "name"),
    "no number": (
        "ResourceThreshold", {"resources": [{"name": "cpu", "threshold": "x"}]}, "resources[0].threshold",
        "number",
    ),
    "no threshold": ("PeakUsage", {"resources": [{"name": "cpu"}]}, "resources[0].threshold", "0..100"),
    "not a number": (
        "PeakUsage", {"resources": [{"name": "cpu", "threshold": float("nan")}]}, "resources[0].threshold",
        "number",
    ),
    "too high": (
        "PeakUsage", {"resources": [{"name": "cpu", "threshold": 100.5}]}, "resources[0].threshold", "0..100",
    ),
    "of what": (
        "ResourceThreshold", {"resources": [{"name": "cpu", "threshold": 1, "of": "used"}]},
        "resources[0].of", "requested, measured",
    ),
    "of for a peak": (
        "PeakUsage", {"resources": [{"name": "cpu", "threshold": 1, "of": "measured"}]}, "resources[0].of",
        "unknown",
    ),
    "twice": (
        "PeakUsage", {"resources": [{"name": "cpu", "threshold": 1}] * 2}, "resources[1].name", "twice",
    ),
    "share of memory": ("MaxMemorySum", {"share": -1}, "share", "0..1000"),
    "share of masters": ("MasterShare", {"share": 101}, "share", "0..100"),
    "a word": ("MasterShare", {"share": "half"}, "share", "number"),
    "another argument": ("MasterShare", {"shares": 1}, "shares", "share"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "args", "path", "word"), WRONG.values(), ids=WRONG)
def test_an_argument_that_makes_no_sense_is_named(name: str, args: Json, path: str, word: str) -> None:
    with pytest.raises(FieldError) as error:
        ProfilePlan(Profile(name="p", filters=(PluginUse(name=name, args=args),)))
    assert error.value.path == f"filters[0].args.{path}"
    assert word in error.value.message


def test_the_command_line_answers_with_every_machine_filter(tmp_path: Path) -> None:
    filters = [
        use("ResourceThreshold", resources=[{"name": "cpu", "threshold": 80}]),
        "MaxMemorySum",
        "MasterShare",
        "PeakUsage",
    ]
    scenario = {
        "objects": [
            *(node_manifest(name) for name in ("cpu", "memory", "masters", "peak", "free")),
            pod_manifest("a", cpu="3200m", node_name="cpu"),
            limited("b", None, "8Gi", node_name="memory"),
            master("c", node_name="masters"),
            master("p", memory="1Gi"),
        ],
        "usage": {"peak": {"cpu": {"peak": 95}}},
        "profile": {"filters": filters, "scores": []},
    }
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(scenario))
    done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"])
    assert done.exit_code == 0, done.output
    (answer,) = json.loads(done.stdout)
    assert answer["infeasible"] == {
        "cpu": "over-threshold:cpu",
        "memory": "max-memory-sum",
        "masters": "master-share",
        "peak": "peak-usage:cpu",
    }
    assert (answer["outcome"], answer["node"], answer["unresolvable"]) == ("bound", "free", ["peak"])


# -------------------------------------------------------------------------------------------- in a worker


def worker(*filters: PluginUse) -> Scheduler:
    profile = Profile(
        name="default-scheduler",
        filters=(*filters, PluginUse(name="NodeResourcesFit")),
        scores=(PluginUse(name="NodeResourcesFit"),),
    )
    return Scheduler({profile.name: profile}, seed=1)


def tell(scheduler: Scheduler, *events: Event) -> dict[str, str | dict[str, int]]:
    """Fold events, try what is worth it until nothing is; return the node of a pod, or why it has none."""
    for event in events:
        scheduler.fold(event)
    told: dict[str, str | dict[str, int]] = {}
    while scheduler.has_work:
        result = scheduler.cycle()
        for verdict in result.verdicts:
            match verdict:
                case Placement():
                    told[verdict.pod.name] = verdict.node
                case Failure():
                    told[verdict.pod.name] = result.attempts[verdict.attempt].reasons_at_failure
    return told


def member(name: str, role: str = "master", *, version: int = 1, on: str = "", cpu: int = 100) -> PodSpec:
    return pod(name, template(cpu, cluster="c", role=role), version=version, on=on)


def joins(*pods: PodSpec) -> list[Event]:
    return [PodUpserted(each) for each in pods]


def used(name: str, minute: int, **percent: float) -> Event:
    """Return a measurement; each one replaces all figures of the one before."""
    resources = {resource: Measured(avg=value, latest=value) for resource, value in percent.items()}
    return NodeUsed(NodeUsage(node=name, at_ms=minute * 60_000, window=resources))


MASTER_SHARE = PluginUse(name="MasterShare")


def test_limits_hold_within_a_cycle_too() -> None:
    """50 % of 4 cores take two pods of 900m, and MaxMemorySum one of 5 GiB."""
    threshold = {"resources": [{"name": "cpu", "threshold": 50}]}
    scheduler = worker(PluginUse(name="ResourceThreshold", args=threshold), PluginUse(name="MaxMemorySum"))
    many = [pod(f"p{i}", template(900)) for i in range(3)]
    large = [pod(f"q{i}", template(1, GIB, limits={"memory": 5 * GIB})) for i in range(2)]
    told = tell(scheduler, NodeUpserted(node("a")), *joins(*many, *large))
    assert told == {
        "p0": "a",
        "p1": "a",
        "p2": {"over-threshold:cpu": 1},
        "q0": "a",
        "q1": {"max-memory-sum": 1},
    }
    for attempt in [group.attempt for group in scheduler.queue.groups.values()]:
        assert attempt is not None
        assert not attempt.unresolvable
    assert tell(scheduler, PodDeleted("default", "p0"), PodDeleted("default", "q0")) == {"p2": "a", "q1": "a"}


def test_a_master_that_joins_lets_one_more_share_a_node() -> None:
    """Of 4 masters 2 may share the only node: the fourth brings the place for the second."""
    scheduler = worker(MASTER_SHARE)
    assert tell(scheduler, NodeUpserted(node("a")), *joins(member("m1"))) == {"m1": "a"}
    refused = {"master-share": 1}
    assert tell(scheduler, *joins(member("m2"), member("m3"))) == {"m2": refused, "m3": refused}
    assert tell(scheduler, *joins(member("m4"))) == {"m2": "a", "m4": refused}


def test_masters_of_another_template_and_a_role_that_changes_count_too() -> None:
    scheduler = worker(MASTER_SHARE)
    nodes = [NodeUpserted(node("a")), NodeUpserted(node("b"))]
    tell(scheduler, *nodes, *joins(member("m1", on="a"), member("r1", "replica", on="b")))
    assert tell(scheduler, *joins(member("m2", cpu=200))) == {"m2": "b"}
    assert tell(scheduler, *joins(member("m3", cpu=300))) == {"m3": {"master-share": 2}}
    tell(scheduler, *joins(member("r1", "master", on="b", version=2)))
    assert scheduler.state.pods["default/m3"].node == "a", "of four masters two may share a node"
    assert tell(scheduler, *joins(member("m5"))) == {"m5": {"master-share": 2}}


def test_a_master_that_leaves_makes_room_and_moves_nobody() -> None:
    scheduler = worker(MASTER_SHARE)
    pods = [member(f"m{i}", on="a") for i in range(3)] + [member("m3", on="b")]
    tell(scheduler, NodeUpserted(node("a")), NodeUpserted(node("b")), *joins(*pods))
    assert tell(scheduler, *joins(member("m4"))) == {"m4": "b"}
    assert tell(scheduler, *joins(member("m5"))) == {"m5": "b"}
    assert tell(scheduler, *joins(member("m6"))) == {"m6": {"master-share": 2}}
    tell(scheduler, PodDeleted("default", "m3"))
    assert scheduler.state.pods["default/m6"].node == "b"
    assert len(scheduler.state.nodes["a"].pods) == 3


def test_a_node_that_comes_back_brings_its_masters() -> None:
    scheduler = worker(MASTER_SHARE)
    tell(scheduler, NodeUpserted(node("a")), *joins(member("m1")), NodeDeleted("a", resource_version=2))
    assert tell(scheduler, *joins(member("m2"))) == {"m2": {"no-nodes": 0}}
    tell(scheduler, NodeUpserted(node("a", version=3)))
    assert scheduler.state.pods["default/m2"].node == ""
    tell(scheduler, NodeUpserted(node("b")))
    assert scheduler.state.pods["default/m2"].node == "b"


def test_a_measurement_refuses_and_the_next_one_wakes() -> None:
    """cpu was at 90 % yesterday and is at 70 % today; the threshold for both is 80 %."""
    threshold = {"resources": [{"name": "cpu", "threshold": 80, "of": "measured"}]}
    scheduler = worker(PluginUse(name="ResourceThreshold", args=threshold))
    told = tell(scheduler, NodeUpserted(node("a")), used("a", 1, cpu=90.0), *joins(pod("p"), pod("q")))
    assert told == {"p": {"over-threshold-measured:cpu": 1}, "q": {"over-threshold-measured:cpu": 1}}
    attempt = scheduler.queue.groups[pod("p").signature, 0].attempt
    assert attempt is not None
    assert attempt.unresolvable
    assert tell(scheduler, used("a", 2, cpu=81.0)) == {}
    assert tell(scheduler, used("a", 3, cpu=79.0)) == {"p": "a", "q": "a"}


def test_yesterdays_peak_holds_for_a_day() -> None:
    scheduler = worker(PluginUse(name="PeakUsage"))
    day = 24 * 60
    first = [NodeUpserted(node("a")), used("a", day - 1, cpu=90.0)]
    assert tell(scheduler, *first, *joins(pod("p"))) == {"p": "a"}
    refused = {"peak-usage:cpu": 1}
    assert tell(scheduler, used("a", day + 1, cpu=10.0), *joins(pod("q"))) == {"q": refused}
    assert tell(scheduler, used("a", 2 * day + 1, cpu=10.0)) == {"q": "a"}
