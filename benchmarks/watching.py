"""Watches the ledger on a connection of its own: how far the worker is, and what it decided."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

import asyncpg
import numpy as np

from benchmarks.stage import BenchError
from benchmarks.statistics import Sightings

_ANSWER_SECONDS_MAX = 600
_SHARDS = (
    "SELECT shard, seq_next, dead_seq_next, owner"
    " FROM shards LEFT JOIN worker_leases USING (shard) ORDER BY shard"
)
_OFFSETS = "SELECT topic, next_offset FROM shard_offsets"
_DECISIONS = (
    "SELECT shard, seq, namespace, name, outcome, signature FROM decisions"
    " WHERE shard = $1 AND seq >= $2 AND outcome <> 'conflict'"
)
_CONFLICTS = "SELECT count(*) FROM decisions WHERE outcome = 'conflict'"
_CPU_USE = """
SELECT requested[cpu.id]::float8 / nullif(allocatable[cpu.id], 0) AS used
FROM nodes, (SELECT id FROM resources WHERE name = 'cpu') AS cpu WHERE NOT deleted
"""
_PENDING = "SELECT count(*) FROM pending"
_LETTER = "SELECT code, path, message FROM dead_letters LIMIT 1"
_IDLE_POLL_SECONDS = 0.02
_BALANCE_SECONDS_MAX = 20.0


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

    async def until_owned(self, workers: int) -> int:
        """Wait until workers hold all shards, an equal part each if they come to that; return how many do."""
        deadline = time.perf_counter() + _BALANCE_SECONDS_MAX
        while True:
            rows = await self._shards()
            owners = Counter(row["owner"] for row in rows)
            is_even = len(owners) == workers and max(owners.values()) <= -(-len(rows) // workers)
            if None not in owners and (is_even or (workers > 1 and time.perf_counter() > deadline)):
                return len(owners)
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
        """Poll until so many pods are decided from ``first`` on; return when that was first seen.

        A decision that another worker's came before is no pod's last.
        """
        wanted = sum(first.values()) + pods
        following = time.perf_counter()
        while True:
            rows = await self._shards()
            at = time.perf_counter()
            self.polls += 1
            self.sightings.see(at, {row["shard"]: row["seq_next"] for row in rows})
            made = sum(row["seq_next"] for row in rows)
            if made >= wanted and made >= wanted + await self._connection.fetchval(_CONFLICTS):
                return at
            following = max(following + poll_seconds, at)
            await asyncio.sleep(following - at)

    async def decided(self, first: Mapping[int, int]) -> list[Decided]:
        """Return all decisions from ``first`` on that held."""
        found = []
        for shard, seq in first.items():
            for row in await self._connection.fetch(_DECISIONS, shard, seq):
                key = f"{row['namespace']}/{row['name']}".encode()
                found.append(Decided(shard, row["seq"], key, row["outcome"], row["signature"]))
        return found

    async def cpu_use_std(self) -> float:
        """Return the standard deviation over the nodes of the share of their CPU that is requested."""
        return float(np.std([row["used"] or 0.0 for row in await self._connection.fetch(_CPU_USE)]))

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
