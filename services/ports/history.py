"""What a replay reads of the ledger: the journal, checkpoints, and the decisions as they were recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from domain.model.errors import BerthError
from domain.model.pods import PodTemplate
from services.ports.inbox import Handed, Waiting
from services.ports.journal import Checkpoint, JournalRow
from services.ports.ledger import CommitBatch, Lease, LedgerBase, LedgerPart, LedgerState
from services.ports.positions import LogFault


class Unreadable(BerthError):
    """A row of the journal or of a checkpoint is not as berth writes it: it was changed by hand."""

    code = "history-unreadable"

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(f"{what} cannot be read, so it was changed by hand: {error}")


class Superseded(BerthError):
    """A checkpoint that was there a moment ago is not kept any more: newer ones have taken its place."""

    code = "checkpoint-superseded"
    retriable = True

    def __init__(self, batch: int) -> None:
        super().__init__(
            f"the checkpoint after batch {batch} was dropped by now, as newer ones came; try again"
        )


class History(Protocol):
    """The ledger's past, read only. A row that cannot be read raises ``Unreadable``."""

    async def span(self) -> tuple[int, int] | None:
        """Return the first batch of the lead's journal and the last one committed; None: it is empty.

        The lead is shard 0: the worker that holds it counts its batches there.
        """

    async def ends(self, last: int | None, shard: int | None = None) -> Mapping[int, int]:
        """Return the last batch of each shard's journal when batch ``last`` of a shard's was written.

        ``shard`` None: of the lead's. ``last`` None: of all that was committed.
        """

    async def batch_at(self, at_ms: int, *, is_last: bool) -> int | None:
        """Return the first batch of the lead's journal at a log time or later; None: there is none.

        With ``is_last`` the last one at it or before. Cost: a pass over that journal, without the feeds.
        """

    async def batch_of(self, shard: int, seq: int) -> JournalRow | None:
        """Return the row of the batch that made a decision; None: it is not in the journal.

        Cost: a pass over the journal, without the feeds.
        """

    async def checkpoints(self) -> Sequence[Checkpoint]:
        """Return all complete checkpoints, the oldest first."""

    async def state(self, checkpoint: Checkpoint) -> LedgerState:
        """Return the state that a checkpoint holds; ``Superseded``: workers have dropped it since."""

    def rows(
        self, after: Mapping[int, int], until: Mapping[int, int], *, starts: bool = False
    ) -> AsyncIterator[JournalRow]:
        """Yield rows of the shards' journals in the order of their positions; missing ones are left out.

        They are those behind batch ``after`` up to batch ``until`` of each shard that ``until`` names; with
        ``starts`` only those with which a worker began.
        """

    async def positions(
        self, after: Mapping[int, int], until: Mapping[int, int]
    ) -> Mapping[str, tuple[int, int]]:
        """Return for each worker the positions of its first and its last row among the same rows."""

    async def position_behind(self, batches: Mapping[int, int]) -> int | None:
        """Return the position of the first row behind these batches of the shards' journals."""

    async def decisions(self, seqs: Mapping[int, tuple[int, int]]) -> Sequence[bytes]:
        """Return decision records as recorded, by shard and seq; ``seqs`` is as in ``JournalRow``."""

    async def inbox(self, waiting: Waiting) -> Sequence[Handed]:
        """Return what was handed over, in its order; up to the first row that is not kept any more."""

    async def log_faults(self) -> Sequence[LogFault]:
        """Return each time that the log had lost records."""

    async def aclose(self) -> None:
        """Release what the history holds."""


class Scratch(Protocol):
    """A ledger in memory that a replay writes and restarts from, as workers did with the real one."""

    async def restart(self, leases: Mapping[int, int], offsets: Mapping[tuple[int, str, int], int]) -> None:
        """Give the shards these epochs and offsets, as a take-over does."""

    async def load_base(self) -> LedgerBase:
        """See ``Ledger.load_base``."""

    async def load_part(self, leases: Sequence[Lease], *, gone: bool = False) -> LedgerPart:
        """See ``Ledger.load_part``."""

    async def write(self, batch: CommitBatch) -> bool:
        """Write a batch that was settled as it was recorded; say whether it follows from what is there.

        Only what a start reads is kept.
        """

    @property
    def templates(self) -> Mapping[bytes, PodTemplate]:
        """All templates that were written."""
