"""What a batch did to the cluster as bytes, and back: columns that other workers fold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from domain.model.config import CONTENTS
from domain.model.events import (
    ConfigDeleted,
    ConfigUpserted,
    NodeUsed,
    ProfileDeleted,
    ProfileUpserted,
)
from domain.model.pods import PodLife, PodTemplate
from services.ports.inbox import is_lane
from services.ports.journal import (
    Feed,
    Followed,
    Gone,
    JournalRow,
    MovesFed,
    NodeFed,
    NominationFed,
    Opened,
    Refreshed,
    Rest,
)
from services.ports.ledger import CommitBatch, NodeUpdate

FeedEvent = NodeUsed | ConfigUpserted | ConfigDeleted | ProfileUpserted | ProfileDeleted
"""Events that every worker folds, whichever worker read them."""

_KINDS: dict[str, type[NodeUsed | ConfigDeleted | ProfileUpserted | ProfileDeleted]] = {
    kind.__name__: kind for kind in (NodeUsed, ConfigDeleted, ProfileUpserted, ProfileDeleted)
}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Feed).decode
_decode_config = msgspec.msgpack.Decoder(tuple[str, str, str, Any, int | None]).decode
_decode_of_kind = {kind: msgspec.msgpack.Decoder(shape).decode for kind, shape in _KINDS.items()}

T = TypeVar("T")


def _number(table: dict[T, int], values: Iterable[T]) -> list[int]:
    """Return the number of each value in a table, which takes the new ones."""
    return [table.setdefault(value, len(table)) for value in values]


def _number_labels(
    table: dict[tuple[tuple[str, str], ...], int], values: Sequence[Mapping[str, str]]
) -> list[int]:
    """Return the same for labels. Nearly all pods share one mapping, so each of these is read once."""
    distinct = {id(labels): labels for labels in values}
    numbers = dict(zip(distinct, _number(table, [tuple(e.items()) for e in distinct.values()]), strict=True))
    return [numbers[id(labels)] for labels in values]


def pack_feed(batch: CommitBatch, events: Sequence[tuple[int, FeedEvent]] = ()) -> bytes:
    """Return the feed of a batch; each event comes with the number of opened placements before it."""
    return _pack(batch, [(before, type(event).__name__, _event(event)) for before, event in events])


def pack_again(batch: CommitBatch, feed: bytes) -> bytes:
    """Return the feed of a batch that was changed since ``feed`` was made of it. Events stay."""
    return _pack(batch, unpack_feed(feed).events)


def _pack(batch: CommitBatch, events: list[tuple[int, str, bytes]]) -> bytes:
    signatures: dict[bytes, int] = {}
    labels: dict[tuple[tuple[str, str], ...], int] = {}
    lives: dict[PodLife | None, int] = {}
    names: dict[str, int] = {}
    specs, changes = _nodes(batch, names)
    pods, renewed = batch.pods.opened, batch.pods.refreshed
    opened = Opened(
        keys=[f"{pod.namespace}/{pod.name}" for pod in pods],
        uids=[pod.pod_uid for pod in pods],
        versions=[pod.resource_version for pod in pods],
        shards=[pod.shard for pod in pods],
        nodes=_number(names, [pod.node for pod in pods]),
        templates=_number(signatures, [pod.signature for pod in pods]),
        labels=_number_labels(labels, [pod.labels for pod in pods]),
        lives=_number(lives, [pod.life for pod in pods]),
        adopted=[pod.adopted for pod in pods],
        ago_ms=[batch.offsets.log_time_ms - pod.at_ms for pod in pods],
    )
    refreshed = Refreshed(
        uids=[pod.pod_uid for pod in renewed],
        versions=[pod.resource_version for pod in renewed],
        labels=_number_labels(labels, [pod.labels for pod in renewed]),
        lives=_number(lives, [pod.life for pod in renewed]),
    )
    nominated = _nominated(batch, signatures)
    return _written(
        Feed(
            signatures=list(signatures),
            labels=list(map(dict, labels)),
            lives=list(lives),
            nodes=list(names),
            changes=changes,
            specs=specs,
            closed=[uid for uid, _ in batch.pods.closed],
            opened=opened,
            refreshed=refreshed,
            uncounted=[pod.pod_uid for pod in pods if not pod.counted],
            counted=list(batch.pods.counted),
            events=events,
            raised=list(batch.journal.raised),
            unnominated=list(batch.pods.unnominated),
            nominated=nominated,
            lanes=[(a.shard, a.topic, a.hi) for a in batch.offsets.advances if is_lane(a.topic)],
            rest=None if batch.journal.call is None else Rest(batch.journal.call, dict(batch.offsets.shards)),
            gone=_gone(batch),
            moves=_moves(batch),
            hosted=batch.cluster.hosted if batch.cluster.hosted.has_any else None,
        )
    )


_ALWAYS = Feed.__struct_fields__.index("gone") + 1
"""How many columns each feed has."""


def _written(feed: Feed) -> bytes:
    """Return a feed as bytes. What came last into its shape is left out where it is empty: nearly always."""
    columns = list(msgspec.structs.astuple(feed))
    while len(columns) > _ALWAYS and columns[-1] is None:
        columns.pop()
    return _encode(columns)


def _gone(batch: CommitBatch) -> Gone:
    rows = batch.pods.tombstones
    return Gone(
        keys=[row.key for row in rows],
        uids=[row.uid for row in rows],
        versions=[row.resource_version for row in rows],
        ago_ms=[batch.offsets.log_time_ms - row.at_ms for row in rows],
    )


def _moves(batch: CommitBatch) -> MovesFed | None:
    pods = batch.pods
    if not (pods.moved or pods.spared or pods.rested):
        return None
    return MovesFed(list(pods.moved), list(pods.spared), list(pods.rested))


def _nominated(batch: CommitBatch, signatures: dict[bytes, int]) -> list[NominationFed]:
    templates = _number(signatures, [row.signature for row in batch.pods.nominated])
    return [
        NominationFed(
            row.key, row.pod_uid, row.shard, row.node, template, row.at_ms, row.expires_ms, row.victims
        )
        for row, template in zip(batch.pods.nominated, templates, strict=True)
    ]


def _nodes(batch: CommitBatch, names: dict[str, int]) -> tuple[list[NodeFed], list[int]]:
    """Number the nodes that a batch changes, those with specs first; return the specs and the changes."""
    specs = [fact for fact in batch.cluster.facts if fact.spec is not None]
    _number(names, [fact.name for fact in specs])
    found: list[NodeUpdate] = [*batch.cluster.facts, *batch.cluster.claims]
    numbers = _number(names, [change.name for change in found])
    changes = [0] * len(names)
    for number, change in zip(numbers, found, strict=True):
        changes[number] += change.changes
    fed = [
        NodeFed(f.id, f.spec, f.deleted, f.spec_count, f.sent_by, f.was_gone)
        for f in specs
        if f.spec is not None
    ]
    return fed, changes


def _event(event: FeedEvent) -> bytes:
    if isinstance(event, ConfigUpserted):  # its content has no type of its own on the wire
        return _encode((event.kind, event.namespace, event.name, event.content, event.resource_version))
    return _encode(event)


def unpack_feed(packed: bytes) -> Feed:
    """Return a feed; an empty one of a row of a build that had none."""
    return _decode(packed) if packed else Feed()


def followed(row: JournalRow, feed: Feed, templates: Mapping[bytes, PodTemplate]) -> Followed:
    """Return a row of the journal and its feed as other workers see them; ``templates`` may hold others."""
    return Followed(
        position=row.position,
        shard=row.shard,
        batch=row.batch,
        log_time_ms=row.log_time_ms,
        seqs=row.seqs,
        feed=feed,
        templates={signature: templates[signature] for signature in feed.signatures},
    )


def unpack_event(kind: str, packed: bytes) -> FeedEvent:
    """Return an event of a feed."""
    if kind == ConfigUpserted.__name__:
        of, namespace, name, content, version = _decode_config(packed)
        return ConfigUpserted(of, namespace, name, msgspec.convert(content, CONTENTS[of]), version)
    event: FeedEvent = _decode_of_kind[kind](packed)
    return event
