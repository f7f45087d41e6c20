"""Does the relay publish every decision, whatever else is in its topic and whichever ledger it has?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from services.adapters.embedded.log import EmbeddedLog
from services.adapters.memory.log import MemoryLog
from services.ports.ledger import CommitOutcome, Lease, Ledger
from services.ports.log import DECISIONS_TOPIC, Entry, Log, Record, TopicPartition, topic_specs
from services.ports.outbox import Stream
from services.relay.run import Relay, RelayMetrics, RelaySettings
from tests.contract.batches import bind
from tests.contract.ledgers import SHARDS, Backend, ManualClock, PostgresBackend, open_backend, start
from tests.servers import MakeDatabase

AT = TopicPartition(DECISIONS_TOPIC, 0)
FOREIGN = {
    "garbage": Entry(b"ns/p0-1", b"\xff{"),
    "empty": Entry(None, b""),
    "tombstone": Entry(b"ns/p0-1", None),
    "no seq": Entry(b"ns/p0-1", b"{}"),
    "a word for a seq": Entry(b"ns/p0-1", b'{"seq":"x"}'),
    "a seq far ahead": Entry(b"ns/p0-1", b'{"seq":1000000000000}'),
    "a seq beyond 64 bits": Entry(b"ns/p0-1", b'{"seq":1%s}' % (b"0" * 30)),
    "a seq that comes": Entry(b"ns/p0-4", b'{"seq":4,"id":"0-4"}'),
    "a seq below one": Entry(b"ns/p0-1", b'{"seq":-1}'),
    "deep": Entry(b"ns/p0-1", b"[" * 100_000),
}


class World:
    """One shard's ledger and log, and relays over them."""

    def __init__(self, backend: Backend, log: Log, ledger: Ledger, lease: Lease) -> None:
        self.backend = backend
        self.log = log
        self._ledger = ledger
        self._lease = lease
        self._seq = 1

    async def decide(self, count: int) -> None:
        """Commit so many more decisions."""
        batch = bind(self._lease, range(self._seq, self._seq + count), self._seq - 1)
        assert await self._ledger.commit(batch) is CommitOutcome.COMMITTED
        self._seq += count

    async def write(self, *entries: Entry) -> None:
        """Append to the shard's partition as anybody with the right to write could."""
        writer = await self.log.writer()
        await writer.append(DECISIONS_TOPIC, entries, 0)
        await writer.aclose()

    async def rows(self) -> list[Entry]:
        """Return what the topic should hold of the ledger."""
        outbox = self.backend.outbox()
        return [Entry(i.key, i.value) for i in await outbox.unpublished(0, Stream.DECISIONS, 0, 10_000)]

    async def topic(self) -> Sequence[Record]:
        """Return what the topic holds."""
        reader = await self.log.reader()
        try:
            await reader.assign({AT: 0})
            end = (await reader.end_offsets())[AT]
            found: list[Record] = []
            while len(found) < end:
                found += await reader.poll(1_000, 1)
            return found
        finally:
            await reader.aclose()

    async def published(self) -> list[int]:
        """Return the seqs of the ledger's rows in the topic, in its order."""
        seqs = {row: number for number, row in enumerate(await self.rows(), 1)}
        entries = [Entry(record.key, record.value) for record in await self.topic()]
        return [seqs[entry] for entry in entries if entry in seqs]

    async def relay_until(self, published: Sequence[int]) -> None:
        """Run a relay of its own until the topic holds this, and a moment longer."""
        settings = RelaySettings(name="r", lease_seconds=0.3, idle_seconds=0.05)
        relay = Relay(self.log, self.backend.outbox(), settings, RelayMetrics(CollectorRegistry()))
        running = asyncio.create_task(relay.run())
        try:
            async with asyncio.timeout(20):
                while not running.done() and await self.published() != list(published):
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.1)
        except TimeoutError:
            pass
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        assert await self.published() == list(published)


