"""What the API asks of the ledger: a read-only port, and its few writes (event ids and keys)."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from domain.model.decisions import Attempt
from domain.model.hosting import ReplicasSaid
from domain.model.pods import PodTemplate
from domain.model.usage import UsageRecord
from services.ports.access import Access, AccessFilter, Place
from services.ports.actions import ActionState as ActionState
from services.ports.bills import BillBy, BillFilter, BillSums
from services.ports.chronicle import Chronicle
from services.ports.exports import Exports
from services.ports.field import Fields
from services.ports.ledger import (
    ConfigRow,
    DeadLetter,
    Figures,
    GroupAttempts,
    NodeRow,
    ProfileRow,
)
from services.ports.log import Span
from services.ports.past import Moment, Past
from services.ports.pods import DecisionRow as DecisionRow
from services.ports.pods import MoveRow
from services.ports.rollups import OverTime
from services.ports.rows import Row as Row
from services.ports.rows import Rows as Rows
from services.ports.tail import Tail

EXAMPLES_MAX = 3
"""Pods that a waiting group names."""


class DecisionFilter(NamedTuple):
    """Which decisions to list; None means any. Times are log time in milliseconds."""

    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    outcome: str | None = None
    shard: int | None = None
    signature: bytes | None = None
    profile: str | None = None
    profile_revision: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class PodFilter(NamedTuple):
    """Which pods to list; None: any. ``gang``: a PodGroup of ``namespace``.

    ``phase``: bound (orphaned, too), orphaned or pending.
    ``qos_class`` is that of the template; a pod whose template is not known has none.
    """

    namespace: str | None = None
    node: str | None = None
    phase: str | None = None
    gang: str | None = None
    qos_class: str | None = None


class ConfigFilter(NamedTuple):
    """Which configuration objects to list; None means any. The namespace is "" where the kind has none."""

    kind: str | None = None
    namespace: str | None = None
    name: str | None = None


class NodeState(NamedTuple):
    """A node as it is now, the log time at which its spec last changed, and who sent that."""

    node: NodeRow
    spec_changed_ms: int
    spec_sent_by: str | None


class PodState(NamedTuple):
    """A live pod: bound by decision ``shard``-``seq``, or pending; either since ``since_ms``.

    It is orphaned if its node is deleted. The template has nothing but requests, profile, priority, gang,
    QoS class and cpu claim. ``devices`` are those of its node that it has.
    """

    pod_uid: str
    namespace: str
    name: str
    resource_version: int | None
    signature: bytes
    labels: dict[str, str]
    node: str | None
    adopted: bool
    shard: int
    seq: int | None
    since_ms: int
    devices: tuple[int, ...]
    template: PodTemplate | None
    orphaned: bool


class NominatedPod(NamedTuple):
    """A pod with a nominated node, and the pods that have not left it yet: ``namespace/name``, by uid.

    The template has no more than that of a ``PodState``.
    """

    pod_uid: str
    namespace: str
    name: str
    shard: int
    node: str
    at_ms: int
    expires_ms: int
    victims: Sequence[str]
    template: PodTemplate | None


class GangState(NamedTuple):
    """A gang: its PodGroup, if there is one, and its pods.

    The oldest of those that wait does so since ``since_ms``. The reasons are those of the last attempt by
    which they are kept, at ``at_ms``; it is ``shard``, ``cycle_seq``, where that is not 0.
    """

    namespace: str
    name: str
    object: dict[str, Any] | None
    placed_count: int
    waiting_count: int
    since_ms: int | None
    reasons: dict[str, int] | None
    at_ms: int | None
    shard: int | None
    cycle_seq: int | None


class PlacementSpan(NamedTuple):
    """A time span in which a pod counted on a node. Without an end it still counts there."""

    shard: int
    seq: int
    pod_uid: str
    node: str
    adopted: bool
    bound_at_ms: int
    released_at_ms: int | None


class WaitingGroup(NamedTuple):
    """Pending pods of one signature. The reasons are None until the first attempt.

    The template has no more than that of a ``PodState``.
    """

    shard: int
    signature: bytes
    pods_count: int
    since_ms: int
    examples: Sequence[str]
    reasons: dict[str, int] | None
    unresolvable: bool | None
    cycle_seq: int | None
    at_ms: int | None
    template: PodTemplate | None


class QueuePlace(NamedTuple):
    """Where a group of pending pods stands among those of its shard: by priority, then by its oldest pod.

    ``attempts_count`` are the attempts that failed since that pod waits, as far as they are kept. Before it
    stand ``groups_before`` groups, which have ``pods_before`` pods.
    """

    attempts_count: int
    groups_before: int
    pods_before: int


class RefusedRecord(NamedTuple):
    """A dead letter, of which a list has only the first bytes, and how many bytes the record had."""

    letter: DeadLetter
    raw_bytes: int


class ShardState(NamedTuple):
    """A shard: its owner, how far it has come, and how far the relay has published it.

    ``alarm`` says what is wrong with its topic of decisions; None: nothing that was not acknowledged.
    ``ledger`` is the name that its decisions carry (``Outbox.ledger_name``).
    ``figures`` are those of its owner.
    """

    shard: int
    owner: str | None
    epoch: int
    owned_since: datetime.datetime | None
    lease_until: datetime.datetime | None
    seq_next: int
    dead_seq_next: int
    log_time_ms: int
    relay_owner: str | None
    decisions_seq: int
    dead_letters_seq: int
    alarm: str | None
    ledger: str
    figures: Figures | None


class WorkerState(NamedTuple):
    """A worker since its process began; ``is_up``: it has not stopped, and its heartbeat is fresh."""

    incarnation: str
    name: str
    build: str
    started_at: datetime.datetime
    seen_at: datetime.datetime
    stopped_at: datetime.datetime | None  # None: it runs, or was killed
    is_up: bool
    is_ready: bool
    shards: Sequence[int]
    figures: Figures | None


class OwnerSpan(NamedTuple):
    """An owner of a shard from when to when; the end is None while the lease holds."""

    shard: int
    epoch: int
    owner: str
    taken_at: datetime.datetime
    ended_at: datetime.datetime | None


class OwnerFilter(NamedTuple):
    """Which spans of owners are asked for: those that touch the time from ``since`` to before ``until``."""

    shard: int | None = None
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None


class ShardOffset(NamedTuple):
    """How far a shard has read a partition."""

    shard: int
    topic: str
    partition: int
    next_offset: int


class Pulse(NamedTuple):
    """The revision of the tables, and how many workers are up, those without a shard included.

    Where a newer version of berth has migrated them, ``works_from`` is the oldest revision whose version of
    berth may work on them.
    """

    revision: str | None
    workers_count: int
    works_from: str | None = None


class Counts(NamedTuple):
    """Counts for the metrics."""

    nodes: int
    pending_pods: int
    audit_age_seconds: float | None = None  # None, here and below: the ledger was not audited
    audit_ok: bool | None = None


class Grant(NamedTuple):
    """What the holder of a key may do. Several keys may carry one name, so that a holder can change keys."""

    name: str
    roles: Sequence[str]
    namespaces: Sequence[str] | None = None  # None: all
    kinds: Sequence[str] | None = None  # None: those of its roles
    events_per_second: int | None = None  # None, here and below: no limit of its own
    bytes_per_second: int | None = None
    requests_at_once: int | None = None
    priority_max: int | None = None  # of its pods; None: as services/api/scope.py says
    priority_classes: Sequence[str] | None = None  # that its pods may name; None: likewise
    node: str | None = None  # of the role agent: the one node that it is for


class KeyRow(NamedTuple):
    """An API key, without anything secret."""

    grant: Grant
    created_at: datetime.datetime
    revoked_at: datetime.datetime | None


class Session(NamedTuple):
    """A session: what its key allows, and until when it lasts at most."""

    grant: Grant
    expires_at: datetime.datetime


class Processes(Protocol):
    """Reads of what the processes around the ledger do, and the agents on nodes."""

    async def pulse(self) -> Pulse:
        """Return the ledger's pulse; raise ``Unavailable`` when it does not answer."""

    async def shards(self) -> Sequence[ShardState]:
        """Return the shards by number."""

    async def workers(self, since: datetime.datetime) -> Sequence[WorkerState]:
        """Return the workers that were heard of at ``since`` or later, by name, the latest start first."""

    async def owners(
        self, which: OwnerFilter, limit: int, after: tuple[datetime.datetime, int] | None
    ) -> Rows[OwnerSpan]:
        """Return the owners of shards, the latest first, then by shard; ``after`` is time and shard."""

    async def offsets(self) -> Sequence[ShardOffset]:
        """Return how far each shard has read."""

    async def actions(
        self, node: str | None, seen: Collection[str] | None, limit: int, before: int | None
    ) -> Rows[ActionState]:
        """Return what agents did, of one node or of all, the latest first, below a number.

        What was done to pods is left out but for those of the namespaces ``seen`` (None: all).
        """

    async def replicas(
        self,
        namespace: str | None,
        name: str | None,
        seen: Collection[str] | None,
        limit: int,
        after: tuple[str, str] | None,
    ) -> Rows[ReplicasSaid]:
        """Return what was said last of hosted workloads, by namespace and name of their objects.

        Those of other namespaces than ``seen`` (None: all) are left out.
        """

    async def moves(self, node: str, seen: Collection[str] | None) -> Sequence[MoveRow]:
        """Return the pods of these namespaces that have to leave a hot node and have not left it, by uid."""

    async def counts(self) -> Counts:
        """Return the counts for the metrics."""


