"""The outbox in memory, for simulations: what batches left in a ``MemoryDatabase`` for the relay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from domain.model.config import HOSTED_REPLICAS
from domain.model.timestamps import NEVER_MS
from services.adapters.batches import dead_letter_value, decision_key, decision_value
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import Client, drop_lease
from services.ports.clock import Clock
from services.ports.outbox import Acknowledged, OutboxItem, Stream, Timed

POLL_SECONDS = 0.02


class MemoryOutbox(Client):
    """The ``Outbox`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase, clock: Clock) -> None:
        super().__init__(database, clock)
        self._held: set[int] = set()

    async def shards(self) -> int:
        """See ``Outbox.shards``."""
        return len(self._answering().shards)

    async def ledger_name(self, shard: int) -> str:
        """See ``Outbox.ledger_name``."""
        database = self._answering()
        return f"memory.{database.timeline}.{database.cursors[shard].generation}"

    async def acquire(self, shard: int, owner: str, lease_seconds: float) -> int:
        """See ``Outbox.acquire``."""
        database = self._answering()
        row = database.relay_leases[shard]
        if not self._is_free(row):
            return 0
        self._held.add(shard)
        return self._take(row, database.cursors[shard], owner, lease_seconds)

    async def renew_lease(self, shard: int, epoch: int, lease_seconds: float) -> bool:
        """See ``Outbox.renew_lease``."""
        row = self._answering().relay_leases[shard]
        if (row.epoch, row.holder) != (epoch, self):
            return False
        self._prolong(row, lease_seconds)
        return True

    async def release(self, shard: int, epoch: int) -> None:
        """See ``Outbox.release``."""
        self._held.discard(shard)
        row = self._answering().relay_leases[shard]
        if (row.epoch, row.holder) == (epoch, self):
            drop_lease(row)

    async def published(self, shard: int, stream: Stream) -> int:
        """See ``Outbox.published``."""
        return self._answering().cursors[shard].published[stream]

    async def unpublished(
        self, shard: int, stream: Stream, after_seq: int, rows_max: int
    ) -> Sequence[OutboxItem]:
        """See ``Outbox.unpublished``."""
        database = self._answering()
        # The rows of a shard have the seqs 1, 2, …: the row after seq n is at n.
        if stream is Stream.DEAD_LETTERS:
            letters = database.dead_letters[shard][after_seq : after_seq + rows_max]
            return [OutboxItem(letter.seq, letter.key, dead_letter_value(letter)) for letter in letters]
        if stream is Stream.SCALES:
            scales = [] if shard else database.hosted.scales[after_seq : after_seq + rows_max]
            return [OutboxItem(s.seq, decision_key(s.namespace, s.name), s.payload) for s in scales]
        span = slice(after_seq, after_seq + rows_max)
        rows = zip(database.decisions[shard][span], database.recorded_ms[shard][span], strict=True)
        return [
            OutboxItem(d.seq, decision_key(d.namespace, d.name), decision_value(payload, at_ms))
            for (d, payload), at_ms in rows
        ]

    async def decisions(self, shard: int, seqs: Sequence[int]) -> Sequence[OutboxItem]:
        """See ``Outbox.decisions``."""
        found = [await self.unpublished(shard, Stream.DECISIONS, seq - 1, 1) for seq in seqs]
        return [items[0] for items in found if items]

    async def kept_from(self, shard: int) -> int:
        """See ``Outbox.kept_from``: nothing is pruned here."""
        return 1

    async def compared(self, shard: int) -> int:
        """See ``Outbox.compared``."""
        return self._answering().cursors[shard].compared

    async def raise_alarm(self, shard: int, epoch: int, alarm: str, compared: int) -> bool:
        """See ``Outbox.raise_alarm``."""
        row = self._answering().cursors[shard]
        if (row.epoch, row.holder) != (epoch, self):
            return False
        row.alarm, row.compared = row.alarm or alarm, compared
        row.generation = max(row.generation + 1, self._clock.now_ms())
        return True

    async def acknowledge(self) -> Mapping[int, str]:
        """See ``Outbox.acknowledge``."""
        raised = {n: row.alarm for n, row in self._answering().cursors.items() if row.alarm is not None}
        for shard in raised:
            row = self.database.cursors[shard]
            row.alarm, row.acknowledged = None, Acknowledged(row.compared, self._clock.now_ms())
        return raised

    async def acknowledged(self, shard: int) -> Acknowledged:
        """See ``Outbox.acknowledged``."""
        return self._answering().cursors[shard].acknowledged

    async def mark_published(self, shard: int, stream: Stream, epoch: int, seq: int) -> bool:
        """See ``Outbox.mark_published``."""
        row = self._answering().cursors[shard]
        if (row.epoch, row.holder) != (epoch, self):
            return False
        row.published[stream] = max(row.published[stream], seq)
        return True

    async def timed(self) -> Timed | None:
        """See ``Outbox.timed``."""
        database = self._answering()
        things = database.config_objects.values()
        is_hosted = any(each.kind == HOSTED_REPLICAS and each.object for each in things)
        if not (database.pending or is_hosted or database.hosted.said):
            return None
        shards = database.shards.values()
        log_time_ms = max(each.log_time_ms for each in shards)
        due = [each.due_ms for each in shards if log_time_ms < each.due_ms < NEVER_MS]
        return Timed(log_time_ms, min(due, default=None))

    async def wait(self, shard: int, timeout_seconds: float) -> None:
        """See ``Outbox.wait``: ends when a shard that was acquired here has anything unpublished."""
        changed = self._answering().changed
        if self._any_unpublished():
            # Another task may be publishing it: look again a little later, as a poll would.
            await asyncio.sleep(min(timeout_seconds, POLL_SECONDS))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await changed.wait()

    def _any_unpublished(self) -> bool:
        for shard in self._held:
            row, published = self.database.shards[shard], self.database.cursors[shard].published
            if row.seq_next > published[Stream.DECISIONS] + 1:
                return True
            if row.dead_seq_next > published[Stream.DEAD_LETTERS] + 1:
                return True
            if not shard and self.database.hosted.scale_seq > published[Stream.SCALES]:
                return True
        return False
