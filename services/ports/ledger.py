"""The worker's side of the ledger: leases, what to start from, and one transaction per batch."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from domain.colocation.pricing import BillLine
from domain.model.actions import NodeAction
from domain.model.decisions import Attempt, Decision
from domain.model.hosting import HostedChange, ReplicasSaid, WaitSaid
from domain.model.pods import PodTemplate
from domain.model.timestamps import NEVER_MS
from domain.model.usage import UsageRecord
from services.ports.guards import Guard
from services.ports.inbox import Forwarded, Handed, Lanes, Waiting
from services.ports.journal import Checkpoint, Followed, Journalled, JournalRow
from services.ports.log import TopicPartition
from services.ports.nodes import NodeClaim as NodeClaim
from services.ports.nodes import NodeFact as NodeFact
from services.ports.nodes import NodeRow as NodeRow
from services.ports.nodes import NodeUpdate as NodeUpdate
from services.ports.pods import GroupAttempts as GroupAttempts
from services.ports.pods import MoveRow as MoveRow
from services.ports.pods import NominationRow as NominationRow
from services.ports.pods import PendingGroup as PendingGroup
from services.ports.pods import PendingPod as PendingPod
from services.ports.pods import PlacementClosed as PlacementClosed
from services.ports.pods import PlacementOpened as PlacementOpened
from services.ports.pods import PlacementRefreshed as PlacementRefreshed
from services.ports.pods import PodRow as PodRow
from services.ports.pods import PodTombstone as PodTombstone
from services.ports.positions import LogFault, Position
from services.ports.workers import Figures as Figures
from services.ports.workers import Incarnation as Incarnation
from services.ports.workers import Lease as Lease
from services.ports.workers import Muster as Muster
from services.ports.workers import Workers


class OffsetAdvance(NamedTuple):
    """``next_offset`` of a shard's partition moves from ``lo`` to ``hi``, if it is ``lo`` now."""

    shard: int
    topic: str
    partition: int
    epoch: int
    lo: int
    hi: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A record that could not be accepted, with the reason and what is kept of it."""

    shard: int
    seq: int
    topic: str
    partition: int
    offset: int
    key: bytes | None
    raw: bytes
    code: str
    path: str
    message: str
    at_ms: int
    sent_by: str | None = None


class ProfileRow(msgspec.Struct, frozen=True, kw_only=True):
    """A revision of a profile; ``spec`` None means that the profile was deleted."""

    name: str
    revision: int
    spec: dict[str, Any] | None
    resource_version: int | None
    at_ms: int
    sent_by: str | None = None


class ConfigRow(msgspec.Struct, frozen=True, kw_only=True):
    """The latest state of a configuration object; ``object`` None means that it was deleted.

    Without a version too, nothing is to be remembered of it, and its row goes.
    """

    kind: str
    namespace: str
    name: str
    object: dict[str, Any] | None
    resource_version: int | None
    at_ms: int
    sent_by: str | None = None

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is to be remembered."""
        return self.object is None and self.resource_version is None


class UsageRow(NamedTuple):
    """A node's measured usage; ``sent_by`` sent the latest measurement."""

    record: UsageRecord
    sent_by: str | None = None


class GangPlaced(NamedTuple):
    """What a batch places of a gang: the id of the node of each of these pods.

    At least ``needed_count`` of them must be granted, or none is.
    """

    name: str
    needed_count: int
    nodes: tuple[int, ...]


class AttemptRows(NamedTuple):
    """An attempt, and the rows that the ledger keeps of it: per shard the seq of its first decision there."""

    attempt: Attempt
    seqs: Mapping[int, int]

    def each(self) -> Iterator[Attempt]:
        """Yield the attempt as each row has it."""
        for shard, seq in self.seqs.items():
            yield msgspec.structs.replace(self.attempt, shard=shard, seq=seq)


class BatchOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log and the counters of shards go on: what fences a batch, and tells one sent twice.

    ``shards`` are those of the writer, each with its epoch: pods are looked for in them, and none of them may
    have another owner, since rows of pods are written also where the batch moves no offset of their shard.
    Without any, those of the advances. ``seq_next`` and ``dead_seq_next`` give per shard the next free number
    after the batch. ``due_ms`` is the log time at which time alone lets something be decided (``NEVER_MS``:
    nothing).
    """

    advances: Sequence[OffsetAdvance]
    shards: Mapping[int, int] = {}
    seq_next: Mapping[int, int] = {}
    dead_seq_next: Mapping[int, int] = {}
    log_time_ms: int = 0
    due_ms: int = NEVER_MS


class ActionRow(NamedTuple):
    """What the agent of a node did, the log time of its record, and who sent it."""

    action: NodeAction
    logged_ms: int
    sent_by: str | None


class Scale(NamedTuple):
    """A change of how many replicas of an object are wanted, with its record for ``berth.scales``.

    ``at_ms`` is its log time; ``seq`` counts from 1, without a hole.
    """

    seq: int
    namespace: str
    name: str
    at_ms: int
    payload: bytes


class BatchCluster(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch changes of nodes and of the configuration, and what must hold for its claims.

    ``facts`` come before ``claims``. ``gangs`` are those of which it places pods: with too few of them the
    claims on the nodes of all are lost. ``guards`` are what must hold beyond the nodes, with how far the
    worker had ``followed`` all others. ``usage`` replaces all that is remembered of a node; without series,
    that goes. ``actions`` are what agents did. A revision of a profile that is there gets the resource
    version. ``bill`` is added to what the hours have already, and ``unbilled`` counts the pods that reports
    name and it leaves out, by reason; the ledger does not keep that.
    ``hosted`` is what it says of hosted workloads, and ``scales`` what is to be published of that.
    """

    facts: Sequence[NodeFact] = ()
    claims: Sequence[NodeClaim] = ()
    gangs: Sequence[GangPlaced] = ()
    guards: Sequence[Guard] = ()
    followed: Mapping[int, int] = {}
    usage: Sequence[UsageRow] = ()
    actions: Sequence[ActionRow] = ()
    profiles: Sequence[ProfileRow] = ()
    config: Sequence[ConfigRow] = ()
    bill: Sequence[BillLine] = ()
    unbilled: Mapping[str, int] = {}
    hosted: HostedChange = HostedChange()
    scales: Sequence[Scale] = ()


class BatchPods(msgspec.Struct, frozen=True, kw_only=True):
    """Where pods count, which of them wait, and which are gone.

    ``closed`` is applied before ``opened``; ``refreshed`` changes what open placements say of their pods.
    ``counted`` are uids of open placements that a fact counts from now on, ``orphaned`` says of uids of open
    placements whether they were told last that their node is gone (true), or is back. ``pending_removed``
    holds pod uids and is applied before ``pending_added``. A pending group without pods left disappears by
    itself. ``unnominated`` holds uids of pods, and is applied before ``nominated``. A nomination stands or
    falls with the claim on its node. Its victims are evicted until they leave, or it ends.
    ``spared`` names nodes whose moves are over, ``rested`` those whose moves are forgotten; both are applied
    before ``moved``, which are pods that have to leave hot nodes, and stand or fall with the claims on these.
    Where a claim is not granted, its pods wait again, and the rest stands: ``waited`` says of each pod that
    was bound (by uid) its arrival, since when it waited and who had sent it, ``kept`` of those that were
    bound where they were nominated, what is nominated for them again.
    ``templates`` are those that the ledger may not have yet. ``handed`` are events for other shards, and
    ``forwarded`` says of keys where their events go from now on.
    """

    templates: Mapping[bytes, PodTemplate] = {}
    closed: Sequence[PlacementClosed] = ()
    opened: Sequence[PlacementOpened] = ()
    refreshed: Sequence[PlacementRefreshed] = ()
    counted: Sequence[str] = ()
    orphaned: Mapping[str, bool] = {}
    waited: Mapping[str, tuple[int, int, str | None]] = {}
    kept: Mapping[str, NominationRow] = {}
    pending_removed: Sequence[str] = ()
    pending_added: Sequence[PendingPod] = ()
    pending_groups: Sequence[PendingGroup] = ()
    unnominated: Sequence[str] = ()
    nominated: Sequence[NominationRow] = ()
    spared: Sequence[str] = ()
    rested: Sequence[str] = ()
    moved: Sequence[MoveRow] = ()
    tombstones: Sequence[PodTombstone] = ()
    handed: Sequence[Handed] = ()
    forwarded: Sequence[Forwarded] = ()


