"""The table of moves from hot nodes in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import msgspec

from domain.model.errors import LedgerMismatch
from services.ports.ledger import BatchPods, MoveRow

Key = tuple[str, str, int]
"""Node, and uid and shard of a pod."""


@dataclasses.dataclass
class MovesTable:
    """Pods that had to leave hot nodes which have not rested yet."""

    moves: dict[Key, MoveRow] = dataclasses.field(default_factory=dict)

    def restore(self, rows: Iterable[MoveRow]) -> None:
        """Take moves from another ledger."""
        self.moves |= {_key(row): row for row in rows}

    def loaded(self) -> list[MoveRow]:
        """Return the rows in the order of their keys."""
        return [row for _, row in sorted(self.moves.items())]

    def open(self) -> list[MoveRow]:
        """Return the moves that are under way."""
        return [row for row in self.loaded() if row.is_open]

    def check(self, pods: BatchPods, shards: Sequence[int]) -> None:
        """Refuse what a unique index would refuse."""
        if not pods.moved:
            return
        after = self._after(pods, shards)
        if not after.keys().isdisjoint(map(_key, pods.moved)):
            raise LedgerMismatch("moves_pkey: a node would be relieved of a pod twice")
        open_ = [(row.pod_uid, row.shard) for row in (*after.values(), *pods.moved) if row.is_open]
        if len(set(open_)) != len(open_):
            raise LedgerMismatch("moves_open: a pod would have to leave two nodes")

    def write(self, pods: BatchPods, shards: Sequence[int]) -> None:
        """Take what left, what is over and forgotten, and what is to leave from now on, in this order."""
        if self.moves:
            self.moves = self._after(pods, shards)
        self.restore(pods.moved)

    def _after(self, pods: BatchPods, shards: Sequence[int]) -> dict[Key, MoveRow]:
        """Return what is left of the rows, without those that a batch brings."""
        closed = {(each.pod_uid, shard) for each in pods.closed for shard in shards}
        after = dict[Key, MoveRow]()
        for key, row in self.moves.items():
            is_own = row.decided_by in shards
            if is_own and row.node in pods.rested:
                continue
            if key[1:] in closed or (is_own and row.node in pods.spared):
                row = msgspec.structs.replace(row, is_open=False)
            after[key] = row
        return after


def _key(row: MoveRow) -> Key:
    return row.node, row.pod_uid, row.shard
