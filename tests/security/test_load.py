"""Is the API there for all, when somebody asks for more than it can answer?"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import asyncpg
import httpx
import pytest
import pytest_asyncio
import sqlalchemy as sa

from domain.model.errors import Unavailable
from services import bootstrap
from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.processes import PostgresProcesses
from services.adapters.postgres.store import PostgresStore
from services.api import health
from services.api.health import Lookout
from services.bootstrap import Place
from services.config import Settings
from services.ports.store import Rows
from services.serving import serve_http
from tests.builders import event, node_manifest
from tests.integration.api_world import AT, fresh_database

READ_SECONDS = 3
LISTS = 2


@pytest_asyncio.fixture(scope="module")
async def place(embedded_dsn: str) -> AsyncIterator[Place]:
    """Return a ledger that is laid down."""
    async with fresh_database(embedded_dsn) as found:
        await bootstrap.initialise(found, 1)
        yield found


@pytest_asyncio.fixture
async def url(place: Place) -> AsyncIterator[str]:
    """Return the address of an API that allows few lists and little time."""
    settings = Settings(api_read_seconds=READ_SECONDS, api_lists_at_once=LISTS)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with bootstrap.open_app(place, keys_required=False, settings=settings) as app:
            serving = asyncio.create_task(serve_http(app, [listening]))
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every list of decisions take half a minute."""

    async def sleep(store: PostgresStore, *_: Any) -> Rows[Any]:
        await store._engine.rows(sa.text("SELECT pg_sleep(30)"), Pool.LISTS)
        return Rows()

    monkeypatch.setattr(PostgresStore, "decisions", sleep)


async def sleeping(place: Place) -> int:
    """Return how many of the slow queries run."""
    connection = await asyncpg.connect(place.dsn)
    try:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(30)'"
        )
        return int(await connection.fetchval(query))
    finally:
        await connection.close()


async def until_sleeping(place: Place, count: int, seconds: float = 5) -> None:
    """Wait until so many slow queries run."""
    async with asyncio.timeout(seconds):
        while await sleeping(place) != count:
            await asyncio.sleep(0.05)


async def test_slow_lists_make_nobody_wait_but_lists(place: Place, url: str, slow: None) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        await client.get("/readyz")
        asked = [asyncio.create_task(client.get("/v1/decisions")) for _ in range(12)]
        await until_sleeping(place, LISTS)
        post = [event("ADDED", node_manifest("n1"), AT, "n1")]
        for method, target, body in (
            ("POST", "/v1/events", post),
            ("GET", "/healthz", None),
            ("GET", "/readyz", None),
            ("GET", "/metrics", None),
            ("GET", "/v1/shards", None),
            ("GET", "/v1/profiles/default-scheduler", None),
            ("GET", "/v1/decisions/0-1", None),
        ):
            answer = await client.request(method, target, json=body)
            known = (503,) if target == "/readyz" else (404,) if target.endswith("0-1") else (200, 202)
            assert answer.status_code in known, (target, answer.text)
        assert await sleeping(place) == LISTS, "all that was while the lists were taken"
        codes = []
        for answer in await asyncio.gather(*asked):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            codes.append(answer.json()["error"]["code"])
        assert codes.count("too-slow") == LISTS
        assert codes.count("busy") == 12 - LISTS
        slow_one = next(found.result() for found in asked if "too-slow" in found.result().text)
        assert "narrow the question" in slow_one.text


async def test_the_query_of_a_client_that_leaves_ends(place: Place, url: str, slow: None) -> None:
    port = int(url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/decisions HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await until_sleeping(place, 1)
    writer.close()
    await until_sleeping(place, 0)
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        assert (await client.get("/v1/nodes")).status_code == 200
        counted = (await client.get("/metrics")).text
        assert 'status="499"' in counted, "it was ended, and did not time out"


# ------------------------------------------------------------------------------------------------ readiness


class Counting:
    """A log that counts how often it is asked, and may be silent."""

    def __init__(self) -> None:
        self.asked, self.silent = 0, False

    async def backlogs(self, positions: Mapping[Any, int]) -> Mapping[Any, Any]:
        """See ``ports.Log``."""
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        raise Unavailable("no such topic")


async def lookout_of(place: Place, log: Any) -> tuple[Lookout, PostgresStore]:
    """Return a lookout on the ledger and this log."""
    store = PostgresStore(Engine(place.dsn))
    return Lookout(store, log, lambda *_: ""), store


async def test_however_many_ask_and_leave_there_is_one_look_in_a_second(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.5)
    log = Counting()
    lookout, store = await lookout_of(place, log)
    await asyncio.gather(*(lookout.look() for _ in range(200)))
    assert log.asked == 1
    log.silent = True
    await asyncio.sleep(health.LOOK_SECONDS)
    for _ in range(20):  # each goes away before it has its answer
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(lookout.look(), 0.01)
    assert log.asked == 2
    await lookout.aclose()
    await store.aclose()


async def test_a_silent_log_is_named_in_time_and_makes_nobody_else_wait(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.5)
    log = Counting()
    log.silent = True
    lookout, store = await lookout_of(place, log)
    condition = await lookout.look()
    assert condition.checks["log"] == "the log does not answer within 0.5 s"
    await asyncio.sleep(health.LOOK_SECONDS)
    async with asyncio.timeout(0):  # it is there at once
        assert (await lookout.glance()).checks["log"] == condition.checks["log"]
    assert log.asked == 1
    await asyncio.sleep(0.1)
    assert log.asked == 2, "but somebody looks"
    await lookout.aclose()
    await store.aclose()


async def test_a_silent_ledger_is_named_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.3)

    async def silent(_: PostgresProcesses) -> Sequence[Any]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(PostgresProcesses, "offsets", silent)
    lookout, store = await lookout_of(place, Counting())
    condition = await lookout.look()
    assert condition.checks == {"database": "the ledger does not answer within 0.3 s"}
    await store.aclose()
