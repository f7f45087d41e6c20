"""Can a batch in Kafka stop a worker, fill its memory, or make it miss what others wrote?"""

from __future__ import annotations

import asyncio
import random
import resource
import struct
import time
from collections.abc import Sequence

import pytest
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import CorruptRecordException
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from domain.model.limits import unpacked_batch_bytes_max, unpacked_held_bytes_max, unpacked_poll_bytes_max
from services import bootstrap
from services.adapters.kafka.batches import SMALL_RECORDS_MAX, Batches
from services.adapters.kafka.internals import Budget, _Fetched, _tries
from services.adapters.kafka.log import KafkaLog
from services.codec.decode import Decoder
from services.codec.partition import RECORD_BYTES_MAX
from services.config import Settings
from services.metrics import process_registry
from services.ports.log import PODS_TOPIC, Entry, Record, TopicPartition, TopicSpec
from tests.builders import event_bytes, node_manifest, pod_manifest
from tests.integration.api_world import client_of, fresh_database
from tests.property.site import Site
from tests.security.kafka_batches import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    batch,
    bomb,
    pack,
    plain,
    produce,
    rebased,
    record_bytes,
    records_bytes,
    varint,
)

AT = KafkaPartition(PODS_TOPIC, 0)
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MIB = 1 << 20
GOOD = plain(b"good")


def fetch(data: bytes, budget: Budget | None = None, start: int = 0) -> _Fetched:
    return _Fetched(AT, Batches(data), None, start, budget or Budget(), None, True, 1)


def polls(fetched: _Fetched, records_max: int = 1_000) -> list[list[Record]]:
    """Take all of a fetch, poll after poll."""
    found = []
    while not fetched.ended:
        fetched._key_deserializer.begin_poll()
        found.append(fetched.take_records(records_max))
    return found


def read(*batches: bytes, start: int = 0) -> list[Record]:
    return [each for poll in polls(fetch(rebased(batches), start=start)) for each in poll]


