"""The ledger on Postgres: a batch of events becomes durable in one transaction, or not at all."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from domain.model.errors import Fenced, LedgerMismatch, Unavailable
from services.adapters.batches import (
    Mark,
    ShardAdvance,
    ShardCounters,
    mark_of,
    own_shards,
    shard_advances,
    stands,
)
from services.adapters.postgres import inbox, journal, rows, sql, sql_leases
from services.adapters.postgres.connections import BULK, HOT, QUICK, Connection, Session, fresh, rows_count
from services.adapters.postgres.following import Following
from services.adapters.postgres.guards import check_guards, raise_guards
from services.adapters.postgres.leases import COMMIT_SESSION, Leases, forget_owners, forget_workers
from services.adapters.postgres.loading import load_all, load_base, load_part
from services.adapters.postgres.nodes import change_nodes, undo_claims
from services.adapters.postgres.sql_outbox import LEDGER_NAME
from services.codec.settling import lost_together, outcome_of, settle_batch
from services.ports.inbox import Handed, Waiting
from services.ports.journal import Checkpoint, Followed, Journalled
from services.ports.ledger import (
    BatchCluster,
    BatchDecisions,
    BatchPods,
    CommitBatch,
    Committed,
    Figures,
    Incarnation,
    Lease,
    LedgerBase,
    LedgerPart,
    Muster,
    NotCommitted,
    PendingGroup,
)
from services.ports.log import TopicPartition
from services.ports.positions import LogFault, Position
from services.ports.workers import NO_FIGURES


class PostgresLedger:
    """The ``Ledger`` port on Postgres.

    Four kinds of connections: one that commits, one for leases and heartbeats, which must not wait for it,
    one that follows other workers, and fresh ones to load and to resolve.

    Parameters
    ----------
    dsn : str
        As asyncpg takes it, unix sockets included.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._life: str | None = None  # which life of the ledger this worker has read
        self.incarnation = uuid.uuid4()  # as in the table workers, once it is announced
        self._hot = Session(dsn, f"{COMMIT_SESSION}{self.incarnation}", HOT, self._recognise)
        self._announced = False
        self._lease_session = Session(dsn, "berth-lease", QUICK)
        self._leases = Leases(self._lease_session, "worker_leases", self.incarnation)
        self._follow_session = Session(dsn, "berth-follow", HOT, self._recognise)
        self._following = Following()
        self._resources = rows.ResourceIds({})

    # ------------------------------------------------------------------------------------------ leases

    async def announce(self, worker: Incarnation, figures: Figures = NO_FIGURES, *, is_ready: bool) -> None:
        """See ``Ledger.announce``."""
        told = (worker.name, worker.build, worker.seed, rows.json_text(worker.settings))
        now = (is_ready, rows.json_text(figures))
        async with self._lease_session.use() as connection:
            await connection.execute(sql_leases.ANNOUNCE, self.incarnation, *told, *now)
        self._announced = True

    async def acquire(
        self, owner: str, lease_seconds: float, shards: Sequence[int] | None = None
    ) -> Sequence[Lease]:
        """See ``Ledger.acquire``."""
        return await self._leases.acquire(owner, lease_seconds, shards)

    async def muster(self) -> Muster:
        """See ``Ledger.muster``."""
        async with self._lease_session.use() as connection:
            found = await connection.fetch(sql_leases.READY)
        return Muster(
            str(self.incarnation),
            {str(worker): held for worker, held in found},
            *await self._leases.free(),
        )

    async def renew_leases(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lease]:
        """See ``Ledger.renew_leases``."""
        return await self._leases.renew_leases(leases, lease_seconds)

    async def release(self, leases: Sequence[Lease]) -> None:
        """See ``Ledger.release``."""
        await self._leases.release(leases)

    async def forget_owners(self, age_seconds: float, limit: int) -> int:
        """See ``Ledger.forget_owners``."""
        async with self._lease_session.use() as connection:
            return await forget_owners(connection, age_seconds, limit)

    async def forget_workers(self, age_seconds: float, limit: int) -> int:
        """See ``Ledger.forget_workers``."""
        async with self._lease_session.use() as connection:
            return await forget_workers(connection, age_seconds, limit)

    async def ensure_offsets(
        self, lease: Lease, first: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] = {}
    ) -> None:
        """See ``Ledger.ensure_offsets``; raise ``Fenced`` when the lease is no longer held."""
        wanted = [(*at, offset, topic_ids.get(at.topic) or None) for at, offset in first.items()]
        async with self._hot.use() as connection, connection.transaction():
            if wanted:
                await connection.execute(sql.INSERT_OFFSETS, lease.shard, lease.epoch, *_columns(wanted))
            await self._hold(connection, [lease])  # after the offsets, as for all

    async def _hold(self, connection: Connection, leases: Sequence[Lease]) -> None:
        """Keep the epochs as they are until the transaction ends; ``Fenced`` where one is not ours."""
        held = await connection.fetch(sql.HOLD_EPOCHS, *_columns(leases), self.incarnation)
        if len(held) != len(leases):
            raise Fenced(f"a shard of {leases} has left the epoch of its lease")

    async def positions(self, leases: Sequence[Lease]) -> Mapping[tuple[int, TopicPartition], Position]:
        """See ``Ledger.positions``."""
        async with self._hot.use() as connection:
            found = await connection.fetch(sql.POSITIONS, [lease.shard for lease in leases])
        return {
            (shard, TopicPartition(topic, partition)): Position(*position)
            for shard, topic, partition, *position in found
        }

    async def note_log_faults(self, faults: Sequence[LogFault]) -> None:
        """See ``Ledger.note_log_faults``."""
        moves = [(f.shard, *f.at, f.epoch, f.goes_on_at, f.topic_id, f.resync_below, f.kept) for f in faults]
        found = [(*f.at, f.epoch, f.code, f.next_offset, f.first, f.end, f.goes_on_at) for f in faults]
        left = [(*fault.at, fault.epoch, *each) for fault in faults for each in fault.unmentioned]
        async with self._hot.use() as connection, connection.transaction():
            moved = await connection.execute(sql.MOVE_OFFSETS, *_columns(moves))
            if rows_count(moved) != len(moves):
                raise Fenced("a shard has left the epoch of its lease")
            await self._hold(connection, sorted({Lease(fault.shard, fault.epoch) for fault in faults}))
            try:
                await _copy(connection, "log_faults", sql.LOG_FAULT_COLUMNS, found)
            except asyncpg.UniqueViolationError as error:  # it was asked again: the answer was lost
                raise LedgerMismatch(f"{error.constraint_name}: {error.detail}") from error
            await _copy(connection, "unmentioned", sql.UNMENTIONED_COLUMNS, left)

    # -------------------------------------------------------------------------------------------- load

    async def load_base(self) -> LedgerBase:
        """See ``Ledger.load_base``."""
        async with fresh(self._dsn, "berth-load", BULK) as connection:
            life = await connection.fetchval(LEDGER_NAME)
            if life != self._life:
                for session in (self._hot, self._follow_session):
                    session.cut()
            self._life = life
            self._resources = rows.ResourceIds({})  # another life may have given a position to another name
            base = await load_base(connection)
            await self._following.begin(connection)
            return base

    async def _recognise(self, connection: Connection) -> None:
        """Refuse a ledger that may have lost what was read of it. Only a new connection can lead to one."""
        if self._life is None:
            return
        named = await connection.fetchval(LEDGER_NAME)
        if named != self._life or await self._following.is_lost(connection):
            raise Fenced("the ledger is another than was read: a replica took over, or a backup was restored")

    async def load_part(self, leases: Sequence[Lease], *, gone: bool = False) -> LedgerPart:
        """See ``Ledger.load_part``."""
        async with fresh(self._dsn, "berth-load", BULK) as connection:
            return await load_part(connection, leases, gone=gone)

    async def load_all(self) -> tuple[LedgerBase, LedgerPart]:
        """See ``Ledger.load_all``."""
        async with fresh(self._dsn, "berth-load", BULK) as connection:
            return await load_all(connection)

    # ------------------------------------------------------------------------------------------ commit

    async def commit(self, batch: CommitBatch) -> Committed | NotCommitted:
        """See ``Ledger.commit``.

        Raises
        ------
        Unavailable
            The outcome is unknown. So it is after any other exception: the connection is cut.
        LedgerMismatch
            The fences held, yet a unique constraint or a placement to close did not: nothing was written.
        ValueError
            The batch is malformed, or could not be resolved after an unknown outcome.
        """
        advances = shard_advances(batch)
        async with self._hot.use() as connection:
            await connection.execute("BEGIN")
            if not await _advance(connection, batch, advances, self.incarnation):
                await connection.execute("ROLLBACK")
                return NotCommitted.FENCED
            resources = await self._with_resources(connection, batch.cluster)
            try:
                refused, raised = await check_guards(connection, batch)
                lost_nodes, moved = await change_nodes(connection, batch, resources, refused)
                if beside := lost_together(batch, lost_nodes) - lost_nodes:
                    await undo_claims(connection, batch.cluster.claims, resources, beside)
                    lost_nodes, refused = lost_nodes | beside, refused | beside
                raised += await raise_guards(connection, batch, lost_nodes)
                settled = settle_batch(batch, lost_nodes, moved, raised)
                await _write_pods(connection, settled.pods, own_shards(batch), mark_of(batch))
                await _write_decisions(connection, settled.decisions)
                await _write_cluster(connection, settled.cluster, mark_of(batch))
                row = settled.journal.row
                recorded_at = None if row is None else await journal.write(connection, row)
            except asyncpg.UniqueViolationError as error:
                raise LedgerMismatch(f"{error.constraint_name}: {error.detail}") from error
            await connection.execute("COMMIT")
            self._resources = resources
            if row is not None and recorded_at is not None:
                self._following.know(row, recorded_at)
            return outcome_of(batch, lost_nodes, moved, raised, refused)

    async def _with_resources(self, connection: Connection, cluster: BatchCluster) -> rows.ResourceIds:
        """Return positions for all names of the batch, giving new ones to names that have none."""
        names = rows.resource_names(cluster)
        if not self._resources.missing(names):
            return self._resources
        await connection.execute(sql.LOCK_RESOURCES)
        found = await connection.fetch(sql.RESOURCES)
        known = rows.ResourceIds({row["name"]: row["id"] for row in found})
        new = known.missing(names)
        ids = known.with_names(new)
        await connection.execute(sql.INSERT_RESOURCES, [ids.position(name) for name in new], new)
        return ids

    async def journalled(self, shard: int) -> Journalled | None:
        """See ``Ledger.journalled``."""
        async with fresh(self._dsn, "berth-journal") as connection:
            return await journal.end(connection, shard)

    async def follow(self, seen: Mapping[int, int]) -> Sequence[Followed]:
        """See ``Ledger.follow``."""
        async with self._follow_session.use() as connection:
            return await self._following.follow(connection, seen)

    async def read_inbox(self, waiting: Sequence[Waiting], rows_max: int) -> Sequence[Handed]:
        """See ``Ledger.read_inbox``."""
        async with self._follow_session.use() as connection:
            return await inbox.read(connection, waiting, rows_max)

    async def write_checkpoint(self, at: Checkpoint, kept: int, held: Callable[[], None]) -> None:
        """See ``Ledger.write_checkpoint``: one connection reads a snapshot, another one writes.

        Workers rest until it is held, so the other one is opened behind that.
        """
        source = fresh(self._dsn, "berth-snapshot", BULK)
        async with source as reading, journal.held_at(reading, at) as head:
            held()
            async with fresh(self._dsn, "berth-checkpoint") as to:
                await journal.write_checkpoint(reading, to, at, kept, head)

    async def resolve(self, batch: CommitBatch) -> Committed | NotCommitted:
        """See ``Ledger.resolve``; ``Unavailable`` when a transaction in flight outlasts the patience."""
        advances = shard_advances(batch)
        async with fresh(self._dsn, "berth-resolve") as connection, connection.transaction():
            keys = [list(column) for column in zip(*(a[:3] for a in batch.offsets.advances), strict=True)]
            offsets = {
                tuple(row)[:3]: tuple(row)[3:] for row in await connection.fetch(sql.READ_OFFSETS, *keys)
            }
            found = await connection.fetch(sql.READ_SHARDS, [a.shard for a in advances])
            shards = {
                row["shard"]: ShardCounters(row["epoch"], row["seq_next"], row["dead_seq_next"])
                for row in found
                if row["holder"] == self.incarnation
            }
            if stands(batch, advances, offsets, shards, after=True):
                return await journal.settled(connection, batch, self._following)
        if stands(batch, advances, offsets, shards, after=False):
            return NotCommitted.ABSENT
        return NotCommitted.FENCED

    async def aclose(self) -> None:
        """See ``Ledger.aclose``."""
        await self._hot.aclose()
        await self._follow_session.aclose()
        if self._announced:
            with contextlib.suppress(Unavailable):
                async with self._lease_session.use() as connection:
                    await connection.execute(sql_leases.STOPPED, self.incarnation)
        await self._lease_session.aclose()


