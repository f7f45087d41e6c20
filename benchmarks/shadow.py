"""What a shadow profile costs a worker: ``python -m benchmarks.shadow [WORKLOAD …] [--profile P]``.

The engine places the pods of a workload twice, without and with a shadow profile, and says the processor time
of its cycles, how many attempts were compared, and that the decisions are the same.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from benchmarks.flow import bring_in, decode
from benchmarks.workloads import WORKLOADS, material
from domain.cycle.schedule import Scheduler
from domain.kernels.catalogue import prepare_all
from domain.model.profiles import BUILT_IN_PROFILES
from services.codec.decode import Decoder
from services.ports.log import PODS_TOPIC
from services.ports.workers import ShadowCounts
from services.worker.collector import as_in_a_worker
from services.worker.metrics import ShadowMetrics
from services.worker.shadow import Shadow


class Course(NamedTuple):
    """Seconds of processor time in cycles, what was compared, and the decisions."""

    seconds: float
    counts: ShadowCounts
    decided: list[object]


def measure(name: str, profile: str, batch: int, *, is_on: bool) -> Course:
    """Place the pods of a workload in batches."""
    workload = WORKLOADS[name]
    records, decoder, scheduler = material(workload), Decoder(), Scheduler(BUILT_IN_PROFILES, seed=0)
    bring_in(scheduler, decoder, records)
    shadow = Shadow(profile, ShadowMetrics(CollectorRegistry())) if is_on else None
    seconds, decided = 0.0, list[object]()
    with as_in_a_worker():
        for start in range(0, workload.pods, batch):
            for event in decode(decoder, PODS_TOPIC, records.pods[start : start + batch]):
                scheduler.fold(event)
            began = time.thread_time()
            result = scheduler.cycle() if shadow is None else shadow.cycle(scheduler, 0, 0)
            seconds += time.thread_time() - began
            decided += result.verdicts
    return Course(seconds, ShadowCounts() if shadow is None else shadow.figures.counts, decided)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["openb"])
    parser.add_argument("--profile", default="most-allocated", choices=sorted(BUILT_IN_PROFILES))
    parser.add_argument("--batch", type=int, default=100)
    told = parser.parse_args()
    prepare_all()
    for name in told.workloads:
        measure(name, told.profile, told.batch, is_on=True)  # what is loaded with the first use
        off = measure(name, told.profile, told.batch, is_on=False)
        on = measure(name, told.profile, told.batch, is_on=True)
        again = measure(name, told.profile, told.batch, is_on=False)
        assert on.decided == off.decided == again.decided
        before = min(off.seconds, again.seconds)
        counts = on.counts
        more = on.seconds - before
        print(f"{name}, batches of {told.batch}: {off.seconds:.2f} and {again.seconds:.2f} s without it")
        print(f"  {on.seconds:.2f} s with it, ratio {on.seconds / before:.2f}, {counts.skipped:,} skipped")
        print(f"  {counts.attempts:,} compared, {more / max(counts.attempts, 1) * 1e3:.2f} ms each")


if __name__ == "__main__":
    main()
