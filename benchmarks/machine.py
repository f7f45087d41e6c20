"""The machine that a measurement ran on, and what each process used of its processors."""

from __future__ import annotations

import hashlib
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

_HASHED_BYTES = 32 << 20
_PACKAGES = ("berth", "aiokafka", "asyncpg", "msgspec", "numba", "numpy")


def describe() -> dict[str, Any]:
    """Return cores, their parallel speedup, processor model, memory and the load before the measurement."""
    cores = psutil.cpu_count() or 1
    return {
        "cores": cores,
        "parallel_speedup": round(parallel_speedup(cores), 2),
        "model": _model(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "load_1m_before": round(psutil.getloadavg()[0], 2),
    }


def parallel_speedup(threads: int, repeats: int = 5) -> float:
    """Return how many times the work of one thread several threads do, if they share nothing; the median.

    It equals the number of threads where each has a core to itself. It is less where two cores are halves of
    one, or busy with something that this machine does not show. No division of work can gain more here.
    """
    buffer = bytes(_HASHED_BYTES)
    with ThreadPoolExecutor(threads) as pool:

        def seconds(count: int) -> float:
            began = time.perf_counter()
            list(pool.map(lambda _: hashlib.blake2b(buffer).digest(), range(count)))  # without Python's lock
            return time.perf_counter() - began

        return statistics.median(threads * seconds(1) / seconds(threads) for _ in range(repeats))


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def versions() -> dict[str, str]:
    """Return the versions of Python and the packages that run in our own processes."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


class CpuMeter:
    """CPU seconds (user and system) of process trees, children that have ended included.

    Parameters
    ----------
    roots : mapping of str to psutil.Process or sequence of psutil.Process or None
        Processes by the name under which they are reported; None where a process is not ours to see.
    """

    def __init__(self, roots: Mapping[str, psutil.Process | Sequence[psutil.Process] | None]) -> None:
        self._roots = dict(roots)

    def read(self) -> dict[str, float | None]:
        """Return the seconds so far."""
        return {name: None if root is None else _tree_seconds(root) for name, root in self._roots.items()}


def used(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the seconds between two readings."""
    found: dict[str, float | None] = {}
    for name, start in before.items():
        end = after[name]
        found[name] = None if start is None or end is None else end - start
    return found


def _tree_seconds(root: psutil.Process | Sequence[psutil.Process]) -> float:
    if not isinstance(root, psutil.Process):
        return sum(map(_tree_seconds, root))
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # own and ended children's, user and system
        except psutil.NoSuchProcess:
            continue  # from now on it counts as an ended child
    return total
