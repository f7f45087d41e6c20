"""`berth bench e2e`: the whole way of an event, from the producer to the decision in the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import psutil

from services.bench import machine
from services.bench.offering import Offered, offer
from services.bench.scraping import WorkerCounts, worker_counts
from services.bench.stage import (
    BenchError,
    BerthProcess,
    Servers,
    berth_process,
    given_servers,
    initialise,
    own_servers,
    scratch_directory,
)
from services.bench.statistics import percentile
from services.bench.watching import Decided, Watcher, watching
from services.bench.workloads import Material, Workload, batches, material
from services.bootstrap import open_log
from services.ports import NODES_TOPIC, PODS_TOPIC, Entry, Log, LogWriter, TopicPartition

CLOCK = (
    "starts before the first pod event is handed to the log's client; "
    "stops when a poll of the ledger first sees the last decision"
)
PRODUCED_AT_RATE = "when the record was due at the offered rate"
PRODUCED_FREELY = "when the record's batch was handed to the log's client"
_BATCH_BEFORE = 1_000
_SETTLE_SECONDS = 0.2


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured. Without ``rate``, as fast as the log takes; ``kafka`` and ``dsn`` come together."""

    workload: Workload
    shards: int = 1
    rate: float | None = None
    embedded: bool = False
    kafka: str | None = None
    dsn: str | None = None
    poll_ms: float = 5.0
    timeout_seconds: float = 300.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, as ``-o json`` shows it; benchmarks/README.md says what each key means."""

    workload: str
    nodes: int
    pods_before: int
    pods: int
    groups: int
    shards: int
    log: str
    ledger: str
    clock: str
    produced: str
    rate_asked: float | None
    rate_offered: float
    offer_seconds: float
    seconds: float
    decisions: int
    decisions_per_second: float
    placed: int
    pending: int
    latency_ms: dict[str, float]
    poll_ms: dict[str, float]
    cpu_seconds: dict[str, float | None]
    batches: int
    pods_per_batch: float
    plan_ms_mean: float
    commit_ms_mean: float
    machine: dict[str, Any]
    versions: dict[str, str]


class _Running(NamedTuple):
    servers: Servers
    worker: BerthProcess
    relay: BerthProcess

    def check(self) -> None:
        self.worker.check()
        self.relay.check()


class _Reading(NamedTuple):
    """Everything that counts up, at one moment."""

    cpu: Mapping[str, float | None]
    bench_cpu: float
    worker: WorkerCounts


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
        worker = stack.enter_context(berth_process("worker", servers.place, scratch))
        relay = stack.enter_context(berth_process("relay", servers.place, scratch))
        yield _Running(servers, worker, relay)


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
        await watcher.until_owned()
        await _check_fresh(watcher, log, options.shards)
        writer = await log.writer()
        try:
            await _prepare(writer, watcher, records)
            return await _timed(options, records, running, watcher, writer, described)
        finally:
            await writer.aclose()
    finally:
        await log.aclose()


async def _check_fresh(watcher: Watcher, log: Log, shards: int) -> None:
    """Raise unless log and ledger are as ``berth init`` made them; the rest would be measured too."""
    used = any(seq > 1 for seq in (await watcher.seq_next()).values())
    for topic in (NODES_TOPIC, PODS_TOPIC):
        for partition in range(shards):
            used = used or await log.last_record(TopicPartition(topic, partition)) is not None
    if used:
        raise BenchError(
            "log or ledger hold events already; give an empty database and a broker without them"
        )


async def _prepare(writer: LogWriter, watcher: Watcher, records: Material) -> None:
    """Bring in the nodes and the pods that are there before the clock starts."""
    for topic, entries in ((NODES_TOPIC, records.nodes), (PODS_TOPIC, records.before)):
        for batch in batches(entries, _BATCH_BEFORE):
            await writer.append(topic, batch)
        pods = len(records.before) if topic == PODS_TOPIC else 0
        await watcher.until_folded(len(records.nodes), pods)
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
            "worker": running.worker.handle,
            "relay": running.relay.handle,
            "broker": running.servers.broker,
            "database": running.servers.database,
            "polling": polling,
        }
    )
    before = await _read(meter, running)
    offering = asyncio.create_task(offer(writer, PODS_TOPIC, records.pods, options.rate))
    try:
        ended = await watcher.until_decided(first, len(records.pods), options.poll_ms / 1000)
        offered = await offering
    finally:
        offering.cancel()
        await asyncio.gather(offering, return_exceptions=True)
    cpu, bench_cpu = meter.read(), time.process_time()
    await asyncio.sleep(_SETTLE_SECONDS)  # the worker counts a batch just after it has become visible
    after = _Reading(cpu, bench_cpu, await worker_counts(running.worker.metrics_port))
    decided = await watcher.decided(first)
    _check_complete(records.pods, decided)
    database_version = await watcher.server_version()
    return Report(
        **_what(options, running.servers, offered),
        **_how_fast(records.pods, decided, offered, ended, watcher),
        **_at_what_cost(before, after, len(records.pods)),
        pending=await watcher.pending(),
        machine=described,
        versions={**machine.versions(), "postgres": database_version},
    )


async def _read(meter: machine.CpuMeter, running: _Running) -> _Reading:
    return _Reading(meter.read(), time.process_time(), await worker_counts(running.worker.metrics_port))


def _check_complete(pods: list[Entry], decided: list[Decided]) -> None:
    """Raise unless each pod has exactly one decision."""
    times = Counter(decision.key for decision in decided)
    wrong = [entry.key for entry in pods if entry.key is not None and times[entry.key] != 1]
    if wrong or len(decided) != len(pods):
        example = f", as {wrong[0].decode()}" if wrong else ""
        raise BenchError(
            f"{len(decided)} decisions for {len(pods)} pods; {len(wrong)} pods have not exactly one{example}"
        )


def _what(options: Options, servers: Servers, offered: Offered) -> dict[str, Any]:
    workload = options.workload
    return {
        "workload": workload.name,
        "nodes": workload.nodes,
        "pods_before": workload.pods_before,
        "pods": workload.pods,
        "shards": options.shards,
        "log": servers.log_kind,
        "ledger": servers.ledger_kind,
        "clock": CLOCK,
        "produced": PRODUCED_FREELY if options.rate is None else PRODUCED_AT_RATE,
        "rate_asked": options.rate,
        "rate_offered": round(workload.pods / (offered.ended - offered.started), 1),
        "offer_seconds": round(offered.ended - offered.started, 4),
    }


def _how_fast(
    pods: list[Entry], decided: list[Decided], offered: Offered, ended: float, watcher: Watcher
) -> dict[str, Any]:
    produced_at = {entry.key: at for entry, at in zip(pods, offered.produced_at.tolist(), strict=True)}
    latencies: list[float] = []
    for shard in {decision.shard for decision in decided}:
        mine = [decision for decision in decided if decision.shard == shard]
        durable = watcher.sightings.durable_at(shard, [decision.seq for decision in mine])
        latencies += (durable - np.array([produced_at[decision.key] for decision in mine])).tolist()
    seconds = ended - offered.started
    gaps = watcher.sightings.gaps or [0.0]
    return {
        "groups": len({decision.signature for decision in decided}),
        "seconds": round(seconds, 4),
        "decisions": len(decided),
        "decisions_per_second": round(len(decided) / seconds, 1),
        "placed": sum(decision.outcome == "bound" for decision in decided),
        "latency_ms": {
            "p50": _ms(percentile(latencies, 0.5)),
            "p99": _ms(percentile(latencies, 0.99)),
            "max": _ms(max(latencies)),
        },
        "poll_ms": {
            "median": _ms(statistics.median(gaps)),
            "p99": _ms(percentile(gaps, 0.99)),
            "max": _ms(max(gaps)),
        },
    }


def _at_what_cost(before: _Reading, after: _Reading, pods: int) -> dict[str, Any]:
    cpu = machine.used(before.cpu, after.cpu)
    if cpu["database"] is not None and cpu["polling"] is not None:
        cpu["database"] = max(0.0, cpu["database"] - cpu["polling"])
    cpu["bench"] = after.bench_cpu - before.bench_cpu
    done = WorkerCounts(*(end - start for start, end in zip(before.worker, after.worker, strict=True)))
    return {
        "cpu_seconds": {k: None if v is None else round(v, 2) for k, v in cpu.items()},
        "batches": int(done.batches),
        "pods_per_batch": round(pods / max(1, done.batches), 1),
        "plan_ms_mean": _ms(done.plan_seconds / max(1, done.plans)),
        "commit_ms_mean": _ms(done.commit_seconds / max(1, done.commits)),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
