"""Do pods of high priority get the room of others on the real parts, when an executor ends those that go?"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import asyncpg
import orjson
import pytest

from services.adapters.postgres.audit import check
from services.ports.log import NODES_TOPIC, PODS_TOPIC
from tests.acceptance.deployment import Deployment, produce
from tests.builders import Json, event, node_manifest, pod_manifest
from tests.servers import MakeDatabase

SHARDS, NODES = 2, 40
LOW_PER_NODE, GO_PER_NODE = 4, 3
WAIT_SECONDS_MAX = 90.0

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

_PLACED = """
SELECT split_part(name, '-', 1) AS kind, count(*) FROM placements WHERE released_at_ms IS NULL GROUP BY kind
"""
_TOLD = "SELECT outcome, count(*) FROM decisions GROUP BY outcome"


def _pod(kind: str, number: int, cpu: int, priority: int) -> Json:
    return pod_manifest(f"{kind}-{number}", cpu=cpu, memory="64Mi", uid=f"{kind}-{number}", priority=priority)


def _records(topic: str, *manifests: Json) -> list[tuple[str, str, bytes]]:
    prefix = "default/" if topic == PODS_TOPIC else ""
    names = (prefix + each["metadata"]["name"] for each in manifests)
    return [
        (topic, name, orjson.dumps(event("ADDED", each))) for name, each in zip(names, manifests, strict=True)
    ]


async def _until(connection: asyncpg.Connection, query: str, wanted: dict[str, int]) -> dict[str, int]:
    """Wait until a query counts as many as wanted of each kind, or more."""
    began = time.monotonic()
    while True:
        found = dict(await connection.fetch(query))
        if all(found.get(kind, 0) >= count for kind, count in wanted.items()):
            return found
        assert time.monotonic() - began < WAIT_SECONDS_MAX, f"{found} instead of {wanted}"
        await asyncio.sleep(0.05)


async def test_victims_leave_and_preemptors_come_though_processes_are_killed(
    fresh_kafka: str, postgres_dsn: str, database: MakeDatabase, tmp_path: Path
) -> None:
    deployment = Deployment(await database(postgres_dsn), fresh_kafka, tmp_path)
    deployment.run("init", "--shards", str(SHARDS))
    connection = await asyncpg.connect(deployment.dsn)
    nodes = [node_manifest(f"n{i}", cpu=8, memory="32Gi", pods=110) for i in range(NODES)]
    low = [_pod("low", i, 2, 0) for i in range(NODES * LOW_PER_NODE)]
    executor = ("executor", "--positions", str(tmp_path / "positions"))
    high = [_pod("high", i, 2 * GO_PER_NODE, 1_000) for i in range(NODES)]
    try:
        for name, command in (("a", "worker"), ("b", "worker"), ("relay", "relay")):
            options = ["--worker-name", name] if command == "worker" else []
            deployment.start(name, command, *options)
        await produce(fresh_kafka, [*_records(NODES_TOPIC, *nodes), *_records(PODS_TOPIC, *low)])
        await _until(connection, _PLACED, {"low": len(low)})

        await produce(fresh_kafka, _records(PODS_TOPIC, *high))
        await _until(connection, _TOLD, {"nominated": NODES // 2})
        deployment.kill("a")
        deployment.start("executor", *executor)
        await _until(connection, _TOLD, {"released": NODES // 2})
        deployment.kill("executor")
        deployment.start("executor", *executor)
        placed = await _until(connection, _PLACED, {"high": NODES})

        told = dict(await connection.fetch(_TOLD))
        gone = told["evicted"] - told.get("spared", 0)
        assert placed["low"] == len(low) - told["released"] == len(low) - gone == NODES
        assert await connection.fetchval("SELECT count(*) FROM nominations") == 0
        assert not [found for found in await check(deployment.dsn) if not found.warning]

        deployment.stop()
        again = orjson.loads(deployment.run("replay", "-o", "json"))
        assert again["difference"] is None
    finally:
        await connection.close()
        deployment.stop()