def outline(records: Sequence[Record]) -> list[tuple[int, str]]:
    """Return the offsets, each with the code of its fault or the value."""
    return [
        (each.offset, each.fault.code if each.fault else (each.value or b"").decode()) for each in records
    ]


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def test_a_batch_that_unpacks_to_gigabytes_is_refused_and_the_next_one_read() -> None:
    before = peak_mib()
    raw = bomb(2_000 * MIB)
    assert len(raw) < 93_000
    assert outline(read(GOOD, raw, GOOD)) == [(0, "good"), (1, "batch-too-large"), (2, "good")]
    assert peak_mib() - before < 3 * (unpacked_batch_bytes_max >> 20)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_no_method_of_packing_is_a_way_around(codec: int) -> None:
    raw = batch(pack(codec, record_bytes(0, b"k", bytes(unpacked_batch_bytes_max))), 1, codec=codec)
    assert outline(read(raw, GOOD)) == [
        (0, "batch-too-large"),
        (1, "good"),
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("pods", [300, 30_000])
def test_what_a_producer_packs_well_is_read(codec: int, pods: int) -> None:
    """30,000 equal pods are 45 MB, and less than 1 MiB when packed; 300 are what a client packs at a time."""
    entries = [(b"shop/web-%d" % i, b'{"name": "web-%d"}' % i + b" " * 1_500) for i in range(pods)]
    raw = batch(pack(codec, records_bytes(entries)), pods, codec=codec)
    records = read(raw, GOOD)
    assert [(each.key, each.value) for each in records[:-1]] == entries
    assert [each.offset for each in records] == list(range(pods + 1))
    halfway = read(raw, start=pods // 2)
    assert halfway == records[pods // 2 : -1]


def test_many_bombs_are_opened_one_in_a_poll() -> None:
    """Else four MiB of them, one fetch, would keep the process from its leases for minutes."""
    found = polls(fetch(rebased([bomb(200 * MIB)] * 5 + [GOOD])))
    assert [len(poll) for poll in found[:5]] == [1] * 5


def test_records_of_a_large_batch_come_as_many_as_a_poll_may_hold() -> None:
    entries = [(b"k", bytes(MIB)) for _ in range(100)]
    found = polls(fetch(batch(pack(ZSTD, records_bytes(entries)), 100, codec=ZSTD)))
    sizes = [sum(len(each.value or b"") for each in poll) for poll in found]
    assert sum(sizes) == 100 * MIB
    assert max(sizes) <= unpacked_poll_bytes_max + MIB


def test_large_batches_of_many_partitions_are_not_held_at_once() -> None:
    body = records_bytes([(b"k", b"v" * 1_000)] * 60_000)
    raw = batch(pack(ZSTD, body), 60_000, codec=ZSTD)
    budget = Budget()
    fetches = [fetch(raw, budget) for _ in range(8)]
    for each in fetches:
        budget.begin_poll()
        assert len(each.take_records(10)) == 10
    assert 8 * len(body) > unpacked_held_bytes_max
    kept = [each for each in fetches if each.take_records(1)]
    assert len(kept) * len(body) <= unpacked_held_bytes_max
    assert fetches[0].ended
    assert fetches[0].next_fetch_offset == 10  # from where the client asks again


def test_a_record_of_a_large_batch_that_is_too_large_is_refused_alone() -> None:
    body = record_bytes(0, b"k", bytes(RECORD_BYTES_MAX + 1)) + record_bytes(1, b"k", b"small")
    assert outline(read(batch(pack(ZSTD, body), 2, codec=ZSTD))) == [(0, "too-large"), (1, "small")]


def test_headers_cannot_make_objects_without_end() -> None:
    """A header of two bytes is an object of a hundred."""
    headers = varint(20 * MIB) + b"\0\x01" * (20 * MIB)
    before = peak_mib()
    raw = batch(pack(ZSTD, record_bytes(0, b"k", b"v", headers=headers)), 1, codec=ZSTD)
    assert outline(read(raw, GOOD)) == [(0, "batch-corrupt"), (1, "good")]
    assert peak_mib() - before < 400


def test_records_of_seven_bytes_are_made_when_they_are_asked_for() -> None:
    count = 500_000
    body = records_bytes([(b"", b"")] * count)
    fetched = fetch(batch(pack(ZSTD, body), count, codec=ZSTD))
    before = peak_mib()
    assert len(fetched.take_records(100)) == 100
    assert count > SMALL_RECORDS_MAX
    assert peak_mib() - before < 60


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(batch(b"\x28\xb5\x2f\xfdxxxx", 1, codec=ZSTD), id="zstd"),
        pytest.param(batch(b"xxxx", 1, codec=GZIP), id="gzip"),
        pytest.param(batch(b"xxxx", 1, codec=LZ4), id="lz4"),
        pytest.param(batch(b"\xff\xff\xff\xff\x7fx", 1, codec=SNAPPY), id="snappy"),
        pytest.param(
            batch(b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -4) + b"x" * 8, 1, codec=SNAPPY),
            id="a block of snappy that ends before it begins, over and over",
        ),
        pytest.param(batch(pack(ZSTD, records_bytes([(b"k", b"v")]))[:-3], 1, codec=ZSTD), id="cut off"),
        pytest.param(batch(records_bytes([(b"k", b"v")]), 1, codec=7), id="packed by nobody knows what"),
        pytest.param(batch(records_bytes([(b"k", b"v")] * 2), 2, told=1, last_delta=0), id="more records"),
        pytest.param(batch(records_bytes([(b"k", b"v")]), 1, told=2), id="fewer records"),
        pytest.param(batch(records_bytes([(b"k", b"v")]), 1, told=2**31 - 1), id="many fewer records"),
        pytest.param(batch(record_bytes(1_000, b"k", b"v"), 1), id="an offset that jumps ahead"),
        pytest.param(batch(record_bytes(-9, b"k", b"v"), 1), id="an offset that jumps back"),
        pytest.param(batch(record_bytes(0, b"k", b"v") * 2, 2, last_delta=0), id="an offset twice"),
        pytest.param(batch(record_bytes(0, b"k", b"v", more=2**40), 1), id="a length beyond the batch"),
        pytest.param(batch(b"\x01" + record_bytes(0, b"k", b"v"), 1), id="a negative length"),
        pytest.param(batch(b"\xff" * 40, 1), id="a number without end"),
        pytest.param(
            batch(record_bytes(0, b"k", b"v", headers=varint(2**31) + b"\0\x01" * 9), 1), id="headers"
        ),
        pytest.param(batch(record_bytes(0, b"k", b"v", headers=varint(-1)), 1), id="negative headers"),
        pytest.param(batch(record_bytes(0, b"k", b"v", headers=b"\x02\x02\xff\x01"), 1), id="no UTF-8"),
    ],
)
def test_a_batch_that_is_not_what_it_says_is_refused(raw: bytes) -> None:
    assert outline(read(GOOD, raw, GOOD)) == [(0, "good"), (1, "batch-corrupt"), (2, "good")]


