"""What a replay reads of the ledger: the journal, checkpoints, and the decisions as they were recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from services.ports.journal import Checkpoint, JournalRow
from services.ports.ledger import CommitBatch, CommitOutcome, Lease, LedgerState


class History(Protocol):
    """The ledger's past, read only."""

    async def span(self) -> tuple[int, int] | None:
        """Return the numbers of the first and the last batch of the journal; None: it is empty."""

    async def checkpoints(self) -> Sequence[Checkpoint]:
        """Return all complete checkpoints, the oldest first."""

    async def state(self, checkpoint: Checkpoint) -> LedgerState:
        """Return the state that a checkpoint holds."""

    def rows(self, first: int, last: int) -> AsyncIterator[JournalRow]:
        """Yield the journal's rows of these batches, in order; those that are missing are left out."""

    async def decisions(self, seqs: Mapping[int, tuple[int, int]]) -> Sequence[bytes]:
        """Return decision records as recorded, by shard and seq; ``seqs`` is as in ``JournalRow``."""

    async def aclose(self) -> None:
        """Release what the history holds."""


class Scratch(Protocol):
    """A ledger in memory that a replay writes and restarts from, as workers did with the real one."""

    async def restart(self, leases: Mapping[int, int], offsets: Mapping[tuple[int, str, int], int]) -> None:
        """Give the shards these epochs and offsets, as a take-over does."""

    async def load(self, leases: Sequence[Lease]) -> LedgerState:
        """See ``Ledger.load``."""

    async def commit(self, batch: CommitBatch) -> CommitOutcome:
        """See ``Ledger.commit``. Only what a restart reads is kept."""
