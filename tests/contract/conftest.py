"""The adapters of the ports, each with the handles that its suite needs beside the port."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
import pytest_asyncio
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from services.adapters.embedded.log import EmbeddedLog
from services.adapters.kafka.log import KafkaLog
from services.adapters.memory.log import MemoryLog
from services.ports.ledger import Ledger
from services.ports.log import Log, TopicPartition, TopicSpec
from tests.contract.ledgers import BACKENDS, Backend, open_backend
from tests.servers import MakeDatabase

Truncate = Callable[[TopicPartition, int], Awaitable[None]]


class SteppingClock:
    """Time that moves by a millisecond whenever somebody looks."""

    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self._now_ms += 1
        return self._now_ms


@dataclasses.dataclass(frozen=True)
class Harness:
    """One adapter: ``connect`` opens the log as another process would; ``truncate`` drops old records."""

    connect: Callable[[], Log]
    truncate: Truncate

    async def topic(self, partitions: int = 1, compacted: bool = False) -> str:
        """Create a topic that no other test has."""
        name = f"contract.{uuid.uuid4().hex[:12]}"
        log = self.connect()
        await log.ensure_topics([TopicSpec(name, partitions, compacted)])
        await log.aclose()
        return name


@pytest_asyncio.fixture(params=["memory", "embedded", pytest.param("kafka", marks=pytest.mark.real)])
async def harness(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Harness]:
    """Return each adapter of the log port in turn."""
    if request.param == "memory":
        yield _memory()
    elif request.param == "embedded":
        yield _embedded(await database(request.getfixturevalue("embedded_dsn")))
    else:
        yield _kafka(request.getfixturevalue("kafka_bootstrap"))


@pytest_asyncio.fixture
async def log(harness: Harness) -> AsyncIterator[Log]:
    """Return an open log of the adapter."""
    log = harness.connect()
    yield log
    await log.aclose()


@pytest_asyncio.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Backend]:
    """Return each kind of ledger in turn."""
    async with open_backend(request.param, request, database) as opened_backend:
        yield opened_backend


@pytest.fixture
def ledger(backend: Backend) -> Ledger:
    """Return the backend's ledger."""
    return backend.ledger()


def _memory() -> Harness:
    log = MemoryLog(SteppingClock())

    async def truncate(at: TopicPartition, first: int) -> None:
        log.truncate(at, first)

    return Harness(lambda: log, truncate)


def _embedded(dsn: str) -> Harness:
    async def truncate(at: TopicPartition, first: int) -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(
            "DELETE FROM log_records WHERE topic = $1 AND partition = $2 AND log_offset < $3", *at, first
        )
        await connection.execute(
            "UPDATE log_topics SET first_offset = $3 WHERE topic = $1 AND partition = $2", *at, first
        )
        await connection.close()

    return Harness(lambda: EmbeddedLog(dsn), truncate)


def _kafka(bootstrap: str) -> Harness:
    async def truncate(at: TopicPartition, first: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.delete_records({KafkaPartition(*at): RecordsToDelete(before_offset=first)})
        await admin.close()

    return Harness(lambda: KafkaLog(bootstrap), truncate)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end which adapters ran for real: a test tells it as a property."""
    reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "when")]
    told = {value for each in reports for name, value in each.user_properties if name == "ran for real"}
    for line in sorted(map(str, told)):
        terminalreporter.write_line(line)
