"""A workload through decode, fold and cycle, in this process, without any server."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from benchmarks.stage import BenchError
from benchmarks.workloads import Material, Workload, material
from domain.cycle.schedule import Scheduler
from domain.model.events import Event, ProfileEvent
from domain.model.profiles import BUILT_IN_PROFILES
from services.codec.decode import Decoder
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Entry, Record
from services.worker.collector import as_in_a_worker


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


class Flow(NamedTuple):
    """The report of a workload, and per batch the pods per second of processor time."""

    report: EngineReport
    pods_per_cpu_second: list[float]


def measure_flow(workload: Workload, pods_per_cycle: int) -> Flow:
    """Bring in the nodes and the pods before, then send the measured pods in batches, each with a cycle."""
    records = material(workload)
    with as_in_a_worker():
        return _measure(workload, records, pods_per_cycle)


def _measure(workload: Workload, records: Material, pods_per_cycle: int) -> Flow:
    decoder = Decoder()
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=0)
    bring_in(scheduler, decoder, records)
    decode_seconds = fold_seconds = 0.0
    cycles: list[float] = []
    per_cpu_second: list[float] = []
    placed = 0
    signatures: set[bytes] = set()
    for start in range(0, workload.pods, pods_per_cycle):
        began, cpu = time.perf_counter(), time.process_time()
        events = decode(decoder, PODS_TOPIC, records.pods[start : start + pods_per_cycle])
        decoded = time.perf_counter()
        for event in events:
            scheduler.fold(event)
        folded = time.perf_counter()
        result = scheduler.cycle()
        cycles.append(time.perf_counter() - folded)
        per_cpu_second.append(len(events) / (time.process_time() - cpu))
        decode_seconds += decoded - began
        fold_seconds += folded - decoded
        placed += sum(attempt.bound_count for attempt in result.attempts)
        signatures.update(attempt.signature for attempt in result.attempts)
    report = EngineReport(
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
    return Flow(report, per_cpu_second)


def bring_in(scheduler: Scheduler, decoder: Decoder, records: Material) -> None:
    """Fold what is there before the clock starts, and place the pods among it."""
    of_topics = ((CONFIG_TOPIC, records.config), (NODES_TOPIC, records.nodes), (PODS_TOPIC, records.before))
    for topic, entries in of_topics:
        for event in decode(decoder, topic, entries):
            scheduler.fold(event)
    while scheduler.has_work:
        scheduler.cycle()


def decode(decoder: Decoder, topic: str, entries: Sequence[Entry]) -> list[Event]:
    """Return the events of records, each of which must be one that the fold takes."""
    events = []
    for offset, (key, value, *_) in enumerate(entries):
        event = decoder.decode(Record(topic, 0, offset, key, value, 0)).event
        if event is None or isinstance(event, ProfileEvent):
            raise BenchError(f"the workload holds an event that the engine refuses: {value!r}")
        events.append(event)
    return events


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)
