"""`berth bench gangs`: what gangs cost in the engine alone, and how fast they get nodes on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import asyncpg
import msgspec

from benchmarks import machine
from benchmarks.e2e import check_fresh, prepare
from benchmarks.offering import offer
from benchmarks.preemption import Course, mean_ms, until_bound
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
from benchmarks.workloads import NAMESPACE, Material, entry_of, node_manifest, pod_manifest
from domain.cycle.schedule import Scheduler
from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.model.config import POD_GROUP, PodGroup
from domain.model.decisions import Outcome
from domain.model.events import ConfigUpserted, NodeUpserted, PodUpserted
from domain.model.limits import batch_records_max
from domain.model.pods import POD_GROUP_LABEL, PodSpec
from domain.model.profiles import BUILT_IN_PROFILES
from services.bootstrap import open_log
from services.ports.log import PODS_TOPIC, LogWriter

CLOCK = (
    "starts before the first pod is handed to the log's client; stops when a poll of the ledger first sees "
    "the last of them bound"
)
_SETTLE_SECONDS = 0.2
_LARGE_MILLI = 2_100  # one pod of it fits on a node


class GangReport(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, as ``-o json`` shows it. benchmarks/README.md says what each key means."""

    gangs: int
    members: int
    nodes: int
    engine_us_per_pod: dict[str, float]
    log: str
    ledger: str
    clock: str
    rate_offered: float
    seconds: float
    gangs_per_second: float
    pods_per_second: float
    decisions: int
    outcomes: dict[str, int]
    cpu_seconds: dict[str, float | None]
    batches: int
    plan_ms_mean: float
    commit_ms_mean: float
    machine: dict[str, Any]
    versions: dict[str, str]


class _Size(NamedTuple):
    gangs: int
    members: int
    nodes: int


def measure(gangs: int, members: int, nodes: int, timeout_seconds: float = 300.0) -> GangReport:
    """Measure the engine, then start everything, measure once, and stop everything again.

    Raises
    ------
    BenchError
        The measurement did not end in time, a process ended, or not every pod came to a node.
    """
    size, described = _Size(gangs, members, nodes), machine.describe()
    engine = measure_engine(size)
    with _running() as running:
        return asyncio.run(_bounded(size, engine, running, described, timeout_seconds))


# --------------------------------------------------------------------------------------------- the engine


def measure_engine(size: _Size) -> dict[str, float]:
    """Return the processor time of a pod to be folded and placed: alone, in a gang, in one that is undone."""
    _place(_Size(2, 2, 4), in_gangs=True)  # what has to be compiled
    alone, together = (_place(size, in_gangs=each) for each in (False, True))
    few = _Size(min(size.gangs, 20), size.members, max(1, size.members // 2))
    undone = _place(few, in_gangs=True, cpu_milli=_LARGE_MILLI, placed=False)
    return {"alone": alone, "in gangs": together, "undone": undone}


def _place(size: _Size, *, in_gangs: bool, cpu_milli: int = 100, placed: bool = True) -> float:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=0)
    for i in range(size.nodes):
        scheduler.fold(NodeUpserted(node_from_manifest(node_manifest(i))))
    for i in range(size.gangs):
        spec = PodGroup(min_member=size.members)
        scheduler.fold(ConfigUpserted(POD_GROUP, NAMESPACE, f"gang-{i:04}", spec))
    scheduler.cycle()
    pods = list(_pods(size, cpu_milli, in_gangs=in_gangs))
    bound_count, began = 0, time.thread_time()
    for first in range(0, len(pods), batch_records_max):
        for pod in pods[first : first + batch_records_max]:
            scheduler.fold(PodUpserted(pod))
        while scheduler.has_work:
            bound_count += sum(attempt.bound_count for attempt in scheduler.cycle().attempts)
    seconds = time.thread_time() - began
    if bound_count != (len(pods) if placed else 0):
        raise BenchError(f"{bound_count} of {len(pods)} pods were placed in the engine")
    return round(1e6 * seconds / len(pods), 2)


def _pods(size: _Size, cpu_milli: int, *, in_gangs: bool) -> Iterator[PodSpec]:
    for i in range(size.gangs):
        label = {POD_GROUP_LABEL: f"gang-{i:04}"} if in_gangs else {"group": f"gang-{i:04}"}
        first = pod_from_manifest(_pod(i, 0, f"{cpu_milli}m", label))
        for k in range(size.members):
            name = f"{first.key.removesuffix('00000')}{k:05}"
            yield msgspec.structs.replace(first, key=name, uid=name)


# ------------------------------------------------------------------------------------------- the whole way


class _Running(NamedTuple):
    servers: Servers
    worker: BerthProcess
    relay: BerthProcess

    def check(self) -> None:
        self.worker.check()
        self.relay.check()


def material(size: _Size) -> Material:
    """Return the nodes, the PodGroups and their pods, gang after gang."""
    return Material(
        config=[entry_of(_pod_group(i, size.members), i) for i in range(size.gangs)],
        nodes=[entry_of(node_manifest(i), i) for i in range(size.nodes)],
        before=[],
        pods=[
            entry_of(_pod(i, k, "100m", {POD_GROUP_LABEL: f"gang-{i:04}"}), i * size.members + k)
            for i in range(size.gangs)
            for k in range(size.members)
        ],
    )


def _pod_group(number: int, members: int) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": POD_GROUP,
        "metadata": {"name": f"gang-{number:04}", "namespace": NAMESPACE},
        "spec": {"minMember": members},
    }


