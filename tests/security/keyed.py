"""An API over a ledger in memory, and clients of it that show keys of different scope."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
from fastapi import FastAPI

from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.log import MemoryLog
from services.adapters.memory.store import MemoryStore
from services.api.accesses import AccessLog
from services.api.app import create_app
from services.api.auth import Gate
from services.api.deps import Deps
from services.api.health import Lookout
from services.api.keys import key_hash
from services.api.live import StreamLimits
from services.codec.gateway import Appender, Gateway
from services.metrics import ApiMetrics, process_registry
from services.ports.log import TopicPartition, topic_specs
from services.ports.store import Grant
from tests.contract.ledgers import ManualClock

SHORT = StreamLimits(seconds_max=0.1)
"""The client here reads each answer to its end, also that of a stream."""


class House:
    """One API: its ledger, its log, and a client that shows the key whose text is the holder's name."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        self.store = MemoryStore(self.database)
        self.log = MemoryLog(ManualClock())
        self.seconds = 1000.0
        self.app: FastAPI
        self.client: httpx.AsyncClient
        self.accesses: AccessLog

    async def key(self, name: str, roles: Sequence[str], **scope: Any) -> None:
        """Make a key whose text is its name."""
        await self.store.callers.create_key(key_hash(name), Grant(name, roles, **scope))

    async def ask(self, key: str | None, method: str, target: str, **how: Any) -> httpx.Response:
        """Send a request with a key."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return await self.client.request(method, target, headers=headers, **how)

    async def send(self, key: str | None, *events: Any, **params: Any) -> httpx.Response:
        """Send events with a key."""
        return await self.ask(key, "POST", "/v1/events", json=list(events), params=params)

    def keys_of(self, topic: str) -> list[str]:
        """Return the keys of a topic's records, in order."""
        return [(each.key or b"").decode() for each in self.log.partition(TopicPartition(topic, 0)).records]

    def count_lookups(self) -> Callable[[], int]:
        """Count look-ups of keys from now on; return what tells the count."""
        looked_up: list[bytes] = []
        look_up = self.store.callers.grant

        async def counted(key_hash: bytes) -> Grant | None:
            looked_up.append(key_hash)
            return await look_up(key_hash)

        self.store.callers.grant = counted  # type: ignore[method-assign]
        return lambda: len(looked_up)

    def routes(self) -> set[tuple[str, str]]:
        """Return the method and the path of every route, those of included routers too."""
        todo: list[Any] = list(self.app.routes)
        found = set()
        for each in todo:  # which grows
            todo += each.original_router.routes if hasattr(each, "original_router") else ()
            methods = getattr(each, "methods", None) or {"GET"}
            found |= {(method, each.path) for method in methods - {"HEAD"} if hasattr(each, "path")}
        return found


@contextlib.asynccontextmanager
async def keyed_house(
    database: MemoryDatabase | None = None, streams: StreamLimits = SHORT, *, keys_required: bool = True
) -> AsyncIterator[House]:
    """Open an API that asks for keys (or not until one is made), over an empty ledger or that of a worker."""
    house = House(database or MemoryDatabase(1))
    await house.log.ensure_topics(topic_specs(len(house.database.shards)))
    gate = Gate(house.store, keys_required=keys_required, clock=lambda: house.seconds)
    lookout = Lookout(house.store, house.log, lambda *_: "")
    appender = Appender(await house.log.writer(), house.store.callers.seal_secret)
    metrics = ApiMetrics(process_registry())
    house.accesses = AccessLog(house.store.callers, metrics)
    house.app = create_app(
        Deps(
            house.store,
            house.log,
            appender,
            gate,
            Gateway(),
            metrics,
            lookout,
            house.accesses,
            streams=streams,
        )
    )
    transport = httpx.ASGITransport(house.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as house.client:
        yield house
