"""The real servers of one day: a broker, a database with a replica, and two proxies for each process."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from ops.kafka import KafkaServer
from ops.postgres import PostgresServer
from services.bootstrap import Place
from tests.chaos.proxy import Proxy

_REPLICATED = {
    "wal_level": "replica",
    "max_wal_senders": "4",
    "wal_retrieve_retry_interval": "200ms",
    "max_connections": "80",
}


def _ports(count: int) -> list[int]:
    """Return ports that nobody uses, from below those that the system gives to clients.

    A client could else take the port of a server that is stopped for a while.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randint(10_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found += [] if port in found else [port]
    return found


class Way(NamedTuple):
    """How one process reaches the servers."""

    kafka: Proxy
    postgres: Proxy
    place: Place


def with_port(dsn: str, port: int) -> str:
    """Return the address of the same database behind another port."""
    parts = urllib.parse.urlsplit(dsn)
    who, _, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{who}@127.0.0.1:{port}").geturl()


class Servers:
    """Servers that the weather stops and starts; all of its methods wait until they answer again."""

    def __init__(self, folder: Path, ways: int) -> None:
        self._folder = folder
        kafka, self._port, self._replica_port, *ports = _ports(3 + 3 * ways)
        listeners = dict(zip(ports[:ways], ports[ways : 2 * ways], strict=True))
        self.kafka = KafkaServer(folder / "kafka", kafka, proxied=listeners)
        self._primary = PostgresServer(folder / "first", self._port, _REPLICATED)
        self._replica: PostgresServer | None = None
        self.dsn = ""
        self._kafka_proxies = [Proxy(told, own) for own, told in listeners.items()]
        self._postgres_proxies = [Proxy(port, self._port) for port in ports[2 * ways :]]
        self.fail_overs_count = 0

    @property
    def place(self) -> Place:
        """Where the servers are for who is not to be cut off."""
        return Place(self.dsn, self.kafka.bootstrap)

    @property
    def proxies(self) -> Sequence[Proxy]:
        """All proxies."""
        return [*self._kafka_proxies, *self._postgres_proxies]

    def ways(self) -> list[Way]:
        """Return one way for each process."""
        both = zip(self._kafka_proxies, self._postgres_proxies, strict=True)
        return [
            Way(kafka, postgres, Place(with_port(self.dsn, postgres.port), f"127.0.0.1:{kafka.port}"))
            for kafka, postgres in both
        ]

    async def start(self) -> None:
        """Start all."""
        await asyncio.to_thread(self.kafka.start)
        self.dsn = await asyncio.to_thread(self._primary.start)
        for proxy in self.proxies:
            await proxy.start()

    async def replicate(self) -> None:
        """Start a replica, for which every commit waits from now on."""
        self._replica = PostgresServer(self._folder / "second", self._replica_port, _REPLICATED)
        await asyncio.to_thread(self._replica.copy, self.dsn)
        self._replica_dsn = await asyncio.to_thread(self._replica.start)
        async with self.connected() as connection:
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            await connection.execute("SELECT pg_reload_conf()")

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        """Open a connection to the database, past all proxies."""
        connection = await asyncpg.connect(
            self.dsn, timeout=30, server_settings={"application_name": "chaos"}
        )
        try:
            yield connection
        finally:
            await connection.close()

    async def restart_kafka(self, *, kill: bool) -> None:
        """Stop the broker or kill it; start it again."""
        await asyncio.to_thread(self.kafka.stop, kill=kill)
        await asyncio.to_thread(self.kafka.start)

    async def restart_postgres(self, *, kill: bool) -> None:
        """Stop the database or let it crash; start it again."""
        await asyncio.to_thread(self._primary.stop, kill=kill)
        await asyncio.to_thread(self._primary.start)

    async def fail_over(self) -> None:
        """Let the database crash for good, and its replica take over."""
        assert self._replica is not None
        await self._until_replicated()
        await asyncio.to_thread(self._primary.stop, kill=True)
        self._primary, self._replica, self.dsn = self._replica, None, self._replica_dsn
        async with self.connected() as connection:
            assert await connection.fetchval("SELECT pg_promote(true, 60)")
        self.fail_overs_count += 1
        port = urllib.parse.urlsplit(self.dsn).port
        assert port is not None
        for proxy in self._postgres_proxies:
            proxy.target = port
            proxy.reset()

    async def _until_replicated(self) -> None:
        """Wait until the replica, which may have lost the server before, has all that was acknowledged."""
        query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'"
        async with self.connected() as connection:
            while not await connection.fetchval(query):
                await asyncio.sleep(0.1)

    async def terminate_sessions(self, seed: float) -> int:
        """End about half of the sessions of berth; return how many."""
        async with self.connected() as connection:
            await connection.execute("SELECT setseed($1)", seed)
            return int(
                await connection.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE application_name LIKE 'berth%' AND random() < 0.5"
                )
            )

    async def aclose(self) -> None:
        """Stop all."""
        for proxy in self.proxies:
            await proxy.aclose()
        for server in (self._replica, self._primary):
            if server is not None:
                await asyncio.to_thread(server.stop, kill=True)
        await asyncio.to_thread(self.kafka.stop, kill=True)
