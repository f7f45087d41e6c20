"""Reads `berth.decisions`: each decision once and in order, as far as the reader's checkpoint is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from msgspec import Struct

from berth.client.errors import BerthError, LostRecords, NotConfigured, Unavailable
from berth.client.kafka.access import find_brokers
from berth.client.kafka.checkpoint import Checkpoint, ShardCheckpoint
from berth.client.kafka.connecting import answering, finished, no_topic, partitions_by_topic
from berth.client.kafka.records import DECISIONS_TOPIC
from berth.client.kafka.shard import Item, Shard
from berth.client.retrying import Retry

_POLL_SECONDS = 1.0
_SILENCE_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_LOOK_SECONDS = 30.0
_WAITS = Retry(seconds_min=0.1, seconds_max=5.0)
_log = logging.getLogger("berth.client")


class Batch(Struct, frozen=True):
    """What came, in the order of each shard; the checkpoint is how far the reader is behind all of it."""

    items: Sequence[Item]
    checkpoint: Checkpoint


class _Silence:
    """How long nothing has come, and whether something should have."""

    def __init__(self) -> None:
        self._since = 0.0
        self._behind: Mapping[TopicPartition, int] = {}

    def end(self) -> None:
        """Note that records came."""
        self._since = asyncio.get_running_loop().time()

    def is_long(self) -> bool:
        """Return whether it is time to ask the brokers, as every few seconds of silence."""
        if asyncio.get_running_loop().time() - self._since < _SILENCE_SECONDS:
            return False
        self.end()
        return True

    def is_wrong(self, behind: Mapping[TopicPartition, int]) -> bool:
        """Return whether a partition that holds more stays where it was when this was asked before."""
        before, self._behind = self._behind, behind
        return bool(before.items() & behind.items())


class DecisionConsumer:
    """Reads decisions: an asynchronous iterator of batches without an end. Use it as a context.

    It keeps nothing in Kafka: no consumer group, no committed offsets. How far the reader is, is the
    checkpoint of the last batch that it stored. Stored in one transaction with what the reader does about the
    batch, each decision has its effect once, wherever the reader dies. A broker that goes away is waited for.

    Parameters
    ----------
    bootstrap : str, optional
        Brokers, `host:port`, joined by commas; without it BERTH_KAFKA_BOOTSTRAP.
    checkpoint : Checkpoint, optional
        How far the reader is; without it all that the topic holds is read.
    shards : iterable of int, optional
        Read these shards alone, where several readers share them; each keeps a checkpoint of its own.
    batch_max : int
        Records of a batch. With 1 each decision comes by itself.
    security : mapping, optional
        Arguments of aiokafka, as ``security_protocol``; without it the variables that `find_brokers` names.
    timeout_seconds : float
        How long an answer of the brokers may take.

    Raises
    ------
    NotConfigured
        No brokers are named, or (as a context) they have no topic of decisions.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        checkpoint: Checkpoint | None = None,
        shards: Iterable[int] | None = None,
        batch_max: int = 500,
        security: Mapping[str, Any] | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        if batch_max < 1:
            raise ValueError(f"batch_max is {batch_max}; allowed is 1 or more")
        self._brokers = find_brokers(bootstrap, security)
        self._stored = Checkpoint() if checkpoint is None else checkpoint
        self._wanted = None if shards is None else frozenset(shards)
        self._batch_max = batch_max
        self._timeout_seconds = timeout_seconds
        self._shards: dict[int, Shard] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._silence = _Silence()
        self._looked_at = 0.0
        self._has_begun = False
        self._unsure = set[int]()  # shards to begin again: the topic may be another one
        self._failed: BerthError | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """How far the reader is behind the last batch that it was given."""
        read = {number: shard.checkpoint() for number, shard in self._shards.items()}
        return Checkpoint({**self._stored.shards, **read})

    def __aiter__(self) -> DecisionConsumer:
        return self

    async def __anext__(self) -> Batch:
        """Return what comes next, and wait for it however long that takes.

        Raises
        ------
        LostRecords
            Decisions went from the topic before they were read; its ``checkpoint`` goes on behind them.
        BadAnswer
            A decision is of another shape than this client knows.
        NotAllowed
            The brokers do not let this principal read.
        Unavailable
            They do not answer at the beginning.
        """
        tried = 0
        while True:
            if self._failed is not None:
                raise self._failed
            try:
                consumer = await self._begun()
                items = await self._poll(consumer)
                if items:
                    return Batch(items, self.checkpoint)
                await self._check(consumer)
                tried = 0
            except Unavailable as error:
                await self._discard()
                if not self._has_begun:
                    raise
                tried += 1
                if tried == 1:
                    _log.info("the decisions are read again as soon as Kafka answers: %s", error)
                await asyncio.sleep(_WAITS.wait(tried))

    async def _begun(self) -> AIOKafkaConsumer:
        """Return the consumer, connected and where each shard goes on; one that is half so is discarded."""
        try:
            consumer = await self._connected()
            await self._look(consumer)
            while self._unsure:
                await self._begin(consumer, self._shards[min(self._unsure)])
        except asyncio.CancelledError:
            await self._discard()
            raise
        return consumer

    async def _poll(self, consumer: AIOKafkaConsumer) -> list[Item]:
        """Return what came. Nothing is awaited behind a record that was folded: the caller has to get it."""
        async with answering(self._brokers, self._timeout_seconds + _POLL_SECONDS):
            try:
                found = await consumer.getmany(
                    timeout_ms=int(_POLL_SECONDS * 1000), max_records=self._batch_max
                )
            except OffsetOutOfRangeError as error:
                self._unsure |= {at.partition for at in error.args[0]}
                return []
        if found:
            self._silence.end()
        items = list[Item]()
        for at, records in found.items():
            shard = self._shards[at.partition]
            try:
                for record in records:
                    brought = shard.fold(record)
                    if brought is None:
                        self._unsure.add(shard.number)
                        break
                    items += brought
                    if shard.lost is not None:
                        raise self._loss(shard, *shard.lost)
            except BerthError as error:
                self._failed = error
                break
        return items

    def _loss(self, shard: Shard, first: int, last: int) -> LostRecords:
        error = LostRecords(
            f"decisions {shard.number}-{first} to {shard.number}-{last} are gone from {DECISIONS_TOPIC}; "
            "read the state from the API, and go on from the checkpoint of this error",
            code="lost-records",
        )
        error.checkpoint = Checkpoint({**self.checkpoint.shards, shard.number: shard.behind_the_lost()})
        return error

    async def _begin(self, consumer: AIOKafkaConsumer, shard: Shard) -> None:
        """Read a shard from where the reader was, or from the first record that the topic holds."""
        at = TopicPartition(DECISIONS_TOPIC, shard.number)
        async with answering(self._brokers, self._timeout_seconds):
            first = (await consumer.beginning_offsets([at]))[at]
            end = (await consumer.end_offsets([at]))[at]
        consumer.seek(at, shard.begin(first, end))
        self._unsure.discard(shard.number)

    async def _connected(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            count = await self._count()
            consumer = AIOKafkaConsumer(
                **self._brokers.options,
                request_timeout_ms=int(self._timeout_seconds * 1000),
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                metadata_max_age_ms=int(_LOOK_SECONDS * 1000),
            )
            self._consumer = consumer
            async with answering(self._brokers, self._timeout_seconds):
                await consumer.start()
            await self._assign(consumer, count)
            self._has_begun = True
        return self._consumer

    async def _count(self) -> int:
        self._looked_at = asyncio.get_running_loop().time()
        found = await partitions_by_topic(self._brokers, self._timeout_seconds)
        count, missing = found.get(DECISIONS_TOPIC, 0), no_topic(self._brokers, DECISIONS_TOPIC)
        if count and self._wanted is not None and not self._wanted <= set(range(count)):
            text = f"{DECISIONS_TOPIC} has the shards 0 to {count - 1}; wanted are {sorted(self._wanted)}"
            missing = NotConfigured(text, code="no-shard")
        elif count:
            return count
        if not self._has_begun:
            raise missing
        raise Unavailable(missing.message, code=missing.code)  # it is being made anew

    async def _assign(self, consumer: AIOKafkaConsumer, count: int) -> None:
        mine = sorted(range(count) if self._wanted is None else self._wanted)
        consumer.assign([TopicPartition(DECISIONS_TOPIC, number) for number in mine])
        self._unsure = set(mine)
        for number in mine:
            if number not in self._shards:
                self._shards[number] = Shard(number, self._stored.shards.get(number, ShardCheckpoint()))
            await self._begin(consumer, self._shards[number])

    async def _look(self, consumer: AIOKafkaConsumer) -> None:
        """Look now and then whether there are new shards, and whether the topic is the one that was read."""
        if asyncio.get_running_loop().time() - self._looked_at < _LOOK_SECONDS:
            return
        count = await self._count()
        if self._wanted is None and count != len(consumer.assignment()):
            await self._assign(consumer, count)
        self._unsure = {at.partition for at in consumer.assignment()}

    async def _check(self, consumer: AIOKafkaConsumer) -> None:
        """Find out whether a topic without records is quiet, or the brokers are away.

        The library tries again for ever without a word, and where its fetching task has died it is silent.
        """
        if not self._silence.is_long():
            return
        async with answering(self._brokers, self._timeout_seconds):
            ends = await consumer.end_offsets(list(consumer.assignment()))
            places = {at: await consumer.position(at) for at in ends}
        if self._silence.is_wrong({at: place for at, place in places.items() if place < ends[at]}):
            raise Unavailable("the library no longer fetches", code="kafka-unavailable")

    async def _discard(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await finished(consumer.stop(), _CLOSE_SECONDS)
            await finished(consumer._client.close(), _CLOSE_SECONDS)  # which a stop that failed leaves open

    async def aclose(self) -> None:
        """Close the connections."""
        await self._discard()

    async def __aenter__(self) -> DecisionConsumer:
        try:
            await self._connected()
        except BaseException:
            await self._discard()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
