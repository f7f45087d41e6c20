"""Where a worker stands among others: the shards that it holds, and how far it has followed the journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from domain.model.errors import LedgerMismatch
from services.codec.effects import Source
from services.codec.feed import FeedEvent
from services.ports.journal import BATCHES, Followed, JournalRow, Owned

Offsets = Mapping[tuple[int, str, int], int]


class JournalPositions:
    """What the journal has to say of a worker beside its batches.

    Attributes
    ----------
    followed : dict
        Shard -> the last batch of its journal that is known here, for all shards that others hold.
    """

    def __init__(self, batches: Mapping[int, int]) -> None:
        self.followed = dict(batches)
        self._told: dict[int, int] = {}
        self._owned: list[Owned] = []
        self._leases: dict[int, int] = {}
        self._given: dict[int, int] = {}  # all that was held when shards were given up last, with epochs
        self._begins = True

    def note_taken(self, leases: Mapping[int, int], offsets: Offsets) -> None:
        """Take note that shards with these offsets were taken, and what is held now.

        A worker that held no shard starts a new journal session.
        """
        if not self._leases:
            self._begins = True
            self._told.clear()
            self._owned.clear()
        for shard, _, _ in offsets:
            self.followed.pop(shard, None)
        self._leases = dict(leases)
        taken = [(*at, offset) for at, offset in sorted(offsets.items())]
        again = self._begins and not self._leases.items().isdisjoint(self._given.items())
        self._owned.append(
            Owned(leases=self._leases, offsets=taken, followed=dict(self.followed), again=again)
        )

    def note_given(self, leases: Mapping[int, int], offsets: Offsets) -> None:
        """Take note that shards with these offsets were given up, and what is held now."""
        batches = {shard: batch for (shard, topic, _), batch in offsets.items() if topic == BATCHES}
        self.followed |= batches
        self._given = self._leases
        self._leases = dict(leases)
        self._owned.append(Owned(leases=self._leases))

    def follow(self, row: Followed) -> None:
        """Take note that a batch is followed.

        Raises
        ------
        LedgerMismatch
            It is not the next one of its journal.
        """
        known = self.followed.get(row.shard)
        if known is None or row.batch != known + 1:
            raise LedgerMismatch(f"batch {row.batch} of shard {row.shard} came after batch {known}")
        self.followed[row.shard] = row.batch

    def tell(self, *, shard: int, batch: int) -> tuple[JournalRow, bool]:
        """Return the beginning of the journal's row of a batch, and whether the worker begins with it."""
        followed = {at: last for at, last in self.followed.items() if self._told.get(at, 0) != last}
        row = JournalRow(shard=shard, batch=batch, owned=self._owned, followed=followed)
        self._told |= followed
        self._owned = []
        begins, self._begins = self._begins, False
        return row, begins


class Folded(NamedTuple):
    """The offsets after the records that were folded, where each came from, and what others have to fold."""

    ends: Mapping[Source, int]
    sources: Sequence[Source]
    shared: Sequence[tuple[int, FeedEvent]]
