"""Does a simulation do what the engine does, under a clock of its own, and say what came out?"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from domain.model.devices import GPU_MILLI
from domain.model.events import NodeUpserted, PodDeleted, PodUpserted, ProfileUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile
from research.cli.simulate import TraceName
from research.simulate.generated import imbalance_trace
from research.simulate.measuring import in_order, size_of
from research.simulate.methods import LNS, TBESK, Method, method_of
from research.simulate.openb import openb_trace
from research.simulate.running import Every, Run, Simulation, simulate
from research.simulate.trace import Curves, Drained, Moment, Trace, kind_of
from research.simulate.traces import Choices, trace_of
from services.cli.main import app
from services.plan.objects import Given
from services.plan.plan import Plan
from services.traces import openb
from services.traces.openb import TraceError

SHARED = Path(__file__).parent.parent.parent.parent / "shared" / "data"
GIB = 1 << 30


def node(name: str, *, cpu: int = 4, memory: int = 8, closed: bool = False) -> NodeUpserted:
    room = {"cpu": cpu * 1_000, "memory": memory * GIB, "pods": 10}
    return NodeUpserted(
        NodeSpec(name=name, uid=name, resource_version=None, allocatable=room, unschedulable=closed)
    )


def pod(name: str, *, cpu: int = 1, memory: int = 1) -> PodUpserted:
    return PodUpserted(kind_of({"cpu": cpu * 1_000, "memory": memory * GIB}).pod(f"a/{name}"))


def gone(name: str) -> PodDeleted:
    return PodDeleted("a", name)


def trace_with(*events: tuple[float, Any], **more: Any) -> Trace:
    moments = [Moment(int(seconds * 1_000), event) for seconds, event in events]
    return Trace(name="made up", moments=moments, resources=("cpu", "memory"), **more)


def by(name: str = DEFAULT_PROFILE, trace: Trace | None = None) -> Method:
    return method_of(name, BUILT_IN_PROFILES.get(name), trace.resources if trace else (), 10)


EACH = Every(pods=1)


def run(trace: Trace, name: str = DEFAULT_PROFILE, every: Every = EACH) -> Run:
    return simulate(trace, by(name, trace), seed=1, every=every)


def live(trace: Trace, method: Method) -> Simulation:
    """Return the simulation after its last moment."""
    simulation = Simulation(trace, method, seed=1)
    for moment in trace.moments:
        simulation.pass_to(moment.at_ms)
        simulation.happen([moment])
    return simulation


def nodes_of(simulation: Simulation) -> dict[str, str]:
    return {key: entry.node for key, entry in simulation.state.pods.items()}


# ------------------------------------------------------------------------------------------ the engine


@pytest.mark.parametrize("name", [DEFAULT_PROFILE, "first-fit"])
def test_pods_go_where_a_plan_puts_them(name: str) -> None:
    count = 150
    trace = openb_trace(None, "default").cut(pods_max=count, until_ms=None, stay=True)
    plan = Plan(seed=1, profile=BUILT_IN_PROFILES[name], lenient=True)
    names = []
    for each in islice(openb.events(), 1_523 + count):
        if each["object"]["kind"] == "Pod":
            names.append(f"openb/{each['object']['metadata']['name']}")
        plan.add(Given(each["type"], each["object"]))
    planned = plan.place_one_by_one(names)
    assert nodes_of(live(trace, by(name))) == {each.pod.key: each.node for each in planned}


def test_equal_seeds_give_equal_bytes() -> None:
    trace = imbalance_trace(3).cut(pods_max=100, until_ms=None, stay=False)
    for name in (DEFAULT_PROFILE, LNS, TBESK):
        once, again = (msgspec.json.encode(run(trace, name, Every(pods=100)).looks) for _ in range(2))
        assert once == again


def test_a_pod_that_leaves_makes_room_for_one_that_waits() -> None:
    trace = trace_with(
        (0, node("n", cpu=2)), (1, pod("p", cpu=2)), (2, pod("q", cpu=2)), (60, gone("p"))
    )  # fmt: skip
    looks = run(trace, every=Every(ms=10_000)).looks
    assert [(look.seconds, look.running, look.waiting, look.placements) for look in looks] == [
        (10, 1, 1, 1), (20, 1, 1, 1), (30, 1, 1, 1), (40, 1, 1, 1), (50, 1, 1, 1), (60, 1, 0, 2)
    ]  # fmt: skip


def test_who_backs_off_is_tried_when_the_virtual_clock_says_so() -> None:
    """Room comes half a second after the failed attempt, which is earlier than the first backoff ends."""
    events = (0, node("n", cpu=2)), (1, pod("p", cpu=2)), (2, pod("q", cpu=2)), (2.5, gone("p"))
    simulation = live(trace_with(*events), by())
    assert nodes_of(simulation) == {"a/q": ""}
    simulation.pass_to(2_900)
    assert nodes_of(simulation) == {"a/q": ""}
    simulation.pass_to(3_100)
    assert nodes_of(simulation) == {"a/q": "n"}


@pytest.mark.parametrize("name", [DEFAULT_PROFILE, TBESK])
def test_pods_of_a_drained_node_wait_and_come_back(name: str) -> None:
    events = [(0, node("n")), (1, pod("p")), (2, pod("q")), (3, node("n", closed=True)), (3, Drained("n"))]
    looks = run(trace_with(*events, (60, node("n")), (90, gone("p"))), name, Every(ms=10_000)).looks
    assert (looks[0].running, looks[0].waiting, looks[0].moved) == (0, 2, 2)
    assert [(look.running, look.waiting, look.placements) for look in looks][-2:] == [(2, 0, 4), (1, 0, 4)]


def test_the_events_of_a_recorded_profile_count_only_where_each_pod_keeps_its_own() -> None:
    mine = Profile(
        name="mine", filters=(PluginUse(name="NodeResourcesFit"),), scores=(PluginUse(name="FirstFit"),)
    )
    kind = kind_of({"cpu": 1_000}, profile="mine")
    trace = trace_with((0, node("n")), (0, ProfileUpserted(mine)), (1, PodUpserted(kind.pod("a/p"))))
    own = live(trace, Method(name="own", profile=None))
    plan = own.profile_of(own.state.pods["a/p"].spec)
    assert plan is not None
    assert plan.profile.scores == mine.scores
    given = live(trace, by("most-allocated"))
    plan = given.profile_of(given.state.pods["a/p"].spec)
    assert plan is not None
    assert plan.profile.scores == BUILT_IN_PROFILES["most-allocated"].scores


# ------------------------------------------------------------------------------------------ measures


def test_a_look_says_how_the_cluster_stands() -> None:
    """Node n: cpu 4 of 4, memory 2 of 8; m: cpu 1 of 4, memory 1 of 8. No pod fits n any more."""
    trace = trace_with(
        (0, node("n")), (0, node("m", closed=True)), (1, pod("p", cpu=4, memory=2)),
        (2, node("n", closed=True)), (2, node("m")), (3, pod("q")), (4, pod("r", cpu=8, memory=1)),
    )  # fmt: skip
    look = run(trace).looks[-1]
    assert (look.arrived, look.running, look.waiting, look.unplaced) == (3, 2, 1, {"8 cpu": 1})
    assert look.allocated == pytest.approx([5 / 8, 3 / 16])
    assert (look.lowest, look.highest) == ([0.25, 0.125], [1.0, 0.25])
    assert look.deviation == pytest.approx([0.375, 0.0625])
    z = [np.hypot(0.375, 0.375), np.hypot(0.0625, 0.0625)]
    assert look.imbalance == pytest.approx(np.mean(z))
    assert look.overloaded == [0, 0]
    assert look.stranded == pytest.approx([0.0, 6 / 16])


def test_a_node_is_compared_by_what_it_offers() -> None:
    """Without a GPU a node that is half full in both its resources is in balance."""
    spec = node("n").node
    trace = msgspec.structs.replace(
        trace_with((0, NodeUpserted(spec)), (1, pod("p", cpu=2, memory=4))),
        resources=("cpu", "memory", "gpu"),
    )
    look = run(trace).looks[-1]
    assert look.imbalance == 0.0
    assert look.allocated == [0.5, 0.5, 0.0]
    assert look.deviation == [0.0, 0.0, 0.0]


def test_devices_that_no_pod_can_use_are_fragmented() -> None:
    """Two devices on n, of which pods take 600 each; half of the pods ask for 600, half for a whole one.

    Of the 400 free on each device nobody can use anything. While the second pod is not there, a pod of 600
    can use the whole device, and one of a whole device, too, so that 400 are lost to both.
    """
    room = {"cpu": 8_000, "memory": 8 * GIB, "pods": 9, "nvidia.com/gpu": 2, GPU_MILLI: 2_000}
    offer = NodeUpserted(NodeSpec(name="n", uid="n", resource_version=None, allocatable=room))
    shared, whole = (
        kind_of({"cpu": 1_000, **asked})
        for asked in ({GPU_MILLI: 600}, {"nvidia.com/gpu": 1, GPU_MILLI: 1_000})
    )
    events = [(i + 1, PodUpserted(shared.pod(f"a/s{i}"))) for i in range(2)]
    events += [(i + 3, PodUpserted(whole.pod(f"a/w{i}"))) for i in range(2)]
    trace = msgspec.structs.replace(trace_with((0, offer), *events), resources=("cpu", "memory", GPU_MILLI))
    looks = run(trace).looks
    assert [look.running for look in looks] == [1, 2, 2, 2]
    assert [look.fragmentation for look in looks] == pytest.approx([0.2, 0.4, 0.4, 0.4])
    assert run(imbalance_trace(1).cut(pods_max=1, until_ms=None, stay=False)).looks[-1].fragmentation is None


@pytest.mark.parametrize(
    ("requests", "size"),
    [
        ({"cpu": 100}, "1 cpu"),
        ({"cpu": 3_000}, "4 cpu"),
        ({"cpu": 64_000}, "64 cpu"),
        ({"cpu": 64_000, "berth.dev/gpu-milli": 8_000}, "8 gpu"),
        ({"cpu": 1_000, "berth.dev/gpu-milli": 460}, "<1 gpu"),
    ],
)
def test_pods_have_sizes(requests: dict[str, int], size: str) -> None:
    assert size_of(kind_of(requests).template) == size


def test_sizes_are_sorted_by_their_amount() -> None:
    assert sorted(["8 gpu", "<1 gpu", "16 cpu", "2 gpu", "4 cpu"], key=in_order) == [
        "4 cpu", "16 cpu", "<1 gpu", "2 gpu", "8 gpu"
    ]  # fmt: skip


def test_what_pods_use_is_told_to_profiles_that_read_it_and_looked_at() -> None:
    """Pod p is said to use much cpu at first, and little later: then the next pod goes beside it."""
    lvrb = Profile(
        name="risk",
        filters=(PluginUse(name="NodeResourcesFit"),),
        scores=(PluginUse(name="LoadVariationRiskBalancing", args={"safeVarianceMargin": 0}),),
    )
    used = np.array([[[3_000.0, 0.0], [1_000.0, 5_000.0]]])
    curves = Curves(step_ms=900_000, resources=("cpu",), kinds={"a/p": 0, "a/q": 1, "a/r": 1}, used=used)
    events = [(0, node("n")), (0, node("m")), (1, pod("p")), (901, pod("q")), (902, pod("r"))]
    trace = trace_with(*events, curves=curves)
    found = simulate(trace, Method(name="risk", profile=lvrb), seed=1, every=Every(ms=901_000))
    assert found.looks[0].by_usage
    assert found.looks[-1].highest[0] in (1.25, 2.5)
    assert found.looks[-1].overloaded[0] >= 1


# ------------------------------------------------------------------------------------------ searches


def test_a_search_of_large_neighbourhoods_moves_few_pods_and_loses_none() -> None:
    trace = imbalance_trace(1).cut(pods_max=200, until_ms=None, stay=False)
    events = [*trace.moments, Moment(9_000_000, PodDeleted("study", trace.moments[40].event.pod.name))]  # type: ignore[union-attr]
    trace = msgspec.structs.replace(trace, moments=events)
    plain, moved = run(trace, every=Every(pods=50)), run(trace, LNS, Every(pods=50))
    assert [look.moved for look in plain.looks] == [0] * len(plain.looks)
    steps = np.diff([0, *(look.moved for look in moved.looks)])
    assert steps.max() <= 2 * 10  # who has to make room first moves twice
    assert steps[0] > 0
    assert [look.running for look in moved.looks] == [look.running for look in plain.looks]
    assert moved.looks[-1].running == 199
    assert sum(moved.looks[3].deviation) < sum(plain.looks[3].deviation)
    assert moved.looks[-1].allocated == pytest.approx(plain.looks[-1].allocated)


def test_a_search_tries_who_waits_again_where_something_became_free() -> None:
    events = [(0, node("n", cpu=2)), (1, pod("p", cpu=2)), (2, pod("q", cpu=2)), (3, pod("r", cpu=9))]
    looks = run(trace_with(*events, (60, gone("p")), (61, pod("s", memory=9))), TBESK).looks
    assert (looks[-1].running, looks[-1].waiting, looks[-1].placements) == (1, 2, 2)


# ------------------------------------------------------------------------------------------ traces


def test_a_trace_can_be_cut() -> None:
    trace = trace_with((0, node("n")), (1, pod("p")), (2, pod("q")), (3, gone("p")), (4, gone("q")))
    assert [each.at_ms for each in trace.cut(pods_max=1, until_ms=None, stay=False).moments] == [
        0,
        1_000,
        3_000,
    ]
    assert [each.at_ms for each in trace.cut(pods_max=None, until_ms=2_500, stay=False).moments] == [
        0,
        1_000,
        2_000,
    ]
    assert [each.at_ms for each in trace.cut(pods_max=None, until_ms=None, stay=True).moments] == [
        0,
        1_000,
        2_000,
    ]


@pytest.fixture
def azure(tmp_path: Path) -> Path:
    """Two bins: a batch of two machines and one of one, then one that never leaves."""
    folder = tmp_path / "azure"
    folder.mkdir()
    (folder / "flav_map.txt").write_text("1,1.75 b\n8,64 p\n")
    (folder / "v1.interval_map.txt").write_text("0 0\n300 1\n3900 13\n4200 13\n")
    with gzip.open(folder / "v1.dev.txt.gz", "wt") as file:
        file.write("1800000 b,p,|,b,|\n1800300 b\n")
    (folder / "v1.dev.c2100000.txt").write_text("1800000 U0,U1,|,U13,|\n1800300 C13\n")
    return tmp_path


def test_batches_of_azure_are_read(azure: Path) -> None:
    trace = trace_of("azure", Choices(folder=azure, nodes_count=2), seed=1)
    pods = [each for each in trace.moments if isinstance(each.event, PodUpserted)]
    ends = {each.event.name: each.at_ms for each in trace.moments if isinstance(each.event, PodDeleted)}
    assert [each.at_ms for each in pods] == [0, 0, 150_000, 300_000]
    assert [each.event.pod.template.requests for each in pods[:2]] == [  # type: ignore[union-attr]
        {"cpu": 1_000, "memory": 7 * GIB // 4}, {"cpu": 8_000, "memory": 64 * GIB}
    ]  # fmt: skip
    assert 0 < ends["vm-000000"] < 300_000 <= ends["vm-000001"] < 600_000
    assert 150_000 + 3_900_000 <= ends["vm-000002"] < 150_000 + 4_500_000
    assert "vm-000003" not in ends
    assert trace == trace_of("azure", Choices(folder=azure, nodes_count=2), seed=1)


@pytest.fixture
def alibaba(tmp_path: Path) -> Path:
    """Three nodes, one of which joins later; node 1 fails twice within half an hour."""
    (tmp_path / "machine_meta.csv").write_text(
        "m_1,0,1,7,96,100,USING\nm_2,0,2,8,96,100,USING\nm_1,9,1,,96,100,USING\nm_3,5000,2,7,96,100,USING\n"
    )
    (tmp_path / "server_error_events.csv").write_text(
        "7200,1,softerror,agent_check,0,0,0\n8000,1,softerror,agent_check,0,0,0\n9000,77,softerror,x,0,0,0\n"
    )
    return tmp_path


def test_errors_of_alibaba_close_nodes_for_a_while(alibaba: Path) -> None:
    def closing(drain: bool) -> Iterator[tuple[int, str, bool]]:
        for moment in trace_of("alibaba", Choices(folder=alibaba, drain=drain), seed=1).moments:
            if isinstance(moment.event, NodeUpserted):
                yield moment.at_ms // 1_000, moment.event.node.name, moment.event.node.unschedulable
            elif isinstance(moment.event, Drained):
                yield moment.at_ms // 1_000, moment.event.node, True

    there = [(0, "m_1", False), (0, "m_2", False), (5_000, "m_3", False)]
    assert list(closing(False)) == [*there, (7_200, "m_1", True), (9_800, "m_1", False)]
    assert list(closing(True)) == [*there, (7_200, "m_1", True), (7_200, "m_1", True), (9_800, "m_1", False)]


@pytest.mark.parametrize("name", ["azure", "alibaba"])
def test_a_file_that_is_missing_or_wrong_is_named(name: str, azure: Path, alibaba: Path) -> None:
    with pytest.raises(TraceError, match="--data"):
        trace_of(name, Choices(), seed=1)
    (azure / "azure" / "flav_map.txt").write_text("1,1.75\n")
    (alibaba / "machine_meta.csv").write_text("m_1\n")
    with pytest.raises(TraceError, match="line 1 does not read"):
        trace_of(name, Choices(folder=azure), seed=1)
    with pytest.raises(TraceError, match="is neither in"):
        trace_of(name, Choices(folder=azure / "azure" / "nothing"), seed=1)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the traces do not come with berth")
@pytest.mark.parametrize(
    ("name", "nodes", "pods"), [("azure", 640, 259_159), ("alibaba", 4_034 - 79, 20_456)]
)
def test_the_real_files_read(name: str, nodes: int, pods: int) -> None:
    trace = trace_of(name, Choices(folder=SHARED), seed=0)
    assert trace.pods_count == pods
    names = {each.event.node.name for each in trace.moments if isinstance(each.event, NodeUpserted)}
    assert len(names) == nodes


# ------------------------------------------------------------------------------------------ command


def shown(*asked: str) -> str:
    found = CliRunner().invoke(app, ["simulate", *asked])
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.mark.deep
def test_the_command_shows_profiles_side_by_side() -> None:
    asked = ["openb", "--pods", "200", "-p", "first-fit", "-p", "least-allocated"]
    lines = shown(*asked).splitlines()
    assert [line.split("\t")[0] for line in lines[1:3]] == ["first-fit", "least-allocated"]
    assert lines[0].split("\t") == [
        "PROFILE",
        "PLACED",
        "WAIT",
        "MOST",
        "MOVED",
        "GPU %",
        "FRAG %",
        "Z",
        "POD",
    ]
    assert [line.split("\t")[1] for line in lines[5:11]] == ["cpu", "memory", "gpu-milli"] * 2
    series = shown(*asked, "--series", "--every", "50").splitlines()
    assert [line.split("\t")[2] for line in series[1:5]] == ["50", "100", "150", "200"]


def test_the_tables_show_the_look_at_which_most_pods_run() -> None:
    """All pods of openb leave in the end; who looks at the tables wants to see the full cluster."""
    found = CliRunner().invoke(
        app, ["simulate", "openb", "--pods", "60", "-p", "first-fit", "--every", "100d"]
    )
    assert found.exit_code == 0, found.output
    titles, row = (line.split("\t") for line in found.stdout.splitlines()[:2])
    assert dict(zip(titles, row, strict=True))["PLACED"] == "60"
    assert float(dict(zip(titles, row, strict=True))["GPU %"]) > 0
    assert "What the trace openb/default leaves open" in found.stderr


def test_the_document_has_every_look_and_keeps_what_differs_apart(tmp_path: Path) -> None:
    asked = ["imbalance", "--pods", "100", "-p", "lns", "-p", "first-fit", "--every", "50s", "-o", "json"]
    once, again = (json.loads(shown(*asked, "--csv", str(tmp_path / f"{i}.csv"))) for i in range(2))
    for each in (*once["runs"], *again["runs"]):
        assert each.pop("cost")["decision_us"] > 0
    assert once == again
    assert [run["method"] for run in once["runs"]] == ["lns", "first-fit"]
    assert [look["seconds"] for look in once["runs"][0]["looks"]] == [50, 100]
    written = [(tmp_path / f"{i}.csv").read_bytes() for i in range(2)]
    assert written[0] == written[1]
    assert len(written[0].splitlines()) == 1 + 2 * 2 * 4


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["openb", "--every", "x"], "expected a number of pods such as 500"),
        (["openb", "--until", "12"], "expected a time such as 90s"),
        (["openb", "-p", "nobody"], "allowed are a file, or"),
        (["azure"], "--data"),
        (["openb", "--pod-list", "nothing"], "pod lists there: default"),
    ],
)
def test_what_cannot_be_done_is_said(asked: Sequence[str], said: str) -> None:
    found = CliRunner().invoke(app, ["simulate", *asked])
    assert found.exit_code == 1
    assert said in " ".join(found.output.split())


def test_the_command_knows_all_traces() -> None:
    assert [each.value for each in TraceName] == ["openb", "azure", "alibaba", "tianchi", "imbalance", "day"]
