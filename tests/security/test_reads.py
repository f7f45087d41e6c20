"""Can a question to the API break it, or can a team read what is another team's?"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
import pytest_asyncio

from domain.manifests.colocation_policy import policy_from_spec
from domain.model.colocation import CoLocationPolicy, ViewRule
from domain.model.pods import POD_GROUP_LABEL
from services import bootstrap
from services.adapters.postgres import engine
from services.adapters.postgres.engine import Engine
from services.adapters.postgres.rollups import PostgresRollups
from services.api import answers
from services.api.formats import cursor
from services.api.keys import key_hash, new_key
from services.bootstrap import Place
from services.codec.encode import encode_event
from services.ports.exports import What
from services.ports.log import CONFIG_TOPIC, PODS_TOPIC, Entry
from services.ports.rollups import By
from services.ports.store import Grant
from tests.builders import event, node_manifest, pod_manifest
from tests.console.house import signed_in, walked
from tests.integration.api_world import AT, LATER, Client, World, checked, client_of, fresh_database, work_off

OURS, THEIRS = "team-a", "zebra-team"
MARK = "zebra"
"""In everything of the other team: its namespace, its pods' names, uids and labels, its dead letters."""
KEY, ALL = new_key(), new_key()
"""Shown by an auditor of our team, and by who may do everything."""


def pod(namespace: str, name: str, cpu: str, **more: Any) -> dict[str, Any]:
    """Return a pod that has its team's name in all that may name it."""
    word = MARK if namespace == THEIRS else "ant"
    manifest = pod_manifest(f"{word}-{name}", namespace, cpu=cpu, labels={word: word}, **more)
    manifest["metadata"]["uid"] = f"{word}-uid-{name}"
    manifest["spec"]["containers"][0]["image"] = f"registry/{word}:1"
    return manifest


def configuration(team: str) -> list[dict[str, Any]]:
    """Return a team's Namespace and Service, and a PriorityClass and a policy that everybody may see."""
    word = MARK if team == THEIRS else "ant"
    selector = {"selector": {word: word}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team, "labels": {word: word}}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{word}-svc", "namespace": team},
            "spec": selector,
        },
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 7,
        },
        {
            "apiVersion": "berth/v1",
            "kind": "CoLocationPolicy",
            "metadata": {"name": "batch", "resourceVersion": "5"},
            "spec": {"nodeSelector": {"pool": "a"}, "view": {"cap": "60%"}},
        },
    ]


def acted(team: str | None, name: str) -> dict[str, Any]:
    """Return that the agent of n1 ended a pod and not one of the other team, or that it changed a box."""
    thing = {"apiVersion": "berth/v1", "kind": "NodeAction", "metadata": {"name": "n1"}, "quality": "low"}
    if team is None:
        return thing | {"action": "quota", "amount": "2", "reason": "2.00 cores are left for low pods"}
    words = {OURS: "ant", THEIRS: MARK}
    other = next(each for each in words if each != team)
    reason = f"low pods are starved; it goes and {other}/{words[other]}-web-1 stays, as it uses more"
    ended = {"namespace": team, "name": f"{words[team]}-{name}", "uid": f"{words[team]}-uid-{name}"}
    return thing | {"action": "evict", "reason": reason, "pod": ended}


