"""Does a process that is given another log than the ledger's say which one it is, and what to do?"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services import bootstrap
from services.adapters.postgres.which_log import AnotherLog
from services.bootstrap import Place
from tests.builders import event, node_manifest
from tests.integration.api_world import client_of, fresh_database, query, work_off

BROKERS = "localhost:9092"  # nothing is asked of them: the ledger alone says which log is its own


@pytest_asyncio.fixture
async def place(embedded_dsn: str) -> AsyncIterator[Place]:
    """Return a database that is laid down, and has read nothing."""
    async with fresh_database(embedded_dsn) as found:
        await bootstrap.initialise(found, 1)
        yield found


async def read_one(place: Place) -> None:
    """Let a worker read an event, so that the ledger notes the topic's id."""
    async with client_of(place) as client:
        sent = await client.post("/v1/events", json=[event("ADDED", node_manifest("n1"))])
        assert sent.status_code == 202
    await work_off(place)


def on_kafka(place: Place) -> Place:
    return place._replace(kafka_bootstrap=BROKERS)


async def test_a_ledger_whose_log_was_kafka_asks_for_its_brokers(place: Place) -> None:
    await read_one(place)
    await query(place, "UPDATE shard_offsets SET topic_id = 'an id that Kafka gave'")
    await bootstrap.check_database(on_kafka(place), "worker")
    with pytest.raises(AnotherLog, match="this ledger's log is Kafka") as raised:
        await bootstrap.check_database(place, "worker")
    assert "BERTH_KAFKA_BOOTSTRAP is not set: name its brokers" in str(raised.value)
    with pytest.raises(AnotherLog, match="name its brokers"):
        await bootstrap.initialise(place, 1)


async def test_a_ledger_whose_log_is_its_database_takes_no_kafka(place: Place) -> None:
    await read_one(place)
    await bootstrap.check_database(place, "worker")
    with pytest.raises(AnotherLog, match="unset it, or name a database of its own for Kafka") as raised:
        await bootstrap.check_database(on_kafka(place), "worker")
    assert "BERTH_KAFKA_BOOTSTRAP names Kafka" in str(raised.value)


async def test_a_ledger_that_has_read_nothing_takes_either_log(place: Place) -> None:
    for at in (place, on_kafka(place)):
        await bootstrap.check_database(at, "worker")