# -------------------------------------------------------------------------------------- steps of a commit


def _columns(values: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*values, strict=True)]


async def _advance(
    connection: Connection, batch: CommitBatch, advances: Sequence[ShardAdvance], holder: uuid.UUID
) -> bool:
    """Move offsets and counters. False: they are not where the batch expects them, so nothing is written."""
    await inbox.begin_lanes(connection, batch)
    moved = await connection.execute(sql.ADVANCE_OFFSETS, *_columns(sorted(batch.offsets.advances)))
    if rows_count(moved) != len(batch.offsets.advances):
        return False
    told = batch.offsets.log_time_ms, holder, batch.offsets.due_ms
    counted = await connection.execute(sql.ADVANCE_SHARDS, *_columns(advances), *told)
    return rows_count(counted) == len(advances)


async def _write_pods(connection: Connection, pods: BatchPods, shards: Sequence[int], mark: Mark) -> None:
    templates = pods.templates
    if templates:
        signatures = sorted(templates)  # one order for all workers: no deadlock between their inserts
        specs = [rows.json_text(templates[signature]) for signature in signatures]
        await connection.execute(sql.INSERT_TEMPLATES, signatures, specs)
    await _write_placements(connection, pods, shards, mark)
    await _write_pending(connection, pods, shards, mark)
    if pods.unnominated:
        await connection.execute(sql.END_NOMINATIONS, list(pods.unnominated), shards)
    nominated = list(map(rows.nomination_columns, pods.nominated))
    await _copy(connection, "nominations", sql.NOMINATION_COLUMNS, nominated)
    evicted = [each for row in pods.nominated for each in rows.eviction_columns(row)]
    await _copy(connection, "evictions", sql.EVICTION_COLUMNS, evicted)
    await _write_moves(connection, pods, shards)
    latest = {(t.namespace, t.name, t.uid): t for t in pods.tombstones}
    if latest:
        gone = [(*key, t.resource_version, t.shard, t.at_ms) for key, t in sorted(latest.items())]
        await connection.execute(sql.UPSERT_TOMBSTONES, *_columns(gone))
    await inbox.write(connection, pods)