def trace() -> list[dict[str, Any]]:
    """Return events by which both teams have pods of every phase, some of them in one group."""
    things = [node_manifest("n1", cpu="8", memory="16Gi"), node_manifest("n2", cpu="8", memory="16Gi")]
    for team in (OURS, THEIRS):
        things += [pod(team, f"web-{i}", "500m") for i in range(2)]
        things += [pod(team, f"huge-{i}", "64") for i in range(2)]
        things += [pod(team, "placed", "1", node_name="n2"), pod(team, "brief", "250m")]
        things.append(pod(team, "member", "1"))
        word = MARK if team == THEIRS else "ant"
        things[-1]["metadata"]["labels"][POD_GROUP_LABEL] = f"{word}-team"
        things += configuration(team)
        things += [acted(team, "web-1"), acted(None, "")]
    events = [event("ADDED", thing, AT, f"id-{number}") for number, thing in enumerate(things)]
    return events + [event("DELETED", pod(team, "brief", "250m"), LATER) for team in (OURS, THEIRS)]


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    """Return a ledger that a worker filled with two teams' pods, and a client that may ask everything."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place, keys_required=True) as client:
            client.headers["Authorization"] = f"Bearer {ALL}"
            async with contextlib.aclosing(bootstrap.open_store(place)) as store:
                await store.callers.create_key(key_hash(KEY), Grant("ours", ["auditor"], [OURS]))
                await store.callers.create_key(key_hash(ALL), Grant("all", ["admin"]))
            assert (await client.post("/v1/events", json=trace())).status_code == 202
            log = bootstrap.open_log(place)
            writer = await log.writer()
            for team in (OURS, THEIRS):
                word = "ant" if team == OURS else MARK
                thing = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": word + "." * 9_000}}
                raw = encode_event("ADDED", thing)
                await writer.append(PODS_TOPIC, [Entry(f"{team}/bad".encode(), raw)])
            await writer.append(CONFIG_TOPIC, [Entry(b"Budget/x", b"zebra is not ant")])
            await writer.aclose()
            await log.aclose()
            await work_off(place)
            await roll_up(place)
            await promise(place)
            await bill(place)
            await scale(place)
            yield World(place, client)


async def roll_up(place: Place) -> None:
    """Roll up what was decided, as a worker does some time later."""
    async with contextlib.aclosing(PostgresRollups(place.dsn)) as rollups:
        await rollups.sample()
        while await rollups.count():
            pass


async def scale(place: Place) -> None:
    """Say of a workload of each team how many replicas there should be."""
    connection = await asyncpg.connect(place.dsn)
    for seq, (team, word) in enumerate(((OURS, "ant"), (THEIRS, MARK)), 1):
        await connection.execute(
            "INSERT INTO hosted_replicas VALUES ($1, $2, 'ReplicaSet', $3, 1, 9, 2, 1, NULL, 1, $4, 7, $5)",
            *(team, f"{word}-hosted", f"{word}-set", f"a pod of {word} waits", seq),
        )
    await connection.close()


async def promise(place: Place) -> None:
    """Promise a node to a pod of each team; two pods, one of each team, have to leave for ours."""
    connection = await asyncpg.connect(place.dsn)
    await connection.execute(
        "INSERT INTO nominations (pod_uid, shard, namespace, name, signature, node, at_ms, expires_ms) "
        "SELECT pod_uid, shard, namespace, name, signature, 'n1', since_ms, since_ms + 60000 "
        "FROM pending WHERE name LIKE '%-huge-0'"
    )
    await connection.execute(
        "INSERT INTO evictions SELECT p.pod_uid, p.shard, p.namespace, p.name, n.pod_uid, n.shard "
        "FROM placements p, nominations n WHERE p.name LIKE '%-web-0' AND n.namespace = $1",
        OURS,
    )
    leaves = (
        f'{{"victims":["ant-uid-web-0","{MARK}-uid-web-0"],"violations":1,"preemptor":"{MARK}-uid-huge-0"}}'
    )
    await connection.execute(
        "UPDATE decisions SET payload = "
        "convert_to(rtrim(convert_from(payload, 'UTF8'), '}') || ',\"preemption\":' || $1 || '}', 'UTF8') "
        "WHERE namespace = $2 AND name = 'ant-huge-0'",
        leaves,
        OURS,
    )
    await connection.close()


async def bill(place: Place) -> None:
    """Bill each team."""
    connection = await asyncpg.connect(place.dsn)
    await connection.executemany(
        "INSERT INTO bill_hours VALUES (0, $1, 'low', 'low', 'cpu', 3600000, 100000, 900000)",
        [(OURS,), (THEIRS,)],
    )
    await connection.close()


# ---------------------------------------------------------------------------- input that no one should send

NUMBERS = ["0", "-1", "1.5", "9" * 30, str(2**31), str(2**63), str(2**63 - 1), "٣", "²", "1e9", "NaN", "0x1"]
TIMES = [
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.999999-23:59",
    "+275760-09-13T00:00:00Z",
    "-0001-01-01T00:00:00Z",
    "2024-02-30T00:00:00Z",
    "9" * 400,
]
TEXTS = ["", " ", "a\0b", "\U0001f40c", "%", "'", '"; --', "..", "a/b/c", "\\", "\n", "x" * 5_000, "\x1b[2J"]
POSITIONS = [
    "1\n999999999999999999",
    "1\n-1",
    f"{2**63}\n0",
    f"0\n{2**31}",
    "9" * 19 + "\n1",
    "1\n2\n3\n4",
    "٣\n0",
    "1",
    "\n",
    "a\0b",
    "a\nb",
    f"1\n0\n{'g' * 32}",
    f"{2**63}\n0\n{'0' * 32}",
]
IDS = [
    "0-9999999999999999999999",
    "99999999999-1",
    "0--1",
    "-1-1",
    "0-1-1",
    "٣-٣",
    "0-",
    "0-9223372036854775807",
]
HALF = "%ED%A0%80"  # half of a surrogate pair


def values(name: str) -> Iterator[str]:
    """Yield what an attacker may write as this parameter, quoted."""
    of_its_kind = {"since": TIMES, "until": TIMES, "at": TIMES, "id": IDS, "signature": ["zz" * 16, "0" * 32]}
    for text in (*NUMBERS, *TEXTS, *of_its_kind.get(name, [])):
        yield quote(text, safe="")
    for text in POSITIONS if name == "cursor" else ():
        yield base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    yield from (HALF, "%FF", "%00", "%")


async def questions(world: World) -> list[tuple[str, list[str], list[str]]]:
    """Return each route that answers a GET, with the names in its path and its parameters."""
    spec = (await world.client.get("/openapi.json")).json()
    found = []
    for path, operations in spec["paths"].items():
        if "get" in operations:
            parameters = operations["get"].get("parameters", [])
            named = {
                where: [p["name"] for p in parameters if p["in"] == where] for where in ("path", "query")
            }
            found.append((path, named["path"], named["query"]))
    return found


def targets(path: str, in_path: list[str], in_query: list[str]) -> Iterator[str]:
    """Yield requests that have one bad parameter each."""
    plain = path.replace("{", "").replace("}", "")
    for name in in_path:
        for value in values(name):
            yield path.replace("{" + name + "}", value).replace("{", "").replace("}", "")
    for name in in_query:
        given = "profile=p&" if name == "revision" and "profile" in in_query else ""
        yield from (f"{plain}?{given}{name}={value}" for value in values(name))


@pytest.mark.deep
async def test_no_parameter_of_any_route_makes_a_fault(world: World) -> None:
    routes = await questions(world)
    assert len(routes) >= 13
    for path, in_path, in_query in routes:
        for target in targets(path, in_path, in_query):
            answer = await world.client.get(target)
            if path == "/readyz":
                continue  # no worker is up
            assert answer.status_code < 500, (target[:200], answer.text)
            if answer.status_code >= 400:
                checked(answer.json(), answers.Error)
                assert len(answer.content) < 8_000, "an error does not send back what it was sent"


@pytest.mark.parametrize("position", POSITIONS)
async def test_a_cursor_that_no_answer_gave_is_named(world: World, position: str) -> None:
    paged = [path for path, _, in_query in await questions(world) if "cursor" in in_query and "{" not in path]
    assert len(paged) >= 5
    for path in paged:
        text = cursor(position)
        answer = await world.client.get(path, params={"cursor": text})
        if answer.status_code == 200:  # where names are in order, any text is a place between them
            assert path not in ("/v1/decisions", "/v1/deadletters"), (path, position)
            continue
        assert (answer.status_code, answer.json()["error"]["path"]) == (422, "cursor"), (path, position)


# ------------------------------------------------------------------------------- what is another team's


@pytest_asyncio.fixture(scope="module")
async def ours(world: World) -> AsyncIterator[Client]:
    """Return a client that shows the key of our team's auditor."""
    async with client_of(world.place, keys_required=True) as client:
        client.headers["Authorization"] = f"Bearer {KEY}"
        yield client


