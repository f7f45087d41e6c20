"""The inbox in memory: what the tables of the ledger on Postgres hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from domain.model.errors import LedgerMismatch
from services.ports.inbox import Forwarded, Handed, Waiting
from services.ports.ledger import BatchPods


@dataclasses.dataclass
class InboxTables:
    """Events that were handed over, by home, source and number, and the keys whose events are."""

    handed: dict[tuple[int, int, int], Handed] = dataclasses.field(default_factory=dict)
    forwarded: dict[tuple[int, str, str], Forwarded] = dataclasses.field(default_factory=dict)

    def check(self, pods: BatchPods) -> None:
        """Refuse what the primary key would refuse."""
        if not self.handed.keys().isdisjoint(row[:3] for row in pods.handed):
            raise LedgerMismatch("inbox_pkey: an event would be handed over twice")

    def write(self, pods: BatchPods) -> None:
        """Write what a batch handed over."""
        self.handed |= {row[:3]: row for row in pods.handed}
        self.forwarded |= {(row.shard, row.key, row.uid): row for row in pods.forwarded}

    def read(self, waiting: Sequence[Waiting], rows_max: int) -> Iterator[Handed]:
        """Yield what waits, of each lane up to the first number that is not there."""
        each_max = max(1, rows_max // max(1, len(waiting)))
        for home, source, lo, hi in waiting:
            for number in range(lo, min(hi, lo + each_max)):
                row = self.handed.get((home, source, number))
                if row is None:
                    break
                yield row
