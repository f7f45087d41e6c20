"""Writes the journal and checkpoints of the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec

from domain.model.errors import Fenced
from services.adapters.postgres import sql
from services.adapters.postgres.connections import Connection
from services.adapters.postgres.following import Following
from services.adapters.postgres.loading import read_head, read_parts
from services.adapters.postgres.rows import json_text
from services.codec.checkpoint import pack_head, pack_rows
from services.codec.feed import unpack_feed
from services.codec.settling import outcome_of
from services.ports.journal import Checkpoint, Journalled, JournalRow
from services.ports.ledger import CommitBatch, Committed

_decode_ids = msgspec.json.Decoder(list[int]).decode
_decode_moved = msgspec.json.Decoder(dict[int, int]).decode

_INSERT = """
INSERT INTO journal (shard, batch, start, renewed, lanes, record_order, seqs, log_time_ms,
    decisions_hash, effects, digest, worker, owned, followed, forgotten, lost, moved, feed)
VALUES ($1, $2, $3::text::json, $4, $5::text::json, $6, $7::text::json, $8, $9, $10::text::json, $11,
    $12, $13::text::json, $14::text::json, $15::text::json, $16::text::json, $17::text::json, $18)
RETURNING recorded_at
"""


async def write(connection: Connection, row: JournalRow) -> datetime.datetime:
    """Write the row of a batch, in its transaction; return when the ledger recorded it."""
    recorded_at: datetime.datetime = await connection.fetchval(
        _INSERT,
        row.shard,
        row.batch,
        json_text(row.start) if row.start else None,
        row.renewed,
        json_text(row.lanes),
        row.order,
        json_text(row.seqs),
        row.log_time_ms,
        row.decisions_hash,
        json_text(row.effects),
        row.digest,
        row.worker,
        json_text(row.owned) if row.owned else None,
        json_text(row.followed) if row.followed else None,
        json_text(row.forgotten) if row.forgotten else None,
        json_text(row.lost) if row.lost else None,
        json_text(row.moved) if row.moved else None,
        row.feed,
    )
    return recorded_at


async def settled(connection: Connection, batch: CommitBatch, following: Following) -> Committed:
    """Return what became of the claims of a batch that is in the ledger, by its row, and note the batch."""
    if batch.journal.row is None:
        return Committed()
    row = await connection.fetchrow(_SETTLED, batch.journal.row.shard, batch.journal.row.batch)
    if row is None:
        return Committed()
    following.know(batch.journal.row, row["recorded_at"])
    lost_nodes, moved = set(_decode_ids(row["lost"] or "[]")), _decode_moved(row["moved"] or "{}")
    return outcome_of(batch, lost_nodes, moved, unpack_feed(row["feed"]).raised)


_SETTLED = "SELECT lost, moved, feed, recorded_at FROM journal WHERE shard = $1 AND batch = $2"
_END = """
SELECT batch, CASE WHEN position = (SELECT max(position) FROM journal) THEN digest END AS digest,
    (SELECT max(c.batch) FROM checkpoints c WHERE c.shard = $1) AS checkpoint
