"""The ledger's tables as plain dictionaries: one object that all in-memory ledgers and outboxes share."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

import msgspec

from domain.model.decisions import Attempt, Decision
from domain.model.errors import LedgerMismatch
from domain.model.limits import attempts_first_max, attempts_latest_max
from domain.model.nodes import NodeSpec
from domain.model.pods import PodTemplate
from domain.model.timestamps import NEVER_MS
from services.adapters.batches import ShardAdvance, ShardCounters, own_shards, shard_advances, stands
from services.adapters.memory.hosting import HostedTables
from services.adapters.memory.inbox import InboxTables
from services.adapters.memory.measured import MeasuredTables
from services.adapters.memory.moves import MovesTable
from services.adapters.memory.nodes import added, after, is_free
from services.adapters.memory.nominations import NominationTables
from services.adapters.memory.offsets import CursorRow as CursorRow
from services.adapters.memory.offsets import OffsetRow as OffsetRow
from services.adapters.memory.past_tables import PastTables, SpecSet
from services.adapters.memory.rollup_tables import RollupTables
from services.codec.settling import lost_together, outcome_of, settle_batch
from services.ports.access import Access, Place
from services.ports.guards import (
    GuardRow,
    announced_keys,
    dropped_keys,
    first_keys,
    raised_keys,
    refused_nodes,
)
from services.ports.journal import BATCHES, Checkpoint, JournalRow, batches_of
from services.ports.ledger import (
    BatchCluster,
    BatchDecisions,
    BatchPods,
    CommitBatch,
    Committed,
    ConfigRow,
    DeadLetter,
    Figures,
    GroupAttempts,
    Incarnation,
    LedgerState,
    NodeClaim,
    NodeFact,
    NodeRow,
    NotCommitted,
    PendingGroup,
    PendingPod,
    PlacementOpened,
    PodTombstone,
    ProfileRow,
)
from services.ports.positions import LogFault
from services.ports.store import KeyRow

SEAL_SECRET = b"the same in every database in memory"


@dataclasses.dataclass
class LeaseRow:
    """The owner of a shard, since when, and until when; ``holder`` tells processes of one name apart."""

    epoch: int = 0
    owner: str | None = None
    holder: object = None
    taken_ms: int = 0
    until_ms: int = 0


@dataclasses.dataclass
class WorkerRow:
    """A worker that announced itself."""

    told: Incarnation
    started_ms: int
    seen_ms: int
    ready: bool = False
    figures: Figures = dataclasses.field(default_factory=Figures)
    stopped_ms: int | None = None


@dataclasses.dataclass
class OwnerRow:
    """An owner that a shard had."""

    shard: int
    epoch: int
    owner: str
    taken_ms: int
    ended_ms: int | None = None


@dataclasses.dataclass
class ShardRow:
    """The epoch of a shard, its holder, and the shard's counters."""

    epoch: int = 0
    holder: object = None
    seq_next: int = 1
    dead_seq_next: int = 1
    log_time_ms: int = 0
    due_ms: int = NEVER_MS


@dataclasses.dataclass
class PlacementRow:
    """A placement over its time span.

    ``opened_at`` and ``closed_at`` are positions of the journal, as in ``PastTables``; ``labels_until`` are
    earlier labels, each up to such a position.
    """

    opened: PlacementOpened
    released_at_ms: int | None = None
    orphaned: bool = False
    opened_at: int = 0
    closed_at: int = 0
    labels_until: list[tuple[int, dict[str, str]]] = dataclasses.field(default_factory=list)


class SessionRow(NamedTuple):
    """A session of a key, and until when it lasts."""

    key_hash: bytes
    created_ms: int
    expires_ms: int


