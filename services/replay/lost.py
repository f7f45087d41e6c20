"""Says which batches cannot be planned again because the log lost the records that they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.ports.journal import Checkpoint, JournalRow, Lane
from services.ports.log import TopicPartition
from services.ports.positions import LogFault


class Lost:
    """What the log lost, by the ledger's notes, while batches go by in the order of the journal."""

    def __init__(self, faults: Sequence[LogFault], epochs: Mapping[int, int]) -> None:
        self._faults = faults
        self._epochs = dict(epochs)

    def why_not(self, row: JournalRow) -> str:
        """Return why a batch cannot be planned again; "" where nothing that it took was lost."""
        if row.start is not None:
            self._epochs |= row.start.leases
        for change in row.owned:
            self._epochs |= change.leases
        for lane in row.lanes:
            at = TopicPartition(lane.topic, lane.partition)
            for fault in self._faults:
                if (lane.shard, at) == (fault.shard, fault.at) and self._is_hit(lane, fault):
                    how = f"{fault.code}; the table log_faults has it under epoch {fault.epoch}"
                    return f"the log does not hold what it took of {at.topic}/{at.partition} ({how})"
        return ""

    def _is_hit(self, lane: Lane, fault: LogFault) -> bool:
        if self._epochs.get(lane.shard, 0) >= fault.epoch:  # read again: of each key only its latest record
            return fault.resync_below is not None and lane.lo < fault.resync_below
        return fault.code == "recreated" or (fault.code == "tail-lost" and lane.hi > fault.end)


def is_behind_losses(checkpoint: Checkpoint, faults: Sequence[LogFault]) -> bool:
    """Say whether all that a replay from this checkpoint reads is still as it was read."""
    for fault in faults:
        offset = checkpoint.offsets.get((fault.shard, *fault.at), 0)
        is_before = checkpoint.start.leases.get(fault.shard, 0) < fault.epoch
        if is_before or (fault.resync_below is not None and offset < fault.resync_below):
            return False
    return True
