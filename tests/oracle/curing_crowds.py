"""Small random clusters in which a group waits, as plain values that a test may change and tell anew."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from domain.cures.changes import (
    Change,
    DropRequirement,
    DropSelector,
    Leave,
    MoreNodes,
    MoreRoom,
    RepairNode,
    SmallerGang,
    Tolerate,
)
from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement, Preemption
from domain.model.config import DisruptionBudget, PodGroup
from domain.model.events import ConfigUpserted, Event, NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import (
    HostPort,
    NodeAffinity,
    NodeSelectorTerm,
    PodSpec,
    PodTemplate,
    Requirement,
    Toleration,
)
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
)
from domain.model.signature import signature
from tests.values import GIB, node, pod, template

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
TAINTS = (Taint("team", "red"), Taint("team", "blue"), Taint("gpu", "", "NoExecute"))
ILL = (Taint("node.kubernetes.io/not-ready"), Taint("node.kubernetes.io/disk-pressure"))


@dataclass(frozen=True)
class Site:
    """Nodes, pods that run, budgets, and equal pods that wait; of a gang ``least`` must start together."""

    nodes: Sequence[NodeSpec]
    running: Sequence[PodSpec]
    waiting: Sequence[PodSpec]
    budgets: Sequence[tuple[str, DisruptionBudget]] = ()
    least: int = 0

    def events(self) -> Iterator[Event]:
        """Yield what a log would say of it."""
        if self.least:
            yield ConfigUpserted("PodGroup", "default", "g", PodGroup(min_member=self.least), 1)
        for name, budget in self.budgets:
            yield ConfigUpserted("PodDisruptionBudget", "default", name, budget, 1)
        yield from map(NodeUpserted, self.nodes)
        yield from map(PodUpserted, [*self.running, *self.waiting])

    def with_template(self, of: PodTemplate) -> Site:
        """Return the site with another template of the pods that wait."""
        named = {"template": of, "signature": signature(of)}
        return replace(self, waiting=[msgspec.structs.replace(each, **named) for each in self.waiting])

    def with_node(self, changed: NodeSpec) -> Site:
        """Return the site with another node of a name."""
        return replace(self, nodes=[changed if n.name == changed.name else n for n in self.nodes])

    def node(self, name: str) -> NodeSpec:
        """Return a node."""
        return next(each for each in self.nodes if each.name == name)


def after(site: Site, change: Change) -> Site:
    """Return the site after a change, as whoever reads the cure would make it."""
    old = site.waiting[0].template
    match change:
        case RepairNode():
            of = site.node(change.node)
            taints = tuple(t for t in of.taints if t not in change.taints)
            return site.with_node(msgspec.structs.replace(of, taints=taints, unschedulable=False))
        case MoreRoom():
            of = site.node(change.node)
            more = {n: of.allocatable.get(n, 0) + amount for n, amount in change.amounts.items()}
            return site.with_node(msgspec.structs.replace(of, allocatable=of.allocatable | more))
        case MoreNodes():
            of = site.node(change.like)
            well = tuple(t for t in of.taints if t not in ILL)
            like = msgspec.structs.replace(of, taints=well, unschedulable=False)
            made = [
                msgspec.structs.replace(like, name=name, uid=name, labels=of.labels | {HOST: name})
                for name in (f"new{i}" for i in range(change.count))
            ]
            return replace(site, nodes=[*site.nodes, *made])
        case Leave():
            assert all(p.template.priority < change.below for p in site.running if p.key in change.pods)
            return replace(site, running=[p for p in site.running if p.key not in change.pods])
        case SmallerGang():
            return replace(site, least=change.min_member)
        case Tolerate():
            added = [Toleration(t.key, "Equal", t.value, t.effect) for t in change.taints]
            changed = msgspec.structs.replace(old, tolerations=(*old.tolerations, *added))
        case DropSelector():
            left = {k: v for k, v in old.node_selector.items() if k != change.key}
            changed = msgspec.structs.replace(old, node_selector=left)
        case DropRequirement():
            assert old.node_affinity is not None
            assert old.node_affinity.required is not None
            term = old.node_affinity.required[change.term]
            kept = tuple(r for r in term.match_expressions if r != change.requirement)
            terms = list(old.node_affinity.required)
            terms[change.term] = NodeSelectorTerm(kept)
            affinity = NodeAffinity(required=tuple(terms)) if kept else None
            changed = msgspec.structs.replace(old, node_affinity=affinity)
        case _:
            changed = change.of_template(old)
    return site.with_template(changed)


def _selector(app: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", "In", (app,)),))


def _node(rng: random.Random, name: str) -> NodeSpec:
    labels = {HOST: name, ZONE: rng.choice("ab")} | ({"disk": "ssd"} if rng.random() < 0.4 else {})
    taints = rng.sample(TAINTS, rng.choice((0, 1, 2))) if rng.random() < 0.5 else []
    taints += [rng.choice(ILL)] if rng.random() < 0.15 else []
    return node(
        name,
        cpu=rng.choice((1_000, 2_000, 4_000)),
        memory=rng.choice((2, 4, 8)) * GIB,
        pods=rng.choice((2, 4, 110)),
        labels=labels,
        taints=tuple(taints),
        unschedulable=rng.random() < 0.15,
        extended={"example.com/card": rng.choice((1, 2))} if rng.random() < 0.3 else None,
    )


def _asking(rng: random.Random, *, wild: float) -> PodTemplate:
    """Return the template of the pods that wait: it asks for much, now and then of several kinds."""
    requirements = [Requirement("disk", "In", ("ssd",)), Requirement(ZONE, "In", (rng.choice("ab"),))]
    term = NodeSelectorTerm(tuple(rng.sample(requirements, rng.randint(1, 2))))
    spread = SpreadConstraint(topology_key=rng.choice((ZONE, HOST)), selector=_selector("w"))
    anti = AffinityTerm(
        topology_key=rng.choice((ZONE, HOST)), selector=_selector("x"), namespaces=("default",)
    )
    drawn = [rng.random() < wild for _ in range(7)]
    return template(
        rng.choice((300, 900, 1_500, 2_500)),
        rng.choice((0, 1, 3)) * GIB,
        requests={"example.com/card": 1} if drawn[0] and rng.random() < 0.5 else {},
        host_ports=(HostPort(80),) if drawn[1] else (),
        node_selector={"disk": "ssd"} if drawn[2] else {},
        node_affinity=NodeAffinity(required=(term,)) if drawn[3] else None,
        spread=(spread,) if drawn[4] else (),
        pod_anti_affinity=PodAffinity(required=(anti,)) if drawn[5] else None,
        tolerations=(Toleration("team", "Equal", "red"),) if drawn[6] else (),
        priority=rng.choice((0, 5, 5)),
        preemption_policy=rng.choice(("Never", "PreemptLowerPriority")),
    )


def _running(rng: random.Random, name: str, on: str) -> PodSpec:
    of = template(
        rng.choice((100, 500, 1_000)),
        rng.choice((0, 1, 2)) * GIB,
        host_ports=(HostPort(80),) if rng.random() < 0.15 else (),
        priority=rng.choice((0, 3, 7, 9)),
        tolerations=(Toleration(operator="Exists"),),
    )
    return pod(name, of, on=on, labels={"app": rng.choice("wxy")})


def drawn(seed: int) -> Site:
    """Return a random site."""
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(rng.randint(2, 5))]
    running = [
        _running(rng, f"r{i}", rng.choice(names)) for i in range(rng.randint(len(names), 5 * len(names)))
    ]
    count = rng.choice((1, 1, 3, 6))
    asked = _asking(rng, wild=rng.choice((0.15, 0.4)))
    least = rng.randint(1, count) if count > 1 and rng.random() < 0.3 else 0
    if least:
        asked = msgspec.structs.replace(asked, gang="default/g")
    labels = {"app": "w"} | ({"scheduling.x-k8s.io/pod-group": "g"} if least else {})
    budget = DisruptionBudget(selector=_selector(rng.choice("wxy")), disruptions_allowed=rng.choice((0, 1)))
    return Site(
        nodes=[_node(rng, name) for name in names],
        running=running,
        waiting=[pod(f"w{i}", asked, labels=labels) for i in range(count)],
        budgets=[("b", budget)] if rng.random() < 0.3 else [],
        least=least,
    )


def scheduler_of(site: Site, *, preempts: bool = False) -> Scheduler:
    """Return a scheduler that knows a site, and has tried no pod yet."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=3, preempts=preempts)
    for event in site.events():
        scheduler.fold(event)
    return scheduler


def placed_by(site: Site) -> int:
    """Return how many of the pods that wait find a node."""
    scheduler, placed = scheduler_of(site), set()
    while scheduler.has_work:
        placed |= {each.pod.key for each in scheduler.cycle().verdicts if isinstance(each, Placement)}
    return len(placed)


def nominated_by(site: Site) -> int:
    """Return for how many of them a node is set aside while others leave, or is there at once."""
    scheduler, found = scheduler_of(site, preempts=True), set()
    while scheduler.has_work:
        verdicts = scheduler.cycle().verdicts
        found |= {each.pod.key for each in verdicts if isinstance(each, Placement | Preemption)}
    return len(found)
