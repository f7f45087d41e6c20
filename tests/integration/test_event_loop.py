"""Does nothing keep a worker's event loop for long, which has leases to renew while it reads and commits?

What counts is the processor time of the loop's own thread: how long a busy machine takes is not a fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from domain.model.limits import pods_per_node_max
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.log import MemoryLog
from services.adapters.postgres.ledger import PostgresLedger
from services.adapters.postgres.migrate import init_shards
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Entry, topic_specs
from services.worker.metrics import WorkerMetrics
from services.worker.run import Worker, WorkerSettings
from tests.builders import event_bytes, node_manifest, pod_manifest
from tests.contract.ledgers import ManualClock
from tests.servers import MakeDatabase

LOOP_MS_MAX = 50.0
NODES, PODS, TEMPLATES, NAMESPACES = 3_000, 8_000, 1_000, 3_000


class Watch:
    """The callback that kept the loop longest."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.culprit = ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Measure each callback of the loop, by the processor time of its thread."""
        kind: Any = asyncio.Handle
        run = kind._run

        def measured(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            passed_ms = (time.thread_time() - began) * 1000
            if passed_ms > self.longest_ms:
                self.longest_ms, self.culprit = passed_ms, repr(handle)[:1_000]

        kind._run = measured
        try:
            yield
        finally:
            kind._run = run

    def check(self) -> None:
        """Fail where the loop was kept too long."""
        assert self.longest_ms < LOOP_MS_MAX, f"{self.longest_ms:.0f} ms: {self.culprit}"


async def _append(log: MemoryLog, topic: str, entries: list[Entry]) -> None:
    writer = await log.writer()
    await writer.append(topic, entries)


def _node(name: str, pods: int) -> Entry:
    node = node_manifest(name, cpu=64, memory="1Ti", pods=pods, labels={"of": name})
    return Entry(name.encode(), event_bytes("ADDED", node))


def _pod(number: int, **spec: Any) -> Entry:
    name = f"p{number}"
    pod = pod_manifest(name, cpu=f"{1 + number % TEMPLATES}m", uid=name, labels={"app": str(number)}, **spec)
    return Entry(f"default/{name}".encode(), event_bytes("ADDED", pod))


async def _fill(log: MemoryLog) -> None:
    await log.ensure_topics(topic_specs(1))
    kinds = {"apiVersion": "v1", "kind": "Namespace"}
    spaces = [{**kinds, "metadata": {"name": f"s{i}", "labels": {"n": str(i)}}} for i in range(NAMESPACES)]
    named = [Entry(f"Namespace/s{i}".encode(), event_bytes("ADDED", each)) for i, each in enumerate(spaces)]
    await _append(log, CONFIG_TOPIC, named)
    await _append(log, NODES_TOPIC, [_node("big", pods_per_node_max)])
    await _append(log, NODES_TOPIC, [_node(f"n{i}", 110) for i in range(NODES)])
    there = [_pod(i, nodeName="big") for i in range(pods_per_node_max - 1)]
    await _append(log, PODS_TOPIC, [*there, *(_pod(i) for i in range(len(there), PODS))])


class Working:
    """A worker of its own on the log and the ledger."""

    def __init__(self, log: MemoryLog, dsn: str) -> None:
        self._registry = CollectorRegistry()
        self._ledger = PostgresLedger(dsn)
        settings = WorkerSettings(name="w", profiles=BUILT_IN_PROFILES, lease_seconds=30)
        self._worker = Worker(log, self._ledger, settings, WorkerMetrics(self._registry))
        self._running = asyncio.create_task(self._worker.run())

    async def ready(self) -> None:
        """Wait until the worker has restored its state."""
        await self._until(self._worker.ready.is_set)

    async def committed(self, records: int) -> None:
        """Wait until the worker has committed so many records."""
        await self._until(lambda: self._registry.get_sample_value("berth_records_total") == records)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(240):
            while not is_so():
                assert not self._running.done(), self._running
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Stop the worker."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self._ledger.aclose()


@pytest.mark.asyncio
async def test_the_event_loop_turns_while_a_worker_reads_commits_and_restores(
    embedded_dsn: str, database: MakeDatabase
) -> None:
    dsn = await database(embedded_dsn)
    await init_shards(dsn, 1)
    log = MemoryLog(ManualClock())
    await _fill(log)
    watch = Watch()
    with watch.watching():
        first = Working(log, dsn)
        await first.committed(NAMESPACES + 1 + NODES + PODS)
        gone = Entry(b"big", event_bytes("DELETED", node_manifest("big")))
        await _append(log, NODES_TOPIC, [gone])  # a decision for each of its pods
        await first.committed(NAMESPACES + 2 + NODES + PODS)
        await first.stop()
    watch.check()
    with watch.watching():
        second = Working(log, dsn)
        await second.ready()
        await second.stop()
    watch.check()
