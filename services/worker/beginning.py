"""Begins where the ledger left off in the log, also where the log lost what was there.

A state topic keeps the latest record of each key. One that was made anew, or cut at its beginning or its end,
is read again from its first record, and of each key only the latest record there counts: what came before it
is known, or was followed by it. Folding is idempotent by uid and version, so nothing happens twice. Of a key
that moved when shards were added nothing from before counts: what ended its pod came to another partition.
What the ledger has and no record mentions stays as it is, and is listed: whether it is gone, only its
producers know. Measurements and ticks are not state: they go on at the first that there is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from domain.model.config import ConfigObject
from domain.model.errors import LedgerMismatch, LogTruncated
from domain.model.limits import poll_records_max
from services.codec.partition import partition_for
from services.ports.journal import BATCHES
from services.ports.ledger import Lease, Ledger, LedgerPart
from services.ports.log import (
    CONFIG_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    TICKS_TOPIC,
    USAGE_TOPIC,
    Log,
    LogReader,
    Record,
    TopicPartition,
    partitions_of,
)
from services.ports.positions import LogFault, Position, Unmentioned
from services.topics import check_topics
from services.worker.intake import Latest, key_hash
from services.worker.planner import Planner

_LOGGER = logging.getLogger(__name__)
TOPICS = (NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, CONFIG_TOPIC, TICKS_TOPIC)
_NAMES_SHOWN_MAX = 10
_ROWS_PER_TURN = 10_000


class Beginning(NamedTuple):
    """From where shards go on: the ledger's part of them, which records are passed over, what was found."""

    part: LedgerPart
    latest: Mapping[TopicPartition, Latest]
    faults: Sequence[LogFault]


async def begin(
    log: Log,
    ledger: Ledger,
    reader: LogReader,
    leases: Sequence[Lease],
    planner: Planner,
    on_read: Callable[[], None],
    *,
    drain: bool = False,
) -> Beginning:
    """Return from where shards go on. Create the offset rows of a new one; move those that the log lost.

    The planner does not decide for these shards yet, and knows what counts on nodes.

    ``on_read`` is called whenever some of a topic that is read again was read: it may hold a week of records.

    Raises
    ------
    TopicMismatch, Unavailable, Fenced
    LedgerMismatch
        Shards were added since the planner was made.
    """
    topics = await check_topics(log, TOPICS, planner.shards_count, drain=drain)
    first = await reader.first_offsets([at for lease in leases for at in partitions_of(lease.shard)])
    known = await ledger.positions(leases)
    ids = {name: topic.id for name, topic in topics.items()}
    if new := [lease for lease in leases if not _is_noted(lease.shard, known)]:
        for lease in new:
            own = {at: first[at] for at in partitions_of(lease.shard)}
            await ledger.ensure_offsets(lease, {**own, TopicPartition(BATCHES, 0): 0}, ids)
        known = await ledger.positions(leases)
    epochs = dict(leases)
    positions = {at: (shard, each) for (shard, at), each in known.items()}
    ends = await reader.end_offsets([*first])
    faults: list[LogFault] = []
    latest: dict[TopicPartition, Latest] = {}
    keys: dict[TopicPartition, frozenset[bytes]] = {}
    for at in sorted(first):
        shard, position = positions[at]
        fault = _fault(shard, epochs[shard], at, position, ids[at.topic], first[at], ends[at])
        below = position.resync_below if fault is None else fault.resync_below
        if below is not None and (fault is not None or position.next_offset < below):
            moved_below = min(position.moved_below or 0, fault.kept if fault is not None else below)
            span = _Span(first[at], below, moved_below, planner.shards_count)
            latest[at], keys[at] = await _read(reader, at, span, on_read)
        if fault is not None:
            faults.append(fault)
    part = await ledger.load_part(leases, gone=planner.lacks_gone)
    if part.shards_count != planner.shards_count:
        raise LedgerMismatch(
            f"the ledger has {part.shards_count} shards, and had {planner.shards_count} when it was read"
        )
    if faults:
        faults = [
            msgspec.structs.replace(fault, unmentioned=await _missing(planner, part, fault.at, keys))
            for fault in faults
        ]
        await ledger.note_log_faults(faults)
        offsets = {**part.offsets, **{(f.shard, *f.at): f.goes_on_at for f in faults}}
        refold_below = {k: v for k, v in part.refold_below.items() if k[1:] not in {f.at for f in faults}}
        part = msgspec.structs.replace(part, offsets=offsets, refold_below=refold_below)
        for fault in faults:
            _report(fault)
    return Beginning(part, latest, faults)


def _is_noted(shard: int, known: Mapping[tuple[int, TopicPartition], Position]) -> bool:
    """Say whether the ledger has a shard's place in all of its partitions, and which topics these are."""
    noted = (known.get((shard, at)) for at in partitions_of(shard))
    return all(position is not None and position.topic_id is not None for position in noted)