async def ids(world: World, listed: str) -> list[str]:
    """Return the ids in a list, as somebody sees it who sees all."""
    return [item["id"] for item in (await world.client.get(listed, params={"limit": 1000})).json()["items"]]


PODS = [
    f"{team}/{'ant' if team == OURS else MARK}-{name}"
    for team in (OURS, THEIRS)
    for name in ("web-0", "huge-0", "placed", "brief", "none")
]
NO_SECRET: dict[str, list[str]] = {
    "/healthz": [""],
    "/readyz": [""],
    "/metrics": [""],
    "/v1/shards": [""],
    "/v1/caller": [""],
    "/v1/keys": [""],
    "/v1/profiles": ["", "?limit=1"],
    "/v1/profiles/{name}": ["default-scheduler"],
    "/v1/accesses": ["?status=599"],
    "/v1/audit": [""],
    "/v1/workers": [""],
    "/v1/shadow": ["", "?profile=default-scheduler"],
    "/v1/owners": ["", "?limit=1"],
    "/v1/totals": ["", "?at=1s"],
    "/v1/moment": ["?at=1s", "?at=0:1", "?at=2001-01-01"],
    "/v1/field": ["", "?by=zone", "?measured=true", "?at=1s"],
    "/v1/history/shards/{shard}": ["0", "1?order=newest"],
    "/v1/history/profiles/{name}": ["default-scheduler"],
}
"""What to ask of routes that have nothing of any team, or are not for those who see few namespaces."""


