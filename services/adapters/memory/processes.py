"""What processes do, in memory: shards and their owners, workers, and how far all have come."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence

from domain.model.hosting import ReplicasSaid
from domain.model.limits import heartbeat_seconds_max
from services.adapters.memory.access import moment
from services.adapters.memory.database import CursorRow, LeaseRow, MemoryDatabase, OwnerRow
from services.adapters.memory.pages import page
from services.ports.outbox import Stream
from services.ports.pods import MoveRow
from services.ports.store import (
    ActionState,
    Counts,
    OwnerFilter,
    OwnerSpan,
    Pulse,
    Rows,
    ShardOffset,
    ShardState,
    WorkerState,
)


class MemoryProcesses:
    """The ``Processes`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def replicas(
        self,
        namespace: str | None,
        name: str | None,
        seen: Collection[str] | None,
        limit: int,
        after: tuple[str, str] | None,
    ) -> Rows[ReplicasSaid]:
        """See ``Store.replicas``."""
        found = [
            row
            for row in self._database.hosted.shown(seen)
            if namespace in (None, row.namespace)
            and name in (None, row.name)
            and (after is None or (row.namespace, row.name) > after)
        ]
        return page(found, limit, lambda row: len(row.reason))

    async def actions(
        self, node: str | None, seen: Collection[str] | None, limit: int, before: int | None
    ) -> Rows[ActionState]:
        """See ``Store.actions``."""
        found = self._database.measured.latest(node, seen, before)
        return Rows(found[:limit], more=len(found) > limit)

    async def moves(self, node: str, seen: Collection[str] | None) -> Sequence[MoveRow]:
        """See ``Store.moves``."""
        known = self._database.moves.open()
        return [row for row in known if row.node == node and (seen is None or row.namespace in seen)]

    async def pulse(self) -> Pulse:
        """See ``Store.pulse``."""
        since_ms = self._database.now_ms() - heartbeat_seconds_max * 1000
        rows = self._database.workers.values()
        return Pulse(None, sum(row.stopped_ms is None and row.seen_ms > since_ms for row in rows))

    async def counts(self) -> Counts:
        """See ``Store.counts``."""
        live = [node for node in self._database.nodes.values() if not node.deleted]
        return Counts(len(live), len(self._database.pending))

    async def shards(self) -> Sequence[ShardState]:
        """See ``Store.shards``."""
        rows = []
        for number, shard in sorted(self._database.shards.items()):
            cursor = self._database.cursors.get(number, CursorRow())
            lease, publishing = (
                leases[number] if leases[number].until_ms > self._database.now_ms() else LeaseRow()
                for leases in (self._database.worker_leases, self._database.relay_leases)
            )
            held = lease.owner is not None
            worker = self._database.workers.get(lease.holder)
            rows.append(
                ShardState(
                    shard=number,
                    owner=lease.owner,
                    epoch=shard.epoch,
                    owned_since=moment(lease.taken_ms) if held else None,
                    lease_until=moment(lease.until_ms) if held else None,
                    seq_next=shard.seq_next,
                    dead_seq_next=shard.dead_seq_next,
                    log_time_ms=shard.log_time_ms,
                    relay_owner=publishing.owner,
                    decisions_seq=cursor.published[Stream.DECISIONS],
                    dead_letters_seq=cursor.published[Stream.DEAD_LETTERS],
                    alarm=cursor.alarm,
                    ledger=f"memory.{self._database.timeline}.{cursor.generation}",
                    figures=None if worker is None else worker.figures,
                )
            )
        return rows

    async def workers(self, since: datetime.datetime) -> Sequence[WorkerState]:
        """See ``Store.workers``."""
        now_ms = self._database.now_ms()
        rows = []
        for holder, row in self._database.workers.items():
            leases = self._database.worker_leases.items()
            held = [shard for shard, each in leases if each.holder is holder and each.until_ms > now_ms]
            rows.append(
                WorkerState(
                    incarnation=self._database.names[holder],
                    name=row.told.name,
                    build=row.told.build,
                    started_at=moment(row.started_ms),
                    seen_at=moment(row.seen_ms),
                    stopped_at=None if row.stopped_ms is None else moment(row.stopped_ms),
                    is_up=row.stopped_ms is None and row.seen_ms > now_ms - heartbeat_seconds_max * 1000,
                    is_ready=row.ready,
                    shards=sorted(held),
                    figures=row.figures,
                )
            )
        latest = sorted(rows, key=lambda row: row.started_at, reverse=True)
        return sorted((row for row in latest if row.seen_at >= since), key=lambda row: row.name)

    async def owners(
        self, which: OwnerFilter, limit: int, after: tuple[datetime.datetime, int] | None
    ) -> Rows[OwnerSpan]:
        """See ``Store.owners``."""
        found = [
            span
            for span in map(self._owner_span, self._database.owners)
            if which.shard in (None, span.shard)
            and (which.since is None or span.ended_at is None or span.ended_at > which.since)
            and (which.until is None or span.taken_at < which.until)
        ]
        found.sort(key=lambda span: (-span.taken_at.timestamp(), span.shard))
        if after is not None:
            at, shard = after
            found = [s for s in found if s.taken_at < at or (s.taken_at == at and s.shard > shard)]
        return Rows(found[:limit], more=len(found) > limit)

    def _owner_span(self, row: OwnerRow) -> OwnerSpan:
        lease = self._database.worker_leases[row.shard]
        lapsed = lease.epoch == row.epoch and 0 < lease.until_ms <= self._database.now_ms()
        ended_ms = lease.until_ms if row.ended_ms is None and lapsed else row.ended_ms
        ended = None if ended_ms is None else moment(ended_ms)
        return OwnerSpan(row.shard, row.epoch, row.owner, moment(row.taken_ms), ended)

    async def offsets(self) -> Sequence[ShardOffset]:
        """See ``Store.offsets``."""
        rows = sorted(self._database.offsets.items())
        return [ShardOffset(*key, row.next_offset) for key, row in rows]