FROM journal WHERE shard = $1 ORDER BY batch DESC LIMIT 1
"""
_LAST_CHECKPOINT = "SELECT max(batch) FROM checkpoints WHERE shard = $1"


async def end(connection: Connection, shard: int) -> Journalled | None:
    """Return where the journal of a shard ends."""
    if (row := await connection.fetchrow(_END, shard)) is not None:
        return Journalled(*row)
    checkpoint = await connection.fetchval(_LAST_CHECKPOINT, shard)
    return None if checkpoint is None else Journalled(0, None, checkpoint)


# ------------------------------------------------------------------------------------------------ checkpoints

_ROWS_PER_PART = 5_000
_ADD_PART = """
INSERT INTO checkpoint_parts (shard, batch, part, kind, body) VALUES ($1, $2, $3, $4, $5)
"""
# No other worker drops parts meanwhile. One that was paused for longer than its lease may find its own gone.
_ALONE = "LOCK TABLE checkpoints IN SHARE ROW EXCLUSIVE MODE"
_ADD_CHECKPOINT = """
INSERT INTO checkpoints (shard, batch, start, head, parts_count, bytes_count)
SELECT $1::int, $2::bigint, $3::text::json, $4::text::json, $5, $6::bigint
WHERE (SELECT count(*) FROM checkpoint_parts WHERE shard = $1 AND batch = $2) = $5::int
"""
_DROP = """
WITH gone AS (DELETE FROM checkpoints WHERE shard = $1 AND batch = $2)
DELETE FROM checkpoint_parts WHERE shard = $1 AND batch = $2
"""
_KEEP = """
WITH oldest AS (
    SELECT coalesce(min(batch), 0) AS batch FROM (
        SELECT batch FROM checkpoints WHERE shard = $1 ORDER BY batch DESC LIMIT $2
    ) AS kept
), gone AS (
    DELETE FROM checkpoints c USING oldest o WHERE c.shard = $1 AND c.batch < o.batch
)
DELETE FROM checkpoint_parts p USING oldest o WHERE p.shard = $1 AND (
    p.batch < o.batch
    OR p.batch < $3 AND NOT EXISTS (SELECT FROM checkpoints c WHERE c.shard = $1 AND c.batch = p.batch)
)
"""


@contextlib.asynccontextmanager
async def held_at(source: Connection, at: Checkpoint) -> AsyncIterator[dict[str, Any]]:
    """Hold the ledger's state of now for as long as the context is open; return its head (``read_head``).

    No worker waits for what is read of it: it is a snapshot.

    Raises
    ------
    Fenced
        The ledger has left the batch of the checkpoint.
    """
    async with source.transaction(isolation="repeatable_read", readonly=True):
        owned = sorted(at.start.leases)
        epochs = {row["shard"]: row["epoch"] for row in await source.fetch(sql.READ_SHARDS, owned)}
        head = await read_head(source, owned)
        if epochs != at.start.leases or not at.offsets.items() <= head["offsets"].items():
            raise Fenced(f"the ledger has left batch {at.batch}")
        yield head


async def write_checkpoint(
    source: Connection, to: Connection, at: Checkpoint, kept: int, head: dict[str, Any]
) -> None:
    """Write what ``source`` holds. Each part is a step of about 20 ms; it is packed in a thread.

    Raises
    ------
    Fenced
        Another worker has taken over and writes checkpoints.
    """
    key = at.shard, at.batch
    await to.execute(_DROP, *key)
    parts_count = bytes_count = 0
    for kind, rows in read_parts(source, sorted(at.start.leases)):
        async for chunk in _chunks(rows):
            body = await asyncio.to_thread(pack_rows, chunk)
            await _add_part(to, *key, parts_count, kind, body)
            parts_count += 1
            bytes_count += len(body)
    start, told = json_text(at.start), pack_head(**head)
    async with to.transaction():
        await to.execute(_ALONE)
        added = await to.execute(_ADD_CHECKPOINT, *key, start, told, parts_count, bytes_count)
        if added != "INSERT 0 1":
            raise Fenced(f"another worker dropped parts of the checkpoint after batch {at.batch}")
        await to.execute(_KEEP, at.shard, kept, at.batch)


async def _add_part(to: Connection, *part: Any) -> None:
    try:
        await to.execute(_ADD_PART, *part)
    except asyncpg.UniqueViolationError as error:
        raise Fenced(f"another worker writes this checkpoint: {error.detail}") from error


async def _chunks(rows: AsyncIterator[Any]) -> AsyncIterator[list[Any]]:
    chunk: list[Any] = []
    async for row in rows:
        chunk.append(row)
        if len(chunk) == _ROWS_PER_PART:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
