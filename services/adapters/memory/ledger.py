"""The ledger in memory, for simulations: the behaviour of the one on Postgres over plain dictionaries."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate

import msgspec

from domain.model.errors import Fenced, LedgerMismatch, Unavailable
from domain.model.limits import (
    followed_bytes_max,
    followed_rows_max,
    lease_seconds_max,
    tombstones_max,
    worker_seen_seconds_max,
)
from domain.model.pods import PodTemplate
from domain.state.remembering import fair_share
from services.adapters.batches import shard_advances
from services.adapters.memory.database import (
    SEAL_SECRET,
    CursorRow,
    LeaseRow,
    MemoryDatabase,
    OffsetRow,
    OwnerRow,
    ShardRow,
    WorkerRow,
)
from services.codec.feed import followed, unpack_feed
from services.codec.settling import outcome_of
from services.ports.clock import Clock
from services.ports.inbox import Handed, Waiting, lanes_of
from services.ports.journal import BATCHES, Checkpoint, Followed, Journalled, JournalRow, batches_of
from services.ports.ledger import (
    CommitBatch,
    Committed,
    Figures,
    Incarnation,
    Lease,
    LedgerBase,
    LedgerPart,
    LedgerState,
    Muster,
    NominationRow,
    NotCommitted,
    PodRow,
    PodTombstone,
    both,
)
from services.ports.log import TopicPartition
from services.ports.positions import LogFault, Position
from services.ports.workers import NO_FIGURES


class Client:
    """A client of a ``MemoryDatabase``, which holds leases as itself.

    Parameters
    ----------
    database : MemoryDatabase
        Shared by all that would talk to the same server.
    clock : Clock
        Decides when leases run out.
    """

    def __init__(self, database: MemoryDatabase, clock: Clock) -> None:
        self.database = database
        self._clock = clock
        self._severed = False
        database.names[self] = f"{len(database.names):09}"

    def sever(self) -> None:
        """End the connection as a crash does: nothing is released, and nothing more can be done with it."""
        self._severed = True

    def _answering(self) -> MemoryDatabase:
        if self._severed:
            raise Unavailable("the connection to the ledger is closed")
        return self.database

    def _is_free(self, row: LeaseRow) -> bool:
        left_ms = row.until_ms - self._clock.now_ms()
        return row.owner is None or row.holder is self or not 0 < left_ms <= lease_seconds_max * 1000

    def _take(self, row: LeaseRow, fenced: ShardRow | CursorRow, owner: str, seconds: float) -> int:
        """Give the row to the owner with the next epoch, and return this epoch."""
        fenced.epoch, fenced.holder = fenced.epoch + 1, self
        row.owner, row.holder, row.epoch, row.taken_ms = owner, self, fenced.epoch, self._clock.now_ms()
        self._prolong(row, seconds)
        return row.epoch

    def _prolong(self, row: LeaseRow, seconds: float) -> None:
        row.until_ms = self._clock.now_ms() + round(seconds * 1000)

    async def aclose(self) -> None:
        """Close the connection."""
        self.sever()


def drop_lease(row: LeaseRow) -> None:
    """Leave the row without an owner."""
    row.owner, row.holder, row.until_ms = None, None, 0


class MemoryLedger(Client):
    """The ``Ledger`` port over a ``MemoryDatabase``; each method takes effect at one moment.

    A simulation wraps ``commit`` to fail before or after ``MemoryDatabase.apply``, and calls ``sever`` where
    it kills the process.
    """

    def __init__(self, database: MemoryDatabase, clock: Clock) -> None:
        super().__init__(database, clock)
        self._life: int | None = None  # which life of the ledger this worker has read
        self._known: dict[tuple[int, int], JournalRow] = {}  # the last one of each journal that it has read

    async def announce(self, worker: Incarnation, figures: Figures = NO_FIGURES, *, is_ready: bool) -> None:
        """See ``Ledger.announce``."""
        workers, now_ms = self._answering().workers, self._clock.now_ms()
        started_ms = workers[self].started_ms if self in workers else now_ms
        workers[self] = WorkerRow(worker, started_ms, now_ms, is_ready, figures)

    async def muster(self) -> Muster:
        """See ``Ledger.muster``."""
        rows, now_ms = self._answering().worker_leases, self._clock.now_ms()
        names = self.database.names
        seen_ms = now_ms - round(worker_seen_seconds_max * 1000)
        ready = {}
        for holder, row in self.database.workers.items():
            held = [lease for lease in rows.values() if lease.holder is holder]
            is_here = row.ready and row.stopped_ms is None and row.seen_ms > seen_ms
            if is_here and all(lease.until_ms > now_ms for lease in held):
                ready[names[holder]] = len(held)
        free = [shard for shard, row in rows.items() if self._is_free(row)]
        ends_ms = (row.until_ms for shard, row in rows.items() if shard not in free)
        seconds = min(((end_ms - now_ms) / 1000 for end_ms in ends_ms), default=math.inf)
        others = (shard for shard in free if rows[shard].holder not in (None, self))
        return Muster(names[self], ready, free, seconds, {shard: rows[shard].owner or "" for shard in others})

    async def acquire(
        self, owner: str, lease_seconds: float, shards: Sequence[int] | None = None
    ) -> Sequence[Lease]:
        """See ``Ledger.acquire``."""
        database = self._answering()
        rows = database.worker_leases
        free = [shard for shard, row in rows.items() if self._is_free(row)]
        if shards is None and len(free) < len(rows):
            return []
        taken = {
            shard: self._take(rows[shard], database.shards[shard], owner, lease_seconds)
            for shard in free
            if shards is None or shard in shards
        }
        for (shard, _, _), row in database.offsets.items():
            row.epoch = taken.get(shard, row.epoch)
        self._end(taken)
        now_ms = self._clock.now_ms()
        database.owners += [OwnerRow(shard, epoch, owner, now_ms) for shard, epoch in taken.items()]
        return [Lease(*each) for each in taken.items()]

    async def renew_leases(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lease]:
        """See ``Ledger.renew_leases``."""
        rows = self._answering().worker_leases
        held = [
            each for each in leases if (rows[each.shard].epoch, rows[each.shard].holder) == (each.epoch, self)
        ]
        for lease in held:
            self._prolong(rows[lease.shard], lease_seconds)
        return held

    def _end(self, shards: Collection[int]) -> None:
        """Note that the owners of these shards own them no longer."""
        for row in self.database.owners:
            if row.shard in shards and row.ended_ms is None:
                row.ended_ms = self._clock.now_ms()

    def _holds(self, lease: Lease) -> bool:
        row = self.database.shards.get(lease.shard)
        return row is not None and (row.epoch, row.holder) == (lease.epoch, self)

    async def release(self, leases: Sequence[Lease]) -> None:
        """See ``Ledger.release``."""
        rows = self._answering().worker_leases
        for lease in leases:
            if (rows[lease.shard].epoch, rows[lease.shard].holder) == (lease.epoch, self):
                drop_lease(rows[lease.shard])
                self._end([lease.shard])

    async def forget_owners(self, age_seconds: float, limit: int) -> int:
        """See ``Ledger.forget_owners``."""
        database = self._answering()
        before_ms = self._clock.now_ms() - age_seconds * 1000
        gone = [id(row) for row in database.owners if self._was_over(row, before_ms)][:limit]
        database.owners = [row for row in database.owners if id(row) not in gone]
        return len(gone)

    def _was_over(self, row: OwnerRow, before_ms: float) -> bool:
        """Say whether an owner had a shard only before then."""
        if row.ended_ms is not None:
            return row.ended_ms < before_ms
        lease = self.database.worker_leases[row.shard]
        return row.taken_ms < before_ms and (lease.holder is None or lease.epoch != row.epoch)

    async def forget_workers(self, age_seconds: float, limit: int) -> int:
        """See ``Ledger.forget_workers``."""
        database = self._answering()
        before_ms = self._clock.now_ms() - age_seconds * 1000
        holders = [lease.holder for lease in database.worker_leases.values()]
        rows = database.workers.items()
        gone = [at for at, row in rows if row.seen_ms < before_ms and at not in holders][:limit]
        for holder in gone:
            del database.workers[holder]
        return len(gone)

    async def aclose(self) -> None:
        """See ``Ledger.aclose``."""
        if self in self.database.workers:
            self.database.workers[self].stopped_ms = self._clock.now_ms()
        self.sever()

    async def ensure_offsets(
        self, lease: Lease, first: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] = {}
    ) -> None:
        """See ``Ledger.ensure_offsets``; raise ``Fenced`` when the lease is no longer held."""
        offsets = self._answering().offsets
        if not self._holds(lease):
            raise Fenced(f"shard {lease.shard} has left epoch {lease.epoch}")
        for at, offset in first.items():
            row = offsets.setdefault((lease.shard, at.topic, at.partition), OffsetRow(lease.epoch, offset))
            row.topic_id = row.topic_id or topic_ids.get(at.topic)

    async def positions(self, leases: Sequence[Lease]) -> Mapping[tuple[int, TopicPartition], Position]:
        """See ``Ledger.positions``."""
        rows, owned = self._answering().offsets, {lease.shard for lease in leases}
        return {
            (shard, TopicPartition(topic, partition)): Position(
                row.next_offset, row.topic_id, row.resync_below, row.moved_below
            )
            for (shard, topic, partition), row in rows.items()
            if shard in owned
        }

    async def note_log_faults(self, faults: Sequence[LogFault]) -> None:
        """See ``Ledger.note_log_faults``."""
        database = self._answering()
        if not all(self._holds(Lease(fault.shard, fault.epoch)) for fault in faults):
            raise Fenced("a shard has left the epoch of its lease")
        noted = {(fault.at, fault.epoch) for fault in database.log_faults}
        if not noted.isdisjoint((fault.at, fault.epoch) for fault in faults):
            raise LedgerMismatch("log_faults_pkey: a fault would be noted twice")
        for fault in faults:
            row = database.offsets[fault.shard, *fault.at]
            row.next_offset, row.topic_id, row.resync_below = (
                fault.goes_on_at,
                fault.topic_id,
                fault.resync_below,
            )
            if row.moved_below is not None:
                row.moved_below = min(row.moved_below, fault.kept)
        database.log_faults += faults

    async def load_base(self) -> LedgerBase:
        """See ``Ledger.load_base``."""
        database = self._answering()
        self._life = database.timeline
        last = dict(sorted(database.journal))  # the last number of each shard
        self._known = {at: database.journal[at] for at in last.items()}
        return base_of(database)

    def recognised(self) -> MemoryDatabase:
        """Return the database; ``Fenced`` where it may have lost what was read of it."""
        database = self._answering()
        lost = any(self._is_lost(database, at, row) for at, row in self._known.items())
        if self._life is not None and (lost or self._life != database.timeline):
            raise Fenced("the ledger is another than was read: a replica took over, or a backup was restored")
        return database

    def _is_lost(self, database: MemoryDatabase, at: tuple[int, int], known: JournalRow) -> bool:
        """Say whether a batch is not what it was. One below the count of its shard's batches was pruned."""
        if (row := database.journal.get(at)) is not None:
            return row is not known
        counted = database.offsets.get((at[0], BATCHES, 0))
        return counted is None or counted.next_offset < at[1]

    def _know(self, rows: Mapping[int, JournalRow]) -> None:
        """Note the last batch of some journals."""
        self._known = {at: row for at, row in self._known.items() if at[0] not in rows}
        self._known |= {(row.shard, row.batch): row for row in rows.values()}

    async def load_part(self, leases: Sequence[Lease], *, gone: bool = False) -> LedgerPart:
        """See ``Ledger.load_part``."""
        database = self._answering()
        if not all(self._holds(lease) for lease in leases):
            raise Fenced("a shard to load has left the epoch of its lease")
        return part_of(database, leases, gone=gone)

    async def load_all(self) -> tuple[LedgerBase, LedgerPart]:
        """See ``Ledger.load_all``."""
        database = self._answering()
        base = base_of(database)
        return base, part_of(database, [Lease(shard, 0) for shard in range(base.shards_count)])

    async def commit(self, batch: CommitBatch) -> Committed | NotCommitted:
        """See ``Ledger.commit`` and ``MemoryDatabase.apply``."""
        database = self.recognised()
        outcome = database.apply(batch, self)
        if isinstance(outcome, Committed):
            self.know_written(database, batch)
        return outcome

    def know_written(self, database: MemoryDatabase, batch: CommitBatch) -> JournalRow | None:
        """Note a batch of this worker that the ledger has; return its row."""
        row = batch.journal.row
        written = None if row is None else database.journal.get((row.shard, row.batch))
        if written is not None:
            self._know({written.shard: written})
        return written

    async def journalled(self, shard: int) -> Journalled | None:
        """See ``Ledger.journalled``."""
        database = self._answering()
        numbers = [batch for lead, batch in database.journal if lead == shard]
        checkpoints = [checkpoint.batch for checkpoint, _ in database.checkpoints]
        if not numbers and not checkpoints:
            return None
        batch = max(numbers, default=0)
        last = max(database.journal.values(), key=lambda row: row.position, default=None)
        digest = last.digest if last is not None and (last.shard, last.batch) == (shard, batch) else None
        return Journalled(batch, digest, max(checkpoints, default=None))

    async def follow(self, seen: Mapping[int, int]) -> Sequence[Followed]:
        """See ``Ledger.follow``."""
        journal = self.recognised().journal
        keys = [(at, n) for at, last in seen.items() for n in range(last + 1, last + 1 + followed_rows_max)]
        found = [journal[key] for key in keys if key in journal]
        found.sort(key=lambda row: row.position)
        bytes_before = accumulate((len(row.feed) for row in found), initial=0)
        given = [
            row
            for row, before in zip(found[:followed_rows_max], bytes_before, strict=False)
            if before < followed_bytes_max
        ]
        self._know({row.shard: row for row in given})
        return [followed(row, unpack_feed(row.feed), self.database.templates) for row in given]

    async def read_inbox(self, waiting: Sequence[Waiting], rows_max: int) -> Sequence[Handed]:
        """See ``Ledger.read_inbox``."""
        return list(self.recognised().inbox.read(waiting, rows_max))

    async def write_checkpoint(self, at: Checkpoint, kept: int, held: Callable[[], None]) -> None:
        """See ``Ledger.write_checkpoint``."""
        database, leases = self._answering(), [Lease(*each) for each in at.start.leases.items()]
        state = state_of(database, leases)
        epochs = {lease.shard: database.shards[lease.shard].epoch for lease in leases}
        if epochs != at.start.leases or not at.offsets.items() <= state.offsets.items():
            raise Fenced("the ledger has left the batch of the checkpoint")
        held()
        await asyncio.sleep(0)
        database, at = self._answering(), msgspec.structs.replace(at, offsets=state.offsets)
        others = [each for each in database.checkpoints if each[0].batch != at.batch]
        database.checkpoints = [*others, (at, state)][-kept:]

    async def resolve(self, batch: CommitBatch) -> Committed | NotCommitted:
        """See ``Ledger.resolve``."""
        database, advances = self._answering(), shard_advances(batch)
        if database.stands(batch, advances, self, after=True):
            written = self.know_written(database, batch)
            if written is None:
                return Committed()
            return outcome_of(batch, set(written.lost), written.moved, unpack_feed(written.feed).raised)
        if database.stands(batch, advances, self, after=False):
            return NotCommitted.ABSENT
        return NotCommitted.FENCED


