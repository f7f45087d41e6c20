"""Why pods wait and what would cure them: over the API, from a ledger that a real worker filled."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
import yaml

from services import bootstrap
from services.api import answers
from services.api.advisor import Advisor
from services.api.answers_why import Why
from services.api.failures import ApiError
from services.config import Settings
from services.ports.advice import Asked, Beginning
from tests.builders import event, node_manifest, pod_group_manifest, pod_manifest
from tests.integration.api_world import (
    AT,
    World,
    all_items,
    answer_of,
    client_of,
    fresh_database,
    work_off,
)
from tests.integration.commands import berth, eventually, listed, up

ZONE = "topology.kubernetes.io/zone"
GANG = {"scheduling.x-k8s.io/pod-group": "team"}


def trace() -> list[dict[str, Any]]:
    """Return events that leave several kinds of pods waiting."""
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    things = [
        node_manifest("n1", cpu="4", memory="16Gi", labels={ZONE: "a"}),
        node_manifest("n2", cpu="8", memory="32Gi", taints=[taint], labels={ZONE: "b"}),
        node_manifest("n3", cpu="2", memory="4Gi", unschedulable=True),
        pod_group_manifest("team", 3),
    ]
    things += [pod_manifest(f"low-{i}", cpu="1", memory="1Gi", node_name="n1", priority=i) for i in range(3)]
    things += [pod_manifest(f"wide-{i}", cpu="3", memory="1Gi", priority=9) for i in range(3)]
    things += [pod_manifest(f"m{i}", cpu="800m", labels=GANG) for i in range(3)]
    for thing in things[-6:-3]:
        thing["spec"]["preemptionPolicy"] = "Never"
    return [event("ADDED", thing, AT, f"id-{thing['metadata']['name']}") for thing in things]


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            answer = await client.post("/v1/events", json=trace())
            assert answer.status_code == 202, answer.text
            await work_off(place)
            yield World(place, client)


async def why(world: World, pod: str) -> Any:
    return await answer_of(world, f"/v1/pods/default/{pod}/why", Why)


async def test_a_pod_is_told_what_would_cure_it(world: World) -> None:
    found = await why(world, "wide-0")
    assert (found["state"], found["reached"], found["unresolvable"]) == ("waiting", True, False)
    assert found["reasons"] == {"insufficient:cpu": 1, "node-unschedulable": 1, "untolerated-taint": 1}
    of_kind = {each["changes"][0]["kind"]: each for each in found["cures"]}
    assert of_kind["tolerate"]["does"] == "tolerate dedicated=db:NoSchedule"
    assert (of_kind["tolerate"]["pods"], of_kind["tolerate"]["tried"]) == (2, found["group"]["count"])
    room = of_kind["more-room"]
    assert room["does"] == "2 more free cpu on n1, in zone a"
    assert (room["pods"], room["all"]) == (1, False)
    left = of_kind["leave"]["changes"][0]
    assert (left["node"], left["below"], sorted(left["pods"])) == (
        "n1",
        9,
        ["default/low-0", "default/low-1"],
    )
    assert "more-nodes" in of_kind
    assert "raise-priority" not in of_kind, "its policy is Never"
    assert len(found["cures"]) == 4
    assert found["summary"].startswith("default/wide-0 waits: ")


async def test_a_gang_is_told_with_how_many_it_would_start(world: World) -> None:
    found = await why(world, "m0")
    texts = [each["does"] for each in found["cures"]]
    assert "a PodGroup of 1 and not 3" in texts, texts
    assert all(each["pods"] <= each["tried"] for each in found["cures"])


def lasting(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group without how long it has waited, which grows."""
    return {name: each for name, each in group.items() if name != "waits_seconds"}


async def test_a_group_is_asked_by_shard_and_signature(world: World) -> None:
    pages = (await answer_of(world, "/v1/pending", answers.PendingPage))["items"]
    for group in pages:
        target = f"/v1/pending/{group['shard']}/{group['signature']}"
        assert lasting(await answer_of(world, target, answers.PendingGroup)) == lasting(group)
        of_group = await answer_of(world, f"{target}/why", Why)
        assert lasting(of_group["group"]) == lasting(group)
        assert f"{of_group['namespace']}/{of_group['name']}" in group["examples"]
    assert sorted(group["groups_before"] for group in pages)[0] == 0
    assert all(group["attempts"] >= 1 for group in pages)
    by_age = await all_items(world, "/v1/pending", answers.PendingPage, order="oldest", limit=1)
    in_order = sorted(pages, key=lambda g: (g["since"], g["shard"], g["signature"]))
    assert list(map(lasting, by_age)) == list(map(lasting, in_order))
    by_turn = sorted(pages, key=lambda g: (g["shard"], g["groups_before"]))
    for before, after in itertools.pairwise(by_turn):
        if before["shard"] == after["shard"]:
            assert before["priority"] >= after["priority"]
            assert after["pods_before"] == before["pods_before"] + before["count"]


async def test_what_does_not_wait_needs_no_cure(world: World) -> None:
    found = await why(world, "low-0")
    assert (found["state"], found["node"], found["cures"]) == ("bound", "n1", [])
    for target in (
        "/v1/pods/default/nothing/why",
        f"/v1/pending/0/{'0' * 32}",
        f"/v1/pending/0/{'0' * 32}/why",
    ):
        assert (await world.client.get(target)).status_code == 404
    assert (await world.client.get("/v1/pending/0/xyz/why")).status_code == 422


