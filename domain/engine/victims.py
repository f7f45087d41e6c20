"""Placed pods by row, the most important first, with sums from below: what could be freed on a node.

Nothing is kept until it is asked for the first time. From then on only rows that changed are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Protocol

import numpy as np

from domain.kernels.preempt_arrays import NOT_STARTED, Band, PlacedPods
from domain.kernels.preempting import sum_below
from domain.model.devices import BUSY
from domain.state.cluster import ClusterState
from domain.state.devices import rows_told_apart
from domain.state.pod_classes import PodClass
from domain.state.pods import PodEntry, started_ms

_ROWS_FIRST = 64
_CLASSES_MIN = 1_000
_BANDS_MAX = 8


class BudgetsSeen(Protocol):
    """What planning asks of disruption budgets.

    ``allowed`` int32[B] is how many more pods of each may go now. ``version`` moves whenever ``of`` may
    answer otherwise for a pod that did not change itself.
    """

    @property
    def version(self) -> int:
        """See above."""
        ...

    @property
    def allowed(self) -> np.ndarray:
        """See above."""
        ...

    def of(self, pod: PodEntry) -> tuple[int, ...]:
        """Return the numbers of the budgets that lose one when a pod goes."""
        ...


class NoBudgets:
    """No pod has a budget."""

    version = 0
    allowed = np.zeros(0, dtype=np.int32)

    def of(self, pod: PodEntry) -> tuple[int, ...]:
        """See ``BudgetsSeen``."""
        return ()


def start_ms(pod: PodEntry) -> int:
    """Return when a pod started: before its ``status.startTime`` is known, when it was placed.

    ``NOT_STARTED`` is one that was placed just now.
    """
    return started_ms(pod) if pod.spec.start_time else pod.placed_ms or NOT_STARTED


def by_importance(pods: Iterable[PodEntry]) -> list[PodEntry]:
    """Return pods with the most important one first.

    The higher priority comes first; of equals the one that started earlier, and one that has not started
    comes last; of equals the greater uid. Source: kube-scheduler, MoreImportantPod; Gödel breaks ties by uid.
    """
    by_uid = sorted(pods, key=_uid, reverse=True)
    by_uid.sort(key=_importance)
    return by_uid


def _uid(pod: PodEntry) -> str:
    return pod.spec.uid


def _importance(pod: PodEntry) -> tuple[int, int]:
    return -pod.spec.template.priority, start_ms(pod)


class Victims:
    """The placed pods of a cluster by row, as ``kernels.preempting.PlacedPods``, followed by generation.

    Attributes
    ----------
    arrays : PlacedPods
        As of the last ``sync``. A planner may write on them: ``void`` says on which rows it did.
    classes : dict
        Class -> its number in ``arrays.kind``; 0 is of pods without a class.
    sets : list
        Sets of budgets by their number in ``arrays.budgets``; the first one is empty.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._generation = -1
        self._revision = -1
        self._budgets_version = -1
        self._claimed: Set[str] = frozenset()
        self._void: set[str] = set()
        self._renewed: set[str] | None = None  # that of the index, while it is followed
        self._renew()

    def _renew(self) -> None:
        """Begin with nothing."""
        columns = self._state.table.allocatable.shape[0]
        self.classes: dict[PodClass | None, int] = {None: 0}
        self.sets: list[tuple[int, ...]] = [()]
        self._numbers: dict[tuple[int, ...], int] = {(): 0}
        self._pods: list[list[PodEntry]] = []  # by row
        self._bands: dict[int, Band] = {}  # by priority, the latest one last
        self._room = np.zeros(0, dtype=np.int64)  # places that a row has
        self._end = 1
        self._wasted = 0
        self._classes_max = 1 << 62
        self.arrays = PlacedPods.allocate(np.zeros, {"N": 0, "P": 1, "R": columns})
        self._generation = -1

    def void(self, nodes: Iterable[str]) -> None:
        """Read the pods of some nodes again at the next ``sync``."""
        self._void.update(nodes)

    def band(self, priority: int) -> Band:
        """Return what pods below a priority hold. Cost: O(nodes) where it was not asked for lately."""
        band = self._bands.pop(priority, None)
        if band is None:
            if len(self._bands) == _BANDS_MAX:
                del self._bands[next(iter(self._bands))]
            shape = self.arrays.gone.shape
            band = Band.allocate(np.zeros, dict(zip("RN", shape, strict=True)))
            sum_below(self.arrays, priority, np.arange(self._state.table.count), band)
        self._bands[priority] = band
        return band

    def pods_on(self, row: int) -> list[PodEntry]:
        """Return the pods of a row in the order of the arrays."""
        return self._pods[row]

    def node_of(self, row: int) -> str:
        """Return the name of the node in a row."""
        return self._state.table.names[row]

    def sync(self, claimed: Set[str], budgets: BudgetsSeen) -> None:
        """Follow the state. ``claimed`` are keys of pods that were evicted already and are still there.

        Cost: O(pods on the rows that changed), and O(claimed).
        """
        state, table = self._state, self._state.table
        if self._revision != state.resources.revision or self._is_wasteful():
            self._revision = state.resources.revision
            self._renew()
        if self._renewed is None or state.index.renewed is not self._renewed:  # another reader emptied it
            state.index.renewed = self._renewed = set()
            self._generation = -1
        self._void |= self._renewed
        self._renewed.clear()
        self._void.update(state.pods[key].node for key in claimed ^ self._claimed if key in state.pods)
        self._claimed = frozenset(claimed)
        count = table.count
        self._widen(count)
        if self._generation < 0:
            rows = np.arange(count)
        else:
            rows = table.changed_since(self._generation)
            others = [table.rows[name] for name in self._void if name in table.rows]
            rows = np.union1d(rows, np.array(others, dtype=np.int64)) if others else rows
            rows = rows[rows < count]
        self._void.clear()
        is_first = self._generation < 0
        self._generation = table.last_generation
        if len(rows):
            self._write(rows, budgets, roomy=not is_first)
            for priority, band in self._bands.items():
                sum_below(self.arrays, priority, rows, band)
        if self._budgets_version != budgets.version:
            self._budgets_version = budgets.version
            self._group_anew(budgets)
        if is_first:
            self._classes_max = _CLASSES_MIN + 2 * len(self.classes)

    def _is_wasteful(self) -> bool:
        """Say whether most of the arrays, or of the classes, are of pods that are gone."""
        return self._wasted * 2 > self._end + _ROWS_FIRST or len(self.classes) > self._classes_max

    def _widen(self, rows: int) -> None:
        before = len(self.arrays.first)
        if rows > before:
            more = max(rows, 2 * before, _ROWS_FIRST) - before
            self._bands.clear()
            self._room = np.pad(self._room, (0, more))
            self._pods.extend([] for _ in range(more))
            self.arrays = self.arrays.replace(
                first=np.pad(self.arrays.first, (0, more)),
                length=np.pad(self.arrays.length, (0, more)),
                gone=np.pad(self.arrays.gone, ((0, 0), (0, more))),
            )

    def _write(self, rows: np.ndarray, budgets: BudgetsSeen, *, roomy: bool) -> None:
        """Write the pods of some rows, each behind the one before, with a place of zeros behind the last."""
        state, claimed = self._state, self._claimed
        names, nodes = state.table.names, state.nodes
        written: list[list[PodEntry]] = []
        self.arrays.gone[:, rows] = 0
        for row in rows.tolist():
            pods: Iterable[PodEntry] = nodes[names[row]].pods.values()
            if claimed:
                pods = self._without_claimed(row, pods)
            self._pods[row] = by_importance(pods)
            written.append(self._pods[row])
        busy = state.resources.column(BUSY)
        told_apart = rows_told_apart(state.table.allocatable, state.resources, rows)
        self.arrays.gone[busy, rows[told_apart]] = 0
        lengths = np.array([len(pods) for pods in written], dtype=np.int64)
        self._place(rows, lengths, roomy=roomy)
        arrays = self.arrays
        arrays.length[rows] = lengths
        flat = [pod for pods in written for pod in pods]
        first = arrays.first[rows]
        before = np.cumsum(lengths) - lengths
        at = np.arange(len(flat)) + np.repeat(first - before, lengths)
        arrays.priority[at] = [pod.spec.template.priority for pod in flat]
        arrays.start_ms[at] = [start_ms(pod) for pod in flat]
        arrays.kind[at] = [self._kind(pod.pod_class) for pod in flat]
        arrays.budgets[at] = [self._set(budgets.of(pod)) for pod in flat] if len(budgets.allowed) else 0
        arrays.is_there[at] = 1
        amounts = self._amounts(flat)
        amounts[busy, np.repeat(told_apart, lengths)] = 0  # it is derived there
        sums = np.zeros((len(amounts), len(flat) + 1), dtype=np.int64)
        np.cumsum(amounts[:, ::-1], axis=1, out=sums[:, 1:])
        from_below = sums[:, ::-1]  # [c, i]: the sum over flat[i:]
        ends = np.repeat(before + lengths, lengths)
        arrays.below[:, at] = from_below[:, : len(flat)] - from_below[:, ends]
        arrays.below[:, first + lengths] = 0

    def _without_claimed(self, row: int, pods: Iterable[PodEntry]) -> Iterator[PodEntry]:
        for pod in pods:
            if pod.spec.key in self._claimed:
                vector = self._state.sums.vector(pod.spec)
                lasting = vector.lasting_count
                self.arrays.gone[vector.columns[:lasting], row] += vector.values[:lasting]
            else:
                yield pod

    def _place(self, rows: np.ndarray, lengths: np.ndarray, *, roomy: bool) -> None:
        """Give rows more places where theirs are too few: new ones, behind all others."""
        short = lengths >= self._room[rows]
        if not short.any():
            return
        rows, lengths = rows[short], lengths[short]
        self._wasted += int(self._room[rows].sum())
        room = lengths + 1 + (lengths // 2 + 1 if roomy else 0)
        ends = self._end + np.cumsum(room)
        self.arrays.first[rows], self._room[rows] = ends - room, room
        self._end = int(ends[-1])
        capacity = len(self.arrays.priority)
        if self._end > capacity:
            more = self._end * 5 // 4 - capacity
            self.arrays = self.arrays.replace(
                **{
                    name: np.pad(getattr(self.arrays, name), (0, more))
                    for name in ("priority", "start_ms", "kind", "budgets", "is_there", "mark")
                },
                below=np.pad(self.arrays.below, ((0, 0), (0, more))),
            )

    def _group_anew(self, budgets: BudgetsSeen) -> None:
        """Ask for the budgets of all pods."""
        self.sets, self._numbers = [()], {(): 0}
        self.arrays.budgets[:] = 0
        if len(budgets.allowed):
            for first, pods in zip(
                self.arrays.first.tolist(), self._pods[: self._state.table.count], strict=False
            ):
                self.arrays.budgets[first : first + len(pods)] = [self._set(budgets.of(pod)) for pod in pods]

    def _kind(self, pod_class: PodClass | None) -> int:
        return self.classes.setdefault(pod_class, len(self.classes))

    def _set(self, budgets: tuple[int, ...]) -> int:
        number = self._numbers.get(budgets)
        if number is None:
            number = self._numbers[budgets] = len(self.sets)
            self.sets.append(budgets)
        return number

    def _amounts(self, pods: Sequence[PodEntry]) -> np.ndarray:
        """Return int64[R, len(pods)]: what each requests, but for what a measurement will cover."""
        sums = self._state.sums
        numbers: dict[tuple[bytes, tuple[int, ...]], int] = {}
        kinds = ((pod.spec.signature, pod.spec.devices) for pod in pods)
        which = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
        amounts = np.zeros((self.arrays.below.shape[0], len(numbers)), dtype=np.int64)
        seen = set[int]()
        for pod, number in zip(pods, which, strict=True):
            if number not in seen:
                seen.add(number)
                vector = sums.vector(pod.spec)
                lasting = vector.lasting_count
                amounts[vector.columns[:lasting], number] = vector.values[:lasting]
        return amounts[:, which]
