"""Can a question to the API break it, or can a team read what is another team's?"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from services import bootstrap
from services.api import answers
from services.api.formats import cursor
from tests.builders import event, node_manifest, pod_manifest
from tests.integration.api_world import AT, LATER, World, checked, client_of, fresh_database, work_off

OURS, THEIRS = "team-a", "zebra-team"
MARK = "zebra"
"""In everything of the other team: its namespace, its pods' names, uids and labels, its dead letters."""


def pod(namespace: str, name: str, cpu: str, **more: Any) -> dict[str, Any]:
    """Return a pod that has its team's name in all that may name it."""
    word = MARK if namespace == THEIRS else "ant"
    manifest = pod_manifest(f"{word}-{name}", namespace, cpu=cpu, labels={word: word}, **more)
    manifest["metadata"]["uid"] = f"{word}-uid-{name}"
    manifest["spec"]["containers"][0]["image"] = f"registry/{word}:1"
    return manifest


def trace() -> list[dict[str, Any]]:
    """Return events by which both teams have pods of every phase, some of them in one group."""
    things = [node_manifest("n1", cpu="8", memory="16Gi"), node_manifest("n2", cpu="8", memory="16Gi")]
    for team in (OURS, THEIRS):
        things += [pod(team, f"web-{i}", "500m") for i in range(2)]
        things += [pod(team, f"huge-{i}", "64") for i in range(2)]
        things += [pod(team, "placed", "1", node_name="n2"), pod(team, "brief", "250m")]
    events = [event("ADDED", thing, AT, f"id-{thing['metadata']['name']}") for thing in things]
    return events + [event("DELETED", pod(team, "brief", "250m"), LATER) for team in (OURS, THEIRS)]


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    """Return a ledger that a worker filled with two teams' pods, and a client that may ask everything."""
    async with fresh_database(embedded_dsn) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            assert (await client.post("/v1/events", json=trace())).status_code == 202
            await work_off(place)
            yield World(place, client)


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


def values() -> Iterator[str]:
    """Yield what an attacker may write as a parameter, quoted."""
    for text in (*NUMBERS, *TIMES, *TEXTS, *IDS, "zz" * 16, "0" * 32):
        yield quote(text, safe="")
    for text in POSITIONS:
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
    """Yield requests that have one bad parameter each, or two that belong together."""
    plain = path.replace("{", "").replace("}", "")
    for value in values():
        for name in in_path:
            yield path.replace("{" + name + "}", value).replace("{", "").replace("}", "")
        for name in in_query:
            yield f"{plain}?{name}={value}"
    if "revision" in in_query and "profile" in in_query:
        yield from (f"{plain}?profile=p&revision={value}" for value in values())


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
    paged = [path for path, _, in_query in await questions(world) if "cursor" in in_query]
    assert len(paged) >= 5
    for path in paged:
        text = cursor(position)
        answer = await world.client.get(path, params={"cursor": text})
        if answer.status_code == 200:  # where names are in order, any text is a place between them
            assert path not in ("/v1/decisions", "/v1/deadletters"), (path, position)
            continue
        assert (answer.status_code, answer.json()["error"]["path"]) == (422, "cursor"), (path, position)
