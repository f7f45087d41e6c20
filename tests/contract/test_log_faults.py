"""Does the log survive the loss of its server, and do embedded readers wait for a slow append?"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer

from domain.model.errors import Unavailable
from ops.kafka import KafkaServer
from ops.postgres.server import EmbeddedServer
from services.adapters.embedded import statements as sql
from services.adapters.embedded.log import EmbeddedLog
from services.adapters.kafka.log import KafkaLog
from services.adapters.postgres.migrate import upgrade
from services.ports.log import Entry, Log, LogReader, Record, TopicPartition, TopicSpec
from tests.depth import some
from tests.servers import MakeDatabase

TOPIC = "faults"
AT = TopicPartition(TOPIC, 0)


async def read_values(reader: LogReader, count: int) -> list[bytes | None]:
    """Poll, through any outage, until ``count`` records came."""
    records: list[Record] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            try:
                records += await reader.poll(100, timeout_seconds=0.5)
            except Unavailable:
                await asyncio.sleep(0.1)
    return [record.value for record in records]


async def poll_for_ever(reader: LogReader) -> None:
    while True:
        await reader.poll(10, timeout_seconds=0.5)


async def until_answered(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat an append until it is known to have worked."""
    async with asyncio.timeout(60):
        while True:
            try:
                await call()
            except Unavailable:
                await asyncio.sleep(0.1)
            else:
                return


async def outage(log: Log, stop: Callable[[], object], start: Callable[[], object]) -> None:
    """Read and append through an outage, with a reader, a writer and a log that were open before it."""
    await log.ensure_topics([TopicSpec(TOPIC, 1, False)])
    reader, writer = await log.reader(), await log.writer()
    await reader.assign({AT: 0})
    await writer.append(TOPIC, [Entry(b"k", b"before")])
    assert await read_values(reader, 1) == [b"before"]

    await asyncio.to_thread(stop)
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable):
            await log.partitions(TOPIC)
        with pytest.raises(Unavailable):
            await reader.end_offsets()
        with pytest.raises(Unavailable):
            await poll_for_ever(reader)
        with pytest.raises(Unavailable):
            await writer.append(TOPIC, [Entry(b"k", b"lost")])
        late = await log.writer()
        with pytest.raises(Unavailable):
            await late.append(TOPIC, [Entry(b"k", b"lost")])
        await late.aclose()

    await asyncio.to_thread(start)
    await until_answered(lambda: writer.append(TOPIC, [Entry(b"k", b"after")]))
    assert await read_values(reader, 1) == [b"after"]
    assert await reader.end_offsets() == {AT: 2}
    last = await log.last_record(AT)
    assert last is not None
    assert last.value == b"after"
    for closing in (reader, writer, log):
        await closing.aclose()


@pytest.mark.real
async def test_kafka_is_killed_and_comes_back(server_dir: Path) -> None:
    server = KafkaServer(server_dir)
    await asyncio.to_thread(server.start)
    try:
        await outage(
            KafkaLog(server.bootstrap, timeout_seconds=1.0), lambda: server.stop(kill=True), server.start
        )
    finally:
        await asyncio.to_thread(server.stop)


async def test_the_embedded_server_stops_and_comes_back(server_dir: Path) -> None:
    server = EmbeddedServer(server_dir)
    dsn = await asyncio.to_thread(server.start)
    try:
        await upgrade(dsn)
        await outage(EmbeddedLog(dsn), server.stop, server.start)
    finally:
        await asyncio.to_thread(server.stop)


async def test_a_reader_waits_for_an_append_that_commits_late(
    database: MakeDatabase, embedded_dsn: str
) -> None:
    """Offsets are taken before the commit: a reader that went by offsets alone would skip the slow one."""
    dsn = await database(embedded_dsn)
    log = EmbeddedLog(dsn)
    await log.ensure_topics([TopicSpec(TOPIC, 1, False)])
    reader, writer = await log.reader(), await log.writer()
    await reader.assign({AT: 0})
    slow = await asyncpg.connect(dsn)
    transaction = slow.transaction()
    await transaction.start()
    ((partition, offset, now_ms),) = await slow.fetch(sql.LOCK_PARTITIONS, TOPIC, [0])
    row = (TOPIC, partition, offset, b"k", b"slow", now_ms, None)
    await slow.copy_records_to_table("log_records", columns=sql.RECORD_COLUMNS, records=[row])
    await slow.execute(sql.ADVANCE_PARTITIONS, TOPIC, [0], [offset + 1], sql.CHANNEL)

    fast = asyncio.create_task(writer.append(TOPIC, [Entry(b"k", b"fast")]))
    assert not await reader.poll(10, timeout_seconds=0.3)
    assert await reader.end_offsets() == {AT: 0}
    assert not fast.done()
    await transaction.commit()
    await fast
    assert await read_values(reader, 2) == [b"slow", b"fast"]
    await slow.close()
    for closing in (reader, writer, log):
        await closing.aclose()


