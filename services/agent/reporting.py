"""What an agent reports, and when: the use of its node, what its pods have used, what it did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from domain.manifests.actions import action_to_wire
from domain.model.actions import ActionKind, NodeAction
from domain.model.colocation import CoLocationPolicy, PodCounters, Quality, ReportingRule, UseByQuality
from domain.model.quantities import format_resource
from domain.model.timestamps import format_ms
from services.agent.learned import NodePod
from services.agent.measured import Reading, used_between

ACTIONS_MAX = 1_000
Event = dict[str, Any]


class Reporter:
    """Says when the node is to be reported, and how.

    It is reported each ``node_seconds``, and less often where no figure has changed by ``change_percent`` of
    what the node has.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._since: Reading | None = None
        self._sent: UseByQuality | None = None
        self._sent_ms = 0

    def is_due(self, now_ms: int, rule: ReportingRule) -> bool:
        """Return whether it is time to look whether the node is to be reported."""
        return self._since is None or now_ms - self._since.at_ms >= rule.node_seconds * 1000

    def begin(self, reading: Reading) -> None:
        """Measure from this moment on."""
        self._since = self._since or reading

    def usage(
        self,
        reading: Reading,
        policy: CoLocationPolicy,
        counters: Mapping[str, PodCounters] | None,
        latency: Mapping[str, float],
        at_ms: int,
    ) -> Event | None:
        """Return the event of what was used since the last look; None: nothing changed.

        ``counters`` are told in any case, where they are given. ``at_ms`` is wall time.
        """
        assert self._since is not None, "measuring has begun"
        use = used_between(self._since, reading)
        self._since = reading
        rule = policy.reporting
        quiet = reading.at_ms - self._sent_ms < _quiet_seconds(policy) * 1000
        if quiet and counters is None and not latency and not self._changed(use, reading, rule):
            return None
        self._sent, self._sent_ms = use, reading.at_ms
        told: Event = {
            "apiVersion": "berth/v1",
            "kind": "NodeUsage",
            "metadata": {"name": self._node},
            "quality": {
                quality.value: {
                    "cpu": format_resource("cpu", amounts.cpu_milli),
                    "memory": format_resource("memory", amounts.memory_bytes),
                }
                for quality, amounts in ((each, getattr(use, each)) for each in Quality)
            },
        }
        if counters is not None:
            told["pods"] = {
                uid: {"cpuSeconds": each.cpu_seconds, "memoryByteSeconds": each.memory_byte_seconds}
                for uid, each in counters.items()
            }
        if reading.node.pressure is not None:
            told["pressure"] = {"cpu": reading.node.pressure.cpu_avg60}
        if latency:
            told["latency"] = dict(latency)
        return _event(told, at_ms)

    def _changed(self, use: UseByQuality, reading: Reading, rule: ReportingRule) -> bool:
        if self._sent is None:
            return True
        return any(
            abs(now - was) * 100 >= whole * rule.change_percent
            for quality in Quality
            for now, was, whole in zip(
                getattr(use, quality), getattr(self._sent, quality), reading.node.capacity, strict=True
            )
        )


def _quiet_seconds(policy: CoLocationPolicy) -> int:
    """Return how long a node is not reported where nothing changes: never until what it lends runs out."""
    return min(policy.reporting.quiet_seconds, policy.view.age_seconds_max * 2 // 3)


class Actions:
    """What was done and is not told yet: acts of one kind on one box, in a row, are one action.

    A box that changes each second is so one record a report. Beyond ``ACTIONS_MAX`` the oldest are dropped.
    """

    def __init__(self, node: str, run: str) -> None:
        self._node, self._run = node, run
        self._count = 0
        self._waiting: dict[tuple[str, ...], NodeAction] = {}

    def add(self, action: NodeAction) -> None:
        """Note what was done."""
        key = (action.kind, action.quality, action.uid)
        before = self._waiting.pop(key, None)
        if before is not None:
            action = NodeAction(**{**_fields(action), "times": action.times + before.times})
        self._waiting[key] = action
        while len(self._waiting) > ACTIONS_MAX:
            del self._waiting[next(iter(self._waiting))]

    def take_events(self) -> list[Event]:
        """Return the events of what was done, and forget it. Each has an id, so that it is taken once."""
        events = []
        for action in self._waiting.values():
            self._count += 1
            event = _event(action_to_wire(action), action.at_ms)
            events.append({**event, "id": f"{self._node}/{self._run}/{self._count}"})
        self._waiting.clear()
        return events


def _fields(action: NodeAction) -> dict[str, Any]:
    return {name: getattr(action, name) for name in action.__struct_fields__}


def eviction(pod: NodePod, node: str, reason: str, at_ms: int) -> Event:
    """Return the event that says that a pod was ended: as kubelet would say it of one that it evicts.

    The agent does not know the whole pod. Of a pod that has finished nothing but its identity matters.
    """
    return _event(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            "spec": {"nodeName": node, "containers": [{"name": "evicted"}]},
            "status": {"phase": "Failed", "reason": "Evicted", "message": reason},
        },
        at_ms,
    )


def ended(pod: NodePod, node: str, reason: str, policy: str, at_ms: int) -> NodeAction:
    """Return the action that says that a pod was ended."""
    return NodeAction(
        node=node,
        at_ms=at_ms,
        kind=ActionKind.EVICT,
        quality=pod.quality.value,
        reason=reason,
        policy=policy,
        pod=pod.key,
        uid=pod.uid,
    )


def latencies(texts: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return how latencies compare with their bounds, by uid: 1.2 is a fifth too slow.

    A pod writes two numbers: its latency and the bound, in one unit. What is none is left out.
    """
    found = {}
    for uid, text in texts:
        try:
            latency, bound = map(float, text.split())
        except ValueError:
            continue
        if latency >= 0 and 0 < bound < math.inf and latency / bound < math.inf:
            found[uid] = latency / bound
    return found


def _event(thing: Event, at_ms: int) -> Event:
    return {"type": "MODIFIED", "at": format_ms(at_ms), "object": thing}
