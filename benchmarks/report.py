"""The report of a measurement, and how its numbers follow from what was observed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from benchmarks import machine
from benchmarks.offering import Offered
from benchmarks.scraping import Counts, follow_lag_seconds, since
from benchmarks.stage import Servers
from benchmarks.statistics import Sightings, percentile
from benchmarks.watching import Decided
from benchmarks.workloads import Workload
from services.ports.log import Entry

CLOCK = (
    "starts before the first pod event is handed to the log's client; "
    "stops when a poll of the ledger first sees the last decision"
)
CLOCK_AHEAD = (
    "starts when all pod events, which were written before, become visible at once; "
    "stops when a poll of the ledger first sees the last decision"
)
PRODUCED_AHEAD = "when all records became visible"
PRODUCED_AT_RATE = "when the record was due at the offered rate"
PRODUCED_FREELY = "when the record's batch was handed to the log's client"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured.

    Without ``rate``: as fast as the log takes it; ``ahead``: before the clock starts, on Kafka servers of
    its own. ``kafka`` and ``dsn`` come together.
    """

    workload: Workload
    shards: int = 1
    workers: int = 1
    rate: float | None = None
    ahead: bool = False
    embedded: bool = False
    kafka: str | None = None
    dsn: str | None = None
    poll_ms: float = 5.0
    timeout_seconds: float = 300.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, as ``-o json`` shows it. benchmarks/README.md says what each key means."""

    workload: str
    profile: str
    nodes: int
    pods_before: int
    pods: int
    groups: int
    shards: int
    workers: int
    owners: int = 0
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
    conflicts: int
    moved: int
    follow_seconds: float
    follow_lag_p99_ms: float | None
    cpu_use_std: float
    machine: dict[str, Any]
    versions: dict[str, str]


class Reading(NamedTuple):
    """All counters, read at one moment."""

    cpu: Mapping[str, float | None]
    bench_cpu: float
    worker: Counts


def what(options: Options, servers: Servers, offered: Offered) -> dict[str, Any]:
    """Return the part of the report that says what was measured."""
    workload = options.workload
    return {
        "workload": workload.name,
        "profile": workload.profile,
        "nodes": workload.nodes,
        "pods_before": workload.pods_before,
        "pods": workload.pods,
        "shards": options.shards,
        "workers": options.workers,
        "log": servers.log_kind,
        "ledger": servers.ledger_kind,
        "clock": CLOCK_AHEAD if options.ahead else CLOCK,
        "produced": _produced(options),
        "rate_asked": options.rate,
        "rate_offered": round(workload.pods / (offered.ended - offered.started), 1),
        "offer_seconds": round(offered.ended - offered.started, 4),
    }


def _produced(options: Options) -> str:
    if options.ahead:
        return PRODUCED_AHEAD
    return PRODUCED_FREELY if options.rate is None else PRODUCED_AT_RATE


def how_fast(
    pods: list[Entry], decided: list[Decided], offered: Offered, ended: float, sightings: Sightings
) -> dict[str, Any]:
    """Return the part of the report that says how fast it went."""
    produced_at = {entry.key: at for entry, at in zip(pods, offered.produced_at.tolist(), strict=True)}
    latencies: list[float] = []
    for shard in {decision.shard for decision in decided}:
        mine = [decision for decision in decided if decision.shard == shard]
        durable = sightings.durable_at(shard, [decision.seq for decision in mine])
        latencies += (durable - np.array([produced_at[decision.key] for decision in mine])).tolist()
    seconds = ended - offered.started
    gaps = sightings.gaps or [0.0]
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


def at_what_cost(before: Reading, after: Reading, pods: int) -> dict[str, Any]:
    """Return the part of the report that says what it cost."""
    cpu = machine.used(before.cpu, after.cpu)
    if cpu["database"] is not None and cpu["polling"] is not None:
        cpu["database"] = max(0.0, cpu["database"] - cpu["polling"])
    cpu["bench"] = after.bench_cpu - before.bench_cpu
    done = since(before.worker, after.worker)
    batches, lag_seconds = done["berth_batches_total"], follow_lag_seconds(done, 0.99)
    return {
        "cpu_seconds": {k: None if v is None else round(v, 2) for k, v in cpu.items()},
        "batches": int(batches),
        "pods_per_batch": round(pods / max(1, batches), 1),
        "plan_ms_mean": _ms(done["berth_plan_seconds_sum"] / max(1, done["berth_plan_seconds_count"])),
        "commit_ms_mean": _ms(done["berth_commit_seconds_sum"] / max(1, done["berth_commit_seconds_count"])),
        "conflicts": int(done["berth_worker_conflicts_total"]),
        "moved": int(done["berth_worker_moved_total"]),
        "follow_seconds": round(done["berth_follow_seconds_sum"], 3),
        "follow_lag_p99_ms": None if lag_seconds is None else _ms(lag_seconds),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
