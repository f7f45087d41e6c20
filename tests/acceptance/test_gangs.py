"""Are gangs whose pods come by several partitions placed whole, though a worker dies in between?"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

import asyncpg
import orjson
import pytest

from domain.model.pods import POD_GROUP_LABEL
from services.codec.partition import partition_for
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC
from tests.acceptance.deployment import Deployment, produce
from tests.builders import Json, event, node_manifest, pod_group_manifest, pod_manifest
from tests.servers import MakeDatabase

SHARDS, NODES, GANGS, PLAIN = 4, 40, 40, 20
WAIT_SECONDS_MAX = 120.0

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

Sent = tuple[str, str, bytes]

_PLACED = "SELECT count(*) FROM placements WHERE released_at_ms IS NULL"
# Nobody leaves here, so what a transaction bound of a gang and all that was bound before run together.
_PARTS = """
SELECT gang, recorded_at, running FROM (
    SELECT DISTINCT split_part(name, '-', 1) AS gang, recorded_at,
        count(*) OVER (PARTITION BY split_part(name, '-', 1) ORDER BY recorded_at) AS running
    FROM decisions WHERE outcome = 'bound' AND name LIKE 'gang%'
) AS bound JOIN unnest($1::text[], $2::int[]) AS g (gang, least) USING (gang) WHERE running < least
"""


class _Gang(NamedTuple):
    name: str
    least: int
    size: int

    @property
    def members(self) -> list[str]:
        return [f"{self.name}-{i}" for i in range(self.size)]


def _sent(topic: str, key: str, manifest: Json) -> Sent:
    return topic, key, orjson.dumps(event("ADDED", manifest))


def _pod_group(gang: _Gang) -> Sent:
    return _sent(CONFIG_TOPIC, f"PodGroup/default/{gang.name}", pod_group_manifest(gang.name, gang.least))


def _pod(name: str, gang: str = "") -> Sent:
    labels = {POD_GROUP_LABEL: gang} if gang else {}
    return _sent(PODS_TOPIC, f"default/{name}", pod_manifest(name, cpu=1, uid=f"uid-{name}", labels=labels))


async def _until_placed(connection: asyncpg.Connection, count: int) -> None:
    began = time.monotonic()
    while (found := await connection.fetchval(_PLACED)) < count:
        assert time.monotonic() - began < WAIT_SECONDS_MAX, f"{found} of {count} pods are placed"
        await asyncio.sleep(0.05)


async def test_gangs_of_several_shards_are_placed_whole_though_a_worker_is_killed(
    fresh_kafka: str, postgres_dsn: str, database: MakeDatabase, tmp_path: Path
) -> None:
    random = Random(5)
    gangs = [_Gang(f"gang{i}", least := random.randint(2, 8), least + i % 2) for i in range(GANGS)]
    homes = {
        gang.name: {partition_for(f"default/{name}".encode(), None, SHARDS) for name in gang.members}
        for gang in gangs
    }
    assert sum(len(each) > 1 for each in homes.values()) > GANGS * 3 // 4
    nodes = [_sent(NODES_TOPIC, f"n{i}", node_manifest(f"n{i}", cpu=8)) for i in range(NODES)]
    pods = [_pod(name, gang.name) for gang in gangs for name in gang.members]
    pods += [_pod(f"plain-{i}") for i in range(PLAIN)]
    early = [*pods, *map(_pod_group, gangs[::2])]
    random.shuffle(early)
    late = list(map(_pod_group, gangs[1::2]))

    deployment = Deployment(await database(postgres_dsn), fresh_kafka, tmp_path)
    deployment.run("init", "--shards", str(SHARDS))
    connection = await asyncpg.connect(deployment.dsn)
    try:
        for name in ("a", "b"):
            deployment.start(name, "worker", "--worker-name", name)
        await produce(fresh_kafka, nodes)
        for at in range(0, len(early), 50):  # a worker dies while the others' pods are handed to it
            await produce(fresh_kafka, early[at : at + 50])
            if at == 100:
                await _until_placed(connection, 1)
                deployment.kill("a")
        await produce(fresh_kafka, late)
        deployment.start("c", "worker", "--worker-name", "c")
        await _until_placed(connection, len(pods))

        assert await connection.fetchval("SELECT count(*) FROM pending") == 0
        assert await connection.fetchval("SELECT count(*) FROM forwarded") > GANGS
        told = [gang.name for gang in gangs], [gang.least for gang in gangs]
        assert await connection.fetch(_PARTS, *told) == []
        deployment.stop()
        assert orjson.loads(deployment.run("audit", "-o", "json"))["broken"] == []
        again = orjson.loads(deployment.run("replay", "-o", "json"))
        assert again["difference"] is None
        assert again["progress"]["batches_count"] == again["progress"]["total"] > 0
    finally:
        await connection.close()
        deployment.stop()
