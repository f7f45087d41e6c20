"""Writes nodes, pods, profiles and other objects as events into berth's topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from types import TracebackType
from typing import Any, overload

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from berth.client import models
from berth.client.errors import InvalidRequest
from berth.client.kafka.access import find_brokers
from berth.client.kafka.connecting import answering, finished, no_topic, partitions_by_topic
from berth.client.kafka.records import RECORD_BYTES_MAX, TOPICS, EventRecord, partition_of, record_of
from berth.client.objects import Applied, Objects, events_of, named, pod_of
from berth.client.requests import PAGE, Moment

_CLOSE_SECONDS = 1.0
_METADATA_MS_MAX = 60_000
_REQUEST_BYTES_MAX = RECORD_BYTES_MAX + (64 << 10)


class EventProducer:
    """Writes events into berth's topics, as `Client.apply` sends them to the API. Use it as a context.

    The key of each record is its object's, and so is the partition: events of one object stay in order. All
    replicas have a record before it counts as written (``acks=all``), and what the producer repeats by itself
    is in the log once (an idempotent producer).

    What the API would refuse with an answer is not refused here: Kafka looks at no object. A worker does, and
    one that makes no sense goes to the dead letters (`client.deadletters.list()`), the others take effect.
    Nothing is left out either: all of a manifest is in the topic, environments and commands, too.

    Parameters
    ----------
    bootstrap : str, optional
        Brokers, `host:port`, joined by commas; without it BERTH_KAFKA_BOOTSTRAP.
    security : mapping, optional
        Arguments of aiokafka, as ``security_protocol``; without it the variables that `find_brokers` names.
    timeout_seconds : float
        How long the brokers may take for 1,000 events.

    Raises
    ------
    NotConfigured
        No brokers are named, or (as a context) they have no such topics.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        security: Mapping[str, Any] | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._brokers = find_brokers(bootstrap, security)
        self._timeout_seconds = timeout_seconds
        self._producer: AIOKafkaProducer | None = None
        self._there: Set[str] = frozenset()  # topics that may be written; some producers have rights to one
        self._turn = asyncio.Lock()

    async def apply(
        self, objects: Objects, *, idempotency_key: str | None = None, at: Moment | None = None
    ) -> Applied:
        """Write nodes, pods, profiles and other objects, as manifests or watch events.

        Parameters
        ----------
        objects : mapping or iterable of mappings
            Manifests, watch events or lists of kubectl. An iterable is read as it is sent, 1,000 at a time.
        idempotency_key : str, optional
            Names this call: the events of another call under the same key have the same ids. A worker takes
            no heed of ids. That an event comes again is harmless by the uid and the resourceVersion of its
            object; a pod with neither of them is a new pod when its event comes after its end.
        at : Moment, optional
            When it happened, as the sender claims.

        Returns
        -------
        Applied
            ``accepted``, ``pods``, and ``positions``: of each partition the last record that was written.
            `AsyncClient.read_after` waits for them; `AsyncClient.wait` for the pods.

        Raises
        ------
        InvalidRequest
            An object has no kind, no name, or is too large: nothing of its 1,000 was written. Those before
            were (``sent_count``).
        Unavailable
            The brokers do not answer in time. Any part may have been written: write all of it again.
        NotAllowed
            The brokers do not let this principal write.
        """
        return await self._write(events_of(objects, "ADDED", idempotency_key, at))

    @overload
    async def delete(self, what: str, name: str, *, idempotency_key: str | None = None) -> Applied: ...

    @overload
    async def delete(
        self, what: Objects, name: None = None, *, idempotency_key: str | None = None
    ) -> Applied: ...

    async def delete(
        self, what: str | Objects, name: str | None = None, *, idempotency_key: str | None = None
    ) -> Applied:
        """Delete an object by kind and name, or all objects of some manifests.

        ``delete("pod", "shop/web-0")``; kinds are pod, node, profile, policy, or as manifests write them.
        It returns and raises what ``apply`` does.
        """
        if isinstance(what, str):
            if name is None:
                raise ValueError(f"delete({what!r}) names no object; give its name, too")
            what = named(what, name)
        return await self._write(events_of(what, "DELETED", idempotency_key))

    async def _write(self, events: Iterable[dict[str, Any]]) -> Applied:
        applied, ends, before = Applied(), dict[tuple[str, int], int](), 0
        for batch in _batches(events):
            try:
                records = [record_of(event, before + number) for number, event in enumerate(batch)]
            except InvalidRequest as error:
                error.sent_count = before
                raise
            for each in await self._send(records):
                if each.offset >= 0:  # else it was repeated, and the broker no longer knows where it is
                    at = each.topic, each.partition
                    ends[at] = max(ends.get(at, -1), each.offset)
            before += len(batch)
            applied.pods += [pod for event in batch for pod in pod_of(event)]
        applied.accepted = before
        applied.positions = [
            models.Position(topic=topic, partition=partition, offset=offset)
            for (topic, partition), offset in ends.items()
        ]
        return applied

    async def _send(self, records: Sequence[EventRecord]) -> Sequence[RecordMetadata]:
        """Write records, those of a partition in order.

        The library would repeat them for as long as the brokers are away, also after the caller has given up,
        and behind what the caller writes later. So a producer that failed is thrown away with all it holds.
        """
        async with self._turn:
            try:
                producer = await self._connected()
                async with answering(self._brokers, self._timeout_seconds):
                    counts = {topic: await self._count(producer, topic) for topic in {*map(_topic, records)}}
                    sent = []
                    for topic, key, value in records:
                        partition = partition_of(key, counts[topic])
                        future = await producer.send(topic, value, key, partition)
                        future.add_done_callback(_heard)
                        sent.append(future)
                    await asyncio.wait(sent)  # gather would cancel them with us
                    return [future.result() for future in sent]
            except BaseException:
                await self._abandon()
                raise

    async def _count(self, producer: AIOKafkaProducer, topic: str) -> int:
        """Return how many partitions a topic has, as the brokers said within the last minute."""
        if topic not in self._there:
            raise no_topic(self._brokers, topic)
        return len(await producer.partitions_for(topic))

    async def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            found = await partitions_by_topic(self._brokers, self._timeout_seconds)
            self._there = found.keys() & set(TOPICS)
            if not self._there:
                raise no_topic(self._brokers, TOPICS[0])
            producer = AIOKafkaProducer(
                **self._brokers.options,
                request_timeout_ms=int(self._timeout_seconds * 1000),
                metadata_max_age_ms=_METADATA_MS_MAX,
                acks="all",
                enable_idempotence=True,
                max_request_size=_REQUEST_BYTES_MAX,
            )
            self._producer = producer
            async with answering(self._brokers, self._timeout_seconds):
                await producer.start()
        return self._producer

    async def _abandon(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await finished(_dropped(producer), _CLOSE_SECONDS)
            await finished(producer.client.close(), _CLOSE_SECONDS)  # which a stop that failed leaves open

    async def aclose(self) -> None:
        """Close the connections. What was written is written: nothing waits to be sent."""
        async with self._turn:
            producer, self._producer = self._producer, None
            if producer is not None:
                await finished(producer.stop(), _CLOSE_SECONDS)
                await finished(producer.client.close(), _CLOSE_SECONDS)

    async def __aenter__(self) -> EventProducer:
        async with self._turn:
            try:
                await self._connected()
            except BaseException:
                await self._abandon()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _batches(events: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    left = iter(events)
    while batch := list(islice(left, PAGE)):
        yield batch


def _topic(record: EventRecord) -> str:
    return record.topic


def _heard(sent: asyncio.Future[RecordMetadata]) -> None:
    """Hear what became of a record, so that the event loop does not complain that nothing did."""
    if not sent.cancelled():
        sent.exception()


async def _dropped(producer: AIOKafkaProducer) -> None:
    """Stop a producer without sending what it holds, which its own methods cannot."""
    sender = producer._sender.sender_task
    while sender is not None and not sender.done():
        sender.cancel()
        await asyncio.wait([sender], timeout=0.05)
    held = producer._message_accumulator
    for batches in held._batches.values():
        held._pending_batches.update(batches)
    held._batches.clear()
    for batch in tuple(held._pending_batches):
        batch.future.cancel()
    await producer.stop()
