"""The log in Postgres: two tables that keep what Kafka promises, for running berth with nothing but pip."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import asyncpg

from domain.model.errors import BerthError, LogTruncated, TopicMismatch, Unavailable
from services.adapters.embedded import statements as sql
from services.adapters.postgres.connections import PLAIN, Session
from services.codec.partition import split
from services.ports.log import Backlog, Entry, Record, Span, TopicPartition, TopicSpec, TopicState, no_topic


class EmbeddedLog:
    """An implementation of ``ports.Log`` on the tables ``log_topics`` and ``log_records``.

    Timestamps are the database's. ``retention.py`` removes what is old.

    Parameters
    ----------
    dsn : str
        ``postgresql://`` address of a database that ``berth init`` has prepared.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._session = Session(dsn, "berth-log", PLAIN)

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See ``ports.Log``."""
        async with self._session.use() as connection, connection.transaction():
            await connection.execute(sql.LOCK_TOPICS)
            for spec in specs:
                await connection.execute(sql.CREATE_PARTITIONS, spec.name, spec.partitions, spec.compacted)
                count = await connection.fetchval(sql.COUNT_PARTITIONS, spec.name)
                if count != spec.partitions:
                    raise TopicMismatch(f"topic {spec.name} has {count} partitions, not {spec.partitions}")

    async def add_partitions(self, topics: Sequence[str], partitions: int) -> None:
        """See ``ports.Log``."""
        async with self._session.use() as connection, connection.transaction():
            await connection.execute(sql.LOCK_TOPICS)
            await connection.execute(sql.ADD_PARTITIONS, list(topics), partitions)

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicState]:
        """See ``ports.Log``."""
        async with self._session.use() as connection:
            rows = await connection.fetch(sql.TOPICS, list(names))
        return {row["topic"]: TopicState(row["id"], row["partitions"]) for row in rows}

    async def partitions(self, topic: str) -> int:
        """See ``ports.Log``."""
        async with self._session.use() as connection:
            return int(await connection.fetchval(sql.COUNT_PARTITIONS, topic))

    async def reader(self) -> EmbeddedReader:
        """See ``ports.Log``; connects at the first use."""
        return EmbeddedReader(self._dsn)

    async def writer(self) -> EmbeddedWriter:
        """See ``ports.Log``; connects at the first use."""
        return EmbeddedWriter(self._dsn)

    async def backlogs(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Backlog]:
        """See ``ports.Log``. Cost: one statement."""
        columns = zip(*((*at, position) for at, position in positions.items()), strict=True)
        async with self._session.use() as connection:
            rows = await connection.fetch(sql.AHEAD, *map(list, columns)) if positions else []
        for row in rows:
            if row["next_offset"] is None:
                raise Unavailable(f"partition {row['partition']} of topic {row['topic']} does not exist")
        return {
            TopicPartition(topic, partition): Backlog(end, oldest_ms)
            for topic, partition, end, oldest_ms in rows
        }

    async def last_record(self, at: TopicPartition) -> Record | None:
        """See ``ports.Log``."""
        async with self._session.use() as connection:
            row = await connection.fetchrow(sql.LAST, at.topic, at.partition)
            return None if row is None else Record(*row)

    async def aclose(self) -> None:
        """See ``ports.Log``."""
        await self._session.aclose()


class EmbeddedWriter:
    """See ``ports.LogWriter``. An append is one transaction: all of it is in the log or nothing."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn, "berth-log-writer", PLAIN)
        self._counts: dict[str, int] = {}

    async def append(
        self, topic: str, entries: Sequence[Entry], partition: int | None = None
    ) -> Sequence[Span]:
        """See ``ports.LogWriter``. Cost: six statements, however many entries."""
        groups = split(entries, await self._count(topic), partition)
        if not groups:
            return []
        async with self._session.use() as connection, connection.transaction():
            rows = await connection.fetch(sql.LOCK_PARTITIONS, topic, list(groups))
            if len(rows) != len(groups):
                raise Unavailable(f"topic {topic} has gone away")
            nexts = {row["partition"]: row["next_offset"] for row in rows}
            now_ms = max(row["now_ms"] for row in rows)
            await connection.copy_records_to_table(
                "log_records",
                columns=sql.RECORD_COLUMNS,
                records=(
                    (topic, at, offset, key, value, now_ms, seal)
                    for at, group in groups.items()
                    for offset, (key, value, seal, *_) in enumerate(group, nexts[at])
                ),
            )
            ends = [nexts[at] + len(group) for at, group in groups.items()]
            await connection.execute(sql.ADVANCE_PARTITIONS, topic, list(groups), ends, sql.CHANNEL)
        return [Span(topic, at, nexts[at], end) for at, end in zip(groups, ends, strict=True)]

    async def _count(self, topic: str) -> int:
        if topic not in self._counts:
            async with self._session.use() as connection:
                count = int(await connection.fetchval(sql.COUNT_PARTITIONS, topic))
            if not count:
                raise no_topic(topic)
            self._counts[topic] = count
        return self._counts[topic]

    async def aclose(self) -> None:
        """See ``ports.LogWriter``."""
        await self._session.aclose()


