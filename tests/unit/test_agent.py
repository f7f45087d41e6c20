"""Does the agent measure, squeeze, end and report as it should, second by second?"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from domain.manifests.actions import WireNodeAction, action_from_wire, action_to_wire
from domain.model.colocation import Amounts, UseByQuality
from domain.model.errors import BerthError
from domain.model.events import NodeUsed
from services.codec.decode import Decoder
from services.codec.encode import encode_event
from services.ports.cgroups import Feature
from services.ports.log import PODS_TOPIC, USAGE_TOPIC, Record
from tests.unit.agents import GIB, LOW, MID, WALL_MS, World, pod

BOTH = pytest.mark.parametrize("version", [1, 2])


def crowd(world: World, low_count: int = 3) -> None:
    """Let a high pod, a mid pod and some low pods run."""
    world.run("high", "Guaranteed", cpu="2", memory="1Gi")
    world.run("mid", "Burstable", cpu="500m", memory="1Gi")
    for number in range(low_count):
        world.run(f"low{number}", "BestEffort")


@BOTH
async def test_low_pods_get_what_is_left_and_give_it_back_at_once(version: int) -> None:
    """4 cores: 0.1 for the system, 0.4 of margin; what high and mid use is not low's."""
    world = World(version)
    crowd(world)
    await world.learn()
    world.second({})
    world.second({"high": 500, "mid": 500, "low0": 1_000})
    assert world.cgroups.is_idle(LOW)
    assert world.quota(LOW) == (4_000 - 100 - 400 - 500 - 500) * 100
    assert world.quota(MID) == (4_000 - 100 - 400 - 500) * 100
    world.second({"high": 2_000, "mid": 500, "low0": 1_000})
    assert world.quota(LOW) == (4_000 - 100 - 400 - 2_000 - 500) * 100
    grown = []
    for _ in range(6):
        world.second({"high": 500, "mid": 500})
        grown.append((world.quota(MID), world.quota(LOW)))
    assert grown == [
        *((mid, 100_000) for mid in (190_000, 230_000, 270_000)),
        *((300_000, low) for low in (140_000, 180_000, 220_000)),
    ], "they grow by a tenth of the node a second, mid first"


@BOTH
async def test_mid_pods_keep_what_they_request_and_low_pods_their_floor(version: int) -> None:
    world = World(version)
    crowd(world)
    await world.learn()
    for _ in range(3):
        world.second({"high": 3_400, "mid": 500, "low0": 100})
    assert world.quota(MID) == 50_000
    assert world.quota(LOW) == 2_000


@BOTH
async def test_a_box_that_another_changed_is_set_again(version: int) -> None:
    world = World(version)
    crowd(world)
    await world.learn()
    for _ in range(2):
        world.second({"high": 1_000})
    before = world.quota(LOW)
    world.kernel.write(
        f"/sys/fs/cgroup/cpu/{LOW}/cpu.cfs_quota_us" if version == 1 else f"/sys/fs/cgroup/{LOW}/cpu.max",
        "-1" if version == 1 else "max 100000",
    )
    world.second({"high": 1_000})
    assert world.quota(LOW) == before


async def test_without_the_api_low_pods_yield_and_nothing_else_is_done() -> None:
    world = World()
    crowd(world)
    for _ in range(15):
        world.second({"high": 3_900})
    assert world.cgroups.is_idle(LOW)
    assert (world.quota(LOW), world.quota(MID)) == (None, None)
    assert len(world.kernel.alive) == 5


async def test_the_agent_works_on_by_what_it_knows() -> None:
    world = World()
    crowd(world)
    await world.learn()
    world.api.status = 503
    with pytest.raises(BerthError, match="503: not now"):
        await world.learn()
    for _ in range(2):
        world.second({"high": 500, "mid": 500})
    assert world.quota(MID) == 300_000


async def test_what_pods_that_nothing_names_request_is_kept_for_them() -> None:
    """Static pods, and those that began since the API was asked: kubelet's weight says what they request."""
    world = World(1)
    crowd(world)
    await world.learn()
    world.begin("static", "Burstable")
    world.kernel.files[f"/sys/fs/cgroup/cpu/{MID}/podstatic/cpu.shares"] = "1024\n"
    for _ in range(2):
        world.second({"high": 3_400})
    assert world.quota(MID) == 150_000


