"""`berth bench preemption`: how fast pods of high priority get the room of others, on real servers.

Every node is full of four pods of low priority. As many pods of high priority as there are nodes follow, each
of which fits once three of four are gone. The executor deletes who was evicted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import asyncpg
import msgspec
import psutil

from benchmarks import machine
from benchmarks.e2e import check_fresh, prepare
from benchmarks.offering import offer
from benchmarks.scraping import since, worker_counts
from benchmarks.shapes import Json
from benchmarks.stage import (
    BenchError,
    BerthProcess,
    Servers,
    berth_process,
    initialise,
    own_servers,
    scratch_directory,
)
from benchmarks.watching import Watcher, watching
from benchmarks.workloads import Material, entry_of, node_manifest, pod_manifest
from domain.model.decisions import Outcome
from services.bootstrap import open_log
from services.ports.log import PODS_TOPIC, LogWriter

CLOCK = (
    "starts before the first pod of high priority is handed to the log's client; stops when a poll of the "
    "ledger first sees the last of them nominated, and the last of them bound"
)
LOW_PER_NODE, VICTIMS_EACH = 4, 3
_LOW, _HIGH = ("900m", "500Mi"), ("3", "500Mi")  # nodes offer 4 cpu
_PRIORITY = 1_000
_MADE = (
    "SELECT outcome, count(*) AS made FROM decisions"
    " WHERE shard = $1 AND seq >= $2 AND seq < $3 GROUP BY outcome"
)
_BOUND = (
    "SELECT count(DISTINCT name) FROM decisions"
    " WHERE shard = $1 AND seq >= $2 AND outcome = 'bound' AND name LIKE 'high-%'"
)
_SETTLE_SECONDS = 0.2
_POLL_SECONDS = 0.02


class PreemptionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, as ``-o json`` shows it. benchmarks/README.md says what each key means."""

    nodes: int
    pods_before: int
    pods: int
    log: str
    ledger: str
    clock: str
    rate_offered: float
    nominated_seconds: float
    nominations_per_second: float
    seconds: float
    bound_per_second: float
    decisions: int
    decisions_per_second: float
    outcomes: dict[str, int]
    each_second: list[dict[str, int]]
    cpu_seconds: dict[str, float | None]
    batches: int
    plan_ms_mean: float
    commit_ms_mean: float
    machine: dict[str, Any]
    versions: dict[str, str]


class _Running(NamedTuple):
    servers: Servers
    worker: BerthProcess
    relay: BerthProcess
    executor: BerthProcess

    def check(self) -> None:
        for process in (self.worker, self.relay, self.executor):
            process.check()


class Course(NamedTuple):
    """What was made by when: moments of polls, and all decisions by outcome up to each."""

    times: list[float]
    made: list[Mapping[str, int]]

    def first(self, outcome: Outcome, count: int) -> float:
        """Return when so many decisions of an outcome were first seen."""
        found = (at for at, made in zip(*self, strict=True) if made.get(outcome, 0) >= count)
        return next(found)

    def each_second(self, started: float) -> list[dict[str, int]]:
        """Return what each second since the start brought."""
        found: list[dict[str, int]] = []
        before: Mapping[str, int] = {}
        for at, made in zip(*self, strict=True):
            while len(found) <= at - started:
                found.append({})
            for outcome, count in made.items():
                if more := count - before.get(outcome, 0):
                    found[-1][outcome] = found[-1].get(outcome, 0) + more
            before = made
        return found


def measure(nodes: int, timeout_seconds: float = 300.0) -> PreemptionReport:
    """Start everything, measure once, and stop everything again.

    Raises
    ------
    BenchError
        The measurement did not end in time, a process ended, or not every pod came to its node.
    """
    described = machine.describe()
    with _running() as running:
        return asyncio.run(_bounded(nodes, running, described, timeout_seconds))


def material(nodes: int) -> Material:
    """Return the nodes, the pods that fill them, and those that need others gone."""
    return Material(
        config=[],
        nodes=[entry_of(node_manifest(i), i) for i in range(nodes)],
        before=[entry_of(_pod("low", i, _LOW, 0), i) for i in range(LOW_PER_NODE * nodes)],
        pods=[entry_of(_pod("high", i, _HIGH, _PRIORITY), i) for i in range(nodes)],
    )


def _pod(kind: str, number: int, asks: tuple[str, str], priority: int) -> Json:
    manifest = pod_manifest(f"{kind}-{number:07}", number, *asks)
    manifest["spec"]["priority"] = priority
    return manifest


@contextlib.contextmanager
def _running() -> Iterator[_Running]:
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        servers = stack.enter_context(own_servers(scratch, embedded=False))
        initialise(servers.place, 1)
        processes = (
            stack.enter_context(berth_process(name, servers.place, scratch))
            for name in ("worker", "relay", "executor")
        )
        yield _Running(servers, *processes)


