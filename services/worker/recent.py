"""What the last two batches claimed, of which the ledger may refuse a part, and how that is taken back."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from domain.cycle.schedule import Scheduler
from domain.state.nominations import Nomination
from services.ports.ledger import CommitBatch
from services.worker.book import Book

BATCHES_PLANNED = 2
"""While one batch is planned, the one before it commits, and what that one lost comes with the next."""


class _Claimed(NamedTuple):
    """Of one batch: ``waited`` as of ``CommitBatch``, ``kept`` promises by uid, uids that were nominated."""

    waited: Mapping[str, tuple[int, int, str | None]]
    kept: Mapping[str, Nomination]
    nominated: frozenset[str]


class Recent:
    """Remembers the claims of the last batches."""

    def __init__(self, scheduler: Scheduler, book: Book) -> None:
        self._scheduler, self._book = scheduler, book
        self._batches: deque[_Claimed] = deque(maxlen=BATCHES_PLANNED)

    def note(self, batch: CommitBatch, kept: Mapping[str, Nomination]) -> None:
        """Take note of a batch that was planned; ``kept`` is what was promised to pods that it binds."""
        nominated = frozenset(row.pod_uid for row in batch.nominated)
        self._batches.append(_Claimed(batch.waited, kept, nominated))

    def take_back(self, keys: Sequence[str]) -> None:
        """Let pods wait again that the ledger did not grant.

        Of one that could not be bound to the node that was promised to it, the promise holds again.
        """
        pods, waited = self._scheduler.state.pods, dict[str, tuple[int, int, str | None]]()
        kept, nominated = dict[str, Nomination](), set[str]()
        for batch in self._batches:
            waited |= batch.waited
            kept |= batch.kept
            nominated |= batch.nominated
        # Where the state was read after the batch that lost, it knows of the loss already.
        unnominated = [key for key in keys if pods[key].spec.uid in nominated and not pods[key].node]
        self._book.untried.update(self._scheduler.unnominate(unnominated))
        arrivals: dict[str, int] = {}
        promises: list[Nomination] = []
        for key in keys:
            uid = pods[key].spec.uid
            if pods[key].node:
                arrivals[key], since_ms, sent_by = waited[uid]
                self._book.wait(key, since_ms, sent_by)
                if uid in kept:
                    promises.append(kept[uid])
                else:
                    self._book.untried.add(key)
        self._scheduler.forget(arrivals, promises)
