"""Reads what other workers did: new rows of the journal, with the templates that they name."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from domain.model.limits import followed_bytes_max, followed_rows_max, signatures_cached_max
from domain.model.pods import PodTemplate
from services.adapters.postgres.connections import Connection
from services.codec.feed import followed, unpack_feed
from services.ports.journal import BATCHES, Feed, Followed, JournalRow


def statement(rows_max: int = followed_rows_max, bytes_max: int = followed_bytes_max) -> str:
    """Return the statement: a prefix by position of all that is visible of the shards' journals."""
    return f"""
SELECT position, shard, batch, recorded_at, log_time_ms, seqs, feed
FROM (
    SELECT j.*, sum(length(j.feed)) OVER (ORDER BY j.position) - length(j.feed) AS bytes_before
    FROM unnest($1::int[], $2::bigint[]) AS seen (shard, batch)
    CROSS JOIN LATERAL (
        SELECT position, shard, batch, recorded_at, log_time_ms, seqs, feed FROM journal
        WHERE shard = seen.shard AND batch > seen.batch ORDER BY batch LIMIT {rows_max}
    ) AS j
) AS new
WHERE bytes_before < {bytes_max}
ORDER BY position LIMIT {rows_max}
"""


FOLLOW = statement()

_TEMPLATES = """
SELECT t.signature, t.spec FROM unnest($1::bytea[]) AS wanted (signature) JOIN templates t USING (signature)
"""

_LAST = """
SELECT s.shard, j.batch, j.recorded_at FROM shards s CROSS JOIN LATERAL (
    SELECT batch, recorded_at FROM journal WHERE shard = s.shard ORDER BY batch DESC LIMIT 1
) AS j
"""
# A row that is missing below the count of its shard's batches was pruned.
_IS_LOST = f"""
SELECT EXISTS (
    SELECT FROM unnest($1::int[], $2::bigint[], $3::timestamptz[]) AS known (shard, batch, recorded_at)
    LEFT JOIN journal j USING (shard, batch)
    LEFT JOIN shard_offsets o ON (o.shard, o.topic, o.partition) = (known.shard, '{BATCHES}', 0)
    WHERE j.recorded_at <> known.recorded_at
        OR (j.recorded_at IS NULL AND coalesce(o.next_offset, 0) < known.batch)
)
"""

_seqs = msgspec.json.Decoder(dict[int, tuple[int, int]]).decode
_template = msgspec.json.Decoder(PodTemplate).decode


class Following:
    """Follows the journals of other workers; equal templates are one object."""

    def __init__(self) -> None:
        self._templates: dict[bytes, PodTemplate] = {}
        self._last: dict[int, tuple[int, datetime.datetime]] = {}  # the last batch of each journal

    async def begin(self, connection: Connection) -> None:
        """Note where the journals end, as all of the ledger was read."""
        self._last = {shard: (batch, at) for shard, batch, at in await connection.fetch(_LAST)}

    def know(self, row: JournalRow, recorded_at: datetime.datetime) -> None:
        """Note a batch that this worker has written."""
        self._last[row.shard] = row.batch, recorded_at

    async def is_lost(self, connection: Connection) -> bool:
        """Say whether the ledger lacks a batch that was read or written: a snapshot was restored."""
        batches, times = zip(*self._last.values(), strict=True) if self._last else ((), ())
        return bool(await connection.fetchval(_IS_LOST, list(self._last), batches, times))

    async def follow(self, connection: Connection, seen: Mapping[int, int]) -> Sequence[Followed]:
        """See ``Ledger.follow``."""
        found = await connection.fetch(FOLLOW, list(seen), list(seen.values()))
        answer = []
        for row in found:
            feed = unpack_feed(row["feed"])
            answer.append(await self._followed(connection, row, feed))
            self._last[row["shard"]] = row["batch"], row["recorded_at"]
            await asyncio.sleep(0)  # a feed of many pods takes a millisecond
        return answer

    async def _followed(self, connection: Connection, row: Any, feed: Feed) -> Followed:
        missing = [signature for signature in feed.signatures if signature not in self._templates]
        if missing:
            if len(self._templates) >= signatures_cached_max:
                self._templates.clear()
                missing = feed.signatures
            for signature, spec in await connection.fetch(_TEMPLATES, missing):
                self._templates[signature] = _template(spec)
        known = JournalRow(
            position=row["position"],
            shard=row["shard"],
            batch=row["batch"],
            log_time_ms=row["log_time_ms"],
            seqs=_seqs(row["seqs"]),
        )
        return followed(known, feed, self._templates)