async def asked(world: World) -> dict[str, list[str]]:
    """Return what to ask of each route, so that it would show the other team's pods to who sees all."""
    decisions, letters = await ids(world, "/v1/decisions"), await ids(world, "/v1/deadletters")
    assert (len(decisions) >= 12, len(letters)) == (True, 3)
    waiting = (await world.client.get("/v1/pending", params={"limit": 1000})).json()["items"]
    groups = [f"{each['shard']}/{each['signature']}" for each in waiting]
    return NO_SECRET | {
        "/v1/nodes": ["", "?name=n", "?limit=1"],
        "/v1/nodes/{name}": ["n1", "n2", "n1?at=1s"],
        "/v1/pods": [
            *("", "?node=n1", "?phase=bound", "?phase=pending", "?limit=1", f"?cursor={cursor('a')}"),
            *(f"?gang={OURS}/ant-team", "?at=1s", "?at=1s&node=n1", "?at=1s&limit=1"),
        ],
        "/v1/pods/{namespace}/{name}": PODS + [f"{pod}?at=1s" for pod in PODS],
        "/v1/pods/{namespace}/{name}/why": PODS,
        "/v1/pods/{namespace}/{name}/attempts": PODS + [f"{pod}?at={AT}" for pod in PODS],
        "/v1/decisions": [
            "",
            "?order=newest",
            "?limit=1",
            "?node=n1",
            "?outcome=bound",
            "?outcome=released",
            "?shard=0",
            "?shard=1",
            f"?pod={MARK}-web-0".replace(MARK, "ant"),
            "?profile=default-scheduler",
            "?since=2024-01-01T00:00:00Z",
        ],
        "/v1/events": ["?since=2024-01-01T00:00:00Z"],
        "/v1/history/pods/{namespace}/{name}": PODS + [f"{pod}?limit=1" for pod in PODS],
        "/v1/history/nodes/{name}": ["n1", "n2", "n1?order=newest", "n1?limit=1"],
        "/v1/decisions/{id}": decisions,
        "/v1/decisions/{id}/explanation": decisions,
        "/v1/config": ["", "?kind=Service", "?kind=Namespace", "?limit=1", "?at=1s"],
        "/v1/config/{kind}/{name}": [f"Namespace/{team}" for team in (OURS, THEIRS)],
        "/v1/config/{kind}/{namespace}/{name}": [
            f"Service/{team}/{'ant' if team == OURS else MARK}-svc" for team in (OURS, THEIRS)
        ],
        "/v1/pending": ["", "?shard=0", "?shard=1", "?limit=1", "?at=1s"],
        "/v1/diff": ["?from=1000h", f"?from=1000h&namespace={OURS}", "?from=1000h&until=1s"],
        "/v1/pending/{shard}/{signature}": groups,
        "/v1/pending/{shard}/{signature}/why": groups,
        "/v1/nominations": ["", "?limit=1"],
        "/v1/bill": ["", "?limit=1", "?by=quality", "?by=day", f"?namespace={OURS}"],
        "/v1/usage": ["", "?limit=1", "?step=5m", *(f"?by={by}&since=2000d" for by in By)],
        "/v1/export/{what}": [f"{what}{more}" for what in What for more in ("", "?since=2024-01-01")],
        "/v1/actions": ["", "?node=n1", "?limit=1"],
        "/v1/replicas": ["", "?limit=1", f"?namespace={OURS}"],
        "/v1/replicas/{namespace}/{name}": [
            f"{team}/{'ant' if team == OURS else MARK}-hosted" for team in (OURS, THEIRS)
        ],
        "/v1/gangs": ["", "?limit=1", f"?namespace={OURS}", "?at=1s"],
        "/v1/gangs/{namespace}/{name}": [
            f"{team}/{'ant' if team == OURS else MARK}-team" for team in (OURS, THEIRS)
        ],
        "/v1/deadletters": ["", "?limit=1"],
        "/v1/deadletters/{id}": letters,
    }