async def _write_moves(connection: Connection, pods: BatchPods, shards: Sequence[int]) -> None:
    if pods.spared:
        await connection.execute(sql.SPARE_MOVES, list(pods.spared), shards)
    if pods.rested:
        await connection.execute(sql.FORGET_MOVES, list(pods.rested), shards)
    await _copy(connection, "moves", sql.MOVE_COLUMNS, list(map(rows.move_columns, pods.moved)))


async def _write_placements(
    connection: Connection, pods: BatchPods, shards: Sequence[int], mark: Mark
) -> None:
    if pods.closed:
        closed = await connection.execute(sql.CLOSE_PLACEMENTS, *_columns(pods.closed), shards, *mark)
        if rows_count(closed) != len(pods.closed):
            raise LedgerMismatch("a placement to close is not open")
    if pods.refreshed:
        refreshed = [
            (p.pod_uid, p.resource_version, rows.labels_text(p.labels), rows.life_text(p.life))
            for p in pods.refreshed
        ]
        await connection.execute(sql.REFRESH_PLACEMENTS, *_columns(refreshed), shards, *mark)
    if pods.counted:
        await connection.execute(sql.COUNT_PLACEMENTS, list(pods.counted), shards)
    labels = rows.labels_texts(placement.labels for placement in pods.opened)
    opened = [rows.placement_columns(*each, mark) for each in zip(pods.opened, labels, strict=True)]
    await _copy(connection, "placements", sql.PLACEMENT_COLUMNS, opened)
    if pods.orphaned:
        await connection.execute(sql.TELL_PLACEMENTS, *_columns(list(pods.orphaned.items())), shards)


