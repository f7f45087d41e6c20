"""Do pods of several workers keep their distance, though each worker sees what others did a little later?

Each worker plans, and commits what it planned after others may have committed theirs. The ledger judges nodes
by their versions, and what spans nodes by guards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from domain.cycle.matchers import KnownMatchers, Needs, announced_to
from domain.cycle.schedule import Scheduler
from domain.cycle.verdicts import Placement
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import AffinityTerm, LabelRequirement, LabelSelector, PodAffinity
from services.ports.guards import Claim, Guard, announced_keys, raised_keys, refused_nodes
from tests.values import node, pod, template

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES, NODES, SHARDS = 4, 12, 3
APPS = ("a", "b")
SEEDS = range(120)


@dataclass
class Batch:
    """What a worker would do: pods by node, what it needs, and how far it had followed the others."""

    placed: list[Placement]
    guards: list[Guard]
    versions: dict[str, int]
    followed: dict[int, int]


@dataclass
class Ledger:
    """What is committed, in order: who placed which pods, and which keys went up."""

    guarded: bool
    claims: dict[str, Claim] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    journal: list[tuple[int, list[Placement], list[str]]] = field(default_factory=list)

    def batches(self, but: int) -> dict[int, int]:
        counts = {shard: 0 for shard in range(SHARDS) if shard != but}
        for shard, *_ in self.journal:
            if shard != but:
                counts[shard] += 1
        return counts

    def commit(self, shard: int, batch: Batch, ids: dict[str, int]) -> list[Placement]:
        """Write what is granted; return the pods that lost. Every node's version must be as it was seen."""
        found = {guard.key: self.claims[guard.key] for guard in batch.guards if guard.key in self.claims}
        raised = announced_keys(batch.guards, found)
        lost = refused_nodes(batch.guards, found, batch.followed) if self.guarded else set()
        lost |= {ids[name] for name, seen in batch.versions.items() if self.versions.get(name, 0) != seen}
        for key in (*raised, *raised_keys(batch.guards, lost)):
            version, batches = self.claims.get(key, Claim(0, self.batches(shard)))
            self.claims[key] = Claim(version + 1, batches)
        granted = [each for each in batch.placed if ids[each.node] not in lost]
        for each in granted:
            self.versions[each.node] = self.versions.get(each.node, 0) + 1
        self.journal.append((shard, granted, [*raised, *raised_keys(batch.guards, lost)]))
        return [each for each in batch.placed if ids[each.node] in lost]


class Worker:
    """One worker: it holds one shard, and follows the others now and then."""

    def __init__(self, shard: int, ledger: Ledger) -> None:
        self.shard, self.ledger = shard, ledger
        self.scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
        self.scheduler.own({shard}, SHARDS)
        for i in range(NODES):
            labels = {ZONE: f"z{i % ZONES}", HOSTNAME: f"n{i}"}
            self.scheduler.fold(NodeUpserted(node(f"n{i}", labels=labels)), i % SHARDS)
        self.known = KnownMatchers({})
        self.seen: dict[str, int] = {}  # versions of nodes, as far as followed
        self.read = 0
        self.followed = {at: 0 for at in range(SHARDS) if at != shard}
        self.planned: Batch | None = None
        self.tries = 0

    def follow(self) -> None:
        for shard, placed, raised in self.ledger.journal[self.read :]:
            self.known.raised(raised)
            for each in placed:
                self.seen[each.node] = self.seen.get(each.node, 0) + 1
                if shard != self.shard:
                    told = msgspec.structs.replace(each.pod, node_name=each.node)
                    self.scheduler.fold(PodUpserted(told), shard)
            if shard != self.shard:
                self.followed[shard] += 1
        self.read = len(self.ledger.journal)

    def plan(self) -> None:
        result = self.scheduler.cycle()
        placed = [verdict for verdict in result.verdicts if isinstance(verdict, Placement)]
        needs, ids = Needs(), self.ids()
        for each in placed:
            self.known.need(needs, each.pod, each.node, result.matchers.get(each.attempt, ()), {})
        self.planned = Batch(
            placed,
            list(guards_of(needs, self.known, ids)),
            {each.node: self.seen.get(each.node, 0) for each in placed},
            dict(self.followed),
        )

    def commit(self) -> None:
        assert self.planned is not None
        lost = self.ledger.commit(self.shard, self.planned, self.ids())
        self.planned = None
        for each in lost:  # it waits again: as a new pod of its name, which comes to the same
            self.tries += 1
            again = {"uid": f"{each.pod.uid}-{self.tries}", "resource_version": 10 + self.tries}
            self.scheduler.fold(PodUpserted(msgspec.structs.replace(each.pod, **again)), self.shard)
        self.follow()

    def ids(self) -> dict[str, int]:
        return {name: entry.ordinal for name, entry in self.scheduler.state.nodes.items()}


