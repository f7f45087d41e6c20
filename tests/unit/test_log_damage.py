"""Does a worker go on when the log lost records, was made anew or grew, and say what it misses?"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from domain.model.errors import LedgerMismatch, TopicMismatch
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryLog, MemoryReader
from services.codec.partition import partition_for
from services.ports.ledger import CommitBatch, Committed, NotCommitted
from services.ports.log import (
    CONFIG_TOPIC,
    DECISIONS_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    USAGE_TOPIC,
    Entry,
    TopicPartition,
    topic_specs,
)
from services.worker.metrics import WorkerMetrics
from services.worker.run import Worker, WorkerSettings
from tests.builders import event_bytes, node_manifest, pod_manifest
from tests.contract.conftest import SteppingClock
from tests.simulation.servers import SimulatedDatabase

T = TypeVar("T")

NODES, PODS, USAGE = (TopicPartition(topic, 0) for topic in (NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC))


async def _inline(work: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    return work(*args, **kwargs)


class _Site:
    """A worker in memory, its log and its ledger."""

    def __init__(self, shards: int = 1) -> None:
        self.clock = SteppingClock()
        self.log = MemoryLog(self.clock)
        self.database = MemoryDatabase(shards, self.clock.now_ms)
        self.registry = CollectorRegistry()
        self.task: asyncio.Task[None] | None = None

    def node(self, name: str, version: int = 1) -> None:
        thing = node_manifest(name, cpu="1", resource_version=version)
        self.log.add(NODES, [Entry(name.encode(), event_bytes("ADDED", thing))])

    def pod(self, name: str, version: int = 1, kind: str = "ADDED", at: TopicPartition = PODS) -> None:
        thing = pod_manifest(name, cpu="10m", uid=name, resource_version=version)
        self.log.add(at, [Entry(f"default/{name}".encode(), event_bytes(kind, thing))])

    async def start(self, *, drain: bool = False) -> None:
        """Start a worker; one that runs is killed."""
        await self.stop()
        settings = WorkerSettings(
            name="w", profiles=BUILT_IN_PROFILES, poll_seconds=0.01, topics_seconds=0.01, drain=drain
        )
        self.registry = CollectorRegistry()
        ledger = MemoryLedger(self.database, self.clock)
        worker = Worker(self.log, ledger, settings, WorkerMetrics(self.registry), _inline)
        self.task = asyncio.create_task(worker.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError, TopicMismatch):
                await self.task
            for lease in self.database.worker_leases.values():
                lease.owner = None

    async def settled(self) -> None:
        """Wait until everything in the log took effect."""
        async with asyncio.timeout(30):
            while not self._is_settled():
                assert self.task is not None
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.01)

    def _is_settled(self) -> bool:
        offsets = self.database.offsets
        topics = (NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, CONFIG_TOPIC)
        places = [TopicPartition(topic, 0) for topic in topics]
        places += [TopicPartition(PODS_TOPIC, shard) for shard in self.database.shards if shard]
        return all(
            (at.partition, *at) in offsets
            and offsets[at.partition, *at].next_offset == self.log.partition(at).end
            for at in places
        )

    def placed(self) -> dict[str, str]:
        return {uid: row.opened.node for (uid, _), row in self.database.open_placements.items()}

    def outcomes(self) -> list[str]:
        return [f"{d.outcome} {d.name}" for d, _ in self.database.decisions[0]]

    def counted(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def site() -> AsyncIterator[_Site]:
    site = _Site()
    await site.log.ensure_topics(topic_specs(1))
    site.node("a")
    for name in ("p", "q", "gone"):
        site.pod(name)
    site.pod("gone", 2, "DELETED")
    await site.start()
    await site.settled()
    yield site
    await site.stop()


@pytest.mark.parametrize("running", [True, False])
async def test_a_topic_made_anew_is_read_from_its_first_record(
    site: _Site, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It had grown past the offset that was next, so its first records were skipped without a word."""
    before = site.outcomes()
    if not running:
        await site.stop()
    site.log.recreate(PODS_TOPIC, 1)
    for name in ("r0", "q", "r1", "r2", "r3", "r4", "r5"):
        site.pod(name)
    if not running:
        await site.start()
    async with asyncio.timeout(30):
        while "r5" not in site.placed() or "r0" not in site.placed():
            await asyncio.sleep(0.01)
    await site.settled()
    assert set(site.placed()) == {"p", "q", *(f"r{i}" for i in range(6))}
    assert [each for each in site.outcomes()[len(before) :] if "r" not in each.split()[1]] == []
    (fault,) = site.database.log_faults
    assert (fault.code, fault.at, fault.goes_on_at) == ("recreated", PODS, 0)
    assert [each.key for each in fault.unmentioned] == ["default/p"]
    assert site.counted("berth_log_damaged_total", topic=PODS_TOPIC, code="recreated") == 1
    assert site.counted("berth_log_unmentioned", topic=PODS_TOPIC) == 1
    assert any("default/p" in each.getMessage() for each in caplog.records)


