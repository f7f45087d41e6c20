"""Count pods on nodes, and keep what follows from that: columns, classes, versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from domain.model.devices import BUSY, choose, devices_of
from domain.model.limits import pods_per_node_max
from domain.model.pods import PodSpec
from domain.state.changes import PodOrphaned, PodRefreshed, PodReturned, Untold
from domain.state.devices import NO_DEVICE, free_milli
from domain.state.nodes import NodeEntry
from domain.state.nominations import Nominations
from domain.state.own_changes import OwnChanges
from domain.state.pod_index import PodIndex
from domain.state.pods import PodEntry
from domain.state.resources import NOWHERE, ResourceIndex
from domain.state.sums import Sums
from domain.state.table import NodeTable
from domain.state.usage import UsageWindows


class Occupancy:
    """Counts pods on nodes, with or without a row in the table.

    Attributes
    ----------
    nodes : dict
        Every node that an event or a pod has named.
    own_changes : OwnChanges
        What changed since the last batch. The committer drains it.
    improved_rows : set of int
        Rows with more room or another spec. The cycle drains it.
    uncounted : dict
        Key of another worker's pod that the row of its node in the ledger does not count -> that node. Own
        pods are not counted exactly where their node is not known.
    orphaned : set of str
        Keys of own pods that were told that their node is gone, and not that it is back.
    own : frozenset of int
        The shards that this worker holds, of ``shards_count``.
    last_ordinal : int
        The greatest of all nodes.
    """

    def __init__(self, resources: ResourceIndex, table: NodeTable, usage: UsageWindows) -> None:
        self._table, self._resources, self._usage = table, resources, usage
        self.sums = Sums(resources, table)
        self.nominations = Nominations(table, resources, self.sums)
        self.index = PodIndex()
        self.nodes: dict[str, NodeEntry] = {}
        self.own_changes = OwnChanges(resources, table, self.nodes)
        self.improved_rows: set[int] = set()
        self.uncounted: dict[str, str] = {}
        self.orphaned: set[str] = set()
        self.own = frozenset((0,))
        self.shards_count = 1
        self.last_ordinal = 0

    # -------------------------------------------------------------------------------------------- nodes

    def meet(self, name: str) -> NodeEntry:
        """Return a node that an event or a pod names, whether it is known or not."""
        entry = self.nodes.get(name)
        if entry is None:
            entry = self.nodes[name] = NodeEntry()
            entry.recent = set() if name in self._usage.windows else None
        return entry

    def number(self, entry: NodeEntry, ordinal: int) -> None:
        """Give a node its ordinal, for ever."""
        entry.ordinal = ordinal
        self.last_ordinal = max(self.last_ordinal, ordinal)

    def next_ordinal(self, shard: int) -> int:
        """Return an ordinal above all that are known.

        Where others add nodes at the same time, it leaves the number of its shard, divided by their count, so
        that no two shards give the same one.
        """
        following = self.last_ordinal + 1
        if len(self.own) == self.shards_count:
            return following
        return following + (shard - following) % self.shards_count

    def show(self, entry: NodeEntry) -> None:
        """Give a node a row that counts what its pods occupy."""
        assert entry.spec is not None
        self.own_changes.settle()
        row = self._table.upsert(entry.spec, entry.ordinal)
        self.sums.follow(self.nodes)
        self.nominations.renew(entry.spec.name if entry.deleted else "")
        if entry.deleted:
            entry.deleted = False
            for pod in entry.pods.values():
                self.sums.count(row, entry, pod.spec, 1)
        self.sums.derive(np.array([row]))
        self.improved_rows.add(row)

    def hide(self, entry: NodeEntry) -> None:
        """Take the row of a node that was deleted."""
        assert entry.spec is not None
        name = entry.spec.name
        entry.deleted = True
        self.own_changes.settle()
        last, row = self._table.count - 1, self._table.rows[name]
        self._table.remove(name)
        entry.elsewhere.clear()
        entry.recent = None
        self.sums.follow(self.nodes)
        self.nominations.renew()
        last_improved = last in self.improved_rows
        self.improved_rows -= {row, last}
        if last_improved and row != last:
            self.improved_rows.add(row)

    def give_devices(self, node: str) -> list[PodEntry]:
        """Give devices to the own pods on a node that have none of those that they ask for, by name.

        Such are pods that came before their node, and those that were placed before devices were told apart.
        Who was counted counts with them from now on: that is a change of the node.
        """
        known, given = self.nodes[node], list[PodEntry]()
        if known.deleted or known.spec is None or not devices_of(known.spec.allocatable):
            return given
        row = self._table.rows[node]
        for key, entry in sorted(known.pods.items()):
            if entry.shard in self.own and self._lacks_devices(entry.spec) and key not in self.uncounted:
                self.sums.count(row, known, entry.spec, -1)
                self.index.renew(entry, self._with_devices(entry.spec, row))
                self.sums.count(row, known, entry.spec, 1)
                given.append(entry)
        if given:
            known.version += 1
            self.own_changes.give_devices(node, [entry.spec for entry in given])
            self._table.touch(row)
        return given

    def _lacks_devices(self, pod: PodSpec) -> bool:
        return not pod.devices and bool(self.sums.vector(pod).ask.number)

    def _with_devices(self, pod: PodSpec, row: int) -> PodSpec:
        """Return a pod with devices of the node in a row; itself where that has none."""
        table = self._table
        free = free_milli(table.allocatable, table.requested, self._resources, np.array([row]))[0]
        devices = choose(free[free > NO_DEVICE].tolist(), self.sums.vector(pod).ask)
        return msgspec.structs.replace(pod, devices=devices) if devices else pod

    def tell_own(
        self, change: type[PodOrphaned] | type[PodReturned], node: str
    ) -> Iterator[PodOrphaned | PodReturned]:
        """Say of each own pod on a node, once, what became of it; by name, whatever came first."""
        known, reasons = self.nodes[node], self.amiss(node)
        is_gone = change is PodOrphaned
        for key, entry in sorted(known.pods.items()):
            if entry.shard in self.own and (key in self.orphaned) is not is_gone:
                self._tell(entry.spec, is_gone=is_gone)
                yield change(entry.spec, node, known.version, reasons)

    def _tell(self, pod: PodSpec, *, is_gone: bool) -> None:
        (self.orphaned.add if is_gone else self.orphaned.remove)(pod.key)
        self.own_changes.told[pod.uid] = is_gone

    def count_own(self, node: str, *, is_new: bool = False) -> None:
        """Let the ledger count the own pods on a node that has just become known; others count theirs.

        That is one change of the node, and none where the row is new.
        """
        self._begin_to_count(
            node,
            [key for key, entry in self.nodes[node].pods.items() if entry.shard in self.own],
            is_new=is_new,
        )

    def _begin_to_count(self, node: str, keys: Sequence[str], *, is_new: bool = False) -> None:
        known = self.nodes[node]
        if keys:
            changes = 0 if is_new else 1
            known.version += changes
            self.own_changes.begin_to_count(node, [known.pods[key].spec for key in sorted(keys)], changes)

    def hold(
        self, shards: frozenset[int], pods: Mapping[str, PodEntry], orphaned: Iterable[str]
    ) -> Iterator[Untold]:
        """Hold these shards from now on; count and tell what the owners before did not get to.

        ``orphaned`` are pods that they told that their node is gone.

        Cost: O(nodes that are gone or not known, pods on them, and pods that are not counted).
        """
        for name, known in self.nodes.items() if shards != self.own else ():
            if known.spec is None:
                given = (key for key, entry in known.pods.items() if entry.shard in self.own)
                self.uncounted.update(dict.fromkeys(given, name))
        self.own = shards
        taken: dict[str, list[str]] = {}
        for key in [key for key in self.uncounted if pods[key].shard in shards]:
            node = self.uncounted.pop(key)
            if self.nodes[node].spec is not None:
                taken.setdefault(node, []).append(key)
        for node, keys in sorted(taken.items()):
            self._begin_to_count(node, keys)
        self.orphaned.update(key for key in orphaned if key in pods)
        self.orphaned -= {key for key in self.orphaned if pods[key].shard not in shards}
        for name, known in sorted(self.nodes.items()):
            if known.deleted and known.spec is not None:
                yield from self.tell_own(PodOrphaned, name)
        for name in sorted({pods[key].node for key in self.orphaned}):
            if not self.nodes[name].deleted:
                yield from self.tell_own(PodReturned, name)
        if self._resources.column(BUSY) != NOWHERE:
            for name in sorted(self.nodes):
                for entry in self.give_devices(name):
                    yield PodRefreshed(entry.spec, True, 0)

    # --------------------------------------------------------------------------------------------- pods

    def place(self, entry: PodEntry, node: str, *, adopted: bool, is_change: bool = True) -> None:
        """Count a pod on a node. It is no change of the node where the ledger counts it already."""
        entry.node, entry.adopted, entry.arrival = node, adopted, 0
        known = self.meet(node)
        if is_change and not known.deleted and self._lacks_devices(entry.spec):
            entry.spec = self._with_devices(entry.spec, self._table.rows[node])
        if is_change and known.spec is not None:
            known.version += 1
            self.own_changes.count(node, entry.spec, 1)
            if known.deleted:
                self._tell(entry.spec, is_gone=True)
        known.add(entry)
        if entry.pod_class is not None:
            self.index.count(entry.pod_class, node, 1)
        if not known.deleted:
            row = self._table.rows[node]
            self.sums.count(row, known, entry.spec, 1)
            self._table.touch(row)

    def follow(self, entry: PodEntry, node: str) -> int | None:
        """Let another worker's pod be on a node; return the row in which it is yet to be counted, if any."""
        entry.node = node
        known = self.nodes.get(node) or self.meet(node)
        known.add(entry)
        if entry.pod_class is not None:
            self.index.count(entry.pod_class, node, 1)
        return None if known.deleted else self._table.rows[node]

    def unfollow(self, entries: Sequence[PodEntry]) -> None:
        """Stop counting pods of other workers, together. That is no change of this worker's own."""
        gone, rows, recent = [], [], []
        for entry in entries:
            node, key = entry.node, entry.spec.key
            entry.node = ""
            known = self.nodes[node]
            if entry.pod_class is not None:
                self.index.count(entry.pod_class, node, -1)
            if not known.deleted:
                gone.append(entry.spec)
                rows.append(self._table.rows[node])
                recent.append(known.recent is None or key in known.recent)
            known.drop(entry)
            self.nominations.evicted.pop(key, None)
            self.uncounted.pop(key, None)
            if known.spec is None and not known.pods:
                del self.nodes[node]
        if gone:
            self.sums.count_gone(gone, np.array(rows), recent, self.nodes)
            self.improved_rows.update(rows)

    def renew(self, entry: PodEntry, pod: PodSpec) -> None:
        """Give another worker's placed pod its new spec, with the devices that it has from now on."""
        row = self._table.rows.get(entry.node) if pod.devices != entry.spec.devices else None
        if row is not None:
            self.sums.count(row, self.nodes[entry.node], entry.spec, -1)
        self.index.renew(entry, pod)
        if row is not None:
            self.sums.count(row, self.nodes[entry.node], entry.spec, 1)
            self._table.touch(row)

    def unplace(self, entry: PodEntry, *, changes: int = 1) -> None:
        """Stop counting an own pod. -1 ``changes`` of the node undo what the ledger never had."""
        node = entry.node
        entry.node = ""
        self.orphaned.discard(entry.spec.key)
        self.uncounted.pop(entry.spec.key, None)
        self.nominations.evicted.pop(entry.spec.key, None)
        self.own_changes.told.pop(entry.spec.uid, None)
        known = self.nodes[node]
        if entry.pod_class is not None:
            self.index.count(entry.pod_class, node, -1)
        if not known.deleted:
            row = self._table.rows[node]
            self.sums.count(row, known, entry.spec, -1)
            self._table.touch(row)
            self.improved_rows.add(row)
        known.drop(entry)
        if known.spec is not None:
            known.version += changes
            if changes > 0:
                self.own_changes.count(node, entry.spec, -1)
        elif not known.pods:
            del self.nodes[node]  # whatever node names pods may invent, those that are gone leave nothing
        if entry.spec.devices:
            entry.spec = msgspec.structs.replace(entry.spec, devices=())

    def assume(
        self,
        keys: Sequence[str],
        rows: np.ndarray,
        pods: Mapping[str, PodEntry],
        specs: Mapping[str, PodSpec],
    ) -> None:
        """Count the pods that a cycle placed, together: ``rows[i]`` is the node row of ``keys[i]``.

        ``specs`` are those of pods that got devices.
        """
        names = self._table.names
        placed: list[PodSpec] = []
        for key, row in zip(keys, rows.tolist(), strict=True):
            entry = pods[key]
            assert entry.node == "", "a pod is placed once"
            node = entry.node = names[row]
            entry.arrival = 0
            known = self.nodes[node]
            known.version += 1
            known.add(entry)
            if entry.pod_class is not None:
                self.index.assume(entry.pod_class, node)
            if specs and key in specs:
                entry.spec = specs[key]
            placed.append(entry.spec)
        if placed:
            self.own_changes.claim(self.sums.count_new(placed, rows, self.nodes))

    def measure(self, node: str, *, newer: bool) -> None:
        """Stamp the row of a node that was measured. Its latest measurement covers the pods there by now."""
        entry, row = self.nodes.get(node), self._table.rows.get(node)
        if newer and entry is not None:
            entry.recent = set()
        if row is not None:
            if newer:
                self.sums.measured(row)
            self._table.touch_usage(row)

    def row_of(self, node: str) -> int | None:
        """Return the row of a node, None while it has none."""
        return self._table.rows.get(node)

    def why_full(self, node: str) -> str:
        """Return why no further pod may be counted on a node, "" where one may: sums must not leave int64."""
        known = self.nodes.get(node)
        if known is None or len(known.pods) < pods_per_node_max:
            return ""
        return f"{node} holds {pods_per_node_max} pods already (pods_per_node_max)"

    def amiss(self, node: str) -> tuple[str, ...]:
        """Return reason codes for what is amiss with a node: not there, or holding more than it offers."""
        entry = self.nodes[node]
        if entry.spec is None:
            return ("node-unknown",)
        if entry.deleted:
            return ("node-deleted",)
        row, table = self._table.rows[node], self._table
        over = (table.requested[:, row] > table.allocatable[:, row]).tolist()
        names = [name for column, name in self._resources.visible() if over[column]] if any(over) else []
        if entry.elsewhere:
            names = sorted({*names, *entry.elsewhere}, key=self._resources.order)
        return (",".join(f"overcommitted:{name}" for name in names),) if names else ()

    def version_of(self, node: str) -> int | None:
        """Return the version of a node, None while the node is not known."""
        entry = self.nodes.get(node)
        return None if entry is None or entry.spec is None else entry.version
