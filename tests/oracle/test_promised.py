"""Do pods pass their filters both with the pods to which nodes are promised and without, as plainly asked?"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import evaluate
from domain.engine.verdicts import Placement
from domain.model.events import Event, NodeUpserted, PodDeleted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.profiles import Profile
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.steps import Cleared, Nominated, Reclassify
from tests.depth import some
from tests.oracle.placing import Oracle
from tests.oracle.preempting_clusters import (
    APPS,
    DEFAULT,
    HOST,
    STRICT,
    ZONE,
    pod_of,
    random_template,
)

WILD = 0.5
LATER_MS = 1_000_000


@dataclass
class Promising:
    """A random cluster with promised nodes, told to the oracle and to the scheduler alike."""

    profile: Profile
    rng: random.Random
    oracle: Oracle = field(init=False)
    scheduler: Scheduler = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        profiles = {self.profile.name: self.profile}
        self.oracle, self.scheduler = Oracle(profiles, seed=3), Scheduler(profiles, seed=3)
        self.versions = 1
        for i in range(self.rng.randint(2, 8)):
            self.take(NodeUpserted(self.node(f"n{i}")))
        for _ in range(self.rng.randint(0, 16)):
            self.take(PodUpserted(self.pod(self.rng.randint(0, 9), self.rng.choice(self.names))))

    @property
    def state(self) -> ClusterState:
        return self.scheduler.state

    @property
    def names(self) -> list[str]:
        return list(self.oracle.nodes)

    def node(self, name: str) -> NodeSpec:
        self.versions += 1
        labels = {HOST: name} | ({ZONE: f"z{self.rng.randint(0, 2)}"} if self.rng.random() < 0.95 else {})
        room = {"cpu": 4000, "memory": 60, "pods": 30}
        return NodeSpec(name=name, uid=name, resource_version=self.versions, allocatable=room, labels=labels)

    def pod(self, priority: int, node: str = ""):  # type: ignore[no-untyped-def]
        self.count += 1
        template = random_template(self.rng, priority, WILD)
        return pod_of(f"p{self.count}", template, self.rng.choice((*APPS, "")), node)

    def take(self, event: Event) -> None:
        self.oracle.take(event)
        self.scheduler.fold(event)

    def promise(self) -> None:
        """Promise any node to a pod that waits for it. Of another shard, it is not tried there by itself."""
        pod, node = self.pod(self.rng.randint(0, 20)), self.rng.choice(self.names)
        self.oracle.take(PodUpserted(pod))
        self.state.apply(PodUpserted(pod), 1)
        self.state.apply(Reclassify())
        assert not self.state.apply(Nominated(pod.key, node, (), 0, LATER_MS))
        self.oracle.promised[pod.key] = node

    def end_one(self) -> None:
        if self.oracle.promised:
            key = self.rng.choice(list(self.oracle.promised))
            self.state.apply(Cleared([key], "no-room"))
            del self.oracle.promised[key]
            self.take(PodDeleted("d", key.removeprefix("d/"), f"uid-{key.removeprefix('d/')}", None))

    def change(self) -> None:
        """Change what promised and placed pods count, or where."""
        match self.rng.randint(0, 5):
            case 0:
                self.take(NodeUpserted(self.node(self.rng.choice(self.names))))
            case 1:
                self.end_one()
            case 2:
                self.promise()
            case 3:
                placed = [pod.spec for pod in self.oracle.pods.values() if pod.node]
                for pod in self.rng.sample(placed, min(2, len(placed))):
                    self.take(PodDeleted("d", pod.name, pod.uid, None))
            case 4 if self.oracle.promised:
                key = self.rng.choice(list(self.oracle.promised))
                other = {"app": self.rng.choice(APPS)}
                self.versions += 1
                pod = self.oracle.pods[key].spec
                spec = msgspec.structs.replace(pod, labels=other, resource_version=self.versions)
                self.oracle.take(PodUpserted(spec))
                self.scheduler.fold(PodUpserted(spec), 1)
                assert key in self.state.nominations.entries
            case _:
                self.take(NodeUpserted(self.node(f"n{self.rng.randint(0, 9)}")))


@pytest.mark.parametrize("seed", some(range(120)))
def test_a_node_is_refused_for_the_first_filter_that_refuses_it_either_way(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Promising(rng.choice((DEFAULT, STRICT)), rng)
    for _ in range(rng.randint(1, 4)):
        cluster.promise()
    waiting = [cluster.pod(rng.randint(0, 20)) for _ in range(4)]
    for pod in waiting:
        cluster.take(PodUpserted(pod))
    cluster.state.apply(Reclassify())
    for key in [*(pod.key for pod in waiting), *cluster.oracle.promised]:
        pod = cluster.oracle.pods[key].spec
        found = evaluate(cluster.state, ProfilePlan(cluster.profile), pod)
        look = cluster.oracle.look(cluster.oracle.pods[key])
        assert found.infeasible == {name: refusal.code for name, refusal in look.infeasible.items()}


@pytest.mark.parametrize("seed", some(range(120, 240)))
def test_pods_are_placed_beside_what_is_promised_cycle_after_cycle(seed: int) -> None:
    """Each on the node that the seed prefers of those that pass; promises come and go, nodes change."""
    rng = random.Random(seed)
    cluster = Promising(STRICT, rng)
    for _ in range(6):
        for _ in range(rng.randint(1, 3)):
            cluster.change()
        for _ in range(rng.randint(0, 4)):
            cluster.take(PodUpserted(cluster.pod(rng.randint(0, 20))))
        looks = {look.pod.key: look.node for look in cluster.oracle.cycle()}
        result = cluster.scheduler.cycle()
        placed = {v.pod.key: v.node for v in result.verdicts if isinstance(v, Placement)}
        assert placed == {key: node for key, node in looks.items() if node}
