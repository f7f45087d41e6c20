"""Keeps the embedded log from growing for ever, by the rules of Kafka: compaction, and retention by time."""

from __future__ import annotations

import asyncio

from services.adapters.embedded import statements as sql
from services.adapters.postgres.connections import Session
from services.adapters.postgres.tidying import PAUSE_SECONDS

ROWS_MAX = 5_000  # of a step
_FOUND_MAX = 50_000  # superseded records that are looked for at once


async def keep_for(session: Session, hours: int, pause_seconds: float = PAUSE_SECONDS) -> None:
    """Delete what is older: superseded records of compacted topics, all records of the others.

    A compacted topic keeps the last record of each key; a tombstone goes after twice the time.
    """
    async with session.use() as connection:
        partitions = await connection.fetch(sql.PARTITIONS, hours * 3_600_000)
    for topic, partition, is_compacted, before_ms in partitions:
        at = (topic, partition)
        if not is_compacted:
            await _cut(session, at, before_ms, pause_seconds)
        else:
            await _compact(session, at, before_ms, before_ms - hours * 3_600_000, pause_seconds)


async def _compact(
    session: Session, at: tuple[str, int], before_ms: int, tombstones_before_ms: int, pause_seconds: float
) -> None:
    while True:
        async with session.use() as connection:
            found = await connection.fetch(sql.SUPERSEDED, *at, before_ms, tombstones_before_ms, _FOUND_MAX)
        offsets = [row["log_offset"] for row in found]
        for start in range(0, len(offsets), ROWS_MAX):
            async with session.use() as connection:
                await connection.execute(sql.DELETE_RECORDS, *at, offsets[start : start + ROWS_MAX])
            await asyncio.sleep(pause_seconds)
        if len(offsets) < _FOUND_MAX:
            return


async def _cut(session: Session, at: tuple[str, int], before_ms: int, pause_seconds: float) -> None:
    count = ROWS_MAX
    while count == ROWS_MAX:
        async with session.use() as connection:
            count = await connection.fetchval(sql.CUT, *at, before_ms, ROWS_MAX)
        await asyncio.sleep(pause_seconds)
