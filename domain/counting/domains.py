"""Domains: which row belongs to which value of a topology key, and which rows' pods count."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from domain.model.nodes import NodeSpec
from domain.plugins.counting import CounterSpec, Eligible
from domain.state.keyed_values import ABSENT
from domain.state.table import NodeTable

_CAPACITY_FIRST = 8
_NUMBERS_FIRST = 4

T = TypeVar("T")


class _Topology:
    """The domains of one key: value of the label -> domain. By row: each row that has the key is one.

    By the text, not by its id in the table: a node that goes and comes back may find its id taken.
    """

    __slots__ = ("by_row", "capacity", "free", "key", "missing_is_empty", "numbers", "users_count")

    def __init__(self, key: str, capacity: int, *, by_row: bool, missing_is_empty: bool) -> None:
        self.key = key
        self.by_row = by_row or not key
        self.missing_is_empty = missing_is_empty
        self.capacity = capacity
        self.numbers: dict[str, int] = {}
        self.free: list[int] = []
        self.users_count = 0


class _Mask:
    """The rows that are eligible."""

    __slots__ = ("eligible", "users_count")

    def __init__(self, eligible: Eligible) -> None:
        self.eligible = eligible
        self.users_count = 0


class Moved(NamedTuple):
    """Rows with another node, domain or eligibility: what each was before, and the names there now.

    ``rows`` int64[K], ``domain`` int32[T, K], ``eligible`` uint8[M, K]; ``having`` as of ``having_rows``, by
    topology and mask. Here and now, a number of a domain means the same value.
    """

    rows: np.ndarray
    names: list[str | None]
    names_now: list[str | None]
    domain: np.ndarray
    eligible: np.ndarray
    having: Mapping[int, Mapping[int, np.ndarray]]


class Domains:
    """The rows of the node table as counters see them, as of the last ``update``.

    Attributes
    ----------
    domain : int32[T, W]
        Per topology: the domain of a row; below 0 where it has none (``kernel.Counters``).
    eligible : uint8[M, W]
        Per mask: whether pods on a row count.
    names, rows : dict
        Row -> name of its node, and back.
    """

    def __init__(self, table: NodeTable, width: int) -> None:
        self._table = table
        self._width = width
        self._generation = -1
        self._topologies: list[_Topology] = []
        self._masks: list[_Mask] = []
        self._numbers_of: dict[Hashable, int] = {}  # of the topologies and masks in use
        self._free_topologies: list[int] = []
        self._free_masks: list[int] = []
        self._having: dict[int, dict[int, np.ndarray]] = {}  # by topology and mask
        self._names: dict[tuple[int, int], str] = {}  # of domains, while nodes stay what they are
        self._specs: dict[int, NodeSpec] = {}  # by row
        self._left: set[int] = set()  # the domains that rows had which get others now
        self.names: dict[int, str] = {}
        self.rows: dict[str, int] = {}
        self.domain = np.full((0, width), -1, dtype=np.int32)
        self.eligible = np.zeros((0, width), dtype=np.uint8)

    # ---------------------------------------------------------------------------------- keys and masks

    @property
    def bytes_used(self) -> int:
        """Memory of the keys and masks in use, by row."""
        topologies_count = len(self._topologies) - len(self._free_topologies)
        return self._width * (4 * topologies_count + len(self._masks) - len(self._free_masks))

    def use_topology(self, spec: CounterSpec) -> int:
        """Return the number of a counter's key, which is used once more."""
        key, missing_is_empty = spec.topology_key, spec.missing_is_empty
        by_row = spec.by_row or not key
        asked = (key, by_row, missing_is_empty)
        number = self._numbers_of.get(asked)
        if number is None:
            capacity = self._width if by_row else _CAPACITY_FIRST
            made = _Topology(key, capacity, by_row=by_row, missing_is_empty=missing_is_empty)
            number = self._numbers_of[asked] = _put(self._topologies, self._free_topologies, made)
            if number >= len(self.domain):
                more = np.full((max(_NUMBERS_FIRST, number), self._width), -1, dtype=np.int32)
                self.domain = np.concatenate([self.domain, more])
            self._having.pop(number, None)
            self._names.clear()
            self.domain[number] = -1
            self._write_domain(number, np.arange(len(self.names)))
        self._topologies[number].users_count += 1
        return number

    def use_mask(self, eligible: Eligible) -> int:
        """Return the number of a set of eligible rows, which is used once more."""
        number = self._numbers_of.get(eligible)
        if number is None:
            number = self._numbers_of[eligible] = _put(self._masks, self._free_masks, _Mask(eligible))
            if number >= len(self.eligible):
                more = np.zeros((max(_NUMBERS_FIRST, number), self._width), dtype=np.uint8)
                self.eligible = np.concatenate([self.eligible, more])
            for of_topology in self._having.values():
                of_topology.pop(number, None)
            self.eligible[number] = 0
            self._write_eligible(number, np.arange(len(self.names)))
        self._masks[number].users_count += 1
        return number

    def release_topology(self, number: int) -> None:
        """Give a key back."""
        topology = self._topologies[number]
        topology.users_count -= 1
        if not topology.users_count:
            del self._numbers_of[topology.key, topology.by_row, topology.missing_is_empty]
            self._free_topologies.append(number)

    def release_mask(self, number: int) -> None:
        """Give a set of eligible rows back; -1 is none."""
        if number < 0:
            return
        mask = self._masks[number]
        mask.users_count -= 1
        if not mask.users_count:
            del self._numbers_of[mask.eligible]
            self._free_masks.append(number)

    def capacity(self, topology: int) -> int:
        """Return the number that every domain of a key is below."""
        return self._topologies[topology].capacity

    @property
    def capacity_max(self) -> int:
        """The largest capacity of all keys in use."""
        return max((each.capacity for each in self._topologies if each.users_count), default=0)

    def name_of(self, topology: int, domain: int) -> str:
        """Return what a domain stands for: a value of the key, or the name of a node."""
        name = self._names.get((topology, domain))
        if name is None:
            counted_in = np.abs(self.domain[topology] + 1) - 1
            row, of = int(np.argmax(counted_in == domain)), self._topologies[topology]
            name = self._table.names[row] if of.by_row else self._table.specs[row].labels.get(of.key, "")
            self._names[topology, domain] = name
        return name

    def having_rows(self, topology: int, mask: int) -> np.ndarray:
        """Return uint8[capacity]: whether a domain has an eligible row."""
        found = self._having.get(topology, {}).get(mask)
        if found is None:
            domain = self.domain[topology]
            present = domain >= 0 if mask < 0 else (domain >= 0) & (self.eligible[mask] != 0)
            found = np.zeros(self.capacity(topology), dtype=np.uint8)
            found[domain[present]] = 1
            self._having.setdefault(topology, {})[mask] = found
        return found

    # ------------------------------------------------------------------------------------------- rows

    @property
    def is_behind(self) -> bool:
        """Whether a node came, went, or changed its spec since the last ``update``."""
        return self._generation != self._table.last_spec_generation

    def widen(self, width: int) -> bool:
        """Give the arrays more rows, and say whether they had fewer."""
        if width <= self._width:
            return False
        more = width - self._width
        self.domain = np.pad(self.domain, ((0, 0), (0, more)), constant_values=-1)
        self.eligible = np.pad(self.eligible, ((0, 0), (0, more)))
        self._width = width
        for topology in self._topologies:
            if topology.by_row:
                topology.capacity = width
        self._having = {t: each for t, each in self._having.items() if not self._topologies[t].by_row}
        return True

    def update(self) -> Moved | None:
        """Read the rows that changed; None: what they are to counters did not.

        Cost: O(rows changed) for each key and mask where labels or taints did, else O(rows changed).
        """
        table, count = self._table, max(self._table.count, len(self.names))
        newer = np.flatnonzero(table.spec_generation[:count] > self._generation)
        rows = np.array([row for row in newer.tolist() if self._is_other(row)], dtype=np.int64)
        self._generation = table.last_spec_generation
        if not len(rows):
            return None
        self._names.clear()
        names = [self.names.get(row) for row in rows.tolist()]
        domain, eligible = self.domain[:, rows], self.eligible[:, rows]
        for name in names:
            if name is not None:
                del self.rows[name]
        for row in rows.tolist():
            self.names.pop(row, None)
            self._specs.pop(row, None)
            if row < table.count:
                self._specs[row] = table.specs[row]
                self.names[row] = table.names[row]
                self.rows[table.names[row]] = row
        for t, topology in enumerate(self._topologies):
            if topology.users_count:
                self._write_domain(t, rows)
        for m, mask in enumerate(self._masks):
            if mask.users_count:
                self._write_eligible(m, rows)
        now = [self.names.get(row) for row in rows.tolist()]
        others = np.array([one != other for one, other in zip(names, now, strict=True)], dtype=np.bool_)
        others |= (self.domain[:, rows] != domain).any(axis=0)
        others |= (self.eligible[:, rows] != eligible).any(axis=0)
        if not others.any():
            return None
        having, self._having = self._having, {}
        at = np.flatnonzero(others)
        names, now = [names[i] for i in at.tolist()], [now[i] for i in at.tolist()]
        return Moved(rows[at], names, now, domain[:, at], eligible[:, at], having)

    def is_by_row(self, topology: int) -> bool:
        """Say whether each row that has a key is a domain of it."""
        return self._topologies[topology].by_row

    def _is_other(self, row: int) -> bool:
        """Say whether a row has another node or labels or taints than before: nothing else counts here."""
        if row >= self._table.count:
            return True
        before, now = self._specs.get(row), self._table.specs[row]
        return before is None or (before.name, before.labels, before.taints) != (
            now.name,
            now.labels,
            now.taints,
        )

    def _write_eligible(self, mask: int, rows: np.ndarray) -> None:
        self.eligible[mask, rows] = 0
        present = rows[rows < self._table.count]
        self.eligible[mask, present] = self._masks[mask].eligible.among(self._table, present)

    def _write_domain(self, t: int, rows: np.ndarray) -> None:
        topology, table = self._topologies[t], self._table
        self._left = set((np.abs(self.domain[t, rows] + 1) - 1).tolist())
        self.domain[t, rows] = -1
        present = rows[rows < table.count]
        if not topology.key:
            self.domain[t, present] = present
            return
        column = table.labels.column(topology.key)
        if topology.missing_is_empty:
            (missing,) = self._numbers(t, [""])
            self.domain[t, present] = -2 - missing
        if column is None:
            return
        values = column[present]
        present, values = present[values != ABSENT], values[values != ABSENT]
        if topology.by_row:
            self.domain[t, present] = present
            return
        distinct, which = np.unique(values, return_inverse=True)
        numbers = self._numbers(t, [table.labels.values.text(value) for value in distinct.tolist()])
        self.domain[t, present] = np.array(numbers, dtype=np.int32)[which]

    def _numbers(self, t: int, values: list[str]) -> list[int]:
        """Return the domains of some values. Numbers of domains that have had no row are used again."""
        topology = self._topologies[t]
        known = topology.numbers
        new_count = sum(value not in known for value in values)
        if new_count > topology.capacity - len(known):
            used = self._left.union((np.abs(self.domain[t] + 1) - 1).tolist())
            used.update(known[value] for value in values if value in known)
            for value, number in list(known.items()):
                if number not in used:
                    del known[value]
                    topology.free.append(number)
            while new_count > topology.capacity - len(known):
                topology.capacity *= 2
        for value in values:
            if value not in known:
                known[value] = topology.free.pop() if topology.free else len(known)
        return [known[value] for value in values]


def _put(items: list[T], free: list[int], item: T) -> int:
    """Put an item where none is used, and return where."""
    if not free:
        items.append(item)
        return len(items) - 1
    items[free[-1]] = item
    return free.pop()
