"""The past of a ledger in memory, and a ledger in memory for replays, which keeps what a restart reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from services.adapters.memory.database import MemoryDatabase, OffsetRow, PlacementRow
from services.adapters.memory.ledger import state_of
from services.ports.journal import BATCHES, Checkpoint, JournalRow
from services.ports.ledger import CommitBatch, Committed, Lease, LedgerState, NotCommitted


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
        return next(state for each, state in self._database.checkpoints if each == checkpoint)

    async def rows(self, first: int, last: int) -> AsyncIterator[JournalRow]:
        """See ``History.rows``."""
        for (_, batch), row in sorted(self._database.journal.items()):
            if first <= batch <= last:
                yield row

    async def decisions(self, seqs: Mapping[int, tuple[int, int]]) -> Sequence[bytes]:
        """See ``History.decisions``."""
        return [
            payload
            for shard, (first, after) in sorted(seqs.items())
            for _, payload in self._database.decisions[shard][first - 1 : after - 1]
        ]

    async def aclose(self) -> None:
        """Release nothing."""


class ScratchLedger:
    """The ``Scratch`` port, beginning at a state."""

    def __init__(self, state: LedgerState) -> None:
        database = self._database = MemoryDatabase(max(state.seq_next) + 1)
        self._refold_below = dict(state.refold_below)
        self._secret = state.seal_secret
        for shard, seq in state.seq_next.items():
            row = database.shards[shard]
            row.seq_next, row.dead_seq_next = seq, state.dead_seq_next[shard]
            row.log_time_ms = state.log_time_ms
        for node in state.nodes:
            database.restore_node(node)
        database.templates = dict(state.templates)
        database.open_placements = {(row.pod_uid, row.shard): PlacementRow(row) for row in state.placements}
        database.pending = {(row.pod_uid, row.shard): row for row in state.pending}
        database.tombstones = {(row.namespace, row.name, row.uid): row for row in state.tombstones}
        database.profiles = {(row.name, row.revision): row for row in state.profiles}
        database.config_objects = {(row.kind, row.namespace, row.name): row for row in state.config}
        database.usage = {row.record.node: row for row in state.usage}

    async def restart(self, leases: Mapping[int, int], offsets: Mapping[tuple[int, str, int], int]) -> None:
        """See ``Scratch.restart``."""
        for shard, epoch in leases.items():
            self._database.shards[shard].epoch = epoch
        self._database.offsets = {at: OffsetRow(leases[at[0]], offset) for at, offset in offsets.items()}

    async def load(self, leases: Sequence[Lease]) -> LedgerState:
        """See ``Ledger.load``."""
        state = state_of(self._database, leases)
        below = {
            at: end
            for at, end in self._refold_below.items()
            if at in state.offsets and end > state.offsets[at]
        }
        return msgspec.structs.replace(state, refold_below=below, seal_secret=self._secret)

    async def commit(self, batch: CommitBatch) -> Committed | NotCommitted:
        """See ``Ledger.commit``; nothing is kept that a restart does not read."""
        outcome = self._database.apply(batch)
        self._database.forget_history()
        return outcome
