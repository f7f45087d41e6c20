"""The relay: publishes each shard's decisions to its partition, in order, without a hole, and resumably.

When a shard is taken over, the end of the topic is compared with the ledger. So a relay that died between
publishing and noting it publishes nothing twice, what the broker lost is published again, and what the ledger
does not hold raises the alarm. While it runs, a relay expects each append where the one before it ended, and
the last row that it published in the ledger; where either is not so, it compares again. Beside that the
relay of shard 0 publishes scales, and writes ticks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import msgspec
from prometheus_client import CollectorRegistry, Counter

from domain.model import limits
from domain.model.errors import BerthError, Fenced, LedgerMismatch, LogRefused, LogReplaced, Unavailable
from services.backoff import Backoff
from services.ports.log import (
    DEAD_LETTER_TOPIC,
    DECISIONS_TOPIC,
    SCALES_TOPIC,
    TICKS_TOPIC,
    Entry,
    Log,
    LogWriter,
    Span,
    TopicPartition,
)
from services.ports.outbox import Outbox, OutboxItem, Stream
from services.relay.scales import last_published
from services.relay.tail import compare, describe
from services.relay.ticking import TICK, TICK_SECONDS, Ticker
from services.topics import CHECK_SECONDS, check_topics, until_first, watch_topics

_LOGGER = logging.getLogger(__name__)
_TOPICS = {
    Stream.DECISIONS: DECISIONS_TOPIC,
    Stream.DEAD_LETTERS: DEAD_LETTER_TOPIC,
    Stream.SCALES: SCALES_TOPIC,
}
_WRITTEN = (DECISIONS_TOPIC, DEAD_LETTER_TOPIC, SCALES_TOPIC, TICKS_TOPIC)
RELEASE_SECONDS = 0.5


class Diverged(BerthError):
    """The topic or the ledger is not as this relay left it: they have to be compared again."""

    code = "topic-diverged"
    retriable = True


class _Place(msgspec.Struct, frozen=True):
    """How far a stream is published: the last seq, its row, and the offset after it, where they are known."""

    seq: int
    row: OutboxItem | None = None
    end: int | None = None


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a relay; times in seconds."""

    name: str
    lease_seconds: float = limits.lease_seconds
    lease_renewal_seconds: float = limits.lease_renewal_seconds
    rows_max: int = limits.poll_records_max
    idle_seconds: float = 0.5
    topics_seconds: float = CHECK_SECONDS
    check_seconds: float = 5.0  # how often an idle relay looks whether the topic still ends where it should


