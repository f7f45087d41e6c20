"""What nodes lend to mid and low pods, read from measurements, policies and decisions in plain Python.

What is promised (docs/colocation.md): a worker places by the latest measurement that it knows, and its claim
holds only if no pod came to the node or left it since. So what the recent pods of a node are expected to use
never exceeds the room by the measurement that the placing worker knew, each time that one is placed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.simulation.agents import METER, METERED
from tests.simulation.facts import Events, Json, Measurement, Node, Pod, amount

RESOURCES = ("cpu", "memory")
_STEP_MS = 1_000
"""What is timed is looked at when log time comes to a multiple of it."""


class Known(NamedTuple):
    """How many measurements, and changes of policies, a worker knew, and what log time was to it."""

    measured_count: int
    policies_count: int
    now_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class There:
    """A pod that counts on a node since a log time; ``is_sure``: the node's version counts it.

    ``changed_ms`` is when its placement was written last: one that is resized may count anew from then on.
    """

    node: str
    since_ms: int
    changed_ms: int
    is_sure: bool


class Lent:
    """Judges whether what a pod borrows was there to be lent.

    Attributes
    ----------
    pods_count : int
        Of pods that borrowed, each as often as it was placed.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self.pods_count = 0
        self._ends: list[tuple[int, int, int]] = []  # batch of the shard of usage, and what was known then
        self._there: dict[str, There] = {}

    def end_batch(self, batch: int) -> None:
        """Note what is known behind a batch of the shard of usage."""
        self._ends.append((batch, len(self._events.measured), len(self._events.policies)))

    def known(self, batch: int | None, now_ms: int) -> Known:
        """Return what a worker knew that knew the shard of usage up to a batch, None: all of it."""
        if batch is None:
            return Known(len(self._events.measured), len(self._events.policies), now_ms)
        found = [(measured, policies) for number, measured, policies in self._ends if number <= batch]
        measured_count, policies_count = found[-1] if found else (0, 0)
        return Known(measured_count, policies_count, now_ms)

    def since_ms(self, uid: str, node: str) -> int | None:
        """Return since when a pod counts on a node, None where it does not."""
        there = self._there.get(uid)
        return there.since_ms if there is not None and there.node == node else None

    def place(self, uid: str, node: str, at_ms: int, *, is_sure: bool) -> None:
        """Let a pod count on a node, or on none; one that changes there goes on as it came."""
        before = self._there.pop(uid, None)
        if node:
            is_same = before is not None and before.node == node
            since_ms = before.since_ms if before is not None and is_same else at_ms
            is_sure = before.is_sure if before is not None and is_same else is_sure
            self._there[uid] = There(node, since_ms, at_ms, is_sure)

    def why_not(
        self,
        known: Known,
        name: str,
        states: Sequence[Node],
        there: Mapping[str, Pod],
        first: Iterable[str],
        pod: Pod,
        *,
        at_most: bool = False,
    ) -> str:
        """Return why a node does not lend a pod what it is expected to use, "" where it does.

        ``states`` are those of the node, and ``there`` are the pods on it, of which those in ``first`` were
        there when the worker began to place. A node that was gone and came back may have forgotten any of
        its measurements: it lends by whichever lends most. With ``at_most`` pods count as recent that may be,
        else those that certainly are.
        """
        rule = self._rule(known, states[-1].labels)
        view = rule.get("view", {})
        found = [each for each in self._events.measured[: known.measured_count] if each.node == name]
        was_gone = any(state.gone for state in states)
        if not was_gone and found:
            found = [max(found, key=lambda each: each.at_ms)]  # of those of one moment, the first
        now_ms = known.now_ms - known.now_ms % _STEP_MS
        age_ms_max = _seconds(view.get("maxAge", "90s")) * 1_000
        believed = [each for each in found if now_ms - each.at_ms <= age_ms_max]
        if not believed:
            return f"stale: measured at {[each.at_ms for each in found]}, and it is {now_ms}"
        settle_ms = _seconds(view.get("settle", "60s")) * 1_000
        recent = [
            other
            for uid, other in there.items()
            if (at := self._there.get(uid)) is not None
            and (at.is_sure or at_most)
            and not any((at.changed_ms if at_most else at.since_ms) <= e.at_ms - settle_ms for e in found)
            and (pod.quality == "low" or other.quality != "low")
        ]
        estimates = self._estimate_rule(known)
        requests = [there[uid] for uid in first if uid in there]
        whys = []
        for each in believed:
            over = []
            for name in RESOURCES:
                room = _room(view, states[-1], each, requests, pod.quality, name)
                lent = sum(expected(estimates, other, name) for other in [*recent, pod])
                if lent > room:
                    over.append(f"{lent} of {room} {name} for {len(recent)} recent pods and this one")
            whys.append("; ".join(over))
        return min(whys, key=len)

    def _rule(self, known: Known, labels: Mapping[str, str]) -> Json:
        """Return the policy that holds on a node: with the most labels, of equals the first by name."""
        best: tuple[int, Json] = (-1, {})
        for _, spec in sorted(self._in_force(known).items()):
            selector = spec.get("nodeSelector", {})
            if selector.items() <= labels.items() and len(selector) > best[0]:
                best = len(selector), spec
        return best[1]

    def _estimate_rule(self, known: Known) -> Json:
        """Return what is expected of containers: the first policy by name says so that is of all nodes."""
        of_all = [spec for _, spec in sorted(self._in_force(known).items()) if "nodeSelector" not in spec]
        return dict(of_all[0].get("estimate", {})) if of_all else {}

    def _in_force(self, known: Known) -> dict[str, Json]:
        latest = dict(self._events.policies[: known.policies_count])
        return {name: spec for name, spec in latest.items() if spec is not None}


