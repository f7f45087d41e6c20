"""Reads and writes what shards hand over to each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from services.adapters.postgres.connections import Connection
from services.ports.inbox import Forwarded, Handed, Waiting, is_lane
from services.ports.ledger import BatchPods, CommitBatch

# The offset row of an inbox comes with its first use. A batch that has another number is fenced by it.
_BEGIN_LANES = """
INSERT INTO shard_offsets (shard, topic, partition, epoch, next_offset)
SELECT *, 0 FROM unnest($1::int[], $2::text[], $3::int[], $4::bigint[]) ON CONFLICT DO NOTHING
"""
_FORWARD = """
INSERT INTO forwarded (shard, key, home, uid, gone_number, gone_at_ms)
SELECT * FROM unnest($1::int[], $2::text[], $3::int[], $4::text[], $5::bigint[], $6::bigint[])
ON CONFLICT (shard, key, uid) DO UPDATE SET home = excluded.home,
    gone_number = excluded.gone_number, gone_at_ms = excluded.gone_at_ms
"""
READ = """
SELECT i.* FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[]) AS w (home, source, lo, hi)
CROSS JOIN LATERAL (
    SELECT home, source, number, log_offset, key, value, at_ms, seal FROM inbox
    WHERE home = w.home AND source = w.source AND number >= w.lo AND number < w.hi ORDER BY number LIMIT $5
) AS i ORDER BY i.home, i.source, i.number
"""
LOAD_LANES = "SELECT shard, topic, next_offset FROM shard_offsets WHERE topic LIKE '~%/%'"
LOAD_FORWARDED = """
SELECT shard, key, home, uid, gone_number, gone_at_ms FROM forwarded
WHERE shard = ANY($1::int[]) ORDER BY shard, key COLLATE "C", uid COLLATE "C"
"""


async def begin_lanes(connection: Connection, batch: CommitBatch) -> None:
    """Make the offset rows that a batch is the first to use."""
    new = [advance[:4] for advance in batch.offsets.advances if not advance.lo and is_lane(advance.topic)]
    if new:
        await connection.execute(_BEGIN_LANES, *map(list, zip(*sorted(new), strict=True)))


async def write(connection: Connection, pods: BatchPods) -> None:
    """Write what a batch handed over."""
    if pods.handed:
        rows, columns = [tuple(row) for row in pods.handed], Handed._fields
        await connection.copy_records_to_table("inbox", records=rows, columns=columns)
    if pods.forwarded:
        await connection.execute(_FORWARD, *map(list, zip(*pods.forwarded, strict=True)))


async def read(connection: Connection, waiting: Sequence[Waiting], rows_max: int) -> Sequence[Handed]:
    """See ``Ledger.read_inbox``."""
    each_max = max(1, rows_max // max(1, len(waiting)))
    columns = [list(column) for column in zip(*waiting, strict=True)]
    found, nexts = [], {(home, source): lo for home, source, lo, _ in waiting}
    for row in await connection.fetch(READ, *columns, each_max) if waiting else ():
        if nexts[row["home"], row["source"]] == row["number"]:
            nexts[row["home"], row["source"]] += 1
            found.append(Handed(*row))
    return found


async def forwarded(rows: AsyncIterator[Any]) -> AsyncIterator[Forwarded]:
    """Yield rows of the table."""
    async for row in rows:
        yield Forwarded(*row)
