"""`berth bench e2e`: the whole way of an event, from the producer to the decision in the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import psutil

from benchmarks import machine
from benchmarks.offering import Offered, hidden, offer
from benchmarks.report import Options, Reading, Report, at_what_cost, how_fast, what
from benchmarks.scraping import Counts, together, worker_counts
from benchmarks.stage import (
    BenchError,
    BerthProcess,
    Servers,
    berth_process,
    given_servers,
    initialise,
    own_servers,
    scratch_directory,
)
from benchmarks.watching import Decided, Watcher, watching
from benchmarks.workloads import Material, batches, material
from services.bootstrap import open_log
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Entry, Log, LogWriter, TopicPartition

_BATCH_BEFORE = 1_000
_SETTLE_SECONDS = 0.2


class _Running(NamedTuple):
    servers: Servers
    workers: Sequence[BerthProcess]
    relay: BerthProcess

    def check(self) -> None:
        for process in (*self.workers, self.relay):
            process.check()


def measure(options: Options) -> Report:
    """Start everything, measure once, and stop everything again.

    Raises
    ------
    BenchError
        The measurement did not end in time, a process ended, or a pod has not exactly one decision.
    """
    records = material(options.workload)
    described = machine.describe()
    deadline = time.monotonic() + options.timeout_seconds
    with _running(options) as running:
        return asyncio.run(_bounded(options, records, running, described, deadline))


@contextlib.contextmanager
def _running(options: Options) -> Iterator[_Running]:
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        if options.kafka is not None and options.dsn is not None:
            servers = stack.enter_context(given_servers(options.kafka, options.dsn))
        else:
            servers = stack.enter_context(own_servers(scratch, embedded=options.embedded))
        initialise(servers.place, options.shards)
        workers = [
            stack.enter_context(berth_process("worker", servers.place, scratch, number + 1))
            for number in range(options.workers)
        ]
        relay = stack.enter_context(berth_process("relay", servers.place, scratch))
        yield _Running(servers, workers, relay)


async def _bounded(
    options: Options, records: Material, running: _Running, described: dict[str, Any], deadline: float
) -> Report:
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            async with watching(running.servers.place.dsn, running.check) as watcher:
                return await _measure(options, records, running, watcher, described)
    except TimeoutError:
        raise BenchError(
            f"the measurement did not end within {options.timeout_seconds:g} s; allow more with --timeout"
        ) from None


async def _measure(
    options: Options, records: Material, running: _Running, watcher: Watcher, described: dict[str, Any]
) -> Report:
    log = open_log(running.servers.place)
    try:
        owners = await watcher.until_owned(options.workers)
        await check_fresh(watcher, log, options.shards)
        writer = await log.writer()
        try:
            await prepare(writer, watcher, records)
            report = await _timed(options, records, running, watcher, writer, described)
            return msgspec.structs.replace(report, owners=owners)
        finally:
            await writer.aclose()
    finally:
        await log.aclose()


async def check_fresh(watcher: Watcher, log: Log, shards: int) -> None:
    """Raise unless log and ledger are as ``berth init`` made them: anything else would be measured, too."""
    used = any(seq > 1 for seq in (await watcher.seq_next()).values())
    for topic in (NODES_TOPIC, PODS_TOPIC):
        for partition in range(shards):
            used = used or await log.last_record(TopicPartition(topic, partition)) is not None
    if used:
        raise BenchError(
            "log or ledger hold events already; give an empty database and a broker without them"
        )


async def prepare(writer: LogWriter, watcher: Watcher, records: Material) -> None:
    """Bring in the namespaces, the nodes, and the pods that are placed before the clock starts."""
    of_topics = (
        (CONFIG_TOPIC, records.config), (NODES_TOPIC, records.nodes), (PODS_TOPIC, records.before)
    )  # fmt: skip
    for topic, entries in of_topics:
        for batch in batches(entries, _BATCH_BEFORE):
            await writer.append(topic, batch)
        await watcher.until_folded({topic: len(entries)})
    await asyncio.sleep(_SETTLE_SECONDS)


async def _timed(
    options: Options,
    records: Material,
    running: _Running,
    watcher: Watcher,
    writer: LogWriter,
    described: dict[str, Any],
) -> Report:
    first = await watcher.seq_next()
    polling = psutil.Process(await watcher.backend_pid()) if running.servers.database else None
    meter = machine.CpuMeter(
        {
            "worker": [worker.handle for worker in running.workers],
            "relay": running.relay.handle,
            "broker": running.servers.broker,
            "database": running.servers.database,
            "polling": polling,
        }
    )
    async with _offering(options, records, running.servers, writer) as begin:
        before = await _read(meter, running)
        offering = asyncio.ensure_future(begin())
        try:
            ended = await watcher.until_decided(first, len(records.pods), options.poll_ms / 1000)
            offered = await offering
        finally:
            offering.cancel()
            await asyncio.gather(offering, return_exceptions=True)
        cpu, bench_cpu = meter.read(), time.process_time()
    await asyncio.sleep(_SETTLE_SECONDS)  # the worker counts a batch just after it has become visible
    after = Reading(cpu, bench_cpu, await _counts(running))
    decided = await watcher.decided(first)
    _check_complete(records.pods, decided)
    database_version = await watcher.server_version()
    return Report(
        **what(options, running.servers, offered),
        **how_fast(records.pods, decided, offered, ended, watcher.sightings),
        **at_what_cost(before, after, len(records.pods)),
        cpu_use_std=round(await watcher.cpu_use_std(), 4),
        pending=await watcher.pending(),
        machine=described,
        versions={**machine.versions(), "postgres": database_version},
    )


@contextlib.asynccontextmanager
async def _offering(
    options: Options, records: Material, servers: Servers, writer: LogWriter
) -> AsyncIterator[Callable[[], Awaitable[Offered]]]:
    """Give what offers the pods, once it is called; ahead: all of them are in the log by then, unseen."""
    if not options.ahead:
        yield partial(offer, writer, PODS_TOPIC, records.pods, options.rate)
        return
    assert servers.place.kafka_bootstrap is not None, "only Kafka hides what is not committed"
    async with hidden(servers.place.kafka_bootstrap, PODS_TOPIC, options.shards, records.pods) as show:
        await asyncio.sleep(_SETTLE_SECONDS)
        yield show


async def _read(meter: machine.CpuMeter, running: _Running) -> Reading:
    return Reading(meter.read(), time.process_time(), await _counts(running))


async def _counts(running: _Running) -> Counts:
    return together([await worker_counts(worker.metrics_port) for worker in running.workers])


def _check_complete(pods: list[Entry], decided: list[Decided]) -> None:
    """Raise unless each pod has exactly one decision."""
    times = Counter(decision.key for decision in decided)
    wrong = [entry.key for entry in pods if entry.key is not None and times[entry.key] != 1]
    if wrong or len(decided) != len(pods):
        example = f", as {wrong[0].decode()}" if wrong else ""
        raise BenchError(
            f"{len(decided)} decisions for {len(pods)} pods; {len(wrong)} pods have not exactly one{example}"
        )
