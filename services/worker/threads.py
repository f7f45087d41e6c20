"""Threads for the scheduler, which makes none itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from domain.cycle.windows import IN_LINE, Threads, Work


def threads_for(count: int) -> Threads:
    """Return so many threads, the caller's own among them."""
    if count == 1:
        return IN_LINE
    others = ThreadPoolExecutor(count - 1, thread_name_prefix="berth-group")

    def start(work: Sequence[Work]) -> Work:
        started = [others.submit(each) for each in work]

        def wait() -> None:
            for each in started:
                each.result()

        return wait

    return Threads(count=count, start=start)
