"""Servers for one test, and events sent to a worker that runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from ops.kafka import KafkaServer
from services import bootstrap
from services.bootstrap import Place
from services.cli.demo import log_ends, settled
from services.ports.log import CONFIG_TOPIC, USAGE_TOPIC, TopicPartition
from tests.builders import Json
from tests.integration.api_world import World, fresh_database
from tests.servers import scratch_dir

CONFIG, USAGE = TopicPartition(CONFIG_TOPIC, 0), TopicPartition(USAGE_TOPIC, 0)


@contextlib.asynccontextmanager
async def servers(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """Make a ledger and a log that nobody else uses."""
    async with fresh_database(request.getfixturevalue(f"{kind}_dsn"), migrated=True) as place:
        if kind == "embedded":
            yield place
            return
        with scratch_dir() as path, KafkaServer(path) as bootstrap_servers:
            yield place._replace(kafka_bootstrap=bootstrap_servers)


async def send(world: World, *events: Json) -> None:
    """Send events one after another, and wait until all of the log took effect."""
    for each in events:
        answer = await world.client.post("/v1/events", json=[each])
        assert answer.status_code == 202, answer.text
        await work_off(world)


async def work_off(world: World) -> None:
    log, store = bootstrap.open_log(world.place), bootstrap.open_store(world.place)
    lasts = {at: await log.last_record(at) for at in (CONFIG, USAGE)}
    ends = await log_ends(log) | {at: 0 if last is None else last.offset + 1 for at, last in lasts.items()}
    async with asyncio.timeout(60):
        while not await settled(store, ends):
            await asyncio.sleep(0.02)
    await log.aclose()
    await store.aclose()
