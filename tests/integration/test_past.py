"""Does the API tell what was, by time and by batch, on a ledger that a real worker filled?"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from services import bootstrap
from services.api import answers, field, gangs, past
from services.api.formats import instant
from services.config import Settings
from tests.builders import event, node_manifest, pod_manifest
from tests.integration.api_world import (
    Client,
    World,
    answer_of,
    checked,
    client_of,
    fresh_database,
    query,
    work_off,
)


class Told(NamedTuple):
    """What the API answered right after some events were folded, and the last batch by then."""

    batch: str
    answers: dict[str, Any]


LISTS: dict[str, type[msgspec.Struct]] = {
    "/v1/nodes": answers.NodePage,
    "/v1/pods": answers.PodPage,
    "/v1/pending": answers.PendingPage,
    "/v1/gangs": gangs.GangPage,
    "/v1/config": answers.ConfigPage,
    "/v1/totals": past.Totals,
    "/v1/field": field.Field,
    "/v1/nodes/n1": answers.NodeDetail,
    "/v1/pods/default/web-0": answers.PodDetail,
}
QUIETS = (
    *("version", "resource_version", "tried_at", "cycle", "at"),
    *("waits_seconds", "attempts", "groups_before", "pods_before"),
)
"""What is not kept of the past, or says which moment it is."""


def quiet(value: Any) -> Any:
    """Return an answer without what is not kept of the past."""
    if isinstance(value, list):
        return [quiet(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: quiet(each) for key, each in value.items() if key not in QUIETS}


async def ask(client: Client, at: str | None = None) -> dict[str, Any]:
    """Return what the lists answer, of now or of then."""
    found = {}
    for path, model in LISTS.items():
        answer = await client.get(path, params={"at": at} if at else {})
        found[path] = quiet(checked(answer.json(), model)) if answer.status_code == 200 else {}
    return found


STEPS: list[list[dict[str, Any]]] = [
    [event("ADDED", node_manifest("n1", cpu="2", memory="4Gi"))],
    [event("ADDED", pod_manifest(f"web-{i}", cpu="700m", labels={"app": "web"})) for i in range(4)],
    [
        event("ADDED", node_manifest("n2", cpu="1", memory="4Gi")),
        event("ADDED", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}),
    ],
    [event("DELETED", pod_manifest("web-0", cpu="700m"))],
    [
        event("MODIFIED", node_manifest("n1", cpu="4", memory="4Gi", labels={"zone": "a"}, version=9)),
        event("DELETED", node_manifest("n2", cpu="1", memory="4Gi", version=9)),
    ],
]


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[tuple[World, list[Told]]]:
    """Return a ledger that was filled in steps, and what was told after each."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        told = []
        async with client_of(place) as client:
            for step in STEPS:
                assert (await client.post("/v1/events", json=step)).status_code == 202
                await work_off(place)
                ((shard, batch),) = await query(
                    place, "SELECT shard, batch FROM journal ORDER BY position DESC LIMIT 1"
                )
                told.append(Told(f"batch:{shard}:{batch}", await ask(client)))
            yield World(place, client), told


async def test_each_answer_is_as_it_was(world: tuple[World, list[Told]]) -> None:
    (_, client), told = world
    for batch, then in told:
        now = await ask(client, batch)
        for path, was in then.items():
            if was and path == "/v1/nodes/n1":  # what was measured and done there is not kept
                was = was | {"usage": None, "heat": None, "actions": [], "moves": []}
            assert now[path] == was, (batch, path)


async def test_a_time_and_an_age_are_moments(world: tuple[World, list[Told]]) -> None:
    (place, client), told = world
    ((at_ms,),) = await query(place, "SELECT max(log_time_ms) FROM journal")
    time = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).isoformat()
    assert (await ask(client, time))["/v1/totals"] == told[-1].answers["/v1/totals"]
    assert (await ask(client, "now"))["/v1/totals"] == told[-1].answers["/v1/totals"]
    empty = await answer_of(World(place, client), "/v1/totals", past.Totals, at="1h")
    assert (empty["nodes"], empty["bound"], empty["at"]) == (0, 0, None)


