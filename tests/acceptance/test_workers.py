"""Do workers schedule side by side on the real parts, share the shards, and take over what one leaves?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from domain.model.limits import lease_seconds
from services.adapters.postgres.audit import check
from services.ports.log import NODES_TOPIC, PODS_TOPIC
from tests.acceptance.deployment import Deployment, produce
from tests.builders import event, node_manifest, pod_manifest
from tests.servers import MakeDatabase

SHARDS, NODES, PODS = 4, 100, 2_000
WAVES, CHECKPOINT_BATCHES = 10, 5
TAKING_SECONDS_MAX = 3.0

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

_OWNERS = """
SELECT owner, count(*) FROM worker_leases WHERE expires_at > clock_timestamp() GROUP BY owner
"""
_BINDERS = """
SELECT l.owner, count(*) FROM placements p JOIN worker_leases l USING (shard) GROUP BY l.owner
"""


def _nodes() -> list[tuple[str, str, bytes]]:
    nodes = [node_manifest(f"n{i}", cpu=8, memory="32Gi", pods=110) for i in range(NODES)]
    return [(NODES_TOPIC, f"n{i}", orjson.dumps(event("ADDED", node))) for i, node in enumerate(nodes)]


def _pods(numbers: range) -> list[tuple[str, str, bytes]]:
    pods = {
        f"p{i}": pod_manifest(f"p{i}", cpu=f"{100 + i % 5}m", memory="64Mi", uid=f"p{i}") for i in numbers
    }
    return [(PODS_TOPIC, f"default/{name}", orjson.dumps(event("ADDED", p))) for name, p in pods.items()]


class _Site:
    """Processes of berth, and the ledger as it is."""

    def __init__(self, deployment: Deployment, connection: asyncpg.Connection) -> None:
        self.deployment, self.connection = deployment, connection

    def start(self, name: str) -> None:
        """Start a worker."""
        told = ("--worker-name", name, "--checkpoint-batches", str(CHECKPOINT_BATCHES))
        self.deployment.start(name, "worker", *told)

    async def owners(self) -> dict[str, int]:
        """Who holds how many shards."""
        return dict(await self.connection.fetch(_OWNERS))

    async def checkpoint(self) -> int:
        """After which batch of shard 0 the last checkpoint was taken."""
        return await self.connection.fetchval("SELECT max(batch) FROM checkpoints") or 0

    async def placed(self) -> int:
        """How many pods have a node."""
        return int(
            await self.connection.fetchval("SELECT count(*) FROM placements WHERE released_at_ms IS NULL")
        )

    async def until(self, what: Callable[[], Any], wanted: object, seconds: float = 60.0) -> float:
        """Wait until something is as wanted; return how long it took."""
        began = time.monotonic()
        while (found := await what()) != wanted:
            took = time.monotonic() - began
            assert took < seconds, f"{found} instead of {wanted} after {took:.1f} s"
            await asyncio.sleep(0.02)
        return time.monotonic() - began


@asynccontextmanager
async def _site(dsn: str, kafka: str, logs: Path) -> AsyncIterator[_Site]:
    deployment = Deployment(dsn, kafka, logs)
    deployment.run("init", "--shards", str(SHARDS))
    connection = await asyncpg.connect(dsn)
    try:
        yield _Site(deployment, connection)
    finally:
        await connection.close()
        deployment.stop()


async def test_two_workers_bind_side_by_side_one_is_killed_and_others_join(
    fresh_kafka: str, postgres_dsn: str, database: MakeDatabase, tmp_path: Path
) -> None:
    dsn = await database(postgres_dsn)
    async with _site(dsn, fresh_kafka, tmp_path) as site:
        for name in ("a", "b"):
            site.start(name)
        await site.until(site.owners, {"a": 2, "b": 2})
        before, count = await site.checkpoint(), PODS // 2 // WAVES
        await produce(fresh_kafka, _nodes())
        for wave in range(WAVES):
            await produce(fresh_kafka, _pods(range(wave * count, (wave + 1) * count)))
            await site.until(site.placed, (wave + 1) * count)
        assert await site.owners() == {"a": 2, "b": 2}
        assert await site.checkpoint() > before, "both work, and the journal may be pruned"
        binders = dict(await site.connection.fetch(_BINDERS))
        assert binders.keys() == {"a", "b"}, "both bind pods"

        await produce(fresh_kafka, _pods(range(PODS // 2, PODS)))
        site.deployment.kill("a")
        took = await site.until(site.owners, {"b": SHARDS})
        assert took <= lease_seconds + TAKING_SECONDS_MAX
        await site.until(site.placed, PODS)
        assert await site.connection.fetchval("SELECT count(*) FROM pending") == 0

        for name in ("c", "d"):
            site.start(name)

        async def shares() -> list[int]:
            return sorted((await site.owners()).values())

        await site.until(shares, [1, 1, 2])
        await produce(fresh_kafka, _pods(range(PODS, PODS + 400)))
        await site.until(site.placed, PODS + 400)
        assert not [found for found in await check(dsn) if not found.warning]

        site.deployment.stop()
        again = orjson.loads(site.deployment.run("replay", "-o", "json"))
        assert again["difference"] is None
        assert again["progress"]["batches_count"] == again["progress"]["total"] > 0
        last = await site.checkpoint()
        again = orjson.loads(site.deployment.run("replay", "--from", str(last), "-o", "json"))
        assert again["difference"] is None
        assert 0 < again["progress"]["checkpoint"] < last