class EmbeddedReader:
    """See ``ports.LogReader``. Waits for the writers' notifications; a lost one costs one time-out."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn, "berth-log-reader", PLAIN, self._listen)
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._news = asyncio.Event()

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """See ``ports.LogReader``."""
        await self._bounds(list(positions))
        self._positions = dict(positions)
        self._paused = set()

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        """See ``ports.LogReader``. Cost: one statement, and one more after each notification."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            self._news.clear()
            records = await self._read(records_max)
            remaining = deadline - loop.time()
            if records or remaining <= 0:
                return records
            try:
                async with asyncio.timeout(remaining):
                    await self._news.wait()
            except TimeoutError:
                return []

    async def _read(self, records_max: int) -> list[Record]:
        """Read an equal share of each partition, then let those that have more fill up the rest."""
        active = [at for at in self._positions if at not in self._paused]
        taken: list[Record] = []
        while active and len(taken) < records_max:
            each, rest = divmod(records_max - len(taken), len(active))
            shares = {at: each + (turn < rest) for turn, at in enumerate(active)}
            before = {at: self._positions[at] for at in active}
            try:
                taken += await self._read_shares(shares)
            except BerthError:
                if not taken:
                    raise
                break  # the records first; the fault comes again
            active = [at for at in active if shares[at] and self._positions[at] - before[at] >= shares[at]]
        return taken

    async def _read_shares(self, shares: Mapping[TopicPartition, int]) -> list[Record]:
        async with self._session.use() as connection:
            rows = await connection.fetch(
                sql.READ,
                [at.topic for at in shares],
                [at.partition for at in shares],
                [self._positions[at] for at in shares],
                list(shares.values()),
            )
        return self._take(rows, shares)

    def _take(self, rows: Sequence[asyncpg.Record], shares: Mapping[TopicPartition, int]) -> list[Record]:
        taken: list[Record] = []
        nexts = {at: self._positions[at] for at in shares}
        for topic, partition, first, end, offset, key, value, timestamp_ms, seal in rows:
            at = TopicPartition(topic, partition)
            if end is None:
                raise Unavailable(f"partition {partition} of topic {topic} does not exist")
            if shares[at] and not first <= nexts[at] <= end:
                if not taken:
                    raise LogTruncated(f"{topic}/{partition} holds {first} to {end} and not {nexts[at]}")
                break  # the records first; the next call raises
            if offset is not None:
                taken.append(Record(topic, partition, offset, key, value, timestamp_ms, seal))
                nexts[at] = offset + 1
            elif shares[at]:
                nexts[at] = end  # what was here is compacted away
        for at, position in nexts.items():
            if position != self._positions[at]:
                # A partition that was read goes to the back, so that small reads reach every partition.
                del self._positions[at]
                self._positions[at] = position
        return taken

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """See ``ports.LogReader``."""
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """See ``ports.LogReader``."""
        self._paused.difference_update(partitions)
        self._news.set()

    async def end_offsets(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]:
        """See ``ports.LogReader``."""
        of = list(self._positions) if partitions is None else partitions
        return {at: end for at, (_, end) in (await self._bounds(of)).items()}

    async def first_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See ``ports.LogReader``."""
        return {at: first for at, (first, _) in (await self._bounds(partitions)).items()}

    async def position(self, at: TopicPartition) -> int:
        """See ``ports.LogReader``."""
        return self._positions[at]

    async def _bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        async with self._session.use() as connection:
            rows = await connection.fetch(
                sql.BOUNDS, [at.topic for at in partitions], [at.partition for at in partitions]
            )
        for row in rows:
            if row["next_offset"] is None:
                raise Unavailable(f"partition {row['partition']} of topic {row['topic']} does not exist")
        return {
            TopicPartition(row["topic"], row["partition"]): (row["first_offset"], row["next_offset"])
            for row in rows
        }

    async def _listen(self, connection: asyncpg.Connection) -> None:
        connection.add_termination_listener(self._on_termination)
        await connection.add_listener(sql.CHANNEL, self._on_news)

    def _on_news(self, _connection: object, _pid: int, _channel: str, topic: object) -> None:
        if any(at.topic == topic for at in self._positions):
            self._news.set()

    def _on_termination(self, _connection: object) -> None:
        self._news.set()

    async def aclose(self) -> None:
        """See ``ports.LogReader``."""
        self._positions = {}
        await self._session.aclose()
