"""Which pods exist and on which nodes they count, with what follows from that: columns, classes, versions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from domain.model.devices import BUSY, choose, devices_of
from domain.model.limits import pods_per_node_max
from domain.model.pods import PodSpec
from domain.state.changes import LeftToReport, PodOrphaned, PodRefreshed, PodReturned
from domain.state.devices import NO_DEVICE, free_milli
from domain.state.moves import Moves
from domain.state.nodes import NodeEntry
from domain.state.nominations import Nominations
from domain.state.own_changes import OwnChanges
from domain.state.pod_index import PodIndex
from domain.state.pods import PodEntry
from domain.state.resources import NOWHERE
from domain.state.sums import Sums
from domain.state.table import NodeTable
from domain.state.usage import UsageWindows


class Occupancy:
    """The pods and nodes that are known; which pod counts on which node, with or without a row in the table.

    Attributes
    ----------
    pods : dict
        Key -> every pod that exists, placed or waiting.
    keys : dict
        Uid -> the key. Where two workers took pods of one uid side by side, that of the later one.
    nodes : dict
        Every node that an event or a pod has named.
    leaving : mapping
        Keys of placed pods that were told to leave: for a nomination, each with the key of its pod, or so
        that a hot node is relieved, each with this node.
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
        The shards that this worker holds. Until it is told (``Owned``) there is one, and it is its own.
    last_ordinal : int
        The greatest of all nodes.
    """

    def __init__(self, table: NodeTable, usage: UsageWindows) -> None:
        self.table, self.usage = table, usage
        self.sums = Sums(table)
        self.nominations = Nominations(table, self.sums)
        self.moves = Moves()
        self.leaving: Mapping[str, str] = ChainMap(self.nominations.evicted, self.moves.under_way)
        self.index = PodIndex()
        self.pods: dict[str, PodEntry] = {}
        self.keys: dict[str, str] = {}
        self.nodes: dict[str, NodeEntry] = {}
        self.own_changes = OwnChanges(table, self.nodes)
        self.improved_rows: set[int] = set()
        self.uncounted: dict[str, str] = {}
        self.orphaned: set[str] = set()
        self.own = frozenset((0,))
        self.last_ordinal = 0

    # --------------------------------------------------------------------------------- what is known

    def add_pod(self, pod: PodSpec, arrival: int, shard: int) -> PodEntry:
        """Take a pod that begins to exist."""
        self.keys[pod.uid] = pod.key
        entry = self.pods[pod.key] = PodEntry(pod, arrival=arrival, shard=shard)
        self.index.add_pod(entry)
        return entry

    def forget_pod(self, entry: PodEntry) -> None:
        """Forget a pod, which counts on no node any more."""
        self.index.forget_pod(entry)
        del self.pods[entry.spec.key]
        if self.keys.get(entry.spec.uid) == entry.spec.key:
            del self.keys[entry.spec.uid]

    def find_or_add_node(self, name: str) -> NodeEntry:
        """Return a node that an event or a pod names, whether it is known or not."""
        entry = self.nodes.get(name)
        if entry is None:
            entry = self.nodes[name] = NodeEntry()
            entry.recent = set() if name in self.usage.windows else None
        return entry

    def set_ordinal(self, entry: NodeEntry, ordinal: int) -> None:
        """Give a node its ordinal, for ever."""
        entry.ordinal = ordinal
        self.last_ordinal = max(self.last_ordinal, ordinal)

    def write_row(self, entry: NodeEntry) -> None:
        """Give a node a row that counts what its pods occupy."""
        assert entry.spec is not None
        self.own_changes.sum_claims()
        row = self.table.upsert(entry.spec, entry.ordinal)
        self.sums.move_columns(self.nodes)
        self.nominations.count_anew(entry.spec.name if entry.deleted else "")
        if entry.deleted:
            entry.deleted = False
            for pod in entry.pods.values():
                self.sums.count_pod(row, entry, pod.spec, 1)
        self.sums.derive(np.array([row]))
        self.improved_rows.add(row)

    def remove_row(self, entry: NodeEntry) -> None:
        """Take the row of a node that was deleted."""
        assert entry.spec is not None
        name = entry.spec.name
        entry.deleted = True
        self.own_changes.sum_claims()
        last, row = self.table.count - 1, self.table.rows[name]
        self.table.remove(name)
        entry.elsewhere.clear()
        entry.recent = None
        self.sums.move_columns(self.nodes)
        self.nominations.count_anew()
        last_improved = last in self.improved_rows
        self.improved_rows -= {row, last}
        if last_improved and row != last:
            self.improved_rows.add(row)

    def give_devices(self, node: str) -> list[PodRefreshed]:
        """Give devices to the own pods on a node that have none of those that they ask for, by name.

        Such are pods that came before their node, and those that were placed before devices were told apart.
        A pod that was counted counts with them from now on: that is a change of the node.
        """
        known, given = self.nodes[node], list[PodRefreshed]()
        if known.deleted or known.spec is None or not devices_of(known.spec.allocatable):
            return given
        row = self.table.rows[node]
        for key, entry in sorted(known.pods.items()):
            if entry.shard in self.own and self._lacks_devices(entry.spec) and key not in self.uncounted:
                self.sums.count_pod(row, known, entry.spec, -1)
                self.index.update_pod(entry, self._with_devices(entry.spec, row))
                self.sums.count_pod(row, known, entry.spec, 1)
                given.append(PodRefreshed(entry.spec, True, entry.arrival))
        if given:
            known.version += 1
            self.own_changes.give_devices(node, [each.pod for each in given])
            self.table.touch(row)
        return given

    def _lacks_devices(self, pod: PodSpec) -> bool:
        return not pod.devices and bool(self.sums.vector(pod).ask.number)

    def _with_devices(self, pod: PodSpec, row: int) -> PodSpec:
        """Return a pod with devices of the node in a row; itself where that has none."""
        table = self.table
        free = free_milli(table.allocatable, table.requested, table.resources, np.array([row]))[0]
        devices = choose(free[free > NO_DEVICE].tolist(), self.sums.vector(pod).ask)
        return msgspec.structs.replace(pod, devices=devices) if devices else pod

    def report_own_pods(
        self, change: type[PodOrphaned] | type[PodReturned], node: str
    ) -> Iterator[PodOrphaned | PodReturned]:
        """Say of each own pod on a node, once, what became of it; by name, whatever came first."""
        known, reasons = self.nodes[node], self.amiss(node)
        is_gone = change is PodOrphaned
        for key, entry in sorted(known.pods.items()):
            if entry.shard in self.own and (key in self.orphaned) is not is_gone:
                self._note_report(entry.spec, is_gone=is_gone)
                yield change(entry.spec, node, known.version, reasons)

    def _note_report(self, pod: PodSpec, *, is_gone: bool) -> None:
        (self.orphaned.add if is_gone else self.orphaned.remove)(pod.key)
        self.own_changes.told[pod.uid] = is_gone

    def count_own_pods(self, node: str, *, is_new: bool = False) -> None:
        """Let the ledger count the own pods on a node that has just become known; others count theirs."""
        keys = [key for key, entry in self.nodes[node].pods.items() if entry.shard in self.own]
        self._begin_to_count(node, keys, changes=0 if is_new else 1)

    def _begin_to_count(self, node: str, keys: Sequence[str], changes: int = 1) -> None:
        """Let the ledger count some pods: one change of the node, and none where its row is new."""
        known = self.nodes[node]
        if keys:
            known.version += changes
            self.own_changes.begin_to_count(node, [known.pods[key].spec for key in sorted(keys)], changes)

    def own_shards(self, shards: frozenset[int], orphaned: Iterable[str]) -> Iterator[LeftToReport]:
        """Own these shards from now on; count and report what the owners before did not get to.

        ``orphaned`` are pods that they told that their node is gone.

        Cost: O(nodes that are gone or not known, pods on them, and pods that are not counted).
        """
        pods = self.pods
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
                yield from self.report_own_pods(PodOrphaned, name)
        for name in sorted({pods[key].node for key in self.orphaned}):
            if not self.nodes[name].deleted:
                yield from self.report_own_pods(PodReturned, name)
        if self.table.resources.column(BUSY) != NOWHERE:
            for name in sorted(self.nodes):
                yield from self.give_devices(name)

    # --------------------------------------------------------------------------------------------- pods

    def count_pod(self, entry: PodEntry, node: str, *, adopted: bool, is_change: bool = True) -> None:
        """Count a pod on a node. It is no change of the node where the ledger counts it already."""
        entry.node, entry.adopted, entry.arrival = node, adopted, 0
        known = self.find_or_add_node(node)
        if is_change and not known.deleted and self._lacks_devices(entry.spec):
            entry.spec = self._with_devices(entry.spec, self.table.rows[node])
        if is_change and known.spec is not None:
            known.version += 1
            self.own_changes.count_pod(node, entry.spec, 1)
            if known.deleted:
                self._note_report(entry.spec, is_gone=True)
        known.add_pod(entry)
        if entry.pod_class is not None:
            self.index.count_pod(entry.pod_class, node, 1)
        if not known.deleted:
            row = self.table.rows[node]
            self.sums.count_pod(row, known, entry.spec, 1)
            self.table.touch(row)
        if entry.placed_ms and known.recent is not None:  # as of one that is restored, or was resized
            self.sums.cover_pods(self.table.rows.get(node), known, self.usage.covered_ms[node])

    def count_foreign_pod(self, entry: PodEntry, node: str) -> int | None:
        """Let another worker's pod be on a node; return the row in which it is yet to be counted, if any."""
        entry.node = node
        known = self.nodes.get(node) or self.find_or_add_node(node)
        known.add_pod(entry)
        if entry.pod_class is not None:
            self.index.count_pod(entry.pod_class, node, 1)
        return None if known.deleted else self.table.rows[node]

    def uncount_foreign_pods(self, entries: Sequence[PodEntry]) -> None:
        """Stop counting pods of other workers, together. That is no change of this worker's own."""
        gone, rows, recent = [], [], []
        for entry in entries:
            node, key = entry.node, entry.spec.key
            entry.node = ""
            known = self.nodes[node]
            if entry.pod_class is not None:
                self.index.count_pod(entry.pod_class, node, -1)
            if not known.deleted:
                gone.append(entry.spec)
                rows.append(self.table.rows[node])
                recent.append(known.recent is None or key in known.recent)
            known.drop_pod(entry)
            self._note_left(key)
            self.uncounted.pop(key, None)
            if known.spec is None and not known.pods:
                del self.nodes[node]
        if gone:
            self.sums.uncount_pods(gone, np.array(rows), recent, self.nodes)
            self.improved_rows.update(rows)

    def refresh_foreign_pod(self, entry: PodEntry, pod: PodSpec) -> None:
        """Give another worker's placed pod its new spec, with the devices that it has from now on."""
        row = self.table.rows.get(entry.node) if pod.devices != entry.spec.devices else None
        if row is not None:
            self.sums.count_pod(row, self.nodes[entry.node], entry.spec, -1)
        self.index.update_pod(entry, pod)
        if row is not None:
            self.sums.count_pod(row, self.nodes[entry.node], entry.spec, 1)
            self.table.touch(row)

    def uncount_pod(self, entry: PodEntry, *, changes: int = 1) -> None:
        """Stop counting an own pod. -1 ``changes`` of the node undo what the ledger never had."""
        node = entry.node
        entry.node, entry.placed_ms = "", 0
        self.orphaned.discard(entry.spec.key)
        self.uncounted.pop(entry.spec.key, None)
        self._note_left(entry.spec.key)
        self.own_changes.told.pop(entry.spec.uid, None)
        known = self.nodes[node]
        if entry.pod_class is not None:
            self.index.count_pod(entry.pod_class, node, -1)
        if not known.deleted:
            row = self.table.rows[node]
            self.sums.count_pod(row, known, entry.spec, -1)
            self.table.touch(row)
            self.improved_rows.add(row)
        known.drop_pod(entry)
        if known.spec is not None:
            known.version += changes
            if changes > 0:
                self.own_changes.count_pod(node, entry.spec, -1)
        elif not known.pods:
            del self.nodes[node]  # whatever node names pods may invent, those that are gone leave nothing
        if entry.spec.devices:
            entry.spec = msgspec.structs.replace(entry.spec, devices=())

    def _note_left(self, key: str) -> None:
        self.nominations.evicted.pop(key, None)
        self.moves.under_way.pop(key, None)

    def count_assumed_pods(self, keys: Sequence[str], rows: np.ndarray, specs: Mapping[str, PodSpec]) -> None:
        """Count the pods that a cycle placed, together: ``rows[i]`` is the node row of ``keys[i]``.

        ``specs`` are those of pods that got devices.
        """
        pods = self.pods
        names = self.table.names
        placed: list[PodSpec] = []
        for key, row in zip(keys, rows.tolist(), strict=True):
            entry = pods[key]
            assert entry.node == "", "a pod is placed once"
            node = entry.node = names[row]
            entry.arrival = 0
            known = self.nodes[node]
            known.version += 1
            known.add_pod(entry)
            if entry.pod_class is not None:
                self.index.count_placed_pod(entry.pod_class, node)
            if specs and key in specs:
                entry.spec = specs[key]
            placed.append(entry.spec)
        if placed:
            self.own_changes.add_claim(self.sums.count_placed(placed, rows, self.nodes))

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
        row, table = self.table.rows[node], self.table
        over = (table.requested[:, row] > table.allocatable[:, row]).tolist()
        names = [name for column, name in self.table.resources.visible() if over[column]] if any(over) else []
        if entry.elsewhere:
            names = sorted({*names, *entry.elsewhere}, key=self.table.resources.order)
        return (",".join(f"overcommitted:{name}" for name in names),) if names else ()

    def version_of(self, node: str) -> int | None:
        """Return the version of a node, None while the node is not known."""
        entry = self.nodes.get(node)
        return None if entry is None or entry.spec is None else entry.version
