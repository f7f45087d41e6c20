"""Is the log of a berth a trace that can be lived again, and are the curves of Tianchi's containers used?"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from domain.model.events import NodeUsed, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from research.simulate.methods import OWN, Method, method_of
from research.simulate.recorded import recorded_trace
from research.simulate.running import Every, Simulation, simulate
from research.simulate.trace import Trace
from research.simulate.traces import Choices, trace_of
from services.adapters.memory.log import MemoryLog
from services.codec.encode import event_topic_and_key
from services.ports.log import Entry, topic_specs
from services.traces.openb import TraceError
from tests.builders import event, node_manifest, pod_manifest

SHARED = Path(__file__).parent.parent.parent.parent / "shared" / "data"
BEGAN_MS = 1_700_000_000_000


class Clock:
    """A clock that stands where a test puts it."""

    def __init__(self) -> None:
        self.ms = BEGAN_MS

    def now_ms(self) -> int:
        return self.ms


async def recorded(*told: tuple[int, Any]) -> Trace:
    """Write events into a log of two shards, each at its second, and read it."""
    clock = Clock()
    log = MemoryLog(clock)
    await log.ensure_topics(topic_specs(2))
    writer = await log.writer()
    for seconds, each in told:
        clock.ms = BEGAN_MS + 1_000 * seconds
        topic, key = event_topic_and_key(each["object"])
        await writer.append(topic, [Entry(key, orjson.dumps(each))])
    return await recorded_trace(log)


def lived(trace: Trace, name: str) -> dict[str, str]:
    simulation = Simulation(trace, method_of(name, BUILT_IN_PROFILES.get(name), (), 0), seed=0)
    for moment in trace.moments:
        simulation.pass_to(moment.at_ms)
        simulation.happen([moment])
    return {key: entry.node for key, entry in simulation.state.pods.items()}


async def test_a_log_is_lived_again_under_another_profile() -> None:
    """What the log says later of the node of a pod that waited is what was decided then."""
    pods = [pod_manifest(f"p{i}", cpu="1", memory="1Gi", resource_version=1) for i in range(2)]
    bound = [
        pod_manifest(f"p{i}", cpu="1", memory="1Gi", node_name="n1", resource_version=2) for i in range(2)
    ]
    there = pod_manifest("daemon", cpu="1", memory="1Gi", node_name="n0", resource_version=1)
    trace = await recorded(
        *((0, event("ADDED", node_manifest(f"n{i}"))) for i in range(2)),
        (1, event("ADDED", there)),
        *((2 + i, event("ADDED", pod)) for i, pod in enumerate(pods)),
        *((10, event("MODIFIED", pod)) for pod in bound),
    )
    assert trace.moments[-1].at_ms == 10_000
    assert lived(trace, "first-fit") == {f"default/{name}": "n0" for name in ("daemon", "p0", "p1")}
    assert lived(trace, "least-allocated")["default/p0"] == "n1"
    look = simulate(trace, Method(name=OWN, profile=None), seed=0, every=Every(ms=60_000)).looks[-1]
    assert (look.arrived, look.placements, look.running) == (2, 2, 3)


async def test_what_does_not_read_and_bindings_that_fail_are_passed_over() -> None:
    usage = {
        "apiVersion": "berth/v1",
        "kind": "NodeUsage",
        "metadata": {"name": "n0"},
        "percent": {"cpu": 30},
    }
    trace = await recorded(
        (0, event("ADDED", node_manifest("n0"))),
        (1, event("ADDED", {**pod_manifest("p"), "spec": "nothing"})),
        (2, event("ADDED", pod_manifest("p", uid="u"))),
        (3, event("BIND_FAILED", pod_manifest("p", uid="u", node_name="n0"))),
        (5, event("MODIFIED", usage)),
    )
    kinds = [type(moment.event) for moment in trace.moments]
    assert kinds.count(PodUpserted) == 1
    used = [moment.event.usage.at_ms for moment in trace.moments if isinstance(moment.event, NodeUsed)]
    assert used == [5_000]


async def test_a_log_without_events_is_no_trace() -> None:
    with pytest.raises(TraceError, match="holds no events"):
        await recorded()


@pytest.fixture
def tianchi(tmp_path: Path) -> Path:
    """Two machines of 32 and 92 cores, three instances of two apps; the one uses ever more cpu."""
    flat, rising = "|".join(["0.5"] * 98), "|".join(str(point / 4) for point in range(98))
    files = {
        "machine_resources": "machine_1,32,64,1440,7,3,7\nmachine_2,92,288,2457,7,7,9\n",
        "app_resources": f"app_a,{flat},{flat},60,0,0,0\napp_b,{rising},{flat},100,1,0,1\n",
        "instance_deploy": "inst_1,app_a,machine_2\ninst_2,app_b,\ninst_3,app_a,machine_1\n",
        "app_interference": "app_a,app_b,0\n",
    }
    (tmp_path / "b").mkdir()
    for name, text in files.items():
        (tmp_path / "b" / f"scheduling_{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_containers_use_what_their_curves_say_at_each_time(tianchi: Path) -> None:
    trace = trace_of("tianchi", Choices(folder=tianchi), seed=0)
    method = method_of("first-fit", BUILT_IN_PROFILES["first-fit"], trace.resources, 0)
    found = simulate(trace, method, seed=0, every=Every(ms=4 * 900_000))
    assert [look.running for look in found.looks][-1] == 3
    first, last = found.looks[0], found.looks[-1]
    assert first.by_usage
    assert first.seconds == 3_600
    assert last.seconds == 97 * 900
    # Apart by their rule: two instances of app_a (0.5 cores each) on machine_1, and app_b on machine_2.
    assert sorted([last.lowest[0], last.highest[0]]) == pytest.approx(sorted([1 / 32, 97 / 4 / 92]))
    assert sorted([first.lowest[0], first.highest[0]]) == pytest.approx(sorted([1 / 32, 1 / 92]))
    assert first.allocated == last.allocated == pytest.approx([25.25 / 124, 1.5 / 352, 220 / 3897])


@pytest.mark.deep
@pytest.mark.skipif(not SHARED.is_dir(), reason="the traces do not come with berth")
def test_the_files_of_the_contest_read() -> None:
    trace = trace_of("tianchi", Choices(folder=SHARED), seed=0)
    assert trace.pods_count == 68_224
    assert trace.curves is not None
    assert trace.curves.used.shape == (2, 9_338, 98)
    assert np.all(trace.curves.used.max(axis=(1, 2)) > 0)
