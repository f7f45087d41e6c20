"""What the pods of a node used since their reports before, split by what was promised to them, and its price.

The owner of the shard of usage bills what it folds from the log; others fold what it counted (``Billed``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from domain.colocation.pricing import (
    BillLine,
    Part,
    Used,
    counted_from,
    price_micro,
    saved_micro,
    split,
)
from domain.model.colocation import QUALITY_OF, Amounts, CoLocationPolicy, PodCounters, Prices, Quality
from domain.model.resources import CPU, MEMORY
from domain.model.usage import CountedPod, NodeUsage, QualityRecord
from domain.state.nodes import NodeEntry
from domain.state.occupancy import Occupancy
from domain.state.pod_counters import since_ms
from domain.state.pods import PodEntry, started_ms

UNBILLED_REASONS: Mapping[str, str] = {
    "unknown": "the pod is not known, is gone, or was placed a moment ago: its use waits in its counters",
    "elsewhere": "the pod is not on the node that reports it: its use waits in its counters",
    "before": "the pod started before its node was measured: what it used until then is not billed",
    "late": "the report is of before the node was measured, as it went and came back: its use waits",
}
"""Why the use of a pod in a report is not billed."""

_HOUR_MS = 3_600_000
_NOT_TOLD_MS = 10**12  # by a clock that is behind the log's: nothing is beyond a request for so long
_PARTS = tuple(Part)
_NOTHING, _UNUSED = PodCounters(0.0, 0.0), Used()


class Billed(NamedTuple):
    """A measurement without the pods whose use waits; what the others used; how many were not billed, why."""

    usage: NodeUsage
    lines: tuple[BillLine, ...] = ()
    unbilled: Mapping[str, int] = {}


def bill(of: Occupancy, usage: NodeUsage, record: QualityRecord | None, policy: CoLocationPolicy) -> Billed:
    """Return what the pods that a measurement names, if any, used since they were reported last.

    Use belongs to the hour of the report. A pod without an earlier report counts from its start, if its node
    was measured by then: see ``QualityRecord``. A report that comes late or twice has nothing new of it.

    Parameters
    ----------
    record : QualityRecord or None
        What was known of the node before the measurement.
    policy : CoLocationPolicy
        The one that holds on the node.

    Notes
    -----
    Cost: about 7 µs per pod, with the fold of its counters.
    """
    if usage.pods is msgspec.UNSET:
        return Billed(usage)
    unbilled, taken = Counter[str](), dict[str, PodCounters]()
    begun_ms = since_ms(usage) if record is None else record.since_ms
    sums: dict[tuple[str, Quality, Part], Used] = {}
    for uid, counters in usage.pods.items():
        pod = of.pods.get(of.keys.get(uid, ""))
        known = None if record is None else record.counted.get(uid)
        if reason := _why_it_waits(pod, usage, known, begun_ms):
            unbilled[reason] += 1
            continue
        assert pod is not None
        taken[uid] = counters
        if known is not None:
            if usage.at_ms > known.at_ms:
                earlier = counted_from(PodCounters(*known[1:]), counters)
                _add(sums, pod, policy, earlier, counters, usage.at_ms - known.at_ms)
        elif (started := min(started_ms(pod), pod.placed_ms)) > begun_ms:
            length_ms = usage.at_ms - started
            _add(sums, pod, policy, _NOTHING, counters, length_ms if length_ms > 0 else _NOT_TOLD_MS)
        else:
            unbilled["before"] += 1
    if len(taken) < len(usage.pods):
        usage = msgspec.structs.replace(usage, pods=taken)
    return Billed(usage, tuple(_lines(usage.at_ms, sums, policy.prices)), unbilled)


def without_past(usage: NodeUsage, record: QualityRecord | None, node: NodeEntry | None) -> NodeUsage:
    """Return a measurement that says whether its node may have been measured and forgotten before."""
    if record is None and (node is None or node.spec_count <= 1):  # it never went
        return msgspec.structs.replace(usage, logged_ms=msgspec.UNSET)
    return usage


def _why_it_waits(pod: PodEntry | None, usage: NodeUsage, known: CountedPod | None, begun_ms: int) -> str:
    """Return why the use of a pod waits; "": it does not. When it was placed is known behind its batch."""
    if pod is None or (known is None and pod.node == usage.node and not pod.placed_ms):
        return "unknown"
    if pod.node != usage.node:
        return "elsewhere"
    return "late" if known is None and usage.at_ms <= begun_ms else ""


def _add(
    sums: dict[tuple[str, Quality, Part], Used],
    pod: PodEntry,
    policy: CoLocationPolicy,
    earlier: PodCounters,
    later: PodCounters,
    length_ms: int,
) -> None:
    """Add what a pod used in an interval."""
    template = pod.spec.template
    quality = QUALITY_OF[template.qos_class]
    requests = Amounts(template.requests.get(CPU, 0), template.requests.get(MEMORY, 0))
    parts = split(quality, policy.view.is_lending, requests, earlier, later, length_ms / 1_000)
    for part, used in zip(_PARTS, parts, strict=True):
        if used != _UNUSED:
            at = pod.spec.namespace, quality, part
            cpu, memory = sums.get(at, _UNUSED)
            sums[at] = Used(cpu + used[0], memory + used[1])


def _lines(at_ms: int, sums: Mapping[tuple[str, Quality, Part], Used], prices: Prices) -> Iterator[BillLine]:
    hour_ms = at_ms - at_ms % _HOUR_MS
    for (namespace, quality, part), (cpu, memory) in sums.items():
        for resource, used in ((CPU, Used(cpu, 0)), (MEMORY, Used(0, memory))):
            if used != _UNUSED:
                price, saved = price_micro(prices, part, used), saved_micro(prices, part, used)
                yield BillLine(hour_ms, namespace, quality, part, resource, sum(used), price, saved)
