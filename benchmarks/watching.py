"""Watches the ledger on a connection of its own: how far the worker is, and what it decided."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

import asyncpg

from benchmarks.stage import BenchError
from benchmarks.statistics import Sightings

_ANSWER_SECONDS_MAX = 600
_SHARDS = (
    "SELECT shard, seq_next, dead_seq_next, owner IS NOT NULL AS owned"
    " FROM shards LEFT JOIN worker_leases USING (shard) ORDER BY shard"
)
_OFFSETS = "SELECT topic, next_offset FROM shard_offsets"
_DECISIONS = (
    "SELECT shard, seq, namespace, name, outcome, signature FROM decisions WHERE shard = $1 AND seq >= $2"
)
_PENDING = "SELECT count(*) FROM pending"
_LETTER = "SELECT code, path, message FROM dead_letters LIMIT 1"
_IDLE_POLL_SECONDS = 0.02


class Decided(NamedTuple):
    """One decision: ``key`` is the pod's namespace/name."""

    shard: int
    seq: int
    key: bytes
    outcome: str
    signature: bytes


class Watcher:
    """Reads the ledger. ``check`` is called at each poll, and raises when waiting has become pointless."""

    def __init__(self, connection: Any, check: Callable[[], None]) -> None:
        self._connection = connection
        self._check = check
        self.sightings = Sightings()
        self.polls = 0

    async def backend_pid(self) -> int:
        """Return the process of the server that answers this watcher."""
        return int(await self._connection.fetchval("SELECT pg_backend_pid()"))

    async def server_version(self) -> str:
        """Return the version of the database server."""
        return str(await self._connection.fetchval("SHOW server_version"))

    async def until_owned(self) -> None:
        """Wait until a worker holds all shards."""
        while not all(row["owned"] for row in await self._shards()):
            await asyncio.sleep(_IDLE_POLL_SECONDS)

    async def seq_next(self) -> dict[int, int]:
        """Return the next seq of each shard."""
        return {row["shard"]: row["seq_next"] for row in await self._shards()}

    async def until_folded(self, wanted: Mapping[str, int]) -> None:
        """Wait until a number of records of each topic have taken effect.

        The topics must hold nothing else.
        """
        while True:
            await self._shards()
            folded: Counter[str] = Counter()
            for row in await self._connection.fetch(_OFFSETS):
                folded[row["topic"]] += row["next_offset"]
            if all(folded[topic] >= count for topic, count in wanted.items()):
                return
            await asyncio.sleep(_IDLE_POLL_SECONDS)

    async def until_decided(self, first: Mapping[int, int], pods: int, poll_seconds: float) -> float:
        """Poll until a number of decisions from ``first`` on are durable; return when that was first seen."""
        wanted = sum(first.values()) + pods
        following = time.perf_counter()
        while True:
            rows = await self._shards()
            at = time.perf_counter()
            self.polls += 1
            self.sightings.see(at, {row["shard"]: row["seq_next"] for row in rows})
            if sum(row["seq_next"] for row in rows) >= wanted:
                return at
            following = max(following + poll_seconds, at)
            await asyncio.sleep(following - at)

    async def decided(self, first: Mapping[int, int]) -> list[Decided]:
        """Return all decisions from ``first`` on."""
        found = []
        for shard, seq in first.items():
            for row in await self._connection.fetch(_DECISIONS, shard, seq):
                key = f"{row['namespace']}/{row['name']}".encode()
                found.append(Decided(shard, row["seq"], key, row["outcome"], row["signature"]))
        return found

    async def pending(self) -> int:
        """Return how many pods wait."""
        return int(await self._connection.fetchval(_PENDING))

    async def _shards(self) -> list[Any]:
        self._check()
        rows: list[Any] = await self._connection.fetch(_SHARDS)
        if any(row["dead_seq_next"] > 1 for row in rows):
            raise BenchError(f"a record was refused: {tuple(await self._connection.fetchrow(_LETTER))}")
        return rows


@contextlib.asynccontextmanager
async def watching(dsn: str, check: Callable[[], None]) -> AsyncIterator[Watcher]:
    """Open a watcher's connection."""
    connection = await asyncpg.connect(
        dsn, command_timeout=_ANSWER_SECONDS_MAX, server_settings={"application_name": "berth-bench"}
    )
    try:
        yield Watcher(connection, check)
    finally:
        await connection.close()
