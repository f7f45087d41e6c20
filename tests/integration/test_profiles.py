"""Profiles as an operator has them: applied to what runs, refused with the field, kept over a crash."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from domain.model.profiles import BUILT_IN_PROFILES
from services import bootstrap
from services.api import answers
from services.api.answers_decisions import Explanation, PodAttempts
from services.cli.explain import explained, print_pod
from services.config import Settings
from services.metrics import process_registry
from services.ports.log import CONFIG_TOPIC, Entry
from tests.builders import Json, event, event_bytes, node_manifest, pod_manifest, profile_manifest
from tests.integration.api_world import Client, World, all_items, answer_of, client_of
from tests.integration.commands import BERTH, berth, environment, eventually, listed, up
from tests.integration.live import send, servers, work_off


@pytest_asyncio.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Return a cluster of an empty node and a half full one, and a worker that runs."""
    async with servers(getattr(request, "param", "embedded"), request) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            world = World(place, client)
            settings = Settings(worker_name="test", seed=7)
            worker = asyncio.create_task(bootstrap.run_worker(place, settings, process_registry()))
            there = pod_manifest("there", cpu=2, node_name="half")
            things = (node_manifest("empty"), node_manifest("half"), there)
            await send(world, *(event("ADDED", thing) for thing in things))
            yield world
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


async def decided(world: World, pod: str) -> tuple[str, str | None, int | None]:
    """Return outcome, node and revision of a pod's last decision."""
    detail = await answer_of(world, f"/v1/pods/default/{pod}", answers.PodDetail)
    latest = detail["decisions"][0]
    return latest["outcome"], latest["node"], latest["profile_revision"]


def pod(name: str) -> Json:
    return event("ADDED", pod_manifest(name, cpu="100m", scheduler_name="mine"))


def applied(strategy: str) -> Json:
    return event("MODIFIED", profile_manifest("mine", strategy))


async def test_a_profile_is_applied_to_what_runs(world: World) -> None:
    await send(world, pod("a"))
    assert await decided(world, "a") == ("unresolvable", None, None)
    (group,) = (await answer_of(world, "/v1/pending", answers.PendingPage))["items"]
    assert group["reasons"] == {"unknown-profile:mine": 2}
    await send(world, applied("MostAllocated"))
    assert await decided(world, "a") == ("bound", "half", 1)
    await send(world, applied("LeastAllocated"), pod("b"))
    assert await decided(world, "b") == ("bound", "empty", 2)
    detail = await answer_of(world, "/v1/pods/default/a", answers.PodDetail)
    target = f"/v1/decisions/{detail['decisions'][0]['id']}/explanation"
    explanation = await answer_of(world, target, Explanation)
    assert "Profile mine, revision 1," in explanation["summary"]
    assert explanation["profile"] == "/v1/profiles/mine?revision=1"
    assert explanation["cycle"]["profile_revision"] == 1
    linked = (await world.client.get(explanation["profile"])).json()
    assert linked["spec"]["scores"][0]["args"] == {"scoringStrategy": {"type": "MostAllocated"}}
    assert [linked["in_force"], linked["revision"]] == [False, 1]


