"""Threads for the scheduler, which makes none itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from domain.cycle.windows import IN_LINE, Threads


def threads_for(count: int) -> Threads:
    """Return so many threads, the caller's own among them."""
    if count == 1:
        return IN_LINE
    others = ThreadPoolExecutor(count - 1, thread_name_prefix="berth-group")

    def run(work: Sequence[Callable[[], None]]) -> None:
        started = [others.submit(each) for each in work[1:]]
        for each in work[:1]:
            each()
        for other in started:
            other.result()

    return Threads(count=count, run=run)
