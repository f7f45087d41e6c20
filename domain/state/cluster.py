"""The fold: events in, one columnar picture of the cluster out.

``ClusterState.apply`` is the only mutator. Folding is idempotent: an event that was seen, or is older than
what is known of its object, changes nothing; a pod may come before its node, and a node may leave and come
back while its pods run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec
import numpy as np

from domain.model.events import Event, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.limits import (
    pods_per_node_max,
    resource_names_max,
    signatures_cached_max,
    tombstones_max,
)
from domain.model.nodes import NodeSpec
from domain.model.pods import HostPort, PodSpec, PodTemplate
from domain.state.changes import (
    Change,
    NodeChanged,
    PodAdopted,
    PodRefreshed,
    PodReleased,
    PodWaits,
    Refused,
    Skipped,
)
from domain.state.nodes import NodeEntry
from domain.state.pods import PodEntry, Tombstone
from domain.state.resources import ResourceIndex, ResourceVector
from domain.state.table import NodeTable
from domain.state.versions import digest, is_older, is_stale, newer_of, same_node

_SKIPPED: tuple[Change, ...] = (Skipped(),)
_TOO_MANY_NAMES = (
    f"brings more resource names than all objects may have ({resource_names_max}, resource_names_max)"
)


class Assumed(msgspec.Struct, frozen=True):
    """Pods that a cycle placed: ``rows[i]`` is the node row of ``keys[i]``."""

    keys: Sequence[str]
    rows: np.ndarray


class ClusterState:
    """Nodes, pods and what they occupy, as of the events applied so far.

    Parameters
    ----------
    seed : int
        Decides between equals, and nothing else.
    """

    def __init__(self, *, seed: int) -> None:
        self.resources = ResourceIndex()
        self.table = NodeTable(self.resources, seed)
        self.nodes: dict[str, NodeEntry] = {}
        self.pods: dict[str, PodEntry] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.dirty_nodes: dict[str, bool] = {}  # name -> spec changed too; drained by the committer
        self.improved_rows: set[int] = set()  # rows with more room or another spec; drained by the cycle
        self.ports_held: dict[str, dict[HostPort, int]] = {}  # node -> port -> holders
        self._keys_by_uid: dict[str, str] = {}
        self._vectors: dict[bytes, ResourceVector] = {}
        self._next_ordinal = 1
        self._next_arrival = 1

    # ------------------------------------------------------------------------------------------ events

    def apply(self, event: Event | Assumed) -> tuple[Change, ...]:
        """Fold one event; return what changed, in order.

        Cost: O(1) per event besides the pods of a node that appears.
        """
        match event:
            case PodUpserted():
                return self._upsert_pod(event.pod)
            case PodDeleted():
                return self._delete_pod(event)
            case NodeUpserted():
                return self._upsert_node(event.node)
            case NodeDeleted():
                return self._delete_node(event)
            case Assumed():
                return self._assume(event)
            case _:
                assert_never(event)

    def _upsert_node(self, spec: NodeSpec) -> tuple[Change, ...]:
        entry = self.nodes.get(spec.name)
        if self.resources.with_new(spec.allocatable) > resource_names_max:
            return (Refused("object.status.allocatable", _TOO_MANY_NAMES),)
        if entry is None:
            entry = self.nodes[spec.name] = NodeEntry()
        elif is_stale(spec.resource_version, entry.resource_version) or (
            not entry.deleted and same_node(entry.spec, spec)
        ):
            return _SKIPPED
        if entry.ordinal == 0:
            entry.ordinal = self._next_ordinal
            self._next_ordinal += 1
            entry.version = 0  # what happened before the node was known is not in the ledger
        entry.resource_version = newer_of(spec.resource_version, entry.resource_version)
        entry.spec = msgspec.structs.replace(spec, resource_version=entry.resource_version)
        self._show(entry)
        entry.version += 1
        self.dirty_nodes[spec.name] = True
        return (NodeChanged(spec.name),)

    def _show(self, entry: NodeEntry) -> None:
        """Give a node a row, with what its pods occupy."""
        assert entry.spec is not None
        row = self.table.upsert(entry.spec, entry.ordinal)
        if entry.deleted:
            entry.deleted = False
            for pod in entry.pods.values():
                self._count(row, pod.spec, 1)
        self.improved_rows.add(row)

    def _delete_node(self, event: NodeDeleted) -> tuple[Change, ...]:
        entry = self.nodes.get(event.name)
        if entry is None or entry.deleted or is_older(event.resource_version, entry.resource_version):
            return _SKIPPED
        assert entry.spec is not None
        if event.uid and event.uid != entry.spec.uid:
            return _SKIPPED
        entry.deleted = True
        # The last version that was seen outlives the node, so that a late duplicate stays late.
        entry.resource_version = newer_of(event.resource_version, entry.resource_version)
        entry.spec = msgspec.structs.replace(entry.spec, resource_version=entry.resource_version)
        last = self.table.count - 1
        row = self.table.rows[event.name]
        self.table.remove(event.name)
        if last in self.improved_rows:
            self.improved_rows.discard(last)
            if row != last:
                self.improved_rows.add(row)
        entry.version += 1
        self.dirty_nodes[event.name] = True
        return (NodeChanged(event.name),)

    # -------------------------------------------------------------------------------------------- pods

    def _upsert_pod(self, pod: PodSpec) -> tuple[Change, ...]:
        key = pod.key
        changes: list[Change] = []
        entry = self.pods.get(key)
        if entry is None:
            tombstone = self.tombstones.get(key)
            if tombstone is not None and is_stale(pod.resource_version, tombstone.resource_version):
                return _SKIPPED
        elif is_stale(pod.resource_version, entry.spec.resource_version):
            return _SKIPPED
        elif entry.spec.uid != pod.uid:
            # A new pod under a known name: the old one's deletion was lost to compaction.
            changes.append(self._release(entry, "replaced", pod.resource_version))
            entry = None
        if self._keys_by_uid.get(pod.uid, key) != key:
            message = f"{pod.uid!r} is the uid of pod {self._keys_by_uid[pod.uid]}; a uid names one pod"
            return (*changes, Refused("object.metadata.uid", message))
        if pod.finished:
            if entry is not None:
                changes.append(self._release(entry, "finished", pod.resource_version))
            return tuple(changes) or _SKIPPED
        refused = self._no_room_for(pod, "" if entry is None else entry.node)
        if refused is not None:
            return (*changes, refused)
        changes.append(self._enter(pod) if entry is None else self._update(entry, pod))
        return tuple(changes)

    def _no_room_for(self, pod: PodSpec, node: str) -> Refused | None:
        """Refuse what the columns cannot hold: too many resource names, or sums over a node beyond int64."""
        if pod.signature not in self._vectors:
            if self.resources.with_new(pod.template.requests) > resource_names_max:
                return Refused("object.spec.containers", _TOO_MANY_NAMES)
            self.vector(pod)
        known = self.nodes.get(pod.node_name) if pod.node_name != node else None
        if known is not None and len(known.pods) >= pods_per_node_max:
            message = f"{pod.node_name} holds {pods_per_node_max} pods already (pods_per_node_max)"
            return Refused("object.spec.nodeName", message)
        return None

    def _enter(self, pod: PodSpec) -> Change:
        # What was there under this name before stays known, as in the ledger: this pod may leave no version.
        self._keys_by_uid[pod.uid] = pod.key
        entry = self.pods[pod.key] = PodEntry(pod, arrival=self._next_arrival)
        self._next_arrival += 1
        if not pod.node_name:
            return PodWaits(pod)
        self._place(entry, pod.node_name, adopted=True)
        return PodAdopted(pod, pod.node_name)

    def _update(self, entry: PodEntry, pod: PodSpec) -> Change:
        before, before_node = entry.spec, entry.node
        if pod.resource_version is None and before.resource_version is not None:
            # An event without a version must not make way for older ones that have one.
            pod = msgspec.structs.replace(pod, resource_version=before.resource_version)
        node = pod.node_name or before_node
        same_template = before.signature == pod.signature
        if node == before_node and same_template:
            if before == pod:
                return _SKIPPED[0]
            entry.spec = pod
            return PodRefreshed(pod, bool(node))
        if node == "":
            entry.spec = pod
            entry.arrival = self._next_arrival
            self._next_arrival += 1
            return PodWaits(pod, before)
        if before_node:
            self._unplace(entry)
        entry.spec = pod
        self._place(entry, node, adopted=True)
        return PodAdopted(pod, node, before_node, waited=None if before_node else before)

    def _delete_pod(self, event: PodDeleted) -> tuple[Change, ...]:
        key = f"{event.namespace}/{event.name}"
        entry = self.pods.get(key)
        if entry is None:
            return _SKIPPED
        if event.uid and event.uid != entry.spec.uid:
            return _SKIPPED
        if is_older(event.resource_version, entry.spec.resource_version):
            return _SKIPPED
        return (self._release(entry, "deleted", event.resource_version),)

    def _release(self, entry: PodEntry, reason: str, resource_version: int | None) -> Change:
        pod, node = entry.spec, entry.node
        if node:
            self._unplace(entry)
        del self.pods[pod.key]
        del self._keys_by_uid[pod.uid]
        newest = newer_of(resource_version, pod.resource_version)
        if newest is not None:
            self.tombstones.pop(pod.key, None)  # the newest are last
            if len(self.tombstones) >= tombstones_max:
                del self.tombstones[next(iter(self.tombstones))]
            self.tombstones[pod.key] = Tombstone(pod.uid, newest)
        return PodReleased(pod, node, reason, newest)

    # ------------------------------------------------------------------------------------- occupancy

    def _place(self, entry: PodEntry, node: str, *, adopted: bool) -> None:
        entry.node = node
        entry.adopted = adopted
        known = self.nodes.get(node)
        if known is None:
            known = self.nodes[node] = NodeEntry()
        known.version += 1
        known.pods[entry.spec.key] = entry
        self._hold_ports(node, entry.spec.template, 1)
        if not known.deleted:
            row = self.table.rows[node]
            self._count(row, entry.spec, 1)
            self.table.touch(row)
        if known.spec is not None:
            self.dirty_nodes.setdefault(node, False)

    def _unplace(self, entry: PodEntry) -> None:
        node = entry.node
        entry.node = ""
        known = self.nodes[node]
        known.version += 1
        del known.pods[entry.spec.key]
        self._hold_ports(node, entry.spec.template, -1)
        if not known.deleted:
            row = self.table.rows[node]
            self._count(row, entry.spec, -1)
            self.table.touch(row)
            self.improved_rows.add(row)
        if known.spec is not None:
            self.dirty_nodes.setdefault(node, False)

    def vector(self, pod: PodSpec) -> ResourceVector:
        """Return what the pod occupies, computed once per signature."""
        vector = self._vectors.get(pod.signature)
        if vector is None:
            if len(self._vectors) >= signatures_cached_max:
                self._vectors.clear()
            vector = self._vectors[pod.signature] = self.resources.vector(pod.template)
            self.table.ensure_columns()
        return vector

    def _count(self, row: int, pod: PodSpec, sign: int) -> None:
        vector = self.vector(pod)
        self.table.requested[vector.columns, row] += sign * vector.values

    def _hold_ports(self, node: str, template: PodTemplate, sign: int) -> None:
        for port in template.host_ports:
            held = self.ports_held.setdefault(node, {})
            held[port] = held.get(port, 0) + sign
            if held[port] == 0:
                del held[port]
            if not held:
                del self.ports_held[node]

    def _assume(self, assumed: Assumed) -> tuple[Change, ...]:
        """Count a cycle's placements, all at once."""
        names = self.table.names
        columns, rows, values = [], [], []
        for key, row in zip(assumed.keys, assumed.rows.tolist(), strict=True):
            entry = self.pods[key]
            assert entry.node == "", "a pod is placed once"
            node = entry.node = names[row]
            known = self.nodes[node]
            known.version += 1
            known.pods[key] = entry
            self.dirty_nodes.setdefault(node, False)
            if entry.spec.template.host_ports:
                self._hold_ports(node, entry.spec.template, 1)
            vector = self.vector(entry.spec)
            columns.append(vector.columns)
            values.append(vector.values)
            rows.append(row)
        if rows:
            lengths = [len(v) for v in values]
            where = np.repeat(np.array(rows, dtype=np.int64), lengths)
            np.add.at(self.table.requested, (np.concatenate(columns), where), np.concatenate(values))
            self.table.touch_many(np.unique(assumed.rows))
        return ()

    # --------------------------------------------------------------------------------------- restoring

    def restore_node(self, *, name: str, ordinal: int, version: int, spec: NodeSpec, deleted: bool) -> None:
        """Put a node of the ledger back, before any pod."""
        entry = self.nodes[name] = NodeEntry()
        entry.ordinal = ordinal
        self._next_ordinal = max(self._next_ordinal, ordinal + 1)
        entry.version_drained = version
        entry.spec = spec
        entry.resource_version = spec.resource_version
        if not deleted:
            self._show(entry)

    def restore_pod(self, pod: PodSpec, *, node: str, adopted: bool, arrival: int = 0) -> PodEntry:
        """Put a pod of the ledger back; waiting pods come in their order of arrival, and keep it."""
        entry = self.pods[pod.key] = PodEntry(pod, arrival=arrival)
        self._next_arrival = max(self._next_arrival, arrival + 1)
        self._keys_by_uid[pod.uid] = pod.key
        if node:
            self._place(entry, node, adopted=adopted)
        return entry

    def restored(self) -> None:
        """Note that all of the ledger was put back: nothing is dirty, versions are the ledger's."""
        self.dirty_nodes.clear()
        for entry in self.nodes.values():
            entry.version = entry.version_drained

    def drain_dirty(self) -> list[tuple[str, NodeEntry, int, bool]]:
        """Return the nodes changed since the last drain: name, entry, version then, spec changed too."""
        drained = []
        for name, spec_changed in sorted(self.dirty_nodes.items()):
            entry = self.nodes[name]
            drained.append((name, entry, entry.version_drained, spec_changed))
            entry.version_drained = entry.version
        self.dirty_nodes.clear()
        return drained

    def requested_of(self, name: str) -> dict[str, int]:
        """Return the sum per resource of the pods that count on a node, zeros left out."""
        entry = self.nodes[name]
        if entry.deleted:
            total: dict[int, int] = {}
            for pod in entry.pods.values():
                vector = self.vector(pod.spec)
                for column, value in zip(vector.columns.tolist(), vector.values.tolist(), strict=True):
                    total[column] = total.get(column, 0) + value
        else:
            row = self.table.rows[name]
            total = dict(enumerate(self.table.requested[:, row].tolist()))
        return {n: total[c] for c, n in self.resources.visible() if total.get(c)}

    def digest(self) -> str:
        """Return a hash of everything that decides what happens next; equal states have equal digests."""
        nodes = {name: entry for name, entry in sorted(self.nodes.items()) if entry.spec is not None}
        return digest(
            nodes={
                name: (e.ordinal, e.deleted, e.spec, self.requested_of(name)) for name, e in nodes.items()
            },
            pods={key: _known_of(entry) for key, entry in sorted(self.pods.items())},
            gone={key: (t.uid, t.resource_version) for key, t in sorted(self.tombstones.items())},
        )


def _known_of(entry: PodEntry) -> tuple[object, ...]:
    spec = entry.spec
    return (spec.uid, spec.resource_version, spec.labels, spec.signature, entry.node, entry.adopted)