class Callers(Protocol):
    """What the API itself writes: its keys and sessions, accepted events, and its log of accesses."""

    async def known_events(self, holder: str, ids: Sequence[str]) -> dict[str, bytes | None]:
        """Return which of these event ids were accepted before, each with its digest if that was kept.

        Ids are those of a key's holder, by name; a request without a key is of the holder "".
        """

    async def record_events(self, holder: str, digests: Mapping[str, bytes]) -> None:
        """Remember accepted event ids with the digests of their content; known ones stay as they are."""

    async def forget_events(self, age_seconds: float, limit: int) -> int:
        """Forget at most ``limit`` event ids that are older, oldest first; return how many there were."""

    async def seal_secret(self) -> bytes:
        """Return the secret by which senders' names are sealed (``services/codec/seal.py``)."""

    async def note_accesses(self, rows: Sequence[Access]) -> None:
        """Add to the access log, all or none. Equal requests of a minute become one, which counts them.

        No two of the rows may be equal requests of a minute.
        """

    async def accesses(self, which: AccessFilter, limit: int, after: Place | None) -> Sequence[Access]:
        """Return accesses by minute, the latest first."""

    async def forget_accesses(self, age_seconds: float, limit: int) -> int:
        """Forget at most ``limit`` accesses that are older, oldest first; return how many there were."""

    async def keys(self) -> Sequence[KeyRow]:
        """Return the API keys, revoked ones included, oldest first."""

    async def grant(self, key_hash: bytes) -> Grant | None:
        """Return what a key that is not revoked allows, or None."""

    async def create_key(self, key_hash: bytes, grant: Grant) -> None:
        """Add a key."""

    async def revoke_key(self, name: str) -> int:
        """Revoke all keys of this name; return how many there were."""

    async def begin_session(self, token_hash: bytes, key_hash: bytes, seconds: float) -> Session | None:
        """Begin a session of a key that is not revoked, or return None.

        A key has ``sessions_per_key_max`` of them; the oldest beyond that end.
        """

    async def session(self, token_hash: bytes) -> Session | None:
        """Return a session that has not run out and whose key is not revoked, or None."""

    async def end_session(self, token_hash: bytes) -> None:
        """End a session, if there is one."""

    async def forget_sessions(self, age_seconds: float, limit: int) -> int:
        """Forget at most ``limit`` sessions that ran out longer ago; return how many there were."""