def used_amounts(events: Events, lent: Lent) -> dict[str, tuple[Sequence[int], Sequence[int]]]:
    """Return by namespace the least and the most that its pods are billed for, by resource.

    A pod that came when its node had been measured is billed for all that it used. So are those whose use is
    followed, which are there and known when they are reported last.
    """
    most: dict[str, tuple[int, int]] = {}
    for each in events.measured:
        for uid, said in each.pods.items():
            used = round(said["cpuSeconds"] * 1_000), said["memoryByteSeconds"]
            most[uid] = max(most.get(uid, (0, 0)), used)
    measured_ms = next((each.at_ms for each in events.measured if each.node == METER), None)
    amounts: dict[str, tuple[Sequence[int], Sequence[int]]] = {}
    for uid in METERED:
        used, since_ms = most.pop(uid, (0, 0)), lent.since_ms(uid, METER)
        is_whole = since_ms is not None and measured_ms is not None and since_ms >= measured_ms
        amounts[uid] = used if is_whole else (0, 0), used
    amounts["sim"] = (0, 0), [sum(used) for used in zip(*most.values(), strict=True)] or (0, 0)
    return amounts


def expected(rule: Mapping[str, Any], pod: Pod, resource: str) -> int:
    """Return what a pod is expected to use: its limit, else 1.5 requests (memory: 1.25), else a default."""
    if resource in pod.limits:
        return pod.limits[resource]
    if resource in pod.requests:
        percent = 150 if resource == "cpu" else 125
        return -(-pod.requests[resource] * percent // 100)
    return amount(resource, rule.get(resource, {"cpu": "1", "memory": "1Gi"}[resource]))


def _room(
    view: Json, node: Node, measured: Measurement, there: Sequence[Pod], quality: str, resource: str
) -> int:
    """Return what a further pod of a quality may use, by the formulas of docs/colocation.md."""
    capacity = node.offers.get(resource, 0)
    use = {name: amount(resource, each[resource]) for name, each in measured.use.items()}
    asked = {
        each: sum(pod.requests.get(resource, 0) for pod in there if pod.quality == each)
        for each in ("high", "mid")
    }
    margin = view.get("margin", {}).get(resource, "10%")
    kept = int(capacity * float(margin[:-1]) / 100) if margin[-1] == "%" else amount(resource, margin)
    reserved = amount(resource, view.get("reserved", {}).get(resource, "0"))
    taken = asked if view.get(f"{quality}Form", "usage") == "request" else use
    box = capacity - max(use["system"], reserved) - kept - taken["high"]
    if quality == "low":
        box -= taken["mid"]
    if "cap" in view:
        box = min(box, int(capacity * float(view["cap"][:-1]) / 100))
    return max(0, max(0, box) - use[quality])


def _seconds(text: str) -> int:
    return int(text[:-1])
