"""The only file that reaches into aiokafka's private parts, for what its API does not offer.

pyproject.toml holds aiokafka to the 0.14 series. ``tests/unit/test_kafka_internals.py`` fails with any other
until somebody has looked at each function here again.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property, lru_cache
from itertools import count, islice
from typing import Any
from weakref import WeakKeyDictionary

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException, KafkaError
from aiokafka.protocol.api import Request, Response
from aiokafka.record.default_records import DefaultRecordBatch

from domain.model.limits import unpacked_batch_bytes_max, unpacked_held_bytes_max, unpacked_poll_bytes_max
from services.adapters.kafka.batches import (
    SCRATCH_BYTES,
    Batches,
    Header,
    Refused,
    check_format,
    header_of,
    open_batch,
)
from services.adapters.kafka.times import until_now
from services.codec.partition import RECORD_BYTES_MAX
from services.ports.log import Fault, Record

SERIES = "0.14."
"""The versions of aiokafka that this was written for."""
SEAL_HEADER = "berth-seal"
"""The record header that holds ``Record.seal``."""
LEDGER_HEADER = "berth-ledger"
"""The record header that holds ``Record.ledger``."""
AFTER_HEADER = "berth-after"
"""The record header that holds ``Record.after``."""

_TRIES_MAX = 3


class Budget:
    """What a consumer may unpack in one poll, and hold of large batches that it has begun to read."""

    def __init__(self) -> None:
        self.bytes_left = unpacked_poll_bytes_max
        self._held: WeakKeyDictionary[_Fetched, int] = WeakKeyDictionary()

    @cached_property
    def scratch(self) -> memoryview:
        """Memory for one small batch."""
        return memoryview(bytearray(SCRATCH_BYTES))

    def begin_poll(self) -> None:
        """Begin a poll."""
        self.bytes_left = unpacked_poll_bytes_max

    def hold_batch(self, fetched: _Fetched, size: int) -> None:
        """Note a large batch in memory. Let those go that were begun first when they are too many."""
        self._held[fetched] = size
        while sum(self._held.values()) > unpacked_held_bytes_max:
            first = next(iter(self._held))
            self.release(first)
            first.let_go()

    def release(self, fetched: _Fetched) -> None:
        """Note that a large batch has been read."""
        self._held.pop(fetched, None)


class _Fetched(fetcher.PartitionRecords):  # type: ignore[misc]
    """Unpacks a fetch of one partition into our records, batch after batch.

    The client would make a record of twelve fields, and we would make ours from that. The client's record
    alone costs more than all the rest of reading. It would also unpack whatever a batch holds, and at one
    that is broken it would stop for ever.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._topic, self._partition = self._tp
        self._made: Iterator[Record] = iter(())
        self._large = False
        self._batch_end = 0
        self.ended = False

    def take_records(self, records_max: int) -> list[Record]:
        """Return the next records. None may come before the end, when the poll has unpacked enough."""
        taken: list[Record] = []
        budget: Budget = self._key_deserializer or Budget()
        opened = False  # what was unpacked is handed out
        while len(taken) < records_max and (opened or budget.bytes_left > 0):
            opened = False
            asked = 1 if self._large else records_max - len(taken)
            records = list(islice(self._made, asked))
            if records:
                taken += records
                self.next_fetch_offset = records[-1].offset + 1
                if self._large:
                    budget.bytes_left -= len(records[0].value or b"")
            if len(records) == asked or budget.bytes_left <= 0:
                continue
            # Offsets at the end of a batch may have no record: it was compacted away.
            self.next_fetch_offset = max(self.next_fetch_offset, self._batch_end)
            if self.ended or not self._records.has_next():
                self.ended = True
                break
            if self._large:
                self._large = False
                budget.release(self)
            self._open(self._records.next_batch(), budget)
            opened = True
        return taken

    def let_go(self) -> None:
        """Forget the rest of the fetch; the client will ask for it again."""
        self._made, self._batch_end, self.ended = iter(()), 0, True

    def _open(self, raw: memoryview, budget: Budget) -> None:
        """Make the records of a batch the next ones. One with a fault stands for a batch that is refused."""
        header = header_of(raw)
        self._batch_end = header.last_offset + 1
        if self._batch_end <= self.next_fetch_offset:
            return
        try:
            if self._counts(raw, header):
                self._read(raw, header, budget)
        except Refused as refused:
            budget.bytes_left -= unpacked_batch_bytes_max  # of which most may have been unpacked in vain
            self._made = iter([self._stand_in(header, refused.fault)])

    def _counts(self, raw: memoryview, header: Header) -> bool:
        """Whether a batch holds records that were not taken back."""
        check_format(header)
        packed = DefaultRecordBatch(raw)
        if not packed.validate_crc():
            if next(_tries(self._tp, header.base_offset)) < _TRIES_MAX:
                raise CorruptRecordException(f"{self._tp} at {header.base_offset}: wrong checksum")
            raise Refused("batch-corrupt", "has a wrong checksum")
        self._consume_aborted_up_to(header.base_offset)
        if header.control:
            try:
                aborts = self._contains_abort_marker(packed)
            except (KafkaError, ValueError, struct.error) as error:
                raise Refused("batch-corrupt", f"is a broker's mark that cannot be read: {error}") from None
            if aborts:
                self._aborted_producers.discard(header.producer_id)
            return False
        return not (header.transactional and header.producer_id in self._aborted_producers)

    def _read(self, raw: memoryview, header: Header, budget: Budget) -> None:
        batch, small = open_batch(raw, header, budget.scratch)
        if small:
            budget.bytes_left -= len(batch)
            self._made = iter(list(self._records_of(batch, header)))
        else:
            self._large = True
            budget.hold_batch(self, len(batch))
            self._made = self._large_records_of(batch, header)

    def _records_of(self, batch: memoryview, header: Header) -> Iterator[Record]:
        topic, partition, start = self._topic, self._partition, self.next_fetch_offset
        before, last, appended_ms = header.base_offset - 1, header.last_offset, header.appended_ms
        try:
            for record in DefaultRecordBatch(batch):
                offset = record.offset
                if not before < offset <= last:
                    raise Refused("batch-corrupt", f"has a record that says its offset is {offset}")
                before = offset
                if offset >= start:
                    claim_ms, headers = record.timestamp, record.headers
                    at_ms = until_now(topic, claim_ms) if appended_ms is None else appended_ms
                    seal, *more = _own(headers) if headers else (None, None, None)
                    claimed = appended_ms is None and at_ms != claim_ms
                    key, value = record.key, record.value
                    yield Record(topic, partition, offset, key, value, at_ms, seal, None, claimed, *more)
        except MemoryError:
            bytearray(len(batch))  # no honest record takes more; where memory is short, this fails as well
            raise Refused("batch-corrupt", "has a length that no memory can hold") from None
        except (CorruptRecordException, ValueError, OverflowError) as error:
            raise Refused("batch-corrupt", f"is not what it says: {error}") from None

    def _large_records_of(self, batch: memoryview, header: Header) -> Iterator[Record]:
        try:
            for record in self._records_of(batch, header):
                size = len(record.key or b"") + len(record.value or b"")
                if size > RECORD_BYTES_MAX:
                    fault = Fault("too-large", f"is {size} bytes; the log takes {RECORD_BYTES_MAX}")
                    record = record._replace(key=None, value=None, fault=fault)
                yield record
        except Refused as refused:
            yield self._stand_in(header, refused.fault)

    def _stand_in(self, header: Header, fault: Fault) -> Record:
        """Return the record for a batch that is refused."""
        message = f"the batch of offsets {header.base_offset} to {header.last_offset} {fault.message}"
        at_ms = until_now(self._topic, header.max_ms) if header.appended_ms is None else header.appended_ms
        fault = Fault(fault.code, message)
        return Record(self._topic, self._partition, header.last_offset, None, None, at_ms, fault=fault)


