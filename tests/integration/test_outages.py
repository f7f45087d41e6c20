"""Worker and relay while their real servers go away and come back: nothing is lost, doubled or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from domain.kernels.catalogue import prepare_all
from domain.model.errors import Unavailable
from domain.model.profiles import BUILT_IN_PROFILES
from ops.kafka import KafkaServer
from ops.postgres import PostgresServer
from services.bootstrap import Place, initialise, open_ledger, open_log, open_outbox
from services.ports.log import DECISIONS_TOPIC, NODES_TOPIC, PODS_TOPIC, Entry, TopicPartition
from services.relay.run import Relay, RelayMetrics, RelaySettings
from services.worker.metrics import WorkerMetrics
from services.worker.run import Worker, WorkerSettings
from tests.builders import event_bytes, node_manifest, pod_manifest, without_recorded_at

pytestmark = [pytest.mark.real, pytest.mark.deep]

SETTLE_SECONDS_MAX = 90.0
PODS_PER_ROUND = 300


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


class Site:
    """Real servers that the test stops, and the product on them."""

    def __init__(self, kafka: KafkaServer, postgres: PostgresServer, place: Place) -> None:
        self.kafka = kafka
        self.postgres = postgres
        self.place = place
        self.sent = 0

    async def send_pods(self) -> None:
        """Append pods, through any outage, each once for sure and at times twice."""
        names = [f"p{self.sent + i}" for i in range(PODS_PER_ROUND)]
        self.sent += len(names)
        entries = [
            Entry(
                f"default/{name}".encode(),
                event_bytes("ADDED", pod_manifest(name, cpu="10m", uid=name, resource_version=1)),
            )
            for name in names
        ]
        log = open_log(self.place)
        while True:
            writer = await log.writer()
            try:
                await writer.append(PODS_TOPIC, entries)
                return
            except Unavailable:
                await asyncio.sleep(0.2)
            finally:
                await writer.aclose()

    async def settled(self) -> None:
        """Wait until every pod is placed and every decision published; check that none is there twice."""
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            while not await self._is_settled():
                await asyncio.sleep(0.2)
        log = open_log(self.place)
        reader = await log.reader()
        await reader.assign({TopicPartition(DECISIONS_TOPIC, 0): 0})
        published: list[bytes] = []
        while records := await reader.poll(5_000, 1.0):
            published += [without_recorded_at(record.value or b"") for record in records]
        await reader.aclose()
        connection = await asyncpg.connect(self.place.dsn)
        decided = await connection.fetch("SELECT payload, name FROM decisions ORDER BY seq")
        await connection.close()
        assert published == [row["payload"] for row in decided]
        assert Counter(row["name"] for row in decided) == Counter(f"p{i}" for i in range(self.sent))

    async def _is_settled(self) -> bool:
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await asyncpg.connect(self.place.dsn, timeout=5)
            try:
                row = await connection.fetchrow(
                    "SELECT (SELECT count(*) FROM placements) AS placed,"
                    " seq_next - 1 - decisions_seq AS behind FROM shards JOIN relay_cursor USING (shard)"
                )
                return bool(row["placed"] == self.sent and row["behind"] == 0)
            finally:
                await connection.close()
        return False


@pytest.fixture
def servers(server_dir: Path) -> Iterator[tuple[KafkaServer, PostgresServer]]:
    """Return servers of the test's own."""
    kafka, postgres = KafkaServer(server_dir / "kafka"), PostgresServer(server_dir / "postgres")
    kafka.start()
    try:
        yield kafka, postgres
    finally:
        kafka.stop()
        postgres.stop()


@contextlib.asynccontextmanager
async def product(kafka: KafkaServer, postgres: PostgresServer) -> AsyncIterator[Site]:
    """Run worker and relay."""
    place = Place(await asyncio.to_thread(postgres.start), kafka.bootstrap)
    await initialise(place, 1)
    log = open_log(place)
    writer = await log.writer()
    nodes = [
        Entry(b"n%d" % i, event_bytes("ADDED", node_manifest(f"n{i}", cpu=64, memory="1Ti", pods=1000)))
        for i in range(20)
    ]
    await writer.append(NODES_TOPIC, nodes)
    await writer.aclose()
    await asyncio.to_thread(prepare_all)
    registry, ledger, outbox = CollectorRegistry(), open_ledger(place), open_outbox(place)
    worker = WorkerSettings(name="outages", profiles=BUILT_IN_PROFILES)
    works = [
        asyncio.create_task(Worker(log, ledger, worker, WorkerMetrics(registry)).run()),
        asyncio.create_task(Relay(log, outbox, RelaySettings(name="outages"), RelayMetrics(registry)).run()),
    ]
    try:
        yield Site(kafka, postgres, place)
        for work in works:
            if work.done():
                work.result()
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for closing in (ledger, outbox, log):
            await closing.aclose()


Outage = Callable[[Site], Awaitable[None]]


async def kafka_is_killed(site: Site) -> None:
    await asyncio.to_thread(site.kafka.stop, kill=True)
    await asyncio.sleep(3)
    await asyncio.to_thread(site.kafka.start)


async def postgres_stops(site: Site) -> None:
    await asyncio.to_thread(site.postgres.stop)
    await asyncio.sleep(3)
    await asyncio.to_thread(site.postgres.start)


async def connections_are_cut(site: Site) -> None:
    connection = await asyncpg.connect(site.place.dsn)
    for _ in range(20):
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'berth%' AND pid <> pg_backend_pid()"
        )
        await asyncio.sleep(0.1)
    await connection.close()


async def test_outages_lose_and_double_nothing(servers: tuple[KafkaServer, PostgresServer]) -> None:
    async with product(*servers) as site:
        await site.send_pods()
        await site.settled()
        outages: list[Outage] = [kafka_is_killed, postgres_stops, connections_are_cut]
        for outage in outages:
            await asyncio.gather(site.send_pods(), outage(site))
            await site.send_pods()
            await site.settled()
            await outage(site)  # also while everything is quiet
            await site.send_pods()
            await site.settled()