class MemoryDatabase:
    """All tables, public for auditors; ``apply`` is the only way in which batches change them.

    Parameters
    ----------
    shards : int
        As ``berth init`` lays them down.
    now_ms : callable
        Its wall clock.
    """

    def __init__(self, shards: int, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        self.shards = {shard: ShardRow() for shard in range(shards)}
        self.cursors = {shard: CursorRow() for shard in range(shards)}
        self.worker_leases = {shard: LeaseRow() for shard in range(shards)}
        self.relay_leases = {shard: LeaseRow() for shard in range(shards)}
        self.offsets: dict[tuple[int, str, int], OffsetRow] = {}
        self.timeline = 1  # to be raised where the tables are set back
        self.log_faults: list[LogFault] = []
        self.nodes: dict[int, NodeRow] = {}
        self.node_specs: dict[tuple[int, int], NodeSpec] = {}  # (node id, version)
        self.node_versions: dict[int, list[int]] = {}  # of each node after each commit that changed it
        self.nodes_held: set[int] = set()  # nodes that another transaction is changing: claims on them lose
        self.spec_changes: dict[int, tuple[int, str | None]] = {}  # node id -> log time, who sent it
        self.templates: dict[bytes, PodTemplate] = {}
        self.placements: list[PlacementRow] = []
        self.open_placements: dict[tuple[str, int], PlacementRow] = {}  # pod uid, shard that reads it
        self.decisions: dict[int, list[tuple[Decision, bytes]]] = {shard: [] for shard in range(shards)}
        self.recorded_ms: dict[int, list[int]] = {shard: [] for shard in range(shards)}  # of each decision
        self.attempts: dict[tuple[int, int], Attempt] = {}
        self.pending: dict[tuple[str, int], PendingPod] = {}  # pod uid, shard
        self.pending_groups: dict[tuple[int, bytes], PendingGroup] = {}
        self.nominations = NominationTables()
        self.moves = MovesTable()
        self.group_attempts: dict[tuple[int, bytes], list[GroupAttempts]] = {}
        self.events: dict[tuple[str, str], tuple[bytes, int]] = {}  # (holder, id) -> digest, when
        self.keys: dict[bytes, KeyRow] = {}
        self.sessions: dict[bytes, SessionRow] = {}
        self.accesses: dict[Place, Access] = {}
        self.tombstones: dict[tuple[str, str, str], PodTombstone] = {}
        self.inbox = InboxTables()
        self.dead_letters: dict[int, list[DeadLetter]] = {shard: [] for shard in range(shards)}
        self.config_objects: dict[tuple[str, str, str], ConfigRow] = {}
        self.profiles: dict[tuple[str, int], ProfileRow] = {}
        self.measured = MeasuredTables()
        self.rollups = RollupTables()
        self.hosted = HostedTables()
        self.past = PastTables()
        self.guards: dict[str, GuardRow] = {}
        self.journal: dict[tuple[int, int], JournalRow] = {}
        self.checkpoints: list[tuple[Checkpoint, LedgerState]] = []
        self.position = 0  # of the journal's last row
        self.batches_count = 0
        self.names, self.workers = dict[object, str](), dict[object, WorkerRow]()  # by holder
        self.owners: list[OwnerRow] = []  # of the workers' leases, as they were taken
        self._node_ids: dict[str, int] = {}
        self._writing_at = 0  # the position that the row of the batch in hand will have
        self._opening_seqs: set[tuple[int, int]] = set()
        self._changed = asyncio.Event()

    @property
    def changed(self) -> asyncio.Event:
        """An event that the next committed batch sets."""
        return self._changed

    def apply(self, batch: CommitBatch, holder: object = None) -> Committed | NotCommitted:
        """Write the batch of ``holder`` or nothing of it; see ``Ledger.commit``.

        Raises
        ------
        LedgerMismatch
            The batch contradicts the tables although its fences held: nothing was written.
        ValueError
            The batch is malformed.
        """
        advances, guards = shard_advances(batch), batch.cluster.guards
        if self.is_fenced(batch, advances, holder):
            return NotCommitted.FENCED
        self.guards |= {key: GuardRow(0, {}) for key in first_keys(guards) if key not in self.guards}
        found = {guard.key: self.guards[guard.key] for guard in guards if guard.key in self.guards}
        refused = refused_nodes(guards, found, batch.cluster.followed, own_shards(batch))
        own, moved = self._judge(batch.cluster, refused)
        lost_nodes = lost_together(batch, own)
        raised = announced_keys(guards, found) + raised_keys(guards, lost_nodes)
        dropped = dropped_keys(guards, found)
        settled = settle_batch(batch, lost_nodes, moved, raised + dropped)
        self._check(settled)
        self._raise(raised, {a.shard: a.hi for a in batch.offsets.advances if a.topic == BATCHES})
        for key in dropped:
            del self.guards[key[1:]]
        self.write(settled, advances)
        return outcome_of(batch, lost_nodes, moved, raised + dropped, refused | (lost_nodes - own))

    def _raise(self, keys: Sequence[str], counted: dict[int, int]) -> None:
        batches = batches_of({key: row.next_offset for key, row in self.offsets.items()}) | counted
        for key in keys:
            row = self.guards.get(key, GuardRow(0, batches))
            self.guards[key] = GuardRow(row.version + 1, row.batches)

    def write(self, batch: CommitBatch, advances: Sequence[ShardAdvance]) -> None:
        """Write a batch that was settled and checked."""
        offsets, shards = batch.offsets, own_shards(batch)
        self._writing_at = 0 if batch.journal.row is None else self.position + 1
        for a in offsets.advances:
            self.offsets.setdefault(a[:3], OffsetRow(a.epoch, 0)).next_offset = a.hi
        for s in advances:
            shard = self.shards[s.shard]
            shard.seq_next = shard.seq_next if s.seq_hi is None else s.seq_hi
            shard.dead_seq_next = shard.dead_seq_next if s.dead_hi is None else s.dead_hi
            shard.log_time_ms = max(shard.log_time_ms, offsets.log_time_ms)
            shard.due_ms = offsets.due_ms
        self._write_cluster(batch.cluster, offsets.log_time_ms)
        self._write_pods(batch.pods, shards)
        self._write_decisions(batch.decisions)
        if (row := batch.journal.row) is not None:
            self.position += 1
            self.journal[row.shard, row.batch] = msgspec.structs.replace(row, position=self.position)
        self.batches_count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def restore_node(self, node: NodeRow) -> None:
        """Take a node from another ledger."""
        self.nodes[node.id] = node
        self._node_ids[node.name] = node.id

    def forget_history(self) -> None:
        """Keep only what a worker starts from."""
        self.placements.clear()
        self.inbox.handed.clear()
        self.hosted.scales.clear()
        self._opening_seqs.clear()
        for table in (self.attempts, self.journal, self.node_specs, self.node_versions, self.group_attempts):
            table.clear()
        self.past.clear()
        for shard in self.shards:
            self.decisions[shard].clear()
            self.recorded_ms[shard].clear()
            self.dead_letters[shard].clear()

    def is_fenced(self, batch: CommitBatch, advances: Sequence[ShardAdvance], holder: object) -> bool:
        """Return whether an offset, an epoch, its holder or a counter is not as the batch expects it."""
        return not self.stands(batch, advances, holder, after=False)

    def stands(
        self, batch: CommitBatch, advances: Sequence[ShardAdvance], holder: object, *, after: bool
    ) -> bool:
        """Return whether all rows are as after (before) the batch of ``holder``."""
        known = ((a[:3], self.offsets[a[:3]]) for a in batch.offsets.advances if a[:3] in self.offsets)
        offsets = {at: (row.epoch, row.next_offset) for at, row in known}
        shards = {
            number: ShardCounters(row.epoch, row.seq_next, row.dead_seq_next)
            for number, row in self.shards.items()
            if row.holder == holder
        }
        return stands(batch, advances, offsets, shards, after=after)

    def _judge(self, cluster: BatchCluster, refused: Set[int]) -> tuple[set[int], dict[int, int]]:
        """Return which claims lose, and by how much the versions of nodes are ahead of what was seen."""
        lost_nodes: set[int] = set()
        moved: dict[int, int] = {}
        facts = {fact.id: fact for fact in cluster.facts}
        for fact in cluster.facts:
            row = self.nodes.get(fact.id)
            if not fact.version_seen:
                if row is not None or fact.name in self._node_ids:
                    raise LedgerMismatch(f"nodes_name_key: node {fact.name} is there already")
            elif row is None:
                raise LedgerMismatch(f"node {fact.name} to change is not there")
            elif row.version != fact.version_seen:
                moved[fact.id] = row.version - fact.version_seen
        for claim in cluster.claims:
            fact_of = facts.get(claim.id)
            row = self.nodes.get(claim.id) if fact_of is None else after(self.nodes.get(claim.id), fact_of)
            if row is None or claim.id in refused or not self.grants(claim, row):
                lost_nodes.add(claim.id)
            elif row.version != claim.version_seen:
                moved[claim.id] = row.version - claim.version_seen
        return lost_nodes, moved

    def grants(self, claim: NodeClaim, row: NodeRow) -> bool:
        """Return whether a claim on a node is granted, by the node as it is after the batch's facts."""
        return claim.id not in self.nodes_held and is_free(claim, row)

    def _check(self, batch: CommitBatch) -> None:
        """Refuse what a unique constraint would refuse."""
        pods, shards = batch.pods, own_shards(batch)
        closed = {self._open(each.pod_uid, shards) for each in pods.closed}
        if len(closed) != len(pods.closed) or None in closed:
            raise LedgerMismatch("a placement to close is not open")
        opened = [(placement.pod_uid, placement.shard) for placement in pods.opened]
        still_open = self.open_placements.keys() - closed
        if len(set(opened)) != len(opened) or not still_open.isdisjoint(opened):
            raise LedgerMismatch("placements_open: a pod would have two open placements")
        seqs = [(placement.shard, placement.seq) for placement in pods.opened]
        if len(set(seqs)) != len(seqs) or not self._opening_seqs.isdisjoint(seqs):
            raise LedgerMismatch("placements_pkey: a decision would open two placements")
        added = [(pod.pod_uid, pod.shard) for pod in pods.pending_added]
        still = self.pending.keys() - set(self._removed(pods, shards))
        if len(set(added)) != len(added) or not still.isdisjoint(added):
            raise LedgerMismatch("pending_pkey: a pod would be pending twice")
        tried = [at for rows in batch.decisions.attempts for at in rows.seqs.items()]
        if len(set(tried)) != len(tried) or not self.attempts.keys().isdisjoint(tried):
            raise LedgerMismatch("cycles_pkey: an attempt would be written twice")
        self.nominations.check(pods, shards)
        self.moves.check(pods, shards)
        self.inbox.check(pods)
        self.hosted.check(batch.cluster)
        if (row := batch.journal.row) is not None and (row.shard, row.batch) in self.journal:
            raise LedgerMismatch("journal_pkey: a batch would be written twice")

    def _take_fact(self, fact: NodeFact, at_ms: int) -> None:
        row = self.nodes[fact.id] = after(self.nodes.get(fact.id), fact)
        self._node_ids[fact.name] = fact.id
        if fact.spec is not None:
            self.spec_changes[fact.id] = at_ms, fact.sent_by
            self.node_specs[fact.id, row.version] = fact.spec
            when = at_ms, self.now_ms(), fact.sent_by
            told = SpecSet(self._writing_at, row.version, fact.spec, fact.deleted, *when)
            self.past.specs.setdefault(fact.id, []).append(told)

    def _open(self, uid: str, shards: Sequence[int]) -> tuple[str, int] | None:
        """Return the key of a pod's open placement, in one of the writer's shards."""
        return next(((uid, shard) for shard in shards if (uid, shard) in self.open_placements), None)

    def _write_cluster(self, cluster: BatchCluster, at_ms: int) -> None:
        for fact in cluster.facts:
            self._take_fact(fact, at_ms)
        for claim in cluster.claims:
            self.nodes[claim.id] = added(self.nodes[claim.id], claim)
        for number in {change.id for change in (*cluster.facts, *cluster.claims)}:
            self.node_versions.setdefault(number, []).append(self.nodes[number].version)
        for profile in cluster.profiles:
            key = profile.name, profile.revision
            before = self.profiles.get(key, profile)
            self.past.profiles_set.setdefault(key, self._writing_at)
            newer = msgspec.structs.replace(before, resource_version=profile.resource_version)
            self.profiles[key] = newer
        for thing in cluster.config:
            about = (thing.kind, thing.namespace, thing.name)
            if (was := self.config_objects.pop(about, None)) is not None:
                self.past.end_object(about, was, self._writing_at)
            if not thing.is_forgotten:
                self.config_objects[about] = thing
                self.past.config_set[about] = self._writing_at
        self.measured.write(cluster)
        self.hosted.write(cluster)

    def _write_decisions(self, decisions: BatchDecisions) -> None:
        for decision, payload in decisions.made:
            self.decisions[decision.shard].append((decision, payload))
            self.recorded_ms[decision.shard].append(self.now_ms())
        for rows in decisions.attempts:
            self.attempts |= {(each.shard, each.seq): each for each in rows.each()}
        for letter in decisions.dead_letters:
            self.dead_letters[letter.shard].append(letter)

    def _write_pods(self, pods: BatchPods, shards: Sequence[int]) -> None:
        for signature, template in pods.templates.items():
            self.templates.setdefault(signature, template)
        for uid, at_ms in pods.closed:
            key = self._open(uid, shards)
            assert key is not None
            row = self.open_placements.pop(key)
            row.released_at_ms, row.closed_at = at_ms, self._writing_at
        for refreshed in pods.refreshed:
            self._keep_labels(refreshed.pod_uid, refreshed.labels, shards)
            self._change(shards, **refreshed._asdict())
        for uid in pods.counted:
            self._change(shards, uid, counted=True)
        for opened in pods.opened:
            row = PlacementRow(opened, opened_at=self._writing_at)
            self.open_placements[opened.pod_uid, opened.shard] = row
            self.placements.append(row)
            self._opening_seqs.add((opened.shard, opened.seq))
        for uid, is_orphaned in pods.orphaned.items():
            if (key := self._open(uid, shards)) is not None:
                self.open_placements[key].orphaned = is_orphaned
        self._write_pending(pods, shards)
        self.nominations.write(pods, shards)
        self.moves.write(pods, shards)
        self.inbox.write(pods)
        for tombstone in pods.tombstones:
            self.tombstones[tombstone.namespace, tombstone.name, tombstone.uid] = tombstone

    def _change(self, shards: Sequence[int], pod_uid: str, **fields: Any) -> None:
        """Change what an open placement says of its pod."""
        if (key := self._open(pod_uid, shards)) is not None:
            row = self.open_placements[key]
            row.opened = msgspec.structs.replace(row.opened, **fields)

    def _keep_labels(self, uid: str, labels: dict[str, str], shards: Sequence[int]) -> None:
        """Keep the labels of an open placement that change."""
        if (key := self._open(uid, shards)) is not None:
            row = self.open_placements[key]
            if row.opened.labels != labels and self._writing_at:
                row.labels_until.append((self._writing_at, row.opened.labels))

    def _write_pending(self, pods: BatchPods, shards: Sequence[int]) -> None:
        touched = {(group.shard, group.signature) for group in pods.pending_groups}
        for key in self._removed(pods, shards):
            pod = self.pending.pop(key)
            self.past.end_wait(key, pod, self._writing_at)
            touched.add((pod.shard, pod.signature))
        for pod in pods.pending_added:
            self.pending[pod.pod_uid, pod.shard] = pod
            self.past.pending_added[pod.pod_uid, pod.shard] = self._writing_at
        for group in pods.pending_groups:
            if (group.shard, group.signature) not in self.pending_groups:
                self.past.groups_begun[group.shard, group.signature] = self._writing_at
            self.pending_groups[group.shard, group.signature] = group
            self._note_attempt(group)
        left = {(pod.shard, pod.signature) for pod in self.pending.values()} if touched else set()
        for group_key in touched - left:
            if self.pending_groups.pop(group_key, None) is not None:
                self.past.end_group(group_key, self._writing_at)

    def _removed(self, pods: BatchPods, shards: Sequence[int]) -> list[tuple[str, int]]:
        keys = ((uid, shard) for uid in pods.pending_removed for shard in shards)
        return [key for key in keys if key in self.pending]

    def _note_attempt(self, group: PendingGroup) -> None:
        """Count an attempt that failed like the one before, or add it; keep the first and the latest ones."""
        kept = self.group_attempts.setdefault((group.shard, group.signature), [])
        again = kept[-1].again(group) if kept else None
        if again is not None:
            kept[-1] = again
            return
        number = kept[-1].number + 1 if kept else 1
        self.past.attempts_noted[group.shard, group.signature, number] = self._writing_at
        fields = msgspec.structs.asdict(group)
        kept.append(GroupAttempts(**fields, number=number, last_at_ms=group.at_ms, times=1))
        if len(kept) > attempts_first_max + attempts_latest_max:
            del kept[attempts_first_max]
