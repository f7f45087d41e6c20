"""Checks that every ledger makes before it writes a batch. Only a bug can break these rules."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from domain.model.limits import dead_letter_topic_raw_bytes_max
from domain.model.timestamps import format_ms
from services.ports.inbox import is_lane
from services.ports.ledger import BatchCluster, CommitBatch, DeadLetter, NodeUpdate


class Mark(NamedTuple):
    """The batch that begins or ends a fact: the shard whose journal counts it, and its number there."""

    shard: int | None
    batch: int | None


class ShardAdvance(NamedTuple):
    """How a batch moves the counters of a shard. None leaves a counter alone."""

    shard: int
    epoch: int
    seq_lo: int | None
    seq_hi: int | None
    dead_lo: int | None
    dead_hi: int | None


def shard_advances(batch: CommitBatch) -> list[ShardAdvance]:
    """Return the counters that the batch moves, by shard.

    Raises
    ------
    ValueError
        The batch is malformed, or it moves neither an offset nor a counter. Nothing could tell whether such a
        batch is in the ledger, so an unknown outcome could not be resolved.
    """
    epochs, offsets, decided = _epochs(batch), batch.offsets, batch.decisions
    _check_cluster(batch.cluster)
    seqs = _spans("decisions", epochs, ((d.shard, d.seq) for d, _ in decided.made), offsets.seq_next)
    letters = ((x.shard, x.seq) for x in decided.dead_letters)
    dead = _spans("dead letters", epochs, letters, offsets.dead_seq_next)
    moves = any(advance.lo < advance.hi for advance in offsets.advances)
    if not moves and all(lo == hi for lo, hi in (*seqs.values(), *dead.values())):
        raise ValueError("the batch moves no offset and no counter: its outcome could not be told")
    nothing = (None, None)
    return [
        ShardAdvance(shard, epochs[shard], *seqs.get(shard, nothing), *dead.get(shard, nothing))
        for shard in sorted(epochs)
    ]


def _epochs(batch: CommitBatch) -> dict[int, int]:
    advances = batch.offsets.advances
    if not advances:
        raise ValueError("the batch names no offset row, so that nothing fences it")
    _unique("offset row", [advance[:3] for advance in advances])
    epochs = dict(batch.offsets.shards)
    for advance in advances:
        if not 0 <= advance.lo <= advance.hi:
            raise ValueError(f"{advance} goes backwards")
        if epochs.setdefault(advance.shard, advance.epoch) != advance.epoch:
            raise ValueError(f"shard {advance.shard} has two epochs in one batch")
    for decision, _ in batch.decisions.made:  # a shard may decide for pods that wait, without any event
        if epochs.setdefault(decision.shard, decision.epoch) != decision.epoch:
            raise ValueError(f"shard {decision.shard} has two epochs in one batch")
    return epochs


def _check_cluster(cluster: BatchCluster) -> None:
    _unique("node id", [fact.id for fact in cluster.facts])
    _unique("node id", [claim.id for claim in cluster.claims])
    _unique("node's usage", [row.record.node for row in cluster.usage])
    _unique("profile revision", [(row.name, row.revision) for row in cluster.profiles])
    for fact in cluster.facts:
        if not fact.version_seen and fact.spec is None:
            raise ValueError(f"node {fact.name} is new and comes without a spec")
    each: NodeUpdate
    for each in (*cluster.facts, *cluster.claims):
        if each.changes < 1:
            raise ValueError(f"node {each.name} does not get a newer version")


def _spans(
    what: str, epochs: Mapping[int, int], rows: Iterable[tuple[int, int]], following: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Return (first, next) seq per shard; the rows must fill the span in order, without a hole."""
    if not following.keys() <= epochs.keys():
        raise ValueError(f"the next seq of {what} is given for shards that the batch does not fence")
    found: dict[int, list[int]] = {shard: [] for shard in following}
    for shard, seq in rows:
        if shard not in found:
            raise ValueError(f"{what} of shard {shard} come without its next seq")
        found[shard].append(seq)
    for shard, seqs in found.items():
        if seqs != list(range(following[shard] - len(seqs), following[shard])):
            raise ValueError(f"{what} of shard {shard} do not end, without a hole, at {following[shard] - 1}")
    return {shard: (following[shard] - len(seqs), following[shard]) for shard, seqs in found.items()}


