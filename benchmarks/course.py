"""One run on servers of its own: pods are offered, and the ledger is polled until all of them are bound."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg
import msgspec
import psutil

from benchmarks import machine
from benchmarks.e2e import check_fresh, prepare
from benchmarks.offering import Offered, offer
from benchmarks.scraping import Counts, since, worker_counts
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
from benchmarks.workloads import Material
from domain.model.decisions import Outcome
from services.bootstrap import open_log
from services.ports.log import PODS_TOPIC, LogWriter

_MADE = (
    "SELECT outcome, count(*) AS made FROM decisions"
    " WHERE shard = $1 AND seq >= $2 AND seq < $3 GROUP BY outcome"
)
_SETTLE_SECONDS = 0.2
_POLL_SECONDS = 0.02


class Running(NamedTuple):
    """The servers, and the processes of berth by their name."""

    servers: Servers
    processes: Mapping[str, BerthProcess]

    def check(self) -> None:
        """Raise an error if any has ended."""
        for process in self.processes.values():
            process.check()


class Prepared(NamedTuple):
    """What a run needs once all is there that must be there before the clock starts."""

    running: Running
    watcher: Watcher
    writer: LogWriter
    connection: Any


class Course(msgspec.Struct):
    """What was made by when: moments of polls, and all decisions by outcome up to each.

    Attributes
    ----------
    first : int
        The number of the first decision.
    offered : Offered
        When the pods were offered.
    used : dict
        Processor seconds of each process.
    done : dict
        What the worker counted.
    """

    first: int = 0
    times: list[float] = []
    made: list[Mapping[str, int]] = []
    offered: Offered | None = None
    used: Mapping[str, float | None] = {}
    done: Counts = {}

    @property
    def outcomes(self) -> dict[str, int]:
        """All decisions by outcome."""
        return dict(self.made[-1]) if self.made else {}

    @property
    def started(self) -> float:
        """The moment before the first pod was offered."""
        assert self.offered is not None
        return self.offered.started

    @property
    def seconds(self) -> float:
        """From then until the last was seen bound."""
        return self.times[-1] - self.started

    def until(self, outcome: Outcome, count: int) -> float:
        """Return the seconds until so many decisions of an outcome were first seen."""
        found = (at for at, made in zip(self.times, self.made, strict=True) if made.get(outcome, 0) >= count)
        return next(found) - self.started

    def each_second(self) -> list[dict[str, int]]:
        """Return what each second since the start brought."""
        found: list[dict[str, int]] = []
        before: Mapping[str, int] = {}
        for at, made in zip(self.times, self.made, strict=True):
            while len(found) <= at - self.started:
                found.append({})
            for outcome, count in made.items():
                if more := count - before.get(outcome, 0):
                    found[-1][outcome] = found[-1].get(outcome, 0) + more
            before = made
        return found

    def figures(self, pods: int) -> dict[str, Any]:
        """Return what all reports of such a run say."""
        assert self.offered is not None
        return {
            "rate_offered": round(pods / (self.offered.ended - self.offered.started), 1),
            "seconds": round(self.seconds, 3),
            "decisions": sum(self.outcomes.values()),
            "outcomes": self.outcomes,
            "cpu_seconds": {
                name: None if value is None else round(value, 2) for name, value in self.used.items()
            },
            "batches": int(self.done["berth_batches_total"]),
            "plan_ms_mean": _mean_ms(self.done, "berth_plan_seconds"),
            "commit_ms_mean": _mean_ms(self.done, "berth_commit_seconds"),
        }


def _mean_ms(done: Counts, name: str) -> float:
    return round(1000 * done[f"{name}_sum"] / max(1, done[f"{name}_count"]), 2)


@contextlib.contextmanager
def running(names: Sequence[str]) -> Iterator[Running]:
    """Start servers and one process of each name; stop all of them again."""
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        servers = stack.enter_context(own_servers(scratch, embedded=False))
        initialise(servers.place, 1)
        yield Running(
            servers,
            {name: stack.enter_context(berth_process(name, servers.place, scratch)) for name in names},
        )


@contextlib.asynccontextmanager
async def prepared(
    running: Running, records: Material, course: Course, timeout_seconds: float
) -> AsyncIterator[Prepared]:
    """Yield when all is there that stands before the measured pods.

    Raises
    ------
    BenchError
        The body did not end in time, or a process ended.
    """
    place = running.servers.place
    log = open_log(place)
    try:
        async with asyncio.timeout(timeout_seconds), watching(place.dsn, running.check) as watcher:
            await watcher.until_owned(1)
            await check_fresh(watcher, log, 1)
            async with contextlib.aclosing(await log.writer()) as writer:
                await prepare(writer, watcher, records)
                connection = await asyncpg.connect(place.dsn)
                try:
                    yield Prepared(running, watcher, writer, connection)
                finally:
                    await connection.close()
    except TimeoutError:
        raise BenchError(
            f"the measurement did not end within {timeout_seconds:g} s; decisions so far: {course.outcomes}"
        ) from None
    finally:
        await log.aclose()


async def measure_course(prepared: Prepared, records: Material, course: Course) -> None:
    """Offer the pods, poll until all are bound, and keep what it cost."""
    running, watcher, writer, connection = prepared
    servers, worker = running.servers, running.processes["worker"]
    course.first = (await watcher.seq_next())[0]
    meter = machine.CpuMeter(
        {
            **{name: process.handle for name, process in running.processes.items()},
            "broker": servers.broker,
            "database": servers.database,
            "polling": psutil.Process(await connection.fetchval("SELECT pg_backend_pid()")),
        }
    )
    counts, cpu = await worker_counts(worker.metrics_port), meter.read()
    offering = asyncio.ensure_future(offer(writer, PODS_TOPIC, records.pods))
    try:
        await _until_bound(len(records.pods), watcher, connection, course)
        course.offered = await offering
    finally:
        offering.cancel()
        await asyncio.gather(offering, return_exceptions=True)
    course.used = machine.used(cpu, meter.read())
    await asyncio.sleep(_SETTLE_SECONDS)  # the worker counts a batch just after it has become visible
    course.done = since(counts, await worker_counts(worker.metrics_port))


async def _until_bound(pods: int, watcher: Watcher, connection: Any, course: Course) -> None:
    """Poll until so many pods are bound, and keep what was made by when; each decision is read once."""
    made, known = Counter[str](), course.first
    while made[Outcome.BOUND] < pods:
        following = (await watcher.seq_next())[0]
        if following > known:
            for row in await connection.fetch(_MADE, 0, known, following):
                made[row["outcome"]] += row["made"]
            known = following
            course.times.append(time.perf_counter())
            course.made.append(dict(made))
        await asyncio.sleep(_POLL_SECONDS)
