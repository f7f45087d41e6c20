"""Threads for the scheduler, which makes none itself."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

from domain.cycle.windows import IN_LINE, Threads, Work


def threads_for(count: int) -> Threads:
    """Return so many threads, the caller's own among them; as much work as others may be started at once."""
    if count == 1:
        return IN_LINE
    others = ThreadPoolExecutor(count - 1, thread_name_prefix="berth-group")

    def start(work: Sequence[Work]) -> Work:
        begun = Semaphore(0)

        def begin(each: Work) -> None:
            begun.release()
            each()

        started = [others.submit(begin, each) for each in work]
        for _ in started:
            begun.acquire()  # or they would wait for the interpreter's lock while the caller computes

        def wait() -> None:
            for each in started:
                each.result()

        return wait

    return Threads(count=count, start=start)