class BatchDecisions(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the events of a batch.

    ``made`` holds each decision with its record for ``berth.decisions`` (bytes as published). ``skipped``
    counts events that changed nothing, by reason, and ``unverified_count`` records with a sender's name whose
    seal is wrong; the ledger keeps neither.
    """

    made: Sequence[tuple[Decision, bytes]] = ()
    attempts: Sequence[AttemptRows] = ()
    dead_letters: Sequence[DeadLetter] = ()
    skipped: Mapping[str, int] = {}
    unverified_count: int = 0


class BatchJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The batch's ``row`` in the journal; a worker's batch always has one.

    ``raised`` are the keys of guards that go up with it, as the ledger says. ``call`` is that which its
    worker answers, where it rests behind the batch (``Rest``).
    """

    row: JournalRow | None = None
    raised: Sequence[str] = ()
    call: int | None = None


class CommitBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one batch of events changes, written in one transaction or not at all."""

    offsets: BatchOffsets
    cluster: BatchCluster = BatchCluster()
    pods: BatchPods = BatchPods()
    decisions: BatchDecisions = BatchDecisions()
    journal: BatchJournal = BatchJournal()


class Committed(NamedTuple):
    """The batch is in the ledger.

    Others had changed the nodes of the pods in ``lost_pods`` (key -> uid): these wait again, or stay where
    they were to leave a hot node. ``lost_nodes``
    are the ids of the nodes whose claims were not granted. ``moved_count`` pods were placed although others
    had changed their node, as there was room yet. ``raised`` are the keys of guards that went up, and
    ``refused`` the nodes among the lost ones that were lost by guards. ``lost_gangs`` are those of which no
    pod was granted.
    """

    lost_pods: Mapping[str, str] = {}
    lost_nodes: frozenset[int] = frozenset()
    moved_count: int = 0
    raised: tuple[str, ...] = ()
    refused: frozenset[int] = frozenset()
    lost_gangs: frozenset[str] = frozenset()


class NotCommitted(enum.Enum):
    """Why nothing of a batch is in the ledger."""

    FENCED = "fenced"  # an offset row was not as expected: another owner, or (commit) it is already in
    ABSENT = "absent"  # said by ``resolve`` alone: all is as before the batch, which may be sent again


class LedgerBase(msgspec.Struct, frozen=True, kw_only=True):
    """What every worker knows of the whole cluster, read in one snapshot: all that counts on nodes.

    It holds the last revision of each profile, and the templates of placed pods and of those that have a node
    nominated. Of the victims of nominations it has those that have not left. ``batches`` says per shard how
    far its journal had come, ``seq_next`` its next seq, ``guards`` of each key its version
    (``services/ports/guards.py``), ``lanes`` how far all inboxes are written and read. ``seal_secret`` is
    that of ``services/codec/seal.py``. ``tombstones`` are in the order in which pods and nodes went.
    ``replicas`` and ``waits`` are what was said of hosted workloads last.
    """

    nodes: Sequence[NodeRow]
    templates: Mapping[bytes, PodTemplate]
    placements: list[PlacementOpened]
    nominations: Sequence[NominationRow] = ()
    moves: Sequence[MoveRow] = ()
    profiles: Sequence[ProfileRow]
    config: Sequence[ConfigRow]
    usage: Sequence[UsageRow]
    tombstones: list[PodTombstone] = []
    replicas: Sequence[ReplicasSaid] = ()
    waits: Sequence[WaitSaid] = ()
    batches: Mapping[int, int] = {}
    seq_next: Mapping[int, int] = {}
    guards: Mapping[str, int] = {}
    lanes: Lanes = {}
    shards_count: int = 1
    log_time_ms: int
    seal_secret: bytes


class LedgerPart(msgspec.Struct, frozen=True, kw_only=True):
    """What only the owner of some shards needs of them, read in one snapshot, with the pods' templates.

    Records below ``refold_below`` were folded before, and come once more for what they say of pods that are
    known. ``orphaned`` are keys of placed pods that were told last that their node is gone. ``shards_count``
    counts all shards of the ledger. ``gone`` is only for a worker that was not told by the feeds.
    ``scale_seq`` is the number of the last scale.
    """

    shards_count: int
    offsets: Mapping[tuple[int, str, int], int]
    refold_below: Mapping[tuple[int, str, int], int] = {}
    templates: Mapping[bytes, PodTemplate]
    pending: Sequence[PendingPod]
    orphaned: Sequence[str] = ()
    gone: list[PodTombstone] = []
    forwarded: Sequence[Forwarded] = ()
    seq_next: Mapping[int, int]
    dead_seq_next: Mapping[int, int]
    log_time_ms: int
    scale_seq: int = 0


class LedgerState(LedgerBase, frozen=True, kw_only=True):
    """The base, and the part of all shards that have an owner, in one: what a checkpoint keeps."""

    offsets: Mapping[tuple[int, str, int], int]
    refold_below: Mapping[tuple[int, str, int], int] = {}
    pending: Sequence[PendingPod]
    orphaned: Sequence[str] = ()
    forwarded: Sequence[Forwarded] = ()
    seq_next: Mapping[int, int]
    dead_seq_next: Mapping[int, int]
    scale_seq: int = 0

    @property
    def part(self) -> LedgerPart:
        """The part."""
        names = (name for name in LedgerPart.__struct_fields__ if name != "gone")
        return LedgerPart(**{name: getattr(self, name) for name in names})


def both(base: LedgerBase, part: LedgerPart) -> LedgerState:
    """Return a base and a part of one moment in one."""
    fields = msgspec.structs.asdict(base) | msgspec.structs.asdict(part)
    fields["templates"] = {**base.templates, **part.templates}
    del fields["gone"]
    return LedgerState(**fields)


class Ledger(Workers, Protocol):
    """The worker's side of the ledger."""

    async def load_base(self) -> LedgerBase:
        """Read what every worker knows. ``RefoldNeeded``: the ledger keeps too little of its pods."""

    async def load_part(self, leases: Sequence[Lease], *, gone: bool = False) -> LedgerPart:
        """Read what an owner needs, and with ``gone`` the tombstones of these shards.

        Raises ``Fenced`` when an epoch is no longer the shard's.
        """

    async def load_all(self) -> tuple[LedgerBase, LedgerPart]:
        """Read the base and the part of all shards, owned or not, in one snapshot: for onlookers."""

    async def ensure_offsets(
        self, lease: Lease, first: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] = {}
    ) -> None:
        """Create the shard's offset rows that do not exist, at the given offsets.

        Of topics with an id, rows that have none take it.
        """

    async def positions(self, leases: Sequence[Lease]) -> Mapping[tuple[int, TopicPartition], Position]:
        """Return where each of these shards goes on, by shard and partition."""

    async def note_log_faults(self, faults: Sequence[LogFault]) -> None:
        """Move offsets to where the shards go on, and keep what happened; all of it or nothing.

        ``Fenced``: an epoch is no longer the shard's. ``LedgerMismatch``: under this epoch a fault of the
        partition is noted already.
        """

    async def commit(self, batch: CommitBatch) -> Committed | NotCommitted:
        """Write the batch in one transaction, in the lock order: offsets, facts and claims by id, the rest.

        Facts wait for other batches that change the same node, claims do not: they lose. What is written is
        the batch as ``settle_batch`` makes it of what lost and moved. After an exception the outcome is
        unknown: ask ``resolve``.
        """

    async def journalled(self, shard: int) -> Journalled | None:
        """Return where the journal of a shard ends; None: it is empty."""

    async def follow(self, seen: Mapping[int, int]) -> Sequence[Followed]:
        """Return the next batches of the journals of some shards, in the order of their positions.

        ``seen`` names the last batch of each that the caller knows; the journals of the caller's own shards
        are left out of it. At most ``followed_rows_max`` batches come at a time, and no further one from
        ``followed_bytes_max`` on. Whatever a batch could have seen comes before it, so that each answer can
        be folded as it is.
        """

    async def read_inbox(self, waiting: Sequence[Waiting], rows_max: int) -> Sequence[Handed]:
        """Return what was handed over, of each lane from its first number on, without a hole.

        At most ``rows_max`` rows, or one of each lane. Rows of a transaction under way are not there yet.
        """

    async def write_checkpoint(self, at: Checkpoint, kept: int, held: Callable[[], None]) -> None:
        """Write the state as it is now, while batches are committed; of all checkpoints ``kept`` stay.

        ``held`` is called as soon as later commits change nothing about what is written. Raises ``Fenced``
        where the ledger is not at the epochs and at each of the offsets that ``at`` says; it may have others.
        """

    async def resolve(self, batch: CommitBatch) -> Committed | NotCommitted:
        """Read the offset rows on a fresh connection, waiting for a transaction still in flight.

        What lost and moved of a batch that is in the ledger says the batch's row of the journal.
        """

    async def aclose(self) -> None:
        """Release what the ledger holds; leases stay until they run out."""
