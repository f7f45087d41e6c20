"""A ledger that a real worker filled, and clients of the API on it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import asyncpg
import httpx
import msgspec

from services import bootstrap
from services.api.keys import key_hash
from services.bootstrap import Place
from services.cli.demo import log_ends, settled
from services.config import Settings
from services.metrics import process_registry
from services.ports.log import TopicPartition
from services.ports.store import Grant
from tests.servers import create_migrated, with_database

Client = httpx.AsyncClient
AT = "2024-05-01T10:00:00Z"
LATER = "2024-05-01T11:00:00Z"


class World(NamedTuple):
    """A ledger, and clients of the API on it."""

    place: Place
    client: Client


@contextlib.asynccontextmanager
async def fresh_database(server: str, *, migrated: bool = False) -> AsyncIterator[Place]:
    """Make a database of its own on a server, empty or with all tables, which takes less than to lay them."""
    name = f"api_{uuid.uuid4().hex[:12]}"
    connection = await asyncpg.connect(server)
    if migrated:
        await create_migrated(server, name)
    else:
        await connection.execute(f"CREATE DATABASE {name}")
    try:
        yield Place(with_database(server, name), None)
    finally:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await connection.close()


@contextlib.asynccontextmanager
async def client_of(place: Place, **how: bool | str | Settings) -> AsyncIterator[Client]:
    """Open a client of the API; ``how`` as ``bootstrap.open_app``."""
    told: dict[str, Any] = {"keys_required": False, **how}
    async with bootstrap.open_app(place, **told) as app:
        live = app.state.live  # this client reads each answer to its end, also that of a stream
        live.allowed = live.allowed._replace(seconds_max=0.3)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with Client(transport=transport, base_url="http://berth") as client:
            yield client


async def query(place: Place, text: str, *values: Any) -> list[Any]:
    """Run a statement as an operator would."""
    connection = await asyncpg.connect(place.dsn)
    try:
        return list(await connection.fetch(text, *values))
    finally:
        await connection.close()


async def work_off(place: Place) -> None:
    """Run a worker and a relay until all of the log took effect and is published."""
    settings = Settings(worker_name="test", seed=7)
    running = [
        asyncio.create_task(bootstrap.run_worker(place, settings, process_registry())),
        asyncio.create_task(bootstrap.run_relay(place, settings, process_registry())),
    ]
    store = bootstrap.open_store(place)
    ends = await ends_of(place)

    async def published() -> bool:
        return all(row.decisions_seq == row.seq_next - 1 for row in await store.processes.shards())

    try:
        async with asyncio.timeout(120):
            while not (await settled(store, ends) and await published()):
                for task in running:
                    assert not task.done(), task.result()
                await asyncio.sleep(0.05)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await store.aclose()


def checked(answer: Any, model: type[msgspec.Struct]) -> Any:
    """Return an answer that has the fields of its documented shape, and no others."""
    assert msgspec.to_builtins(msgspec.convert(answer, model)) == answer
    return answer


async def answer_of(world: World, target: str, model: type[msgspec.Struct], **params: Any) -> Any:
    """Return an answer after checking it against its documented shape."""
    answer = await world.client.get(target, params=params)
    assert answer.status_code == 200, answer.text
    return checked(answer.json(), model)


async def all_items(world: World, target: str, model: type[msgspec.Struct], **params: Any) -> list[Any]:
    """Walk all pages of a list."""
    items: list[Any] = []
    cursor: str | None = None
    for _ in range(100):
        page = {**params, "cursor": cursor} if cursor else params
        found = await answer_of(world, target, model, **page)
        items += found["items"]
        cursor = found["next"]
        if cursor is None:
            return items
    raise AssertionError("the pages do not end")


async def ends_of(place: Place) -> dict[TopicPartition, int]:
    """Return how many records each state partition holds."""
    log = bootstrap.open_log(place)
    try:
        return await log_ends(log)
    finally:
        await log.aclose()


@contextlib.asynccontextmanager
async def keyed_world(
    server: str, keys: Mapping[str, Grant], admin: str, *batches: Any
) -> AsyncIterator[World]:
    """Let a worker take lists of events, one after another; the client shows the key ``admin``."""
    async with fresh_database(server, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        async with client_of(place, keys_required=True) as client:
            client.headers["Authorization"] = f"Bearer {admin}"
            store = bootstrap.open_store(place)
            for key, grant in {**keys, admin: Grant("all", ["admin"])}.items():
                await store.callers.create_key(key_hash(key), grant)
            await store.aclose()
            for events in batches:
                answer = await client.post("/v1/events", json=events)
                assert answer.status_code == 202, answer.text
                await work_off(place)
            yield World(place, client)
