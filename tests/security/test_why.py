"""Does a cure tell a team anything of the pods of another one, or of how many of them wait?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from services.api.answers_why import Why
from services.api.keys import new_key
from services.ports.store import Grant
from tests.builders import event, node_manifest, pod_manifest
from tests.integration.api_world import (
    AT,
    Client,
    World,
    checked,
    client_of,
    keyed_world,
)

OURS, THEIRS, MARK = "team-a", "zebra-team", "zebra"
OF_US, OF_ALL = new_key(), new_key()


def pod(team: str, name: str, cpu: str, **more: Any) -> dict[str, Any]:
    word = MARK if team == THEIRS else "ant"
    manifest = pod_manifest(f"{word}-{name}", team, cpu=cpu, labels={word: word}, **more)
    manifest["metadata"]["uid"] = f"{word}-uid-{name}"
    manifest["spec"]["preemptionPolicy"] = "Never"
    return manifest


def trace() -> list[dict[str, Any]]:
    """Return events by which pods of two teams fill two nodes, and equal pods of both wait."""
    things = [node_manifest("n1", cpu="4"), node_manifest("n2", cpu="4")]
    things.append(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"{MARK}-budget", "namespace": THEIRS},
            "spec": {"minAvailable": "100%", "selector": {"matchLabels": {MARK: MARK}}},
        }
    )
    for node in ("n1", "n2"):
        things.append(pod(THEIRS, f"low-{node}", "2", node_name=node, priority=1))
        things.append(pod(OURS, f"low-{node}", "1500m", node_name=node, priority=1))
    for team, count in ((OURS, 2), (THEIRS, 3)):
        things += [pod(team, f"wide-{i}", "3500m", priority=7) for i in range(count)]
        things += [pod(team, f"mid-{i}", "1500m", priority=7) for i in range(count)]
    things += [pod(THEIRS, f"first-{i}", "100", priority=9) for i in range(4)]
    return [event("ADDED", thing, AT, f"id-{number}") for number, thing in enumerate(things)]


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    keys = {OF_US: Grant("ours", ["auditor"], [OURS])}
    async with keyed_world(embedded_dsn, keys, OF_ALL, trace()) as world:
        yield world


@pytest_asyncio.fixture(scope="module")
async def ours(world: World) -> AsyncIterator[Client]:
    async with client_of(world.place, keys_required=True) as client:
        client.headers["Authorization"] = f"Bearer {OF_US}"
        yield client


async def why(client: Client, name: str) -> Any:
    answer = await client.get(f"/v1/pods/{OURS}/ant-{name}/why")
    assert answer.status_code == 200, answer.text
    return checked(answer.json(), Why)


def leaving(found: Any) -> Any:
    (cure,) = [each for each in found["cures"] if each["changes"][-1]["kind"] == "leave"]
    return cure["changes"][-1]


async def test_who_leaves_is_named_to_who_sees_all(world: World) -> None:
    told = leaving(await why(world.client, "wide-0"))
    assert sorted(told["pods"]) == [f"{OURS}/ant-low-{told['node']}", f"{THEIRS}/zebra-low-{told['node']}"]
    assert told["budgets"] == [f"{THEIRS}/zebra-budget"]
    assert "pods_of_others" not in told


async def test_of_pods_of_others_only_their_number_is_told(world: World, ours: Client) -> None:
    told = leaving(await why(ours, "wide-0"))
    assert (told["pods"], told["pods_of_others"]) == ([f"{OURS}/ant-low-{told['node']}"], 1)
    assert (told.get("budgets"), told["budgets_of_others"]) == (None, True)
    assert told["does"] == (
        f"1 pod ({OURS}/ant-low-{told['node']}) and 1 pod of other namespaces below priority 7 leave "
        f"{told['node']}, once a budget of another namespace is released"
    )
    for name in ("wide-0", "mid-0"):
        answer = await ours.get(f"/v1/pods/{OURS}/ant-{name}/why")
        assert MARK not in answer.text
        assert MARK in (await world.client.get(f"/v1/pods/{OURS}/ant-{name}/why")).text or name == "mid-0"


async def test_a_cure_is_counted_for_the_pods_that_are_seen(world: World, ours: Client) -> None:
    for client, count in ((ours, 2), (world.client, 5)):
        found = await why(client, "mid-0")
        assert found["group"]["count"] == count
        assert {each["tried"] for each in found["cures"]} == {count}


async def test_where_a_group_stands_is_told_to_who_sees_all(world: World, ours: Client) -> None:
    every = (await world.client.get("/v1/pending")).json()["items"]
    wide = next(each for each in every if each["requests"] == {"cpu": "3500m"})
    assert (wide["groups_before"], wide["pods_before"]) == (1, 4)
    for group in (await ours.get("/v1/pending")).json()["items"]:
        assert (group["attempts"], group["groups_before"], group["pods_before"]) == (None, None, None)
    target = f"/v1/pending/0/{wide['signature']}"
    assert (await ours.get(target)).json()["examples"] == [f"{OURS}/ant-wide-0", f"{OURS}/ant-wide-1"]
    assert (await ours.get(f"{target}/why")).json()["namespace"] == OURS


async def test_what_another_team_lets_wait_is_as_if_it_were_not(world: World, ours: Client) -> None:
    every = (await world.client.get("/v1/pending")).json()["items"]
    first = next(each for each in every if each["requests"] == {"cpu": "100"})
    for suffix in ("", "/why"):
        assert (await ours.get(f"/v1/pending/0/{first['signature']}{suffix}")).status_code == 404
        assert (await ours.get(f"/v1/pods/{THEIRS}/zebra-first-0{suffix}")).status_code == 404