class Bills(Protocol):
    """Reads of the bill."""

    async def lines(self, which: BillFilter, by: BillBy, limit: int, after: str | None) -> Rows[BillSums]:
        """Return the sums of each key that has any, by key."""

    async def total(self, which: BillFilter) -> BillSums:
        """Return the sums of all, with an empty key."""


class Store(Protocol):
    """Reads of the ledger, for somebody who sees the pods of the namespaces ``seen`` (None: all).

    A list is ordered by what ``after`` names. It has at most ``limit`` items, and fewer as soon as they hold
    ``page_bytes_max`` bytes.
    """

    processes: Processes
    callers: Callers
    bills: Bills
    past: Past
    moment: Moment | None
    fields: Fields
    exports: Exports
    over_time: OverTime
    tail: Tail
    chronicle: Chronicle
    seen: Collection[str] | None

    def seen_by(self, namespaces: Collection[str] | None) -> Self:
        """Return this store for somebody who sees the pods of these namespaces (None: all) and no others.

        Of what is not a pod's, everybody sees everything, but of dead letters only those of his pods, and of
        configuration objects those of his namespaces, these themselves, and the PriorityClasses.
        """

    def as_of(self, moment: Moment) -> Self:
        """Return this store as it was at a moment, for the questions about what the cluster held.

        These are those for nodes, pods, decisions, pending groups, gangs, configuration and profiles.
        What is not kept of the past is left out: the version of a node is 0, and that of a pod None.
        ``moment`` says which moment it is; None: it is the store of now.
        """

    async def nodes(self, limit: int, after: str | None, name: str | None) -> Rows[NodeState]:
        """Return live nodes, by name; ``name`` keeps names that contain it."""

    async def node(self, name: str) -> NodeState | None:
        """Return one node, deleted ones included, or None."""

    async def usage(self, node: str) -> UsageRecord | None:
        """Return what is remembered of a node's measured usage, or None."""

    async def pods(self, which: PodFilter, limit: int, after: str | None) -> Rows[PodState]:
        """Return live pods, by uid.

        Those of a QoS class have no index, as each placement would pay for it: a page of them may end before
        it is full, and even be empty, where it has looked at so many pods. It says what it has ``reached``.
        """

    async def pod(self, namespace: str, name: str) -> PodState | None:
        """Return the live pod of this name (the latest, when there were several), or None."""

    async def pod_placements(self, namespace: str, name: str, limit: int) -> Sequence[PlacementSpan]:
        """Return where pods of this name were, latest first."""

    async def decisions(
        self, which: DecisionFilter, limit: int, after: tuple[int, int] | None, newest_first: bool
    ) -> Rows[DecisionRow]:
        """Return decisions by (seq, shard), each shard in its commit order."""

    async def pod_decisions(self, namespace: str, name: str, limit: int) -> Rows[DecisionRow]:
        """Return the latest decisions about pods of this name, latest first, whichever shards made them."""

    async def latest_decisions(self, pods: Sequence[str]) -> Rows[DecisionRow]:
        """Return the last decision about each pod, ``namespace/name``, that has one; ordered by that."""

    async def known_versions(self, pods: Sequence[str]) -> dict[str, int]:
        """Return the resource version of each live pod of these, ``namespace/name``, that has one."""

    async def decision(self, shard: int, seq: int) -> DecisionRow | None:
        """Return one decision or None."""

    async def attempt(self, shard: int, seq: int) -> Attempt | None:
        """Return one scheduling attempt or None."""

    async def pending(
        self,
        shard: int | None,
        signature: bytes | None = None,
        limit: int = 1000,
        after: tuple[int, int, bytes] | None = None,
        *,
        oldest_first: bool = False,
    ) -> Rows[WaitingGroup]:
        """Return the groups of pending pods, of a shard or a signature if given.

        They come by (pods, shard, signature), largest first; with ``oldest_first`` by (since, shard,
        signature), that of the pod that waits longest first.
        """

    async def queue_places(self, groups: Sequence[WaitingGroup]) -> dict[tuple[int, bytes], QueuePlace]:
        """Return by shard and signature where groups stand; pods that this store does not see count, too."""

    async def nominations(self, limit: int, after: tuple[str, int] | None) -> Rows[NominatedPod]:
        """Return the pods with nominated nodes, by (uid, shard)."""

    async def gangs(
        self, namespace: str | None, name: str | None, limit: int, after: tuple[str, str] | None
    ) -> Rows[GangState]:
        """Return the gangs that have a PodGroup or pods that wait for it, by (namespace, name)."""

    async def group_attempts(self, shard: int, signature: bytes) -> Sequence[GroupAttempts]:
        """Return what is kept of the attempts of a group that failed, oldest first."""

    async def deadletters(self, limit: int, after: tuple[int, int] | None) -> Rows[RefusedRecord]:
        """Return dead letters by (seq, shard), latest first, with the beginnings of their records."""

    async def deadletter(self, shard: int, seq: int) -> RefusedRecord | None:
        """Return one dead letter with its whole record, or None."""

    async def new_deadletters(self, since: Mapping[int, int], spans: Sequence[Span]) -> Rows[RefusedRecord]:
        """Return the dead letters of each shard from a seq on whose records are in these spans.

        They come by (shard, seq), with the beginnings of their records, whatever namespaces are seen.
        """

    async def profiles(self, limit: int, after: str | None) -> Rows[ProfileRow]:
        """Return the last revision of the profiles that events have made, by name, deleted ones left out."""

    async def profile_revisions(self, name: str, limit: int, revision: int | None) -> Rows[ProfileRow]:
        """Return the revisions that events have made of a profile, or the one asked for, latest first."""

    async def config(
        self, which: ConfigFilter, limit: int, after: tuple[str, str, str] | None
    ) -> Rows[ConfigRow]:
        """Return configuration objects by (kind, namespace, name), deleted ones left out."""

    async def template(self, signature: bytes) -> PodTemplate | None:
        """Return the template of an equivalence group or None."""

    async def aclose(self) -> None:
        """Release what the store holds."""
