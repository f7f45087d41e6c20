"""`berth bench engine`: decode, fold and cycle alone, in this process, without any server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from domain.cycle.schedule import Scheduler
from domain.model.events import Event
from domain.model.limits import batch_records_max
from domain.model.profiles import BUILT_IN_PROFILES
from services.bench import machine
from services.bench.stage import BenchError
from services.bench.workloads import WORKLOADS, Workload, material
from services.codec import Decoder
from services.ports import NODES_TOPIC, PODS_TOPIC, Entry, Record

_SCAN = Workload(
    name="scan", about="groups never seen before, one pod each", nodes=20_000, pods=20, groups=20
)
_WARM_UP = Workload(name="warm-up", about="what has to be compiled", nodes=4, pods=8, groups=2)


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """One workload through the engine, as ``-o json`` shows it; benchmarks/README.md explains the keys."""

    workload: str
    nodes: int
    pods: int
    groups: int
    pods_per_cycle: int
    placed: int
    decode_us_per_pod: float
    fold_us_per_pod: float
    cycle_us_per_pod: float
    pods_per_second: float
    cycle_ms: dict[str, float]


class EngineRun(msgspec.Struct, frozen=True, kw_only=True):
    """All workloads, with what is apart from them: the first cycle of the process, which compiles."""

    first_cycle_seconds: float
    workloads: list[EngineReport]
    machine: dict[str, Any]
    versions: dict[str, str]


def measure(names: Sequence[str]) -> EngineRun:
    """Measure workloads of the table, and the full scan of new groups over 20,000 nodes."""
    described = machine.describe()
    first = _measure(_WARM_UP, _WARM_UP.pods)
    reports = [_measure(WORKLOADS[name], batch_records_max) for name in names]
    reports.append(_measure(_SCAN, 1))
    return EngineRun(
        first_cycle_seconds=round(first.cycle_ms["max"] / 1000, 3),
        workloads=reports,
        machine=described,
        versions=machine.versions(),
    )


def _measure(workload: Workload, pods_per_cycle: int) -> EngineReport:
    records = material(workload)
    decoder = Decoder(BUILT_IN_PROFILES)
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=0)
    nodes = _decode(decoder, NODES_TOPIC, records.nodes)
    before = _decode(decoder, PODS_TOPIC, records.before)
    for event in (*nodes, *before):
        scheduler.fold(event)
    scheduler.cycle()
    decode_seconds = fold_seconds = 0.0
    cycles: list[float] = []
    placed = 0
    signatures: set[bytes] = set()
    for start in range(0, workload.pods, pods_per_cycle):
        began = time.perf_counter()
        events = _decode(decoder, PODS_TOPIC, records.pods[start : start + pods_per_cycle])
        decoded = time.perf_counter()
        for event in events:
            scheduler.fold(event)
        folded = time.perf_counter()
        result = scheduler.cycle()
        cycles.append(time.perf_counter() - folded)
        decode_seconds += decoded - began
        fold_seconds += folded - decoded
        placed += sum(attempt.bound_count for attempt in result.attempts)
        signatures.update(attempt.signature for attempt in result.attempts)
    return EngineReport(
        workload=workload.name,
        nodes=workload.nodes,
        pods=workload.pods,
        groups=len(signatures),
        pods_per_cycle=pods_per_cycle,
        placed=placed,
        decode_us_per_pod=_us(decode_seconds / workload.pods),
        fold_us_per_pod=_us(fold_seconds / workload.pods),
        cycle_us_per_pod=_us(sum(cycles) / workload.pods),
        pods_per_second=round(workload.pods / (decode_seconds + fold_seconds + sum(cycles))),
        cycle_ms={
            "median": round(statistics.median(cycles) * 1000, 3),
            "min": round(min(cycles) * 1000, 3),
            "max": round(max(cycles) * 1000, 3),
        },
    )


def _decode(decoder: Decoder, topic: str, entries: Sequence[Entry]) -> list[Event]:
    events = []
    for offset, (key, value) in enumerate(entries):
        event = decoder.decode(Record(topic, 0, offset, key, value, 0)).event
        if event is None:
            raise BenchError(f"the workload holds an event that the engine refuses: {value!r}")
        events.append(event)
    return events


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)
