"""Draws pods that ask for and against each other, nodes in zones, and what happens to them."""

from __future__ import annotations

from random import Random

import msgspec

from domain.model.events import Event, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import Controller, PodSpec
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
    WeightedAffinityTerm,
)
from tests.values import node, pod, template

NAMESPACES = ("default", "shop", "every")
LABELS = {"app": ("web", "db"), "tier": ("a", "b"), "job": tuple("0123456789")}


class Draw(Random):
    """Draws what a cluster may hold."""

    def labels(self) -> dict[str, str]:
        return {key: self.choice(values) for key, values in LABELS.items() if self.random() < 0.6}

    def selector(self) -> LabelSelector:
        kinds = []
        for key, values in LABELS.items():
            if self.random() < 0.5:
                operator = self.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
                some = tuple(sorted(self.sample(values, self.randrange(1, 3)))) if "In" in operator else ()
                kinds.append(LabelRequirement(key, operator, some))
        return LabelSelector(tuple(sorted(kinds)))

    def term(self) -> AffinityTerm:
        return AffinityTerm(
            topology_key=self.choice(("zone", "host")),
            selector=self.choice((None, self.selector(), self.selector())),
            namespaces=tuple(sorted(self.sample(NAMESPACES, self.randrange(1, 3)))),
            namespace_selector=self.choice((None, None, LabelSelector(), self.namespace_selector())),
        )

    def namespace_selector(self) -> LabelSelector:
        return LabelSelector((LabelRequirement("team", self.choice(("In", "NotIn")), ("blue",)),))

    def affinity(self) -> PodAffinity | None:
        required = PodAffinity(required=(self.term(),))
        preferred = PodAffinity(preferred=(WeightedAffinityTerm(weight=3, term=self.term()),))
        return self.choice((None, required, preferred))

    def pod(self, name: str, version: int, on: str) -> PodSpec:
        shape = template(
            100,
            0,
            *self.sample((80, 81), self.choice((0, 0, 1, 2))),
            spread=self.choice(((), (SpreadConstraint(topology_key="zone", selector=self.selector()),))),
            pod_affinity=self.affinity(),
            pod_anti_affinity=self.affinity(),
        )
        where = self.choice(NAMESPACES)
        shape = shape if self.random() < 0.5 else template(100)
        made = pod(name, shape, on=on, version=version, labels=self.labels(), namespace=where)
        controller = Controller("ReplicaSet", "web", self.choice("uv")) if self.random() < 0.3 else None
        return msgspec.structs.replace(made, terminating=self.random() < 0.2, controller=controller)

    def node(self, name: str, version: int) -> NodeSpec:
        labels = {"zone": self.choice(("a", "b", "c", "")), "host": name}
        taints = (Taint("team", "blue"),) if self.random() < 0.3 else ()
        kept = {key: value for key, value in labels.items() if self.random() < 0.8}
        return node(name, cpu=100_000, version=version, labels=kept, taints=taints)


def next_event(random: Draw, version: int) -> Event:
    name, host = f"p{random.randrange(25)}", f"n{random.randrange(12)}"
    drawn = random.random()
    if drawn < 0.15:
        return NodeUpserted(random.node(host, version))
    if drawn < 0.2:
        return NodeDeleted(host)
    if drawn < 0.3:
        return PodDeleted(random.choice(NAMESPACES), name)
    return PodUpserted(random.pod(name, version, random.choice(("", "", host))))
