"""Counters over placed pods: the arrays in which the placing kernel counts, kept right from cycle to cycle.

A counter is filled once, from the classes of placed pods. From then on it follows: the kernel counts what it
places itself, the journal of the state says what else came and went, and where nodes changed, the pods on
them are counted anew. None of it costs more where more pods are placed.

A counter by node has a cell for each node, nearly all of them 0. Thousands of such counters do not fit memory
together, and need not: the classes know on which nodes their pods are. So a counter with many domains has
cells only while groups that ask for it are placed. The least recently used gives them up, keeps its total and
its version, and is filled from the classes again when it is asked for.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import numpy as np

from domain.counting.cells import Cells
from domain.counting.counter import Counter
from domain.counting.domains import Domains, Moved
from domain.counting.effects import Effects
from domain.counting.node_moves import NodeMoves
from domain.counting.nominated_counts import NominatedCounts
from domain.kernels import arrays as kernel
from domain.model.limits import counter_cells_max
from domain.plugins.counting import CounterSpec
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass

_COUNTERS_FIRST = 16
_CELL_BYTES = 5
_PAGED_FROM = 1 << 9
"""A counter with more domains than this has cells only while it is asked for."""


class CounterTable:
    """The counters in use, and those that were: the least recently used goes first when room is short.

    Attributes
    ----------
    arrays : kernel.Counters
        What the kernel reads and writes. Another table after ``acquire_counter``, ``load`` and ``sync``.
    """

    def __init__(
        self,
        state: ClusterState,
        width: int,
        *,
        cells_max: int = counter_cells_max,
        paged_from: int = _PAGED_FROM,
    ) -> None:
        self._state = state
        self._index = state.index
        self._cells_max = cells_max
        self._paged_from = paged_from
        self._by_spec: dict[CounterSpec, Counter] = {}  # in order of use, oldest first
        self._by_number: dict[int, Counter] = {}
        self._free: list[int] = []
        self.effects = Effects(state.index)
        self.nominated = NominatedCounts(state, self)
        self._domains = Domains(state.table, width)
        self._cells = Cells()
        self._cells_beside = 0  # of all counters: what they take beside large domains
        self._pages: OrderedDict[int, int] = OrderedDict()  # cells of large counters, oldest first
        self._pages_cells = 0
        self._call = 0
        self._nodes_moved = 0
        self.arrays = kernel.Counters.allocate(
            np.zeros,
            {"C": 0},
            domain=self._domains.domain,
            eligible=self._domains.eligible,
            sums=self._cells.sums,
            has_nodes=self._cells.has_nodes,
        )

    # ------------------------------------------------------------------------------------------- using

    def acquire_counter(self, spec: CounterSpec) -> int:
        """Return the number of a counter that is used once more. Give it back by ``release_counter``.

        Call it between ``sync`` and the end of the cycle. Cost: O(classes and nodes counted) at its first
        use.
        """
        counter = self._by_spec.pop(spec, None)
        if counter is None:
            counter = self._begin(spec)
        self._by_spec[spec] = counter
        counter.users_count += 1
        return counter.number

    def release_counter(self, number: int) -> None:
        """Give a counter back."""
        self._by_number[number].users_count -= 1

    def start_call(self) -> None:
        """Let the cells go that the last call of the kernel needed: others may have them now."""
        self._call += 1
        self.nominated.follow()

    def load(self, numbers: Iterable[int], *, must: bool) -> bool:
        """Give counters cells until the next call; return False where there is no room for all of this call.

        With ``must`` there is. Call it between ``sync`` and the end of the cycle.
        """
        for number in numbers:
            self._by_number[number].called = self._call
            if number in self._pages:
                self._pages.move_to_end(number)
            elif not self.arrays.length[number]:
                self._load(number)
        return must or self._pages_cells <= self._pages_cells_max

    @property
    def is_full(self) -> bool:
        """Whether the counters take so much memory beside their cells that some should be given back."""
        return self._cells_fixed > self._cells_max * 3 // 4

    @property
    def _cells_fixed(self) -> int:
        return self._cells_beside + self._domains.bytes_used // _CELL_BYTES

    @property
    def _pages_cells_max(self) -> int:
        return max(self._cells_max - self._cells_fixed, self._cells_max // 4)

    def domain_name(self, number: int, domain: int) -> str:
        """Return what a counter's domain stands for: a value of the topology key, or the name of a node."""
        return self._domains.name_of(int(self.arrays.topology[number]), domain)

    def is_by_row(self, number: int) -> bool:
        """Say whether each node is a domain of a counter."""
        return self._domains.is_by_row(int(self.arrays.topology[number]))

    def having(self, numbers: Iterable[int]) -> list[Counter]:
        """Return counters by number, for a group that waits until one of them changes."""
        return [self._by_number[number] for number in numbers]

    def version_of(self, counters: Iterable[Counter]) -> int:
        """Return a number that grows with each change of any of some counters.

        Of a counter that was dropped it grows with each change of any counter: what it would count by now is
        not known. To be dropped is no change, or groups that wait would wake each other for ever.
        """
        version, moves = self.arrays.version, self.moves
        return sum(int(version[c.number]) if c.ended is None else c.ended + moves for c in counters)

    @property
    def moves(self) -> int:
        """A number that grows whenever a counter may change."""
        return self._index.moves + self._nodes_moved + self.nominated.moves

    # ----------------------------------------------------------------------------------------- following

    @property
    def has_any(self) -> bool:
        """Whether it counts anything, so that it has to follow the state."""
        return bool(self._by_spec)

    @property
    def is_behind(self) -> bool:
        """Whether ``sync`` may move a counter."""
        if not self._by_spec:
            return False
        return bool(self._index.journal) or self._domains.is_behind or self.nominated.is_behind

    def sync(self, width: int) -> None:
        """Follow what happened since the last time. ``width`` is how many rows the arrays must have."""
        if not self._by_spec:
            self._domains.widen(width)
            self._index.journal = None
            self.effects.forget_gone()
            return
        self.nominated.uncount_all()
        self._follow_journal()
        is_wider = self._domains.widen(width)
        if is_wider:
            self._renew_arrays()
        if is_wider or self._domains.is_behind:
            self._follow_nodes(is_wider)
        self.nominated.count_all()
        self.effects.forget_gone()  # what they counted is taken out by now
        self._end(counter for counter in self.having(self.nominated.idle()) if not counter.users_count)

    def _follow_journal(self) -> None:
        journal = self._index.journal
        if not journal:
            return
        moves: Multiset[tuple[PodClass, str]] = Multiset()
        renamed: dict[str, None] = {}
        for pod_class, node, change in journal:
            if pod_class is None:
                renamed[node] = None
            else:
                moves[pod_class, node] += change
        journal.clear()
        changes: list[tuple[int, int, int]] = []
        for (pod_class, node), change in moves.items():
            row = self._domains.rows.get(node)
            if change and row is not None:
                changes += [(n, row, weight * change) for n, weight in self.effects.of(pod_class).items()]
        for namespace in renamed:
            for pod_class, number, more in self.effects.weigh_anew(namespace):
                changes += [(number, row, more * count) for row, count in self._rows_of(pod_class)]
        np.add.at(self.arrays.version, self.add(changes), 1)

    def _rows_of(self, pod_class: PodClass) -> Iterator[tuple[int, int]]:
        """Yield rows, and how many pods of a class count there."""
        rows = self._domains.rows
        return ((rows[node], count) for node, count in pod_class.by_node.items() if node in rows)

    def _follow_nodes(self, is_wider: bool) -> None:
        """Count anew the pods on rows with another node, domain or eligibility."""
        moved = self._domains.update()
        if moved is None and not is_wider:
            return
        self._nodes_moved += 1
        self._unload_outgrown()
        if moved is not None:
            gone: list[tuple[int, int, int]] = []
            came: list[tuple[int, int, int]] = []
            nodes, names = self._state.nodes, self._domains.names
            for k, (row, name) in enumerate(zip(moved.rows.tolist(), moved.names, strict=True)):
                gone += [(n, k, -weight) for n, weight in self.effects.on_node(nodes, name)]
                came += [(n, row, weight) for n, weight in self.effects.on_node(nodes, names.get(row))]
            self.add(gone, moved)
            self.add(came)
            changes = NodeMoves(moved, self._domains, self.arrays)
            self.arrays.version[sorted(changes.counting_otherwise(gone, came))] += 1
            for number in self._by_number:
                self.arrays.version[number] += changes.has_other_domains(number)
                self._write_nodes(number)
        for number in self._by_number:
            if not self.arrays.length[number] and self._capacity(number) < self._paged_from:
                self._load(number)

    def add(self, changes: list[tuple[int, int, int]], moved: Moved | None = None) -> np.ndarray:
        """Add to counters: number, row (of ``moved``: its column), and how much; return the numbers.

        It moves no version.
        """
        if not changes:
            return np.zeros(0, dtype=np.int64)
        arrays, of = self.arrays, moved or self._domains
        number, column, value = np.array(changes, dtype=np.int64).T
        domain, mask = np.abs(of.domain[arrays.topology[number], column] + 1) - 1, arrays.mask[number]
        counted = domain >= 0
        masked = np.flatnonzero(mask >= 0)
        counted[masked] &= of.eligible[mask[masked], column[masked]] != 0
        number, domain, value = number[counted], domain[counted], value[counted]
        np.add.at(arrays.sums, arrays.first[number] + domain, value.astype(np.int32))
        np.add.at(arrays.total, number, value)
        return np.asarray(number)

    # ------------------------------------------------------------------------------------------- filling

    def _begin(self, spec: CounterSpec) -> Counter:
        if not self._by_spec:
            self._domains.update()
            self._index.journal = []
        assert not self._index.journal, "a counter begins between a sync and the end of its cycle"
        if self.is_full:
            self.drop_unused()
        if not self._free:
            self._grow()
        number = self._free.pop()
        counter = Counter(spec, number, self.effects.add(number, spec.weigher))
        self._by_spec[spec], self._by_number[number] = counter, counter
        self._cells_beside += counter.cells
        arrays = self.arrays
        arrays.topology[number] = self._domains.use_topology(spec)
        arrays.mask[number] = -1 if spec.eligible is None else self._domains.use_mask(spec.eligible)
        arrays.length[number] = arrays.first[number] = 0
        arrays.version[number] += 1
        counter.called = self._call
        self._renew_arrays()
        if spec.nominated:
            self.nominated.add_counter(number)
        self._load(number)
        return counter

    def _load(self, number: int) -> None:
        """Give a counter cells, and count there all placed pods of the classes that it counts."""
        length = self._capacity(number)
        is_paged = length >= self._paged_from
        if is_paged:
            self._make_room(length)
        first = self._cells.take_span(length)
        if first is None:
            self._lay_out(length)
            first = self._cells.take_span(length)
            assert first is not None
        self.arrays.first[number], self.arrays.length[number] = first, length
        if is_paged:
            self._pages[number] = length
            self._pages_cells += length
        else:
            self._cells_beside += length
        self._cells.has_nodes[first : first + length] = self._having(number)
        changes: list[tuple[int, int, int]] = []
        for pod_class, weight in self.effects.counted_by(number):
            changes += [(number, row, weight * count) for row, count in self._rows_of(pod_class)]
        changes += self.nominated.counted_in(number)
        self.arrays.total[number] = 0
        self.add(changes)

    def _write_nodes(self, number: int) -> None:
        """Write which domains of a counter have an eligible row."""
        first, length = int(self.arrays.first[number]), int(self.arrays.length[number])
        if length:
            self.arrays.has_nodes[first : first + length] = self._having(number)

    def _having(self, number: int) -> np.ndarray:
        return self._domains.having_rows(int(self.arrays.topology[number]), int(self.arrays.mask[number]))

    def _capacity(self, number: int) -> int:
        return self._domains.capacity(int(self.arrays.topology[number]))

    # ------------------------------------------------------------------------------------------- memory

    def drop_unused(self) -> None:
        """Drop every counter that no program uses. Cost: O(counters)."""
        self._end(counter for counter in self._by_spec.values() if not counter.users_count)

    def _end(self, counters: Iterable[Counter]) -> None:
        ended = list(counters)
        for counter in ended:
            self._take_out(counter)
        self.effects.remove([counter.number for counter in ended])

    def _take_out(self, counter: Counter) -> None:
        number, spec = counter.number, counter.spec
        self._unload(number)
        self._domains.release_topology(int(self.arrays.topology[number]))
        self._domains.release_mask(int(self.arrays.mask[number]))
        del self._by_spec[spec], self._by_number[number]
        self._cells_beside -= counter.cells
        counter.ended = int(self.arrays.version[number]) - self.moves
        self._free.append(number)
        self.nominated.remove_counter(number)

    def _unload(self, number: int) -> None:
        """Take a counter's cells. What is added to it then counts in its total and its version only."""
        first, length = int(self.arrays.first[number]), int(self.arrays.length[number])
        if not length:
            return
        self._cells.free_span(first, length)
        self.arrays.first[number] = self.arrays.length[number] = 0
        if self._pages.pop(number, None) is None:
            self._cells_beside -= length
        else:
            self._pages_cells -= length

    def _unload_outgrown(self) -> None:
        """Take the cells of counters with topologies that have more domains now."""
        for number in self._by_number:
            if self.arrays.length[number] not in (0, self._capacity(number)):
                self._unload(number)
        self._reserve()

    def _make_room(self, length: int) -> None:
        """Take the cells that were not asked for the longest, but none of those that this call needs."""
        while self._pages and self._pages_cells + length > self._pages_cells_max:
            oldest = next(iter(self._pages))
            if self._by_number[oldest].called == self._call:
                break
            self._unload(oldest)

    def _grow(self) -> None:
        """Make room for twice as many counters."""
        before = len(self.arrays.topology)
        count = max(_COUNTERS_FIRST, 2 * before)
        wider = {
            name: np.concatenate([old, np.zeros(count - before, dtype=old.dtype)])
            for name in kernel.Counters.fields_by("C")
            for old in (getattr(self.arrays, name),)
        }
        self.arrays = self.arrays.replace(**wider)
        self._free.extend(range(count - 1, before - 1, -1))

    def _renew_arrays(self) -> None:
        self.arrays = self.arrays.replace(domain=self._domains.domain, eligible=self._domains.eligible)
        self._reserve()

    def _reserve(self) -> None:
        """Keep as many cells that belong to no counter as any counter has domains."""
        if self._domains.capacity_max > self._cells.unowned:
            self._lay_out(0)

    def _lay_out(self, more: int) -> None:
        """Move all cells together, with room for so many more."""
        arrays = self.arrays
        numbers = [number for number in self._by_number if arrays.length[number]]
        spans = [(int(arrays.first[number]), int(arrays.length[number])) for number in numbers]
        unowned = self._domains.capacity_max
        arrays.first[numbers] = self._cells.lay_out(spans, unowned=unowned, more=more)
        self.arrays = arrays.replace(sums=self._cells.sums, has_nodes=self._cells.has_nodes)
