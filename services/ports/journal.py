"""The journal: what each batch was made from and what it did, so that others follow it and it is replayed."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from domain.model.hosting import HostedChange
from domain.model.limits import preemption_seconds, tombstone_hours
from domain.model.nodes import NodeSpec
from domain.model.pods import PodLife, PodTemplate
from domain.model.profiles import Profile
from domain.state.nominations import Victim
from services.ports.log import TopicPartition
from services.ports.pods import MoveRow

BATCHES = "~batches"
"""No topic: the offset row that counts a shard's batches, so that no two batches look alike."""

DIGEST_EVERY = 100
"""A batch whose number is a multiple of it stores the digest of the state after it."""


class Lane(NamedTuple):
    """A batch took the records of a shard's partition from ``lo`` to before ``hi``."""

    shard: int
    topic: str
    partition: int
    lo: int
    hi: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker began with, beside the ledger's state: all that decides, and the log does not say.

    Attributes
    ----------
    worker, build : str
        Its name, and its version of berth.
    leases : mapping
        Shard -> epoch.
    offsets : sequence
        Shard, topic, partition and next offset of each partition.
    """

    worker: str
    build: str
    seed: int
    usage_window_seconds: int
    tombstone_hours: int = tombstone_hours  # a field that came later has a default: journals are kept
    preempts: bool = False
    preemption_seconds: int = preemption_seconds
    reservation_seconds: int = 0
    backoff_ms: tuple[int, int] = (0, 0)
    cycle_pods_max: int = 4_000
    profiles: Mapping[str, Profile]
    writers: Mapping[str, str]
    leases: Mapping[int, int]
    offsets: Sequence[tuple[int, str, int, int]]


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker owned from then on: shard -> epoch.

    ``offsets`` are those of shards that it took, ``followed`` how far it had followed the journals of others
    before: shard -> batch. ``again``: no worker had these shards since it gave all of them up; it had rested.
    """

    leases: Mapping[int, int]
    offsets: Sequence[tuple[int, str, int, int]] = ()
    followed: Mapping[int, int] = {}
    again: bool = False


class NodeFed(msgspec.Struct, frozen=True, array_like=True):
    """The spec that a batch gave a node; ``was_gone``: the node was deleted in the batch, and came back."""

    id: int
    spec: NodeSpec
    deleted: bool
    spec_count: int
    sent_by: str | None
    was_gone: bool = False


