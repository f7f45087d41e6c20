"""The servers of a simulation: a log and a database in memory, and what befalls them."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Callable, Coroutine, Sequence, Set
from typing import Any

import msgspec

from domain.model.pods import POD_GROUP_LABEL
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.log import MemoryLog
from services.adapters.memory.nominations import NominationTables
from services.codec.partition import partition_for
from services.ports.clock import Clock
from services.ports.inbox import Forwarded
from services.ports.ledger import CommitBatch, Committed, NominationRow, NotCommitted
from services.ports.log import PODS_TOPIC, Entry, Record, Span, TopicPartition
from services.ports.pods import PodRow, PodTombstone


@dataclasses.dataclass
class Outages:
    """Until when, in seconds of virtual time, nobody gets an answer."""

    log: float = 0.0
    ledger: float = 0.0
    writes: float = 0.0  # the disk of the ledger is full


class Transactions:
    """Transactions that were sent: ``sent`` are all that did not end yet, ``begun`` those that hold locks."""

    def __init__(self) -> None:
        self.sent: dict[asyncio.Task[Committed | NotCommitted], None] = {}  # in their order
        self.begun: set[asyncio.Task[Committed | NotCommitted]] = set()

    def send(
        self, transaction: Coroutine[Any, Any, Committed | NotCommitted]
    ) -> asyncio.Task[Committed | NotCommitted]:
        """Let a transaction run, whoever waits for it."""
        task = asyncio.get_running_loop().create_task(transaction)
        self.sent[task] = None
        task.add_done_callback(self.sent.pop)
        task.add_done_callback(self.begun.discard)
        return task

    def abort(self) -> None:
        """End all of them without effect."""
        for task in list(self.sent):
            task.cancel()


class _SkewedClock:
    """A clock that is wrong by as much as it was told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.wrong_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.wrong_ms


class SimulatedLog(MemoryLog):
    """A log whose brokers have clocks of their own, and which can lose what it holds."""

    def __init__(self, clock: Clock) -> None:
        self._broker_clock = _SkewedClock(clock)
        super().__init__(self._broker_clock)
        self.wrong_ms: dict[TopicPartition, int] = {}
        self.holes_lost: set[tuple[TopicPartition, int]] = set()

    def add(self, at: TopicPartition, entries: Sequence[Entry]) -> Span:
        """See ``MemoryLog``."""
        self._broker_clock.wrong_ms = self.wrong_ms.get(at, 0)
        return super().add(at, entries)

    def lose_tail(self, at: TopicPartition, count: int) -> int:
        """Lose the last records, as a broker does that was the leader without being in sync; say how many.

        A reader may have passed a hole among them: it never reads what is put there, and cannot know.
        """
        first, slots = self.partition(at).first, self.partition(at).slots
        lost = min(count, len(slots))
        of_slots = range(len(slots) - lost, len(slots))
        self.holes_lost |= {(at, first + number) for number in of_slots if slots[number] is None}
        del slots[len(slots) - lost :]
        return lost

    def records(self, at: TopicPartition) -> list[Record]:
        """Return what a partition holds."""
        return self.partition(at).records

    def between(self, at: TopicPartition, lo: int, hi: int) -> list[Record]:
        """Return what a partition holds at these offsets, ``hi`` not included."""
        partition = self.partition(at)
        slots = partition.slots[max(lo - partition.first, 0) : max(hi - partition.first, 0)]
        return [record for record in slots if record is not None]

    def last_end(self, at: TopicPartition) -> int:
        """Return the offset after the last record."""
        records = self.records(at)
        return records[-1].offset + 1 if records else 0


_BY_SHARD = ("decisions", "recorded_ms", "dead_letters")


