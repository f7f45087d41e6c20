"""What is due at moments of log time, the earliest first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

from domain.model.timestamps import NEVER_MS

K = TypeVar("K")


def backoff_ends_ms(at_ms: int, failures: int, backoff_ms: tuple[int, int], *, is_late: bool = False) -> int:
    """Return the log time at which a backoff ends that began ``at_ms``; 0 where there is none.

    ``backoff_ms`` are the first one and the longest; each doubles the one before. One that ``is_late`` has
    the longest. Source: kube-scheduler, calculateBackoffDuration.
    """
    first_ms, longest_ms = backoff_ms
    wait_ms = longest_ms if is_late else min(first_ms << min(failures - 1, 30), longest_ms)
    return at_ms + wait_ms if wait_ms else 0


class Deadlines(Generic[K]):
    """Keys, each with the moment at which it is due.

    Parameters
    ----------
    holds : callable
        Says of a key and a moment whether that still holds. Keys of which it does not are passed over.
    """

    def __init__(self, holds: Callable[[K, int], bool] = lambda key, due_ms: True) -> None:
        self._holds = holds
        self._heap: list[tuple[int, K]] = []

    def add(self, due_ms: int, key: K) -> None:
        """Add a key."""
        heapq.heappush(self._heap, (due_ms, key))

    @property
    def next_ms(self) -> int:
        """The earliest moment, ``NEVER_MS`` if there is none. Cost: O(1) in the long run."""
        while self._heap and not self._holds(self._heap[0][1], self._heap[0][0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER_MS

    def pass_to(self, now_ms: int) -> list[K]:
        """Let log time pass; return what is due by now, in order."""
        due: list[K] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, key = heapq.heappop(self._heap)
            if self._holds(key, due_ms):
                due.append(key)
        return due

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
