"""The past of a ledger in memory, and a ledger in memory for replays, which keeps what a restart reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from domain.model.hosting import HostedChange
from domain.model.pods import PodTemplate
from services.adapters.batches import shard_advances
from services.adapters.memory.database import MemoryDatabase, OffsetRow, PlacementRow
from services.adapters.memory.ledger import base_of, part_of
from services.ports.history import Superseded
from services.ports.inbox import Handed, Waiting
from services.ports.journal import BATCHES, Checkpoint, JournalRow
from services.ports.ledger import CommitBatch, Lease, LedgerBase, LedgerPart, LedgerState
from services.ports.positions import LogFault


class MemoryHistory:
    """The ``History`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def span(self) -> tuple[int, int] | None:
        """See ``History.span``."""
        numbers = [batch for _, batch in self._database.journal]
        committed = (row.next_offset for at, row in self._database.offsets.items() if at[1] == BATCHES)
        return (min(numbers), max([*numbers, *committed])) if numbers else None

    async def checkpoints(self) -> Sequence[Checkpoint]:
        """See ``History.checkpoints``."""
        return [checkpoint for checkpoint, _ in self._database.checkpoints]

    async def state(self, checkpoint: Checkpoint) -> LedgerState:
        """See ``History.state``."""
        found = [state for each, state in self._database.checkpoints if each == checkpoint]
        if not found:
            raise Superseded(checkpoint.batch)
        return found[0]

    async def ends(self, last: int | None, shard: int | None = None) -> Mapping[int, int]:
        """See ``History.ends``."""
        rows = sorted(self._database.journal.values(), key=lambda row: row.position)
        of = shard or 0
        if last is not None:
            end = max(row.position for row in rows if row.shard == of and row.batch <= last)
            return {**{row.shard: row.batch for row in rows if row.position <= end}, of: last}
        found = {row.shard: row.batch for row in rows}
        for (shard, topic, _), offset in self._database.offsets.items():
            if topic == BATCHES:
                found[shard] = max(found.get(shard, 0), offset.next_offset)
        return found

    async def batch_at(self, at_ms: int, *, is_last: bool) -> int | None:
        """See ``History.batch_at``."""
        times = [(row.batch, row.log_time_ms) for row in self._database.journal.values() if row.shard == 0]
        if is_last:
            return max((batch for batch, time_ms in times if time_ms <= at_ms), default=None)
        return min((batch for batch, time_ms in times if time_ms >= at_ms), default=None)

    async def batch_of(self, shard: int, seq: int) -> JournalRow | None:
        """See ``History.batch_of``."""
        for row in self._database.journal.values():
            first, following = row.seqs.get(shard, (0, 0))
            if first <= seq < following:
                return row
        return None

    async def rows(
        self, after: Mapping[int, int], until: Mapping[int, int], *, starts: bool = False
    ) -> AsyncIterator[JournalRow]:
        """See ``History.rows``."""
        for row in sorted(self._database.journal.values(), key=lambda row: row.position):
            if after.get(row.shard, 0) < row.batch <= until.get(row.shard, 0) and (row.start or not starts):
                yield row

    async def positions(
        self, after: Mapping[int, int], until: Mapping[int, int]
    ) -> Mapping[str, tuple[int, int]]:
        """See ``History.positions``."""
        found: dict[str, tuple[int, int]] = {}
        async for row in self.rows(after, until):
            first, _ = found.get(row.worker, (row.position, 0))
            found[row.worker] = first, row.position
        return found

    async def position_behind(self, batches: Mapping[int, int]) -> int | None:
        """See ``History.position_behind``."""
        journal = self._database.journal
        behind = ((shard, batch + 1) for shard, batch in batches.items())
        return min((journal[key].position for key in behind if key in journal), default=None)

    async def decisions(self, seqs: Mapping[int, tuple[int, int]]) -> Sequence[bytes]:
        """See ``History.decisions``."""
        return [
            payload
            for shard, (first, after) in sorted(seqs.items())
            for _, payload in self._database.decisions[shard][first - 1 : after - 1]
        ]

    async def inbox(self, waiting: Waiting) -> Sequence[Handed]:
        """See ``History.inbox``."""
        return list(self._database.inbox.read([waiting], waiting.hi - waiting.lo))

    async def log_faults(self) -> Sequence[LogFault]:
        """See ``History.log_faults``."""
        return self._database.log_faults

    async def aclose(self) -> None:
        """Release nothing."""


class ScratchLedger:
    """The ``Scratch`` port, beginning at a state."""

    def __init__(self, state: LedgerState) -> None:
        database = self._database = MemoryDatabase(max(state.seq_next) + 1)
        database.offsets = {at: OffsetRow(0, offset) for at, offset in state.offsets.items()}
        self._refold_below = dict(state.refold_below)
        self._secret = state.seal_secret
        for shard, seq in state.seq_next.items():
            row = database.shards[shard]
            row.seq_next, row.dead_seq_next = seq, state.dead_seq_next[shard]
            row.log_time_ms = state.log_time_ms
        for node in state.nodes:
            database.restore_node(node)
        database.templates = dict(state.templates)
        orphaned = set(state.orphaned)
        database.open_placements = {
            (row.pod_uid, row.shard): PlacementRow(row, orphaned=f"{row.namespace}/{row.name}" in orphaned)
            for row in state.placements
        }
        database.pending = {(row.pod_uid, row.shard): row for row in state.pending}
        database.nominations.restore(state.nominations)
        database.moves.restore(state.moves)
        database.tombstones = {(row.namespace, row.name, row.uid): row for row in state.tombstones}
        database.inbox.forwarded = {(row.shard, row.key, row.uid): row for row in state.forwarded}
        database.profiles = {(row.name, row.revision): row for row in state.profiles}
        database.config_objects = {(row.kind, row.namespace, row.name): row for row in state.config}
        database.hosted.apply_change(HostedChange(list(state.replicas), [], list(state.waits)))
        database.hosted.scale_seq = state.scale_seq
        database.measured.usage = {row.record.node: row for row in state.usage}

    async def restart(self, leases: Mapping[int, int], offsets: Mapping[tuple[int, str, int], int]) -> None:
        """See ``Scratch.restart``."""
        for shard, epoch in leases.items():
            self._database.shards[shard].epoch = epoch
        rows = {at: OffsetRow(leases[at[0]], offset) for at, offset in offsets.items() if at[0] in leases}
        self._database.offsets |= rows

    async def load_base(self) -> LedgerBase:
        """See ``Ledger.load_base``."""
        return msgspec.structs.replace(base_of(self._database), seal_secret=self._secret)

    async def load_part(self, leases: Sequence[Lease], *, gone: bool = False) -> LedgerPart:
        """See ``Ledger.load_part``."""
        part = part_of(self._database, leases, gone=gone)
        below = {
            at: end for at, end in self._refold_below.items() if at in part.offsets and end > part.offsets[at]
        }
        return msgspec.structs.replace(part, refold_below=below)

    async def write(self, batch: CommitBatch) -> bool:
        """See ``Scratch.write``; nothing is kept that a start does not read."""
        advances = shard_advances(batch)
        if self._database.is_fenced(batch, advances, None):
            return False
        self._database.write(batch, advances)
        self._database.forget_history()
        return True

    @property
    def templates(self) -> Mapping[bytes, PodTemplate]:
        """See ``Scratch.templates``."""
        return self._database.templates