async def test_writers_of_the_same_partitions_do_not_deadlock(
    database: MakeDatabase, embedded_dsn: str
) -> None:
    log = EmbeddedLog(await database(embedded_dsn))
    await log.ensure_topics([TopicSpec(TOPIC, 8, False)])
    writers = [await log.writer() for _ in range(4)]
    entries = [Entry(b"%d" % i, b"v") for i in range(64)]

    async def write(turn: int) -> None:
        for _ in range(25):
            await writers[turn].append(TOPIC, entries[turn:] + entries[:turn])

    await asyncio.gather(*(write(turn) for turn in range(4)))
    reader = await log.reader()
    await reader.assign({TopicPartition(TOPIC, p): 0 for p in range(8)})
    assert sum((await reader.end_offsets()).values()) == 4 * 25 * 64
    for writer in writers:
        await writer.aclose()
    await reader.aclose()
    await log.aclose()


async def test_a_cancelled_append_leaves_the_writer_usable(database: MakeDatabase, embedded_dsn: str) -> None:
    dsn = await database(embedded_dsn)
    log = EmbeddedLog(dsn)
    await log.ensure_topics([TopicSpec(TOPIC, 1, False)])
    writer, reader = await log.writer(), await log.reader()
    blocker = await asyncpg.connect(dsn)
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.fetch(sql.LOCK_PARTITIONS, TOPIC, [0])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await writer.append(TOPIC, [Entry(b"k", b"given up")])
    await transaction.rollback()
    await blocker.close()
    await writer.append(TOPIC, [Entry(b"k", b"kept")])
    await reader.assign({AT: 0})
    assert (await read_values(reader, 1))[-1] == b"kept"
    for closing in (reader, writer, log):
        await closing.aclose()


async def test_a_database_without_tables_says_what_to_do(embedded_dsn: str) -> None:
    log = EmbeddedLog(embedded_dsn)
    with pytest.raises(Unavailable, match="berth init"):
        await log.partitions(TOPIC)
    await log.aclose()


async def _look(log: KafkaLog) -> None:
    await log.backlogs({TopicPartition("looked-at", 0): 0})


async def _ask(log: KafkaLog) -> None:
    await log.partitions("looked-at")


async def _read(log: KafkaLog) -> None:
    async with contextlib.aclosing(await log.reader()) as reader:
        await reader.first_offsets([TopicPartition("looked-at", 0)])


async def _write(log: KafkaLog) -> None:
    async with contextlib.aclosing(await log.writer()) as writer:
        await writer.append("looked-at", [Entry(b"k", b"v")])


@pytest.mark.parametrize("call", [_look, _ask, _read, _write])
async def test_a_call_that_is_cancelled_leaves_no_connection_open(
    kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch, call: Callable[[KafkaLog], Awaitable[None]]
) -> None:
    """The client library warns of such a connection when it is collected."""
    left_open: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda found: left_open.append(found.exc_value))
    log = KafkaLog(kafka_bootstrap)
    await log.ensure_topics([TopicSpec("looked-at", 1, False)])
    await log.aclose()
    gc.collect()
    gc.freeze()  # so that each of these collections looks at what the call left, and not at all the tests
    try:
        for quarter_ms in some(range(60)):
            log = KafkaLog(kafka_bootstrap)
            running = asyncio.ensure_future(call(log))
            await asyncio.sleep(quarter_ms / 4000)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await log.aclose()
            del running, log
            gc.collect()
    finally:
        gc.unfreeze()
    assert left_open == []


@pytest.mark.real
async def test_what_a_poll_took_before_it_failed_comes_again(
    kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = KafkaLog(kafka_bootstrap)
    await log.ensure_topics([TopicSpec("cut-off", 2, False)])
    writer, reader = await log.writer(), await log.reader()
    for partition in (0, 1):
        await writer.append("cut-off", [Entry(b"k", b"%d" % partition)], partition)
    at = {TopicPartition("cut-off", partition): 0 for partition in (0, 1)}
    take, fails = AIOKafkaConsumer.getmany, [False, True]

    async def cut_off(self: AIOKafkaConsumer, *args: Any, **options: Any) -> Any:
        found = await take(self, *args, **options)
        if found and fails and fails.pop(0):
            raise TimeoutError
        return found

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", cut_off)
    await reader.assign(at)
    await reader.end_offsets()
    await asyncio.sleep(0.5)  # both partitions are fetched
    assert set(await read_values(reader, 2)) == {b"0", b"1"}
    assert not fails
    for closing in (reader, writer, log):
        await closing.aclose()