@BOTH
async def test_all_low_pods_leave_where_their_box_is_too_small_for_long(version: int) -> None:
    world = World(version)
    crowd(world)
    await world.learn()
    world.second({})
    for _ in range(10):
        world.second({"high": 2_000, "mid": 600})
    assert len(world.kernel.alive) == 5
    world.second({"high": 2_000, "mid": 600})
    assert len(world.kernel.alive) == 2, "after ten seconds with less than a core"
    await world.send()
    told = world.api.events("Pod")
    assert [each["object"]["metadata"]["name"] for each in told] == ["low0", "low1", "low2"]
    assert {each["object"]["status"]["phase"] for each in told} == {"Failed"}
    assert {each["object"]["status"]["reason"] for each in told} == {"Evicted"}
    assert "less than one core" in told[0]["object"]["status"]["message"]
    actions = world.api.events("NodeAction")
    ended = [each["object"] for each in actions if each["object"]["action"] == "evict"]
    assert [each["pod"]["uid"] for each in ended] == ["low0", "low1", "low2"]
    assert len({each["id"] for each in actions}) == len(actions)


async def test_a_pod_that_was_ended_is_released_by_its_event() -> None:
    """A worker reads it as of a pod that has finished."""
    world = World()
    crowd(world)
    await world.learn()
    for _ in range(12):
        world.second({"high": 3_000})
    await world.send()
    event = world.api.events("Pod")[0]
    raw = encode_event(event["type"], event["object"], event["at"])
    decoded = Decoder().decode(Record(PODS_TOPIC, 0, 0, b"default/low0", raw, 0))
    assert decoded.rejected is None
    assert decoded.event is not None
    found = decoded.event.pod  # type: ignore[union-attr]
    assert (found.uid, found.node_name, found.finished) == ("low0", "n1", True)  # type: ignore[union-attr]


