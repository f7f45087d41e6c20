"""The fold: events in, one columnar picture of the cluster out.

``ClusterState.apply`` is the only mutator. Folding is idempotent: an event that was seen before, or that is
older than what is known of its object, changes nothing. A pod may come before its node, and a node may leave
and come back while its pods run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import assert_never

import msgspec

from domain.model.config import CO_LOCATION_POLICY, HOSTED_REPLICAS, ConfigObject
from domain.model.events import (
    BindFailed,
    ConfigDeleted,
    ConfigEvent,
    ConfigUpserted,
    Event,
    NodeActed,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
)
from domain.model.limits import usage_window_seconds
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec
from domain.model.usage import UsageRecord
from domain.state import foreign, nominating, relieving, settling, steps
from domain.state.billing import Billed, bill, without_past
from domain.state.changes import (
    ActionTaken,
    BindUndone,
    Change,
    ClaimRefused,
    NodeChanged,
    NodeMeasured,
    PodAdopted,
    PodGiven,
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
from domain.state.lending import Lending
from domain.state.nodes import NodeEntry
from domain.state.nominations import Nomination
from domain.state.occupancy import Occupancy
from domain.state.pods import PodEntry
from domain.state.resources import ResourceIndex
from domain.state.table import NodeTable, why_too_many_names
from domain.state.tombstones import Tombstones
from domain.state.usage import USAGE_SHARD, UsageWindows
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


class ClusterState:
    """Nodes, pods and what they occupy, as of the events applied so far.

    Parameters
    ----------
    seed : int
        Decides between nodes of equal score, and nothing else.
    usage_window_seconds : int
        Length of the usage window of a node that does not say another length itself.

    Attributes
    ----------
    shards_count : int
        How many shards there are.
    """

    def __init__(self, *, seed: int, usage_window_seconds: int = usage_window_seconds) -> None:
        self.resources = ResourceIndex()
        self.table = NodeTable(self.resources, seed)
        self.usage = UsageWindows(usage_window_seconds)
        of = self._occupancy = Occupancy(self.table, self.usage)
        self.nodes, self.pods, self.sums, self.index = of.nodes, of.pods, of.sums, of.index
        self.own_changes, self.improved_rows = of.own_changes, of.improved_rows
        self.nominations, self.moves, self.leaving = of.nominations, of.moves, of.leaving
        self.tombstones = Tombstones()
        self.config = Config(self.index)
        self.hosted = self.index.hosted
        self.lending = Lending(self.table, self.nodes, self.usage.qualities, self.config.policies)
        self.shards_count = 1
        self._next_arrival = 1

    def apply(self, event: Event | steps.Step, shard: int = 0) -> tuple[Change, ...]:
        """Fold one event or step, and return what changed, in order.

        ``shard`` is the one whose record it is. Cost: O(1), and per pod of it. A node that appears costs its
        pods besides.
        """
        match event:
            case PodUpserted():
                return self._upsert_pod(self.config.with_priority(event, self.pods), shard)
            case PodDeleted():
                return self._delete_pod(event, shard)
            case BindFailed():
                return self._undo_bind(event, shard)
            case NodeUpserted():
                return self._upsert_node(event.node, shard)
            case NodeDeleted():
                return self._delete_node(event)
            case NodeUsed():
                return self._measure_node(event)
            case NodeActed():
                return (ActionTaken(event.action),)
            case ConfigUpserted() | ConfigDeleted():
                return self._configure(event)
            case _:
                return tuple(self._take_step(event))

    def _take_step(self, step: steps.Step) -> Iterator[Change]:
        of = self._occupancy
        match step:
            case steps.Assumed():
                of.count_assumed_pods(step.keys, step.rows, step.specs)
                yield from nominating.end_of_bound(of, step.keys)
            case steps.Forgotten():
                for key, arrival in step.arrivals.items():
                    of.uncount_pod(self.pods[key], changes=-1)
                    self.pods[key].arrival = arrival
                for nomination in step.nominations:
                    nominating.begin(of, nomination)
                for key, arrival in step.arrivals.items():
                    if key not in self.nominations.entries:
                        yield ClaimRefused(self.pods[key].spec, arrival, placed=True)
            case steps.Nominated():
                yield from nominating.nominate(of, step)
            case steps.Cleared():
                yield from nominating.clear(of, step.keys, step.reason)
            case steps.Unnominated():
                for key in [key for key in step.keys if key in self.nominations.entries]:
                    nomination, _ = nominating.end(of, key)
                    self.nodes[nomination.node].version -= 1
                    yield ClaimRefused(self.pods[key].spec, self.pods[key].arrival, placed=False)
            case steps.Relieved() | steps.ReliefsPassed() | steps.Unrelieved() | steps.ReliefsFollowed():
                yield from relieving.take_step(of, step)
            case steps.HostedSaid():
                self.index.hosted.apply_change(step.change, step.seq)
            case steps.Reclassify():
                yield from map(_regrouped, self.index.reclassify(self.pods))
            case steps.Written():
                self.own_changes.clear()
                _note_placed(of, step.placed_ms)
            case steps.Passed():
                self.tombstones.pass_to(step.now_ms, step.forget_before_ms)
            case steps.Lent():
                self.lending.write_room(step.now_ms)
            case steps.Reached():
                self._next_arrival = max(self._next_arrival, step.now_ms * _ARRIVALS_PER_MS)
            case steps.Given():
                for entry in [e for e in self.pods.values() if not e.node and e.shard in step.shards]:
                    of.forget_pod(entry)
                    yield PodGiven(entry.spec)
                yield from of.own_shards(of.own - step.shards, ())
            case steps.Owned():
                self.shards_count = step.shards_count
                yield from of.own_shards(step.shards, step.orphaned)
            case steps.PodsFollowed():
                yield from foreign.count_pods(of, step)
            case steps.PodsLeft():
                yield from foreign.forget_pods(of, step)
            case steps.PodsFollowedCounted():
                for uid in step.uids:
                    of.uncounted.pop(of.keys.get(uid, ""), None)
            case steps.PodFollowedRefreshed():
                yield from foreign.refresh_pod(of, step)
            case steps.VersionsFollowed():
                yield from foreign.raise_versions(of, step)
            case steps.NodeFollowed():
                yield from foreign.follow_node(of, step)
                settling.settle_anew(of, self.config.policies, (step.name,))
            case steps.NominationsFollowed():
                yield from nominating.follow(of, step)
            case steps.GoneFollowed():
                for gone in zip(step.keys, step.uids, step.versions, step.at_ms, strict=True):
                    self.tombstones.add(*gone)
            case _:
                assert_never(step)

    @property
    def own(self) -> frozenset[int]:
        """The shards that this worker holds. Until it is told (``Owned``) there is one, and it is its own."""
        return self._occupancy.own

    @property
    def uncounted(self) -> Mapping[str, str]:
        """Keys of pods of other workers that the rows of their nodes do not count, each with its node."""
        return self._occupancy.uncounted

    @property
    def orphaned(self) -> AbstractSet[str]:
        """Keys of own pods that were told that their node is gone, and not that it is back."""
        return self._occupancy.orphaned

    def is_own_nomination(self, nomination: Nomination) -> bool:
        """Say whether the pod of a nomination is of an own shard, and waits."""
        return nominating.is_own(self._occupancy, nomination)

    def requested_of(self, name: str) -> dict[str, int]:
        """Return what the pods on a node request, summed per resource, without zeros."""
        return self.sums.of(name, self.nodes[name])

    def _configure(self, event: ConfigEvent) -> tuple[Change, ...]:
        """Take a configuration object; end the nominations of gangs for which something else holds now."""
        gangs = self.index.gangs.of_object(f"{event.namespace}/{event.name}")
        before = [(gang, self.config.gang(gang)) for gang in gangs]
        version = self.config.policies.version
        changes = self.config.fold(event, self.pods)
        if event.kind == HOSTED_REPLICAS:
            self.index.hosted.find_pods(self.pods.values())
        if self.config.policies.version != version:
            settling.follow_policies(self._occupancy, self.config.policies)
        changed = [gang for gang, spec in before if self.config.gang(gang) != spec]
        return (*changes, *chain.from_iterable(nominating.end_of_gang(self._occupancy, g) for g in changed))

    # ------------------------------------------------------------------------------------------- nodes

    def _upsert_node(self, spec: NodeSpec, shard: int) -> tuple[Change, ...]:
        entry = self.nodes.get(spec.name) or NodeEntry()
        before = entry.spec
        is_new, is_back = before is None, entry.deleted and before is not None
        is_replaced = before is not None and before.uid != spec.uid
        late = self.tombstones.why_late(spec.name, spec.uid, spec.resource_version) if is_replaced else ""
        if not (is_replaced and entry.deleted) and is_stale(spec.resource_version, entry.resource_version):
            late = skip_reason(spec.resource_version, entry.resource_version)
        if late:
            return (Skipped(late),)
        if not entry.deleted and same_node(before, spec):
            return _SKIPPED
        if too_many := why_too_many_names(self.table, spec):
            return (Refused("object.status.allocatable", too_many),)
        entry = self._occupancy.find_or_add_node(spec.name)
        if is_new:
            ordinal = self._occupancy.last_ordinal + 1
            if len(self.own) < self.shards_count:  # others add nodes, too: each shard has its own remainder
                ordinal += (shard - ordinal) % self.shards_count
            self._occupancy.set_ordinal(entry, ordinal)
        # A new object under the name counts its versions anew, so that no version blocks a name for ever. The
        # object before it is remembered by its uid, as a pod that is gone.
        replaced = (before.uid, entry.resource_version) if before is not None and is_replaced else None
        if replaced is not None:
            self.tombstones.add(spec.name, *replaced)
        known = None if is_replaced else entry.resource_version
        entry.resource_version = newer_of(spec.resource_version, known)
        entry.spec = msgspec.structs.replace(spec, resource_version=entry.resource_version)
        self._occupancy.write_row(entry)
        self.usage.unknown.discard(spec.name)
        settling.settle_anew(self._occupancy, self.config.policies, (spec.name,))
        self.own_changes.change_spec(spec.name)
        if is_new:
            self._occupancy.count_own_pods(spec.name, is_new=True)
        given = self._occupancy.give_devices(spec.name)
        returned = self._occupancy.report_own_pods(PodReturned, spec.name) if is_back else ()
        return (NodeChanged(spec.name, replaced), *given, *returned)

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
        self._occupancy.remove_row(entry)
        self.own_changes.change_spec(event.name)
        # The owner of the shard of usage may leave it before it hears of this: the end is told here, too.
        forgotten = (NodeMeasured(event.name),) if self.usage.forget(event.name) else ()
        orphaned = self._occupancy.report_own_pods(PodOrphaned, event.name)
        ended = nominating.end_on_node(self._occupancy, event.name)
        return (NodeChanged(event.name), *forgotten, *orphaned, *ended)

    def _measure_node(self, event: NodeUsed) -> tuple[Change, ...]:
        """Take a measurement. One of a node that is gone says nothing of the node that may come back."""
        entry = self.nodes.get(event.usage.node)
        spec = None if entry is None else entry.spec
        if entry is not None and spec is not None and entry.deleted:
            return _SKIPPED
        policy = self.config.policies.of({} if spec is None else spec.labels).policy
        billed = Billed(event.usage)
        if event.usage.quality is not msgspec.UNSET and USAGE_SHARD in self.own:
            record = self.usage.qualities.get(event.usage.node)
            billed = bill(self._occupancy, without_past(event.usage, record, entry), record, policy)
        change = self.usage.fold(billed.usage, spec, policy.hot_spot)
        if isinstance(change, NodeMeasured):
            if billed.lines or billed.unbilled:
                change = msgspec.structs.replace(change, bill=billed.lines, unbilled=billed.unbilled)
            is_by_quality = event.usage.quality is not msgspec.UNSET
            newer = change.newer or is_by_quality
            settling.measure_node(self._occupancy, self.config.policies, change.name, newer=newer)
            if is_by_quality:
                self.lending.measure(change.name)
        return (change,)

    # -------------------------------------------------------------------------------------------- pods

    def _upsert_pod(self, pod: PodSpec, shard: int) -> tuple[Change, ...]:
        key = pod.key
        changes: list[Change] = []
        entry = self.pods.get(key)
        if entry is not None and is_stale(pod.resource_version, known := entry.spec.resource_version):
            reason = skip_reason(pod.resource_version, known)
            made_way = entry.spec.uid != pod.uid  # for the pod that is known
            return (_missed(self.tombstones, key, pod.uid, known, reason) if made_way else Skipped(reason),)
        if entry is None or entry.spec.uid != pod.uid:
            late = self.tombstones.why_late(key, pod.uid, pod.resource_version)
            if late:
                return (Skipped(late),)
        if entry is not None and (refused := _why_foreign(entry, shard, self._occupancy.own)):
            return refused
        holder = self._occupancy.keys.get(pod.uid, key)
        if holder != key:
            return (Refused("object.metadata.uid", taken(pod, holder), "uid-taken"),)
        if entry is not None and entry.spec.uid != pod.uid:
            # A new pod under a known name: compaction lost the deletion of the old one.
            changes += self._release(entry, "replaced", pod.resource_version)
            entry = None
        if pod.finished:
            version = pod.resource_version
            if entry is None:
                return (*changes, _missed(self.tombstones, key, pod.uid, version))
            return (*changes, *self._release(entry, "finished", version))
        if pod.node_name and (entry is None or entry.node != pod.node_name):
            full = self._occupancy.why_full(pod.node_name)
            if full:
                return (*changes, Refused("object.spec.nodeName", full))
        if entry is None:
            return (*changes, self._add_pod(pod, shard))
        if pod.key in self.nominations.entries and (pod.node_name or pod.signature != entry.spec.signature):
            reason = "adopted" if pod.node_name else "changed"
            changes += nominating.end_of_pod(self._occupancy, entry.spec, reason)
        before, change = entry.pod_class, self._update_pod(entry, pod, shard)
        regrouped = isinstance(change, PodRefreshed) and entry.pod_class is not before
        return (*changes, change, _regrouped(entry)) if regrouped else (*changes, change)

    def _add_pod(self, pod: PodSpec, shard: int) -> Change:
        entry = self._occupancy.add_pod(pod, self._next_arrival, shard)
        self._next_arrival += 1
        if not pod.node_name:
            return PodWaits(pod, entry.arrival)
        self._occupancy.count_pod(entry, pod.node_name, adopted=True)
        return _adopted(self._occupancy, entry.spec, pod.node_name)

    def _update_pod(self, entry: PodEntry, pod: PodSpec, shard: int) -> Change:
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
            self.index.update_pod(entry, pod)
            return PodRefreshed(pod, bool(node), entry.arrival)
        entry.shard = shard
        if node == "":
            self.index.update_pod(entry, pod)
            entry.arrival = self._next_arrival
            self._next_arrival += 1
            return PodWaits(pod, entry.arrival, before)
        if before_node:
            self._occupancy.uncount_pod(entry)
        self.index.update_pod(entry, pod)
        if node == before_node:
            self._occupancy.count_pod(entry, node, adopted=entry.adopted)
            version, reasons = self._occupancy.version_of(node), self._occupancy.amiss(node)
            return PodResized(entry.spec, node, version, entry.adopted, reasons)
        self._occupancy.count_pod(entry, node, adopted=True)
        return _adopted(self._occupancy, entry.spec, node, before_node, None if before_node else before)

    def _delete_pod(self, event: PodDeleted, shard: int) -> tuple[Change, ...]:
        key = f"{event.namespace}/{event.name}"
        entry, version = self.pods.get(key), event.resource_version
        if entry is None:
            return (_missed(self.tombstones, key, event.uid or key, version),)
        refused = why_not_deleted(event, entry.spec)
        if refused == OTHER_UID:
            return (_missed(self.tombstones, key, event.uid, version, refused),)
        if foreign_pod := _why_foreign(entry, shard, self._occupancy.own):
            return foreign_pod
        if refused:
            return (Skipped(refused),)
        return self._release(entry, "deleted", version)

    def _undo_bind(self, event: BindFailed, shard: int) -> tuple[Change, ...]:
        """Let a pod wait again that berth had placed there; of any other the event says how it is now."""
        pod, entry = event.pod.pod, self.pods.get(event.pod.pod.key)
        if entry is None or (entry.spec.uid, entry.node, entry.adopted) != (pod.uid, event.node, False):
            return self.apply(event.pod, shard)
        if foreign_pod := _why_foreign(entry, shard, self._occupancy.own):
            return foreign_pod
        if pod.terminating or entry.spec.terminating:  # it never will be bound
            return self._release(entry, "deleted", pod.resource_version)
        self._occupancy.uncount_pod(entry)
        if entry.spec.node_name:
            self.index.update_pod(entry, msgspec.structs.replace(entry.spec, node_name=""))
        entry.arrival = self._next_arrival
        self._next_arrival += 1
        undone = BindUndone(entry.spec, event.node, self._occupancy.version_of(event.node), entry.arrival)
        return (*nominating.end_of_gang(self._occupancy, entry.spec.template.gang), undone)

    def _release(self, entry: PodEntry, reason: str, resource_version: int | None) -> tuple[Change, ...]:
        pod, node = entry.spec, entry.node
        ended = nominating.end_of_pod(self._occupancy, pod, "released")
        if node:
            ended += nominating.end_of_gang(self._occupancy, pod.template.gang)
            self._occupancy.uncount_pod(entry)
        self._occupancy.forget_pod(entry)
        newest = newer_of(resource_version, pod.resource_version)
        self.tombstones.add(pod.key, pod.uid, newest)
        return (*ended, PodReleased(pod, node, self._occupancy.version_of(node), reason, newest))

    # ------------------------------------------------------------------------------ after a restart

    def restore_config(self, thing: ConfigObject) -> None:
        """Restore a configuration object from the ledger, before any node: pods count by what it says."""
        self.config.put(thing)
        if thing.kind == CO_LOCATION_POLICY:
            settling.follow_policies(self._occupancy, self.config.policies)

    def restore_node(
        self, *, name: str, ordinal: int, version: int, spec: NodeSpec, spec_count: int = 1, deleted: bool
    ) -> None:
        """Restore a node from the ledger, before any pod."""
        entry = self._occupancy.find_or_add_node(name)
        self._occupancy.set_ordinal(entry, ordinal)
        entry.version, entry.spec_count = version, spec_count
        entry.spec = spec
        entry.resource_version = spec.resource_version
        if not deleted:
            self._occupancy.write_row(entry)

    def restore_pod(
        self,
        pod: PodSpec,
        *,
        node: str,
        adopted: bool,
        arrival: int = 0,
        shard: int = 0,
        counted: bool = True,
        placed_ms: int = 0,
    ) -> bool:
        """Restore a pod from the ledger. Waiting pods come in their order of arrival, and keep it.

        False: its key is that of a pod of another shard here, which stays. A key is in one shard, unless its
        producers chose the partitions.
        """
        if pod.key in self.pods:
            return False
        entry = self._occupancy.add_pod(pod, arrival, shard)
        self._next_arrival = max(self._next_arrival, arrival + 1)
        if node:
            entry.placed_ms = placed_ms
            self._occupancy.count_pod(entry, node, adopted=adopted, is_change=False)
            if not counted and (shard not in self.own or self.nodes[node].spec is not None):
                self._occupancy.uncounted[pod.key] = node
        return True

    def restore_usage(self, record: UsageRecord) -> None:
        """Restore the measured usage of a node, after all pods.

        That of a node that is gone was written by a worker which had not heard of its end yet.
        """
        entry = self.nodes.get(record.node)
        is_known = entry is not None and entry.spec is not None
        if entry is not None and is_known and entry.deleted:
            return
        self.usage.restore(record, known=is_known)
        settling.measure_node(self._occupancy, self.config.policies, record.node, newer=True)
        if record.quality is not None:
            self.lending.measure(record.node)


def _regrouped(entry: PodEntry) -> PodRegrouped:
    return PodRegrouped(entry.spec, bool(entry.node), entry.arrival)


def _why_foreign(entry: PodEntry, shard: int, own: frozenset[int]) -> tuple[Refused, ...]:
    """Refuse a record of a shard that names a pod of another worker: its producer chose the partition."""
    if entry.shard == shard or entry.shard in own:
        return ()
    message = f"is a pod of shard {entry.shard}: a record of it came with those of shard {shard}"
    return (Refused("object.metadata.name", message, "other-shard"),)


def _adopted(
    of: Occupancy, pod: PodSpec, node: str, before: str = "", waited: PodSpec | None = None
) -> PodAdopted:
    return PodAdopted(pod, node, of.version_of(node), before, waited, of.amiss(node))


def _missed(tombstones: Tombstones, key: str, uid: str, version: int | None, reason: str = "known") -> Change:
    """Remember a pod that was gone before it was known. Cost: O(1)."""
    if not tombstones.misses(key, uid, version):
        return Skipped(reason)
    tombstones.add(key, uid, version)
    return PodMissed(key, uid, version, reason)


def _note_placed(of: Occupancy, placed_ms: Mapping[str, int]) -> None:
    """Note at which log time pods (by key) were placed: it decides which of them have to leave first."""
    pods = of.pods
    for key, at_ms in placed_ms.items():  # each placed pod comes by here
        if key in pods:
            pods[key].placed_ms = at_ms
    settling.cover_pods(of, placed_ms)
    if of.index.renewed is not None:
        of.index.renewed.update(pods[key].node for key in placed_ms if key in pods)
