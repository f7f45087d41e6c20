"""Does a plan say where pods would go, now and then, write nothing, and tell teams nothing of others?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from domain.model.limits import plan_pods_max
from services.api.keys import new_key
from services.api.plan import PlanAnswer
from services.ports.store import Grant
from tests.builders import Json, event, node_manifest, pod_manifest, priority_class_manifest
from tests.console.house import signed_in, token_of
from tests.integration.api_world import (
    AT,
    LATER,
    Client,
    World,
    checked,
    client_of,
    keyed_world,
    query,
)

TEAM, OTHER, MARK = "team-a", "zebra-team", "zebra"
OF_TEAM, OF_ALL = new_key(), new_key()


def trace() -> list[Json]:
    """Return events by which one of two nodes is half full, and a pod waits."""
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    things = [
        node_manifest("n1", cpu="4"),
        node_manifest("n2", cpu="8", taints=[taint]),
        pod_manifest(f"{MARK}-low", OTHER, cpu="2", node_name="n1", labels={MARK: MARK}, priority=-5),
        pod_manifest(f"{MARK}-wide", OTHER, cpu="500"),
    ]
    return [event("ADDED", thing, AT, f"id-{number}") for number, thing in enumerate(things)]


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    more = event("ADDED", node_manifest("n9", cpu="64"), LATER, "late")
    keys = {OF_TEAM: Grant("ours", ["auditor"], [TEAM])}
    async with keyed_world(embedded_dsn, keys, OF_ALL, trace(), [more]) as world:
        yield world


@pytest_asyncio.fixture(scope="module")
async def ours(world: World) -> AsyncIterator[Client]:
    async with client_of(world.place, keys_required=True) as client:
        client.headers["Authorization"] = f"Bearer {OF_TEAM}"
        yield client


async def planned(client: Client, *manifests: Any, **more: Any) -> Any:
    text = "\n".join(orjson.dumps(each).decode() for each in manifests)
    answer = await client.post("/v1/plan", json={"manifests": text, **more})
    assert answer.status_code == 200, answer.text
    return checked(answer.json(), PlanAnswer)


async def refused(client: Client, *manifests: Any, **more: Any) -> tuple[int, str]:
    text = "\n".join(orjson.dumps(each).decode() for each in manifests)
    answer = await client.post("/v1/plan", json={"manifests": text, **more})
    return answer.status_code, answer.json()["error"]["message"]


def nodes(plan: Any) -> dict[str, str | None]:
    return {each["pod"]: each["node"] for each in plan["pods"]}


async def test_a_plan_says_where_pods_would_go_and_why_not(world: World) -> None:
    pods = [pod_manifest("fits", TEAM, cpu="20"), pod_manifest("huge", TEAM, cpu="100")]
    plan = await planned(world.client, *pods, how_many=True, cures=True)
    assert nodes(plan) == {f"{TEAM}/fits": "n9", f"{TEAM}/huge": None}
    assert (plan["placed"], plan["waiting"], plan["nodes"]) == (1, 1, 3)
    fits, huge = plan["pods"]
    assert fits["why"] == ""
    assert "2 lack cpu" in huge["why"]
    best = plan["attempts"][fits["attempt"]]["explained"]["candidates"][0]
    assert (best["node"], best["score"]) == ("n9", fits["score"])
    more = {each["pod"]: each["count"] for each in plan["more"]}
    assert more == {f"{TEAM}/fits": 2, f"{TEAM}/huge": 0}, "60 of 64 cores are three of them"
    (cured,) = plan["cures"]
    assert cured["pod"] == f"{TEAM}/huge"
    assert any(each["changes"][0]["kind"] == "more-room" for each in cured["cures"])


async def test_a_plan_says_who_would_have_to_leave(world: World, ours: Client) -> None:
    only_n1 = {"kubernetes.io/hostname": "n1"}
    labelled = node_manifest("n1", cpu="4", labels=only_n1)
    pod = pod_manifest("first", TEAM, cpu="3", priority=0, node_selector=only_n1)
    plan = await planned(world.client, labelled, pod)
    assert nodes(plan) == {f"{TEAM}/first": None}
    (evicted,) = plan["evictions"]
    assert [(each["node"], each["victims"]) for each in evicted["nodes"]] == [("n1", [f"{OTHER}/{MARK}-low"])]
    assert (await refused(ours, labelled, pod))[0] == 403
    low = [pod_manifest(f"p{i}", TEAM, cpu="60", priority=10) for i in range(2)]
    plan = await planned(ours, *low)
    assert MARK not in str(plan)


async def test_a_plan_writes_nothing_and_the_next_one_knows_nothing_of_it(world: World) -> None:
    before = await rows(world)
    for _ in range(2):
        plan = await planned(world.client, pod_manifest("a", TEAM, cpu="60"))
        assert nodes(plan) == {f"{TEAM}/a": "n9"}
    assert await rows(world) == before


async def rows(world: World) -> list[Any]:
    tables = ("decisions", "placements", "pending", "log_records", "ingested_events", "nodes", "journal")
    return [(await query(world.place, f"SELECT count(*) FROM {each}"))[0][0] for each in tables]


async def test_a_plan_of_a_moment_knows_what_was_there_then(world: World) -> None:
    pods = [
        pod_manifest("a", TEAM, cpu="20"),
        pod_manifest("b", TEAM, cpu="2"),
        pod_manifest("c", TEAM, cpu="2"),
    ]
    then = await planned(world.client, *pods, at="0:1")
    assert then["nodes"] == 2
    placed = [pod for pod, node in nodes(then).items() if node is not None]
    assert len(placed) == 1, "a pod of two cores ran on n1 then, too"
    assert nodes(then)[f"{TEAM}/a"] is None
    assert then["looked_at"] is not None
    status, said = await refused(world.client, pods[0], at="never")
    assert (status, "no moment" in said) == (422, True)


async def test_manifests_bring_nodes_workloads_copies_and_a_profile(world: World) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": TEAM},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod_manifest("x", cpu="90")["spec"]},
        },
    }
    plan = await planned(world.client, deployment, node_manifest("new", cpu="100"), {"kind": "ConfigMap"})
    assert sorted(map(str, nodes(plan).values())) == ["None", "new"]
    assert any("ConfigMap" in note for note in plan["notes"])
    copies = await planned(
        world.client, pod_manifest("a", TEAM, cpu="1"), replicas=5, profile="default-scheduler"
    )
    assert len(copies["pods"]) == 5
    assert (await refused(world.client, pod_manifest("a", TEAM), profile="nowhere"))[0] == 422


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "manifests"), ("a: [", "manifests"), ("{", "manifests"), ("[1]", "manifests"),
        ("kind: Pod", "document 1"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "manifests"),
        ("[" * 100_000, "manifests"),
        ("kind: Pod\nmetadata: {name: x}\nspec: {containers: [{ports: 1}]}", "document 1"),
    ],
)  # fmt: skip
async def test_manifests_without_sense_are_refused_with_what_is_wrong(
    world: World, text: str, path: str
) -> None:
    answer = await world.client.post("/v1/plan", json={"manifests": text})
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"].get("path", "manifests").startswith(path)


async def test_what_one_plan_takes_is_bounded(world: World) -> None:
    pod = pod_manifest("a", TEAM)
    assert (await refused(world.client, pod, replicas=plan_pods_max + 1))[0] == 422
    assert (await refused(world.client, pod, pod_manifest("b", TEAM), replicas=plan_pods_max))[0] == 422
    assert (await refused(world.client, pod, unknown=1))[0] == 422
    bomb = (
        "a: &a ["
        + "x," * 9
        + "]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(8))
    )
    answer = await world.client.post("/v1/plan", json={"manifests": bomb})
    assert (answer.status_code, "aliases" in answer.json()["error"]["message"]) == (422, True)


# ------------------------------------------------------------------------------------------ teams apart


async def test_a_team_plans_its_own_pods_alone(ours: Client) -> None:
    plan = await planned(
        ours, pod_manifest("a", TEAM, cpu="1"), pod_manifest("b", TEAM, cpu="90"), cures=True
    )
    assert nodes(plan) == {f"{TEAM}/a": "n9", f"{TEAM}/b": None}
    assert MARK not in str(plan)
    for thing in (
        pod_manifest("a", OTHER), node_manifest("n1", cpu="1"),
        priority_class_manifest("x"),
    ):  # fmt: skip
        status, said = await refused(ours, pod_manifest("ok", TEAM), thing)
        assert status == 403, said


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("strength", ["required", "preferred"])
@pytest.mark.parametrize(
    "reach", [{"namespaces": [OTHER]}, {"namespaceSelector": {}}], ids=["names", "selector"]
)
async def test_a_plan_is_no_way_to_ask_where_pods_of_others_are(
    ours: Client, world: World, kind: str, strength: str, reach: Json
) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {MARK: MARK}}, **reach}
    asked: Any = [term] if strength == "required" else [{"weight": 1, "podAffinityTerm": term}]
    affinity = {kind: {f"{strength}DuringSchedulingIgnoredDuringExecution": asked}}
    spy = pod_manifest("spy", TEAM, cpu="1", affinity=affinity)
    status, said = await refused(ours, spy)
    assert status == 403, said
    await planned(world.client, spy)


# ---------------------------------------------------------------------------------------------- the console


def app_of(world: World) -> Any:
    """Return the application that the client of a world asks."""
    return world.client._transport.app  # type: ignore[attr-defined]


async def test_the_console_plans_and_applies_what_is_pasted_for_who_may_write(world: World) -> None:
    async with signed_in(app_of(world), OF_ALL) as browser:
        token = await token_of(browser, "try")
        text = orjson.dumps(pod_manifest("pasted", TEAM, cpu="1")).decode()
        before = await rows(world)
        asked = {"manifests": text, "how_many": "yes", "cures": "yes"}
        assert (await browser.post("/console/try", data=asked)).status_code == 403, "without the token"
        page = await browser.post("/console/try", data={"token": token, **asked})
        assert page.status_code == 200, page.text
        assert "1 of 1 pod would be placed" in page.text
        assert "The best nodes, by plugin" in page.text
        assert 'action="/console/apply"' in page.text
        assert await rows(world) == before
        past = await browser.post("/console/try?at=2100-01-01T00:00:00Z", data={"token": token, **asked})
        assert 'action="/console/apply"' not in past.text, "what was cannot be changed"
        wrong = await browser.post("/console/try", data={"token": token, "manifests": "<script>: ["})
        assert wrong.status_code == 422
        assert "<script>:" not in wrong.text
        assert (await browser.post("/console/apply", data={"manifests": text})).status_code == 403
        done = await browser.post("/console/apply", data={"token": token, "manifests": text})
        assert done.status_code == 200, done.text
        assert "1 event went into the log" in done.text


async def test_who_may_not_write_is_not_offered_to_apply_and_cannot(world: World) -> None:
    async with signed_in(app_of(world), OF_TEAM) as browser:
        token = await token_of(browser, "try")
        text = orjson.dumps(pod_manifest("pasted", TEAM, cpu="1")).decode()
        page = await browser.post("/console/try", data={"token": token, "manifests": text})
        assert page.status_code == 200
        assert 'action="/console/apply"' not in page.text
        before = await rows(world)
        assert (
            await browser.post("/console/apply", data={"token": token, "manifests": text})
        ).status_code == 403
        assert await rows(world) == before