async def test_questions_share_one_reading_and_hold_up_nothing(world: World) -> None:
    await why(world, "wide-0")

    async def late() -> float:
        latest = 0.0
        for _ in range(20):
            began = time.monotonic()
            await asyncio.sleep(0.01)
            latest = max(latest, time.monotonic() - began - 0.01)
        return latest

    *found, delay = await asyncio.gather(*(why(world, f"wide-{i % 3}") for i in range(8)), late())
    assert len({each["looked_at"] for each in found}) == 1
    assert delay < 0.25


async def test_a_process_that_ends_is_started_again(world: World) -> None:
    how = bootstrap._advising(world.place, Settings())
    async with contextlib.aclosing(Advisor(how, kept_seconds=0.1)) as advisor:
        asked = Asked(namespace="default", name="wide-0", waiting_count=3)
        first = await advisor.ask(asked)
        assert first.findings is not None
        await asyncio.sleep(0.5)
        assert advisor.started_count == 1
        again = await advisor.ask(asked)
        assert advisor.started_count == 2, "it goes with its memory where nothing asks"
        assert again.findings == first.findings
        unknown = await advisor.ask(Asked(namespace="default", name="nothing", waiting_count=1))
        assert (unknown.findings, unknown.node) == (None, None)


async def test_a_process_that_was_killed_is_started_again(world: World) -> None:
    how = bootstrap._advising(world.place, Settings())
    asked = Asked(namespace="default", name="wide-0", waiting_count=3)
    async with contextlib.aclosing(Advisor(how)) as advisor:
        first = await advisor.ask(asked)
        assert advisor.pid is not None
        os.kill(advisor.pid, signal.SIGKILL)
        await asyncio.sleep(0.5)
        assert (await advisor.ask(asked)).findings == first.findings
        process = psutil.Process(advisor.pid)
    assert not process.is_running(), "it ends with the API"


async def test_an_api_may_be_told_not_to_search(world: World) -> None:
    async with client_of(world.place, settings=Settings(why="off")) as client:
        answer = await client.get("/v1/pods/default/wide-0/why")
        assert (answer.status_code, "BERTH_WHY=off" in answer.text) == (404, True)
        assert (await client.get("/v1/pods/default/low-0/why")).status_code == 200


async def test_for_a_pod_that_came_since_the_ledger_is_read_again(world: World) -> None:
    how = bootstrap._advising(world.place, Settings(why_fresh_seconds=3600))
    known = Asked(namespace="default", name="wide-0", waiting_count=3)
    async with contextlib.aclosing(Advisor(how)) as advisor, asyncio.timeout(60):
        age = (await advisor.ask(known)).age_seconds
        await asyncio.sleep(0.2)
        assert (await advisor.ask(known)).age_seconds > age, "what it knows it need not read again"
        new, before = Asked(namespace="default", name="new", waiting_count=1), 0.0
        while (age := (await advisor.ask(new)).age_seconds) > before:
            before = age
            await asyncio.sleep(0.05)
        assert advisor.started_count == 1


async def test_a_ledger_that_is_away_is_told_and_a_process_that_fails(world: World) -> None:
    how = bootstrap._advising(world.place, Settings())
    asked = Asked(namespace="default", name="wide-0", waiting_count=3)
    nowhere = Beginning(dsn="postgresql://berth@127.0.0.1:1/none", seed=0, fresh_seconds=1)
    away = how._replace(beginning=nowhere)
    broken = how._replace(command=[how.command[0], "-c", "raise SystemExit(3)"])
    for each in (away, broken):
        async with contextlib.aclosing(Advisor(each)) as advisor:
            with pytest.raises(ApiError) as raised:
                await advisor.ask(asked)
            assert raised.value.code == "unavailable"


@pytest.mark.deep
def test_the_command_says_it_with_and_without_an_instance_that_runs(server_dir: Path) -> None:
    things = [node_manifest("n1", cpu="4"), pod_manifest("huge", cpu="50"), pod_manifest("small", cpu="1")]
    manifests = json.dumps({"kind": "List", "items": things})

    def asked(*arguments: str) -> str:
        done = berth(server_dir, "why", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with up(server_dir):
        assert berth(server_dir, "apply", "-f", "-", stdin=manifests).returncode == 0
        eventually(lambda: len(listed(server_dir, "decisions")) == 2)
        text = asked("huge")
        assert "default/huge waits: 1 lacks cpu. This would cure it." in text
        assert "all 1\t47 more free cpu on n1" in text
        assert "small does not wait: it is on n1" in asked("default/small")
        (group,) = listed(server_dir, "pending")
        by_group = json.loads(asked(f"{group['shard']}/{group['signature']}", "-o", "json"))
        assert by_group["cures"][0]["changes"][0]["amounts"] == {"cpu": "47"}
        assert yaml.safe_load(asked("huge", "-o", "yaml"))["cures"] == by_group["cures"]
        missing = berth(server_dir, "why", "none")
        assert (missing.returncode, missing.stdout) == (1, "")
        assert missing.stderr.startswith("error: pod default/none is not known")
    assert "47 more free cpu on n1" in asked("huge"), "the ledger itself is asked"
