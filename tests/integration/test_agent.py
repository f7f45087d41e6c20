"""Does what an agent does on a node reach the ledger: pods that ended are released, and its acts are kept?"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest_asyncio

from services import bootstrap
from services.agent.run import Agent
from services.agent.talking import labels_of, learn
from services.api import answers
from services.api.keys import key_hash, new_key
from services.ports.store import Grant
from services.replay.replay import Progress
from tests.builders import event, node_manifest, pod_manifest
from tests.integration.api_world import Client, answer_of, client_of, fresh_database, query, work_off
from tests.integration.api_world import World as Api
from tests.unit.agents import LOW, World

BERTH = Path(sys.executable).parent / "berth"
KEY, ADMIN = new_key(), new_key()


class OverHttp(NamedTuple):
    """The API as the agent asks it, with a key that is good for its node alone."""

    client: Client

    async def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Ask, as ``services.agent.talking.Api``."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        answer = await self.client.request(method, target, content=body, headers=headers)
        return answer.status_code, answer.content


@pytest_asyncio.fixture
async def api(embedded_dsn: str) -> AsyncIterator[Api]:
    """Return a ledger with a node, two low pods and a mid pod on it, and a policy for it."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place, keys_required=True) as client:
            client.headers["Authorization"] = f"Bearer {ADMIN}"
            store = bootstrap.open_store(place)
            await store.callers.create_key(key_hash(KEY), Grant("agent-n1", ["agent"], node="n1"))
            await store.callers.create_key(key_hash(ADMIN), Grant("ops", ["admin"]))
            await store.aclose()
            spec = {"nodeSelector": {"lent": "yes"}, "eviction": {"after": "3s"}}
            policy = {"apiVersion": "berth/v1", "kind": "CoLocationPolicy", "metadata": {"name": "lend"}}
            things = [
                policy | {"spec": spec},
                node_manifest("n1", labels={"lent": "yes"}),
                *(pod_manifest(name, uid=name, node_name="n1") for name in ("low0", "low1")),
                pod_manifest("mid", uid="mid", node_name="n1", cpu="500m"),
            ]
            answer = await client.post("/v1/events", json=[event("ADDED", thing) for thing in things])
            assert answer.status_code == 202, answer.text
            await work_off(place)
            yield Api(place, client)


def node() -> World:
    """Return the node, as its kernel has it."""
    world = World()
    for name, qos in (("low0", "BestEffort"), ("low1", "BestEffort"), ("mid", "Burstable")):
        world.begin(name, qos)
    return world


async def learned(agent: Agent, source: OverHttp) -> None:
    agent.learned = await learn(source, "n1", await labels_of(source, "n1"))


async def test_pods_that_an_agent_ended_are_released(api: Api) -> None:
    world, source = node(), OverHttp(api.client)
    await learned(world.agent, source)
    assert world.agent.learned.policy.name == "lend"
    assert {uid: pod.silent_count for uid, pod in (world.agent.learned.pods or {}).items()} == {
        "low0": 1, "low1": 1, "mid": 0
    }  # fmt: skip
    world.second({})
    for _ in range(10):
        world.second({"mid": 3_000})
    assert [group for group in world.kernel.alive.values() if group.startswith(LOW)] == []
    await world.agent.outbox.send(source)
    await work_off(api.place)
    released = "SELECT name, node FROM decisions WHERE outcome = 'released' ORDER BY name"
    decided = await query(api.place, released)
    assert [tuple(row) for row in decided] == [("low0", "n1"), ("low1", "n1")]
    found = await answer_of(api, "/v1/actions", answers.ActionPage, node="n1")
    ended = [each for each in found["items"] if each["action"] == "evict"]
    assert {each["pod"] for each in ended} == {"default/low0", "default/low1"}
    assert {each["policy"] for each in found["items"]} == {"lend@0"}
    assert {each["sent_by"] for each in found["items"]} == {"key:agent-n1"}
    assert "less than one core" in ended[0]["reason"]
    assert await query(api.place, "SELECT * FROM dead_letters") == []
    shown = await answer_of(api, "/v1/nodes/n1", answers.NodeDetail)
    assert shown["usage"]["resources"]["cpu"]["latest"] is not None
    assert shown["actions"] == found["items"][:10]
    assert [pod["name"] for pod in shown["pods"]] == ["mid"]
    await learned(world.agent, source)
    assert list(world.agent.learned.pods or {}) == ["mid"]


async def test_acts_are_written_once_and_replayed_as_they_were(api: Api) -> None:
    world, source = node(), OverHttp(api.client)
    await learned(world.agent, source)
    for _ in range(3):
        world.second({"mid": 500})
    actions = world.agent.outbox.actions.take_events()
    assert len(actions) >= 2
    for _ in range(2):  # the answer to the first was lost
        answer = await api.client.post("/v1/events", json=actions)
        assert answer.status_code == 202, answer.text
    last = event("ADDED", pod_manifest("later", uid="later"))  # it is waited for pods and nodes
    assert (await api.client.post("/v1/events", json=[last])).status_code == 202
    await work_off(api.place)
    assert (await query(api.place, "SELECT count(*) FROM node_actions"))[0][0] == len(actions)

    async def report(progress: Progress) -> None:
        pass

    assert (await bootstrap.replay(api.place, None, None, report)).difference is None
    digests = await query(api.place, "SELECT count(*) FROM journal WHERE effects::text LIKE '%node actions%'")
    assert digests[0][0] >= 1


async def started(*arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start `berth agent` without an API that answers; return what it says first."""
    process = await asyncio.create_subprocess_exec(
        str(BERTH), "agent", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "BERTH_API_KEY": "berth_x"},
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return process, (await process.stdout.readline()).decode()


async def test_the_command_runs_without_an_api_and_ends_cleanly() -> None:
    process, line = await started(
        "--node", "n1", "--api", "http://127.0.0.1:1", "--dry-run", "--cgroup-root", "berth-nowhere"
    )
    assert line.startswith("agent of n1 is up, on cgroups v")
    assert "no pods yet" in line
    process.send_signal(signal.SIGTERM)
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()


async def test_the_command_says_that_no_api_is_named(tmp_path: Path) -> None:
    process, line = await started("--dir", str(tmp_path))
    await process.communicate()
    assert process.returncode == 1
    assert "name the API with --api" in line
