"""Counters over placed pods: the arrays in which the placing kernel counts, kept right from cycle to cycle.

A counter is filled once, from the classes of placed pods. From then on it follows: the kernel counts what it
places itself, the journal of the state says what else came and went, and where nodes changed, the pods on
them are counted anew. None of it costs more where more pods are placed.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Hashable, Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from domain.cycle.domains import Domains
from domain.kernels import arrays as kernel
from domain.model.limits import counter_cells_max
from domain.plugins.counting import CounterSpec
from domain.plugins.weighers import Weigher
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass

_COUNTERS_FIRST = 16
_CELLS_FIRST = 1 << 10
_CELL_BYTES = 5
_COUNTER_CELLS, _ANCHOR_CELLS = 300, 60  # what a counter takes beside its domains, as cells
_TYPES: dict[str, type] = {
    "topology": np.int32,
    "mask": np.int32,
    "first": np.int64,
    "length": np.int32,
    "sums": np.int32,
    "has_nodes": np.uint8,
    "total": np.int64,
    "version": np.int64,
}


class _Counter:
    """A counter: its number in the kernel's arrays, and how many programs use it now."""

    __slots__ = ("cells", "number", "spec", "users_count")

    def __init__(self, spec: CounterSpec, number: int, anchors_count: int) -> None:
        self.cells = _COUNTER_CELLS + _ANCHOR_CELLS * anchors_count
        self.spec = spec
        self.number = number
        self.users_count = 0


