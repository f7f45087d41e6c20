"""Read what a berth process reports on its metrics port."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT_SECONDS = 10.0


class WorkerCounts(NamedTuple):
    """What a worker has done so far."""

    batches: float
    plan_seconds: float
    plans: float
    commit_seconds: float
    commits: float


async def worker_counts(port: int) -> WorkerCounts:
    """Return the counts of the worker that serves its metrics on a port of this machine."""
    text = await asyncio.to_thread(_fetch, f"http://127.0.0.1:{port}/metrics")
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }
    return WorkerCounts(
        batches=values["berth_batches_total"],
        plan_seconds=values["berth_plan_seconds_sum"],
        plans=values["berth_plan_seconds_count"],
        commit_seconds=values["berth_commit_seconds_sum"],
        commits=values["berth_commit_seconds_count"],
    )


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
        return str(answer.read().decode())