async def told(client: Client, target: str) -> str:
    """Return all that a question is told, page by page."""
    texts, at = [], ""
    for _ in range(50):
        answer = await client.get(target + (f"{'&' if '?' in target else '?'}cursor={at}" if at else ""))
        assert answer.status_code < 500 or target == "/readyz", answer.text
        texts.append(answer.text + str(dict(answer.headers)))
        page = answer.json() if "json" in answer.headers["content-type"] else {}
        at = page.get("next") or ""
        if at:
            texts.append(base64.urlsafe_b64decode(at + "==").decode())
        texts += [base64.b64decode(each.get("raw_base64", "")).decode() for each in page.get("items", [page])]
        if not at:
            return "".join(texts)
    raise AssertionError("the pages do not end")


async def test_no_answer_holds_anything_of_another_team(world: World, ours: Client) -> None:
    routes = await asked(world)
    assert routes.keys() == {path for path, _, _ in await questions(world)}, "ask the new route, too"
    for path, questions_of_it in routes.items():
        stem, found = path.partition("{")[0], {"ours": "", "all": ""}
        behind = path.rpartition("}")[2] if "{" in path else ""
        for question in questions_of_it:
            named, mark, query = question.partition("?")
            target = stem + named + behind + mark + query
            found["all"] += await told(world.client, target)
            text = await told(ours, target)
            echo = question.partition("?")[0]  # what was asked for is named again
            found["ours"] += text.replace(echo, "") if echo else text
        assert MARK not in found["ours"], path
        if path not in NO_SECRET and not path.endswith("/nodes"):
            assert MARK in found["all"], f"{path} shows nothing that could be hidden"


async def test_no_page_of_the_console_holds_anything_of_another_team(ours: Client) -> None:
    count = 0
    app = ours._transport.app  # type: ignore[attr-defined]
    async with signed_in(app, KEY) as browser:
        async for path, page in walked(browser, 250):
            assert page.status_code < 500 or "/why" in path, (path, page.text)
            assert MARK not in page.text + str(dict(page.headers)), path
            count += page.status_code == 200
    assert count > 100


async def test_the_pods_of_a_gang_are_listed_by_its_name(ours: Client) -> None:
    items = (await ours.get(f"/v1/pods?gang={OURS}/ant-team")).json()["items"]
    assert [item["name"] for item in items] == ["ant-member"]
    for wrong in ("ant-team", f"{OURS}/ant-team&namespace=other"):
        assert (await ours.get(f"/v1/pods?gang={wrong}")).status_code in (400, 403, 422)
    assert (await ours.get(f"/v1/pods?gang={THEIRS}/{MARK}-team")).status_code == 403


async def test_a_pod_of_another_team_is_as_if_it_were_not(world: World, ours: Client) -> None:
    for suffix in ("", "/attempts", "/why"):
        there = await ours.get(f"/v1/pods/{THEIRS}/{MARK}-web-0{suffix}")
        absent = await ours.get(f"/v1/pods/{THEIRS}/{MARK}-nope{suffix}")
        assert (there.status_code, absent.status_code) == (404, 404)
        assert there.text.replace("web-0", "") == absent.text.replace("nope", "")
    seen = set(await ids(World(world.place, ours), "/v1/decisions"))
    for every in await ids(world, "/v1/decisions"):
        for suffix in ("", "/explanation"):
            answer = await ours.get(f"/v1/decisions/{every}{suffix}")
            assert answer.status_code == (200 if every in seen else 404)