@lru_cache(maxsize=1024)
def _tries(at: TopicPartition, offset: int) -> Iterator[int]:
    """Count how often a batch came with a wrong checksum: once may be the network, or one broker's disk."""
    return count(1)


class _FetchResult(fetcher.FetchResult):  # type: ignore[misc]
    """Hands out the records of a fetch, a list at a time."""

    _partition_records: _Fetched | None

    def getall(self, max_records: int | None = None) -> list[Record]:
        """Return the next records, and move the position behind them."""
        if not self.check_assignment(self._topic_partition):
            return []
        fetched = self._partition_records
        assert fetched is not None
        records = fetched.take_records(sys.maxsize if max_records is None else max_records)
        self._update_position()
        if fetched.ended:
            self._partition_records = None
        return records

    def getone(self) -> Record | None:
        """Return the next record."""
        return next(iter(self.getall(1)), None)


def _own(headers: Iterable[tuple[str, bytes | None]]) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Return seal, ledger and ``after``: the last header of each name, as Kafka's own clients read it.

    One without a value is empty, and so no valid seal.
    """
    seal = ledger = after = None
    for name, value in headers:
        if name == SEAL_HEADER:
            seal = value or b""
        elif name == LEDGER_HEADER:
            ledger = value or b""
        elif name == AFTER_HEADER:
            after = value or b""
    return seal, ledger, after


def unpack_into_records() -> None:
    """Make all consumers of this process return ``ports.Record``.

    A consumer whose ``key_deserializer`` is a ``Budget`` keeps to that.
    """
    fetcher.MemoryRecords = Batches
    fetcher.PartitionRecords = _Fetched
    fetcher.FetchResult = _FetchResult


def set_fetch_wait(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """Change how long the broker may hold the next fetches. The API sets this only for a new consumer."""
    consumer._fetcher._fetch_max_wait_ms = wait_ms


def keep_topics(consumer: AIOKafkaConsumer, topics: Set[str]) -> None:
    """Let a consumer go on to know the leaders of these topics, whatever it is assigned; they may grow.

    To learn the leaders of a topic takes it two pauses between tries.
    """
    client: Any = consumer._client
    set_topics = client.set_topics
    client.set_topics = lambda named: set_topics({*named, *topics})


def position_known(consumer: AIOKafkaConsumer, at: TopicPartition) -> int | None:
    """Return the next offset of an assigned partition, or None before it is known; it asks no broker."""
    subscription = consumer._subscription.subscription
    state = None if subscription is None else subscription.assignment.state_value(at)
    return int(state.position) if state is not None and state.has_valid_position else None


async def stop_fetching(consumer: AIOKafkaConsumer) -> None:
    """End the fetching task. ``stop`` cancels it once, which is lost where an answer arrives just then."""
    fetching = None if consumer._fetcher is None else consumer._fetcher._fetch_task
    while fetching is not None and not fetching.done():
        fetching.cancel()
        await asyncio.wait([fetching], timeout=0.05)


async def close_client(consumer: AIOKafkaConsumer) -> None:
    """Close the connections of a consumer, which ``stop`` leaves open when it fails half-way."""
    await consumer._client.close()


async def connect_once(options: Mapping[str, Any]) -> None:
    """Connect to the first broker, prove our name, and leave; raise what went wrong, as no client does."""
    host, port, _ = collect_hosts(options["bootstrap_servers"])[0]
    others = ("bootstrap_servers", "retry_backoff_ms")
    told = {name: value for name, value in options.items() if name not in others}
    (await create_conn(host, port, **told)).close()


async def send(admin: AIOKafkaAdminClient, request: Request[Any]) -> Response:
    """Send a request that the API does not have to any broker."""
    return await admin._send_request(request)


async def drop_undelivered(producer: AIOKafkaProducer) -> None:
    """End the sending task and forget its batches; the API can only wait until they are delivered."""
    sending = producer._sender.sender_task
    while sending is not None and not sending.done():
        sending.cancel()
        await asyncio.wait([sending], timeout=0.05)
    accumulator = producer._message_accumulator
    for batches in accumulator._batches.values():
        accumulator._pending_batches.update(batches)
    accumulator._batches.clear()
    for batch in tuple(accumulator._pending_batches):
        batch.future.cancel()
