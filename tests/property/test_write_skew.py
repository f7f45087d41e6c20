"""Do pods of several workers keep their distance, though each worker sees what others did a little later?

Each worker plans, and commits what it planned after others may have committed theirs. The ledger judges nodes
by their versions, and what spans nodes by guards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import msgspec
import pytest

from domain.counting.matchers import KnownMatchers, Matcher, Needs
from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import AffinityTerm, LabelRequirement, LabelSelector, PodAffinity
from domain.plugins.weighers import Match
from domain.state.steps import Owned
from services.ports.guards import Guard, GuardRow, announced_keys, dropped_keys, raised_keys, refused_nodes
from services.worker.batch_guards import IDLE_MS, BatchGuards
from tests.depth import some
from tests.values import node, pod, template

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES, NODES, SHARDS = 4, 12, 3
APPS = ("a", "b")
SEEDS = range(60)


@dataclass
class Batch:
    """What a worker would do, what it needs, and how far it had followed the others.

    ``versions`` are those seen of nodes on which a pod asks for more than room.
    """

    placed: list[Placement]
    guards: Sequence[Guard]
    versions: dict[str, int]
    followed: dict[int, int]


@dataclass
class Ledger:
    """What is committed, in order: who placed which pods, and which keys went up."""

    weaken: Callable[[Batch], Batch]
    idle_ms: int = IDLE_MS
    now_ms: int = 0
    dropped_count: int = 0
    keys: dict[str, GuardRow] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    journal: list[tuple[int, list[Placement], list[str]]] = field(default_factory=list)

    def batches(self) -> dict[int, int]:
        return dict(Counter(shard for shard, *_ in self.journal))

    def commit(self, shard: int, batch: Batch, ids: dict[str, int]) -> list[Placement]:
        """Write what is granted, and say what that raised; return the pods that lost."""
        batch = self.weaken(batch)
        found = {guard.key: self.keys[guard.key] for guard in batch.guards if guard.key in self.keys}
        raised, dropped = announced_keys(batch.guards, found), dropped_keys(batch.guards, found)
        lost = refused_nodes(batch.guards, found, batch.followed, {shard})
        lost |= {ids[name] for name, seen in batch.versions.items() if self.versions.get(name, 0) != seen}
        for key in raised + raised_keys(batch.guards, lost):
            version, batches = self.keys.get(key, GuardRow(0, self.batches()))
            self.keys[key] = GuardRow(version + 1, batches)
        for key in dropped:
            del self.keys[key[1:]]
        self.dropped_count += len(dropped)
        granted = [each for each in batch.placed if ids[each.node] not in lost]
        for each in granted:
            self.versions[each.node] = self.versions.get(each.node, 0) + 1
        raised += raised_keys(batch.guards, lost) + dropped
        self.journal.append((shard, granted, raised))
        return [each for each in batch.placed if ids[each.node] in lost]


class Worker:
    """One worker: it holds one shard, and follows the others now and then."""

    def __init__(self, shard: int, ledger: Ledger, nodes_count: int = NODES) -> None:
        self.shard, self.ledger = shard, ledger
        self.scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
        self.scheduler.fold(Owned(frozenset({shard}), SHARDS))
        for i in range(nodes_count):
            labels = {ZONE: f"z{i % ZONES}", HOSTNAME: f"n{i}"}
            self.scheduler.fold(NodeUpserted(node(f"n{i}", labels=labels)), i % SHARDS)
        self.guarding = BatchGuards({}, 0, ledger.idle_ms)
        self.seen: dict[str, int] = {}  # versions of nodes, as far as followed
        self.read = 0
        self.followed = {at: 0 for at in range(SHARDS) if at != shard}
        self.planned: Batch | None = None
        self.tries = 0

    def follow(self) -> None:
        for shard, placed, raised in self.ledger.journal[self.read :]:
            if shard == self.shard:
                continue
            self.guarding.follow(raised)
            for each in placed:
                self.seen[each.node] = self.seen.get(each.node, 0) + 1
                told = msgspec.structs.replace(each.pod, node_name=each.node)
                self.scheduler.fold(PodUpserted(told), shard)
            self.followed[shard] += 1
        self.read = len(self.ledger.journal)

    def plan(self) -> None:
        result = self.scheduler.cycle()
        placed = [verdict for verdict in result.verdicts if isinstance(verdict, Placement)]
        strict = self.guarding.decide(result, self.scheduler.state)
        strict |= {each.node for each in placed if each.attempt in result.strict}
        self.planned = Batch(
            placed,
            self.guarding.guards(self.scheduler.state, self.ledger.now_ms),
            {node: self.seen.get(node, 0) for node in strict},
            dict(self.followed),
        )

    def commit(self) -> list[Placement]:
        """Commit what was planned; return the pods that lost, which wait again."""
        assert self.planned is not None
        lost = self.ledger.commit(self.shard, self.planned, self.ids())
        _, granted, raised = self.ledger.journal[-1]
        self.guarding.confirm_raised([raised])
        for each in granted:
            self.seen[each.node] = self.seen.get(each.node, 0) + 1
        self.planned = None
        for each in lost:  # it waits again: as a new pod of its name, which comes to the same
            self.tries += 1
            again = {"uid": f"{each.pod.uid}-{self.tries}", "resource_version": 10 + self.tries}
            self.scheduler.fold(PodUpserted(msgspec.structs.replace(each.pod, **again)), self.shard)
        return lost

    def ids(self) -> dict[str, int]:
        return {name: entry.ordinal for name, entry in self.scheduler.state.nodes.items()}


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


def match_of(labels: dict[str, str]) -> Match:
    requirements = tuple(LabelRequirement(key, "In", (value,)) for key, value in labels.items())
    return Match(selector=LabelSelector(requirements), namespaces=("default",))


def live(seed: int, weaken: Callable[[Batch], Batch] = lambda batch: batch, idle_ms: int = IDLE_MS) -> Ledger:
    """Let workers live for a while, in any order of steps; each takes a millisecond."""
    random = Random(seed)
    ledger = Ledger(weaken, idle_ms)
    workers = [Worker(shard, ledger) for shard in range(SHARDS)]
    kinds = shapes()
    for step in range(60):
        worker, ledger.now_ms = random.choice(workers), step
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
    for seed in some(SEEDS):
        ledger = live(seed)
        assert too_near(ledger) == [], seed
        placed_count += sum(len(granted) for _, granted, _ in ledger.journal)
    assert placed_count > 5 * len(some(SEEDS))


def test_no_two_place_pods_too_near_where_matchers_are_dropped_and_come_again() -> None:
    dropped_count = placed_count = 0
    for seed in some(SEEDS):
        ledger = live(seed, idle_ms=4)
        assert too_near(ledger) == [], seed
        dropped_count += ledger.dropped_count
        placed_count += sum(len(granted) for _, granted, _ in ledger.journal)
    assert dropped_count > 2 * len(some(SEEDS))
    assert placed_count > 3 * len(some(SEEDS))


def test_a_matcher_that_is_dropped_is_known_no_more_and_may_come_again() -> None:
    made = pod("p", template(10), labels={"app": "a"})
    key = Matcher(match_of({"app": "a"}), spans=True).key
    known = KnownMatchers({key: 3, "default": 1})
    assert [each for each, _ in known.near(made)] == [key]
    assert list(known.idle(1)) == [key], "no namespace is"
    known.now_ms = 5
    known.raised([key])
    assert list(known.idle(5)) == []
    known.raised([f"-{key}", f"-{key}"])
    assert (known.versions, list(known.near(made)), list(known.idle(9))) == ({"default": 1}, [], [])
    known.raised([key])
    assert (known.versions[key], [each for each, _ in known.near(made)]) == (1, [key])


def without(batch: Batch, is_left_out: Callable[[Guard], bool]) -> Batch:
    return replace(batch, guards=[guard for guard in batch.guards if not is_left_out(guard)])


WEAKER: dict[str, Callable[[Batch], Batch]] = {
    "there are no guards": lambda batch: without(batch, lambda guard: True),
    "nobody asks for new matchers": lambda batch: without(
        batch, lambda guard: not (guard.raises or guard.announces_to)
    ),
    "matchers have no versions": lambda batch: without(batch, lambda guard: guard.raises),
}


@pytest.mark.wide
@pytest.mark.parametrize("weaken", WEAKER.values(), ids=WEAKER)
def test_with_weaker_guards_some_are_too_near(weaken: Callable[[Batch], Batch]) -> None:
    assert any(too_near(live(seed, weaken)) for seed in SEEDS)


def test_a_pod_without_rules_loses_to_the_first_one_that_shuns_it_on_its_node() -> None:
    """Nobody knows of that one before it is placed: it waits in another shard."""
    ledger = Ledger(lambda batch: batch)
    one, other = workers = [Worker(shard, ledger, nodes_count=1) for shard in range(2)]
    plain, shunning = shapes()[0][1], shapes()[2][1]
    one.scheduler.fold(PodUpserted(pod("shuns", shunning, labels={"app": "b"})), one.shard)
    one.plan()
    assert [each.pod.name for each in one.commit()] == ["shuns"], "its matcher is announced first"
    for worker in workers:
        worker.follow()
    one.plan()
    other.scheduler.fold(PodUpserted(pod("shunned", plain, labels={"app": "a"})), other.shard)
    other.plan()
    assert one.commit() == []
    assert [each.pod.name for each in other.commit()] == ["shunned"]
    assert too_near(ledger) == []


def test_a_pod_is_matched_against_few_of_the_matchers_that_its_namespace_ever_had() -> None:
    """Rollouts leave matchers that differ by one label."""
    matchers = [Matcher(match_of({"app": "a", "hash": str(i)}), spans=True) for i in range(1_000)]
    known = KnownMatchers({matcher.key: 1 for matcher in matchers})
    needs = Needs()
    made = pod("p", template(10), labels={"app": "a", "hash": "7"})
    known.need(needs, made, "n", (), {})
    assert list(needs.raises) == [matchers[7].key]
    assert len(list(known.near(made))) < 5
