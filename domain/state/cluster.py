"""The fold: events in, one columnar picture of the cluster out.

``ClusterState.apply`` is the only mutator. Folding is idempotent: an event that was seen before, or that is
older than what is known of its object, changes nothing. A pod may come before its node, and a node may leave
and come back while its pods run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from domain.model.devices import with_devices
from domain.model.events import (
    BindFailed,
    ConfigDeleted,
    ConfigUpserted,
    Event,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
)
from domain.model.limits import resource_names_max, usage_window_seconds
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec
from domain.state import steps
from domain.state.changes import (
    BindUndone,
    Change,
    NodeChanged,
    NodeMeasured,
    PodAdopted,
    PodMissed,
    PodOrphaned,
    PodRefreshed,
    PodRegrouped,
    PodReleased,
    PodResized,
    PodReturned,
    PodWaits,
    Refused,
    Skipped,
)
from domain.state.config import Config
from domain.state.devices import with_known_devices
from domain.state.followed import FollowedEvent
from domain.state.following import Following
from domain.state.known_pods import KnownPods
from domain.state.nodes import NodeEntry
from domain.state.nominating import Nominating
from domain.state.nominations import Nomination
from domain.state.occupancy import Occupancy
from domain.state.pods import PodEntry
from domain.state.resources import ResourceIndex
from domain.state.restorable import Restorable
from domain.state.table import NodeTable
from domain.state.tombstones import Tombstones
from domain.state.usage import UsageWindows
from domain.state.versions import (
    OTHER_UID,
    is_stale,
    newer_of,
    same_node,
    skip_reason,
    taken,
    why_not_deleted,
)

_SKIPPED: tuple[Change, ...] = (Skipped(),)
_ARRIVALS_PER_MS = 1 << 15  # an arrival of the last moment that RFC 3339 can write still is an int64
_TOO_MANY_NAMES = f"brings more names than all nodes may have ({resource_names_max}, resource_names_max)"


class ClusterState(Restorable):
    """Nodes, pods and what they occupy, as of the events applied so far.

    Parameters
    ----------
    seed : int
        Decides between nodes of equal score, and nothing else.
    usage_window_seconds : int
        Length of the usage window of a node that does not say another length itself.
    """

    def __init__(self, *, seed: int, usage_window_seconds: int = usage_window_seconds) -> None:
        self.resources = ResourceIndex()
        self.table = NodeTable(self.resources, seed)
        self.usage = UsageWindows(usage_window_seconds)
        of = self._occupancy = Occupancy(self.resources, self.table, self.usage)
        self.nodes, self.sums, self.index = of.nodes, of.sums, of.index
        self.own_changes, self.improved_rows = of.own_changes, of.improved_rows
        self.uncounted: Mapping[str, str] = of.uncounted
        self._known = KnownPods(self.index)
        self.pods = self._known.entries
        self.tombstones = Tombstones()
        self.config = Config(self.index)
        self.nominations, self._nominating = of.nominations, Nominating(of, self._known)
        parts = self._known, self.resources, self.usage, self._nominating, self.tombstones
        self._following = Following(of, *parts)
        self._next_arrival = 1

    # ------------------------------------------------------------------------------------------ events

    def apply(self, event: Event | FollowedEvent | steps.Step, shard: int = 0) -> tuple[Change, ...]:
        """Fold one event, and return what changed, in order. ``shard`` is the one whose record it is.

        Cost: O(1) per event. A node that appears costs its pods besides.
        """
        match event:
            case PodUpserted():
                return self._upsert_pod(self.config.settled(event, self.pods), shard)
            case PodDeleted():
                return self._delete_pod(event, shard)
            case BindFailed():
                return self._undo_bind(event, shard)
            case NodeUpserted():
                return self._upsert_node(event.node, shard)
            case NodeDeleted():
                return self._delete_node(event)
            case NodeUsed():
                return self._measure(event)
            case steps.Assumed():
                self._occupancy.assume(event.keys, event.rows, self.pods, event.specs)
                return self._nominating.keep(event.keys)
            case steps.Nominated() | steps.Cleared() | steps.Unnominated() | steps.Repromised():
                return tuple(self._nominating.fold(event))
            case steps.Forgotten():
                for key, arrival in event.arrivals.items():
                    self._occupancy.unplace(self.pods[key], changes=-1)
                    self.pods[key].arrival = arrival
                return ()
            case steps.Settle():
                return tuple(_regrouped(each) for each in self.index.settle(self.pods))
            case steps.Written():
                self._known.note_times(event.placed_ms)
                self.own_changes.clear()
                return ()
            case steps.Passed():
                self.tombstones.pass_to(event.now_ms, event.forget_before_ms)
                return ()
            case steps.Reached():
                self._next_arrival = max(self._next_arrival, event.now_ms * _ARRIVALS_PER_MS)
                return ()
            case steps.Given():
                for entry in [e for e in self.pods.values() if not e.node and e.shard in event.shards]:
                    self._known.leave(entry)
                return ()
            case steps.Owned():
                self._occupancy.shards_count = event.shards_count
                return tuple(self._occupancy.hold(event.shards, self.pods, event.orphaned))
            case ConfigUpserted() | ConfigDeleted():
                return self._nominating.fold_config(self.config, event)
            case _:
                return tuple(self._following.fold(event))

    @property
    def own(self) -> frozenset[int]:
        """The shards that this worker holds. Until it is told (``Owned``) there is one, and it is its own."""
        return self._occupancy.own

    @property
    def orphaned(self) -> AbstractSet[str]:
        """Keys of own pods that were told that their node is gone, and not that it is back."""
        return self._occupancy.orphaned

    def is_own_promise(self, nomination: Nomination) -> bool:
        """Say whether the pod of a nomination is of an own shard, and waits."""
        return self._nominating.is_own(nomination)

    @property
    def shards_count(self) -> int:
        """How many shards there are."""
        return self._occupancy.shards_count

    def _upsert_node(self, spec: NodeSpec, shard: int) -> tuple[Change, ...]:
        entry = self.nodes.get(spec.name) or NodeEntry()
        renewed = entry.spec is not None and entry.spec.uid != spec.uid
        late = self.tombstones.why_late(spec.name, spec.uid, spec.resource_version) if renewed else ""
        if not (renewed and entry.deleted) and is_stale(spec.resource_version, entry.resource_version):
            late = skip_reason(spec.resource_version, entry.resource_version)
        if late:
            return (Skipped(late),)
        if not entry.deleted and same_node(entry.spec, spec):
            return _SKIPPED
        present = () if entry.deleted or entry.spec is None else with_devices(entry.spec.allocatable)
        if self.resources.count_with(with_devices(spec.allocatable), present) > resource_names_max:
            return (Refused("object.status.allocatable", _TOO_MANY_NAMES),)
        entry = self._occupancy.meet(spec.name)
        is_new, is_back = entry.spec is None, entry.deleted and entry.spec is not None
        if is_new:
            self._occupancy.number(entry, self._occupancy.next_ordinal(shard))
        # A new object under the name counts its versions anew, so that no version blocks a name for ever. The
        # object before it is remembered by its uid, as a pod that is gone.
        replaced = None
        if renewed and entry.spec is not None:
            replaced = (entry.spec.uid, entry.resource_version)
            self.tombstones.add(spec.name, *replaced)
        known = None if renewed else entry.resource_version
        entry.resource_version = newer_of(spec.resource_version, known)
        entry.spec = msgspec.structs.replace(spec, resource_version=entry.resource_version)
        self._occupancy.show(entry)
        self.usage.unknown.discard(spec.name)
        self._note_spec(spec.name, entry)
        changed = (NodeChanged(spec.name, replaced),)
        if is_new:
            self._occupancy.count_own(spec.name, is_new=True)
        given = _given(self._occupancy.give_devices(spec.name))
        told = tuple(self._occupancy.tell_own(PodReturned, spec.name)) if is_back else ()
        return (*changed, *given, *told)

    def _note_spec(self, name: str, entry: NodeEntry) -> None:
        entry.version += 1
        entry.spec_count += 1
        self.own_changes.change_spec(name)

    def _delete_node(self, event: NodeDeleted) -> tuple[Change, ...]:
        entry = self.nodes.get(event.name)
        if entry is None or entry.deleted:
            return _SKIPPED
        assert entry.spec is not None
        refused = why_not_deleted(event, entry.spec)
        if refused:
            return (Skipped(refused),)
        # The last version that was seen outlives the node, so that a late duplicate stays late.
        entry.resource_version = newer_of(event.resource_version, entry.resource_version)
        entry.spec = msgspec.structs.replace(entry.spec, resource_version=entry.resource_version)
        self._occupancy.hide(entry)
        self._note_spec(event.name, entry)
        # Who holds the shard of usage may leave it before it hears of this: the end is told here, too.
        forgotten = (NodeMeasured(event.name),) if self.usage.forget(event.name) else ()
        told = self._occupancy.tell_own(PodOrphaned, event.name)
        return (NodeChanged(event.name), *forgotten, *told, *self._nominating.leave(event.name))

    def _measure(self, event: NodeUsed) -> tuple[Change, ...]:
        """Take a measurement. One of a node that is gone says nothing of the node that may come back."""
        entry = self.nodes.get(event.usage.node)
        spec = None if entry is None else entry.spec
        if entry is not None and spec is not None and entry.deleted:
            return _SKIPPED
        change = self.usage.fold(event.usage, spec)
        if isinstance(change, NodeMeasured):
            self._occupancy.measure(change.name, newer=change.newer)
        return (change,)

    # -------------------------------------------------------------------------------------------- pods

    def _upsert_pod(self, pod: PodSpec, shard: int) -> tuple[Change, ...]:
        key = pod.key
        changes: list[Change] = []
        entry = self.pods.get(key)
        if entry is not None and is_stale(pod.resource_version, known := entry.spec.resource_version):
            reason = skip_reason(pod.resource_version, known)
            made_way = entry.spec.uid != pod.uid  # for the pod that is known
            return (self._miss(key, pod.uid, known, reason) if made_way else Skipped(reason),)
        if entry is None or entry.spec.uid != pod.uid:
            late = self.tombstones.why_late(key, pod.uid, pod.resource_version)
            if late:
                return (Skipped(late),)
        if entry is not None and self._is_of_another(entry, shard):
            return (_of_another(entry, shard),)
        holder = self._known.keys.get(pod.uid, key)
        if holder != key:
            return (Refused("object.metadata.uid", taken(pod, holder), "uid-taken"),)
        if entry is not None and entry.spec.uid != pod.uid:
            # A new pod under a known name: compaction lost the deletion of the old one.
            changes += self._release(entry, "replaced", pod.resource_version)
            entry = None
        if pod.finished:
            version = pod.resource_version
            if entry is None:
                return (*changes, self._miss(key, pod.uid, version))
            return (*changes, *self._release(entry, "finished", version))
        if pod.node_name and (entry is None or entry.node != pod.node_name):
            full = self._occupancy.why_full(pod.node_name)
            if full:
                return (*changes, Refused("object.spec.nodeName", full))
        if entry is None:
            return (*changes, self._enter(pod, shard))
        if pod.key in self.nominations.entries and (pod.node_name or pod.signature != entry.spec.signature):
            changes += self._nominating.end_of(entry.spec, "adopted" if pod.node_name else "changed")
        before, change = entry.pod_class, self._update(entry, pod, shard)
        regrouped = isinstance(change, PodRefreshed) and entry.pod_class is not before
        return (*changes, change, _regrouped(entry)) if regrouped else (*changes, change)

    def _is_of_another(self, entry: PodEntry, shard: int) -> bool:
        """Say whether a record of a shard names a pod of another worker: its producer chose the partition."""
        return entry.shard != shard and entry.shard not in self._occupancy.own

    def _enter(self, pod: PodSpec, shard: int) -> Change:
        entry = self._known.enter(pod, self._next_arrival, shard)
        self._next_arrival += 1
        if not pod.node_name:
            return PodWaits(pod, entry.arrival)
        self._occupancy.place(entry, pod.node_name, adopted=True)
        return self._adopted(entry.spec, pod.node_name)

    def _update(self, entry: PodEntry, pod: PodSpec, shard: int) -> Change:
        before, before_node = entry.spec, entry.node
        pod.share_texts(before)
        if pod.resource_version is None and before.resource_version is not None:
            # An event without a version must not make way for older ones that have one.
            pod = msgspec.structs.replace(pod, resource_version=before.resource_version)
        node = pod.node_name or before_node
        if node == before_node and before.devices and not pod.devices:
            pod = with_known_devices(pod, before)
        if node == before_node and (before.signature, before.devices) == (pod.signature, pod.devices):
            if before == pod:
                return _SKIPPED[0]
            self.index.renew(entry, pod)
            return PodRefreshed(pod, bool(node), entry.arrival)
        entry.shard = shard
        if node == "":
            self.index.renew(entry, pod)
            entry.arrival = self._next_arrival
            self._next_arrival += 1
            return PodWaits(pod, entry.arrival, before)
        if before_node:
            self._occupancy.unplace(entry)
        self.index.renew(entry, pod)
        if node == before_node:
            self._occupancy.place(entry, node, adopted=entry.adopted)
            version, reasons = self._occupancy.version_of(node), self._occupancy.amiss(node)
            return PodResized(entry.spec, node, version, entry.adopted, reasons)
        self._occupancy.place(entry, node, adopted=True)
        return self._adopted(entry.spec, node, before_node, None if before_node else before)

    def _adopted(self, pod: PodSpec, node: str, before: str = "", waited: PodSpec | None = None) -> Change:
        version, reasons = self._occupancy.version_of(node), self._occupancy.amiss(node)
        return PodAdopted(pod, node, version, before, waited, reasons)

    def _delete_pod(self, event: PodDeleted, shard: int) -> tuple[Change, ...]:
        key = f"{event.namespace}/{event.name}"
        entry, version = self.pods.get(key), event.resource_version
        if entry is None:
            return (self._miss(key, event.uid or key, version),)
        refused = why_not_deleted(event, entry.spec)
        if refused == OTHER_UID:
            return (self._miss(key, event.uid, version, refused),)
        if self._is_of_another(entry, shard):
            return (_of_another(entry, shard),)
        if refused:
            return (Skipped(refused),)
        return self._release(entry, "deleted", version)

    def _undo_bind(self, event: BindFailed, shard: int) -> tuple[Change, ...]:
        """Let a pod wait again that berth had placed there; of any other the event says how it is now."""
        pod, entry = event.pod.pod, self.pods.get(event.pod.pod.key)
        if entry is None or (entry.spec.uid, entry.node, entry.adopted) != (pod.uid, event.node, False):
            return self.apply(event.pod, shard)
        if self._is_of_another(entry, shard):
            return (_of_another(entry, shard),)
        if pod.terminating or entry.spec.terminating:  # it never will be bound
            return self._release(entry, "deleted", pod.resource_version)
        self._occupancy.unplace(entry)
        if entry.spec.node_name:
            self.index.renew(entry, msgspec.structs.replace(entry.spec, node_name=""))
        entry.arrival = self._next_arrival
        self._next_arrival += 1
        undone = BindUndone(entry.spec, event.node, self._occupancy.version_of(event.node), entry.arrival)
        return (*self._nominating.lack(entry.spec.template.gang), undone)

    def _miss(self, key: str, uid: str, version: int | None, reason: str = "known") -> Change:
        """Remember a pod that was gone before it was known. Cost: O(1)."""
        if not self.tombstones.misses(key, uid, version):
            return Skipped(reason)
        self.tombstones.add(key, uid, version)
        return PodMissed(key, uid, version, reason)

    def _release(self, entry: PodEntry, reason: str, resource_version: int | None) -> tuple[Change, ...]:
        pod, node = entry.spec, entry.node
        ended = self._nominating.end_of(pod, "released")
        if node:
            ended += self._nominating.lack(pod.template.gang)
            self._occupancy.unplace(entry)
        self._known.leave(entry)
        newest = newer_of(resource_version, pod.resource_version)
        self.tombstones.add(pod.key, pod.uid, newest)
        return (*ended, PodReleased(pod, node, self._occupancy.version_of(node), reason, newest))

    def requested_of(self, name: str) -> dict[str, int]:
        """Return what the pods on a node request, summed per resource, without zeros."""
        return self.sums.of(name, self.nodes[name])


def _of_another(entry: PodEntry, shard: int) -> Refused:
    message = f"is a pod of shard {entry.shard}: a record of it came with those of shard {shard}"
    return Refused("object.metadata.name", message, "other-shard")


def _given(entries: Sequence[PodEntry]) -> tuple[Change, ...]:
    return tuple(PodRefreshed(entry.spec, True, entry.arrival) for entry in entries)


def _regrouped(entry: PodEntry) -> PodRegrouped:
    return PodRegrouped(entry.spec, bool(entry.node), entry.arrival)
