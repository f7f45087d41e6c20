"""Makes a long-running process collect garbage rarely, and give large blocks of memory back at once."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator

RARELY = 100_000
"""New objects between two looks of the collector: of a process that leaves few cycles."""
BRIEFLY = 10_000
"""The same of one that builds statements: a thousand objects of each are in cycles, and no answer is to wait
for the collection of a hundred statements."""
_OLDER = (20, 50)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_BLOCK_BYTES, _TRIMMED_BYTES = 1 << 20, 16 << 20


def collect_rarely(new_objects: int = RARELY) -> None:
    """Let the collector look at new objects seldom, and never again at modules and classes.

    A worker's millions of objects have no cycles. What grows with them, such as the table of all pods, moves
    to larger blocks again and again. The GNU C library would keep the ones before, up to 32 MiB each: 150
    bytes a pod. It gives blocks of 1 MiB back from now on; other C libraries do anyway.
    """
    gc.freeze()
    gc.set_threshold(new_objects, *_OLDER)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIMMED_BYTES)


@contextlib.contextmanager
def as_in_a_worker() -> Iterator[None]:
    """Collect as a worker does for as long as something is measured."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class Memory:
    """Tells the garbage collector about a worker's memory. It stops all threads for as long as it looks."""

    def release(self) -> None:
        """Free the cycles of an earlier state. To be done while no shard waits for this worker."""
        gc.unfreeze()
        gc.collect()

    @contextlib.contextmanager
    def growing(self) -> Iterator[None]:
        """Collect nothing while a state is read, and never look at it again, since it stays."""
        gc.disable()
        try:
            yield
            gc.freeze()
        finally:
            gc.enable()
