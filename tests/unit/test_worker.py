"""Does a worker give its shards back when it gets no further, is stopped, or its batches are too large?"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from domain.model.decisions import Outcome
from domain.model.errors import Overdue, Unavailable
from domain.model.limits import lease_seconds, progress_seconds
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger, drop_lease
from services.adapters.memory.log import MemoryLog, MemoryReader
from services.ports.ledger import CommitBatch, Committed, Lease, LedgerBase, LedgerPart, NotCommitted
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, Record, TopicPartition, topic_specs
from services.worker.collector import Memory
from services.worker.faults import Hanging
from services.worker.loop import STOP_SECONDS, Loop
from services.worker.metrics import WorkerMetrics
from services.worker.run import HANGING_SECONDS, Worker, WorkerSettings
from tests.builders import event_bytes, node_manifest, pod_manifest
from tests.simulation.loop import SimulatedLoop, VirtualClock

T = TypeVar("T")
A_BATCH = 100


class CutReader(MemoryReader):
    """Reads until the way to the log is cut."""

    cut = False

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        self._answers()
        return await super().poll(records_max, timeout_seconds)

    async def first_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._answers()
        return await super().first_offsets(partitions)

    def _answers(self) -> None:
        if self.cut:
            raise Unavailable("cut off")


class NoCollector(Memory):
    """Leaves the collector of the tests alone."""

    def release(self) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def growing(self) -> Iterator[None]:
        """Do nothing."""
        yield


class SlowLedger(MemoryLedger):
    """Takes its time for a commit, and no more than so many records at once; may not answer a renewal."""

    commit_seconds = 0.0
    record_seconds = 0.0
    records_max = 1_000_000
    renews = True

    async def commit(self, batch: CommitBatch) -> Committed | NotCommitted:
        count = sum(a.hi - a.lo for a in batch.offsets.advances if not a.topic.startswith("~"))
        await asyncio.sleep(self.commit_seconds + count * self.record_seconds)
        if count > self.records_max:
            raise Overdue("canceling statement due to statement timeout")
        return await super().commit(batch)

    async def renew_leases(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lease]:
        if not self.renews:
            raise Unavailable("canceling statement due to lock timeout")
        return await super().renew_leases(leases, lease_seconds)


class BlinkingLedger(MemoryLedger):
    """Does not answer the first times when it is asked for what shards need that change hands."""

    def __init__(self, database: MemoryDatabase, clock: VirtualClock) -> None:
        super().__init__(database, clock)
        self.blinks = Counter({"load_part": 3, "release": 1})

    def _blink(self, what: str) -> None:
        if self.blinks[what] > 0:
            self.blinks[what] -= 1
            raise Unavailable("the server closed the connection")

    async def load_part(self, leases: Sequence[Lease], *, gone: bool = False) -> LedgerPart:
        self._blink("load_part")
        return await super().load_part(leases, gone=gone)

    async def release(self, leases: Sequence[Lease]) -> None:
        self._blink("release")
        await super().release(leases)


class Site:
    """Workers on one log and one ledger, on virtual time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.database = MemoryDatabase(2, self.clock.now_ms)
        self.log = MemoryLog(self.clock)
        self.registry = CollectorRegistry()
        self.pods_count = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Lay down the topics and a node with room for all."""
        await self.log.ensure_topics(topic_specs(2))
        node = node_manifest("n", cpu=10_000, memory="100Ti", pods=4_000)
        await self._append(NODES_TOPIC, [Entry(b"n", event_bytes("ADDED", node))])

    async def _append(self, topic: str, entries: Sequence[Entry]) -> None:
        writer = await self.log.writer()
        await writer.append(topic, entries)

    async def send_pods(self, count: int) -> None:
        """Append pods."""
        names = [f"p{self.pods_count + i}" for i in range(count)]
        self.pods_count += count
        pods = {name: pod_manifest(name, cpu="1m", uid=name) for name in names}
        entries = [Entry(f"default/{name}".encode(), event_bytes("ADDED", pod)) for name, pod in pods.items()]
        await self._append(PODS_TOPIC, entries)

    def start(
        self, name: str, compute: Any = None, ledger: MemoryLedger | None = None, log: Any = None
    ) -> asyncio.Task[None]:
        """Start a worker."""

        async def inline(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            return work(*args, **kwargs)

        settings = WorkerSettings(name=name, profiles=BUILT_IN_PROFILES, batch_records_max=A_BATCH)
        worker = Worker(
            log or self.log,
            ledger or MemoryLedger(self.database, self.clock),
            settings,
            WorkerMetrics(self.registry if name == "first" else CollectorRegistry()),
            compute or inline,
            NoCollector(),
            lambda: 0,
        )
        self.tasks.append(asyncio.ensure_future(worker.run()))
        return self.tasks[-1]

    def owners(self) -> dict[str | None, int]:
        """Who holds how many shards now."""
        rows = self.database.worker_leases.values()
        return Counter(row.owner if row.until_ms > self.clock.now_ms() else None for row in rows)

    def owner(self) -> str | None:
        """Who holds the shards now, if all belong to one."""
        owners = list(self.owners())
        return owners[0] if len(owners) == 1 else None

    async def until(self, is_so: Callable[[], bool], seconds: float) -> float:
        """Wait until it is so, for so long at most; return how long it took."""
        began = self.loop.time()
        while not is_so():
            assert self.loop.time() < began + seconds, f"not within {seconds} s"
            await asyncio.sleep(0.01)
        return self.loop.time() - began

    def all_placed(self) -> bool:
        """Whether each pod that was sent has its node."""
        return len(self.database.open_placements) == self.pods_count

    def metric(self, name: str, **labels: str) -> float | None:
        """A metric of the first worker."""
        return self.registry.get_sample_value(name, labels)


def on_virtual_time(live: Callable[[Site], Awaitable[None]]) -> None:
    """Run a test without waiting."""
    loop = SimulatedLoop()
    loop.set_exception_handler(lambda loop, context: None)
    site = Site(loop)

    async def main() -> None:
        await site.open()
        try:
            await live(site)
        finally:
            for task in site.tasks:
                task.cancel()
            await asyncio.gather(*site.tasks, return_exceptions=True)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_worker_that_the_log_does_not_answer_gives_its_shards_to_another() -> None:
    async def live(site: Site) -> None:
        class Cut(CutReader):
            pass

        class Log:
            def __getattr__(self, name: str) -> Any:
                return getattr(site.log, name)

            async def reader(self) -> MemoryReader:
                return Cut(site.log)

        site.start("first", log=Log())
        await site.send_pods(50)
        await site.until(site.all_placed, 30)
        site.start("second")
        await asyncio.sleep(30)
        assert site.owners() == {"first": 1, "second": 1}, "a quiet log is no reason to give up"
        Cut.cut = True
        await site.until(lambda: site.owner() == "second", progress_seconds + 5)
        await site.send_pods(50)
        await site.until(site.all_placed, 5)
        assert site.metric("berth_worker_restarts_total", reason="no-progress") == 1
        await asyncio.sleep(60)
        assert site.owner() == "second"

    on_virtual_time(live)


def test_a_worker_whose_planner_hangs_gives_its_shards_to_another() -> None:
    async def live(site: Site) -> None:
        hangs = asyncio.Event()

        async def thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            if hangs.is_set():
                await asyncio.Event().wait()
            return work(*args, **kwargs)

        first = site.start("first", thread)
        await site.until(lambda: site.owner() == "first", 30)
        site.start("second")
        hangs.set()
        await site.send_pods(50)
        await site.until(lambda: site.owner() == "second", progress_seconds + 5)
        await site.until(site.all_placed, 5)
        assert not first.done()
        await asyncio.sleep(HANGING_SECONDS + 2 * lease_seconds)
        assert isinstance(first.exception(), Hanging), "its thread cannot be ended, but its process can"
        assert site.owner() == "second"

    on_virtual_time(live)


def test_a_worker_is_not_given_up_while_it_restores_its_state_or_the_ledger_is_away() -> None:
    async def live(site: Site) -> None:
        async def thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            if work.__name__ == "_planner":  # the planner is built: 1,000,000 pods take their time
                await asyncio.sleep(progress_seconds * 3)
            return work(*args, **kwargs)

        site.start("first", thread)
        await site.until(lambda: site.owner() == "first", 30)
        site.start("second")
        await site.send_pods(50)
        await site.until(site.all_placed, progress_seconds * 4)
        assert site.owner() == "first"

    on_virtual_time(live)


def test_a_renewal_that_is_not_answered_while_a_state_is_restored_leaves_time_for_the_rest() -> None:
    async def live(site: Site) -> None:
        ledger = SlowLedger(site.database, site.clock)

        async def thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            if work.__name__ == "_planner":
                ledger.renews = False
                await asyncio.sleep(1)
                ledger.renews = True
                await asyncio.sleep(progress_seconds * 2)
            return work(*args, **kwargs)

        site.start("first", thread, ledger)
        await site.send_pods(50)
        await site.until(site.all_placed, progress_seconds * 3)

    on_virtual_time(live)


def test_a_commit_without_an_answer_is_no_progress_though_the_log_is_quiet() -> None:
    async def live(site: Site) -> None:
        ledger = SlowLedger(site.database, site.clock)
        site.start("first", ledger=ledger)
        await site.until(lambda: site.owner() == "first", 30)
        await asyncio.sleep(1)
        ledger.commit_seconds = 1e9  # its connection is cut, that of the leases is not
        site.start("second")
        await site.send_pods(1)
        await site.until(site.all_placed, progress_seconds + 5)
        assert site.owner() == "second"

    on_virtual_time(live)


@pytest.mark.parametrize(("is_of_others", "most_seconds"), [(True, 0.5), (False, 1.5)])
def test_a_batch_of_another_worker_waits_until_it_is_folded_and_no_longer(
    is_of_others: bool, most_seconds: float
) -> None:
    async def live(site: Site) -> None:
        async def thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            result = work(*args, **kwargs)
            if work.__name__ == "plan" and bool(args[2]) is is_of_others:
                await asyncio.sleep(1)  # it has folded what others did, and places pods
            return result

        def waited(of: str) -> float:
            return site.metric(f"berth_follow_lag_seconds_{of}") or 0.0

        site.start("first", thread)
        site.start("second")
        await site.until(lambda: site.owners() == {"first": 1, "second": 1}, 30)
        count, seconds = waited("count"), waited("sum")
        for _ in range(10):
            await site.send_pods(20)
            await asyncio.sleep(5)
        count, seconds = waited("count") - count, waited("sum") - seconds
        assert count >= 10
        assert most_seconds - 1 < seconds / count < most_seconds

    on_virtual_time(live)


def test_a_long_topic_that_is_read_again_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.worker.loop.TAKING_SECONDS_MAX", progress_seconds)

    class Slow(MemoryReader):
        async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
            records = await super().poll(min(records_max, 5), timeout_seconds)
            await asyncio.sleep(1.0 if records else 0.0)
            return records

    async def live(site: Site) -> None:
        class Log:
            def __getattr__(self, name: str) -> Any:
                return getattr(site.log, name)

            async def reader(self) -> MemoryReader:
                return Slow(site.log)

        site.start("first", log=Log())
        await site.send_pods(1)
        await site.until(site.all_placed, 30)
        site.log.recreate(PODS_TOPIC, 2)
        pod = pod_manifest("p0", cpu="1m", uid="p0")
        records = [Entry(b"default/p0", event_bytes("MODIFIED", pod))] * (round(progress_seconds) * 10)
        await site._append(PODS_TOPIC, records)
        await asyncio.sleep(10)
        await site.send_pods(1)
        await site.until(site.all_placed, progress_seconds * 6)
        assert site.metric("berth_worker_restarts_total", reason="no-progress") is None

    on_virtual_time(live)


@pytest.mark.parametrize("what", ["plan", "commit"])
def test_a_batch_that_takes_longer_than_a_step_may_is_cut_in_half_until_it_passes(what: str) -> None:
    record_seconds = progress_seconds / (A_BATCH // 2) * 1.1

    async def live(site: Site) -> None:
        async def thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            if work.__name__ == "plan" and what == "plan":
                await asyncio.sleep(record_seconds * args[3])  # those of the batch
            return work(*args, **kwargs)

        ledger = SlowLedger(site.database, site.clock)
        ledger.record_seconds = record_seconds if what == "commit" else 0.0
        await site.send_pods(A_BATCH * 2)
        site.start("first", thread, ledger)
        await site.until(site.all_placed, 300)
        assert site.metric("berth_worker_restarts_total", reason="no-progress") == 2
        assert site.metric("berth_worker_batch_records_max") == A_BATCH // 4

    on_virtual_time(live)


@pytest.mark.parametrize("commit_seconds", [0.5, 60.0])
def test_a_worker_that_is_stopped_finishes_its_commit_and_releases_its_shards(commit_seconds: float) -> None:
    async def live(site: Site) -> None:
        ledger = SlowLedger(site.database, site.clock)
        first = site.start("first", ledger=ledger)
        await site.until(lambda: site.owner() == "first", 30)
        await asyncio.sleep(1)
        ledger.commit_seconds = commit_seconds
        await site.send_pods(50)
        await asyncio.sleep(0.2)
        assert not site.database.open_placements
        began = site.loop.time()
        first.cancel()
        await asyncio.wait({first})
        assert site.loop.time() - began <= STOP_SECONDS + 0.1
        assert site.owner() is None
        assert bool(site.database.open_placements) == (commit_seconds < 1)
        site.start("second")
        assert await site.until(site.all_placed, 5) < lease_seconds

    on_virtual_time(live)


def test_a_batch_that_takes_the_ledger_too_long_is_cut_in_half_until_it_passes() -> None:
    async def live(site: Site) -> None:
        ledger = SlowLedger(site.database, site.clock)
        ledger.records_max = A_BATCH // 3
        await site.send_pods(A_BATCH * 2)
        site.start("first", ledger=ledger)
        await site.until(site.all_placed, 120)
        assert site.metric("berth_worker_restarts_total", reason="commit-overdue") == 2
        assert site.metric("berth_worker_batch_records_max") == A_BATCH // 4
        ledger.records_max = A_BATCH
        for _ in range(400):
            await site.send_pods(1)
            await asyncio.sleep(0.1)
        await site.until(site.all_placed, 10)
        assert site.metric("berth_worker_batch_records_max") == A_BATCH, "it grows again, slowly"

    on_virtual_time(live)


def test_pods_whose_node_somebody_else_is_changing_wait_and_are_tried_again() -> None:
    async def live(site: Site) -> None:
        site.start("first")
        await site.send_pods(5)
        await site.until(site.all_placed, 30)
        (node,) = site.database.nodes.values()
        site.database.nodes_held.add(node.id)
        await site.send_pods(5)
        await site.until(lambda: bool(site.metric("berth_worker_conflicts_total")), 30)
        assert len(site.database.pending) == 5
        site.database.nodes_held.clear()
        await site.until(site.all_placed, 5)
        told = [decision.outcome for rows in site.database.decisions.values() for decision, _ in rows]
        for outcome in (Outcome.CONFLICT, Outcome.BOUND):
            assert told.count(outcome) == site.metric("berth_decisions_total", outcome=outcome)
        assert told.count(Outcome.CONFLICT) == site.metric("berth_worker_conflicts_total")
        assert told.count(Outcome.BOUND) == 10

    on_virtual_time(live)


def test_a_worker_that_loses_a_node_again_and_again_reads_the_ledger_anew() -> None:
    async def live(site: Site) -> None:
        site.start("first")
        await site.send_pods(5)
        await site.until(site.all_placed, 30)
        (node,) = site.database.nodes.values()
        newer = msgspec.structs.replace(node, spec_count=node.spec_count + 1)
        site.database.nodes[node.id] = newer
        await site.send_pods(5)
        await site.until(site.all_placed, 60)
        assert site.metric("berth_worker_restarts_total", reason="node-moved") == 1

    on_virtual_time(live)


def test_shards_change_hands_through_a_blip_of_the_ledger() -> None:
    async def live(site: Site) -> None:
        ledger = BlinkingLedger(site.database, site.clock)
        site.start("first", ledger=ledger)
        await site.send_pods(5)
        await site.until(site.all_placed, 30)
        site.start("second")
        await site.until(lambda: site.owners() == {"first": 1, "second": 1}, 30)
        assert not +ledger.blinks, "it was away when the shards were taken, and when one was given"
        await site.send_pods(5)
        await site.until(site.all_placed, 30)
        metrics = site.registry.collect()
        assert [m for m in metrics if m.name == "berth_worker_restarts" and m.samples] == []

    on_virtual_time(live)


def test_a_worker_that_loses_one_shard_goes_on_with_the_other_and_reads_nothing_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Counted(MemoryLedger):
        bases = 0

        async def load_base(self) -> LedgerBase:
            self.bases += 1
            return await super().load_base()

    async def live(site: Site) -> None:
        ledger, other = Counted(site.database, site.clock), MemoryLedger(site.database, site.clock)
        site.start("first", ledger=ledger)
        await site.send_pods(5)
        await site.until(site.all_placed, 30)
        drop_lease(site.database.worker_leases[1])
        (lease,) = await other.acquire("other", 5.0, [1])
        await site.until(lambda: site.owners() == {"first": 1, "other": 1}, 5)
        await asyncio.sleep(1.0)
        decided = len(site.database.open_placements)
        await site.send_pods(20)
        await site.until(lambda: len(site.database.open_placements) > decided, 1)
        await other.release([lease])
        await site.until(site.all_placed, 10)
        assert site.owner() == "first"
        assert ledger.bases == 1

    caplog.set_level(logging.WARNING)
    on_virtual_time(live)
    (said,) = [record.getMessage() for record in caplog.records if "lost shard" in record.getMessage()]
    assert said.startswith("lost shard 1: another worker took it")


def test_a_worker_gives_room_for_few_to_the_pod_behind_a_thousand() -> None:
    async def live(site: Site) -> None:
        small = node_manifest("n", cpu="2")
        await site._append(NODES_TOPIC, [Entry(b"n", event_bytes("MODIFIED", small))])
        pods = [
            *(pod_manifest(f"low{i}", cpu="1", priority=1) for i in range(1_000)),
            pod_manifest("high", cpu="1", priority=2),
            pod_manifest("last", cpu="1"),
        ]
        keys = [f"default/{pod['metadata']['name']}".encode() for pod in pods]
        entries = [Entry(key, event_bytes("ADDED", pod)) for key, pod in zip(keys, pods, strict=True)]
        await site._append(PODS_TOPIC, entries)
        site.start("first")
        await site.until(lambda: len(site.database.open_placements) == 2, 60.0)
        names = {row.opened.name for row in site.database.open_placements.values()}
        assert "high" in names
        await site.until(lambda: len(site.database.pending) == 1_000, 60.0)

    on_virtual_time(live)


def test_a_worker_that_stands_by_is_woken_by_what_others_did(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []
    read = Loop._read

    async def counted(loop: Loop) -> Sequence[Record]:
        if not loop.planner.owned:
            reads.append(asyncio.get_running_loop().time())
        return await read(loop)

    async def live(site: Site) -> None:
        plans: list[float] = []

        async def noted(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            plans.append(site.loop.time())
            return work(*args, **kwargs)

        site.start("first")
        site.start("second")
        await site.until(lambda: site.owners() == {"first": 1, "second": 1}, 30)
        site.start("third", compute=noted)
        await asyncio.sleep(10.2)
        await site.send_pods(1)
        await site.until(site.all_placed, 30)
        placed = site.loop.time()
        await asyncio.sleep(0.1)
        assert placed - 0.1 < plans[-1] < placed + 0.05, "it knows at once"
        reads.clear()
        await asyncio.sleep(10)
        assert len(reads) < 50, "and looks seldom while nothing happens"

    monkeypatch.setattr(Loop, "_read", counted)
    on_virtual_time(live)
