"""What pods count that have no node yet but a nominated one, in the counters that ask for it.

Such a counter counts placed pods, as any other does, and these. As with room, such a pod counts while
pods of no higher priority are placed: a cycle takes it out and puts it back (``count``). All are counted anew
with each cycle, since nodes and the classes of pods may be others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from domain.counting.counted import Counted, with_nominated
from domain.counting.effects import Effects
from domain.kernels import arrays as kernel
from domain.plugins.weighers import Weigher
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.pod_classes import PodClass

Version = tuple[int, int]
_NONE = (0, 0)
_Change = tuple[int, int, int]
"""The number of a counter, a row, and how much it counts more there."""


class _Counters(Protocol):
    """What is asked of the table of counters (``counters.py``)."""

    arrays: kernel.Counters
    effects: Effects

    def is_by_row(self, number: int) -> bool: ...

    def add(self, changes: list[_Change]) -> np.ndarray: ...


class NominatedCounts:
    """Counts pods with nominated nodes in the counters that want them.

    Nothing is done where there is no such counter: a group has one only while nodes are nominated for pods
    that count for its rules. Pods of other workers that wait are not known here, and not counted.

    Attributes
    ----------
    out : mapping
        The nominations, by key, that do not count now.
    moves : int
        Grows when such a counter counts otherwise.
    """

    def __init__(self, state: ClusterState, table: _Counters) -> None:
        self._state, self._table = state, table
        self._numbers: dict[int, list[tuple[str, int, int]]] = {}  # what counted when all did, by counter
        self._in: dict[str, tuple[PodClass, int]] = {}  # by key of the pod: what counts now, and its row
        self._classes: dict[PodClass, None] = {}
        self._classes_version = 0
        self._looked_at = -1  # version of the nominations
        self._compared_at = -1
        self._synced_at = -1
        self.out: Mapping[str, Nomination] = {}
        self.moves = 0

    # ----------------------------------------------------------------------------------------- rules

    def version_for(self, counted: Counted) -> Version:
        """Return what moves when other rules of a group may have to count pods with nominated nodes.

        Cost: O(nominations) where these moved.
        """
        known = self._state.nominations
        if not counted.rules or not (known.entries or self._classes):
            return _NONE
        if self._looked_at != known.version:
            self._looked_at = known.version
            found = {pod_class: None for _, (pod_class, _) in self._known()}
            if found.keys() != self._classes.keys():
                self._classes = found
                self._classes_version += 1
        return (self._classes_version, self._state.index.version) if self._classes else _NONE

    def among(self, asked: Counted) -> Counted:
        """Return what a group asks of others, with the rules for which pods with nominated nodes count."""
        self.version_for(asked)
        return with_nominated(asked, self._weighs) if self._classes else asked

    def _weighs(self, weigher: Weigher) -> bool:
        namespaces = self._state.index.namespaces
        return any(weigher.weigh(pod_class, namespaces) for pod_class in self._classes)

    def _known(self) -> Iterator[tuple[str, tuple[PodClass, int]]]:
        """Yield the pods with nominated nodes, as far as pod and node are known here."""
        for key, nomination in self._state.nominations.entries.items():
            place = self._place_of(nomination)
            if place is not None:
                yield key, place

    def _places(self) -> list[tuple[PodClass, int]]:
        """Return the classes of these pods, each with the row of its node."""
        return [place for _, place in self._known()]

    def _place_of(self, nomination: Nomination) -> tuple[PodClass, int] | None:
        pod, row = self._state.pods.get(nomination.key), self._state.table.rows.get(nomination.node)
        if pod is None or pod.pod_class is None or row is None or pod.spec.uid != nomination.uid:
            return None
        return pod.pod_class, row

    # --------------------------------------------------------------------------------------- counting

    def add_counter(self, number: int) -> None:
        """Take a new counter, before it is filled."""
        if not self._numbers:
            self._in = {key: place for key, place in self._known() if key not in self.out}
        self._numbers[number] = self._seen(number, self._places())

    def remove_counter(self, number: int) -> None:
        """Forget a counter."""
        self._numbers.pop(number, None)

    def idle(self) -> list[int]:
        """Return the counters for which no pod with a nominated node counts."""
        return [number for number, seen in self._numbers.items() if not seen]

    def counted_in(self, number: int) -> list[_Change]:
        """Return what counts in a counter now."""
        if number not in self._numbers:
            return []
        weight_of = self._table.effects.of
        found = [(number, row, weight_of(pod_class).get(number, 0)) for pod_class, row in self._in.values()]
        return [each for each in found if each[2]]

    def count(self, nominations: Iterable[Nomination], sign: int) -> None:
        """Let the pods of nominations count (1), or no more (-1)."""
        if not self._numbers:
            return
        moved = []
        for each in nominations:
            place = self._place_of(each) if sign > 0 else self._in.pop(each.key, None)
            if place is not None:
                moved.append(place)
                if sign > 0:
                    self._in[each.key] = place
        self._count(moved, sign)

    @property
    def is_behind(self) -> bool:
        """Whether ``count_all`` may move a counter."""
        return bool(self._numbers) and self._synced_at != self._state.nominations.version

    def uncount_all(self) -> None:
        """Let nothing count, before the table follows the state."""
        self._looked_at, self.out = -1, {}
        self._count(self._in.values(), -1)
        self._in = {}

    def count_all(self) -> None:
        """Let all pods with nominated nodes count, once the table has followed the state."""
        self._synced_at = self._state.nominations.version
        if not self._numbers:
            return
        self._in = dict(self._known())
        self._count(self._in.values(), 1)
        self._compare()

    def follow(self) -> None:
        """Move the versions of counters that count other nominations than when the cycle began.

        A counter that begins later knows of them. A group that looked at one before must see that it moved,
        or it would matter since when a counter is kept.

        Cost: O(counters times nominations) where these moved.
        """
        if self._numbers and self._compared_at != self._state.nominations.version:
            self._compare()

    def _compare(self) -> None:
        self._compared_at = self._state.nominations.version
        places = self._places()
        for number, before in self._numbers.items():
            now = self._numbers[number] = self._seen(number, places)
            if now != before:
                self._table.arrays.version[number] += 1
                self.moves += 1

    def _seen(self, number: int, places: Sequence[tuple[PodClass, int]]) -> list[tuple[str, int, int]]:
        """Return where all of these pods would count in a counter, and how much: nodes with their domains.

        A node that is a domain of its own is one whatever its row.
        """
        arrays, effects, names = self._table.arrays, self._table.effects, self._state.table.names
        of_row, mask = arrays.domain[arrays.topology[number]], int(arrays.mask[number])
        if self._table.is_by_row(number):
            of_row = np.minimum(of_row, 0)
        found = []
        for pod_class, row in places:
            weight = effects.of(pod_class).get(number, 0)
            if weight and (mask < 0 or arrays.eligible[mask, row]):
                found.append((names[row], int(of_row[row]), weight))
        return sorted(found)

    def _changes(self, places: Iterable[tuple[PodClass, int]], sign: int) -> Iterator[_Change]:
        for pod_class, row in places:
            for number, weight in self._table.effects.of(pod_class).items():
                if number in self._numbers:
                    yield number, row, sign * weight

    def _count(self, places: Iterable[tuple[PodClass, int]], sign: int) -> None:
        """Count, and move no version: a pod that is tried and counts no more for a moment wakes no group."""
        self._table.add(list(self._changes(places, sign)))
