"""The relay's side of the ledger on Postgres: what was committed and is not published yet."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Mapping, Sequence, Set
from typing import Any

from domain.model.config import HOSTED_REPLICAS
from domain.model.errors import LedgerMismatch
from domain.model.timestamps import NEVER_MS
from services.adapters.batches import dead_letter_value, decision_key, decision_value
from services.adapters.postgres import sql_outbox as sql
from services.adapters.postgres.connections import QUICK, Session
from services.adapters.postgres.leases import Leases
from services.adapters.postgres.sql import COUNT_SHARDS
from services.ports.ledger import DeadLetter, Lease
from services.ports.outbox import Acknowledged, OutboxItem, Stream, Timed

# Polling, not NOTIFY: NOTIFY takes a lock that all committing transactions of the database share and holds
# it over the flush to disk, so the commits of all shards would queue behind each other. One poll reads a row
# or two per shard (0.1 ms), whatever the number of streams.
POLL_SECONDS = 0.02

_COLUMNS = {
    Stream.DECISIONS: "decisions_seq",
    Stream.DEAD_LETTERS: "dead_letters_seq",
    Stream.SCALES: "scales_seq",
}


class PostgresOutbox:
    """The ``Outbox`` port on Postgres.

    Parameters
    ----------
    dsn : str
        As asyncpg takes it, unix sockets included.
    """

    def __init__(self, dsn: str) -> None:
        self._reading = Session(dsn, "berth-outbox")
        self._lease_session = Session(dsn, "berth-relay-lease", QUICK)
        self._holder = uuid.uuid4()
        self._leases = Leases(self._lease_session, "relay_leases", self._holder)
        self._held: set[int] = set()
        self._looking = asyncio.Lock()
        self._look_at = 0.0
        self._unpublished: set[int] = set()

    async def shards(self) -> int:
        """See ``Outbox.shards``."""
        async with self._reading.use() as connection:
            return int(await connection.fetchval(COUNT_SHARDS))

    async def ledger_name(self, shard: int) -> str:
        """See ``Outbox.ledger_name``."""
        async with self._reading.use() as connection:
            return str(await connection.fetchval(sql.LEDGER_NAME_OF, shard))

    async def acquire(self, shard: int, owner: str, lease_seconds: float) -> int:
        """See ``Outbox.acquire``."""
        leases = await self._leases.acquire(owner, lease_seconds, [shard])
        if not leases:
            return 0
        self._held.add(shard)
        return leases[0].epoch

    async def renew_lease(self, shard: int, epoch: int, lease_seconds: float) -> bool:
        """See ``Outbox.renew_lease``."""
        return bool(await self._leases.renew_leases([Lease(shard, epoch)], lease_seconds))

    async def release(self, shard: int, epoch: int) -> None:
        """See ``Outbox.release``."""
        self._held.discard(shard)
        await self._leases.release([Lease(shard, epoch)])

    async def published(self, shard: int, stream: Stream) -> int:
        """See ``Outbox.published``."""
        async with self._reading.use() as connection:
            return int(await connection.fetchval(sql.PUBLISHED.format(column=_COLUMNS[stream]), shard))

    async def unpublished(
        self, shard: int, stream: Stream, after_seq: int, rows_max: int
    ) -> Sequence[OutboxItem]:
        """See ``Outbox.unpublished``; raise ``LedgerMismatch`` rather than publish across a hole."""
        query, item = _READS[stream]
        async with self._reading.use() as connection:
            items = [item(row) for row in await connection.fetch(query, shard, after_seq, rows_max)]
        seqs = [after_seq, *(found.seq for found in items)]
        behind = [seq for before, seq in itertools.pairwise(seqs) if seq != before + 1]  # of holes
        if behind and behind[-1] > await self._kept_from(shard, stream):
            raise LedgerMismatch(f"the {stream} of shard {shard} have a hole after {after_seq}")
        return items

    async def _kept_from(self, shard: int, stream: Stream) -> int:
        """Return the seq from which all rows are kept. All but decisions stay until they are published."""
        if stream is not Stream.DECISIONS:
            return await self.published(shard, stream)
        return await self.kept_from(shard)

    async def decisions(self, shard: int, seqs: Sequence[int]) -> Sequence[OutboxItem]:
        """See ``Outbox.decisions``."""
        async with self._reading.use() as connection:
            return list(map(_decision, await connection.fetch(sql.DECISIONS_OF, shard, list(seqs))))

    async def kept_from(self, shard: int) -> int:
        """See ``Outbox.kept_from``."""
        async with self._reading.use() as connection:
            return int(await connection.fetchval(sql.KEPT_FROM, shard))

    async def compared(self, shard: int) -> int:
        """See ``Outbox.compared``."""
        async with self._reading.use() as connection:
            return int(await connection.fetchval(sql.COMPARED, shard))

    async def raise_alarm(self, shard: int, epoch: int, alarm: str, compared: int) -> bool:
        """See ``Outbox.raise_alarm``."""
        async with self._reading.use() as connection:
            status = await connection.execute(sql.RAISE_ALARM, shard, epoch, alarm, compared, self._holder)
            return bool(status == "UPDATE 1")

    async def acknowledge(self) -> Mapping[int, str]:
        """See ``Outbox.acknowledge``."""
        async with self._reading.use() as connection:
            return {row["shard"]: row["alarm"] for row in await connection.fetch(sql.ACKNOWLEDGE)}

    async def acknowledged(self, shard: int) -> Acknowledged:
        """See ``Outbox.acknowledged``."""
        async with self._reading.use() as connection:
            return Acknowledged(*await connection.fetchrow(sql.ACKNOWLEDGED, shard))

    async def mark_published(self, shard: int, stream: Stream, epoch: int, seq: int) -> bool:
        """See ``Outbox.mark_published``."""
        query = sql.MARK_PUBLISHED.format(column=_COLUMNS[stream])
        async with self._reading.use() as connection:
            return bool(await connection.execute(query, shard, epoch, seq, self._holder) == "UPDATE 1")

    async def timed(self) -> Timed | None:
        """See ``Outbox.timed``."""
        async with self._reading.use() as connection:
            row = await connection.fetchrow(sql.TIMED, NEVER_MS, HOSTED_REPLICAS)
        return None if row is None else Timed(row["log_time_ms"], row["due_ms"])

    async def wait(self, shard: int, timeout_seconds: float) -> None:
        """See ``Outbox.wait``: ends when a shard that was acquired here has anything unpublished."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_seconds
        while (left := deadline - clock()) > 0:
            await asyncio.sleep(min(left, POLL_SECONDS))
            if shard in await self._unpublished_shards():
                return

    async def _unpublished_shards(self) -> Set[int]:
        """Return which of the shards held here have anything unpublished; callers at once share it."""
        clock = asyncio.get_running_loop().time
        async with self._looking:
            if clock() >= self._look_at:
                async with self._reading.use() as connection:
                    found = await connection.fetch(sql.UNPUBLISHED, sorted(self._held))
                self._unpublished = {row["shard"] for row in found}
                self._look_at = clock() + POLL_SECONDS / 2
            return self._unpublished

    async def aclose(self) -> None:
        """See ``Outbox.aclose``."""
        await self._reading.aclose()
        await self._lease_session.aclose()


def _decision(row: Any) -> OutboxItem:
    seq, namespace, name, payload, recorded_at_ms = row
    return OutboxItem(seq, decision_key(namespace, name), decision_value(payload, recorded_at_ms))


def _dead_letter(row: Any) -> OutboxItem:
    values = dict(row)
    letter = DeadLetter(offset=values.pop("log_offset"), **values)
    return OutboxItem(letter.seq, letter.key, dead_letter_value(letter))


def _scale(row: Any) -> OutboxItem:
    seq, namespace, name, payload = row
    return OutboxItem(seq, decision_key(namespace, name), payload)


_READS = {
    Stream.DECISIONS: (sql.DECISIONS_AFTER, _decision),
    Stream.DEAD_LETTERS: (sql.DEAD_LETTERS_AFTER, _dead_letter),
    Stream.SCALES: (sql.SCALES_AFTER, _scale),
}
