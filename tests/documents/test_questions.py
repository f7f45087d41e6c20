"""Does each of the twelve questions of docs/audit.md have an answer, by HTTP and by SQL?"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import asyncpg
import httpx
import pytest
import pytest_asyncio

from services import bootstrap
from tests.builders import event, node_manifest, pod_manifest
from tests.documents.commands import REPOSITORY
from tests.integration.api_world import World, client_of, fresh_database, work_off

PAGE = (REPOSITORY / "docs" / "audit.md").read_text()


class Question(NamedTuple):
    """A question, and how it is asked."""

    text: str
    command: str
    path: str
    sql: str


def questions() -> list[Question]:
    """Return the questions of the page."""
    part = PAGE.split("## Twelve questions, three ways")[1].split("### Beside others")[0]
    found = re.findall(r"\*\*(.+?)\*\*\n\n    (berth .+)\n    GET (.+)\n    (SELECT .+)\n", part)
    return [Question(*each) for each in found]


QUESTIONS = questions()


def test_there_are_twelve() -> None:
    assert len(QUESTIONS) == 12


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    """Return a ledger in which a pod had to leave, others wait, and objects are in force."""
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    first = [
        event("ADDED", urgent | {"value": 1000}),
        event("ADDED", node_manifest("node-a", cpu="2", memory="4Gi")),
        event("ADDED", pod_manifest("web-0", cpu="500m")),
        event("ADDED", pod_manifest("low", cpu="1500m")),
        event("ADDED", pod_manifest("openb-pod-1639", "openb", cpu="64")),
    ]
    preemptor = pod_manifest("first", cpu="1500m")
    preemptor["spec"]["priorityClassName"] = "urgent"
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        async with client_of(place) as client:
            for events in (first, [event("ADDED", preemptor)]):
                assert (await client.post("/v1/events", json=events)).status_code == 202
                await work_off(place)
            await asyncio.sleep(1.1)  # it was so a second ago
            yield World(place, client)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
async def test_each_is_answered_by_http_and_by_sql(world: World, question: Question) -> None:
    answer = await world.client.get(question.path)
    assert answer.status_code == 200, answer.text
    *before, last = question.sql.split("; ")
    connection = await asyncpg.connect(world.place.dsn)
    try:
        for statement in before:
            await connection.execute(statement)
        rows = await connection.fetch(last)
    finally:
        await connection.close()
    body = answer.json()
    if "items" in body:
        if "usage" not in question.path:  # what was decided just now is counted a little later
            assert bool(body["items"]) == bool(rows)
    else:
        assert rows, question.text
    assert httpx.URL(question.path).path.startswith("/v1/")


def test_its_commands_are_those_of_the_page() -> None:
    """They run with all others in ``test_commands.py``."""
    assert all(f"    {question.command}\n" in PAGE for question in QUESTIONS)