class CounterTable:
    """The counters in use, and those that were: the least recently used goes first when room is short.

    Attributes
    ----------
    arrays : kernel.Counters
        What the kernel reads and writes. It is another tuple after ``take`` and ``sync``.
    """

    def __init__(self, state: ClusterState, width: int, *, cells_max: int = counter_cells_max) -> None:
        self._state = state
        self._index = state.index
        self._cells_max = cells_max
        self._by_spec: dict[CounterSpec, _Counter] = {}  # in order of use, oldest first
        self._by_number: dict[int, _Counter] = {}
        self._anchored: dict[Hashable, dict[int, None]] = {}  # numbers of counters by their anchors
        self._free: list[int] = []
        self._effects: WeakKeyDictionary[PodClass, dict[int, int]] = WeakKeyDictionary()
        self._domains = Domains(state.table, width)
        self._names: dict[tuple[str, bool, int], str] = {}  # of domains, while nodes stay what they are
        self._cells_end = 0
        self._cells_beside = 0  # of all counters: what they take beside the arrays
        self._namespaces_version = 0
        empty: dict[str, np.ndarray] = {name: np.zeros(0, dtype=kind) for name, kind in _TYPES.items()}
        self.arrays = kernel.Counters(domain=self._domains.domain, eligible=self._domains.eligible, **empty)

    # ------------------------------------------------------------------------------------------- using

    def take(self, spec: CounterSpec) -> int:
        """Return the number of a counter that is used once more. Give it back by ``drop``.

        Call it between ``sync`` and the end of the cycle. Cost: O(classes and nodes counted) at its first
        use.
        """
        counter = self._by_spec.pop(spec, None)
        if counter is None:
            counter = self._begin(spec)
        self._by_spec[spec] = counter
        counter.users_count += 1
        return counter.number

    def drop(self, number: int) -> None:
        """Give a counter back."""
        self._by_number[number].users_count -= 1

    @property
    def is_full(self) -> bool:
        """Whether the counters take so much memory that some should be given back."""
        taken = self._cells_end + self._cells_beside + self._domains.bytes_used // _CELL_BYTES
        return taken > self._cells_max

    def domain_name(self, number: int, domain: int) -> str:
        """Return what a counter's domain stands for: a value of the topology key, or the name of a node."""
        spec = self._by_number[number].spec
        name = self._names.get((spec.topology_key, spec.by_row, domain))
        if name is None:
            row = int(np.argmax(self.arrays.domain[self.arrays.topology[number]] == domain))
            is_row = spec.by_row or not spec.topology_key
            table = self._state.table
            name = table.names[row] if is_row else table.specs[row].labels[spec.topology_key]
            self._names[spec.topology_key, spec.by_row, domain] = name
        return name

    def version_of(self, numbers: Iterable[int]) -> int:
        """Return a number that grows with each change of any of some counters."""
        version = self.arrays.version
        return sum(int(version[number]) for number in numbers)

    def effects_of(self, pod_class: PodClass) -> dict[int, int]:
        """Return what a pod of a class adds to which counter, once it is placed."""
        found = self._effects.get(pod_class)
        if found is None:
            found, near = {}, dict[int, None]()
            for anchor in pod_class.anchors() if self._anchored else ():
                near.update(self._anchored.get(anchor, {}))
            for number in near:
                weight = self._by_number[number].spec.weigher.weigh(pod_class, self._index.namespaces)
                if weight:
                    found[number] = weight
            self._effects[pod_class] = found
        return found

    def effects(self, classes: Sequence[tuple[int, PodClass | None]], slots: int) -> kernel.Effects:
        """Return for the kernel what the pods of slots count, given each with the class of its pods."""
        lengths = np.zeros(slots + 1, dtype=np.int32)
        found: dict[int, dict[int, int]] = {}
        for slot, pod_class in classes if self._by_spec else ():
            of_class = self.effects_of(pod_class) if pod_class is not None else None
            if of_class:
                found[slot] = of_class
                lengths[slot + 1] = len(of_class)
        pairs = [pair for slot in sorted(found) for pair in found[slot].items()]
        flat = np.array(pairs, dtype=np.int32).reshape(-1, 2)
        return kernel.Effects(np.cumsum(lengths, dtype=np.int32), flat[:, 0].copy(), flat[:, 1].copy())

    # ----------------------------------------------------------------------------------------- following

    @property
    def is_behind(self) -> bool:
        """Whether ``sync`` may move a counter."""
        if not self._by_spec:
            return False
        has_namespaces = self._namespaces_version != self._index.namespaces_version
        return bool(self._index.journal) or self._domains.is_behind or has_namespaces

    def sync(self, width: int) -> None:
        """Follow what happened since the last time. ``width`` is how many rows the arrays must have."""
        if not self._by_spec:
            self._domains.widen(width)
            self._index.journal = None
            return
        self._follow_journal()
        if self._domains.widen(width):
            self._lay_out()
        if self._domains.is_behind:
            self._follow_nodes()
        if self._namespaces_version != self._index.namespaces_version:
            self._namespaces_version = self._index.namespaces_version
            self._recount([c for c in self._by_spec.values() if _reads_namespaces(c.spec.weigher)])

    def void(self) -> None:
        """Count everything anew: what the kernel placed on trial did not come to be."""
        self._recount(list(self._by_spec.values()))

    def _follow_journal(self) -> None:
        journal = self._index.journal
        if not journal:
            return
        moves: Multiset[tuple[PodClass, str]] = Multiset()
        for pod_class, node, change in journal:
            moves[pod_class, node] += change
        journal.clear()
        changes: list[tuple[int, int, int]] = []
        for (pod_class, node), change in moves.items():
            row = self._domains.rows.get(node)
            if change and row is not None:
                changes += [(n, row, weight * change) for n, weight in self.effects_of(pod_class).items()]
        self._add(changes, self._domains.domain, self._domains.eligible)

    def _follow_nodes(self) -> None:
        """Count anew the pods on rows whose node, domain or eligibility is another."""
        self._names.clear()
        moved = self._domains.update()
        if moved is None:
            return
        capacity = self._domains.capacity
        if any(self.arrays.length[n] != capacity(int(self.arrays.topology[n])) for n in self._by_number):
            self._lay_out()
        gone: list[tuple[int, int, int]] = []
        came: list[tuple[int, int, int]] = []
        for k, (row, name) in enumerate(zip(moved.rows.tolist(), moved.names, strict=True)):
            gone += [(n, k, -weight) for n, weight in self._on_node(name)]
            came += [(n, row, weight) for n, weight in self._on_node(self._domains.names.get(row))]
        self._add(gone, moved.domain, moved.eligible)
        self._add(came, self._domains.domain, self._domains.eligible)
        for counter in self._by_spec.values():
            self._write_nodes(counter)

    def _on_node(self, name: str | None) -> Iterator[tuple[int, int]]:
        """Yield numbers of counters, and what the pods on a node add to them."""
        entry = None if name is None else self._state.nodes.get(name)
        if entry is not None:
            classes = Multiset(pod.pod_class for pod in entry.pods.values() if pod.pod_class is not None)
            for pod_class, count in classes.items():
                for number, weight in self.effects_of(pod_class).items():
                    yield number, weight * count

    def _add(self, changes: list[tuple[int, int, int]], domains: np.ndarray, eligible: np.ndarray) -> None:
        """Add to counters: number, column of ``domains`` and ``eligible``, and how much."""
        if not changes:
            return
        arrays = self.arrays
        number, column, value = np.array(changes, dtype=np.int64).T
        domain, mask = np.abs(domains[arrays.topology[number], column] + 1) - 1, arrays.mask[number]
        counted = domain >= 0
        masked = np.flatnonzero(mask >= 0)
        counted[masked] &= eligible[mask[masked], column[masked]] != 0
        number, domain, value = number[counted], domain[counted], value[counted]
        np.add.at(arrays.sums, arrays.first[number] + domain, value.astype(np.int32))
        np.add.at(arrays.total, number, value)
        np.add.at(arrays.version, number, 1)

    # ------------------------------------------------------------------------------------------- filling

    def _begin(self, spec: CounterSpec) -> _Counter:
        if not self._by_spec:
            self._domains.update()
            self._namespaces_version = self._index.namespaces_version
            self._index.journal = []
            self._effects.clear()
        assert not self._index.journal, "a counter begins between a sync and the end of its cycle"
        if self.is_full:
            self.drop_unused()
        if not self._free:
            self._grow()
        anchors = spec.weigher.anchors()
        counter = _Counter(spec, self._free.pop(), len(anchors))
        number = counter.number
        self._by_spec[spec], self._by_number[number] = counter, counter
        self._cells_beside += counter.cells
        for anchor in anchors:
            self._anchored.setdefault(anchor, {})[number] = None
        arrays = self.arrays
        arrays.topology[number] = self._domains.take_topology(
            spec.topology_key, by_row=spec.by_row, missing_is_empty=spec.missing_is_empty
        )
        arrays.mask[number] = -1 if spec.eligible is None else self._domains.take_mask(spec.eligible)
        arrays.length[number] = 0
        self._renew_arrays()
        self._allot(number)
        self._recount([counter])
        return counter

    def _recount(self, counters: Sequence[_Counter]) -> None:
        """Count all placed pods anew, and what pods of each class add."""
        for counter in counters:
            number, weigher = counter.number, counter.spec.weigher
            changes: list[tuple[int, int, int]] = []
            for pod_class in self._index.classes_with(weigher.anchors()):
                weight = weigher.weigh(pod_class, self._index.namespaces)
                effects = self._effects.get(pod_class)
                if effects is not None:
                    effects.pop(number, None)
                    if weight:
                        effects[number] = weight
                for node in pod_class.by_node if weight else ():
                    row = self._domains.rows.get(node)
                    if row is not None:
                        changes.append((number, row, weight * pod_class.by_node[node]))
            first = self.arrays.first[number]
            self.arrays.sums[first : first + self.arrays.length[number]] = 0
            self.arrays.total[number] = 0
            self.arrays.version[number] += 1
            self._add(changes, self._domains.domain, self._domains.eligible)
            self._write_nodes(counter)

    def _write_nodes(self, counter: _Counter) -> None:
        """Write which domains of a counter have an eligible row."""
        arrays, number = self.arrays, counter.number
        has_nodes = arrays.has_nodes[arrays.first[number] :][: arrays.length[number]]
        found = self._domains.having_rows(int(arrays.topology[number]), int(arrays.mask[number]))
        if not np.array_equal(found, has_nodes[: len(found)]):
            has_nodes[: len(found)] = found
            arrays.version[number] += 1

    # ------------------------------------------------------------------------------------------- memory

    def drop_unused(self) -> None:
        """Drop every counter that nobody uses. Cost: O(counters)."""
        unused = [counter for counter in self._by_spec.values() if not counter.users_count]
        for counter in unused:
            self._end(counter)
        if unused:
            self._effects.clear()
            self._lay_out()

    def _end(self, counter: _Counter) -> None:
        number, spec = counter.number, counter.spec
        self._domains.drop_topology(int(self.arrays.topology[number]))
        self._domains.drop_mask(int(self.arrays.mask[number]))
        for anchor in spec.weigher.anchors():
            del self._anchored[anchor][number]
            if not self._anchored[anchor]:
                del self._anchored[anchor]
        del self._by_spec[spec], self._by_number[number]
        self._cells_beside -= counter.cells
        self.arrays.version[number] += 1  # whoever waits for it to change must look again
        self._free.append(number)

    def _grow(self) -> None:
        """Make room for twice as many counters."""
        before = len(self.arrays.topology)
        count = max(_COUNTERS_FIRST, 2 * before)
        wider = {
            name: np.concatenate([old, np.zeros(count - before, dtype=old.dtype)])
            for name in ("topology", "mask", "first", "length", "total", "version")
            for old in (getattr(self.arrays, name),)
        }
        self.arrays = self.arrays._replace(**wider)
        self._free.extend(range(count - 1, before - 1, -1))

    def _renew_arrays(self) -> None:
        self.arrays = self.arrays._replace(domain=self._domains.domain, eligible=self._domains.eligible)

    def _allot(self, number: int) -> None:
        length = self._domains.capacity(int(self.arrays.topology[number]))
        if self._cells_end + length > len(self.arrays.sums):
            self._lay_out()
            return
        first = self._cells_end
        self._cells_end += length
        arrays = self.arrays
        arrays.first[number], arrays.length[number] = first, length
        arrays.sums[first : first + length] = 0
        arrays.has_nodes[first : first + length] = 0

    def _lay_out(self) -> None:
        """Give each counter as many cells as its topology has domains, and half as many cells to spare."""
        old = self.arrays
        lengths = {n: self._domains.capacity(int(old.topology[n])) for n in self._by_number}
        cells = max(_CELLS_FIRST, sum(lengths.values()) * 3 // 2)
        sums, has_nodes = np.zeros(cells, dtype=np.int32), np.zeros(cells, dtype=np.uint8)
        end = 0
        for number, length in lengths.items():
            first, kept = int(old.first[number]), min(int(old.length[number]), length)
            sums[end : end + kept] = old.sums[first : first + kept]
            has_nodes[end : end + kept] = old.has_nodes[first : first + kept]
            old.first[number], old.length[number] = end, length
            end += length
        self._cells_end = end
        self.arrays = old._replace(
            sums=sums, has_nodes=has_nodes, domain=self._domains.domain, eligible=self._domains.eligible
        )


def _reads_namespaces(weigher: Weigher) -> bool:
    matches = (match for all_of, _ in weigher.matches for match in all_of)
    return any(m.namespace_selector is not None and m.namespace_selector.requirements for m in matches)