class RelayMetrics:
    """Counters of one relay, in the registry of its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published = Counter("berth_published", "Records published", ["stream"], registry=registry)
        self.faults = Counter(
            "berth_relay_faults",
            "Times that a topic was not as the ledger says",
            ["fault"],
            registry=registry,
        )


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
                if not shards:  # not initialised yet
                    await asyncio.sleep(self._settings.lease_seconds / 10)
                    continue
                topics = await check_topics(self._log, _WRITTEN, shards)
                backoff.reset()
                await until_first(
                    *(self._keep_shard(shard) for shard in range(shards)),
                    watch_topics(self._log, topics, shards, self._settings.topics_seconds),
                )
            except (Unavailable, Fenced, LogReplaced) as error:
                _LOGGER.warning("starting over: %s: %s", error.code, error)
                await backoff.wait()

    async def _keep_shard(self, shard: int) -> None:
        """Publish one shard whenever no other relay does."""
        stood_by = False
        while True:
            try:
                epoch = await self._outbox.acquire(shard, self._settings.name, self._settings.lease_seconds)
                if epoch:
                    # A take-over from another relay is told at the usual level, a start of this one is not.
                    level = logging.WARNING if stood_by else logging.INFO
                    _LOGGER.log(level, "publishing shard %d with epoch %d", shard, epoch)
                    self._note("")
                    await self._publish_shard(shard, epoch)
                stood_by = True
            except (Unavailable, Fenced, Diverged) as error:
                self._note(f"{error.code}: {error}")
            except LedgerMismatch as error:  # somebody has to mend it; the other shards go on
                self._note(f"{error.code}: {error}")
                await asyncio.sleep(self._settings.check_seconds)
            await asyncio.sleep(self._settings.lease_seconds / 10)

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _LOGGER.warning("not publishing: %s", trouble)
        elif self._trouble and not trouble:
            _LOGGER.warning("publishing again")
        self._trouble = trouble

    async def _publish_shard(self, shard: int, epoch: int) -> None:
        try:
            works = [self._renew(shard, epoch), self._publish(shard, epoch)]
            await until_first(*works, *([] if shard else [self._tick()]))
        finally:
            # A fault here must not take the place of the cancellation: the relay would go on.
            with contextlib.suppress(BerthError, TimeoutError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self._outbox.release(shard, epoch)

    async def _renew(self, shard: int, epoch: int) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_renewal_seconds)
            if not await self._outbox.renew_lease(shard, epoch, self._settings.lease_seconds):
                raise Fenced(f"another relay publishes shard {shard}")

    async def _tick(self) -> None:
        """Let log time pass where nothing else does. A relay that may not write ticks goes on without."""
        writer, ticker = await self._log.writer(), Ticker()
        clock = asyncio.get_running_loop().time
        is_refused = False
        try:
            while True:
                await asyncio.sleep(TICK_SECONDS)
                if not ticker.is_due(await self._outbox.timed(), clock()):
                    continue
                try:
                    await writer.append(TICKS_TOPIC, [TICK], 0)
                    is_refused = False
                except LogRefused as error:
                    if not is_refused:
                        _LOGGER.error("time stands still in a quiet log: %s", error)
                    is_refused = True
        finally:
            await writer.aclose()

    async def _publish(self, shard: int, epoch: int) -> None:
        streams = [each for each in Stream if each is not Stream.SCALES or not shard]
        places = {stream: await self._resume(shard, stream, epoch) for stream in streams}
        ledger = (await self._outbox.ledger_name(shard)).encode()  # an alarm may have given it another
        writer = await self._log.writer()
        clock = asyncio.get_running_loop().time
        check_at = clock() + self._settings.check_seconds
        try:
            while True:
                moved = False
                for stream in streams:
                    place = await self._publish_some(shard, epoch, stream, places[stream], writer, ledger)
                    moved = moved or place.seq != places[stream].seq
                    places[stream] = place
                if moved:
                    continue
                if clock() >= check_at:
                    await self._check_end(shard, places[Stream.DECISIONS].end)
                    check_at = clock() + self._settings.check_seconds
                await self._outbox.wait(shard, self._settings.idle_seconds)
        finally:
            await writer.aclose()

    async def _resume(self, shard: int, stream: Stream, epoch: int) -> _Place:
        """Return where to go on: behind the last seq that topic and ledger share."""
        noted = await self._outbox.published(shard, stream)
        if stream is Stream.DEAD_LETTERS:
            return _Place(noted)  # all shards share one partition: a letter may come twice after a crash
        name = (await self._outbox.ledger_name(shard)).encode()
        if stream is Stream.SCALES:
            seq = await last_published(self._log, self._outbox, noted, name)
            if seq > noted and not await self._outbox.mark_published(shard, stream, epoch, seq):
                raise Fenced(f"another relay publishes shard {shard}")
            return _Place(seq)
        compared = await self._outbox.compared(shard)
        tail = await compare(self._log, self._outbox, shard, noted, compared, name)
        if tail.seq < noted and tail.foreign is None:
            self._metrics.faults.labels("topic-lost-records").inc()
            _LOGGER.warning(
                "the topic has lost decisions %d-%d to %d-%d; publishing them again",
                *(shard, tail.seq + 1, shard, noted),
            )
        if tail.foreign is not None:
            alarm = describe(tail, shard)
            self._metrics.faults.labels("topic-differs").inc()
            _LOGGER.error("%s; publishing on behind seq %d", alarm, tail.seq)
            if not await self._outbox.raise_alarm(shard, epoch, alarm, tail.end):
                raise Fenced(f"another relay publishes shard {shard}")
        if tail.seq > noted and not await self._outbox.mark_published(shard, stream, epoch, tail.seq):
            raise Fenced(f"another relay publishes shard {shard}")
        rows = await self._outbox.decisions(shard, [tail.seq - 1, tail.seq])
        name = (await self._outbox.ledger_name(shard)).encode()
        said_again = tail.name not in (None, name) and bool(rows) and rows[-1].seq == tail.seq
        # Consumers learn by the next record that what they have behind it is void: it may not come for long.
        seq = tail.seq - said_again
        return _Place(seq, next((row for row in rows if row.seq == seq), None), tail.end)

    async def _check_end(self, shard: int, end: int | None) -> None:
        """Raise ``Diverged`` where the partition ends elsewhere than we left it."""
        at = TopicPartition(DECISIONS_TOPIC, shard)
        if end is not None and (found := (await self._log.backlogs({at: end}))[at].end) != end:
            raise Diverged(f"topic {at.topic}, partition {shard} ends at {found} and not at {end}")

    async def _publish_some(
        self, shard: int, epoch: int, stream: Stream, place: _Place, writer: LogWriter, ledger: bytes
    ) -> _Place:
        """Publish the next rows. The one before them comes along, to see that the ledger still has it."""
        seen = place.row is not None
        rows_max = self._settings.rows_max + seen
        items = await self._outbox.unpublished(shard, stream, place.seq - seen, rows_max)
        if seen and (not items or items[0] != place.row):
            raise Diverged(f"the ledger has lost what was published of shard {shard} up to {place.seq}")
        items = items[seen:]
        if not items:
            return place
        partition = shard if stream is Stream.DECISIONS else 0
        befores = [place.seq, *(item.seq for item in items)]
        entries = [
            Entry(item.key, item.value, None, ledger, None if item.seq == before + 1 else b"%d" % before)
            for before, item in zip(befores, items, strict=False)
        ]
        spans = await writer.append(_TOPICS[stream], entries, partition)
        self._metrics.published.labels(stream.value).inc(len(items))
        end = _end_of(spans, place.end) if stream is Stream.DECISIONS else None
        if not await self._outbox.mark_published(shard, stream, epoch, items[-1].seq):
            raise Fenced(f"another relay publishes shard {shard}")
        return _Place(items[-1].seq, items[-1], end)


def _end_of(spans: Sequence[Span], expected: int | None) -> int | None:
    """Return where an append ended; raise ``Diverged`` where it did not begin where the last one ended."""
    for topic, partition, first, end in spans:
        if expected is not None and first != expected:
            raise Diverged(f"topic {topic}, partition {partition}: appended at {first} and not at {expected}")
        expected = end
    return expected if spans else None