def _pod(gang: int, number: int, cpu: str, labels: dict[str, str]) -> Json:
    manifest = pod_manifest(f"gang-{gang:04}-{number:05}", number, cpu, "64Mi")
    manifest["metadata"]["labels"] = labels
    return manifest


@contextlib.contextmanager
def _running() -> Iterator[_Running]:
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        servers = stack.enter_context(own_servers(scratch, embedded=False))
        initialise(servers.place, 1)
        processes = (
            stack.enter_context(berth_process(name, servers.place, scratch)) for name in ("worker", "relay")
        )
        yield _Running(servers, *processes)


async def _bounded(
    size: _Size,
    engine: dict[str, float],
    running: _Running,
    described: dict[str, Any],
    timeout_seconds: float,
) -> GangReport:
    log, place = open_log(running.servers.place), running.servers.place
    try:
        async with asyncio.timeout(timeout_seconds), watching(place.dsn, running.check) as watcher:
            await watcher.until_owned(1)
            await check_fresh(watcher, log, 1)
            records = material(size)
            connection = await asyncpg.connect(place.dsn)
            async with contextlib.aclosing(await log.writer()) as writer:
                await prepare(writer, watcher, records)
                try:
                    found = await _timed(records, running, watcher, writer, connection)
                finally:
                    await connection.close()
            return GangReport(
                **size._asdict(),
                **found,
                engine_us_per_pod=engine,
                log=running.servers.log_kind,
                ledger=running.servers.ledger_kind,
                clock=CLOCK,
                gangs_per_second=round(size.gangs / found["seconds"], 1),
                machine=described,
                versions={**machine.versions(), "postgres": await watcher.server_version()},
            )
    except TimeoutError:
        raise BenchError(f"the measurement did not end within {timeout_seconds:g} s") from None
    finally:
        await log.aclose()


async def _timed(
    records: Material, running: _Running, watcher: Watcher, writer: LogWriter, connection: Any
) -> dict[str, Any]:
    course, count = Course([], []), len(records.pods)
    first = (await watcher.seq_next())[0]
    handles = {"worker": running.worker.handle, "relay": running.relay.handle}
    servers = {"broker": running.servers.broker, "database": running.servers.database}
    meter = machine.CpuMeter({**handles, **servers})
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
    outcomes, seconds = dict(course.made[-1]), course.times[-1] - offered.started
    if outcomes[Outcome.BOUND] != count or await watcher.pending():
        raise BenchError(f"not all of {count} pods came to a node: {outcomes}")
    return {
        "rate_offered": round(count / (offered.ended - offered.started), 1),
        "seconds": round(seconds, 3),
        "pods_per_second": round(count / seconds, 1),
        "decisions": sum(outcomes.values()),
        "outcomes": outcomes,
        "cpu_seconds": {name: None if value is None else round(value, 2) for name, value in used.items()},
        "batches": int(done["berth_batches_total"]),
        "plan_ms_mean": mean_ms(done, "berth_plan_seconds"),
        "commit_ms_mean": mean_ms(done, "berth_commit_seconds"),
    }