async def _write_pending(connection: Connection, pods: BatchPods, shards: Sequence[int], mark: Mark) -> None:
    touched: set[tuple[int, bytes]] = set()
    if pods.pending_removed:
        found = await connection.fetch(sql.REMOVE_PENDING, list(pods.pending_removed), shards, *mark)
        touched.update((row["shard"], row["signature"]) for row in found)
    added = [rows.pending_columns(pod, mark) for pod in pods.pending_added]
    await _copy(connection, "pending", sql.PENDING_COLUMNS, added)
    groups = {(group.shard, group.signature): group for group in pods.pending_groups}
    if groups:
        columns = _columns(map(_group, groups.values()))
        await connection.execute(sql.UPSERT_PENDING_GROUPS, *columns[:6], *mark)
        await connection.execute(sql.NOTE_ATTEMPTS, *columns, *mark)
    if touched or groups:
        left = _columns(sorted(touched | groups.keys()))
        await connection.execute(sql.REMOVE_EMPTY_GROUPS, *left, *mark)


async def _write_decisions(connection: Connection, decisions: BatchDecisions) -> None:
    made = [rows.decision_columns(decision, payload) for decision, payload in decisions.made]
    await _copy(connection, "decisions", sql.DECISION_COLUMNS, made)
    await _copy(connection, "cycles", sql.CYCLE_COLUMNS, rows.cycle_rows(decisions.attempts))
    letters = list(map(rows.dead_letter_columns, decisions.dead_letters))
    await _copy(connection, "dead_letters", sql.DEAD_LETTER_COLUMNS, letters)