async def test_who_has_to_leave_is_told_as_far_as_it_is_seen(world: World, ours: Client) -> None:
    (mine,) = (await ours.get("/v1/nominations")).json()["items"]
    assert (mine["name"], mine["node"], mine["victims"]) == ("ant-huge-0", "n1", [f"{OURS}/ant-web-0"])
    every = (await world.client.get("/v1/nominations")).json()["items"]
    victims = {item["name"]: sorted(item["victims"]) for item in every}
    assert victims == {
        "ant-huge-0": sorted([f"{OURS}/ant-web-0", f"{THEIRS}/{MARK}-web-0"]),
        f"{MARK}-huge-0": [],
    }


async def test_a_decision_says_who_leaves_for_whom_to_who_sees_all(world: World, ours: Client) -> None:
    target = f"/v1/pods/{OURS}/ant-huge-0"
    for client, victims in ((world.client, ["ant-uid-web-0", f"{MARK}-uid-web-0"]), (ours, [])):
        (of_pod,) = (await client.get(target)).json()["decisions"]
        listed = (await client.get(f"/v1/decisions?pod={OURS}/ant-huge-0")).json()["items"]
        alone = (await client.get(f"/v1/decisions/{of_pod['id']}")).json()
        explained = (await client.get(f"/v1/decisions/{of_pod['id']}/explanation")).json()["decision"]
        for found in (of_pod, *listed, alone, explained):
            assert (found["preemption"]["victims"], found["preemption"]["violations"]) == (victims, 1)


async def test_configuration_is_that_of_the_own_namespaces_and_of_the_cluster(
    world: World, ours: Client
) -> None:
    for client, teams in ((ours, [OURS]), (world.client, [OURS, THEIRS])):
        items = (await client.get("/v1/config")).json()["items"]
        said = [(item["kind"], item["namespace"], item["name"]) for item in items]
        words = {OURS: "ant", THEIRS: MARK}
        assert said == [
            ("CoLocationPolicy", None, "batch"),
            *(("Namespace", None, team) for team in teams),
            ("PriorityClass", None, "high"),
            *(("Service", team, f"{words[team]}-svc") for team in teams),
        ]
    policy = (await ours.get("/v1/config/CoLocationPolicy/batch")).json()
    assert policy["resource_version"] == 5
    assert policy_from_spec(policy["object"], "spec") == CoLocationPolicy(
        node_selector={"pool": "a"}, view=ViewRule(cap_percent=60)
    )
    own = await ours.get(f"/v1/config/Service/{OURS}/ant-svc")
    requirement = {"key": "ant", "operator": "In", "values": ["ant"]}
    assert own.json()["object"] == {"selector": {"requirements": [requirement]}}
    for target in (f"Namespace/{THEIRS}", f"Service/{THEIRS}/{MARK}-svc", f"Service/{OURS}/none"):
        assert (await ours.get(f"/v1/config/{target}")).status_code == 404
    wrong = await ours.get("/v1/config?kind=Secret")
    assert (wrong.status_code, wrong.json()["error"]["path"]) == (422, "kind")


async def test_to_name_another_namespace_is_forbidden_whether_it_exists_or_not(ours: Client) -> None:
    asking = "/v1/pods?namespace={}", "/v1/decisions?namespace={}", "/v1/config?namespace={}"
    for target in (*asking, "/v1/decisions?pod={}/x"):
        answers_ = [await ours.get(target.format(namespace)) for namespace in (THEIRS, "absent-team")]
        assert [answer.status_code for answer in answers_] == [403, 403]
        assert answers_[0].text.replace(THEIRS, "") == answers_[1].text.replace("absent-team", "")
        assert f"it sees {OURS}" in answers_[0].text
        assert (await ours.get(target.format(OURS))).status_code == 200


async def test_a_node_counts_the_pods_of_others_without_naming_them(world: World, ours: Client) -> None:
    for name in ("n1", "n2"):
        whole = (await world.client.get(f"/v1/nodes/{name}")).json()
        part = (await ours.get(f"/v1/nodes/{name}")).json()
        theirs = [pod for pod in whole["pods"] if pod["namespace"] == THEIRS]
        assert part["pods"] == [pod for pod in whole["pods"] if pod["namespace"] == OURS]
        assert int(part["others"].get("pods", 0)) == len(theirs)
        milli = sum(1000 if pod["requests"]["cpu"] == "1" else 500 for pod in theirs)
        assert _milli(part["others"].get("cpu", "0")) == milli
        assert (whole["others"], part["requested"]) == (None, whole["requested"])