@BOTH
async def test_memory_is_taken_back_before_pods_end(version: int) -> None:
    """From 70 % on until 68 %: version 2 reclaims and holds back first, version 1 can only end pods."""
    world = World(version)
    crowd(world)
    await world.learn()
    quiet = {"high": GIB, "mid": GIB, "low0": GIB, "low1": GIB // 2}
    short = {**quiet, "low0": 4 * GIB}
    world.second({}, memory=quiet)
    world.second({}, memory=short)
    held = world.kernel.files.get(f"/sys/fs/cgroup/{LOW}/memory.high")
    if version == 2:
        assert len(world.kernel.alive) == 5
        assert held is not None
        assert int(held) < 4 * GIB
        assert world.kernel.written[-1][0].endswith("memory.reclaim")
        world.second({}, memory=short)
    assert {f"{LOW}/podlow1", f"{LOW}/podlow2", f"{MID}/podmid"} <= set(world.kernel.alive.values())
    assert f"{LOW}/podlow0" not in world.kernel.alive.values(), "it uses most of what was expected of it"
    for _ in range(3):
        world.second({}, memory=quiet)
    assert len(world.kernel.alive) == 4
    if version == 2:
        assert world.kernel.files[f"/sys/fs/cgroup/{LOW}/memory.high"] == "max\n"


async def test_mid_pods_end_after_low_ones_and_only_above_their_request() -> None:
    world = World(1)
    world.run("modest", "Burstable", memory="3Gi")
    world.run("greedy", "Burstable", memory="1Gi")
    world.run("low", "BestEffort")
    await world.learn()
    memory = {"modest": 3 * GIB, "greedy": 2 * GIB, "low": GIB // 2, "system": GIB}
    world.second({}, memory=memory)
    world.second({}, memory=memory)
    assert set(world.kernel.alive.values()) == {f"{MID}/podmodest"}
    await world.send()
    assert [each["object"]["metadata"]["name"] for each in world.api.events("Pod")] == ["low", "greedy"]


async def test_a_pod_that_is_begun_again_is_ended_again() -> None:
    """kubelet begins a container anew until it is told that its pod has failed."""
    world = World()
    crowd(world, 1)
    await world.learn()
    for _ in range(12):
        world.second({"high": 3_000})
    assert len(world.kernel.alive) == 2
    world.kernel.spawn(f"{LOW}/podlow0", 999)
    world.second({"high": 3_000})
    assert len(world.kernel.alive) == 2
    await world.send()
    assert len(world.api.events("Pod")) == 1, "it is told once"


async def test_without_cgroup_kill_a_pod_has_time_to_end() -> None:
    world = World(lacks=frozenset({"cgroup.kill"}))
    assert Feature.KILL not in world.cgroups.features()
    crowd(world, 1)
    world.kernel.deaf = set(world.kernel.alive)
    await world.learn()
    for _ in range(12):
        world.second({"high": 3_000})
    (pid,) = [pid for pid, group in world.kernel.alive.items() if group.startswith(LOW)]
    assert world.kernel.signals == [(pid, 15)]
    for _ in range(5):
        assert pid in world.kernel.alive
        world.second({"high": 3_000})
    assert pid not in world.kernel.alive, "five seconds are over"


async def test_a_dry_run_says_what_it_would_do_and_does_nothing() -> None:
    world = World(dry_run=True)
    crowd(world)
    await world.learn()
    for _ in range(15):
        world.second({"high": 3_000})
    assert world.kernel.written == []
    assert len(world.kernel.alive) == 5
    assert not world.agent.outbox.is_urgent
    await world.send()
    assert world.api.sent == []
    assert len([line for line in world.said if line.startswith("dry run: quota of low pods")]) == 1
    assert any(line.startswith("dry run: eviction of default/low0") for line in world.said)


async def test_the_node_is_reported_each_ten_seconds_and_rarely_where_nothing_changes() -> None:
    world = World()
    crowd(world)
    await world.learn()
    told_at = []
    for second in range(150):
        world.second({"high": 500, "mid": 250, "low0": 250}, memory={"high": GIB, "mid": GIB}, system=250)
        if world.agent.outbox.is_urgent:
            await world.send()
            told_at.append(second)
    assert told_at == [10, 70, 130]
    usage = world.api.events("NodeUsage")[0]
    assert usage["object"]["quality"] == {
        "high": {"cpu": "500m", "memory": "1Gi"},
        "mid": {"cpu": "250m", "memory": "1Gi"},
        "low": {"cpu": "250m", "memory": "0"},
        "system": {"cpu": "250m", "memory": "0"},
    }
    assert usage["object"]["pressure"] == {"cpu": 0.0}
    assert usage["object"]["pods"]["mid"] == {"cpuSeconds": 11 * 0.25, "memoryByteSeconds": 10.0 * GIB}
    assert usage["at"] == "2023-11-14T22:13:31.000Z"
    assert all("pods" in each["object"] for each in world.api.events("NodeUsage")), "each minute"
    raw = encode_event(usage["type"], usage["object"], usage["at"])
    read = Decoder().decode(Record(USAGE_TOPIC, 0, 0, b"n1", raw, 0))
    assert isinstance(read.event, NodeUsed), read.rejected
    assert read.event.usage.quality == UseByQuality(
        high=Amounts(500, GIB), mid=Amounts(250, GIB), low=Amounts(250, 0), system=Amounts(250, 0)
    )
    assert read.event.usage.pressure == 0.0


async def test_what_a_node_lends_does_not_run_out_where_nothing_changes() -> None:
    world = World()
    crowd(world)
    world.api.policies = {"p": {"view": {"maxAge": "30s"}, "reporting": {"pods": "1h"}}}
    await world.learn()
    told_at = []
    for second in range(60):
        world.second({"high": 500})
        if world.agent.outbox.is_urgent:
            await world.send()
            told_at.append(second)
    assert told_at == [10, 30, 50]


async def test_a_change_of_a_hundredth_is_reported() -> None:
    world = World()
    crowd(world)
    await world.learn()
    for second in range(22):
        world.second({"high": 500 if second < 11 else 550})
        await world.send()
    told = [each["object"]["quality"]["high"]["cpu"] for each in world.api.events("NodeUsage")]
    assert told == ["500m", "550m"]


async def test_the_counters_of_memory_go_on_with_the_next_agent() -> None:
    world = World()
    crowd(world)
    await world.learn()
    memory = {"mid": GIB}
    for _ in range(71):
        world.second({}, memory=memory)
    world.start()
    await world.learn()
    for _ in range(12):
        world.second({}, memory=memory)
    await world.send()
    found = [each["object"]["pods"]["mid"]["memoryByteSeconds"] for each in world.api.events("NodeUsage")]
    assert found == [pytest.approx(80 * GIB)], "70 seconds, and 10 of the next one"


async def test_boxes_that_move_each_second_are_one_action_a_report() -> None:
    world = World()
    crowd(world)
    await world.learn()
    for second in range(12):
        world.second({"high": 500 + 100 * second})
    await world.send()
    (quota,) = [
        each["object"]
        for each in world.api.events("NodeAction")
        if (each["object"]["action"], each["object"]["quality"]) == ("quota", "low")
    ]
    assert quota["times"] > 5
    assert quota["amount"] == f"{(world.quota(LOW) or 0) // 100}m"
    for each in world.api.events("NodeAction"):
        wire = msgspec.convert(each["object"], WireNodeAction)
        assert action_to_wire(action_from_wire(wire, WALL_MS, "object")) == each["object"]


async def test_what_could_not_be_sent_is_sent_later_and_usage_only_when_it_is_the_latest() -> None:
    world = World()
    crowd(world)
    await world.learn()
    for _ in range(12):
        world.second({"high": 3_000})
    world.api.status = 503
    for _ in range(2):
        with pytest.raises(BerthError):
            await world.send()
    for _ in range(10):
        world.second({"high": 1_000})
    world.api.status = 200
    await world.send()
    assert len(world.api.events("Pod")) == 3
    assert len(world.api.events("NodeUsage")) == 1
    assert len({each["id"] for each in world.api.events("NodeAction")}) == len(world.api.events("NodeAction"))
    world.api.sent.clear()
    await world.send()
    assert world.api.sent == []


async def test_what_the_api_refuses_is_dropped() -> None:
    world = World()
    crowd(world)
    await world.learn()
    for _ in range(12):
        world.second({})
    world.api.refused = [{"index": 0, "path": "object", "message": "no"}]
    await world.send()
    assert not world.agent.outbox.is_urgent


async def test_the_policy_of_the_node_holds() -> None:
    world = World()
    crowd(world)
    world.api.labels = {"pool": "a"}
    margins = {"a": "25%", "b": "50%"}
    world.api.policies = {
        name: {"nodeSelector": {"pool": name}, "view": {"margin": {"cpu": margin}}}
        for name, margin in margins.items()
    }
    await world.learn()
    for _ in range(2):
        world.second({"high": 500})
    assert world.quota(LOW) == (4_000 - 100 - 1_000 - 500) * 100
    await world.send()
    assert {each["object"]["policy"] for each in world.api.events("NodeAction")} == {"a@7"}


async def test_all_pages_are_read() -> None:
    world = World()
    world.api.pods = [pod(f"p{number}", "BestEffort") for number in range(5)]
    await world.learn()
    assert world.agent.learned.pods is not None
    assert len(world.agent.learned.pods) == 5


async def test_pods_write_their_latency_into_files(tmp_path: Path) -> None:
    world = World(latency_dir=tmp_path)
    crowd(world)
    await world.learn()
    texts = {"high": "12 10", "mid": "a b", "low0": "1 0", "low1": "1 inf", "old": "9 1"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        at = (WALL_MS / 1000) + 10 - (100 if name == "old" else 0)
        os.utime(tmp_path / name, (at, at))
    (tmp_path / "link").symlink_to(tmp_path / "high")
    (tmp_path / "folder").mkdir()
    for _ in range(12):
        world.second({})
    await world.send()
    assert world.api.events("NodeUsage")[0]["object"]["latency"] == {"high": 1.2}


async def test_what_a_pod_writes_into_the_folder_of_latencies_keeps_no_report_back(tmp_path: Path) -> None:
    """A number that is none, a file of no pod, and a name that is no text would make the API refuse all."""
    world = World(latency_dir=tmp_path)
    crowd(world)
    await world.learn()
    texts = {b"high": "12 10", b"mid": "1e308 1e-300", b"stranger": "9 1", b"\xff": "9 1"}
    for name, text in texts.items():
        path = tmp_path / os.fsdecode(name)
        path.write_text(text)
        os.utime(path, (WALL_MS / 1000 + 10,) * 2)
    os.mkfifo(tmp_path / "low0")
    for _ in range(12):
        world.second({})
    await world.send()
    assert world.api.events("NodeUsage")[0]["object"]["latency"] == {"high": 1.2}
