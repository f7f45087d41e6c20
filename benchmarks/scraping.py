"""Read what a berth process reports on its metrics port."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT_SECONDS = 10.0
_LAG = "berth_follow_lag_seconds_bucket "

Counts = Mapping[str, float]
"""What a worker has done so far, or several together: its counters by name, of buckets with their bound."""


async def worker_counts(port: int) -> Counts:
    """Return the counts of the worker that serves its metrics on a port of this machine."""
    text = await asyncio.to_thread(_fetch, f"http://127.0.0.1:{port}/metrics")
    return {
        f"{sample.name} {sample.labels['le']}" if "le" in sample.labels else sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels.keys() - {"le"}
    }


def together(counts: Iterable[Counts]) -> Counts:
    """Return what several workers have done."""
    sums: defaultdict[str, float] = defaultdict(float)
    for each in counts:
        for name, value in each.items():
            sums[name] += value
    return sums


def since(before: Counts, after: Counts) -> Counts:
    """Return what was done between two readings; 0 of what a worker does not count."""
    done: defaultdict[str, float] = defaultdict(float)
    return done | {name: value - before.get(name, 0.0) for name, value in after.items()}


def follow_lag_seconds(done: Counts, share: float) -> float | None:
    """Return within which time this share of other workers' batches was folded; None: there were none."""
    within = sorted((float(name[len(_LAG) :]), n) for name, n in done.items() if name.startswith(_LAG))
    if not within or not within[-1][1]:
        return None
    return next(seconds for seconds, count in within if count >= share * within[-1][1])


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
        return str(answer.read().decode())
