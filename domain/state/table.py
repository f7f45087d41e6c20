"""The table of nodes, a struct of arrays: dense rows, and a generation stamped on every change.

To add a node appends a row. To remove one moves the last row into the hole. Both cost O(1). A row number is
therefore never an identity: everything that must be stable (ties, order of arrival, the ledger's version)
belongs to the node's name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from domain.model.devices import with_devices
from domain.model.integers import integer
from domain.model.limits import resource_names_max
from domain.model.nodes import TAINT_EFFECTS, NodeSpec
from domain.state.change_order import ChangeOrder
from domain.state.keyed_values import KeyedValues
from domain.state.resources import (
    CPU,
    CPU_BEYOND,
    MEMORY,
    MEMORY_BEYOND,
    SCORING_CPU,
    SCORING_MEMORY,
    ResourceIndex,
)

TaintKey = tuple[str, str, int]
"""Key and effect of a taint, and how many of the node's taints before it have the same ones."""

_ROWS_FIRST = 64


class NodeTable:
    """Columns over the nodes that exist.

    Attributes
    ----------
    allocatable, requested : int64[R, N]
        Per resource column (see ``ResourceIndex``) and row. Only the first ``count`` rows are in use.
    nominated : int64[R, N] or None
        The same of pods for which the node is nominated; None until there is one.
    generation : int64[N]
        Global generation of the last change of the node in the row.
    spec_generation, usage_generation : int64[N]
        Global generation of the last change of its spec (or of its move into this row), and of its measured
        usage.
    respec_generation : int64[N]
        That of its spec alone, wherever it moved.
    tie : uint64[N]
        Seeded hash of the name, which decides between nodes of equal score.
    ordinal : int64[N]
        Order of arrival of the node, kept for ever.
    labels : KeyedValues
        By label key. A value is a number by the rule of Gt and Lt in node selectors.
    taints : KeyedValues
        By ``TaintKey``. A value is a number by the rule of Gt and Lt in tolerations.
    hot : bool[N]
        Whether a node is too busy to lend anything (``domain.state.lending``).
    taint_counts : int32[E, N]
        How many taints of each effect, in the order of ``TAINT_EFFECTS``, a node has.
    taint_totals : list of int
        The same over all nodes.
    """

    def __init__(self, resources: ResourceIndex, seed: int) -> None:
        self.resources = resources
        self.count = 0
        self.last_generation = 0
        self.last_spec_generation = 0
        self.last_usage_generation = 0
        self.last_images_generation = 0  # generation of the last change of which node has which images
        self.image_nodes: Counter[str] = Counter()  # image name -> number of nodes that have it
        self.names: list[str] = []
        self.specs: list[NodeSpec] = []
        self.rows: dict[str, int] = {}
        self.labels: KeyedValues[str] = KeyedValues(_ROWS_FIRST, integer)
        self.taints: KeyedValues[TaintKey] = KeyedValues(_ROWS_FIRST, integer)
        self.taint_totals = [0] * len(TAINT_EFFECTS)
        self._seed = seed.to_bytes(8, "big", signed=True)
        self._changes = ChangeOrder()
        self.nominated: np.ndarray | None = None
        self._allocate(_ROWS_FIRST, max(8, len(resources)))

    def _allocate(self, rows: int, columns: int) -> None:
        old = self.__dict__

        def grown(name: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
            array: np.ndarray = np.zeros(shape, dtype=dtype)
            if name in old:
                # Rows that are in use no more, too: a reader by generation learns from them what went.
                array[tuple(map(slice, old[name].shape))] = old[name]
            return array

        self.allocatable = grown("allocatable", (columns, rows), np.int64)
        self.requested = grown("requested", (columns, rows), np.int64)
        if self.nominated is not None:
            self.nominated = grown("nominated", (columns, rows), np.int64)
        self.generation = grown("generation", (rows,), np.int64)
        self.spec_generation = grown("spec_generation", (rows,), np.int64)
        self.respec_generation = grown("respec_generation", (rows,), np.int64)
        self.usage_generation = grown("usage_generation", (rows,), np.int64)
        self.tie = grown("tie", (rows,), np.uint64)
        self.ordinal = grown("ordinal", (rows,), np.int64)
        self.taint_counts = grown("taint_counts", (len(TAINT_EFFECTS), rows), np.int32)
        self.unschedulable = grown("unschedulable", (rows,), np.bool_)
        self.hot = grown("hot", (rows,), np.bool_)
        self.labels.reserve(rows)
        self.taints.reserve(rows)

    @property
    def rows_capacity(self) -> int:
        """Number of rows for which there is memory."""
        return len(self.generation)

    def ensure_columns(self) -> None:
        """Make room for every resource that the index knows."""
        if len(self.resources) > self.allocatable.shape[0]:
            self._allocate(self.rows_capacity, len(self.resources) * 2)

    def nominated_columns(self) -> np.ndarray:
        """Return ``nominated``, which exists from then on."""
        if self.nominated is None:
            self.nominated = np.zeros_like(self.requested)
        return self.nominated

    # ----------------------------------------------------------------------------------------- changes

    def touch(self, row: int) -> None:
        """Stamp a row with the next generation."""
        self.last_generation += 1
        self.generation[row] = self.last_generation
        self._changes.append(self.last_generation, row)
        self._changes.compact(self.generation, self.count)

    def touch_spec(self, row: int) -> None:
        """Stamp a row whose spec changed."""
        self.touch(row)
        self.last_spec_generation = self.last_generation
        self.spec_generation[row] = self.respec_generation[row] = self.last_generation

    def touch_usage(self, row: int) -> None:
        """Stamp a row whose measured usage changed."""
        self.touch(row)
        self.last_usage_generation = self.last_generation
        self.usage_generation[row] = self.last_generation

    def touch_many(self, rows: np.ndarray) -> None:
        """Stamp distinct rows in the given order, each with the next generation."""
        first = self.last_generation + 1
        self.last_generation += len(rows)
        self.generation[rows] = np.arange(first, self.last_generation + 1)
        self._changes.extend(first, rows)
        self._changes.compact(self.generation, self.count)

    def changed_since(self, generation: int) -> np.ndarray:
        """Return the distinct rows (int64[K]) whose content is newer than a generation. Cost: O(rows
        changed).

        A row at or beyond ``count`` was removed. A row into which a node was moved is among them, although
        the node itself did not change.
        """
        return self._changes.since(generation)

    def newest_first(self) -> Iterator[str]:
        """Yield all names, the most recently changed node first. Names that are not taken cost nothing."""
        return (self.names[row] for row in self._changes.newest_first(self.generation, self.count))

    # ------------------------------------------------------------------------------------------- rows

    def upsert(self, spec: NodeSpec, ordinal: int) -> int:
        """Write a node's spec into its row, a new row if it has none, and return the row."""
        row = self.rows.get(spec.name)
        before: NodeSpec | None = None
        self.resources.offer(with_devices(spec.allocatable))
        if row is None:
            if self.count == self.rows_capacity:
                self._allocate(self.rows_capacity * 2, self.allocatable.shape[0])
            row = self.count
            self.count += 1
            self.rows[spec.name] = row
            self.names.append(spec.name)
            self.specs.append(spec)
            self.requested[:, row] = 0
            self.hot[row] = False
            if self.nominated is not None:
                self.nominated[:, row] = 0
            self.tie[row] = self._tie(spec.name)
            self.ordinal[row] = ordinal
            self._count_images(spec, 1)
        else:
            before = self.specs[row]
            self.resources.withdraw(with_devices(before.allocatable))
            if spec.images != before.images:
                self._count_images(before, -1)
                self._count_images(spec, 1)
        self._write_spec(row, spec)
        self._write_keyed(row, before, spec)
        self.touch_spec(row)
        return row

    def _count_images(self, spec: NodeSpec, sign: int) -> None:
        """Count a node's images. A node without any also changes how widely the others' images are spread."""
        self.last_images_generation += 1
        for name in {name for image in spec.images for name in image.names}:
            self.image_nodes[name] += sign
            if not self.image_nodes[name]:
                del self.image_nodes[name]

    def _write_spec(self, row: int, spec: NodeSpec) -> None:
        offered = with_devices(spec.allocatable)
        columns = [(self.resources.column(name), value) for name, value in offered.items()]
        self.ensure_columns()
        self.allocatable[:, row] = 0
        for column, value in columns:
            self.allocatable[column, row] = value
        self.allocatable[SCORING_CPU, row] = self.allocatable[CPU, row]
        self.allocatable[SCORING_MEMORY, row] = self.allocatable[MEMORY, row]
        capacity = spec.capacity or spec.allocatable
        self.allocatable[CPU_BEYOND, row] = capacity.get("cpu", 0)
        self.allocatable[MEMORY_BEYOND, row] = capacity.get("memory", 0)
        self.unschedulable[row] = spec.unschedulable
        self.specs[row] = spec

    def _write_keyed(self, row: int, before: NodeSpec | None, after: NodeSpec | None) -> None:
        """Replace a row's labels and taints; None: the row has none. Cost: O(labels + taints)."""
        self.labels.write(row, _labels_of(before), _labels_of(after))
        if before is not None and after is not None and before.taints == after.taints:
            return
        self.taints.write(row, _taints_of(before), _taints_of(after))
        for effect, name in enumerate(TAINT_EFFECTS):
            count = 0 if after is None else sum(taint.effect == name for taint in after.taints)
            self.taint_totals[effect] += count - int(self.taint_counts[effect, row])
            self.taint_counts[effect, row] = count

    def remove(self, name: str) -> None:
        """Remove a node's row. The last row takes its place."""
        row = self.rows.pop(name)
        self.resources.withdraw(with_devices(self.specs[row].allocatable))
        self._count_images(self.specs[row], -1)
        self._write_keyed(row, self.specs[row], None)
        last = self.count - 1
        if row != last:
            for array in (self.allocatable, self.requested, self.taint_counts, self.nominated):
                if array is not None:
                    array[:, row] = array[:, last]
            for array in (self.tie, self.ordinal, self.unschedulable, self.hot):
                array[row] = array[last]
            self.usage_generation[row] = self.usage_generation[last]
            self.respec_generation[row] = self.respec_generation[last]
            self.labels.move(last, row, _labels_of(self.specs[last]))
            self.taints.move(last, row, _taints_of(self.specs[last]))
            self.names[row] = self.names[last]
            self.specs[row] = self.specs[last]
            self.rows[self.names[row]] = row
        self.taint_counts[:, last] = 0
        self.names.pop()
        self.specs.pop()
        self.count = last
        if row != last:
            self._moved(last, row)
        self.touch_spec(last)

    def _moved(self, source: int, row: int) -> None:
        """Record that a row has another content, although the node that moved into it did not change."""
        own = int(self.generation[source])
        self._changes.moved(own, row)
        self.generation[row] = own
        self.last_generation += 1
        self._changes.append(self.last_generation, row)
        self.spec_generation[row] = self.last_spec_generation = self.last_generation

    def _tie(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), digest_size=8, key=self._seed).digest()
        return int.from_bytes(digest, "big")


def why_too_many_names(table: NodeTable, spec: NodeSpec) -> str:
    """Return why a node with this spec brings too many names of resources, "" where it does not."""
    row = table.rows.get(spec.name)
    present = () if row is None else with_devices(table.specs[row].allocatable)
    if table.resources.count_with(with_devices(spec.allocatable), present) <= resource_names_max:
        return ""
    return f"brings more names than all nodes may have ({resource_names_max}, resource_names_max)"


def _labels_of(spec: NodeSpec | None) -> Mapping[str, str]:
    return {} if spec is None else spec.labels


def _taints_of(spec: NodeSpec | None) -> Mapping[TaintKey, str]:
    found: dict[TaintKey, str] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for taint in () if spec is None else spec.taints:
        found[taint.key, taint.effect, seen[taint.key, taint.effect]] = taint.value
        seen[taint.key, taint.effect] += 1
    return found
