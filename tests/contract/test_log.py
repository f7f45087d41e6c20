"""Does every adapter of the log port keep the port's promises?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiokafka.partitioner import DefaultPartitioner

from domain.model.errors import FieldError, LogTruncated, TopicMismatch, Unavailable
from services.adapters.embedded.log import EmbeddedLog
from services.codec.partition import RECORD_BYTES_MAX
from services.ports.log import (
    Backlog,
    Entry,
    Log,
    LogReader,
    LogWriter,
    Record,
    Span,
    TopicPartition,
    TopicSpec,
)
from tests.contract.conftest import Harness


@asynccontextmanager
async def writing(log: Log) -> AsyncIterator[LogWriter]:
    writer = await log.writer()
    try:
        yield writer
    finally:
        await writer.aclose()


@asynccontextmanager
async def reading(log: Log, topic: str, *offsets: int) -> AsyncIterator[LogReader]:
    """Open a reader of partitions 0, 1, ... at the offsets."""
    reader = await log.reader()
    try:
        await reader.assign({TopicPartition(topic, p): offset for p, offset in enumerate(offsets)})
        yield reader
    finally:
        await reader.aclose()


async def read(reader: LogReader, count: int, records_max: int = 1_000) -> list[Record]:
    """Poll until ``count`` records came; more than that, or none for long, is a failure."""
    records: list[Record] = []
    while len(records) < count:
        polled = await reader.poll(records_max, timeout_seconds=10)
        assert 0 < len(polled) <= records_max
        records += polled
    assert len(records) == count
    return records


def numbered(count: int) -> list[Entry]:
    return [Entry(b"key-%d" % i, b"%d" % i) for i in range(count)]


async def test_an_append_says_where_its_records_are(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=3)
    async with writing(log) as writer, reading(log, topic, 0, 0, 0) as reader:
        assert await writer.append(topic, []) == []
        assert await writer.append(topic, numbered(2), partition=1) == [Span(topic, 1, 0, 2)]
        more = [Entry(b"other-%d" % i, b"x" * 40_000) for i in range(100)]  # several batches per partition
        spans = await writer.append(topic, more)
        records = await read(reader, 102)
    written = {(at.topic, at.partition, offset) for at in spans for offset in range(at.first, at.end)}
    assert written == {(r.topic, r.partition, r.offset) for r in records if r.value == b"x" * 40_000}
    assert sum(span.end - span.first for span in spans) == 100


async def test_what_lies_ahead_is_known_without_reading_it_all(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await log.backlogs({first: 0, second: 0}) == {first: Backlog(0, None), second: Backlog(0, None)}
    async with writing(log) as writer, reading(log, topic, 0) as reader:
        for _ in range(3):
            await writer.append(topic, numbered(2), partition=0)
        times = [record.timestamp_ms for record in await read(reader, 6)]
    assert await log.backlogs({first: 0, second: 0}) == {
        first: Backlog(6, times[0]),
        second: Backlog(0, None),
    }
    assert await log.backlogs({first: 4}) == {first: Backlog(6, times[4])}
    assert await log.backlogs({first: 6}) == {first: Backlog(6, None)}
    assert await log.backlogs({}) == {}
    await harness.truncate(first, 4)
    assert await log.backlogs({first: 1}) == {first: Backlog(6, times[4])}


async def test_nothing_lies_ahead_in_a_partition_that_is_not_there(harness: Harness, log: Log) -> None:
    topic = await harness.topic()
    for at in (TopicPartition(topic, 1), TopicPartition(f"{topic}.not", 0)):
        with pytest.raises(Unavailable, match="does not exist"):
            await log.backlogs({at: 0})


async def test_records_come_back_as_they_were_appended(harness: Harness, log: Log) -> None:
    topic = await harness.topic()
    entries = [
        Entry(b"key", b"value"),
        Entry(bytes(range(256)), bytes(reversed(range(256)))),
        Entry(b"tombstone", None),
        Entry(None, b"without key"),
        Entry(b"", b""),
        Entry(b"key", b"x" * 2_000_000),
        Entry(b"sealed", b"value", b"\0seal\xff"),
        Entry(b"sealed", None, b""),
    ]
    async with writing(log) as writer, reading(log, topic, 0) as reader:
        await writer.append(topic, entries)
        records = await read(reader, len(entries))
    assert [Entry(r.key, r.value, r.seal) for r in records] == entries
    assert [(r.topic, r.partition, r.offset) for r in records] == [(topic, 0, i) for i in range(8)]
    times = [r.timestamp_ms for r in records]
    assert times == sorted(times)
    assert times[0] > 1_600_000_000_000


async def test_a_log_elsewhere_keeps_which_ledger_a_decision_is_of(harness: Harness, log: Log) -> None:
    topic = await harness.topic()
    async with writing(log) as writer, reading(log, topic, 0) as reader:
        await writer.append(
            topic, [Entry(b"k", b"v", None, b"ledger.1"), Entry(b"k", b"v", b"s", b"ledger.2")]
        )
        records = await read(reader, 2)
    kept = [None, None] if isinstance(log, EmbeddedLog) else [b"ledger.1", b"ledger.2"]
    assert [(record.seal, record.ledger) for record in records] == [(None, kept[0]), (b"s", kept[1])]


async def test_keys_go_where_kafka_sends_them_and_keep_their_order(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=7)
    entries = [Entry(f"ns/pod-{i % 300}".encode(), str(i).encode()) for i in range(1_000)]
    async with writing(log) as writer, reading(log, topic, *[0] * 7) as reader:
        await writer.append(topic, entries)
        records = await read(reader, len(entries))
    everywhere = list(range(7))
    assert {r.partition for r in records} == set(everywhere)
    for partition in everywhere:
        expected = [e for e in entries if DefaultPartitioner()(e.key, everywhere, everywhere) == partition]
        assert [Entry(r.key, r.value) for r in records if r.partition == partition] == expected


async def test_append_to_a_given_partition(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=3)
    async with writing(log) as writer, reading(log, topic, 0, 0, 0) as reader:
        await writer.append(topic, numbered(20), partition=2)
        await writer.append(topic, [], partition=1)
        records = await read(reader, 20)
        assert {r.partition for r in records} == {2}
        with pytest.raises(FieldError, match="partition"):
            await writer.append(topic, numbered(1), partition=3)


async def test_poll_returns_at_most_what_was_asked_for_and_goes_on(harness: Harness, log: Log) -> None:
    topic = await harness.topic()
    async with writing(log) as writer, reading(log, topic, 0) as reader:
        await writer.append(topic, numbered(100))
        records = await read(reader, 100, records_max=7)
    assert [r.offset for r in records] == list(range(100))


async def test_poll_reaches_every_partition_soon(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=4)
    async with writing(log) as writer, reading(log, topic, 0, 0, 0, 0) as reader:
        for partition in range(4):
            await writer.append(topic, numbered(2_000), partition)
        seen = [{r.partition for r in await reader.poll(8, 10)} for _ in range(60)]
    # The first polls may find only what the broker sent first; after that all have something.
    assert set.union(*seen[30:45]) == {0, 1, 2, 3}
    assert set.union(*seen[45:]) == {0, 1, 2, 3}


async def test_an_empty_poll_waits_and_an_append_ends_the_wait(harness: Harness, log: Log) -> None:
    topic = await harness.topic()
    async with writing(log) as writer, reading(log, topic, 0) as reader:
        started = time.monotonic()
        assert not await reader.poll(10, timeout_seconds=0.3)
        assert time.monotonic() - started >= 0.25
        assert not await reader.poll(10, timeout_seconds=0)
        polling = asyncio.create_task(_poll(reader))
        await asyncio.sleep(0.1)
        await writer.append(topic, numbered(1))
        assert len(await polling) == 1


async def _poll(reader: LogReader) -> Sequence[Record]:
    async with asyncio.timeout(10):
        return await reader.poll(10, timeout_seconds=30)


async def test_ends_cover_everything_appended_before(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=2)
    async with writing(log) as writer, reading(log, topic, 0, 0) as reader:
        for count in range(1, 6):
            await writer.append(topic, numbered(3), partition=1)
            assert await reader.end_offsets() == {
                TopicPartition(topic, 0): 0,
                TopicPartition(topic, 1): 3 * count,
            }


async def test_ends_of_partitions_that_are_not_assigned_can_be_asked_for(harness: Harness, log: Log) -> None:
    topic, other = await harness.topic(partitions=2), await harness.topic(partitions=1)
    async with writing(log) as writer, reading(log, topic, 0) as reader:
        await writer.append(topic, numbered(3), partition=1)
        await writer.append(other, numbered(2), partition=0)
        asked = [TopicPartition(topic, 1), TopicPartition(other, 0)]
        assert await reader.end_offsets(asked) == {asked[0]: 3, asked[1]: 2}
        assert await reader.end_offsets([]) == {}
        assert await reader.end_offsets() == {TopicPartition(topic, 0): 0}
        await writer.append(topic, numbered(1), partition=0)
        assert len(await reader.poll(10, timeout_seconds=10)) == 1


async def test_assign_starts_anywhere_and_replaces_what_was(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=2)
    async with writing(log) as writer, reading(log, topic, 0, 0) as reader:
        await writer.append(topic, numbered(50), partition=0)
        await writer.append(topic, numbered(50), partition=1)
        await reader.poll(10, timeout_seconds=10)
        await reader.assign({TopicPartition(topic, 1): 30})
        assert [(r.partition, r.offset) for r in await read(reader, 20)] == [(1, i) for i in range(30, 50)]
        assert not await reader.poll(10, timeout_seconds=0.2)
        await reader.assign({TopicPartition(topic, 1): 50})
        await writer.append(topic, [Entry(b"k", b"the next")], partition=1)
        assert [r.value for r in await read(reader, 1)] == [b"the next"]


@pytest.mark.parametrize("position", [0, 9, 31])
async def test_a_position_that_the_log_does_not_hold_is_an_error(
    harness: Harness, log: Log, position: int
) -> None:
    topic = await harness.topic()
    at = TopicPartition(topic, 0)
    async with writing(log) as writer:
        await writer.append(topic, numbered(30))
        await harness.truncate(at, 10)
        async with reading(log, topic, position) as reader:
            assert await reader.first_offsets([at]) == {at: 10}
            for _ in range(2):
                with pytest.raises(LogTruncated):
                    await reader.poll(10, timeout_seconds=10)
            await reader.assign({at: 10})
            assert [r.offset for r in await read(reader, 20)] == list(range(10, 30))


async def test_pause_holds_back_and_resume_goes_on(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with writing(log) as writer, reading(log, topic, 0, 0) as reader:
        await writer.append(topic, numbered(30), partition=0)
        await writer.append(topic, numbered(30), partition=1)
        records = list(await reader.poll(4, timeout_seconds=10))
        reader.pause([first])
        while sum(r.partition == 1 for r in records) < 30:
            polled = await reader.poll(4, timeout_seconds=10)
            assert {r.partition for r in polled} == {1}
            records += polled
        reader.pause([second])
        assert not await reader.poll(4, timeout_seconds=0.2)
        await writer.append(topic, numbered(5), partition=1)
        reader.resume([first])
        while sum(r.partition == 0 for r in records) < 30:
            polled = await reader.poll(4, timeout_seconds=10)
            assert {r.partition for r in polled} == {0}
            records += polled
        reader.resume([second])
        records += await read(reader, 5)
    for partition, count in ((0, 30), (1, 35)):
        assert [r.offset for r in records if r.partition == partition] == list(range(count))


async def test_a_reader_never_overtakes_writers_that_compete(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=2)
    appends, size, writers = 15, 40, 3

    async def write(name: str) -> None:
        mine = harness.connect()
        async with writing(mine) as writer:
            for turn in range(appends):
                entries = [Entry(b"%d" % i, f"{name}-{turn * size + i:05}".encode()) for i in range(size)]
                await writer.append(topic, entries)
        await mine.aclose()

    async with reading(log, topic, 0, 0) as reader, asyncio.TaskGroup() as group:
        for number in range(writers):
            group.create_task(write(f"w{number}"))
        records = await read(reader, appends * size * writers, records_max=50)
    for partition in (0, 1):
        mine = [r for r in records if r.partition == partition]
        assert [r.offset for r in mine] == list(range(len(mine)))
        for number in range(writers):
            values = [r.value for r in mine if r.value is not None and r.value.startswith(b"w%d" % number)]
            assert values == sorted(values)
    assert len({r.value for r in records}) == appends * size * writers


async def test_the_last_record(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=2)
    at = TopicPartition(topic, 1)
    assert await log.last_record(at) is None
    async with writing(log) as writer:
        await writer.append(topic, numbered(300), partition=1)
    last = await log.last_record(at)
    assert last is not None
    assert (last.offset, last.key, last.value) == (299, b"key-299", b"299")
    assert await log.last_record(TopicPartition(topic, 0)) is None
    await harness.truncate(at, 300)
    assert await log.last_record(at) is None


async def test_topics_are_created_once_and_keep_their_partitions(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=3, compacted=True)
    assert await log.partitions(topic) == 3
    assert await log.partitions(f"{topic}.not") == 0
    async with writing(log) as writer, reading(log, topic, 0, 0, 0) as reader:
        await writer.append(topic, numbered(10))
        await log.ensure_topics([TopicSpec(topic, 3, True), TopicSpec(f"{topic}.more", 1, False)])
        assert await log.partitions(f"{topic}.more") == 1
        with pytest.raises(TopicMismatch, match="has 3 partitions, not 4"):
            await log.ensure_topics([TopicSpec(topic, 4, True)])
        assert len(await read(reader, 10)) == 10


async def test_topics_get_more_partitions_and_keep_what_they_hold(harness: Harness, log: Log) -> None:
    topic, wide = await harness.topic(partitions=2, compacted=True), await harness.topic(partitions=6)
    before = await log.topics([topic, wide])
    async with writing(log) as writer:
        await writer.append(topic, numbered(3), 1)
    await log.add_partitions([topic, wide], 5)
    await log.add_partitions([topic], 4)
    found = await log.topics([topic, wide])
    assert found == {topic: before[topic]._replace(partitions=5), wide: before[wide]}
    async with writing(log) as writer, reading(log, topic, *[0] * 5) as reader:
        await writer.append(topic, numbered(2), 4)
        assert sorted((r.partition, r.offset) for r in await read(reader, 5)) == [
            *((1, offset) for offset in range(3)),
            *((4, offset) for offset in range(2)),
        ]


async def test_a_topic_keeps_its_id_and_no_other_has_it(harness: Harness, log: Log) -> None:
    first, second = await harness.topic(partitions=3), await harness.topic()
    found = await log.topics([first, second, f"{first}.not"])
    assert {name: state.partitions for name, state in found.items()} == {first: 3, second: 1}
    assert len({found[first].id, found[second].id, ""}) == 3
    other = harness.connect()
    assert await other.topics([first]) == {first: found[first]}
    await other.aclose()


async def test_what_does_not_exist_is_unavailable(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=2)
    async with writing(log) as writer, reading(log, topic, 0, 0) as reader:
        with pytest.raises(Unavailable, match="does not exist; `berth init` makes it"):
            await writer.append(f"{topic}.not", numbered(1))
        with pytest.raises(Unavailable, match="does not exist"):
            await reader.assign({TopicPartition(f"{topic}.not", 0): 0})
        with pytest.raises(Unavailable, match="does not exist"):
            await reader.assign({TopicPartition(topic, 2): 0})


async def test_a_record_that_is_too_large_is_refused_alone(harness: Harness, log: Log) -> None:
    topic = await harness.topic()
    fits = Entry(b"k" * 100, b"x" * (RECORD_BYTES_MAX - 100))
    async with writing(log) as writer, reading(log, topic, 0) as reader:
        with pytest.raises(FieldError, match=r"\[1\]"):
            await writer.append(topic, [Entry(b"k", b"v"), Entry(b"k", b"x" * RECORD_BYTES_MAX)])
        await writer.append(topic, [fits, Entry(b"k", b"after")])
        records = await read(reader, 2)
    assert [Entry(r.key, r.value) for r in records] == [fits, Entry(b"k", b"after")]


async def test_a_large_batch(harness: Harness, log: Log) -> None:
    topic = await harness.topic(partitions=3)
    entries = [Entry(f"ns/pod-{i}".encode(), f"{i}:".encode() + b"v" * 500) for i in range(5_000)]
    async with writing(log) as writer, reading(log, topic, 0, 0, 0) as reader:
        await writer.append(topic, entries)
        records = await read(reader, len(entries), records_max=2_000)
    assert {Entry(r.key, r.value) for r in records} == set(entries)
