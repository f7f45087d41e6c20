"""The plain oracle of preemption: for each node all pods of lower priority go, and come back one by one.

It is the definition of kube-scheduler's DefaultPreemption (SelectVictimsOnNode, filterPodsWithPDBViolation,
pickOneNodeForPreemption), on the plain oracle of filters. A pod that is taken away is one that waits.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from domain.model.selectors import LabelSelector
from tests.oracle.between_pods import matched
from tests.oracle.placing import Oracle, OraclePod

SHIFT = 1 << 31


@dataclass
class Budget:
    """What a disruption budget says, and how many more of its pods may go."""

    namespace: str
    selector: LabelSelector | None
    allowed: int
    disrupted: Collection[str] = ()

    def holds(self, pod: OraclePod) -> bool:
        """Say whether a pod counts against it: a selector without requirements selects nobody here."""
        selects = self.selector is not None and self.selector.requirements
        return bool(
            selects
            and pod.spec.labels
            and pod.spec.namespace == self.namespace
            and matched(self.selector, pod.spec.labels)
            and pod.spec.name not in self.disrupted
        )


@dataclass
class Candidate:
    """A node, its victims (keys, the most important first), and how many of them violate a budget."""

    node: str
    victims: list[str]
    violations: int


def of_one_gang(pod: OraclePod, other: OraclePod) -> bool:
    """Say whether two pods are in one gang: neither leaves for the other."""
    return pod.spec.template.gang == other.spec.template.gang != ""


def priority_of(pod: OraclePod) -> int:
    return pod.spec.template.priority


def start_of(pod: OraclePod) -> float:
    """Return the second when a pod started, or was placed; a pod of neither starts after all others."""
    text = pod.spec.start_time
    if text:
        return datetime.datetime.fromisoformat(text).timestamp()
    return pod.placed_ms / 1_000 if pod.placed_ms else math.inf


def by_importance(pods: Collection[OraclePod]) -> list[OraclePod]:
    """Sort by priority, then by start; of equals the greater uid is more important."""
    by_uid = sorted(pods, key=lambda pod: pod.spec.uid, reverse=True)
    return sorted(by_uid, key=lambda pod: (-priority_of(pod), start_of(pod)))


def split(pods: Sequence[OraclePod], budgets: Sequence[Budget]) -> tuple[list[OraclePod], list[OraclePod]]:
    """Return the pods whose eviction violates a budget if all go, and the others."""
    left = [budget.allowed for budget in budgets]
    violating: list[OraclePod] = []
    others: list[OraclePod] = []
    for pod in pods:
        is_violated = False
        for i, budget in enumerate(budgets):
            if budget.holds(pod):
                left[i] -= 1
                is_violated = is_violated or left[i] < 0
        (violating if is_violated else others).append(pod)
    return violating, others


class Preemption:
    """What preemption can do on the cluster of an oracle."""

    def __init__(
        self,
        oracle: Oracle,
        budgets: Sequence[Budget] = (),
        claimed: Collection[str] = (),
        nominated: Sequence[tuple[str, str]] = (),
        *,
        below: int | None = None,
        among: Sequence[str] | None = None,
    ) -> None:
        self.oracle = oracle
        self.budgets = budgets
        self.claimed = set(claimed)
        self.nominated = list(nominated)  # key of a waiting pod, node
        self.below = below  # the priority below which pods go; None: that of the pod
        self.among = among  # these nodes alone, if it is not None

    @contextmanager
    def claims_gone(self) -> Iterator[None]:
        """Take the pods away that were evicted already."""
        nodes = {key: self.oracle.pods[key].node for key in self.claimed}
        for key in nodes:
            self.oracle.pods[key].node = ""
        yield
        for key, node in nodes.items():
            self.oracle.pods[key].node = node

    def fits(self, pod: OraclePod, node: str) -> bool:
        """Say whether a pod passes every filter, without the nominated pods and with them."""
        pods = self.oracle.pods
        if not self.oracle.passes(pod, node):
            return False
        for key, nominated_on in self.nominated:
            pods[key].node = nominated_on
        found = self.oracle.passes(pod, node)
        for key, _ in self.nominated:
            pods[key].node = ""
        return found

    def on_node(self, pod: OraclePod, node: str) -> Candidate | None:
        """Return the victims on one node; None: it would not help."""
        below = priority_of(pod) if self.below is None else self.below
        there = [o for o in self.oracle.pods.values() if o.node == node and not of_one_gang(o, pod)]
        lower = by_importance([o for o in there if priority_of(o) < below])
        for other in lower:
            other.node = ""
        fits = self.fits(pod, node)
        violating, others = split(lower, self.budgets)
        victims, violations = [], 0
        for other in [*violating, *others] if fits else []:
            other.node = node
            if not self.fits(pod, node):
                other.node = ""
                victims.append(other)
                violations += other in violating
        for other in lower:
            other.node = node
        if not fits:
            return None
        return Candidate(node, [each.spec.key for each in by_importance(victims)], violations)

    def candidates(self, pod: OraclePod) -> dict[str, Candidate]:
        """Return the plan of each node on which preemption helps."""
        with self.claims_gone():
            among = self.oracle.nodes if self.among is None else self.among
            found = [self.on_node(pod, node) for node in among]
        return {each.node: each for each in found if each is not None}

    def weight(self, candidate: Candidate) -> tuple[float, ...]:
        """Return the five criteria, of which the smallest wins."""
        victims = [self.oracle.pods[key] for key in candidate.victims]
        highest = max(map(priority_of, victims), default=-math.inf)
        starts = [start_of(pod) for pod in victims if priority_of(pod) == highest]
        return (
            candidate.violations,
            highest,
            sum(priority_of(pod) + SHIFT for pod in victims),
            len(victims),
            -min(starts, default=math.inf),
        )

    def choose(self, pod: OraclePod) -> Candidate | None:
        """Return the best candidate; of equals the one that the seed prefers."""
        found = self.candidates(pod).values()
        return min(
            found,
            key=lambda each: (*self.weight(each), self.oracle._tie(each.node, pod.spec.signature)),
            default=None,
        )

    def nominate(self, pod: OraclePod) -> Candidate | None:
        """Choose a node, claim its victims, and let them count against their budgets."""
        chosen = self.choose(pod)
        if chosen is not None:
            for key in chosen.victims:
                for budget in self.budgets:
                    budget.allowed -= budget.holds(self.oracle.pods[key])
            self.claimed.update(chosen.victims)
            self.nominated.append((pod.spec.key, chosen.node))
        return chosen
