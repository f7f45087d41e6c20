"""What a replay reads of the ledger: the journal, checkpoints, and the decisions as they were recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from domain.model.errors import BerthError
from services.ports.journal import Checkpoint, JournalRow
from services.ports.ledger import CommitBatch, Committed, Lease, LedgerState, NotCommitted


class Unreadable(BerthError):
    """A row of the journal or of a checkpoint is not as berth writes it: somebody changed it."""

    code = "history-unreadable"

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(f"{what} cannot be read, so it was changed by hand: {error}")


class History(Protocol):
    """The ledger's past, read only. A row that cannot be read raises ``Unreadable``."""

    async def span(self) -> tuple[int, int] | None:
        """Return the first batch of the journal and the last one that was committed; None: it is empty."""

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

    async def commit(self, batch: CommitBatch) -> Committed | NotCommitted:
        """See ``Ledger.commit``. Only what a restart reads is kept."""
