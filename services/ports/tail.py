"""Reads the journal in the order of positions, as the stream of events tells it; each batch once."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from domain.model.errors import BerthError
from services.ports.journal import NodeFed, Owned
from services.ports.pods import DecisionRow

TAIL_DECISIONS_MAX = 2_000
"""Decisions of one answer; it ends with the batch that reaches them."""


class NotKept(BerthError):
    """What follows a place in the journal was pruned, in whole or in part."""

    code = "not-kept"


class Look(NamedTuple):
    """How far the journal is complete.

    Attributes
    ----------
    ledger : str
        The name of the ledger; another one after a backup was restored, or a replica took over.
    position : int
        All batches up to it are visible, and none will come: no transaction in flight has a lower position.
        None: not known yet; look again in a moment.
    check : int or None
        That of the row at the position that was asked for, as in ``TailBatch``; None: there is no such row.
    """

    ledger: str
    position: int | None
    check: int | None


class Spot(NamedTuple):
    """What is kept: the ``check`` of the row at a position (None: no row), and whether all behind it is."""

    check: int | None
    is_kept_behind: bool


class TailDecision(NamedTuple):
    """A decision of a batch, with what streams are filtered by."""

    row: DecisionRow
    namespace: str
    name: str
    node: str | None
    outcome: str
    decided_at_ms: int


class ShardTaken(NamedTuple):
    """A worker took a shard. ``owner`` is its name; None: that is not kept any more."""

    shard: int
    epoch: int
    owner: str | None


class TailBatch(NamedTuple):
    """What a batch did, as the stream of events tells it.

    Attributes
    ----------
    check : int
        31 bits of which batch it is and when it was recorded: a ledger that was set back and went on another
        way has another one at this position.
    taken : sequence of ShardTaken
        Shards that its worker took since its batch before.
    nodes : sequence of NodeFed
        The specs that nodes got.
    decisions : sequence of TailDecision
        In the order of their moments; of one moment, that a pod is evicted comes last, then by (seq, shard).
    """

    position: int
    shard: int
    batch: int
    check: int
    log_time_ms: int
    recorded_at: datetime.datetime | None
    taken: Sequence[ShardTaken]
    nodes: Sequence[NodeFed]
    decisions: Sequence[TailDecision]


class Tail(Protocol):
    """Follows the whole journal. A number of positions may be missing for good: their commits failed."""

    async def look(self, position: int) -> Look:
        """Return how far the journal is complete, and whether the row at ``position`` is still the same.

        Each look learns from the ones before, so one reader of a process looks again and again.
        """

    async def read(self, after: int, until: int) -> Sequence[TailBatch]:
        """Return batches behind one position and up to another, in order: all, or the first ones.

        ``until`` is at most what a look has found complete. Nothing is left where the answer is empty.

        Raises
        ------
        NotKept
            Decisions of a batch were pruned.
        """

    async def spot(self, position: int) -> Spot:
        """Return what is kept around a position."""

    async def position_before(self, at_ms: int, until: int) -> int:
        """Return a position up to ``until`` behind which all batches of a log time or later are.

        Raises
        ------
        NotKept
            Batches of that time may have been pruned.
        """


def shards_taken(owned: Sequence[Owned]) -> list[tuple[int, int]]:
    """Return the shards, with their epochs, that a worker took. What it took again after a rest it had."""
    return [
        (shard, each.leases[shard])
        for each in owned
        if not each.again
        for shard in sorted({of_shard for of_shard, _, _, _ in each.offsets} & each.leases.keys())
    ]


def told_in_order(decisions: Sequence[TailDecision]) -> list[TailDecision]:
    """Return the decisions of a batch in the order in which streams tell them."""

    def moment(each: TailDecision) -> tuple[int, bool, int, int]:
        return each.decided_at_ms, each.outcome == "evicted", each.row.seq, each.row.shard

    return sorted(decisions, key=moment)