def guards_of(needs: Needs, known: KnownMatchers, ids: dict[str, int]) -> Iterator[Guard]:
    for kind in ("reads", "raises", "announces"):
        for key, names in getattr(needs, kind).items():
            yield Guard(
                key=key,
                version_seen=known.versions.get(key, 0),
                raises=kind == "raises",
                announces_to=announced_to(key) if kind == "announces" else (),
                nodes=frozenset(ids[name] for name in names),
            )


def shapes() -> list[tuple[str, PodTemplate]]:
    """Pods of two apps: those that shun one of them in their zone or on their node, and those that do not."""
    found = []
    for app in APPS:
        found.append((app, template(10)))
        for shunned in APPS:
            for key in (ZONE, HOSTNAME):
                selector = LabelSelector((LabelRequirement("app", "In", (shunned,)),))
                term = AffinityTerm(topology_key=key, selector=selector, namespaces=("default",))
                found.append((app, template(10, pod_anti_affinity=PodAffinity(required=(term,)))))
    return found


def live(seed: int, *, guarded: bool = True) -> Ledger:
    """Let workers live for a while, in any order of steps."""
    random = Random(seed)
    ledger = Ledger(guarded)
    workers = [Worker(shard, ledger) for shard in range(SHARDS)]
    kinds = shapes()
    for step in range(60):
        worker = random.choice(workers)
        if worker.planned is not None:
            worker.commit()
            continue
        if random.random() < 0.7:
            worker.follow()
        if step < 40 and random.random() < 0.8:
            app, shape = random.choice(kinds)
            made = pod(f"p{step}", shape, labels={"app": app})
            worker.scheduler.fold(PodUpserted(made), worker.shard)
        worker.plan()
    return ledger


def too_near(ledger: Ledger) -> list[tuple[str, str]]:
    """Return the pods that are where a term keeps them from."""
    placed = [(each.pod, int(each.node[1:])) for _, granted, _ in ledger.journal for each in granted]
    return [
        (one.name, other.name)
        for one, at in placed
        for other, near in placed
        if one is not other and shuns(one, other, same_node=at == near, same_zone=(at - near) % ZONES == 0)
    ]


def shuns(one: PodSpec, other: PodSpec, *, same_node: bool, same_zone: bool) -> bool:
    terms = () if one.template.pod_anti_affinity is None else one.template.pod_anti_affinity.required
    return any(
        (same_zone if term.topology_key == ZONE else same_node)
        and term.selector is not None
        and term.selector.matches(other.labels)
        for term in terms
    )


def test_no_two_workers_place_pods_too_near() -> None:
    placed_count = 0
    for seed in SEEDS:
        ledger = live(seed)
        assert too_near(ledger) == [], seed
        placed_count += sum(len(granted) for _, granted, _ in ledger.journal)
    assert placed_count > 5 * len(SEEDS)


def test_without_guards_some_are_too_near() -> None:
    assert any(too_near(live(seed, guarded=False)) for seed in SEEDS)
