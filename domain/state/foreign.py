"""Fold what other workers did, as their journal says: count their pods, and take the nodes that they write.

What they placed adds to the sums, classes and counters by which this worker decides. It is in the ledger
already, so it is no change of this worker's own. The version of a node moves by what the journal says of the
node, not by its pods. Own pods on a followed node are orphaned, return and begin to count as on any other.

What contradicts what is known here is passed over, and named: it never ends the worker.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from domain.model.limits import pods_per_node_max
from domain.model.pods import PodSpec
from domain.state.changes import Change, FollowRefused, NodeMeasured, PodOrphaned, PodReturned
from domain.state.nodes import NodeEntry
from domain.state.nominating import end_on_node
from domain.state.occupancy import Occupancy
from domain.state.pods import PodEntry
from domain.state.settling import cover_pods
from domain.state.steps import NodeFollowed, PodFollowedRefreshed, PodsFollowed, PodsLeft, VersionsFollowed
from domain.state.table import why_too_many_names
from domain.state.usage import USAGE_SHARD


def follow_node(of: Occupancy, step: NodeFollowed) -> Iterator[Change]:
    """Take a node as another worker wrote it. Cost: O(1), and O(its pods) where it appears."""
    entry = of.nodes.get(step.name) or NodeEntry()
    refused = _why_no_node(of, step, entry)
    if refused:
        yield FollowRefused("node", step.name, refused)
        return
    entry = of.find_or_add_node(step.name)
    was_known, was_there = entry.spec is not None, not entry.deleted
    entry.version += step.changes
    if step.spec is not None:
        entry.spec, entry.resource_version = step.spec, step.spec.resource_version
        entry.spec_count = step.spec_count
        of.set_ordinal(entry, step.ordinal)
        if step.deleted or step.was_gone:  # also where it came since: it may have been measured before
            if was_there:
                of.remove_row(entry)
            if of.usage.forget(step.name) and USAGE_SHARD in of.own:
                yield NodeMeasured(step.name)
        if not step.deleted:
            of.write_row(entry)
        of.usage.unknown.discard(step.name)
    if not was_known:
        of.count_own_pods(step.name)
    if step.spec is not None:
        yield from of.give_devices(step.name)
    if entry.deleted and (was_there or not was_known):
        yield from of.report_own_pods(PodOrphaned, step.name)
        yield from end_on_node(of, step.name)
    elif was_known and not was_there and not entry.deleted:
        yield from of.report_own_pods(PodReturned, step.name)


def _why_no_node(of: Occupancy, step: NodeFollowed, entry: NodeEntry) -> str:
    if entry.ordinal and entry.ordinal != step.ordinal:
        return f"has the id {step.ordinal} there, and {entry.ordinal} here"
    if step.spec is None:
        return "" if entry.ordinal else "is not known here"
    return "" if step.deleted else why_too_many_names(of.table, step.spec)


def raise_versions(of: Occupancy, step: VersionsFollowed) -> Iterator[Change]:
    """Raise the versions of nodes on which pods of other workers came or went."""
    for name, changes in zip(step.nodes, step.changes, strict=True):
        entry = of.nodes.get(name)
        if entry is None or entry.spec is None:
            yield FollowRefused("node", name, "is not known here")
        else:
            entry.version += changes


def count_pods(of: Occupancy, step: PodsFollowed) -> Iterator[Change]:
    """Count pods of other workers on their nodes."""
    placed, rows = [], []
    pods, keys, nodes, own = of.pods, of.keys, of.nodes, of.own
    add_pod, count_pod, uncounted = of.add_pod, of.count_foreign_pod, step.uncounted
    times = step.placed_ms or (0,) * len(step.pods)
    followed = zip(step.pods, step.nodes, step.adopted, step.shards, times, strict=True)
    for pod, node, adopted, shard, placed_ms in followed:
        # Every pod of every other worker comes by here: why not is asked of the refused alone.
        known = nodes.get(node)
        is_full = known is not None and len(known.pods) >= pods_per_node_max
        if is_full or shard in own or pod.key in pods or pod.uid in keys:
            yield FollowRefused("pod", pod.key, _why_not_counted(of, pod, node, shard))
            continue
        entry = add_pod(pod, 0, shard)
        entry.placed_ms = placed_ms
        if adopted:
            entry.adopted = True
        row = count_pod(entry, node)
        if row is not None:
            placed.append(pod)
            rows.append(row)
        if uncounted and pod.uid in uncounted:
            of.uncounted[pod.key] = node
    if placed:
        of.sums.count_placed(placed, np.array(rows), nodes)
    cover_pods(of, {pod.key: pods[pod.key].placed_ms for pod in placed})


def _why_not_counted(of: Occupancy, pod: PodSpec, node: str, shard: int) -> str:
    if shard in of.own:
        return f"is of shard {shard}, which no worker but its owner follows"
    if pod.key in of.pods:
        return f"is known as a pod of shard {of.pods[pod.key].shard}"
    if pod.uid in of.keys:
        return f"has the uid of {of.keys[pod.uid]}"
    return of.why_full(node)


def forget_pods(of: Occupancy, step: PodsLeft) -> Iterator[Change]:
    """Forget placed pods of other workers."""
    left = []
    for uid in dict.fromkeys(step.uids):
        entry = _foreign_pod(of, uid)
        if entry is None:
            yield FollowRefused("pod", uid, "left, and is no known pod of another worker")
        else:
            left.append(entry)
    of.uncount_foreign_pods(left)
    for entry in left:
        of.forget_pod(entry)


def refresh_pod(of: Occupancy, step: PodFollowedRefreshed) -> Iterator[Change]:
    """Take what became known of a placed pod of another worker."""
    entry = _foreign_pod(of, step.uid)
    if entry is None:
        yield FollowRefused("pod", step.uid, "was refreshed, and is no known pod of another worker")
        return
    pod = entry.spec.living(step.life)
    pod = msgspec.structs.replace(pod, resource_version=step.resource_version, labels=dict(step.labels))
    of.refresh_foreign_pod(entry, pod)


def _foreign_pod(of: Occupancy, uid: str) -> PodEntry | None:
    """Return the pod of a uid, if it is another worker's."""
    entry = of.pods.get(of.keys.get(uid, ""))
    return None if entry is None or entry.shard in of.own else entry
