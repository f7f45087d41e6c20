"""Does the relay publish every decision, whatever else is in its topic and whichever ledger it has?"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import orjson
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from domain.model.errors import LedgerMismatch
from services.adapters.embedded.log import EmbeddedLog
from services.adapters.memory.log import MemoryLog
from services.adapters.postgres.outbox import PostgresOutbox
from services.adapters.postgres.tidying import forget_dead_letters, tidying
from services.ports.audit import Audit
from services.ports.ledger import Committed, Lease, Ledger
from services.ports.log import (
    DEAD_LETTER_TOPIC,
    DECISIONS_TOPIC,
    PODS_TOPIC,
    Entry,
    Log,
    Record,
    TopicPartition,
    topic_specs,
)
from services.ports.outbox import Outbox, Stream
from services.relay.run import Relay, RelayMetrics, RelaySettings
from services.relay.topic import audit_topic
from tests.batches import batch_of
from tests.contract.batches import advance, bind, dead_letter
from tests.contract.ledgers import (
    SHARDS,
    Backend,
    ManualClock,
    MemoryBackend,
    PostgresBackend,
    open_backend,
    start,
)
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
        self._refused = 0

    async def decide(self, count: int) -> None:
        """Commit so many more decisions."""
        batch = bind(self._lease, range(self._seq, self._seq + count), self._seq - 1)
        assert await self._ledger.commit(batch) == Committed()
        self._seq += count

    async def refuse(self, keys: Sequence[bytes]) -> None:
        """Commit a dead letter for a record of a pod with each of these keys."""
        first, end = self._refused + 1, self._refused + len(keys) + 1
        letters = [dead_letter(self._lease, seq, key=key) for seq, key in enumerate(keys, first)]
        batch = batch_of(
            advances=[advance(self._lease, first - 1, end - 1)], dead_letters=letters, dead_seq_next={0: end}
        )
        assert await self._ledger.commit(batch) == Committed()
        self._refused = end - 1

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

    async def taken(self) -> list[bytes]:
        """Return what a consumer has that takes nothing but the seq after its last one."""
        taken: list[bytes] = []
        for record in await self.topic():
            if record.value is not None and record.value.startswith(b'{"id":"0-%d",' % (len(taken) + 1)):
                taken.append(record.value)
        return taken

    async def lose_topic_tail(self, kept: int) -> None:
        """Let the broker forget all but so many records, as a fail-over to a replica that lags does."""
        assert isinstance(self.log, MemoryLog)
        del self.log.partition(AT).slots[kept:]

    async def lose_ledger_tail(self, kept: int) -> None:
        """Set the ledger back to an older backup with so many decisions; what comes is decided later.

        It keeps its name, as the snapshot of a volume does, and knows of no alarm since.
        """
        assert isinstance(self.backend, MemoryBackend)
        database = self.backend.database
        for rows in (database.decisions[0], database.recorded_ms[0], database.placements):
            del rows[kept:]
        for row in list(database.open_placements.values()):
            if row.opened.seq > kept:
                del database.open_placements[row.opened.pod_uid, row.opened.shard]
                database._opening_seqs.discard((0, row.opened.seq))
        database.offsets[0, PODS_TOPIC, 0].next_offset = kept
        database.shards[0].seq_next = self._seq = kept + 1
        noted = database.cursors[0].published
        noted[Stream.DECISIONS] = min(noted[Stream.DECISIONS], kept)
        cursor = database.cursors[0]
        cursor.alarm, cursor.compared, cursor.generation = None, 0, 0
        await self.backend.pass_time(1)

    def decisions(self) -> list[Record]:
        """Return the records of the topic in memory."""
        assert isinstance(self.log, MemoryLog)
        return self.log.partition(AT).records

    async def alarm(self) -> str | None:
        """Return what the API tells operators of the shard's topic."""
        (shard, *_) = await self.backend.store().processes.shards()
        return shard.alarm

    @contextlib.asynccontextmanager
    async def relay(
        self, check_seconds: float = 0.05, outbox: Outbox | None = None
    ) -> AsyncIterator[CollectorRegistry]:
        """Run a relay of its own."""
        settings = RelaySettings(
            name="r",
            lease_seconds=0.3,
            lease_renewal_seconds=0.1,
            idle_seconds=0.02,
            check_seconds=check_seconds,
        )
        registry = CollectorRegistry()
        outbox = outbox or self.backend.outbox()
        running = asyncio.create_task(Relay(self.log, outbox, settings, RelayMetrics(registry)).run())
        try:
            yield registry
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def until_all_taken(self) -> None:
        """Wait until the consumer has every decision of the ledger, as the ledger has it."""
        expected: list[bytes] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while not expected or await self.taken() != expected:
                    expected = [row.value or b"" for row in await self.rows()]
                    await asyncio.sleep(0.01)
        assert await self.taken() == expected

    async def published(self) -> list[int]:
        """Return the seqs of the ledger's rows in the topic, in its order."""
        seqs = {row: number for number, row in enumerate(await self.rows(), 1)}
        entries = [Entry(record.key, record.value) for record in await self.topic()]
        return [seqs[entry] for entry in entries if entry in seqs]

    async def relay_until(self, published: Sequence[int]) -> None:
        """Run a relay of its own until the topic holds this, and a moment longer."""
        async with self.relay():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while await self.published() != list(published):
                        await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
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
    await memory_world.relay_until([1, 2, 3, 3, 4, 5, 6])  # the third again, under the name of now
    errors = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(errors) == 1, errors
    assert "topic berth.decisions, partition 0, offset 3:" in errors[0]
    assert errors[0].endswith("publishing on behind seq 3")


