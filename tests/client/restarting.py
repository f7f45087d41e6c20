"""An API that is ended and begun again on the same port, while a worker and a relay work on its ledger."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from typing import Any

import uvicorn

from services import bootstrap
from services.bootstrap import Place
from tests.client.world import Loop, working
from tests.integration.api_world import fresh_database, query

PORT_FIRST, PORT_LAST = 20_000, 29_999
_BIND_TRIES_MAX = 100


class Server:
    """An API on one port: begun, told to end, and killed, as often as it takes."""

    def __init__(self, place: Place, port: int) -> None:
        self.place, self.port = place, port
        self._stack = contextlib.AsyncExitStack()
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._app: Any = None

    async def begin(self) -> None:
        """Serve a new application, which has nothing in memory of the one before."""
        self._app = await self._stack.enter_async_context(bootstrap.open_app(self.place, keys_required=False))
        config = uvicorn.Config(
            self._app, host="127.0.0.1", port=self.port, lifespan="off", log_level="critical"
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.005)

    async def kill(self) -> None:
        """Break all connections at once, and leave what is done for them where it is."""
        assert self._server is not None
        for listening in self._server.servers:
            listening.close()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        for task in list(self._server.server_state.tasks):
            task.cancel()
        self._server.force_exit = True
        await self._ended()

    async def stop(self) -> None:
        """End as a process does that is told to: what is asked is answered, streams are told."""
        self._app.state.live.stop()
        await self._ended()

    async def _ended(self) -> None:
        assert self._server is not None
        assert self._serving is not None
        self._server.should_exit = True
        await self._serving
        await self._stack.aclose()


class Restarts:
    """The API for threads that are no part of its loop, and how often it was ended.

    Attributes
    ----------
    url : str
        Its address, which stays.
    kills_count, stops_count : int
        How often it was killed, and told to end.
    """

    def __init__(self, loop: Loop, server: Server) -> None:
        self._loop, self._server = loop, server
        self.url = f"http://127.0.0.1:{server.port}"
        self.kills_count = self.stops_count = 0

    def weather(self, seed: int, ends_count: int) -> None:
        """End the API so many times at moments that a seed draws, and begin it again."""
        self._loop.run(self._weather(random.Random(seed), ends_count))

    async def _weather(self, rng: random.Random, ends_count: int) -> None:
        for _ in range(ends_count):
            await asyncio.sleep(rng.uniform(0.1, 0.7))
            if rng.random() < 0.7:
                await self._server.kill()
                self.kills_count += 1
            else:
                await self._server.stop()
                self.stops_count += 1
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            await self._server.begin()

    def query(self, text: str, *values: Any) -> list[Any]:
        """Ask the database of the ledger."""
        return self._loop.run(query(self._server.place, text, *values))

    def decisions_by_pod(self, namespace: str) -> dict[str, int]:
        """Return how many decisions the ledger has of each pod of a namespace."""
        text = "SELECT name, count(*) AS count FROM decisions WHERE namespace = $1 GROUP BY name"
        return {row["name"]: row["count"] for row in self.query(text, namespace)}

    def records_by_pod(self, namespace: str) -> dict[str, int]:
        """Return how many records the log has of each pod of a namespace."""
        text = (
            "SELECT convert_from(key, 'UTF8') AS key, count(*) AS count FROM log_records "
            "WHERE topic = 'berth.pods' AND position($1::bytea IN key) > 0 GROUP BY key"
        )
        rows = self.query(text, f"{namespace}/".encode())
        return {row["key"].rpartition("/")[2]: row["count"] for row in rows}


async def _begun(place: Place) -> Server:
    """Serve on a port below those that the system gives to others while the API is away."""
    for _ in range(_BIND_TRIES_MAX):
        port = random.randint(PORT_FIRST, PORT_LAST)
        try:
            probe = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        except OSError:
            continue
        probe.close()
        await probe.wait_closed()
        server = Server(place, port)
        await server.begin()
        return server
    raise AssertionError("no port is free")


@contextlib.contextmanager
def restarting(server: str) -> Iterator[Restarts]:
    """Serve a ledger that is empty, and a worker on it, which stays."""
    loop = Loop()

    async def opened(stack: contextlib.AsyncExitStack) -> Restarts:
        place = await stack.enter_async_context(fresh_database(server, migrated=True))
        await bootstrap.initialise(place, 1)
        await stack.enter_async_context(working(place))
        api = await _begun(place)
        stack.push_async_callback(api.stop)
        return Restarts(loop, api)

    stack = contextlib.AsyncExitStack()
    try:
        try:
            yield loop.run(opened(stack))
        finally:
            loop.run(stack.aclose())
    finally:
        loop.close()
