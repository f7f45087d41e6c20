"""From records to a batch: decode, fold, place; nothing here waits, reads a clock or touches the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.cycle.schedule import Scheduler
from domain.model.pods import PodSpec
from domain.model.profiles import Profile
from domain.state.pods import Tombstone
from services.decoding import Decoder
from services.ports import (
    NODES_TOPIC,
    PODS_TOPIC,
    CommitBatch,
    Lease,
    LedgerState,
    OffsetAdvance,
    PendingPod,
    PlacementOpened,
    Record,
    TopicPartition,
)
from services.worker.batch import BatchBuilder
from services.worker.counters import Counters

BATCHES = "~batches"
"""Not a topic: the offset row that counts a shard's batches, so that no two batches look alike."""


class Planner:
    """The state of the cluster and all that follows from it, as of the last planned batch.

    Parameters
    ----------
    leases : sequence of Lease
        All shards; the first one counts the batches.
    ledger : LedgerState
        What the ledger held when the leases were taken.
    """

    def __init__(
        self, leases: Sequence[Lease], ledger: LedgerState, profiles: Mapping[str, Profile], *, seed: int
    ) -> None:
        self._decoder = Decoder(profiles)
        self._epochs = {lease.shard: lease.epoch for lease in leases}
        self._counters = Counters(self._epochs, ledger.seq_next, ledger.dead_seq_next)
        self._offsets = dict(ledger.offsets)
        self._lead = min(self._epochs)
        self._now_ms = ledger.log_time_ms
        self.scheduler = Scheduler(profiles, seed=seed)
        self._restore(ledger)

    def _restore(self, ledger: LedgerState) -> None:
        for node in sorted(ledger.nodes, key=lambda row: row.id):
            if node.spec is not None:
                self.scheduler.state.restore_node(
                    name=node.name,
                    ordinal=node.id,
                    version=node.version,
                    spec=node.spec,
                    deleted=node.deleted,
                )
        self._counters.know(ledger.templates)
        for placed in ledger.placements:
            pod = _pod_of(placed, ledger, placed.node if placed.adopted else "")
            entry = self.scheduler.restore_pod(pod, node=placed.node, adopted=placed.adopted)
            entry.shard = placed.shard
        for waiting in sorted(ledger.pending, key=lambda row: row.arrival):
            entry = self.scheduler.restore_pod(_pod_of(waiting, ledger, ""), arrival=waiting.arrival)
            entry.shard, entry.since_ms = waiting.shard, waiting.since_ms
            self._counters.reasons_known.setdefault(waiting.signature, {})[waiting.shard] = {}
        for gone in sorted(ledger.tombstones, key=lambda row: (row.at_ms, row.namespace, row.name)):
            key = f"{gone.namespace}/{gone.name}"
            self.scheduler.state.tombstones[key] = Tombstone(gone.uid, gone.resource_version)
        self.scheduler.state.restored()

    def positions(self) -> dict[TopicPartition, int]:
        """Return where each partition goes on."""
        return {
            TopicPartition(topic, partition): offset
            for (_, topic, partition), offset in self._offsets.items()
            if topic != BATCHES
        }

    @property
    def has_work(self) -> bool:
        """Whether pods are worth an attempt without any further event."""
        return self.scheduler.has_work

    def plan(self, records: Sequence[Record]) -> CommitBatch:
        """Fold the records, place what can be placed, and return all of it as one batch.

        The state is ahead of the ledger from here on: if the batch does not commit, the planner is void.
        """
        builder = BatchBuilder(self.scheduler, self._counters)
        builder.now_ms = self._now_ms
        ends: dict[tuple[int, str, int], int] = {}
        for record in records:
            shard = self._shard_of(record)
            ends[shard, record.topic, record.partition] = record.offset + 1
            decoded = self._decoder.decode(record)
            builder.now_ms = decoded.at_ms
            if decoded.rejected is not None:
                builder.refuse(record, shard, decoded.rejected)
            elif decoded.event is not None:
                for change in self.scheduler.fold(decoded.event):
                    builder.take(change, record, shard)
        self._now_ms = builder.now_ms
        builder.decide(self.scheduler.cycle())
        return builder.build(self._advance(ends))

    def _shard_of(self, record: Record) -> int:
        """The shard that answers for a record: nodes and pods by partition, the rest by the first shard."""
        return record.partition if record.topic in (NODES_TOPIC, PODS_TOPIC) else self._lead

    def _advance(self, ends: Mapping[tuple[int, str, int], int]) -> list[OffsetAdvance]:
        count = (self._lead, BATCHES, 0)
        moves = {**ends, count: self._offsets[count] + 1}
        advances = []
        for key in sorted(moves):
            shard, topic, partition = key
            lo, hi = self._offsets[key], moves[key]
            advances.append(OffsetAdvance(shard, topic, partition, self._epochs[shard], lo, hi))
            self._offsets[key] = hi
        return advances


def _pod_of(row: PlacementOpened | PendingPod, ledger: LedgerState, node_name: str) -> PodSpec:
    return PodSpec(
        uid=row.pod_uid,
        namespace=row.namespace,
        name=row.name,
        resource_version=row.resource_version,
        template=ledger.templates[row.signature],
        signature=row.signature,
        labels=row.labels,
        node_name=node_name,
    )