async def test_a_pod_whose_profile_does_not_exist_is_explained(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    await send(world, pod("a"), event("MODIFIED", profile_manifest("other", "MostAllocated")))
    target = "/v1/pods/default/a/attempts"
    now = (await answer_of(world, target, PodAttempts))["summary"]
    held = "no profile mine exists, so it is held until one of that name comes"
    assert now.startswith(f"default/a is waiting: {held}. That was found first at ")
    then = (await answer_of(world, target, PodAttempts, at="2100-01-01T00:00:00Z"))["summary"]
    assert "was waiting: no profile mine existed, so it was held until one of that name came." in then
    answer = await explained(Asked(world.client), "default", "a")
    assert answer["explanation"]["summary"] == f"default/a waits: {held}; it asks for 100m cpu."
    print_pod(answer)
    there = ", ".join(sorted((*BUILT_IN_PROFILES, "other")))
    assert f"Profiles that exist: {there}." in capsys.readouterr().out
    await send(world, applied("MostAllocated"))
    assert (await explained(Asked(world.client), "default", "a"))["profiles"] is None


class Asked:
    """A source of the command line that asks the API of a test."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def request(self, method: str, target: str) -> tuple[int, bytes]:
        """Return status and body."""
        answer = await self._client.request(method, target)
        return answer.status_code, answer.content


@pytest.mark.parametrize(
    "world", ["embedded", pytest.param("postgres", marks=[pytest.mark.real, pytest.mark.deep])], indirect=True
)
async def test_a_bad_profile_becomes_a_dead_letter_and_the_old_one_stays(world: World) -> None:
    await send(world, applied("MostAllocated"))
    bad = applied("Most")
    path = "object.spec.scores[0].args.scoringStrategy.type"
    refused = await world.client.post("/v1/events", json=[bad])
    assert refused.status_code == 422
    assert refused.json()["error"]["details"][0]["path"] == path
    log = bootstrap.open_log(world.place)
    writer = await log.writer()
    raw = event_bytes("MODIFIED", bad["object"])
    await writer.append(CONFIG_TOPIC, [Entry(b"SchedulingProfile/mine", raw)])
    await writer.aclose()
    await log.aclose()
    await work_off(world)
    (letter,) = await all_items(world, "/v1/deadletters", answers.DeadLetterPage)
    assert (letter["topic"], letter["code"], letter["path"]) == (CONFIG_TOPIC, "invalid-field", path)
    assert "'Most' is not allowed; allowed are LeastAllocated, MostAllocated" in letter["message"]
    await send(world, pod("c"))
    assert await decided(world, "c") == ("bound", "half", 1)


async def test_the_api_shows_what_is_in_force_and_what_was(world: World) -> None:
    built_in = sorted(BUILT_IN_PROFILES)
    found = await all_items(world, "/v1/profiles", answers.ProfilePage, limit=1)
    assert [(item["name"], item["built_in"], item["since"]) for item in found] == [
        (name, True, None) for name in built_in
    ]
    changes = [
        applied("MostAllocated"),
        applied("LeastAllocated"),
        event("DELETED", profile_manifest("mine")),
    ]
    changes += [event("ADDED", profile_manifest("first-fit", resource_version=5)), applied("MostAllocated")]
    await send(world, *changes[:3])
    gone = await answer_of(world, "/v1/profiles/mine", answers.ProfileDetail)
    assert (gone["deleted"], gone["in_force"], gone["spec"], gone["revision"]) == (True, False, None, 3)
    assert [each["revision"] for each in gone["revisions"]] == [3, 2, 1]
    assert len(await all_items(world, "/v1/profiles", answers.ProfilePage, limit=1)) == len(built_in)
    await send(world, *changes[3:])
    found = await all_items(world, "/v1/profiles", answers.ProfilePage, limit=2)
    assert [(item["name"], item["revision"]) for item in found] == [
        ("colocation", 1), ("default-scheduler", 1), ("first-fit", 2), ("least-allocated", 1), ("mine", 4),
        ("most-allocated", 1)
    ]  # fmt: skip
    first_fit = await answer_of(world, "/v1/profiles/first-fit", answers.ProfileDetail)
    assert (first_fit["resource_version"], first_fit["built_in"]) == (5, False)
    assert [(each["revision"], each["built_in"]) for each in first_fit["revisions"]] == [
        (2, False),
        (1, True),
    ]
    original = await answer_of(world, "/v1/profiles/first-fit", answers.ProfileDetail, revision=1)
    assert (original["built_in"], original["in_force"]) == (True, False)
    assert original["spec"]["scores"] == [{"name": "FirstFit", "weight": 1}]


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/v1/profiles/none", 404, "profile 'none' is not known"),
        ("/v1/profiles/first-fit?revision=7", 404, "revision 7 of profile 'first-fit'"),
        ("/v1/profiles/a%00b", 422, "holds a NUL"),
        ("/v1/profiles/first-fit?revision=0", 422, "revision"),
        ("/v1/profiles?name=x", 422, "unknown parameter"),
    ],
)
async def test_what_is_not_there_is_an_error(world: World, target: str, status: int, said: str) -> None:
    answer = await world.client.get(target)
    assert answer.status_code == status
    assert said in json.dumps(answer.json())


CLUSTER = """\
kind: List
items:
- {kind: Node, metadata: {name: empty}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}}
- {kind: Node, metadata: {name: half}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}}
---
kind: Pod
metadata: {name: there}
spec: {nodeName: half, containers: [{name: c, resources: {requests: {cpu: 2, memory: 4Gi}}}]}
"""


@contextlib.contextmanager
def crashing(directory: Path) -> Iterator[None]:
    """Run ``berth up`` until the block ends; then it is killed."""
    process = subprocess.Popen(
        [*BERTH, "up", "--port", "0"], env=environment(directory), stderr=subprocess.DEVNULL
    )
    try:
        eventually(lambda: (directory / "api.json").exists())
        yield
    finally:
        process.kill()
        process.wait()


def pod_text(name: str) -> str:
    return yaml.safe_dump(pod_manifest(name, cpu="100m", scheduler_name="mine"))


@pytest.mark.deep
def test_a_profile_outlives_a_crash(server_dir: Path, tmp_path: Path) -> None:
    def where(name: str) -> Any:
        found = {
            d["pod"]["name"]: (d["node"], d["profile_revision"]) for d in listed(server_dir, "decisions")
        }
        return found.get(name)

    def apply(text: str) -> None:
        done = berth(server_dir, "apply", "-f", "-", stdin=text)
        assert done.returncode == 0, done.stderr

    file = tmp_path / "mine.yaml"
    with crashing(server_dir):
        apply(CLUSTER)
        for strategy in ("LeastAllocated", "MostAllocated"):
            file.write_text(yaml.safe_dump(profile_manifest("mine", strategy)))
            # A warning may follow while the worker is starting.
            assert berth(server_dir, "apply", "-f", str(file)).stderr.startswith("1 event sent\n")
        apply(pod_text("before"))
        eventually(lambda: where("before") == ("half", 2))
    with up(server_dir):
        apply(pod_text("after"))
        eventually(lambda: where("after") == ("half", 2))
        lines = berth(server_dir, "get", "profiles").stdout.splitlines()
        row = next(line for line in lines if line.startswith("mine\t")).split("\t")
        assert (row[0], row[1], row[4]) == ("mine", "2", "NodeResourcesFit:MostAllocated")
        explained = berth(server_dir, "explain", "pod", "after").stdout
        assert "profile mine revision 2" in explained
        file.write_text(yaml.safe_dump(profile_manifest("mine", "Most")))
        refused = berth(server_dir, "apply", "-f", str(file))
        assert refused.returncode == 1
        assert "(SchedulingProfile mine): spec.scores[0].args.scoringStrategy.type: 'Most'" in refused.stderr
        assert berth(server_dir, "delete", "profile", "mine").stderr == "the deletion is in the log\n"
        apply(pod_text("late"))
        eventually(lambda: where("late") == (None, None))
        assert "mine" not in [profile["name"] for profile in listed(server_dir, "profiles")]
        waits = berth(server_dir, "explain", "pod", "late").stdout
        assert "were not tried: there is no profile mine" in waits