def base_of(database: MemoryDatabase) -> LedgerBase:
    """Return what every worker knows."""
    opened = [row.opened for row in database.open_placements.values()]
    return LedgerBase(
        nodes=[database.nodes[at] for at in sorted(database.nodes)],
        templates=_templates(database, [*opened, *database.nominations.rows.values()]),
        nominations=database.nominations.loaded(),
        moves=database.moves.loaded(),
        placements=sorted(opened, key=lambda p: (p.shard, p.seq)),
        profiles=list({name: row for (name, _), row in sorted(database.profiles.items())}.values()),
        config=[database.config_objects[key] for key in sorted(database.config_objects)],
        usage=[row for _, row in sorted(database.measured.usage.items())],
        tombstones=_gone(database),
        replicas=database.hosted.shown(None),
        waits=[database.hosted.waits[at] for at in sorted(database.hosted.waits)],
        batches=batches_of(offsets := {key: row.next_offset for key, row in database.offsets.items()}),
        lanes=lanes_of(offsets),
        seq_next={number: shard.seq_next for number, shard in database.shards.items()},
        guards={key: row.version for key, row in database.guards.items()},
        shards_count=len(database.shards),
        log_time_ms=max((row.log_time_ms for row in database.shards.values()), default=0),
        seal_secret=SEAL_SECRET,
    )


