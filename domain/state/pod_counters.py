"""How far the use of each pod on a node is counted: its cumulative counters, as of the last report of it.

They follow from the measurements of the node alone, in the order of the log. So every worker has the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.model.colocation import PodCounters
from domain.model.limits import pod_counters_seconds, reported_pods_max, usage_ahead_seconds_max
from domain.model.usage import CountedPod, NodeUsage, QualityRecord


def since_ms(usage: NodeUsage) -> int:
    """Return ``QualityRecord.since_ms`` by the first measurement of a node.

    What is known of a node is forgotten with it. Where it was there before (``logged_ms`` says so), a report
    of then may come late, when it is back. None is as of later than its place in the log and
    ``usage_ahead_seconds_max``, so a report as of later than that has all use that may have been billed.
    """
    if usage.logged_ms is msgspec.UNSET:
        return usage.at_ms - 1
    return usage.logged_ms + usage_ahead_seconds_max * 1_000


def with_counters(record: QualityRecord, at_ms: int, pods: Mapping[str, PodCounters]) -> QualityRecord:
    """Return a record with the counters of pods as of a moment; those that are known as of later stay.

    A pod that is not reported is remembered for ``pod_counters_seconds`` behind the latest report of any, and
    ``reported_pods_max`` pods are. Where one is forgotten, a pod that started before its last report is
    billed from its next report on, as it may be that one. Cost: O(pods that are known).
    """
    known = dict(record.counted)
    for uid, counters in pods.items():
        if uid not in known or known[uid].at_ms < at_ms:
            known[uid] = CountedPod(at_ms, *counters)
    newest_ms = max((each.at_ms for each in known.values()), default=0)
    oldest_ms, counted_ms = newest_ms - pod_counters_seconds * 1_000, record.since_ms
    gone = [uid for uid, each in known.items() if each.at_ms < oldest_ms]
    if len(known) - len(gone) > reported_pods_max:
        gone = sorted(known, key=lambda uid: known[uid].at_ms)[: len(known) - reported_pods_max]
    for uid in gone:
        counted_ms = max(counted_ms, known.pop(uid).at_ms)
    return msgspec.structs.replace(record, counted=known, since_ms=counted_ms)
