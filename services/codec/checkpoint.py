"""Parts of the ledger's state as bytes, and back: what checkpoints are made of."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import convert

from domain.model.hosting import ReplicasSaid, WaitSaid
from domain.model.pods import PodTemplate
from domain.model.usage import UsageRecord
from services.ports.inbox import Forwarded, lanes_of
from services.ports.journal import batches_of
from services.ports.ledger import (
    ConfigRow,
    LedgerState,
    MoveRow,
    NodeRow,
    NominationRow,
    PendingPod,
    PlacementOpened,
    PodTombstone,
    ProfileRow,
    UsageRow,
)

ROWS: dict[str, Any] = {
    "nodes": NodeRow,
    "templates": tuple[bytes, PodTemplate],
    "placements": PlacementOpened,
    "nominations": NominationRow,
    "moves": MoveRow,
    "pending": PendingPod,
    "orphaned": str,
    "tombstones": PodTombstone,
    "forwarded": Forwarded,
    "profiles": ProfileRow,
    "config": ConfigRow,
    "usage": list,  # record, sender
    "replicas": ReplicasSaid,
    "waits": WaitSaid,
}
"""The fields of ``LedgerState`` that are many rows, with the type of a row."""


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The other fields of ``LedgerState``, but for the secret, which no checkpoint holds."""

    offsets: Sequence[tuple[int, str, int, int]]
    refold_below: Sequence[tuple[int, str, int, int]]
    seq_next: dict[int, int]
    dead_seq_next: dict[int, int]
    log_time_ms: int
    scale_seq: int = 0


Offsets = Mapping[tuple[int, str, int], int]

_encode = msgspec.msgpack.Encoder().encode
_DECODERS = {kind: msgspec.msgpack.Decoder(list[row]) for kind, row in ROWS.items()}  # type: ignore[valid-type]


def pack_rows(rows: Sequence[Any]) -> bytes:
    """Return rows of one kind as bytes, compressed."""
    return zlib.compress(_encode(rows), 1)


def pack_head(
    *,
    offsets: Offsets,
    refold_below: Offsets,
    seq_next: Mapping[int, int],
    dead_seq_next: Mapping[int, int],
    log_time_ms: int,
    scale_seq: int = 0,
) -> str:
    """Return the head of a state as JSON."""
    head = Head(
        offsets=[(*at, offset) for at, offset in sorted(offsets.items())],
        refold_below=[(*at, offset) for at, offset in sorted(refold_below.items())],
        seq_next=dict(seq_next),
        dead_seq_next=dict(dead_seq_next),
        log_time_ms=log_time_ms,
        scale_seq=scale_seq,
    )
    return msgspec.json.encode(head).decode()


def unpack_state(head: str, parts: Iterable[tuple[str, bytes]], seal_secret: bytes) -> LedgerState:
    """Return the state of which a head and parts (kind, bytes) were made; the parts of a kind in order."""
    told = msgspec.json.decode(head, type=Head)
    found: dict[str, Any] = {kind: [] for kind in ROWS}
    for kind, packed in parts:
        found[kind] += _DECODERS[kind].decode(zlib.decompress(packed))
    # Until revision 0044 of the schema there was a third value between the two.
    found["usage"] = [UsageRow(convert(row[0], UsageRecord), row[-1]) for row in found["usage"]]
    offsets = {(shard, topic, at): offset for shard, topic, at, offset in told.offsets}
    return LedgerState(
        offsets=offsets,
        batches=batches_of(offsets),
        lanes=lanes_of(offsets),
        shards_count=len(told.seq_next),
        refold_below={(shard, topic, at): offset for shard, topic, at, offset in told.refold_below},
        seq_next=told.seq_next,
        dead_seq_next=told.dead_seq_next,
        log_time_ms=told.log_time_ms,
        scale_seq=told.scale_seq,
        seal_secret=seal_secret,
        templates=dict(found.pop("templates")),
        **found,
    )