async def test_a_moment_is_told_and_where_records_begin(world: tuple[World, list[Told]]) -> None:
    (place, client), told = world
    times = [ms for (ms,) in await query(place, "SELECT log_time_ms FROM journal ORDER BY position")]
    batch = await answer_of(World(place, client), "/v1/moment", past.Looked, at=told[-1].batch)
    assert batch == {"at": instant(max(times)), "log_time": instant(max(times)), "begins": None}
    late = await answer_of(World(place, client), "/v1/moment", past.Looked, at="2999-01-01")
    assert (late["at"], late["log_time"]) == ("2999-01-01T00:00:00.000Z", instant(max(times)))
    early = await answer_of(World(place, client), "/v1/moment", past.Looked, at="2001-01-01T00:00:00+01:00")
    assert early == {"at": "2000-12-31T23:00:00.000Z", "log_time": None, "begins": instant(times[0])}


@pytest.mark.parametrize(
    ("at", "status", "code"),
    [
        ("0:99999", 410, "out-of-reach"),
        ("77:123", 410, "out-of-reach"),
        ("yesterday", 422, "invalid-field"),
        ("batch:0:", 422, "invalid-field"),
        ("0:99999999999999999999", 422, "invalid-field"),
    ],
)
async def test_what_is_no_moment_is_refused(
    world: tuple[World, list[Told]], at: str, status: int, code: str
) -> None:
    (_, client), _ = world
    for path in LISTS:
        answer = await client.get(path, params={"at": at})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


async def test_what_differs_between_two_moments(world: tuple[World, list[Told]]) -> None:
    (place, client), told = world
    found = await answer_of(
        World(place, client), "/v1/diff", past.Diff, **{"from": told[1].batch, "until": told[-1].batch}
    )
    pods = {each["name"]: (each["change"], each["before"], each["after"]) for each in found["pods"]}
    assert pods["web-0"] == ("gone", "n1", None)
    assert {change for change, _, _ in pods.values()} == {"gone", "placed"}
    nodes = {each["name"]: each for each in found["nodes"]}
    assert nodes["n1"]["change"] == "changed"
    assert nodes["n1"]["fields"]["allocatable"]["before"]["cpu"] == "2"
    assert nodes["n1"]["fields"]["allocatable"]["after"]["cpu"] == "4"
    assert nodes["n1"]["fields"]["labels"]["after"]["zone"] == "a"
    assert "n2" not in nodes, "it came and went between them"
    assert (found["before"]["pending"], found["after"]["pending"], found["more"]) == (2, 0, False)
    back = (await client.get("/v1/diff", params={"from": told[-1].batch, "until": told[1].batch})).json()
    assert back == found, "the earlier moment is the first one"
    same = (await client.get("/v1/diff", params={"from": told[1].batch, "until": told[1].batch})).json()
    assert (same["pods"], same["nodes"]) == ([], [])


async def test_an_auditor_sees_the_past_in_sql(world: tuple[World, list[Told]]) -> None:
    (place, _), _ = world
    counted = "SELECT count(*) AS nodes, (SELECT count(*) FROM pending) AS waits FROM nodes WHERE NOT deleted"
    connection = await asyncpg.connect(place.dsn)
    try:
        assert tuple(await connection.fetchrow(counted)) == (1, 0)
        await connection.fetchval("SELECT past.as_of(now() - interval '1 hour')")
        assert tuple(await connection.fetchrow(counted)) == (0, 0)
        await connection.fetchval("SELECT past.as_of(now())")
        assert tuple(await connection.fetchrow(counted)) == (1, 0)
    finally:
        await connection.close()


async def test_a_replica_answers_about_the_past_alone(world: tuple[World, list[Told]]) -> None:
    (place, _), _ = world
    store = bootstrap.open_store(place, Settings(replica_dsn="postgresql://nobody@127.0.0.1:1/none"))
    try:
        assert len(await store.nodes(10, None, None)) == 1
        with pytest.raises(Exception, match="does not answer"):
            await store.past.moment(10**13)
    finally:
        await store.aclose()