def _milli(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)


async def test_who_sent_a_node_is_not_for_those_who_see_few(world: World, ours: Client) -> None:
    for path in ("/v1/nodes", "/v1/nodes/n1"):
        answers_ = [(await client.get(path)).json() for client in (world.client, ours)]
        told, hidden = (answer.get("items", [answer]) for answer in answers_)
        assert {node["spec_sent_by"] for node in told} == {"key:all"}
        assert {node["spec_sent_by"] for node in hidden} == {None}


async def test_a_group_counts_the_pods_that_are_seen(world: World, ours: Client) -> None:
    for client, count in ((ours, 3), (world.client, 6)):
        items = (await client.get("/v1/pending")).json()["items"]
        assert sum(item["count"] for item in items) == count
        assert all(item["reasons"] for item in items)


@pytest.mark.parametrize("path", ["/metrics", "/v1/accesses", "/v1/audit"])
async def test_what_is_of_all_namespaces_is_not_for_those_who_see_few(
    world: World, ours: Client, path: str
) -> None:
    assert (await ours.get(path)).status_code == 403
    assert (await world.client.get(path)).status_code == 200


async def test_a_bill_is_of_the_namespaces_that_are_seen(world: World, ours: Client) -> None:
    for by in ("namespace", "quality", "day"):
        for client, count in ((ours, 1), (world.client, 2)):
            told = (await client.get("/v1/bill", params={"by": by})).json()
            assert told["total"]["billed"] == 0.1 * count
            assert sum(item["billed"] for item in told["items"]) == 0.1 * count
    assert (await ours.get(f"/v1/bill?namespace={THEIRS}")).status_code == 403


async def test_an_export_is_of_the_namespaces_that_are_seen(world: World, ours: Client) -> None:
    """Each row is one of those that all see, with less in it; whoever names another namespace is refused."""
    hidden = {"sent_by", "spec_sent_by", "victims", "preemptor", "preemptor_priority", "nominated", "at"}
    for what in What:
        found, everything = [
            [
                json.loads(line)
                for line in (await client.get(f"/v1/export/{what}?format=ndjson")).text.splitlines()
            ]
            for client in (ours, world.client)
        ]
        assert found
        shown = [{name: value for name, value in row.items() if name not in hidden} for row in found]
        all_of_it = [{name: value for name, value in row.items() if name not in hidden} for row in everything]
        assert [row for row in all_of_it if row in shown] == shown
        if what in (What.DECISIONS, What.PLACEMENTS):
            assert {row["namespace"] for row in found} == {OURS}
            assert {row["namespace"] for row in everything} == {OURS, THEIRS}
        if what is not What.NODES:
            for other in (THEIRS, "none"):
                answer = await ours.get(f"/v1/export/{what}?namespace={other}")
                assert (answer.status_code, OURS in answer.text) == (403, True)


async def test_usage_over_time_is_of_the_namespaces_that_are_seen(world: World, ours: Client) -> None:
    """What nodes offer and what is requested of them is for all to see; decisions of others are not."""

    async def items(client: Client, by: By) -> list[dict[str, Any]]:
        return list((await client.get(f"/v1/usage?by={by}&since=1d")).json()["items"])

    assert [each["name"] for each in await items(ours, By.NAMESPACE)] == [OURS]
    assert [each["name"] for each in await items(world.client, By.NAMESPACE)] == [OURS, THEIRS]
    (own,) = await items(ours, By.NAMESPACE)
    (few,), (everything,) = await items(ours, By.CLUSTER), await items(world.client, By.CLUSTER)
    assert few["decisions"] == own["decisions"] != everything["decisions"]
    assert few["pending_pods"] == own["pending_pods"] < everything["pending_pods"]
    assert few["requested_cpu_milli"] == everything["requested_cpu_milli"] > own["requested_cpu_milli"] > 0
    nodes, of_all = await items(ours, By.NODE), await items(world.client, By.NODE)
    assert [each["decisions"] for each in nodes] == [{}, {}]
    assert all(each["decisions"] for each in of_all)
    hidden = {"decisions": {}, "evictions": 0}
    assert nodes == [each | hidden for each in of_all]


