"""A small cluster with a worker, a relay and an API on a port, which a browser looks at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import httpx
import uvicorn

from ops.kafka import free_port
from services import bootstrap
from services.api.keys import key_hash
from services.bootstrap import Place
from services.cli.demo import settled
from services.config import Settings
from services.metrics import process_registry
from services.ports.store import Grant
from tests.builders import event, node_manifest, pod_manifest
from tests.integration.api_world import ends_of, fresh_database, query

ZONE = "topology.kubernetes.io/zone"
BOSS, TEAM = "boss-key-of-the-tests", "team-key-of-the-tests"
"""Texts of two keys: an admin's, and one that sees the namespace ``shop`` alone."""
SECRET = "walrus"
"""Part of all names of the namespace that the second key does not see."""


Steps = Sequence[tuple[int, Sequence[dict[str, Any]]]]
"""How many minutes ago what happened."""


def history() -> Steps:
    """Return how many minutes ago what happened: nodes and pods on them, more nodes, and pods that wait."""
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    first = [
        *(node_manifest(f"n{i}", cpu="4", memory="16Gi", labels={ZONE: "ab"[i % 2]}) for i in range(4)),
        *(pod_manifest(f"web-{i}", "shop", cpu="1", memory="1Gi", labels={"app": "web"}) for i in range(6)),
        pod_manifest(f"{SECRET}-0", SECRET, cpu="1", memory="1Gi"),
    ]
    later = [
        node_manifest("n4", cpu="8", memory="32Gi", labels={ZONE: "c"}, taints=[taint]),
        node_manifest("n5", cpu="8", memory="32Gi", labels={ZONE: "c"}, unschedulable=True),
        pod_manifest("cart-0", "shop", cpu="2", memory="8Gi"),
    ]
    huge = [
        *(pod_manifest(f"huge-{i}", "shop", cpu="7", memory="1Gi") for i in range(2)),
        pod_manifest(f"{SECRET}-huge", SECRET, cpu="60", memory="1Gi"),
    ]
    steps = ((60, first), (20, later), (0, huge))
    return [(minutes, [event("ADDED", each) for each in things]) for minutes, things in steps]


_DATE_BACK = "UPDATE journal SET log_time_ms = log_time_ms - $1 WHERE position > $2"


class Site(NamedTuple):
    """Where the console is, and how events get there."""

    url: str
    place: Place
    client: httpx.AsyncClient

    async def send(self, events: Sequence[dict[str, Any]]) -> None:
        """Send events, and wait until they took effect."""
        answer = await self.client.post("/v1/events", json=list(events))
        assert answer.status_code == 202, answer.text
        store, ends = bootstrap.open_store(self.place), await ends_of(self.place)
        try:
            async with asyncio.timeout(120):
                while not await settled(store, ends):
                    await asyncio.sleep(0.05)
        finally:
            await store.aclose()

    async def add_node(self, name: str) -> None:
        """Let a node come."""
        await self.send([event("ADDED", node_manifest(name, labels={ZONE: "c"}))])

    async def remove_node(self, name: str) -> None:
        """Let a node go."""
        await self.send([event("DELETED", node_manifest(name, labels={ZONE: "c"}))])


@contextlib.asynccontextmanager
async def open_site(server_dsn: str, steps: Steps | None = None) -> AsyncIterator[Site]:
    """Run a worker, a relay and an API on a database of their own, and let what happened happen.

    ``steps`` are as of ``history``, which they are where there are none.
    """
    settings = Settings(worker_name="browsed", seed=7)
    async with fresh_database(server_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        await _make_keys(place)
        running = [
            asyncio.create_task(bootstrap.run_worker(place, settings, process_registry())),
            asyncio.create_task(bootstrap.run_relay(place, settings, process_registry())),
        ]
        try:
            async with _serving(place) as url, httpx.AsyncClient(base_url=url) as client:
                client.headers["Authorization"] = f"Bearer {BOSS}"
                site = Site(url, place, client)
                for minutes, events in history() if steps is None else steps:
                    ((before,),) = await query(place, "SELECT coalesce(max(position), 0) FROM journal")
                    await site.send(events)
                    await query(place, _DATE_BACK, minutes * 60_000, before)
                yield site
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _make_keys(place: Place) -> None:
    store = bootstrap.open_store(place)
    try:
        await store.callers.create_key(key_hash(BOSS), Grant("boss", ("admin",)))
        team = Grant("shop-team", ("producer", "auditor"), namespaces=("shop",))
        await store.callers.create_key(key_hash(TEAM), team)
    finally:
        await store.aclose()


@contextlib.asynccontextmanager
async def _serving(place: Place) -> AsyncIterator[str]:
    """Serve the API on a port of loopback, where it asks for keys."""
    port = free_port()
    async with bootstrap.open_app(place, keys_required=True) as app:
        server = uvicorn.Server(
            uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", lifespan="off")
        )
        serving = asyncio.create_task(server.serve())
        try:
            async with asyncio.timeout(30):
                while not server.started:
                    await asyncio.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            app.state.live.stop()  # streams that are open would keep the server
            server.should_exit = True
            await serving