async def _bounded(
    nodes: int, running: _Running, described: dict[str, Any], timeout_seconds: float
) -> PreemptionReport:
    course = Course([], [])
    log = open_log(running.servers.place)
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            watching(running.servers.place.dsn, running.check) as watcher,
        ):
            await watcher.until_owned(1)
            await check_fresh(watcher, log, 1)
            async with contextlib.aclosing(await log.writer()) as writer:
                return await _measure(material(nodes), running, watcher, writer, course, described)
    except TimeoutError:
        so_far = dict(course.made[-1]) if course.made else {}
        raise BenchError(
            f"the measurement did not end within {timeout_seconds:g} s; decisions so far: {so_far}"
        ) from None
    finally:
        await log.aclose()


async def _measure(
    records: Material,
    running: _Running,
    watcher: Watcher,
    writer: LogWriter,
    course: Course,
    described: dict[str, Any],
) -> PreemptionReport:
    await prepare(writer, watcher, records)
    if waiting := await watcher.pending():
        raise BenchError(f"{waiting} pods of low priority found no node")
    connection = await asyncpg.connect(running.servers.place.dsn)
    try:
        return await _timed(records, running, watcher, writer, course, connection, described)
    finally:
        await connection.close()


async def _timed(
    records: Material,
    running: _Running,
    watcher: Watcher,
    writer: LogWriter,
    course: Course,
    connection: Any,
    described: dict[str, Any],
) -> PreemptionReport:
    count = len(records.pods)
    first = (await watcher.seq_next())[0]
    meter = machine.CpuMeter(
        {
            "worker": running.worker.handle,
            "relay": running.relay.handle,
            "executor": running.executor.handle,
            "broker": running.servers.broker,
            "database": running.servers.database,
            "polling": psutil.Process(await connection.fetchval("SELECT pg_backend_pid()")),
        }
    )
    counts, cpu = await worker_counts(running.worker.metrics_port), meter.read()
    offering = asyncio.ensure_future(offer(writer, PODS_TOPIC, records.pods))
    try:
        await until_bound(first, count, watcher, connection, course)
        offered = await offering
    finally:
        offering.cancel()
        await asyncio.gather(offering, return_exceptions=True)
    used = machine.used(cpu, meter.read())
    await asyncio.sleep(_SETTLE_SECONDS)  # the worker counts a batch just after it has become visible
    done = since(counts, await worker_counts(running.worker.metrics_port))
    bound = await connection.fetchval(_BOUND, 0, first)
    outcomes = dict(course.made[-1])
    if bound != count or outcomes[Outcome.BOUND] != count:
        raise BenchError(f"{bound} of {count} pods of high priority came to a node: {outcomes}")
    nominated_seconds = course.first(Outcome.NOMINATED, count) - offered.started
    seconds = course.times[-1] - offered.started
    decisions = sum(outcomes.values())
    return PreemptionReport(
        nodes=len(records.nodes),
        pods_before=len(records.before),
        pods=count,
        log=running.servers.log_kind,
        ledger=running.servers.ledger_kind,
        clock=CLOCK,
        rate_offered=round(count / (offered.ended - offered.started), 1),
        nominated_seconds=round(nominated_seconds, 3),
        nominations_per_second=round(count / nominated_seconds, 1),
        seconds=round(seconds, 3),
        bound_per_second=round(count / seconds, 1),
        decisions=decisions,
        decisions_per_second=round(decisions / seconds, 1),
        outcomes=outcomes,
        each_second=course.each_second(offered.started),
        cpu_seconds={name: None if value is None else round(value, 2) for name, value in used.items()},
        batches=int(done["berth_batches_total"]),
        plan_ms_mean=mean_ms(done, "berth_plan_seconds"),
        commit_ms_mean=mean_ms(done, "berth_commit_seconds"),
        machine=described,
        versions={**machine.versions(), "postgres": await watcher.server_version()},
    )


def mean_ms(done: Mapping[str, float], name: str) -> float:
    """Return the mean of what a worker timed, in milliseconds."""
    return round(1000 * done[f"{name}_sum"] / max(1, done[f"{name}_count"]), 2)


async def until_bound(first: int, pods: int, watcher: Watcher, connection: Any, course: Course) -> None:
    """Poll until so many pods are bound, and keep what was made by when; each decision is read once."""
    made, known = Counter[str](), first
    while made[Outcome.BOUND] < pods:
        following = (await watcher.seq_next())[0]
        if following > known:
            for row in await connection.fetch(_MADE, 0, known, following):
                made[row["outcome"]] += row["made"]
            known = following
            course.times.append(time.perf_counter())
            course.made.append(dict(made))
        await asyncio.sleep(_POLL_SECONDS)
