"""What is remembered of namespaces within a bound for all: those that have most of it make room."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def fair_share(counts: Iterable[int], most: int) -> int:
    """Return how many each may keep, so that all together keep ``most`` at most (max-min fairness).

    A namespace that has no more than that loses nothing. Cost: O(n log n).
    """
    rising = sorted(counts)
    left = most
    for i, count in enumerate(rising):
        share = left // (len(rising) - i)
        if count > share:
            return share
        left -= count
    return rising[-1] if rising else most


class Remembered(Generic[K, V]):
    """Entries by namespace, the oldest of each first."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[K, V]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[K, V]]:
        for entries in self._entries.values():
            yield from entries.items()

    def of(self, namespace: str) -> Mapping[K, V]:
        """Return the entries of a namespace."""
        return self._entries.get(namespace, {})

    def put(self, namespace: str, key: K, value: V) -> None:
        """Remember an entry as the latest of its namespace."""
        self.forget_entry(namespace, key)
        self._entries.setdefault(namespace, {})[key] = value
        self._count += 1

    def forget_entry(self, namespace: str, key: K) -> None:
        """Forget an entry, if it is there."""
        entries = self._entries.get(namespace)
        if entries is not None and key in entries:
            del entries[key]
            self._count -= 1
            if not entries:
                del self._entries[namespace]

    def keep(self, holds: Callable[[V], bool]) -> None:
        """Forget the entries for which this does not hold. Cost: O(entries)."""
        entries = {
            namespace: {key: value for key, value in of.items() if holds(value)}
            for namespace, of in self._entries.items()
        }
        self._entries = {namespace: of for namespace, of in entries.items() if of}
        self._count = sum(map(len, self._entries.values()))

    def make_room(self, most: int) -> list[K]:
        """Forget all but ``most``, the oldest of those namespaces that have most; return what was forgotten.

        A sixteenth more is forgotten, as to take the first of a dict again and again gets slow. Cost:
        O(entries) of the namespaces that lose any.
        """
        most -= most // 16
        share = max(1, fair_share(map(len, self._entries.values()), most))
        forgotten: list[K] = []
        for namespace, entries in self._entries.items():
            surplus = len(entries) - share
            if surplus > 0:
                forgotten += islice(entries, surplus)
                self._entries[namespace] = dict(islice(entries.items(), surplus, None))
        self._count -= len(forgotten)
        for namespace in [*islice(self._entries, max(0, self._count - most))]:  # there are more namespaces
            forgotten += self._entries.pop(namespace)
            self._count -= 1
        return forgotten