async def test_a_foreign_record_stops_nothing_on_postgres(world: World) -> None:
    await world.decide(2)
    await world.relay_until([1, 2])
    await world.write(*FOREIGN.values())
    await world.decide(1)
    keeps_names = isinstance(world.log, MemoryLog)
    await world.relay_until([1, 2, 2, 3] if keeps_names else [1, 2, 3])


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
    assert "offset 2: decision 0-3 is not the ledger's" in caplog.text


async def test_what_was_published_is_noted_when_a_relay_takes_over(memory_world: World) -> None:
    await memory_world.decide(3)
    await memory_world.write(*await memory_world.rows())
    await memory_world.relay_until([1, 2, 3])
    assert await memory_world.backend.outbox().published(0, Stream.DECISIONS) == 3


async def test_what_retention_removed_is_not_published_again(memory_world: World) -> None:
    await memory_world.decide(2)
    await memory_world.relay_until([1, 2])
    assert isinstance(memory_world.log, MemoryLog)
    memory_world.log.truncate(AT, 2)
    await memory_world.decide(2)
    async with memory_world.relay():
        await asyncio.sleep(0.3)
    left = memory_world.log.partition(AT).records
    assert [Entry(record.key, record.value) for record in left] == (await memory_world.rows())[2:]


# ------------------------------------------------------------------ the broker loses the end of the topic


async def test_the_broker_loses_its_tail_under_a_running_relay(memory_world: World) -> None:
    await memory_world.decide(10)
    async with memory_world.relay(check_seconds=1e9) as registry:
        await memory_world.until_all_taken()
        await memory_world.lose_topic_tail(7)
        await memory_world.decide(2)
        await memory_world.until_all_taken()
    assert registry.get_sample_value("berth_relay_faults_total", {"fault": "topic-lost-records"}) == 1
    assert await memory_world.alarm() is None, "the relay has put it right by itself"


async def test_the_broker_loses_its_tail_and_nothing_more_is_decided(memory_world: World) -> None:
    await memory_world.decide(10)
    async with memory_world.relay():
        await memory_world.until_all_taken()
        await memory_world.lose_topic_tail(7)
        await memory_world.until_all_taken()