@pytest.mark.parametrize("length", [2**31 - 1, 2**62, 2**63 - 1, 2**63 - 40, -(2**63), -2])
@pytest.mark.parametrize("place", ["key", "value", "header key", "header value"])
def test_no_length_leads_out_of_the_batch(place: str, length: int) -> None:
    key, value, headers = varint(1) + b"k", varint(1) + b"v", varint(1) + varint(1) + b"h" + varint(1) + b"i"
    wrong = varint(length)
    if place == "key":
        key = wrong + b"k"
    elif place == "value":
        value = wrong + b"v"
    else:
        headers = varint(1) + (wrong + b"h" if place == "header key" else varint(1) + b"h" + wrong + b"i")
    inner = b"\0\0\0" + key + value + headers
    (bad, good) = read(batch(varint(len(inner)) + inner, 1), GOOD)
    assert bad.fault is not None
    assert bad.fault.code == "batch-corrupt"
    assert good.value == b"good"


def test_whatever_bytes_stand_in_a_batch_the_reader_goes_on() -> None:
    chance = random.Random(7)
    body = records_bytes([(b"shop/web-%d" % i, b"value %d" % i) for i in range(20)])
    refused = 0
    for _ in range(1_500):
        changed = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        *found, last = read(batch(bytes(changed), 20), GOOD)
        assert last.value == b"good"
        assert last.offset == 20
        refused += found[0].fault is not None
        # All or nothing: a batch that is refused leaves one record, at its end.
        assert len(found) == 20 if found[0].fault is None else [each.offset for each in found] == [19]
    assert refused > 150


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_whatever_the_head_of_a_batch_says_the_reader_ends(codec: int) -> None:
    """It also says whether the batch is a broker's mark, part of a transaction, or where it ends."""
    chance = random.Random(codec)
    body = records_bytes([(b"k%d" % i, b"v%d" % i) for i in range(20)])
    original = batch(pack(codec, body) if codec else body, 20, codec=codec)
    outcomes = set()
    for _ in range(300):
        raw = bytearray(original)
        for _ in range(chance.randint(1, 3)):
            raw[chance.randrange(21, 61)] = chance.choice((0, 1, 0x10, 0x20, 0x30, 0x80, 0xFF))
        raw[17:21] = struct.pack(">I", calc_crc32c(bytes(raw[21:])))
        found = polls(fetch(bytes(raw) + plain(b"good", base=1 << 40)))
        records = [each for poll in found for each in poll]
        offsets = [each.offset for each in records]
        assert offsets == sorted(set(offsets))
        assert records[-1].value == b"good"
        outcomes |= {each.fault.code for each in records if each.fault}
    assert "batch-corrupt" in outcomes


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_an_old_format_is_no_way_around(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 0)
    builder.append(0, timestamp=None if magic == 0 else 1_000, key=None, value=bytes(10 * MIB))
    old = bytes(builder.build())
    records = [each for poll in polls(fetch(old + plain(b"good", base=1))) for each in poll]
    assert outline(records) == [(0, "batch-format"), (1, "good")]


def test_a_wrong_checksum_is_refused_when_it_stays_wrong() -> None:
    """The network may have changed it: the batch is asked for again before it counts as lost."""
    _tries.cache_clear()
    data = rebased([GOOD, batch(records_bytes([(b"k", b"v")]), 1, crc=1), GOOD])
    for _ in range(2):
        with pytest.raises(CorruptRecordException):
            polls(fetch(data))
    found = polls(fetch(data))
    assert outline(found[0]) == [(0, "good"), (1, "batch-corrupt")]
    assert outline(found[1]) == [(2, "good")]