def _unique(what: str, values: list[object]) -> None:
    if len(set(values)) != len(values):
        raise ValueError(f"a {what} occurs twice in one batch")


class ShardCounters(NamedTuple):
    """What a ledger holds of a shard that its worker owns."""

    epoch: int
    seq_next: int
    dead_seq_next: int


def stands(
    batch: CommitBatch,
    advances: Sequence[ShardAdvance],
    offsets: Mapping[tuple[int, str, int], tuple[int, int]],
    shards: Mapping[int, ShardCounters],
    *,
    after: bool,
) -> bool:
    """Return whether a ledger is as after (before) the batch, which moves an offset or a counter.

    ``offsets`` are epochs and next offsets, ``shards`` only those that the batch's worker owns.
    """
    for a in batch.offsets.advances:
        begins = (a.epoch, 0) if is_lane(a.topic) else None  # the row of an inbox comes with its first use
        if offsets.get(a[:3], begins) != (a.epoch, a.hi if after else a.lo):
            return False
    for s in advances:
        row, seq, dead = shards.get(s.shard), *((s.seq_hi, s.dead_hi) if after else (s.seq_lo, s.dead_lo))
        if row is None or row.epoch != s.epoch:
            return False
        if seq not in (None, row.seq_next) or dead not in (None, row.dead_seq_next):
            return False
    return True


def mark_of(batch: CommitBatch) -> Mark:
    """Return what a batch writes beside each fact that it begins or ends; nothing without a journal."""
    row = batch.journal.row
    return Mark(None, None) if row is None else Mark(row.shard, row.batch)


def own_shards(batch: CommitBatch) -> list[int]:
    """Return the shards in which a batch looks for its pods."""
    return list(batch.offsets.shards) or sorted({advance.shard for advance in batch.offsets.advances})


def decision_key(namespace: str, name: str) -> bytes:
    """Return the key of a decision's record: the pod's key in the log."""
    return f"{namespace}/{name}".encode()


def decision_value(payload: bytes, recorded_at_ms: int) -> bytes:
    """Return the record of ``berth.decisions``: the ledger's payload, and when that was committed."""
    return payload[:-1] + _recorded_at(recorded_at_ms)


@lru_cache(maxsize=256)  # all decisions of a batch were committed at one moment
def _recorded_at(ms: int) -> bytes:
    return f',"recorded_at":"{format_ms(ms)}"}}'.encode()


class DeadLetterRecord(msgspec.Struct, gc=False):
    """A record of ``berth.deadletter``; ``raw`` is base64, of the first bytes where ``raw_truncated``."""

    shard: int
    seq: int
    topic: str
    partition: int
    offset: int
    key: str | None
    code: str
    path: str
    message: str
    at: str
    sent_by: str | None
    raw: str
    raw_bytes: int
    raw_truncated: bool


def dead_letter_value(letter: DeadLetter) -> bytes:
    """Return the record of ``berth.deadletter``: JSON, raw bytes in base64, cut to the topic's bound."""
    raw = letter.raw[:dead_letter_topic_raw_bytes_max]
    return msgspec.json.encode(
        DeadLetterRecord(
            shard=letter.shard,
            seq=letter.seq,
            topic=letter.topic,
            partition=letter.partition,
            offset=letter.offset,
            key=None if letter.key is None else letter.key.decode("utf-8", "backslashreplace"),
            code=letter.code,
            path=letter.path,
            message=letter.message,
            at=format_ms(letter.at_ms),
            sent_by=letter.sent_by,
            raw=base64.b64encode(raw).decode(),
            raw_bytes=len(letter.raw),
            raw_truncated=len(raw) < len(letter.raw),
        )
    )