@pytest.mark.parametrize("kept", [0, 1, 7])
async def test_the_broker_loses_its_tail_while_no_relay_runs(memory_world: World, kept: int) -> None:
    await memory_world.decide(10)
    await memory_world.relay_until(range(1, 11))
    await memory_world.lose_topic_tail(kept)
    await memory_world.decide(2)
    async with memory_world.relay():
        await memory_world.until_all_taken()


async def test_a_hole_that_an_earlier_relay_left_is_filled(memory_world: World) -> None:
    await memory_world.decide(12)
    rows = await memory_world.rows()
    await memory_world.write(*rows[:7], *rows[10:])
    await memory_world.backend.outbox().mark_published(0, Stream.DECISIONS, 0, 12)
    async with memory_world.relay():
        await memory_world.until_all_taken()


async def test_more_is_lost_than_a_relay_reads_at_once(memory_world: World) -> None:
    await memory_world.decide(9_000)
    async with memory_world.relay():
        await memory_world.until_all_taken()
        await memory_world.lose_topic_tail(3)
        await memory_world.until_all_taken()


# ------------------------------------------------------------- the ledger loses its end, the topic has it


async def test_a_ledger_that_lost_its_tail_raises_the_alarm(
    memory_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await memory_world.decide(10)
    await memory_world.relay_until(range(1, 11))
    await memory_world.lose_ledger_tail(7)
    await memory_world.decide(4)
    async with memory_world.relay() as registry:
        await _until(lambda: len(memory_world.decisions()) == 15)
    assert [record.value for record in memory_world.decisions()[10:]] == [
        row.value for row in (await memory_world.rows())[6:]
    ]
    alarm = await memory_world.alarm()
    assert alarm is not None
    assert alarm.startswith("topic berth.decisions, partition 0, offset 7: decision 0-8")
    assert alarm in caplog.text
    assert registry.get_sample_value("berth_relay_faults_total", {"fault": "topic-differs"}) == 1


async def test_a_ledger_that_fails_over_under_a_running_relay_raises_the_alarm(memory_world: World) -> None:
    await memory_world.decide(10)
    async with memory_world.relay():
        await memory_world.until_all_taken()
        await memory_world.lose_ledger_tail(7)
        await _until_async(memory_world.alarm)  # at once, before anything is decided again
        await memory_world.decide(4)
        await _until(lambda: len(memory_world.decisions()) == 15)
    assert [record.value for record in memory_world.decisions()[10:]] == [
        row.value for row in (await memory_world.rows())[6:]
    ]


async def test_an_alarm_is_raised_once_until_it_is_acknowledged(memory_world: World) -> None:
    await memory_world.decide(3)
    await memory_world.relay_until([1, 2, 3])
    await memory_world.write(*FOREIGN.values())
    await memory_world.relay_until([1, 2, 3, 3])
    first = await memory_world.alarm()
    assert first is not None
    assert "offset 3:" in first
    assert await memory_world.backend.outbox().acknowledge() == {0: first}
    await memory_world.relay_until([1, 2, 3, 3])
    assert await memory_world.alarm() is None
    await memory_world.write(FOREIGN["empty"])
    await memory_world.relay_until([1, 2, 3, 3, 3])
    assert "offset 14:" in str(await memory_world.alarm())


class Documented:
    """A consumer by the rule of docs/events.md, and one that knows nothing of names."""

    def __init__(self) -> None:
        self._read = 0
        self.name: bytes | None = None
        self._earlier: set[bytes | None] = set()
        self._last = 0
        self._of: dict[int, bytes] = {}  # by seq
        self.plain: list[bytes] = []

    def read_on(self, records: Sequence[Record]) -> None:
        for record in records[self._read :]:
            assert record.value is not None
            told = orjson.loads(record.value)
            if told["seq"] == len(self.plain) + 1:
                self.plain.append(record.value)
            if record.ledger in self._earlier:
                continue
            if record.ledger != self.name:
                self._earlier |= {self.name}
                self.name = record.ledger
                self._last = min(self._last, told["seq"] - 1)
                self._of = {seq: value for seq, value in self._of.items() if seq <= self._last}
            after = told["seq"] - 1 if record.after is None else int(record.after)
            if after <= self._last < told["seq"]:
                self._last = told["seq"]
                self._of[self._last] = record.value
        self._read = len(records)

    @property
    def taken(self) -> list[bytes]:
        """Return what it has, by seq."""
        return [self._of[seq] for seq in sorted(self._of)]


async def test_a_consumer_by_the_rule_has_all_pods_right_after_a_snapshot_was_restored(
    memory_world: World,
) -> None:
    world, consumer, names = memory_world, Documented(), set()
    await world.decide(230)
    async with world.relay():
        await _until(lambda: len(world.decisions()) == 230)
    consumer.read_on(world.decisions())
    for _ in range(2):  # the same snapshot twice
        names.add(consumer.name)
        await world.lose_ledger_tail(130)
        before = len(world.decisions())
        async with world.relay():
            await _until(lambda before=before: len(world.decisions()) > before)  # type: ignore[misc]
            consumer.read_on(world.decisions())
            assert len(consumer.taken) == 130, "it learns at once what is void, though nothing is decided"
            await world.decide(100)
            await _until(lambda before=before: len(world.decisions()) == before + 101)  # type: ignore[misc]
        consumer.read_on(world.decisions())
        rows = [row.value for row in await world.rows()]
        assert consumer.taken == rows
        assert sum(was != is_ for was, is_ in zip(consumer.plain, rows, strict=True)) == 100
    assert len(names | {consumer.name}) == 3


async def test_what_a_late_relay_appends_behind_the_new_name_is_taken_by_nobody(memory_world: World) -> None:
    world, consumer = memory_world, Documented()
    await world.decide(10)
    await world.relay_until(range(1, 11))
    lost = [Entry(r.key, r.value, ledger=r.ledger) for r in world.decisions()[7:]]
    await world.lose_ledger_tail(7)
    await world.decide(1)
    async with world.relay(check_seconds=1e9):
        await _until(lambda: len(world.decisions()) == 12)
    await world.write(*lost[1:])  # 9 and 10 of before, behind the 8 of now
    await world.decide(2)
    async with world.relay():
        await _until(lambda: len(world.decisions()) == 17)
    consumer.read_on(world.decisions())
    assert consumer.taken == [row.value for row in await world.rows()]


async def test_what_a_late_relay_appends_under_an_earlier_name_hides_nothing(memory_world: World) -> None:
    """The topic was made anew, so consumers do not know that the name is an earlier one."""
    world, consumer = memory_world, Documented()
    await world.decide(6)
    await world.relay_until(range(1, 7))
    rows = await world.rows()
    await world.write(*(row._replace(ledger=b"before.the.restore") for row in rows[:4]))
    async with world.relay():
        await _until(lambda: len(world.decisions()) == 13)  # it repeats the fourth, then publishes two
    consumer.read_on(world.decisions())
    assert consumer.taken == [row.value for row in rows]
    alarm = await world.alarm()
    assert alarm is not None
    assert "offset 6: a late relay wrote under an earlier name" in alarm


async def test_what_was_lost_and_appended_before_anybody_looked_is_published_again(
    memory_world: World,
) -> None:
    """Consumers took the lost 8 under the name of now, and passed over the ledger's behind it."""
    world, consumer = memory_world, Documented()
    await world.decide(8)
    lost = (await world.rows())[7]
    await world.lose_ledger_tail(7)
    await world.decide(3)
    name = (await world.backend.outbox().ledger_name(0)).encode()
    rows = await world.rows()
    await world.write(*(row._replace(ledger=name) for row in (*rows[:7], lost, *rows[7:])))
    async with world.relay():
        await _until(lambda: len(world.decisions()) > 14)
    consumer.read_on(world.decisions())
    assert consumer.taken == [row.value for row in rows]


async def test_what_was_kept_among_pruned_decisions_is_published_to_a_topic_that_was_made_anew(
    request: pytest.FixtureRequest, database: MakeDatabase
) -> None:
    async with open_backend("embedded", request, database) as backend:
        assert isinstance(backend, PostgresBackend)
        world = await _world(backend, MemoryLog(ManualClock()))
        await world.decide(12)
        rows = await world.rows()
        await backend.execute("UPDATE relay_cursor SET decisions_seq = 12 WHERE shard = 0")
        await backend.execute("DELETE FROM decisions WHERE shard = 0 AND seq IN (1, 3, 4)")
        await backend.execute("INSERT INTO pruned (shard, seq_below) VALUES (0, 6)")
        kept, consumer = [row.value for row in rows if row not in (rows[0], *rows[2:4])], Documented()
        async with world.relay():
            await _until(lambda: len(world.decisions()) == 9)
        consumer.read_on(world.decisions())
        assert consumer.taken == kept
        await backend.execute("DELETE FROM decisions WHERE shard = 0 AND seq = 2")
        await world.decide(1)
        async with world.relay():
            await _until(lambda: len(world.decisions()) == 10)
        assert await world.alarm() is None, "a decision that was pruned since is no other ledger's"
        consumer.read_on(world.decisions())
        assert consumer.taken == [*kept, (await backend.outbox().decisions(0, [13]))[0].value]
        assert (await audited(world, kept_from=6)).ok
        await backend.execute("DELETE FROM decisions WHERE shard = 0 AND seq = 8")
        with pytest.raises(LedgerMismatch, match="a hole after 5"):
            await backend.outbox().unpublished(0, Stream.DECISIONS, 5, 100)


# ------------------------------------------------------------------------------------- dead letters


class _Paused(PostgresOutbox):
    """The outbox of a relay that was paused when it had read the cursor, while another one published on."""

    is_late = True

    async def published(self, shard: int, stream: Stream) -> int:
        if self.is_late and (shard, stream) == (0, Stream.DEAD_LETTERS):
            self.is_late = False
            return 1
        return await super().published(shard, stream)


async def test_dead_letters_that_were_deleted_leave_no_hole_in_the_topic_and_a_late_relay_names_them(
    request: pytest.FixtureRequest, database: MakeDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_backend("embedded", request, database) as backend:
        assert isinstance(backend, PostgresBackend)
        world = await _world(backend, MemoryLog(ManualClock()))
        assert isinstance(world.log, MemoryLog)
        partition = world.log.partition(TopicPartition(DEAD_LETTER_TOPIC, 0))
        await world.refuse([b"desk/p", *[b"flood/p"] * 5])
        async with world.relay():
            await _until_published(backend, 6)
        session = tidying(backend.dsn)
        await forget_dead_letters(session, 3, 1_000, 0)
        await session.aclose()
        await world.refuse([b"desk/p", b"flood/p"])
        async with world.relay():
            await _until_published(backend, 8)
        assert [(_seq(record), record.after) for record in partition.records] == [
            (seq, None) for seq in range(1, 9)
        ]
        consumer = Documented()
        consumer.read_on(partition.records)
        async with contextlib.aclosing(_Paused(backend.dsn)) as outbox, world.relay(outbox=outbox):
            await _until(lambda: len(partition.records) == 12)
        told = [(_seq(record), record.after) for record in partition.records[8:]]
        assert told == [(5, b"1"), (6, None), (7, None), (8, None)], "the ledger keeps 1 and 5 to 8"
        assert "hole" not in caplog.text
        before = consumer.taken
        consumer.read_on(partition.records)
        assert consumer.taken == before
        assert len(before) == 8


async def test_a_dead_letter_that_is_missing_before_it_was_published_stops_the_relay(
    request: pytest.FixtureRequest, database: MakeDatabase
) -> None:
    async with open_backend("embedded", request, database) as backend:
        assert isinstance(backend, PostgresBackend)
        world, outbox = await _world(backend, MemoryLog(ManualClock())), backend.outbox()
        await world.refuse([b"ns/p"] * 6)
        await backend.execute("UPDATE relay_cursor SET dead_letters_seq = 3 WHERE shard = 0")
        await backend.execute("DELETE FROM dead_letters WHERE shard = 0 AND seq = 2")
        items = await outbox.unpublished(0, Stream.DEAD_LETTERS, 1, 100)
        assert [item.seq for item in items] == [3, 4, 5, 6]
        await backend.execute("DELETE FROM dead_letters WHERE shard = 0 AND seq = 5")
        for after in (1, 3):
            with pytest.raises(LedgerMismatch, match=f"a hole after {after}"):
                await outbox.unpublished(0, Stream.DEAD_LETTERS, after, 100)


def _seq(record: Record) -> int:
    return int(orjson.loads(record.value or b"")["seq"])


# ---------------------------------------------------------------- what an audit says of all records


async def audited(world: World, kept_from: int = 1) -> Audit:
    """Return what an audit finds of the shard's partition."""
    begun, kept = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), {0: kept_from}
    told = Audit(at=begun, seconds=0, invariants_count=0, kept_from=kept, seqs={}, batches={}, broken=[])
    return await audit_topic(world.log, world.backend.outbox(), told, lambda _: None)


def offenders(found: Audit) -> list[tuple[int | None, int]]:
    """Return offset and seq of the records that are wrong."""
    return [(row["offset"], row["seq"]) for broken in found.broken for row in broken.rows]


async def set_back(world: World) -> None:
    """Let the ledger lose its end, and a relay publish what is decided since."""
    await world.decide(10)
    await world.relay_until(range(1, 11))
    await world.lose_ledger_tail(7)
    await world.decide(4)
    async with world.relay():
        await _until(lambda: len(world.decisions()) == 15)


async def test_what_a_restore_left_in_the_topic_is_passed_over_once_it_is_acknowledged(
    memory_world: World,
) -> None:
    await set_back(memory_world)
    before = await audited(memory_world)
    assert offenders(before) == [(7, 8), (8, 9), (9, 10)], "nobody has taken note of it"
    assert before.passed_over == []
    await memory_world.backend.outbox().acknowledge()
    found = await audited(memory_world)
    assert (found.ok, found.records_count) == (True, 15)
    (passed,) = found.passed_over
    assert (passed.shard, passed.records_count, passed.first_offset, passed.last_offset) == (0, 3, 7, 9)
    assert passed.acknowledged_at is not None


async def test_what_comes_behind_what_was_acknowledged_is_compared(memory_world: World) -> None:
    await set_back(memory_world)
    await memory_world.backend.outbox().acknowledge()
    await memory_world.write(FOREIGN["garbage"])
    assert offenders(await audited(memory_world)) == [(15, 0)]
    assert isinstance(memory_world.log, MemoryLog)
    memory_world.log.partition(AT).slots[12] = None
    assert (13, 10) in offenders(await audited(memory_world)), "decision 9 of now is left out"


async def test_a_topic_that_was_made_anew_has_nothing_that_was_acknowledged(memory_world: World) -> None:
    await set_back(memory_world)
    await memory_world.backend.outbox().acknowledge()
    await memory_world.lose_topic_tail(9)
    assert (7, 8) in offenders(await audited(memory_world))


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)


async def _until_published(backend: Backend, seq: int) -> None:
    """Wait until a relay has noted dead letter ``seq``: a relay that ends before publishes it again."""

    outbox = backend.outbox()

    async def is_noted() -> bool:
        return await outbox.published(0, Stream.DEAD_LETTERS) == seq

    await _until_async(is_noted)


async def _until_async(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(5):
        while not await holds():
            await asyncio.sleep(0.01)
