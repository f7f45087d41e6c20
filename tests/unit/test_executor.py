"""Does the executor end exactly the pods that were evicted, also when it begins again?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson

from services.adapters.memory.log import MemoryLog
from services.codec.encode import encode_event
from services.codec.partition import partition_for
from services.executor.run import Executor, Positions, deletions
from services.ports.log import DECISIONS_TOPIC, PODS_TOPIC, Entry, Record, TopicPartition, topic_specs
from tests.builders import Json, node_manifest, pod_manifest
from tests.contract.conftest import SteppingClock
from tests.property.site import SHARDS, Site
from tests.unit.preempted import AT_MS, high, site_of, told


def record(outcome: str, name: str, uid: str = "u", offset: int = 0) -> Record:
    value = orjson.dumps({"outcome": outcome, "pod": {"namespace": "ns", "name": name, "uid": uid}})
    return Record(DECISIONS_TOPIC, 0, offset, b"ns/p", value, 1)


def test_who_was_spared_right_behind_is_left_alone() -> None:
    told_of = [record("bound", "a"), record("evicted", "a"), record("evicted", "b"), record("spared", "a")]
    ((entry,),) = deletions(told_of).values()
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": "b", "uid": "u"}}
    assert entry == Entry(b"ns/b", encode_event("DELETED", pod))
    assert len(deletions([*told_of, record("evicted", "a")])[None]) == 2, "evicted anew"


async def run(log: MemoryLog, positions: Positions, until: int, partitions: int = SHARDS) -> None:
    """Run an executor until so many deletions are in the log."""
    executor = Executor(log, positions)
    task = asyncio.create_task(executor.run())
    for _ in range(200):
        await asyncio.sleep(0.01)
        if len(await deleted(log, partitions)) >= until:
            break
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def deleted(log: MemoryLog, partitions: int = SHARDS) -> list[Json]:
    reader = await log.reader()
    await reader.assign({TopicPartition(PODS_TOPIC, shard): 0 for shard in range(partitions)})
    return [orjson.loads(each.value or b"") for each in await reader.poll(1000, 0.0)]


async def test_what_it_writes_lets_the_nominated_pod_in_and_nothing_is_written_twice(tmp_path: Path) -> None:
    log, file = MemoryLog(SteppingClock()), tmp_path / "positions"
    await log.ensure_topics(topic_specs(SHARDS))
    site = await asyncio.to_thread(site_of)
    await asyncio.to_thread(site.tell, "ADDED", high())
    writer = await log.writer()
    for shard, rows in site.database.decisions.items():
        entries = [Entry(b"key", payload) for _, payload in rows]
        await writer.append(DECISIONS_TOPIC, entries, partition=shard)
    await run(log, Positions(file), 2)
    events = await deleted(log)
    assert sorted(each["object"]["metadata"]["name"] for each in events) == ["low0", "low1"]
    await run(log, Positions(file), 3)
    assert len(await deleted(log)) == 2, "it goes on where it was"
    await run(log, Positions(None), 4)
    assert len(await deleted(log)) == 4, "without a file it begins anew: the same deletions, once more"
    pods = [each["object"] for each in await deleted(log)]
    await asyncio.to_thread(site.tell, "DELETED", *pods)
    assert told(site, "high")[-1] == ("high", "bound", "n0")
    assert sorted(each[1] for each in told(site, "low0")) == ["bound", "evicted", "released"]


async def test_it_begins_anew_in_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    log, file = MemoryLog(SteppingClock()), tmp_path / "positions"
    await log.ensure_topics(topic_specs(SHARDS))
    for name in ("old", "new"):
        log.recreate(DECISIONS_TOPIC, SHARDS)
        log.recreate(PODS_TOPIC, SHARDS)
        await (await log.writer()).append(
            DECISIONS_TOPIC, [Entry(b"key", record("evicted", name).value)], partition=0
        )
        await run(log, Positions(file), 1)
        assert [each["object"]["metadata"]["name"] for each in await deleted(log)] == [name]


async def test_a_pod_is_deleted_where_its_producer_put_it() -> None:
    """A producer may have a partitioner of its own: another worker's shard would refuse the deletion."""
    log = MemoryLog(SteppingClock())
    await log.ensure_topics(topic_specs(SHARDS))
    site = await asyncio.to_thread(lambda: Site(preempts=True))
    await asyncio.to_thread(site.tell, "ADDED", node_manifest("n0", cpu=4, resource_version=1))
    put: dict[str, int] = {}
    for name in ("low0", "low1"):
        (made,) = site.records([("ADDED", pod_manifest(name, cpu=2, priority=0), AT_MS)])
        at = put[name] = 1 - made.partition
        offset = site.planner.positions()[TopicPartition(PODS_TOPIC, at)]
        await asyncio.to_thread(site.take, [made._replace(partition=at, offset=offset)])
    await asyncio.to_thread(site.tell, "ADDED", high())
    writer = await log.writer()
    for shard, rows in site.database.decisions.items():
        await writer.append(DECISIONS_TOPIC, [Entry(b"key", p) for _, p in rows], partition=shard)
    await run(log, Positions(None), 2)
    reader = await log.reader()
    await reader.assign({TopicPartition(PODS_TOPIC, shard): 0 for shard in range(SHARDS)})
    gone = await reader.poll(1000, 0.0)
    assert {orjson.loads(g.value or b"")["object"]["metadata"]["name"]: g.partition for g in gone} == put


async def test_what_was_decided_before_shards_were_added_is_deleted_where_its_key_is_now(
    tmp_path: Path,
) -> None:
    """Each pod went to the shard of its key then: the partition of before would refuse its deletion."""
    log, file = MemoryLog(SteppingClock()), tmp_path / "positions"
    await log.ensure_topics(topic_specs(1))
    writer = await log.writer()
    name = next(each for each in "abcdef" if partition_for(f"ns/{each}".encode(), None, SHARDS) == 1)

    async def evict(uid: str) -> None:
        pod = {"namespace": "ns", "name": name, "uid": uid}
        value = orjson.dumps({"outcome": "evicted", "pod": pod, "preemption": {"shard": 0}})
        await writer.append(DECISIONS_TOPIC, [Entry(b"ns/p", value)], partition=0)

    await evict("first")
    await run(log, Positions(file), 1, partitions=1)
    await evict("before")
    await log.add_partitions([PODS_TOPIC, DECISIONS_TOPIC], SHARDS)
    await run(log, Positions(file), 2)
    await evict("after")
    await run(log, Positions(file), 3)
    reader = await log.reader()
    await reader.assign({TopicPartition(PODS_TOPIC, shard): 0 for shard in range(SHARDS)})
    gone = await reader.poll(1000, 0.0)
    found = {orjson.loads(each.value or b"")["object"]["metadata"]["uid"]: each.partition for each in gone}
    assert found == {"first": 0, "before": 1, "after": 0}