def _gone(database: MemoryDatabase, shards: Collection[int] | None = None) -> list[PodTombstone]:
    found = [row for row in database.tombstones.values() if shards is None or row.shard in shards]
    found.sort(key=lambda row: (row.at_ms, row.namespace, row.name, row.uid))
    return _latest(found)


def part_of(database: MemoryDatabase, leases: Sequence[Lease], *, gone: bool = False) -> LedgerPart:
    """Return what the owner of these shards needs."""
    owned = {lease.shard: database.shards[lease.shard] for lease in leases}
    pending = [pod for pod in database.pending.values() if pod.shard in owned]
    own = [row for (_, shard), row in database.open_placements.items() if shard in owned]
    orphaned = [(row.opened.namespace, row.opened.name) for row in own if row.orphaned]
    return LedgerPart(
        shards_count=len(database.shards),
        offsets={key: row.next_offset for key, row in database.offsets.items() if key[0] in owned},
        templates=_templates(database, pending),
        pending=sorted(pending, key=lambda p: (p.arrival, p.shard, p.pod_uid)),
        orphaned=[f"{ns}/{name}" for ns, name in sorted(orphaned)],
        gone=_gone(database, owned) if gone else [],
        forwarded=[row for _, row in sorted(database.inbox.forwarded.items()) if row.shard in owned],
        seq_next={shard: row.seq_next for shard, row in owned.items()},
        dead_seq_next={shard: row.dead_seq_next for shard, row in owned.items()},
        log_time_ms=max((row.log_time_ms for row in owned.values()), default=0),
        scale_seq=database.hosted.scale_seq,
    )


def _latest(tombstones: list[PodTombstone]) -> list[PodTombstone]:
    """Return as many as a worker remembers: of more, the namespaces with most of them lose their oldest."""
    left = Counter(each.namespace for each in tombstones)
    share = max(1, fair_share(left.values(), tombstones_max))
    kept = []
    for each in tombstones:
        left[each.namespace] -= 1
        if left[each.namespace] < share:
            kept.append(each)
    return kept


def _templates(database: MemoryDatabase, rows: Sequence[PodRow | NominationRow]) -> dict[bytes, PodTemplate]:
    known = database.templates
    return {row.signature: known[row.signature] for row in rows if row.signature in known}


def state_of(database: MemoryDatabase, leases: Sequence[Lease]) -> LedgerState:
    """Return both in one."""
    return both(base_of(database), part_of(database, leases))