def _fault(
    shard: int, epoch: int, at: TopicPartition, position: Position, topic_id: str, first: int, end: int
) -> LogFault | None:
    """Return what is wrong with going on at a position of a log that holds these offsets."""
    next_offset = max(position.next_offset, position.resync_below or 0)  # it may lose what is read again
    if topic_id and position.topic_id not in (None, topic_id):
        code = "recreated"
    elif position.next_offset < first:
        code = "truncated"
    elif next_offset > end:
        code = "tail-lost"
    else:
        return None
    is_of_its_moment = at.topic in (USAGE_TOPIC, TICKS_TOPIC)
    return LogFault(
        shard=shard,
        epoch=epoch,
        at=at,
        code=code,
        next_offset=next_offset,
        first=first,
        end=end,
        goes_on_at=end if is_of_its_moment and code == "tail-lost" else first,
        topic_id=topic_id or None,
        resync_below=None if is_of_its_moment else end,
    )


class _Span(NamedTuple):
    """The records from ``first`` on and below ``below``, which are read again; see ``Position``."""

    first: int
    below: int
    moved_below: int
    shards_count: int

    def has(self, record: Record, key: bytes) -> bool:
        """Say whether a record of this span is of its shard: what ended a pod that moved came elsewhere."""
        moved = record.offset < self.moved_below
        return not moved or partition_for(key, None, self.shards_count) == record.partition


async def _read(
    reader: LogReader, at: TopicPartition, span: _Span, on_read: Callable[[], None]
) -> tuple[Latest, frozenset[bytes]]:
    """Return which records of a partition count, and their keys. Without a key, each counts.

    Raises
    ------
    LogTruncated
        The log lost records of the span since its end was asked for.
    """
    last: dict[bytes, int] = {}
    passed: dict[int, int] = {}
    idle: int | None = None
    await reader.assign({at: span.first})
    while await reader.position(at) < span.below:
        records = await reader.poll(poll_records_max, timeout_seconds=0.5)
        if records:
            on_read()
        elif (end := (await reader.end_offsets())[at]) < span.below:
            raise LogTruncated(f"{at.topic}/{at.partition} ends at {end} and does not hold {span.below - 1}")
        for record in records:
            if record.offset >= span.below:
                break
            idle = None
            if record.key is None:
                continue
            if not span.has(record, record.key):
                idle = record.offset
                passed[record.offset] = key_hash(record.key)
                continue
            if (before := last.get(record.key)) is not None:
                passed[before] = key_hash(record.key)
            last[record.key] = record.offset
    if idle is not None:
        del passed[idle]
    return Latest(span.below, passed, idle), frozenset(last)


async def _missing(
    planner: Planner, part: LedgerPart, at: TopicPartition, keys: Mapping[TopicPartition, frozenset[bytes]]
) -> list[Unmentioned]:
    """Return what the ledger has of a partition and no record mentions; nothing of measurements."""
    if at not in keys:
        return []
    found, mentioned = [], keys[at]
    for count, each in enumerate(_known(planner, part, at)):
        if each.key.encode() not in mentioned:
            found.append(each)
        if count % _ROWS_PER_TURN == 0:
            await asyncio.sleep(0)
    return found


def _known(planner: Planner, part: LedgerPart, at: TopicPartition) -> Iterator[Unmentioned]:
    """Yield what the ledger has of a partition, by the keys that its records have there."""
    state = planner.scheduler.state
    if at.topic == PODS_TOPIC:
        for key, placed in state.pods.items():
            if placed.shard == at.partition and _is_read(key, at, planner):
                yield Unmentioned(key, placed.spec.uid, placed.node)
        for waiting in part.pending:
            key = f"{waiting.namespace}/{waiting.name}"
            if waiting.shard == at.partition and _is_read(key, at, planner):
                yield Unmentioned(key, waiting.pod_uid)
        for row in part.forwarded:
            if row.shard == at.partition and row.gone_at_ms is None:
                yield Unmentioned(row.key, row.uid)
    elif at.topic == NODES_TOPIC:
        for name in state.table.names:
            if partition_for(name.encode(), None, planner.shards_count) == at.partition:
                yield Unmentioned(name)
    else:
        for name in planner.scheduler.profiles.sent():
            yield Unmentioned(f"SchedulingProfile/{name}")
        for thing in state.config.known.values():
            if thing.content is not None:
                yield Unmentioned(_key_of(thing))


def _is_read(key: str, at: TopicPartition, planner: Planner) -> bool:
    """Say whether a pod's events are in a partition; those of gangs may come by an inbox."""
    return partition_for(key.encode(), None, planner.shards_count) == at.partition


def _key_of(thing: ConfigObject) -> str:
    return "/".join(part for part in (thing.kind, thing.namespace, thing.name) if part)


def _report(fault: LogFault) -> None:
    """Say loudly what happened."""
    where = f"topic {fault.at.topic}, partition {fault.at.partition}"
    what = {
        "recreated": "was deleted and made anew",
        "truncated": "lost its first records before they were read",
        "tail-lost": "lost its last records, which the ledger has",
    }[fault.code]
    how = "reading it again" if fault.resync_below is not None else "going on"
    _LOGGER.error(
        "%s %s: it holds offsets %d to %d, and %d was next; %s from offset %d",
        *(where, what, fault.first, fault.end, fault.next_offset, how, fault.goes_on_at),
    )
    if fault.unmentioned:
        names = ", ".join(each.key for each in fault.unmentioned[:_NAMES_SHOWN_MAX])
        _LOGGER.error(
            "%s: %d objects of the ledger are in none of its records, and stay as they are until their "
            "producers send them again or delete them (table unmentioned): %s …",
            *(where, len(fault.unmentioned), names),
        )
