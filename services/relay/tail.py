"""How far the end of a topic agrees with the ledger, and what of it is not the ledger's."""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec

from berth.client.following_decisions import Follower
from domain.model import limits
from domain.model.errors import LogTruncated
from services.ports.log import DECISIONS_TOPIC, Log, Record, TopicPartition
from services.ports.outbox import Outbox, OutboxItem

_LOGGER = logging.getLogger(__name__)
_RECORDS_MAX = 2 * limits.poll_records_max
"""A relay notes each batch before it publishes the next, so what it did not note is in the last half."""
_QUIET_POLLS_MAX = 20
"""So many polls without a record, of a log that answers, and the rest of the partition cannot be read."""


class _Id(msgspec.Struct):
    id: str = ""


_decode_id = msgspec.json.Decoder(_Id).decode


class Tail(NamedTuple):
    """The end of a partition, compared with the ledger.

    Attributes
    ----------
    seq : int
        The last seq up to which consumers have what the ledger says.
    end : int
        The offset after the last record that was compared.
    foreign : Record, optional
        The first record that the ledger does not hold.
    name : bytes, optional
        The name of the ledger under which consumers have what they took last; None: it has none.
    is_outdated : bool
        Consumers drop what comes under the ledger's present name: by the record ``foreign`` they came to an
        earlier one, of which the topic held nothing any more.
    """

    seq: int
    end: int
    foreign: Record | None
    name: bytes | None = None
    is_outdated: bool = False


async def compare(log: Log, outbox: Outbox, shard: int, noted: int, compared: int, name: bytes) -> Tail:
    """Compare the end of a shard's partition with the ledger's rows, byte by byte.

    Nothing is believed that the ledger does not say itself, since others may have written the records. What
    is not found, behind records that cannot be read or too many foreign ones, is published again.

    Parameters
    ----------
    noted : int
        The last seq that the ledger notes as published.
    compared : int
        Foreign records below this offset were reported before.
    name : bytes
        The ledger's present name.
    """
    at = TopicPartition(DECISIONS_TOPIC, shard)
    reader = await log.reader()
    try:
        first = (await reader.first_offsets([at]))[at]
        await reader.assign({at: first})
        end = (await reader.end_offsets())[at]
        start = max(first, end - _RECORDS_MAX)
        await reader.assign({at: start})
        records: list[Record] = []
        quiet_count = 0
        while await reader.position(at) < end and quiet_count < _QUIET_POLLS_MAX:
            found = await reader.poll(limits.poll_records_max, timeout_seconds=0.5)
            records += found
            if not found:
                await reader.end_offsets()  # a log that is away is not quiet
                quiet_count += 1
    except LogTruncated as error:  # its records went while we looked
        _LOGGER.warning("publishing on from the ledger's cursor: %s", error)
        return Tail(noted, end, None)
    finally:
        await reader.aclose()
    seqs = [seq_of(record, shard) for record in records]
    rows = {row.seq: row for row in await outbox.decisions(shard, sorted({seq for seq in seqs if seq}))}
    kept_from = await outbox.kept_from(shard)  # what was pruned cannot be compared any more
    is_own = [
        is_row(record, rows.get(seq)) or (0 < seq < kept_from and seq not in rows)
        for seq, record in zip(seqs, records, strict=True)
    ]
    own = [seq for seq, said in zip(seqs, is_own, strict=True) if said]
    others = (record for record, said in zip(records, is_own, strict=True) if not said)
    if compared > end:  # the topic was cut, or made anew
        compared = 0
    foreign = next((record for record in others if record.offset >= compared), None)
    # What lies before the records that were read, consumers have.
    agreed = 0 if start == 0 else min(noted, own[0] - 1) if own else noted
    follower, turn = Follower(agreed), None  # the record by which consumers came to their last name
    for seq, record, said in zip(seqs, records, is_own, strict=True):
        if not seq or (record.ledger is None and not said):
            continue
        had = follower.name
        step = follower.take_record(seq, record.ledger, after_of(record))
        turn = record if follower.name != had else turn
        if step.is_taken:
            agreed = seq if said and agreed >= step.before else min(agreed, step.before)
    is_outdated = follower.has_passed(name)
    return Tail(agreed, end, turn if is_outdated else foreign, follower.name, is_outdated)


def is_row(record: Record, row: OutboxItem | None) -> bool:
    """Return whether a record is what the ledger's row says, byte by byte."""
    return row is not None and (record.key, record.value) == (row.key, row.value)


def seq_of(record: Record, shard: int) -> int:
    """Return the seq that a record claims to have, or 0 where it is no decision of this shard."""
    try:
        of, _, seq = _decode_id(record.value or b"").id.partition("-")
        number = int(seq) if of == str(shard) and seq.isdecimal() and len(seq) < 19 else 0
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return 0
    return number


def after_of(record: Record) -> int | None:
    """Return which decision was kept before a record's, where those between were pruned."""
    said = record.after or b""
    return int(said) if said.isdigit() and len(said) < 19 else None


def describe(tail: Tail, shard: int) -> str:
    """Say what is wrong with the first foreign record, and what it means."""
    assert tail.foreign is not None
    topic, partition, offset = tail.foreign[:3]
    where = f"topic {topic}, partition {partition}, offset {offset}"
    if tail.is_outdated:
        return (
            f"{where}: a late relay wrote under an earlier name of the ledger, of which the topic held "
            "nothing any more; so consumers drop what comes under the present name"
        )
    if seq := seq_of(tail.foreign, shard):
        return (
            f"{where}: decision {shard}-{seq} is not the ledger's; the ledger was set back (a backup, a "
            "fail-over) or another client writes the topic, and consumers have followed what the ledger lost"
        )
    return f"{where}: the record is not a decision of this ledger; another client writes the topic"
