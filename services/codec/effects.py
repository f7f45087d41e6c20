"""Makes the journal's row of a batch: which records it took in which order, and hashes of what it wrote.

Hashes leave out what differs between two runs of the same batch although both decide the same: how long a
cycle took, generations, which templates were written before, and the counter behind ``arrival``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import to_builtins

from services.codec.feed import FeedEvent, pack_feed
from services.ports.journal import JournalRow, Lane, pack_order
from services.ports.ledger import CommitBatch, NodeFact, PendingPod, PlacementOpened

_encode = msgspec.json.Encoder(order="deterministic").encode
_HASH_BYTES = 8

SPECS = "node specs"
"""Before there were facts, journals had the kind ``nodes`` instead, with sums of nodes."""

Source = tuple[int, str, int]
"""Shard, topic and partition of a record."""


def decisions_hash(batch: CommitBatch) -> bytes:
    """Return the hash of a batch's decision records."""
    found = batch.decisions.made
    if len(batch.offsets.seq_next) > 1:
        found = sorted(found, key=lambda each: each[0].shard)
    return hashlib.sha256(b"".join(map(itemgetter(1), found))).digest()


def effects_of(batch: CommitBatch) -> dict[str, str]:
    """Return a hash for each kind of row that a batch writes and that does not follow from its decisions.

    A bound pod's placement does, and the version of its node. What pods request of nodes is in the digest.
    """
    kinds: tuple[tuple[str, Sequence[Any]], ...] = (
        (SPECS, [_spec(fact) for fact in batch.cluster.facts if fact.spec is not None]),
        ("placements closed", batch.pods.closed),
        ("placements opened", [_placed(p) for p in batch.pods.opened if p.adopted or p.life]),
        ("placements refreshed", batch.pods.refreshed),
        ("pending removed", batch.pods.pending_removed),
        ("pending added", [_waiting(pod) for pod in batch.pods.pending_added]),
        ("pending groups", batch.pods.pending_groups),
        ("nominations ended", batch.pods.unnominated),
        ("nominations", batch.pods.nominated),
        ("moves ended", [*batch.pods.spared, *batch.pods.rested]),
        ("moves", batch.pods.moved),
        ("tombstones", batch.pods.tombstones),
        ("events handed over", [row._replace(at_ms=0) for row in batch.pods.handed]),
        ("forwarded keys", batch.pods.forwarded),
        ("dead letters", batch.decisions.dead_letters),
        ("profiles", batch.cluster.profiles),
        ("configuration", batch.cluster.config),
        ("node actions", batch.cluster.actions),
        ("usage", [(to_builtins(row.record, str_keys=True), row.sent_by) for row in batch.cluster.usage]),
        ("bill", batch.cluster.bill),
        ("hosted replicas", [*batch.cluster.hosted.said, *batch.cluster.hosted.gone]),
        ("hosted waits", batch.cluster.hosted.waits),
    )
    return {kind: _hash(rows) for kind, rows in kinds if rows}


def _seqs(batch: CommitBatch) -> dict[int, tuple[int, int]]:
    counts = dict.fromkeys(batch.offsets.seq_next, len(batch.decisions.made))
    if len(counts) > 1:
        counts = Counter(decision.shard for decision, _ in batch.decisions.made)
    return {
        shard: (batch.offsets.seq_next[shard] - count, batch.offsets.seq_next[shard])
        for shard, count in counts.items()
        if count
    }


def _hash(rows: Sequence[Any]) -> str:
    return hashlib.sha256(_encode(rows)).digest()[:_HASH_BYTES].hex()


def _spec(fact: NodeFact) -> NodeFact:
    return msgspec.structs.replace(fact, delta={}, version_seen=0)


def _placed(placed: PlacementOpened) -> tuple[Any, ...]:
    return placed.shard, placed.seq, placed.adopted, placed.life


def _waiting(pod: PendingPod) -> tuple[Any, ...]:
    when = pod.shard, pod.since_ms, pod.sent_by, pod.tried
    return (*when, pod.pod_uid, pod.resource_version, pod.signature, pod.labels, pod.life)


def journal_row(
    batch: CommitBatch,
    sources: Sequence[Source],
    first: JournalRow,
    digest: str | None,
    events: Sequence[tuple[int, FeedEvent]] = (),
) -> JournalRow:
    """Complete ``first``, the row of a batch whose records came from ``sources``, in this order.

    ``events`` are those that every worker folds, as in ``pack_feed``.
    """
    numbers = {source: number for number, source in enumerate(dict.fromkeys(sources))}
    moves = {advance[:3]: advance for advance in batch.offsets.advances}
    return msgspec.structs.replace(
        first,
        lanes=[Lane(*source, moves[source].lo, moves[source].hi) for source in numbers],
        order=pack_order([numbers[source] for source in sources]),
        seqs=_seqs(batch),
        log_time_ms=batch.offsets.log_time_ms,
        decisions_hash=decisions_hash(batch),
        effects=effects_of(batch),
        digest=digest,
        feed=pack_feed(batch, events),
    )
