"""Do gangs preempt as the plain definition says: the same nodes and victims, for all of it or for nobody?

And are the same nodes kept free for those that may not preempt?
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement, Preemption
from domain.model.config import POD_GROUP, PodGroup
from domain.model.events import ConfigUpserted, Event, NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec
from domain.model.signature import signature
from tests.depth import some
from tests.oracle.gangs import Gang, place, preempt, reserve
from tests.oracle.preempting import Budget
from tests.oracle.preempting_clusters import (
    APPS,
    DEFAULT,
    HOST,
    MOMENT_MS,
    ZONE,
    Cluster,
    pod_of,
    random_template,
    selector,
)

WAIT_SECONDS = 30
SEEDS = some(range(300))


@dataclass
class GangCluster(Cluster):
    """A random cluster with one gang that waits, and may preempt or have nodes kept free."""

    preempts: bool = True
    scheduler: Scheduler = field(init=False)
    gang: Gang = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        wait_seconds = 0 if self.preempts else WAIT_SECONDS
        self.scheduler = Scheduler(
            {self.profile.name: self.profile},
            seed=3,
            preempts=self.preempts,
            reservation_seconds=wait_seconds,
        )
        self.state = self.scheduler.state

    def take(self, event: Event) -> None:
        if not isinstance(event, ConfigUpserted) or event.kind != POD_GROUP:
            self.oracle.take(event)
        self.scheduler.fold(event)


def member_of(name: str, of: PodSpec) -> PodSpec:
    template = msgspec.structs.replace(of.template, gang="d/g")
    return msgspec.structs.replace(
        of, uid=f"uid-{name}", key=f"d/{name}", template=template, signature=signature(template)
    )


def random_cluster(seed: int, *, preempts: bool = True) -> GangCluster:
    rng = random.Random(seed)
    cluster = GangCluster(DEFAULT, preempts=preempts)
    wild = rng.choice((0.0, 0.0, 0.2))
    for i in range(rng.randint(2, 8)):
        labels = {HOST: f"n{i}"} | ({ZONE: f"z{rng.randint(0, 2)}"} if rng.random() < 0.95 else {})
        room = {"cpu": rng.choice((1000, 2000)), "memory": rng.choice((8, 20)), "pods": rng.choice((4, 30))}
        spec = NodeSpec(name=f"n{i}", uid=f"n{i}", resource_version=1, allocatable=room, labels=labels)
        cluster.take(NodeUpserted(spec))
        for k in range(rng.randint(1, 6)):
            template = random_template(rng, rng.randint(0, 7), wild)
            start = f"2026-01-01T00:00:0{rng.randint(0, 3)}.000Z" if rng.random() < 0.7 else ""
            app = rng.choice((*APPS, ""))
            cluster.take(PodUpserted(pod_of(f"p{i}-{k}", template, app, f"n{i}", start)))
            if rng.random() < 0.5:
                cluster.place_at(f"d/p{i}-{k}", MOMENT_MS + 500 * rng.randint(0, 7))
    for b in range(rng.randint(0, 3)):
        cluster.add_budget(f"b{b}", Budget("d", selector(rng.choice(APPS)), rng.randint(0, 2)))
    priority = rng.randint(2, 12)
    kinds = [
        pod_of("", random_template(rng, priority + rng.choice((0, 0, 1)), wild), rng.choice((*APPS, "")))
        for _ in range(rng.randint(1, 3))
    ]
    names = [f"m{i}" for i in range(rng.randint(2, 6))]
    for name in names:
        cluster.take(PodUpserted(member_of(name, rng.choice(kinds))))
    least = {"cpu": rng.choice((1000, 4000)), "memory": 1} if rng.random() < 0.3 else {}
    key, is_preferred = rng.choice(("", "", ZONE)), rng.random() < 0.3
    count = rng.randint(max(1, len(names) - 2), len(names))
    cluster.gang = Gang([f"d/{name}" for name in names], count, (), least, key, is_preferred)
    group = PodGroup(min_member=count, min_resources=least, topology_key=key, is_preferred=is_preferred)
    cluster.take(ConfigUpserted(POD_GROUP, "d", "g", group, 1))
    return cluster


@cache
def answers(seed: int) -> tuple[object, object, str]:
    """Return what the plain definition and the scheduler say, and what became of the gang."""
    cluster = random_cluster(seed)
    placed = place(cluster.oracle, cluster.gang).nodes
    expected: dict[str, object] = dict(placed)
    if not placed:
        found = preempt(cluster.oracle, cluster.gang, cluster.budgets)
        expected |= {key: (each.node, each.victims, each.violations) for key, each in found.items()}
    result = cluster.scheduler.cycle(MOMENT_MS)
    promised = [each for each in result.verdicts if isinstance(each, Preemption)]
    told: dict[str, object] = {v.pod.key: v.node for v in result.verdicts if isinstance(v, Placement)}
    told |= {p.pod.key: (p.node, [v.key for v in p.victims], p.violations) for p in promised}
    kind = "placed" if placed else "promised" if promised else "waits"
    if promised:
        assert len(promised) == result.gangs["d/g"] == cluster.gang.min_member
        assert len({each.expires_ms for each in promised}) == 1
    return expected, told, kind


@pytest.mark.parametrize("seed", SEEDS)
def test_same_nodes_and_same_victims(seed: int) -> None:
    expected, told, _ = answers(seed)
    assert told == expected


@pytest.mark.wide
def test_some_are_placed_some_are_promised_nodes_and_some_wait() -> None:
    seen = Counter(answers(seed)[2] for seed in SEEDS)
    assert min(seen["placed"], seen["promised"], seen["waits"]) > len(SEEDS) // 15, seen


@cache
def kept_free(seed: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the plain definition and the scheduler keep free for a gang that found too few nodes."""
    cluster = random_cluster(seed, preempts=False)
    if place(cluster.oracle, cluster.gang).nodes:
        return {}, {}
    expected = reserve(cluster.oracle, cluster.gang, cluster.budgets)
    first = cluster.scheduler.cycle(MOMENT_MS)
    assert first.tried == first.verdicts
    result = cluster.scheduler.cycle(MOMENT_MS + 1_000 * WAIT_SECONDS)
    told = {each.pod.key: each.node for each in result.verdicts if isinstance(each, Preemption)}
    assert not any(each.victims for each in result.verdicts if isinstance(each, Preemption))
    if told:
        assert len(told) == result.gangs["d/g"] == cluster.gang.min_member
    return expected, told


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_nodes_are_kept_free(seed: int) -> None:
    expected, told = kept_free(seed)
    assert told == expected


@pytest.mark.wide
def test_for_some_nodes_are_kept_free_and_for_some_not() -> None:
    seen = Counter(len(kept_free(seed)[1]) for seed in SEEDS)
    assert min(seen[0], seen.total() - seen[0] - seen[1]) > len(SEEDS) // 6, seen