def test_the_same_batch_is_always_the_same_dead_letter() -> None:
    event = event_bytes("ADDED", pod_manifest("web"))
    good = batch(records_bytes([(b"default/web", event)]), 1)
    letters = []
    for start in (0, 1):
        site = Site()
        records = read(good, bomb(200 * MIB), batch(b"\xff" * 40, 5), good, start=start)
        site.take([each._replace(topic=PODS_TOPIC) for each in records])
        letters.append([letter for rows in site.database.dead_letters.values() for letter in rows])
    for first, second in zip(*letters, strict=True):
        assert (first.offset, first.code, first.message) == (second.offset, second.code, second.message)
    assert [(each.offset, each.code) for each in letters[0]] == [(1, "batch-too-large"), (6, "batch-corrupt")]
    assert "offsets 2 to 6" in letters[0][1].message


def test_a_fault_is_no_tombstone() -> None:
    (record,) = read(bomb(200 * MIB))
    decoded = Decoder().decode(record)
    assert decoded.event is None
    assert decoded.rejected is not None
    assert decoded.rejected.code == "batch-too-large"


@pytest.mark.real
async def test_a_real_broker_takes_such_batches_and_a_reader_survives_them(fresh_kafka: str) -> None:
    log = KafkaLog(fresh_kafka)
    await log.ensure_topics([TopicSpec(PODS_TOPIC, 1, True)])
    writer, reader = await log.writer(), await log.reader()
    jump = batch(record_bytes(1_000, b"k", b"v"), 1, at_ms=int(time.time() * 1000))
    await writer.append(PODS_TOPIC, [Entry(b"k", b"before")])
    await produce(fresh_kafka, PODS_TOPIC, 0, bomb(2_000 * MIB), jump)
    await writer.append(PODS_TOPIC, [Entry(b"k", b"after")])
    at = TopicPartition(PODS_TOPIC, 0)
    for start in (0, 1, 2):  # as after a restart anywhere
        await reader.assign({at: start})
        found: list[Record] = []
        while not found or found[-1].value != b"after":
            found += await reader.poll(100, timeout_seconds=10)
        wanted = [(0, "before"), (1, "batch-too-large"), (2, "batch-corrupt"), (3, "after")]
        assert outline(found) == wanted[start:]
    last = await log.last_record(at)
    assert last is not None
    assert last.value == b"after"
    assert (await log.backlogs({at: 1}))[at].oldest_ms is not None
    for each in (reader, writer, log):
        await each.aclose()


@pytest.mark.real
async def test_a_worker_goes_on_behind_a_bomb_and_so_does_the_next_one(
    fresh_kafka: str, embedded_dsn: str
) -> None:
    """It died of the batch, and of the same batch after every restart."""
    async with fresh_database(embedded_dsn) as place:
        at = place._replace(kafka_bootstrap=fresh_kafka)
        await bootstrap.initialise(at, 1)
        async with client_of(at) as client:
            for turn in ("first", "second"):
                await produce(fresh_kafka, PODS_TOPIC, 0, bomb(2_000 * MIB))  # where a worker begins
                settings = Settings(worker_name=turn)
                worker = asyncio.create_task(bootstrap.run_worker(at, settings, process_registry()))
                for name in ("a", "b"):
                    await produce(fresh_kafka, PODS_TOPIC, 0, bomb(2_000 * MIB))
                    things = [node_manifest("n"), pod_manifest(f"{turn}-{name}")]
                    events = [{"type": "ADDED", "object": each} for each in things]
                    told = {"wait": "60s", "until": "decided"}
                    answer = await client.post("/v1/events", params=told, json=events, timeout=70)
                    assert [each["outcome"] for each in answer.json()["decisions"]] == ["bound"], answer.text
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)
            letters = (await client.get("/v1/deadletters")).json()["items"]
        assert [letter["code"] for letter in letters] == ["batch-too-large"] * 6
        assert [letter["offset"] for letter in letters] == [8, 6, 5, 3, 1, 0]
