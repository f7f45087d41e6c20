"""What every transaction took from the log, in the order in which the ledger took the transactions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter

from services.adapters.batches import own_shards
from services.codec.partition import partition_for
from services.ports.inbox import source_of
from services.ports.journal import JournalRow
from services.ports.ledger import CommitBatch, OffsetAdvance
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Record, TopicPartition
from tests.simulation.invariants import Findings, Invariant
from tests.simulation.servers import SimulatedDatabase, SimulatedLog

Delivered = dict[TopicPartition, dict[int, Record]]
"""What one process was given of each partition, by offset: of an offset that it read again, the last."""

Key = tuple[int, str, int]

USAGE_SHARD = 0
"""The shard whose owner takes what is measured, and the configuration."""


@dataclasses.dataclass(frozen=True, slots=True)
class Commit:
    """One transaction: the records that it took, and the shard and seq of its decisions, in order.

    ``versions`` says of each node that it changed the versions before and after, where they are known.
    ``number`` is the shard that counts it, and its number there; ``own`` are the shards of its worker, and
    ``followed`` says how far that one knew the others. ``is_ordered`` is false where the order of decisions
    of several shards is not known. ``usage_batch`` is the last batch of the shard of usage that its worker
    knew, None: it holds that shard, and knew all. ``log_time_ms`` is log time after it.
    """

    records: Sequence[Record]
    decided: Sequence[tuple[int, int]]
    versions: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    number: tuple[int, int] = (0, 0)
    own: Sequence[int] = ()
    followed: Mapping[int, int] = dataclasses.field(default_factory=dict)
    is_ordered: bool = True
    usage_batch: int | None = None
    log_time_ms: int = 0

    def knows(self, lead: int, batch: int) -> bool:
        """Say whether its worker knew a transaction when it planned this one."""
        return lead in self.own or batch <= self.followed.get(lead, 0)


def in_order(lanes: Iterable[Iterable[Record]]) -> list[Record]:
    """Merge partitions by time, each in its own order: a key moves where a topic gets partitions."""
    timed: list[tuple[int, Record]] = []
    for lane in lanes:
        at_ms = 0
        for record in lane:
            at_ms = max(at_ms, record.timestamp_ms)
            timed.append((at_ms, record))
    return [record for _, record in sorted(timed, key=itemgetter(0))]


class Tape:
    """Notes each transaction by what the log gave its process, since the log may lose what it gave."""

    def __init__(self, log: SimulatedLog, database: SimulatedDatabase, findings: Findings) -> None:
        self._log = log
        self._database = database
        self._findings = findings
        self._offsets: dict[Key, int] = {}
        self.commits: list[Commit] = []
        self.delivered: dict[object, Delivered] = {}  # by who holds leases
        self._told: dict[str, int] = {}  # worker -> the last batch of the shard of usage that it knew
        self._moved: dict[TopicPartition, list[Record]] = {}  # whose keys went elsewhere with the last shard

    def move(self, shards: int) -> None:
        """Note which records are of keys that have another partition from now on."""
        for partition in range(shards - 1):
            at = TopicPartition(PODS_TOPIC, partition)
            found = (r for r in self._log.records(at) if partition_for(r.key, r.value, shards) != partition)
            self._moved[at] = list(found)

    def fall_back(self, length: int) -> None:
        """Forget the transactions behind the first ones, which the ledger has lost."""
        del self.commits[length:]
        self._offsets = {key: row.next_offset for key, row in self._database.offsets.items()}

    def note(self, batch: CommitBatch, versions: Mapping[str, tuple[int, int]]) -> None:
        """Take a transaction down, and check that it took all that it moved past."""
        handed = {(row.source, row.log_offset) for row in batch.pods.handed}
        records = in_order([list(self._taken(advance, handed)) for advance in batch.offsets.advances])
        decided = [(d.shard, d.seq) for d, _ in batch.decisions.made]
        number = (batch.journal.row.shard, batch.journal.row.batch) if batch.journal.row else (0, 0)
        own, followed = own_shards(batch), batch.cluster.followed
        commit = Commit(records, decided, versions, number, own, followed)
        if batch.journal.row is not None:
            known = None if USAGE_SHARD in own else self._usage_batch(batch.journal.row)
            now_ms = batch.journal.row.log_time_ms
            commit = dataclasses.replace(commit, usage_batch=known, log_time_ms=now_ms)
        self.commits.append(commit)

    def _usage_batch(self, row: JournalRow) -> int:
        """Return how far a worker knew the shard of usage; its rows say that where it changed."""
        if row.start is not None:
            self._told.pop(row.worker, None)
        self._told[row.worker] = row.followed.get(USAGE_SHARD, self._told.get(row.worker, 0))
        return self._told[row.worker]

    def is_overwritten(self, commit: Commit) -> bool:
        """Say whether the log lost records of a transaction, and holds others in their place.

        Where nobody looked before these came, no one ever knows.
        """
        places = ((TopicPartition(r.topic, r.partition), r.offset) for r in commit.records)
        now = [self._log.between(at, offset, offset + 1) for at, offset in places]
        return any(found != [was] for was, found in zip(commit.records, now, strict=True))

    def _taken(self, a: OffsetAdvance, handed: Set[tuple[int, int]]) -> Iterator[Record]:
        """Yield the records of a move, without those that were handed over: their home takes them."""
        key = a[:3]
        known = self._offsets.get(key, a.lo)
        if any((f.shard, *f.at, f.goes_on_at) == (*key, a.lo) for f in self._database.log_faults):
            known = a.lo  # the ledger notes that the log lost records, and where the shard goes on
        self._require(known == a.lo <= a.hi, f"{key} from {known} to {a.lo}..{a.hi}")
        self._offsets[key] = a.hi
        if (source := source_of(a.topic)) is not None:
            rows = (self._database.inbox.handed[a.shard, source, number] for number in range(a.lo, a.hi))
            yield from (row.record().read for row in rows)
        if a.topic.startswith("~"):
            return
        own = a.shard == a.partition if a.topic in (NODES_TOPIC, PODS_TOPIC) else a.shard == 0
        self._findings.require(own, Invariant.KEY_ORDER, f"shard {a.shard} took {a.topic}/{a.partition}")
        at = TopicPartition(a.topic, a.partition)
        yield from self._log.between(at, known, a.lo)  # nobody took them, and nobody ever will
        given = self.delivered.get(self._database.writer, {}).get(at, {})
        there = [record.offset for record in self._log.between(at, a.lo, a.hi)]
        unread = [each for each in there if each not in given and (at, each) not in self._log.holes_lost]
        self._require(not unread, f"{at}: {unread} were moved past and never read")
        below = self._database.offsets[key].resync_below or 0
        moved = self._moved.get(at, ()) if below else ()
        last = {r.key: o for o, r in sorted(given.items()) if o < below and r not in moved}
        for offset in range(a.lo, a.hi):
            record = given.get(offset)
            # Of a partition that is read again, only the latest record of each key counts, and none that was
            # there before its key moved: what ended its pod came elsewhere.
            is_here = a.topic != PODS_TOPIC or (a.shard, offset) not in handed
            if is_here and record is not None and (offset >= below or last.get(record.key) == offset):
                yield record

    def _require(self, holds: bool, message: str) -> None:
        self._findings.require(holds, Invariant.OFFSET_GAP, message)
