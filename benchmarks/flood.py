"""A flood of equal pods that find no node: what it costs in memory, to wake, and what others notice of it.

Run with ``python -m benchmarks.flood``; the engine alone, without broker and database.
"""

from __future__ import annotations

import resource
import time

from domain.cycle.schedule import Scheduler
from domain.kernels.catalogue import prepare_all
from domain.model.events import NodeUpserted, PodDeleted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from tests.values import node, pod, template

NODES, FLOOD, OTHERS, BATCH = 1_000, 1_000_000, 20_000, 2_000


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _others(scheduler: Scheduler, name: str) -> float:
    """Return how many small pods are placed a second, batch after batch."""
    began = time.perf_counter()
    for start in range(0, OTHERS, BATCH):
        for i in range(start, start + BATCH):
            scheduler.fold(PodUpserted(pod(f"{name}{i}", template(10), namespace="others")))
        scheduler.cycle()
    return OTHERS / (time.perf_counter() - began)


def main() -> None:
    """Measure and print."""
    prepare_all()
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for n in range(NODES):
        scheduler.fold(NodeUpserted(node(f"n{n}", cpu=4_000, pods=4_000)))
        scheduler.fold(PodUpserted(pod(f"holder{n}", template(3_000), namespace="held", on=f"n{n}")))
    scheduler.cycle()
    print(f"other pods without the flood: {_others(scheduler, 'a'):,.0f} a second")
    before, began = _resident_mib(), time.perf_counter()
    for i in range(FLOOD):
        scheduler.fold(PodUpserted(pod(f"p{i}", template(3_500), namespace="flood")))
        if i % BATCH == BATCH - 1:
            scheduler.cycle()
    took, grown = time.perf_counter() - began, _resident_mib() - before
    print(f"{FLOOD:,} pods: {took:.0f} s to fold and refuse, {grown * 2**20 / FLOOD:.0f} bytes each")
    print(f"other pods beside the flood: {_others(scheduler, 'b'):,.0f} a second")
    scheduler.fold(PodDeleted("held", "holder7"))
    began = time.perf_counter()
    placed = sum(hasattr(verdict, "node") for verdict in scheduler.cycle().verdicts)
    print(f"one wake-up: {(time.perf_counter() - began) * 1000:.1f} ms, {placed} placed")


if __name__ == "__main__":
    main()