async def test_what_names_others_is_not_exported_to_who_sees_few(world: World, ours: Client) -> None:
    """A decision of ours of which the record names pods, and a sender, that may be of others."""
    named = {"victims": ["lynx-uid"], "preemptor": "lynx-uid", "priority": 7, "nominated": "1-7"}
    made = "convert_from(payload, 'UTF8')::jsonb || jsonb_build_object('sent_by', 'key:lynx', 'preemption', "
    made += "$1::jsonb)"
    connection = await asyncpg.connect(world.place.dsn)
    where = "WHERE namespace = $1 AND outcome = 'bound' LIMIT 1"
    row = await connection.fetchrow(f"SELECT shard, seq, outcome, payload FROM decisions {where}", OURS)
    try:
        await connection.execute(
            f"UPDATE decisions SET outcome = 'evicted', payload = convert_to(({made})::text, 'UTF8') "
            "WHERE shard = $2 AND seq = $3",
            *(json.dumps(named), row["shard"], row["seq"]),
        )
        assert "lynx" not in (await ours.get("/v1/export/decisions?format=ndjson")).text
        everything = (await world.client.get(f"/v1/export/decisions?namespace={OURS}&format=ndjson")).text
        assert everything.count("lynx-uid") == 2
        assert "key:lynx" in everything
    finally:
        await connection.execute(
            "UPDATE decisions SET outcome = $3, payload = $4 WHERE shard = $1 AND seq = $2", *row.values()
        )
        await connection.close()


async def test_a_dead_letter_is_cut_in_a_list_and_whole_by_its_id(ours: Client) -> None:
    (item,) = (await ours.get("/v1/deadletters")).json()["items"]
    whole = (await ours.get(f"/v1/deadletters/{item['id']}")).json()
    assert len(base64.b64decode(item["raw_base64"])) == len(item["raw_text"]) == 4096
    assert len(base64.b64decode(whole["raw_base64"])) == item["raw_bytes"] == whole["raw_bytes"] > 9_000


# --------------------------------------------------------------------------------- answers without end


def lasting(items: list[Any]) -> list[Any]:
    """Return items without that which grows by now."""
    return [{name: each for name, each in item.items() if name != "waits_seconds"} for item in items]


async def test_every_list_ends_by_its_bytes_and_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    paged = [path for path, _, in_query in await questions(world) if "cursor" in in_query and "{" not in path]
    paged.remove("/v1/accesses")  # which grows while it is read
    usage = (await world.client.get("/v1/usage")).json()
    asked = dict.fromkeys(paged, "limit=1000")
    # Without times of its own, usage asked for a moment later may begin five minutes later.
    asked["/v1/usage"] += f"&since={usage['since']}&until={usage['until']}"
    whole = {path: (await world.client.get(f"{path}?{asked[path]}")).json()["items"] for path in paged}
    monkeypatch.setattr(engine, "page_bytes_max", 1)
    for path in paged:
        items: list[Any] = []
        at: str | None = ""
        while at is not None:
            page = (await world.client.get(f"{path}?{asked[path]}" + (f"&cursor={at}" if at else ""))).json()
            # Built-in profiles are no rows, and those of owners are a few numbers and a worker's name.
            assert len(page["items"]) == 1 or path in ("/v1/profiles", "/v1/owners")
            items += page["items"]
            at = page["next"]
        assert lasting(items) == lasting(whole[path])


async def test_a_large_record_does_not_make_a_large_page(world: World) -> None:
    """Of a template of 200 kB, a list of pods reads a few numbers, however many pods share it."""
    values = [f"z{i}" * 9 for i in range(75)]
    terms = [
        {"matchExpressions": [{"key": f"zone-{i}", "operator": "In", "values": values}]} for i in range(64)
    ]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    pods = [pod(OURS, f"wide-{i}", "1", affinity=affinity) for i in range(12)]
    for each in pods:
        answer = await world.client.post("/v1/events", json=[event("ADDED", each, LATER)])
        assert answer.status_code == 202, answer.text
    await work_off(world.place)
    seen: list[int] = []
    read = Engine.rows

    async def measured(asked: Engine, *how: Any) -> Any:
        rows = await read(asked, *how)
        seen.append(sum(len(str(tuple(row))) for row in rows))
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "rows", measured)
        for target in ("/v1/pods?limit=1000", "/v1/pending"):
            assert len((await world.client.get(target)).json()["items"]) >= 1
    assert sum(seen) < 200_000