async def _world(backend: Backend, log: Log) -> World:
    await log.ensure_topics(topic_specs(SHARDS))
    ledger = backend.ledger()
    lease, _ = await start(ledger, SHARDS)
    return World(backend, log, ledger, lease)


@pytest_asyncio.fixture(params=["memory", "embedded"])
async def world(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[World]:
    """Return a ledger and a log, in memory and on Postgres in turn."""
    async with open_backend(request.param, request, database) as backend:
        log: Log = MemoryLog(ManualClock())
        if isinstance(backend, PostgresBackend):
            log = EmbeddedLog(backend.dsn)
        yield await _world(backend, log)
        await log.aclose()


@pytest_asyncio.fixture
async def memory_world(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[World]:
    """Return a ledger and a log in memory."""
    async with open_backend("memory", request, database) as backend:
        yield await _world(backend, MemoryLog(ManualClock()))


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
async def test_a_foreign_record_stops_nothing_and_skips_nothing(
    memory_world: World, foreign: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    await memory_world.decide(3)
    await memory_world.relay_until([1, 2, 3])
    await memory_world.write(foreign)
    await memory_world.decide(3)
    await memory_world.relay_until([1, 2, 3, 4, 5, 6])
    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1, warnings
    assert "topic berth.decisions, partition 0, offset 3:" in warnings[0]
    assert warnings[0].endswith("publishing on behind seq 3")


async def test_a_foreign_record_stops_nothing_on_postgres(world: World) -> None:
    await world.decide(2)
    await world.relay_until([1, 2])
    await world.write(*FOREIGN.values())
    await world.decide(1)
    await world.relay_until([1, 2, 3])


async def test_a_relay_that_died_before_it_noted_publishes_nothing_twice(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.decide(5)
    await world.write(*(await world.rows())[:3])
    await world.relay_until([1, 2, 3, 4, 5])
    assert not [one for one in caplog.records if one.levelname == "WARNING"]


async def test_it_finds_its_own_before_the_garbage(world: World) -> None:
    await world.decide(5)
    await world.write(*(await world.rows())[:3])
    await world.write(*FOREIGN.values())
    await world.relay_until([1, 2, 3, 4, 5])


async def test_more_garbage_than_it_reads_costs_duplicates_and_no_decision(memory_world: World) -> None:
    await memory_world.decide(2)
    await memory_world.write(*await memory_world.rows())
    await memory_world.write(*[Entry(None, b"{}")] * 5_000)
    await memory_world.relay_until([1, 2, 1, 2])


async def test_a_copy_of_a_later_decision_skips_none_before_it(memory_world: World) -> None:
    await memory_world.decide(4)
    await memory_world.write((await memory_world.rows())[3])
    await memory_world.relay_until([4, 1, 2, 3, 4])


async def test_after_an_older_ledger_was_restored_what_is_decided_again_is_published(
    memory_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await memory_world.decide(2)
    await memory_world.write(*await memory_world.rows())
    lost = [Entry(b"ns/p0-%d" % seq, b'{"id":"0-%d","seq":%d}' % (seq, seq)) for seq in range(3, 60)]
    await memory_world.write(*lost)
    await memory_world.decide(3)
    await memory_world.relay_until([1, 2, 3, 4, 5])
    assert "offset 58:" in caplog.text


async def test_what_was_published_is_noted_when_a_relay_takes_over(memory_world: World) -> None:
    await memory_world.decide(3)
    await memory_world.write(*await memory_world.rows())
    await memory_world.relay_until([1, 2, 3])
    assert await memory_world.backend.outbox().published(0, Stream.DECISIONS) == 3


async def test_a_topic_that_was_emptied_is_gone_on_with(memory_world: World) -> None:
    await memory_world.decide(2)
    await memory_world.relay_until([1, 2])
    log = memory_world.log
    assert isinstance(log, MemoryLog)
    log.partition(AT).records.clear()
    await memory_world.decide(2)
    await memory_world.relay_until([3, 4])
