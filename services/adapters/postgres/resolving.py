"""Says by offsets and counters whether a batch is in the ledger, after a commit with an unknown outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.adapters.batches import ShardAdvance
from services.ports.inbox import is_lane
from services.ports.ledger import CommitBatch


def stands(
    batch: CommitBatch,
    advances: Sequence[ShardAdvance],
    offsets: Mapping[tuple[Any, ...], tuple[Any, ...]],
    shards: Mapping[int, Any],
    *,
    after: bool,
) -> bool:
    """Return whether all rows are as after (before) the batch, which moves at least one of them."""
    for a in batch.offsets.advances:
        begins = (a.epoch, 0) if is_lane(a.topic) else None
        if offsets.get(a[:3], begins) != (a.epoch, a.hi if after else a.lo):
            return False
    for s in advances:
        row = shards.get(s.shard)
        seq, dead = (s.seq_hi, s.dead_hi) if after else (s.seq_lo, s.dead_lo)
        if row is None or row["epoch"] != s.epoch:
            return False
        if (seq is not None and row["seq_next"] != seq) or (
            dead is not None and row["dead_seq_next"] != dead
        ):
            return False
    return True
