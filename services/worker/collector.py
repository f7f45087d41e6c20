"""Makes a long-running process collect garbage rarely: its millions of objects have no cycles."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_THRESHOLDS = (100_000, 20, 50)


def collect_rarely() -> None:
    """Let the collector look at new objects seldom, and never again at modules and classes."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


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
