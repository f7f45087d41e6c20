"""`berth bench preemption`: how fast pods of high priority get the room of others, on real servers.

Every node is full of four pods of low priority. As many pods of high priority as there are nodes follow, each
of which fits once three of four are gone. The executor deletes who was evicted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from benchmarks import machine
from benchmarks.course import Course, Running, measure_course, prepared, running
from benchmarks.shapes import Json
from benchmarks.stage import BenchError
from benchmarks.workloads import Material, entry_of, node_manifest, pod_manifest
from domain.model.decisions import Outcome

CLOCK = (
    "starts before the first pod of high priority is handed to the log's client; stops when a poll of the "
    "ledger first sees the last of them nominated, and the last of them bound"
)
LOW_PER_NODE, VICTIMS_EACH = 4, 3
_LOW, _HIGH = ("900m", "500Mi"), ("3", "500Mi")  # nodes offer 4 cpu
_PRIORITY = 1_000
_BOUND = (
    "SELECT count(DISTINCT name) FROM decisions"
    " WHERE shard = $1 AND seq >= $2 AND outcome = 'bound' AND name LIKE 'high-%'"
)


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


def measure(nodes: int, timeout_seconds: float = 300.0) -> PreemptionReport:
    """Start everything, measure once, and stop everything again.

    Raises
    ------
    BenchError
        The measurement did not end in time, a process ended, or not every pod came to its node.
    """
    described = machine.describe()
    with running(("worker", "relay", "executor")) as servers:
        return asyncio.run(_measure(nodes, servers, described, timeout_seconds))


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


async def _measure(
    nodes: int, running: Running, described: dict[str, Any], timeout_seconds: float
) -> PreemptionReport:
    records, course, count = material(nodes), Course(), nodes
    async with prepared(running, records, course, timeout_seconds) as ready:
        if waiting := await ready.watcher.pending():
            raise BenchError(f"{waiting} pods of low priority found no node")
        await measure_course(ready, records, course)
        bound = await ready.connection.fetchval(_BOUND, 0, course.first)
        if bound != count or course.outcomes[Outcome.BOUND] != count:
            raise BenchError(f"{bound} of {count} pods of high priority came to a node: {course.outcomes}")
        nominated_seconds, figures = course.until(Outcome.NOMINATED, count), course.figures(count)
        return PreemptionReport(
            nodes=nodes,
            pods_before=len(records.before),
            pods=count,
            log=running.servers.log_kind,
            ledger=running.servers.ledger_kind,
            clock=CLOCK,
            nominated_seconds=round(nominated_seconds, 3),
            nominations_per_second=round(count / nominated_seconds, 1),
            bound_per_second=round(count / course.seconds, 1),
            decisions_per_second=round(figures["decisions"] / course.seconds, 1),
            each_second=course.each_second(),
            **figures,
            machine=described,
            versions={**machine.versions(), "postgres": await ready.watcher.server_version()},
        )
