"""Does a deployment get more shards without missing an event, and do all events of old pods find them?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from domain.model.errors import TopicMismatch
from domain.model.pods import POD_GROUP_LABEL
from services.bootstrap import Place, audit, initialise, open_ledger, open_log, run_worker
from services.codec.partition import partition_for
from services.config import Settings
from services.growing import ShardsBehind, ShardsHeld
from services.metrics import process_registry
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, TOPICS_BY_SHARD, Entry
from tests.builders import Json, event_bytes, node_manifest, pod_group_manifest, pod_manifest
from tests.integration.api_world import query
from tests.integration.live import servers
from tests.integration.lives import change
from tests.integration.lives import place as place

_MOVES = """
INSERT INTO moves SELECT node, pod_uid, coalesce(home, shard), namespace, name, 'n0', 0, 1, 2, 3, true
FROM placements WHERE released_at_ms IS NULL
"""
"""Lets all placed pods have to leave hot nodes, until a moment that has passed."""

NAMES = [f"p{i}" for i in range(24)]
PLACED, WAITING, GONE = NAMES[:12], NAMES[12:20], NAMES[20:]


def pod(name: str, version: int, **more: Any) -> Json:
    cpu = "1" if name in (*PLACED, *GONE) else "99"
    return pod_manifest(name, uid=f"u-{name}", cpu=cpu, resource_version=version, **more)


async def send(place: Place, kind: str, things: list[Json]) -> None:
    log = open_log(place)
    async with contextlib.aclosing(log), contextlib.aclosing(await log.writer()) as writer:
        for topic, of, prefix in (
            (NODES_TOPIC, "Node", ""),
            (CONFIG_TOPIC, "PodGroup", "PodGroup/default/"),
            (PODS_TOPIC, "Pod", "default/"),
        ):
            entries = [
                Entry(f"{prefix}{thing['metadata']['name']}".encode(), event_bytes(kind, thing))
                for thing in things
                if thing["kind"] == of
            ]
            await writer.append(topic, entries)


async def widen(place: Place, partitions: int) -> None:
    """Add partitions by hand, as an operator did before ``berth init`` could."""
    async with contextlib.aclosing(open_log(place)) as log:
        await log.add_partitions(TOPICS_BY_SHARD, partitions)


@contextlib.asynccontextmanager
async def working(place: Place, count: int = 1, *, drain: bool = False) -> AsyncIterator[None]:
    """Run workers, and stop them."""
    tasks = [
        asyncio.create_task(run_worker(place, Settings(worker_name=f"w{i}"), process_registry(), drain=drain))
        for i in range(count)
    ]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(place: Place, found: Callable[[dict[str, str], set[str]], bool]) -> None:
    """Wait until the nodes of placed pods and the names of those that wait are as they should be."""
    async with asyncio.timeout(120):
        while True:
            rows = await query(place, "SELECT name, node FROM placements WHERE released_at_ms IS NULL")
            waiting = {row["name"] for row in await query(place, "SELECT name FROM pending")}
            if found(dict(map(tuple, rows)), waiting):
                return
            await asyncio.sleep(0.2)


async def begun(place: Place) -> None:
    """Fill a deployment of two shards, of which some pods are placed, some wait, and some are gone."""
    await initialise(place, 2)
    async with working(place):
        await send(place, "ADDED", [node_manifest(f"n{i}", cpu=8) for i in range(4)])
        await send(place, "ADDED", [pod(name, 1) for name in NAMES])
        await until(place, lambda placed, waiting: len(placed) == 16 and len(waiting) == 8)
        await send(place, "DELETED", [pod(name, 2) for name in GONE])
        await until(place, lambda placed, waiting: placed.keys() == {*PLACED} and waiting == {*WAITING})


@pytest.mark.real
@pytest.mark.parametrize("kind", ["embedded", pytest.param("postgres", marks=pytest.mark.deep)])
async def test_events_of_old_pods_find_them_in_their_new_shards(
    kind: str, request: pytest.FixtureRequest
) -> None:
    async with servers(kind, request) as place:
        await begun(place)
        moved = [
            n for n in NAMES if len({partition_for(f"default/{n}".encode(), None, c) for c in (2, 5)}) > 1
        ]
        assert all({*moved} & {*some} for some in (PLACED, WAITING, GONE))
        await change(place, _MOVES)
        assert await initialise(place, 5) == ["5 shards laid down"]
        assert await initialise(place, 5) == []
        homes = "SELECT name, coalesce(home, shard) FROM placements WHERE released_at_ms IS NULL"
        for rows in (
            homes,
            *(f"SELECT name, shard FROM {of}" for of in ("pending", "pod_tombstones", "moves")),
        ):
            for name, shard in await query(place, rows):
                assert shard == partition_for(f"default/{name}".encode(), None, 5), name
        said = "SELECT shard FROM shard_offsets WHERE topic = 'berth.pods' AND moved_below = next_offset"
        assert {row["shard"] for row in await query(place, said)} == {0, 1}, "what came before may have moved"
        async with working(place, 2):
            await send(place, "DELETED", [pod(name, 3) for name in (*PLACED[:6], *WAITING[:4])])
            changed = [pod(name, 3, labels={"app": "new"}) for name in (*PLACED[6:], *WAITING[4:])]
            await send(place, "MODIFIED", changed)
            await send(place, "ADDED", [pod(name, 1) for name in GONE])  # late duplicates
            await send(place, "ADDED", [pod_manifest("last", cpu="1")])
            await until(
                place,
                lambda placed, waiting: placed.keys() == {*PLACED[6:], "last"} and waiting == {*WAITING[4:]},
            )
            labels = """
                SELECT labels FROM placements WHERE released_at_ms IS NULL AND name <> 'last'
                UNION SELECT labels FROM pending
            """
            async with asyncio.timeout(60):
                while {row["labels"] for row in await query(place, labels)} != {'{"app":"new"}'}:
                    await asyncio.sleep(0.2)
        assert await query(place, "SELECT code, message FROM dead_letters") == []
        assert await query(place, "SELECT * FROM moves") == [], "their time was over"
        found = await audit(place, None, lambda line: None, everything=True)
        assert found.broken == []


async def test_pods_that_live_twice_are_told_when_shards_are_added(place: Place) -> None:
    assert await initialise(place, 3) == ["3 shards laid down"]
    live = "FROM placements WHERE released_at_ms IS NULL AND name = 'p0-1'"
    uid, home = (await query(place, f"SELECT pod_uid, coalesce(home, shard) {live}"))[0]
    other = (home + 1) % 3
    await change(
        place, f"UPDATE pending SET pod_uid = '{uid}', shard = {other}, arrival = -1 WHERE name = 'big0'"
    )
    await change(place, "UPDATE pending SET name = 'p1-1' WHERE name = 'big1'")
    done, head, first, second = await initialise(place, 4)
    assert done == "4 shards laid down"
    assert head.startswith("pods that live twice, as `berth audit` warns")
    assert first == f"  {uid} in shards {min(home, other)} and {max(home, other)}"
    assert second == f"  default/p1-1 twice in shard {partition_for(b'default/p1-1', None, 4)}"
    found = (await audit(place, None, lambda line: None)).broken
    assert {each.name: len(each.rows) for each in found if each.warning} == {
        "uid-in-one-shard": 1,
        "one-pod-per-name": 1,
    }


@pytest.mark.real
async def test_shards_are_added_only_while_nobody_works_and_all_is_read(
    request: pytest.FixtureRequest,
) -> None:
    async with servers("embedded", request) as place, contextlib.aclosing(open_ledger(place)) as ledger:
        await begun(place)
        leases = await ledger.acquire("somebody", 60)
        with pytest.raises(ShardsHeld, match="stop all workers"):
            await initialise(place, 5)
        await ledger.release(leases)
        await send(place, "ADDED", [pod_manifest("late", cpu="1")])
        with pytest.raises(
            ShardsBehind, match=r"berth\.pods of shard \d from offset \d+ on.*start the workers"
        ):
            await initialise(place, 5)
        async with contextlib.aclosing(open_log(place)) as log:
            assert await log.partitions(PODS_TOPIC) == 2


@pytest.mark.real
async def test_partitions_that_were_added_by_hand_are_drained_first(request: pytest.FixtureRequest) -> None:
    async with servers("embedded", request) as place:
        await initialise(place, 1)
        before, after = {f"b{i}" for i in range(20)}, {f"a{i}" for i in range(20)}
        await send(place, "ADDED", [pod_manifest(name, cpu="1") for name in sorted(before)])
        await widen(place, 3)
        with pytest.raises(TopicMismatch, match="berth init --shards 3"):
            await run_worker(place, Settings(worker_name="w"), process_registry())
        with pytest.raises(ShardsBehind, match="run one `berth worker --drain`"):
            await initialise(place, 3)
        async with working(place, drain=True):
            await until(place, lambda placed, waiting: waiting == before)
        assert await initialise(place, 3) == ["3 shards laid down"]
        async with working(place, 2):
            await send(place, "ADDED", [pod_manifest(name, cpu="1") for name in sorted(after)])
            await until(place, lambda placed, waiting: waiting == before | after)
        assert await query(place, "SELECT FROM dead_letters") == []


@pytest.mark.real
async def test_pods_of_gangs_come_to_the_home_of_their_gang_among_the_new_shards(
    request: pytest.FixtureRequest,
) -> None:
    def member(name: str, version: int) -> Json:
        labels = {POD_GROUP_LABEL: f"g{int(name[1:]) % 3}"}
        return pod_manifest(name, cpu="2", uid=f"u{name}", resource_version=version, labels=labels)

    async with servers("embedded", request) as place:
        await initialise(place, 2)
        async with working(place):
            await send(place, "ADDED", [node_manifest(f"n{i}", cpu=8) for i in range(4)])
            await send(place, "ADDED", [pod_group_manifest(f"g{i}", 1) for i in range(3)])
            await send(place, "ADDED", [member(name, 1) for name in NAMES])
            await until(place, lambda placed, waiting: len(placed) == 16 and len(waiting) == 8)
        assert (await audit(place, None, lambda line: None)).broken == []
        assert await initialise(place, 5) == ["5 shards laid down"]
        homes = "SELECT name, coalesce(home, shard) FROM placements WHERE released_at_ms IS NULL"
        for rows in (homes, "SELECT name, shard FROM pending"):
            for name, shard in await query(place, rows):
                assert shard == partition_for(f"default/g{int(name[1:]) % 3}".encode(), None, 5), name
        async with working(place, 2):
            await send(place, "DELETED", [member(name, 2) for name in NAMES])
            await until(place, lambda placed, waiting: not placed and not waiting)
            await send(place, "ADDED", [member(name, 1) for name in NAMES])  # late duplicates
            await send(place, "ADDED", [pod_manifest("last", cpu="1")])
            await until(place, lambda placed, waiting: placed.keys() == {"last"} and not waiting)
        assert await query(place, "SELECT code, message FROM dead_letters") == []
        for everything in (False, True):  # since the audit before there were more shards, and all
            assert (await audit(place, None, lambda line: None, everything=everything)).broken == []