async def _write_cluster(connection: Connection, cluster: BatchCluster, mark: Mark) -> None:
    """Write the configuration, the usage of nodes and the bill; ``change_nodes`` has written the nodes."""
    if cluster.profiles:
        profiles = _columns(map(rows.profile_columns, cluster.profiles))
        await connection.execute(sql.UPSERT_PROFILES, *profiles, *mark)
    latest = {(row.kind, row.namespace, row.name): row for row in cluster.config}
    if kept := [rows.config_columns(row) for row in latest.values() if not row.is_forgotten]:
        await connection.execute(sql.UPSERT_CONFIG, *_columns(kept), *mark)
    if gone := [key for key, row in latest.items() if row.is_forgotten]:
        await connection.execute(sql.DELETE_CONFIG, *_columns(gone), *mark)
    actions = list(map(rows.action_columns, cluster.actions))
    await _copy(connection, "node_actions", sql.ACTION_COLUMNS, actions)
    if measured := [rows.usage_columns(row) for row in cluster.usage if row.record.series]:
        await connection.execute(sql.UPSERT_USAGE, *_columns(measured))
    if forgotten := [row.record.node for row in cluster.usage if not row.record.series]:
        await connection.execute(sql.REMOVE_USAGE, forgotten)
    await _write_hosted(connection, cluster)
    if cluster.bill:
        await connection.execute(sql.ADD_TO_BILL, *_columns(map(rows.bill_columns, cluster.bill)))


async def _write_hosted(connection: Connection, cluster: BatchCluster) -> None:
    """Write what the batch says of hosted workloads."""
    hosted = cluster.hosted
    if hosted.said:
        await connection.execute(sql.UPSERT_HOSTED, *_columns(map(msgspec.structs.astuple, hosted.said)))
    if hosted.gone:
        await connection.execute(sql.DELETE_HOSTED, *_columns(hosted.gone))
    if waits := [wait for wait in hosted.waits if wait.since_ms]:
        await connection.execute(sql.UPSERT_HOSTED_WAITS, *_columns(waits))
    if over := [wait[:4] for wait in hosted.waits if not wait.since_ms]:
        await connection.execute(sql.DELETE_HOSTED_WAITS, *_columns(over))
    await _copy(connection, "scales", sql.SCALE_COLUMNS, list(cluster.scales))


def _group(g: PendingGroup) -> tuple[Any, ...]:
    why = (g.shard, g.signature, rows.json_text(g.reasons), g.unresolvable, g.cycle_seq, g.at_ms)
    return (*why, g.profile, g.profile_revision, g.nodes_count)


async def _copy(
    connection: Connection, table: str, columns: Sequence[str], records: Sequence[tuple[Any, ...]]
) -> None:
    if records:
        await connection.copy_records_to_table(table, records=records, columns=columns)
