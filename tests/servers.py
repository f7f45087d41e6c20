"""The servers that the tests run against, one of each kind for the whole run, started when first needed."""

from __future__ import annotations

import shutil
import tempfile
import urllib.parse
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient

from ops.kafka import KafkaServer
from ops.postgres import PostgresServer
from ops.postgres.server import EmbeddedServer
from services.adapters.kafka.log import KafkaLog
from services.adapters.postgres.migrate import upgrade
from services.ports.log import topic_specs

__all__ = ["database", "embedded_dsn", "fresh_kafka", "kafka_bootstrap", "postgres_dsn", "server_dir"]

MakeDatabase = Callable[[str], Awaitable[str]]
"""Makes an empty, migrated database on the server that the address names; returns its address."""

_TEMPLATE = "berth_template"
_FORGETFUL = {"fsync": "off", "full_page_writes": "off"}
"""No test takes the power away, and most of what a database of its own costs is to wait for the disk."""


@contextmanager
def scratch_dir() -> Iterator[Path]:
    """Give a directory that Postgres' own account can reach, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="berth-test-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture
def server_dir() -> Iterator[Path]:
    """Give the test a directory for a server of its own."""
    with scratch_dir() as path:
        yield path


@pytest.fixture(scope="session")
def kafka_bootstrap() -> Iterator[str]:
    """Return the address of a real Kafka broker."""
    with scratch_dir() as path, KafkaServer(path) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """Return the address of a real Postgres server over TCP."""
    with scratch_dir() as path, PostgresServer(path, settings=_FORGETFUL) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def embedded_dsn() -> Iterator[str]:
    """Return the address of an embedded Postgres server on its Unix socket."""
    with scratch_dir() as path, EmbeddedServer(path, settings=_FORGETFUL) as dsn:
        yield dsn


async def create_migrated(server_dsn: str, name: str) -> None:
    """Make a database with all tables: a copy of one that is migrated once for each server."""
    connection = await asyncpg.connect(server_dsn)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", _TEMPLATE):
            await connection.execute(f"CREATE DATABASE {_TEMPLATE}_new")
            await upgrade(with_database(server_dsn, f"{_TEMPLATE}_new"))
            await connection.execute(f"ALTER DATABASE {_TEMPLATE}_new RENAME TO {_TEMPLATE}")
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")
    finally:
        await connection.close()


@pytest_asyncio.fixture
async def database() -> AsyncIterator[MakeDatabase]:
    """Return a function that makes an empty, migrated database; it goes away after the test."""
    made: list[tuple[str, str]] = []

    async def make(server_dsn: str) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        await create_migrated(server_dsn, name)
        made.append((server_dsn, name))
        return with_database(server_dsn, name)

    yield make
    for server_dsn, name in made:
        connection = await asyncpg.connect(server_dsn)
        try:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        finally:
            await connection.close()


@pytest_asyncio.fixture
async def fresh_kafka(kafka_bootstrap: str) -> str:
    """Return the broker's address with all of the product's topics removed."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    try:
        there = set(await admin.list_topics())
        mine = [spec.name for spec in topic_specs(1) if spec.name in there]
        if mine:
            await admin.delete_topics(mine)
    finally:
        await admin.close()
    log = KafkaLog(kafka_bootstrap)
    for topic in mine:
        while await log.partitions(topic):
            pass
    return kafka_bootstrap


def with_database(dsn: str, name: str) -> str:
    """Return the address of another database of the same server."""
    return urllib.parse.urlsplit(dsn)._replace(path=f"/{name}").geturl()
