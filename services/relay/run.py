"""The relay: publishes each shard's decisions to its partition, in order, without a hole, and resumably.

When a shard is taken over, the end of the topic is compared with the ledger, so that a relay that died
between publishing and noting it publishes nothing twice.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec
from prometheus_client import CollectorRegistry, Counter

from domain.model import limits
from domain.model.errors import Fenced, LogTruncated, Unavailable
from services.backoff import Backoff
from services.ports.log import (
    DEAD_LETTER_TOPIC,
    DECISIONS_TOPIC,
    Entry,
    Log,
    LogWriter,
    Record,
    TopicPartition,
)
from services.ports.outbox import Outbox, Stream

_LOGGER = logging.getLogger(__name__)
_TOPICS = {Stream.DECISIONS: DECISIONS_TOPIC, Stream.DEAD_LETTERS: DEAD_LETTER_TOPIC}
_UNNOTED_MAX = limits.poll_records_max
"""A relay notes each batch before it publishes the next, so no more records than these are not noted."""
_FIND_SECONDS_MAX = 30.0

_Seqs = dict[tuple[bytes | None, bytes | None], int]


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a relay; times in seconds."""

    name: str
    lease_seconds: float = limits.lease_seconds
    rows_max: int = limits.poll_records_max
    idle_seconds: float = 0.5


class RelayMetrics:
    """Counters of one relay, in the registry of its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published = Counter("berth_published", "Records published", ["stream"], registry=registry)


class Relay:
    """One relay process. Several may run; each shard has one of them at a time."""

    def __init__(self, log: Log, outbox: Outbox, settings: RelaySettings, metrics: RelayMetrics) -> None:
        self._log = log
        self._outbox = outbox
        self._settings = settings
        self._metrics = metrics
        self._trouble = ""  # the last fault; reported once, not every second for every shard

    async def run(self) -> None:
        """Publish until cancelled."""
        backoff = Backoff()
        while True:
            try:
                shards = await self._outbox.shards()
                backoff.reset()
                await asyncio.gather(*(self._keep_shard(shard) for shard in range(shards)))
                await asyncio.sleep(self._settings.lease_seconds / 10)  # not initialised yet
            except (Unavailable, Fenced) as error:
                _LOGGER.warning("starting over: %s: %s", error.code, error)
                await backoff.wait()

    async def _keep_shard(self, shard: int) -> None:
        """Publish one shard whenever no other relay does."""
        while True:
            try:
                epoch = await self._outbox.acquire(shard, self._settings.name, self._settings.lease_seconds)
                if epoch:
                    _LOGGER.info("publishing shard %d with epoch %d", shard, epoch)
                    self._note("")
                    await self._publish_shard(shard, epoch)
            except (Unavailable, Fenced) as error:
                self._note(f"{error.code}: {error}")
            await asyncio.sleep(self._settings.lease_seconds / 10)

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _LOGGER.warning("not publishing: %s", trouble)
        elif self._trouble and not trouble:
            _LOGGER.warning("publishing again")
        self._trouble = trouble

    async def _publish_shard(self, shard: int, epoch: int) -> None:
        renewal = asyncio.create_task(self._renew(shard, epoch))
        publishing = asyncio.create_task(self._publish(shard, epoch))
        try:
            done, _ = await asyncio.wait({renewal, publishing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (renewal, publishing):
                task.cancel()
            await asyncio.gather(renewal, publishing, return_exceptions=True)
            await self._outbox.release(shard, epoch)

    async def _renew(self, shard: int, epoch: int) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_seconds / 3)
            if not await self._outbox.renew(shard, epoch, self._settings.lease_seconds):
                raise Fenced(f"another relay publishes shard {shard}")

    async def _publish(self, shard: int, epoch: int) -> None:
        cursors = {stream: await self._resume(shard, stream, epoch) for stream in Stream}
        writer = await self._log.writer()
        try:
            while True:
                moved = False
                for stream in Stream:
                    cursor = await self._publish_some(shard, epoch, stream, cursors[stream], writer)
                    moved = moved or cursor != cursors[stream]
                    cursors[stream] = cursor
                if not moved:
                    await self._outbox.wait(self._settings.idle_seconds)
        finally:
            await writer.aclose()

    async def _resume(self, shard: int, stream: Stream, epoch: int) -> int:
        """Return the last seq that is published, and note it: a relay may have died before it did.

        A record of the topic counts only where it equals the ledger's row, since others may have written it.
        """
        noted = await self._outbox.published(shard, stream)
        if stream is Stream.DEAD_LETTERS:
            return noted  # all shards share one partition: a letter may come twice after a crash
        # Rows before the noted one tell only whether the topic ends with a record of ours.
        after = max(0, noted - _UNNOTED_MAX)
        rows = await self._outbox.unpublished(shard, stream, after, 2 * _UNNOTED_MAX)
        seqs: _Seqs = {(row.key, row.value): row.seq for row in rows}
        found, foreign = await self._find(TopicPartition(DECISIONS_TOPIC, shard), seqs)
        cursor = noted
        while cursor + 1 in found:
            cursor += 1
        if foreign is not None:
            _LOGGER.warning(
                "topic %s, partition %d, offset %d: the last record is not a decision of this ledger; "
                "publishing on behind seq %d",
                *foreign[:3],
                cursor,
            )
        if cursor > noted and not await self._outbox.mark_published(shard, stream, epoch, cursor):
            raise Fenced(f"another relay publishes shard {shard}")
        return cursor

    async def _find(self, at: TopicPartition, seqs: _Seqs) -> tuple[set[int], Record | None]:
        """Return which rows the end of the topic holds, and its last record where it is none of them.

        What is not found, for lack of time or behind too many foreign records, is published again.
        """
        found: set[int] = set()
        last: Record | None = None
        clock = asyncio.get_running_loop().time
        reader = await self._log.reader()
        try:
            first = (await reader.first_offsets([at]))[at]
            await reader.assign({at: first})
            end = (await reader.end_offsets())[at]
            await reader.assign({at: max(first, end - 2 * _UNNOTED_MAX)})
            deadline = clock() + _FIND_SECONDS_MAX
            while await reader.position(at) < end and clock() < deadline:
                for last in await reader.poll(limits.poll_records_max, timeout_seconds=0.5):
                    if seq := seqs.get((last.key, last.value)):
                        found.add(seq)
        except LogTruncated as error:  # its records went while we looked
            _LOGGER.warning("publishing on from the ledger's cursor: %s", error)
        finally:
            await reader.aclose()
        return found, None if last is None or (last.key, last.value) in seqs else last

    async def _publish_some(
        self, shard: int, epoch: int, stream: Stream, cursor: int, writer: LogWriter
    ) -> int:
        items = await self._outbox.unpublished(shard, stream, cursor, self._settings.rows_max)
        if not items:
            return cursor
        partition = shard if stream is Stream.DECISIONS else 0
        await writer.append(_TOPICS[stream], [Entry(i.key, i.value) for i in items], partition)
        self._metrics.published.labels(stream.value).inc(len(items))
        if not await self._outbox.mark_published(shard, stream, epoch, items[-1].seq):
            raise Fenced(f"another relay publishes shard {shard}")
        return items[-1].seq