class Opened(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pods that count on nodes from a batch on, as columns; some of them number rows of the feed's tables.

    ``ago_ms`` is how long before the log time of the batch they were placed.
    """

    keys: list[str] = []
    uids: list[str] = []
    versions: list[int | None] = []
    shards: list[int] = []
    nodes: list[int] = []
    templates: list[int] = []
    labels: list[int] = []
    lives: list[int] = []
    adopted: list[bool] = []
    ago_ms: list[int] = []


class Refreshed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Placed pods of which something became known that does not matter for placing; see ``Opened``."""

    uids: list[str] = []
    versions: list[int | None] = []
    labels: list[int] = []
    lives: list[int] = []


class Gone(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pods and replaced nodes that are remembered as gone from a batch on, as columns; see ``PodTombstone``.

    A key is namespace/name, or the name of a node. ``ago_ms`` is how long before the log time of the batch.
    """

    keys: list[str] = []
    uids: list[str] = []
    versions: list[int | None] = []
    ago_ms: list[int] = []


class NominationFed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A waiting pod has a nominated node; ``template`` numbers a row of the feed's table."""

    key: str
    uid: str
    shard: int
    node: str
    template: int
    at_ms: int
    expires_ms: int
    victims: tuple[Victim, ...]


class MovesFed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Pods that have to leave hot nodes, and nodes whose moves are over or forgotten; see ``BatchPods``."""

    moved: list[MoveRow] = []
    spared: list[str] = []
    rested: list[str] = []


class Rest(msgspec.Struct, frozen=True, array_like=True):
    """A worker decides nothing more until it has given up all its shards in memory and begun with them anew.

    So nothing that it goes on with is in its memory alone. ``call`` is the batch of shard 0 that asked all
    workers to rest; ``leases`` says shard -> epoch of what the worker holds.
    """

    call: int
    leases: dict[int, int]


class Feed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a batch did to the cluster: what other workers fold instead of its records.

    Attributes
    ----------
    signatures, labels, lives : list
        Tables that pods share: signatures of templates, labels, and what is known of pods' lives.
    nodes, changes : list
        Names of nodes, and by how much the batch raised the versions of the first ones. It changed none of
        the others.
    specs : list of NodeFed
        The specs that it gave the very first ones.
    closed : list of str
        Uids of placed pods that are gone, or are opened anew.
    opened, refreshed
        Placed pods that are new or moved, and what became known of others.
    uncounted, counted : list of str
        Uids of opened pods that the row of their node does not count yet, and of pods that it counts now.
    events : list of (int, str, bytes)
        Measurements and configuration as the worker folded them: how many of ``opened`` came before, what
        kind of event, and the event (``services/codec/feed.py``).
    raised : list of str
        Keys of guards that went up by one (``services/ports/guards.py``).
    unnominated : list of str
        Uids of waiting pods that have no nominated node any more.
    nominated : list of NominationFed
        Those that have one from now on.
    lanes : list of (int, str, int)
        How far inboxes are written and read after it: shard, topic and number (``services/ports/inbox.py``).
    rest : Rest or None
        Given where its worker rests behind the batch.
    gone : Gone or None
        What no event may bring back. None: of a build that left it to the next owner to read it from the
        ledger.
    moves : MovesFed or None
        Given where moves of pods from hot nodes began or ended.
    hosted : HostedChange or None
        What it says of hosted workloads; left out where that is nothing.
    """

    signatures: list[bytes] = []
    labels: list[dict[str, str]] = []
    lives: list[PodLife | None] = []
    nodes: list[str] = []
    changes: list[int] = []
    specs: list[NodeFed] = []
    closed: list[str] = []
    opened: Opened = Opened()
    refreshed: Refreshed = Refreshed()
    uncounted: list[str] = []
    counted: list[str] = []
    events: list[tuple[int, str, bytes]] = []
    raised: list[str] = []
    unnominated: list[str] = []
    nominated: list[NominationFed] = []
    lanes: list[tuple[int, str, int]] = []
    rest: Rest | None = None
    gone: Gone | None = None
    moves: MovesFed | None = None
    hosted: HostedChange | None = None


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of another worker, with all templates that its feed names. See ``JournalRow``."""

    position: int
    shard: int
    batch: int
    log_time_ms: int
    seqs: Mapping[int, tuple[int, int]]
    feed: Feed
    templates: Mapping[bytes, PodTemplate]


class JournalRow(msgspec.Struct, frozen=True, kw_only=True):
    """The row of one batch. ``batch`` counts the batches of ``shard``, the least one of the worker, from 1.

    Attributes
    ----------
    position : int
        Given by the ledger: a batch has a greater one than all batches that it could have seen. A prefix of
        the journal by it is therefore complete in itself.
    worker : str
        The worker that planned it, since its process began.
    start : Start or None
        Given where the worker's state was read from the ledger just before this batch.
    renewed : bool
        Whether the worker forgot what a restart forgets just before this batch, because a checkpoint was
        taken there: a worker that starts from the checkpoint goes on in the same way.
    owned : sequence of Owned
        How the shards of the worker changed since its batch before, in order.
    followed : mapping of int to int
        Shard -> the last batch of its journal that this worker knew by then, of shards that it does not own,
        where that changed since its batch before.
    forgotten : sequence of str
        Keys of pods that were taken back just before this batch, because another worker changed their node.
    lanes : sequence of Lane
        Where the records came from, in the order of their first record.
    order : bytes
        For each record the index of its lane: uint16, little-endian, compressed (zlib).
    seqs : mapping of int to (int, int)
        Shard -> the seq of its first decision in the batch, and the next after the last.
    log_time_ms : int
        Log time after the batch.
    decisions_hash : bytes
        SHA-256 of the decision records, one after another by shard and seq.
    effects : mapping of str to str
        Kind of row -> start of the SHA-256 of what the batch wrote of it, in hex.
    digest : str or None
        Of the state after the batch; of every ``DIGEST_EVERY``-th batch.
    lost : sequence of int
        Ids of the nodes whose claims the ledger did not grant: their pods wait again.
    moved : mapping of int to int
        Node id -> by how much its version was ahead of what the worker knew.
    feed : bytes
        What others fold of the batch: ``Feed``, packed. Empty in rows of builds that had no feed.
    """

    position: int = 0
    worker: str = ""
    shard: int
    batch: int
    start: Start | None = None
    renewed: bool = False
    owned: Sequence[Owned] = ()
    followed: Mapping[int, int] = {}
    forgotten: Sequence[str] = ()
    lost: Sequence[int] = ()
    moved: Mapping[int, int] = {}
    lanes: Sequence[Lane] = ()
    order: bytes = b""
    seqs: Mapping[int, tuple[int, int]] = {}
    log_time_ms: int = 0
    decisions_hash: bytes = b""
    effects: Mapping[str, str] = {}
    digest: str | None = None
    feed: bytes = b""

    @property
    def begins_again(self) -> bool:
        """Whether its worker begins anew after a rest, in memory alone."""
        return self.start is not None and bool(self.owned) and self.owned[0].again


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ledger's state after a batch was kept, in a moment in which no worker decided anything.

    ``start`` says how the worker of shard 0 had begun, and the epochs of all shards. ``offsets`` are those by
    then: among them how many batches the journal of each shard had.
    """

    shard: int
    batch: int
    start: Start
    offsets: Mapping[tuple[int, str, int], int]


class Journalled(NamedTuple):
    """Where the journal of a shard ends.

    ``digest`` is that of its last batch, where this has one and no other shard's journal has a later batch;
    ``checkpoint`` the last batch with a complete checkpoint after it.
    """

    batch: int
    digest: str | None
    checkpoint: int | None


def pack_order(lanes: Sequence[int]) -> bytes:
    """Return lane numbers as the journal keeps them."""
    return zlib.compress(array("H", lanes).tobytes(), 1) if lanes else b""


def unpack_order(packed: bytes) -> Sequence[int]:
    """Undo ``pack_order``."""
    return array("H", zlib.decompress(packed)) if packed else ()


def batches_of(offsets: Mapping[tuple[int, str, int], int]) -> dict[int, int]:
    """Return per shard how many batches it has counted, by the offset rows."""
    return {shard: offset for (shard, topic, _), offset in offsets.items() if topic == BATCHES}


def batch_offsets(batches: Mapping[int, int]) -> dict[tuple[int, str, int], int]:
    """Return the offset rows that say so; see ``batches_of``."""
    return {(shard, BATCHES, 0): batch for shard, batch in batches.items()}


def positions_of(offsets: Mapping[tuple[int, str, int], int]) -> dict[TopicPartition, int]:
    """Return where each partition of the log goes on, by the offset rows of all shards."""
    return {
        TopicPartition(topic, partition): offset
        for (_, topic, partition), offset in offsets.items()
        if not topic.startswith("~")
    }