async def test_a_log_that_lost_its_end_is_read_again_and_brings_nothing_back(site: _Site) -> None:
    before, placed = site.outcomes(), site.placed()
    await site.stop()
    site.log.cut(PODS, 3)  # the deletion of the third pod
    await site.start()
    async with asyncio.timeout(30):
        while not site.database.log_faults:
            await asyncio.sleep(0.01)
    site.pod("r")
    await site.settled()
    async with asyncio.timeout(30):
        while "r" not in site.placed():
            await asyncio.sleep(0.01)
    assert site.outcomes() == [*before, "bound r"]
    assert site.placed() == {**placed, "r": "a"}
    (fault,) = site.database.log_faults
    assert (fault.code, fault.next_offset, fault.goes_on_at, fault.unmentioned) == ("tail-lost", 4, 0, [])


async def test_of_a_topic_that_is_read_again_only_the_latest_record_of_a_key_counts(site: _Site) -> None:
    """Else a pod that is gone, and whose deletion nobody remembers, would be placed for a moment."""
    await site.stop()
    site.database.tombstones.clear()
    site.log.recreate(PODS_TOPIC, 1)
    site.pod("gone")
    site.pod("gone", 2, "DELETED")
    site.pod("p")
    site.pod("q")
    before = site.outcomes()
    await site.start()
    await site.settled()
    assert site.outcomes() == before


async def test_records_that_went_before_they_were_read_are_missed_aloud(site: _Site) -> None:
    await site.stop()
    site.node("b")
    site.node("c")
    site.log.truncate(NODES, 2)
    await site.start()
    await site.settled()
    (fault,) = site.database.log_faults
    assert (fault.code, fault.at, fault.next_offset, fault.goes_on_at) == ("truncated", NODES, 1, 2)
    assert [each.key for each in fault.unmentioned] == ["a"]
    assert {node.name for node in site.database.nodes.values()} == {"a", "c"}


async def test_measurements_that_expired_crash_nobody(site: _Site) -> None:
    await site.stop()
    site.log.add(USAGE, [Entry(b"a", b"{")] * 5)
    site.log.truncate(USAGE, 4)
    await site.start()
    await site.settled()
    assert [fault.code for fault in site.database.log_faults] == ["truncated"]
    assert len(site.database.dead_letters[0]) == 1


async def test_a_worker_that_dies_while_it_reads_again_goes_on_reading_the_latest(site: _Site) -> None:
    await site.stop()
    site.database.tombstones.clear()
    site.log.recreate(PODS_TOPIC, 1)
    for version in range(2, 50):
        site.pod("p", version, "MODIFIED")
    site.pod("gone")
    site.pod("gone", 2, "DELETED")
    row = site.database.offsets[0, PODS_TOPIC, 0]
    row.topic_id, row.next_offset, row.resync_below = "berth.pods-2", 10, 50
    before = site.outcomes()
    await site.start()
    await site.settled()
    assert site.outcomes() == before
    assert site.database.log_faults == []


async def test_a_log_that_loses_its_end_again_while_it_is_read_again_holds_nobody_up(site: _Site) -> None:
    await site.stop()
    del site.log.partition(PODS).slots[-1:]
    ledger = site.database.offsets[0, PODS_TOPIC, 0]
    ledger.next_offset, ledger.resync_below = 0, len(site.log.partition(PODS).slots)
    del site.log.partition(PODS).slots[-2:]
    await site.start()
    await site.settled()
    site.pod("new")
    site.pod("new2")
    await site.settled()
    assert {"new", "new2"} <= site.placed().keys()


