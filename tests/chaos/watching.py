"""Tells the producers of a day what was decided, as who runs pods would hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg

from tests.chaos.servers import Servers

_PAUSE_SECONDS = 0.05
_NEW = """
SELECT d.shard, d.seq, d.pod_uid, d.outcome, d.node FROM decisions d
JOIN unnest($1::int[], $2::bigint[]) AS s (shard, seq) ON d.shard = s.shard AND d.seq > s.seq
ORDER BY d.recorded_at, d.shard, d.seq
"""


async def watch(servers: Servers, shards: int, tell: Callable[[str, str, str | None], None]) -> None:
    """Call ``tell`` with the uid, outcome and node of each decision, until cancelled."""
    seen = dict.fromkeys(range(shards), 0)
    while True:
        try:
            async with servers.connected() as connection:
                while True:
                    for row in await connection.fetch(_NEW, list(seen), list(seen.values())):
                        seen[row["shard"]] = row["seq"]
                        tell(row["pod_uid"], row["outcome"], row["node"])
                    await asyncio.sleep(_PAUSE_SECONDS)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await asyncio.sleep(_PAUSE_SECONDS)
