"""Where each microsecond of a worker goes: groups-1000 through planning and committing, without a broker.

Run ``python -m benchmarks.worker DSN`` on a database that may be emptied. One process plans a batch of 2,000
pods and commits it, one batch after another. The figures are processor time of its thread, a decision, by
batch: the minimum is what a quiet machine would show, the median what this one did. Reading Kafka is missing.
"""

from __future__ import annotations

import asyncio
import inspect
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.workloads import WORKLOADS, material
from domain.cycle import place
from domain.kernels import placing
from domain.model.limits import batch_records_max
from domain.model.profiles import BUILT_IN_PROFILES
from services import bootstrap
from services.codec import effects
from services.codec.partition import split
from services.ports.journal import BATCHES
from services.ports.ledger import Committed, Incarnation, Ledger
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, Record, partitions_of
from services.ports.log import TopicPartition as At
from services.worker.batch import BatchBuilder
from services.worker.collector import collect_rarely
from services.worker.planner import Planner

SHARDS = 4
WARM_UP = 2
_AT_MS = 1_700_000_000_000


class Stages:
    """Sums the processor time of functions by label; ``batches`` are the sums of each batch."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self.batches: list[dict[str, float]] = []

    def watch(self, owner: Any, name: str, label: str) -> None:
        """Count what a function of a module, a class or an object takes from now on."""
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return inner(*args, **kwargs)
            finally:
                self._seconds[label] += time.thread_time() - began

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return await inner(*args, **kwargs)
            finally:
                self._seconds[label] += time.thread_time() - began

        setattr(owner, name, awaited if inspect.iscoroutinefunction(inner) else timed)

    def end_batch(self) -> None:
        """Begin to sum anew."""
        self.batches.append(dict(self._seconds))
        self._seconds.clear()


def watched(planner: Planner, ledger: Ledger) -> Stages:
    """Watch the stages of a worker, those of one stage below it."""
    stages, scheduler, postgres = Stages(), planner.scheduler, inspect.getmodule(type(ledger))
    for owner, name, label in (
        (planner, "plan", "plan"),
        (planner.read_ahead, "add", "plan / decode"),
        (planner, "_fold", "plan / fold"),
        (scheduler, "cycle", "plan / cycle"),
        (placing, "place", "plan / cycle / kernel"),
        (place, "take_over", "plan / cycle / explain, count, verdicts"),
        (BatchBuilder, "decide", "plan / decisions, encoded"),
        (planner, "_build", "plan / rows of nodes, journal, feed"),
        (effects, "pack_feed", "plan / rows of nodes, journal, feed / feed"),
        (ledger, "commit", "commit"),
        (postgres, "change_nodes", "commit / nodes"),
        (postgres, "_write_pods", "commit / pods"),
        (postgres, "_write_decisions", "commit / decisions, attempts"),
        (postgres, "_copy", "commit / COPY, of the two before"),
    ):
        stages.watch(owner, name, label)
    return stages


def records(topic: str, entries: Sequence[Entry], first: Counter[int]) -> Iterator[list[Record]]:
    """Yield batches of records, as partitions of one topic would hold them."""
    for start in range(0, len(entries), batch_records_max):
        found = []
        for shard, group in split(entries[start : start + batch_records_max], SHARDS, None).items():
            for entry in group:
                found.append(Record(topic, shard, first[shard], entry.key, entry.value, _AT_MS))
                first[shard] += 1
        yield found


async def measure(dsn: str) -> None:
    """Print what each stage takes."""
    collect_rarely()
    place = bootstrap.Place(dsn, None)
    await bootstrap.initialise(place, shards=SHARDS)
    ledger = bootstrap.open_ledger(place)
    await ledger.announce(Incarnation(name="benchmark", build="", seed=0, settings={}), is_ready=True)
    leases = sorted(await ledger.acquire("benchmark", 600))
    for lease in leases:
        own = [*partitions_of(lease.shard), At(BATCHES, 0)]
        await ledger.ensure_offsets(lease, dict.fromkeys(own, 0))
    me = (await ledger.muster()).me
    planner = Planner(await ledger.load_base(), BUILT_IN_PROFILES, seed=0, incarnation=me, preempts=True)
    planner.take_shards(leases, await ledger.load_part(leases))
    what = material(WORKLOADS["groups-1000"])
    stages = watched(planner, ledger)
    for batch in records(NODES_TOPIC, what.nodes, Counter()):
        await _commit(planner, ledger, batch)
    stages.end_batch()
    stages.batches.clear()
    for batch in records(PODS_TOPIC, what.pods, Counter()):
        await _commit(planner, ledger, batch)
        stages.end_batch()
    await ledger.release(leases)
    await ledger.aclose()
    of_batches = stages.batches[WARM_UP:]
    for label in sorted(set().union(*of_batches)):
        each = [seconds.get(label, 0.0) * 1e6 / batch_records_max for seconds in of_batches]
        print(f"{label:44} min {min(each):6.2f}  median {statistics.median(each):6.2f} µs a decision")


async def _commit(planner: Planner, ledger: Ledger, batch: Sequence[Record]) -> None:
    planned = planner.plan(batch)
    assert planned is not None
    assert await ledger.commit(planned) == Committed()


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1]))