async def test_a_log_that_loses_its_end_before_that_was_read_again_is_asked_for_its_end_anew(
    site: _Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.stop()
    site.log.recreate(PODS_TOPIC, 1)
    for version in range(2, 5):
        site.pod("p", version, "MODIFIED")
    ask, asked = MemoryReader.end_offsets, list[int]()

    async def lose(
        reader: MemoryReader, partitions: Sequence[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]:
        found = await ask(reader, partitions)
        if partitions is not None and PODS in partitions:
            asked.append(found[PODS])
            del site.log.partition(PODS).slots[2:]
        return found

    monkeypatch.setattr(MemoryReader, "end_offsets", lose)
    await site.start()
    await site.settled()
    assert asked[:2] == [3, 2]
    assert [fault.resync_below for fault in site.database.log_faults] == [2]


async def test_nobody_comes_back_whose_key_moved_when_shards_were_added() -> None:
    """Its end came to the partition of its key, and is remembered for a while only."""
    site = _Site(shards=2)
    await site.log.ensure_topics(topic_specs(2))
    site.node("a")
    moved, sent_here = [
        name for name in "abcdefgh" if partition_for(f"default/{name}".encode(), None, 2) == 1
    ][:2]
    site.pod(moved)
    await site.start()
    await site.settled()
    row = site.database.offsets[0, PODS_TOPIC, 0]
    row.moved_below = row.next_offset
    site.pod(moved, 2, "DELETED", TopicPartition(PODS_TOPIC, 1))
    for name in (sent_here, "x", "y"):  # the first one's producer chooses the partition by itself
        site.pod(name)
    await site.settled()
    await site.stop()
    site.database.tombstones.clear()
    site.log.cut(PODS, row.next_offset - 2)
    site.pod(sent_here, 2, "DELETED")
    await site.start()
    await site.settled()
    await site.stop()
    assert site.placed().keys() == {"x", "y"}


async def test_a_partition_of_which_only_moved_keys_are_left_is_read_to_its_end() -> None:
    """Nobody would get behind it otherwise: it lags for ever, and no shard can be added."""
    site = _Site(shards=2)
    await site.log.ensure_topics(topic_specs(2))
    site.node("a")
    moved = [name for name in "abcdefgh" if partition_for(f"default/{name}".encode(), None, 2) == 1][:3]
    for name in moved:
        site.pod(name)
    await site.start()
    await site.settled()
    row = site.database.offsets[0, PODS_TOPIC, 0]
    row.moved_below = row.next_offset
    for name in moved:
        site.pod(name, 2, "DELETED", TopicPartition(PODS_TOPIC, 1))
    await site.settled()
    await site.stop()
    site.database.tombstones.clear()
    site.log.cut(PODS, 2)
    await site.start()
    await site.settled()
    site.pod("x")
    await site.settled()
    await site.stop()
    assert site.placed().keys() == {"x"}


async def test_a_worker_that_stood_by_while_shards_were_added_reads_the_ledger_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """To a worker that drains, the number of partitions says nothing."""
    site = _Site()
    site.database = database = SimulatedDatabase(1, site.clock.now_ms)
    await site.log.ensure_topics(topic_specs(1))
    site.node("a")
    init = MemoryLedger(database, site.clock)
    leases = await init.acquire("init", 60.0)
    await site.start(drain=True)
    async with asyncio.timeout(30):
        while not any(row.ready for row in database.workers.values()):
            await asyncio.sleep(0.01)
    for topic in (NODES_TOPIC, PODS_TOPIC, DECISIONS_TOPIC):
        site.log.grow(topic, 2)
    database.lay_down(2)
    await init.release(leases)
    for name in "abcdefgh":
        at = partition_for(f"default/{name}".encode(), None, 2)
        site.pod(name, at=TopicPartition(PODS_TOPIC, at))
    await site.settled()
    assert "the ledger has 2 shards, and had 1 when it was read" in caplog.text
    assert site.placed().keys() == set("abcdefgh")
    await site.stop()


@pytest.mark.parametrize("topic", [NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, CONFIG_TOPIC])
@pytest.mark.parametrize("running", [True, False])
async def test_partitions_that_nobody_would_read_end_the_worker(
    site: _Site, topic: str, running: bool
) -> None:
    if not running:
        await site.stop()
    site.log.grow(topic, 2)
    if not running:
        await site.start()
    assert site.task is not None
    with pytest.raises(TopicMismatch, match=f"{topic} has 2 partitions, and berth uses 1.*`berth init"):
        async with asyncio.timeout(10):
            await site.task


async def test_a_ledger_that_contradicts_is_read_anew(
    site: _Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    apply, contradictions = MemoryDatabase.apply, [LedgerMismatch("injected")]

    def contradict(self: MemoryDatabase, batch: CommitBatch, holder: object) -> Committed | NotCommitted:
        if contradictions:
            raise contradictions.pop()
        return apply(self, batch, holder)

    monkeypatch.setattr(MemoryDatabase, "apply", contradict)
    site.pod("r")
    async with asyncio.timeout(30):
        while "r" not in site.placed():
            await asyncio.sleep(0.01)
    assert site.counted("berth_worker_restarts_total", reason="ledger-mismatch") == 1
