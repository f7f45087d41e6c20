"""A worker, a relay and an API on a ledger of their own, served on loopback for clients of both kinds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import uvicorn

from services import bootstrap
from services.bootstrap import Place
from services.config import Settings
from services.metrics import process_registry
from tests.integration.api_world import fresh_database

OWNER_KEY = "berth_" + "0" * 43
"""Manages keys, as the owner of an instance does; whoever shows none may do all else."""

T = TypeVar("T")


def node(name: str, cpu: str = "640", **more: Any) -> dict[str, Any]:
    """Return the manifest of a node."""
    offers = {"cpu": cpu, "memory": "256Gi", "pods": "4096"}
    return {"kind": "Node", "metadata": {"name": name, **more}, "status": {"allocatable": offers}}


def pod(name: str, namespace: str = "shop", cpu: str = "10m") -> dict[str, Any]:
    """Return the manifest of a pod."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"namespace": namespace, "name": name}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="a loop of its own")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something to its end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextlib.asynccontextmanager
async def working(place: Place) -> AsyncIterator[None]:
    """Run a worker and a relay on a ledger."""
    settings = Settings(worker_name="test", seed=7)
    running = [
        asyncio.create_task(bootstrap.run_worker(place, settings, process_registry())),
        asyncio.create_task(bootstrap.run_relay(place, settings, process_registry())),
    ]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        app.state.live.stop()
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def _world(server: str) -> AsyncIterator[str]:
    async with fresh_database(server, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        async with (
            working(place),
            bootstrap.open_app(place, keys_required=False, owner_key=OWNER_KEY) as app,
            serving(app) as url,
        ):
            yield url


@contextlib.contextmanager
def world(server: str) -> Iterator[str]:
    """Serve a ledger that is empty, and a worker on it; give the address of the API."""
    loop = Loop()
    opened = _world(server)
    try:
        url = loop.run(opened.__aenter__())
        try:
            yield url
        finally:
            loop.run(opened.__aexit__(None, None, None))
    finally:
        loop.close()


class Blocked:
    """What awaits, used as if it blocked: so one scenario is told to both kinds of client."""

    def __init__(self, loop: Loop, thing: Any) -> None:
        self._loop, self._thing = loop, thing

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, {"close": "aclose"}.get(name, name))
        return self._call(found) if callable(found) else self._blocked(found)

    def _call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            answer = method(*given, **named)
            return self._blocked(self._loop.run(answer) if asyncio.iscoroutine(answer) else answer)

        return call

    def _blocked(self, answer: Any) -> Any:
        awaits = hasattr(answer, "__aiter__") or type(answer).__module__.startswith("berth.client._async")
        return Blocked(self._loop, answer) if awaits else answer

    def __iter__(self) -> Iterator[Any]:
        steps = aiter(self._thing)
        while True:
            try:
                yield self._loop.run(anext(steps))
            except StopAsyncIteration:
                return

    def __next__(self) -> Any:
        return self._loop.run(anext(self._thing))

    def __enter__(self) -> Blocked:
        self._loop.run(self._thing.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._thing.__aexit__(*error))
