"""Sets a ledger back to read what the log says of its pods once more, without placing any of them anew."""

from __future__ import annotations

from collections.abc import Mapping

from services.adapters.postgres.connections import BULK, fresh
from services.ports.log import TopicPartition

# Records that a shard has not read yet stay as they are: they are read for the first time.
_REFOLD_OFFSETS = """
UPDATE shard_offsets o
SET next_offset = w.first, refold_below = least(greatest(o.next_offset, o.refold_below), w.past)
FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bigint[]) AS w (topic, partition, first, past)
WHERE (o.topic, o.partition) = (w.topic, w.partition) AND o.next_offset > w.first
"""
# Without a version, no record of a pod is older than what is known of it.
_REFOLD_PLACEMENTS = "UPDATE placements SET resource_version = NULL WHERE released_at_ms IS NULL"
_REFOLD_PENDING = "UPDATE pending SET resource_version = NULL"
_REFOLD_ASKED = "UPDATE shards SET refold = false"


async def refold(dsn: str, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Let the shards read these partitions again, each from its first record to the end of its last one.

    The caller holds all shards. What the shards have not read yet is not read earlier than by then.
    """
    columns = [
        (at.topic, at.partition, first, end) for at, (first, end) in sorted(spans.items()) if first < end
    ]
    async with fresh(dsn, "berth-refold", BULK) as connection, connection.transaction():
        if columns:
            await connection.execute(_REFOLD_OFFSETS, *map(list, zip(*columns, strict=True)))
        await connection.execute(_REFOLD_PLACEMENTS)
        await connection.execute(_REFOLD_PENDING)
        await connection.execute(_REFOLD_ASKED)