class SimulatedDatabase(MemoryDatabase):
    """Shows every transaction, and can fall back to an earlier moment."""

    writer: object = None  # whose transaction is carried out
    committed: Callable[[CommitBatch, Set[int]], None] = staticmethod(lambda batch, lost_nodes: None)
    refused: Callable[[CommitBatch], None] = staticmethod(lambda batch: None)

    def apply(self, batch: CommitBatch, holder: object = None) -> Committed | NotCommitted:
        """See ``MemoryDatabase``."""
        self.writer = holder
        outcome = super().apply(batch, holder)
        if isinstance(outcome, Committed):
            self.committed(batch, outcome.lost_nodes)
        else:
            self.refused(batch)
        return outcome

    def lay_down(self, shards: int) -> None:
        """Add shards and bring what is open to the shard of its key, as ``berth init`` does."""
        for (_, topic, _), offset in self.offsets.items():
            offset.moved_below = offset.next_offset if topic == PODS_TOPIC else None
        new = MemoryDatabase(shards)
        for name in ("shards", "cursors", "worker_leases", "relay_leases", *_BY_SHARD):
            vars(self)[name] = vars(new)[name] | vars(self)[name]
        replace, homes = msgspec.structs.replace, dict[str, int]()

        def home(row: PodRow | PodTombstone | NominationRow) -> int:
            key = f"{row.namespace}/{row.name}" if row.namespace else row.name
            return homes.get(key, partition_for(key.encode(), None, shards))

        self.inbox.forwarded.clear()
        for pod in [*(row.opened for row in self.open_placements.values()), *self.pending.values()]:
            key, gang = f"{pod.namespace}/{pod.name}", pod.labels.get(POD_GROUP_LABEL)
            source = partition_for(key.encode(), None, shards)
            homes[key] = (
                source if not gang else partition_for(f"{pod.namespace}/{gang}".encode(), None, shards)
            )
            if homes[key] != source:
                forwarded = Forwarded(source, key, homes[key], pod.pod_uid)
                self.inbox.forwarded[source, key, pod.pod_uid] = forwarded
        moved, self.open_placements = self.open_placements, {}
        for (uid, _), row in moved.items():
            at = home(row.opened)
            row.opened = replace(row.opened, home=None if at == row.opened.shard else at)
            self.open_placements[uid, at] = row
        self.nominations.restore(self._rehomed(self.nominations, home))
        groups = {group.signature: group for group in self.pending_groups.values()}
        pods = [replace(pod, shard=home(pod)) for pod in self.pending.values()]
        added = {uid: at for (uid, _), at in self.past.pending_added.items()}
        self.pending = {(pod.pod_uid, pod.shard): pod for pod in pods}
        self.past.pending_added = {key: added[key[0]] for key in self.pending}
        self.pending_groups = {
            (pod.shard, pod.signature): replace(groups[pod.signature], shard=pod.shard)
            for pod in pods
            if pod.signature in groups
        }
        homes.clear()  # who is gone is remembered where the events of its key are read
        self.tombstones = {key: replace(row, shard=home(row)) for key, row in self.tombstones.items()}

    def _rehomed(
        self, tables: NominationTables, home: Callable[[PodRow | PodTombstone | NominationRow], int]
    ) -> list[NominationRow]:
        """Take all nominations out, and return them with the shards of their pods."""
        rows, places = tables.loaded(), dict(self.open_placements.keys())
        tables.rows.clear()
        tables.evictions.clear()
        return [
            msgspec.structs.replace(
                row, shard=home(row), victims=[each._replace(shard=places[each.uid]) for each in row.victims]
            )
            for row in rows
        ]

    def write_foreign(self, node_id: int) -> None:
        """Raise the version of a node, as another writer would."""
        row = self.nodes[node_id]
        self.nodes[node_id] = msgspec.structs.replace(row, version=row.version + 1)
        self.node_versions[node_id].append(row.version + 1)

    def remember(self) -> dict[str, Any]:
        """Return all tables as they are now."""
        tables = {name: value for name, value in vars(self).items() if not isinstance(value, asyncio.Event)}
        copied: dict[str, Any] = _copied(tables, {})
        return copied

    def fall_back(self, tables: dict[str, Any], *, renamed: bool) -> None:
        """Put all tables back to what they were; ``renamed``: those who ask are told so."""
        life, names = self.timeline + renamed, self.names
        vars(self).update(_copied(tables, {}))
        self.timeline, self.names = life, names  # a client keeps the name that it gave itself


def _copied(value: Any, seen: dict[int, Any]) -> Any:
    """Copy tables with their rows; a row of two tables stays one. Rows that never change are not copied."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, dict):
        return {key: _copied(row, seen) for key, row in value.items()}
    if isinstance(value, list):
        return [_copied(row, seen) for row in value]
    if isinstance(value, set):
        return set(value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    row = seen[id(value)] = copy.copy(value)
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if isinstance(inner, dict | list):
            setattr(row, field.name, _copied(inner, seen))
    return row
