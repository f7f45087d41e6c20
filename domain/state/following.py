"""Follows other workers: counts their pods, and takes the nodes that they write, as their journal says.

What they placed adds to the sums, classes and counters by which this worker decides. It is in the ledger
already, so it is no change of this worker's own. The version of a node moves by what the journal says of the
node, not by its pods. Own pods on a followed node are orphaned, return and begin to count as on any other.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from domain.model.devices import with_devices
from domain.model.limits import pods_per_node_max, resource_names_max
from domain.model.pods import NO_LIFE, PodSpec
from domain.state.changes import (
    Change,
    FollowRefused,
    NodeMeasured,
    PodOrphaned,
    PodRefreshed,
    PodReturned,
)
from domain.state.followed import (
    FollowedEvent,
    GoneFollowed,
    NodeFollowed,
    NominationsFollowed,
    PodFollowedRefreshed,
    PodsFollowed,
    PodsFollowedCounted,
    PodsLeft,
    VersionsFollowed,
)
from domain.state.known_pods import KnownPods
from domain.state.nodes import NodeEntry
from domain.state.nominating import Nominating
from domain.state.occupancy import Occupancy
from domain.state.resources import ResourceIndex
from domain.state.tombstones import Tombstones
from domain.state.usage import USAGE_SHARD, UsageWindows


class Following:
    """Folds what other workers did.

    What contradicts what is known here is passed over, and named: it never ends the worker.
    """

    def __init__(
        self,
        occupancy: Occupancy,
        pods: KnownPods,
        resources: ResourceIndex,
        usage: UsageWindows,
        nominating: Nominating,
        tombstones: Tombstones,
    ) -> None:
        self._occupancy, self._pods, self._resources, self._usage = occupancy, pods, resources, usage
        self._nominating, self._tombstones = nominating, tombstones

    def fold(self, event: FollowedEvent) -> Iterator[Change]:
        """Fold one event. Cost: O(1), and per pod of it. A node that appears costs its pods besides."""
        match event:
            case PodsFollowed():
                yield from self._place(event)
            case PodsLeft():
                yield from self._leave(event)
            case VersionsFollowed():
                yield from self._raise(event)
            case NodeFollowed():
                yield from self._follow_node(event)
            case PodFollowedRefreshed():
                yield from self._refresh(event)
            case GoneFollowed():
                for gone in zip(event.keys, event.uids, event.versions, event.at_ms, strict=True):
                    self._tombstones.add(*gone)
            case NominationsFollowed():
                yield from self._nominating.follow(event)
            case PodsFollowedCounted():
                for uid in event.uids:
                    self._occupancy.uncounted.pop(self._pods.keys.get(uid, ""), None)

    # -------------------------------------------------------------------------------------------- nodes

    def _follow_node(self, event: NodeFollowed) -> Iterator[Change]:
        entry = self._occupancy.nodes.get(event.name) or NodeEntry()
        refused = self._why_not(event, entry)
        if refused:
            yield FollowRefused("node", event.name, refused)
            return
        entry = self._occupancy.meet(event.name)
        was_known, was_there = entry.spec is not None, not entry.deleted
        entry.version += event.changes
        if event.spec is not None:
            entry.spec, entry.resource_version = event.spec, event.spec.resource_version
            entry.spec_count = event.spec_count
            self._occupancy.number(entry, event.ordinal)
            if event.deleted or event.was_gone:  # also where it came since: it may have been measured before
                if was_there:
                    self._occupancy.hide(entry)
                if self._usage.forget(event.name) and USAGE_SHARD in self._occupancy.own:
                    yield NodeMeasured(event.name)
            if not event.deleted:
                self._occupancy.show(entry)
            self._usage.unknown.discard(event.name)
        if not was_known:
            self._occupancy.count_own(event.name)
        if event.spec is not None:
            for given in self._occupancy.give_devices(event.name):
                yield PodRefreshed(given.spec, True, given.arrival)
        if entry.deleted and (was_there or not was_known):
            yield from self._occupancy.tell_own(PodOrphaned, event.name)
            yield from self._nominating.leave(event.name)
        elif was_known and not was_there and not entry.deleted:
            yield from self._occupancy.tell_own(PodReturned, event.name)

    def _raise(self, event: VersionsFollowed) -> Iterator[Change]:
        nodes = self._occupancy.nodes
        for name, changes in zip(event.nodes, event.changes, strict=True):
            entry = nodes.get(name)
            if entry is None or entry.spec is None:
                yield FollowRefused("node", name, "is not known here")
            else:
                entry.version += changes

    def _why_not(self, event: NodeFollowed, entry: NodeEntry) -> str:
        if entry.ordinal and entry.ordinal != event.ordinal:
            return f"has the id {event.ordinal} there, and {entry.ordinal} here"
        if event.spec is None:
            return "" if entry.ordinal else "is not known here"
        present = () if entry.deleted or entry.spec is None else with_devices(entry.spec.allocatable)
        offered = with_devices(event.spec.allocatable)
        if not event.deleted and self._resources.count_with(offered, present) > resource_names_max:
            return f"brings more names than all nodes may have ({resource_names_max}, resource_names_max)"
        return ""

    # --------------------------------------------------------------------------------------------- pods

    def _place(self, event: PodsFollowed) -> Iterator[Change]:
        placed, rows = [], []
        entries, keys, nodes, own = (
            self._pods.entries,
            self._pods.keys,
            self._occupancy.nodes,
            self._occupancy.own,
        )
        enter, follow, uncounted = self._pods.enter, self._occupancy.follow, event.uncounted
        times = event.placed_ms or (0,) * len(event.pods)
        followed = zip(event.pods, event.nodes, event.adopted, event.shards, times, strict=True)
        for pod, node, adopted, shard, placed_ms in followed:
            # Every pod of every other worker comes by here: why not is asked of the refused alone.
            known = nodes.get(node)
            is_full = known is not None and len(known.pods) >= pods_per_node_max
            if is_full or shard in own or pod.key in entries or pod.uid in keys:
                yield FollowRefused("pod", pod.key, self._why_not_placed(pod, node, shard))
                continue
            entry = enter(pod, 0, shard)
            entry.placed_ms = placed_ms
            if adopted:
                entry.adopted = True
            row = follow(entry, node)
            if row is not None:
                placed.append(pod)
                rows.append(row)
            if uncounted and pod.uid in uncounted:
                self._occupancy.uncounted[pod.key] = node
        if placed:
            self._occupancy.sums.count_new(placed, np.array(rows), self._occupancy.nodes)

    def _why_not_placed(self, pod: PodSpec, node: str, shard: int) -> str:
        if shard in self._occupancy.own:
            return f"is of shard {shard}, which is followed by no one but its owner"
        if pod.key in self._pods.entries:
            return f"is known as a pod of shard {self._pods.entries[pod.key].shard}"
        if pod.uid in self._pods.keys:
            return f"has the uid of {self._pods.keys[pod.uid]}"
        return self._occupancy.why_full(node)

    def _leave(self, event: PodsLeft) -> Iterator[Change]:
        left = []
        for uid in dict.fromkeys(event.uids):
            entry = self._pods.of_uid(uid)
            if entry is None or entry.shard in self._occupancy.own:
                yield FollowRefused("pod", uid, "left, and is no known pod of another worker")
            else:
                left.append(entry)
        self._occupancy.unfollow(left)
        for entry in left:
            self._pods.leave(entry)

    def _refresh(self, event: PodFollowedRefreshed) -> Iterator[Change]:
        entry = self._pods.of_uid(event.uid)
        if entry is None or entry.shard in self._occupancy.own:
            yield FollowRefused("pod", event.uid, "was refreshed, and is no known pod of another worker")
            return
        life = event.life or NO_LIFE
        pod = msgspec.structs.replace(
            entry.spec,
            resource_version=event.resource_version,
            labels=dict(event.labels),
            start_time=life.start_time,
            terminating=life.terminating,
            controller=life.controller,
            nominated_node=life.nominated_node,
            preempted=life.preempted,
            devices=life.devices,
        )
        self._occupancy.renew(entry, pod)
