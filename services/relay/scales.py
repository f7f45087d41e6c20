"""Where to go on in ``berth.scales``: behind the last scale of the ledger that the topic holds."""

from __future__ import annotations

from domain.model import limits
from domain.model.errors import LogTruncated
from services.ports.log import SCALES_TOPIC, Log, Record, TopicPartition
from services.ports.outbox import Outbox, Stream

_AT = TopicPartition(SCALES_TOPIC, 0)
_QUIET_POLLS_MAX = 20


async def last_published(log: Log, outbox: Outbox, noted: int, ledger: bytes) -> int:
    """Return the last seq up to which the topic holds all scales, byte by byte, under the ledger's name.

    A relay notes each batch before it publishes the next, so what it did not note is at the end of the topic.
    What is not found there is published again.

    Parameters
    ----------
    noted : int
        The last seq that the ledger notes as published.
    """
    rows = await outbox.unpublished(0, Stream.SCALES, noted, limits.poll_records_max)
    if not rows:
        return noted
    found = {(record.key, record.value) for record in await _end_of_topic(log) if record.ledger == ledger}
    for row in rows:
        if (row.key, row.value) not in found:
            break
        noted = row.seq
    return noted


async def _end_of_topic(log: Log) -> list[Record]:
    reader, records = await log.reader(), list[Record]()
    try:
        first = (await reader.first_offsets([_AT]))[_AT]
        await reader.assign({_AT: first})
        end = (await reader.end_offsets())[_AT]
        await reader.assign({_AT: max(first, end - 2 * limits.poll_records_max)})
        quiet_count = 0
        while await reader.position(_AT) < end and quiet_count < _QUIET_POLLS_MAX:
            polled = await reader.poll(limits.poll_records_max, timeout_seconds=0.5)
            records += polled
            if not polled:
                await reader.end_offsets()  # a log that is away is not quiet
                quiet_count += 1
    except LogTruncated:  # its records went while we looked: what is left is published again
        return []
    finally:
        await reader.aclose()
    return records
