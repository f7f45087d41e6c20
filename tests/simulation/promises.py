"""What consumers know of preemption: the nodes that are promised, and who has to leave for whom."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.simulation.facts import Node, Pod, why_not
from tests.simulation.invariants import Findings, Invariant

PREEMPTING = ("default-scheduler", "colocation")
"""The profiles whose pods may have a node promised."""

ENDS = ("bound", "cleared", "conflict")
_LEAVES = ("released", "adopted", "resized", "bind-failed")


@dataclasses.dataclass(frozen=True, slots=True)
class Promise:
    """A node is promised to a pod by the decision ``id``, and these uids have to leave it."""

    id: str
    node: str
    pod: Pod
    victims: frozenset[str]


class Promises:
    """Folds the decisions of preemption, and checks each against those before it.

    ``reserves`` is whether pods may have nodes promised for which nobody has to leave.

    Attributes
    ----------
    open : dict
        Uid of a waiting pod -> what is promised to it.
    evicted : dict
        Uid of a pod that has to leave, and has not -> uid of the pod for which it is.
    moving : dict
        Uid of a pod that has to leave a hot node, and has not -> that node.
    counts : Counter
        How often each outcome of preemption was told.
    """

    def __init__(self, findings: Findings, *, reserves: bool = False) -> None:
        self._reserves = reserves
        self.open: dict[str, Promise] = {}
        self.evicted: dict[str, str] = {}
        self.moving: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self._require = findings.require

    def tell(self, decision: Mapping[str, Any], victim: Pod, runs_on: str, who: str) -> None:
        """Take ``evicted`` or ``spared`` of a pod that runs on a node."""
        uid, by = victim.uid, decision.get("preemption")
        if by is None:
            self._tell_moved(decision, victim, runs_on, who)
            return
        promise, outcome = self.open.get(by["preemptor"]), decision["outcome"]
        self.counts[outcome] += 1
        if outcome == "spared":
            over = promise is None or uid not in promise.victims
            self._require(over, Invariant.BROKEN_PROMISE, f"{who}: it is still in the way of {promise}")
            self.evicted.pop(uid, None)
            return
        self._require(
            uid not in self.evicted, Invariant.EVICTED_TWICE, f"{who}: for {self.evicted.get(uid)} too"
        )
        is_for_it = promise is not None and (promise.id, promise.node) == (by["nominated"], decision["node"])
        named = is_for_it and promise is not None and uid in promise.victims
        self._require(named, Invariant.WRONG_EVICTION, f"{who}: by {by}, of {promise}")
        self._require(runs_on == decision["node"], Invariant.WRONG_EVICTION, f"{who}: it runs on {runs_on!r}")
        if promise is not None:
            above = f"{who}: priority {victim.priority}, for {promise}"
            self._require(victim.priority < promise.pod.priority, Invariant.WRONG_EVICTION, above)
        self._require(uid not in self.moving, Invariant.EVICTED_TWICE, f"{who}: it leaves a hot node")
        self.evicted[uid] = by["preemptor"]

    def _tell_moved(self, decision: Mapping[str, Any], pod: Pod, runs_on: str, who: str) -> None:
        """Take that a pod has to leave a hot node, or may stay there."""
        uid, node = pod.uid, decision["node"]
        if decision["outcome"] == "spared":
            self.counts["stayed on hot nodes"] += 1
            self.moving.pop(uid, None)
            return
        self.counts["moved"] += 1
        known = {*self.evicted, *self.moving}
        self._require(uid not in known, Invariant.EVICTED_TWICE, f"{who}: it has to leave already")
        why = decision["migration"]
        is_there = runs_on == node == why["from"] != why["to"]
        self._require(is_there, Invariant.WRONG_MOVE, f"{who}: by {why}, it runs on {runs_on!r}")
        may = pod.is_controlled and not pod.gang and not pod.terminating
        self._require(may, Invariant.WRONG_MOVE, f"{who}: {pod}")
        self.moving[uid] = node

    def fold(
        self, decision: Mapping[str, Any], pod: Pod, beside: tuple[Node, Mapping[str, Pod]] | None, who: str
    ) -> None:
        """Take any other decision of a pod; ``beside`` are its node and who is there, where known."""
        uid, outcome, node = pod.uid, decision["outcome"], decision["node"]
        promise = self.open.pop(uid, None)
        if promise is not None and outcome == "conflict":  # its bind is lost, and the promise is not
            self.open[uid] = dataclasses.replace(promise, victims=frozenset())
        if promise is not None:
            ends = outcome in ENDS and (outcome != "bound" or node == promise.node)
            self._require(ends, Invariant.BROKEN_PROMISE, f"{who}: after {promise}")
        if outcome == "cleared":
            self.counts[outcome] += 1
            same = promise is not None and promise.node == node
            self._require(same, Invariant.BROKEN_PROMISE, f"{who}: after {promise}")
        if outcome == "bound" and promise is not None:
            self.counts["kept"] += 1
            for victim in [each for each, by in self.evicted.items() if by == uid]:
                del self.evicted[victim]
        if outcome in _LEAVES:
            self.evicted.pop(uid, None)
            self.moving.pop(uid, None)
        if outcome == "nominated":
            self.counts[outcome] += 1
            self.counts["nominated in gangs"] += pod.gang != ""
            told = Promise(decision["id"], node, pod, frozenset(decision["preemption"]["victims"]))
            is_reserved = self._reserves and not told.victims  # it waits for who leaves by himself
            is_low = pod.borrows and pod.quality == "low"  # no eviction makes what is idle more
            may = (pod.may_preempt and not is_low) or is_reserved
            may = may and pod.profile in PREEMPTING and not pod.node
            self._require(may, Invariant.WRONG_NOMINATION, f"{who}: {pod}")
            if beside is not None and not is_reserved:
                self._judge_victims(told, *beside, who)
            self.open[uid] = told

    def _judge_victims(self, told: Promise, node: Node, there: Mapping[str, Pod], who: str) -> None:
        """With all victims gone the pod fits, and beside none of them.

        Rules over several nodes are not judged: who has them may need whoever counts in them gone.
        """
        pod = told.pod
        leaving = told.victims | {uid for uid in there if self._leaves_for(uid, pod)}
        stay = [each for uid, each in there.items() if uid not in leaving]
        why = why_not(node, stay, pod)
        self._require(not why, Invariant.WRONG_NOMINATION, f"{who}: with {told.victims} gone, {why}")
        stay += [
            each.pod
            for each in self.open.values()
            if each.node == told.node
            and (each.pod.priority >= pod.priority or pod.gang == each.pod.gang != "")
        ]
        for uid in sorted(told.victims & there.keys()):
            victim = there[uid]
            needed = pod.spread or pod.avoids or victim.avoids or why_not(node, [*stay, victim], pod)
            self._require(bool(needed), Invariant.EVICTED_FOR_NOTHING, f"{who}: it fits beside {victim}")

    def _leaves_for(self, uid: str, pod: Pod) -> bool:
        """Say whether somebody leaves whatever is promised to a pod now.

        Who leaves for a less urgent one may stay: that promise ends with the new one.
        """
        if uid in self.moving:
            return True
        by = self.evicted.get(uid)
        outbid = by in self.open and self.open[by].pod.priority < pod.priority
        return by is not None and not outbid
