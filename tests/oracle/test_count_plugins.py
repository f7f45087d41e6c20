"""Do rules and values, read plainly, say what the plain reading of the plugins says, on random clusters?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from domain.model.events import (
    ConfigDeleted,
    ConfigUpserted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
)
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec
from domain.model.selectors import LabelSelector
from domain.plugins.filters.inter_pod_affinity import InterPodAffinity
from domain.plugins.filters.pod_topology_spread import PodTopologySpread
from domain.plugins.scores.inter_pod_affinity import InterPodAffinity as AffinityScore
from domain.plugins.scores.pod_topology_spread import PodTopologySpread as SpreadScore
from tests.oracle import between_pods as oracle
from tests.oracle.between_pods import Around
from tests.oracle.crowds import Crowd, size_of
from tests.plain_counting import World

SEEDS = range(1, 60)
WORK_MAX = 2_000


class Both:
    """A cluster as both readings see it; pods that wait are put on any node."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.nodes: dict[str, NodeSpec] = {}
        self.pods: dict[str, tuple[PodSpec, str]] = {}
        self.around = Around()
        self.seen: Counter[str] = Counter()

    def take(self, event: Any) -> None:
        match event:
            case NodeUpserted():
                self.nodes[event.node.name] = event.node
            case NodeDeleted():
                self.nodes.pop(event.name, None)
            case PodUpserted():
                on = event.pod.node_name or self.pods.get(event.pod.key, (None, ""))[1]
                self.pods[event.pod.key] = (event.pod, on)
                if event.pod.finished:
                    del self.pods[event.pod.key]
            case PodDeleted():
                self.pods.pop(f"{event.namespace}/{event.name}", None)
            case ConfigUpserted() | ConfigDeleted():
                self.around.configure(event)

    def look(self) -> None:
        """Compare what both readings say of each pod that waits, then place it on some node."""
        nodes = list(self.nodes.values())
        for turn, (key, (pod, on)) in enumerate(list(self.pods.items())):
            if on or not nodes:
                continue
            placed = [(each, where) for each, where in self.pods.values() if where in self.nodes]
            waiting = [each for each, where in self.pods.values() if where not in self.nodes]
            self.around.nodes, self.around.pods = nodes, [(each, self.nodes[where]) for each, where in placed]
            selects = self.around.selectors
            here = ("Service", pod.namespace)
            services = {pod.namespace: [s for key, s in selects.items() if key[:2] == here and s]}
            owners = {
                (kind, space, name): selector or LabelSelector()
                for (kind, space, name), selector in selects.items()
            }
            world = World(nodes, placed, waiting, self.around.namespaces, services, owners)
            self.compare(world, pod, [each for i, each in enumerate(nodes) if (i + turn) % 3])
            self.pods[key] = (pod, nodes[turn % len(nodes)].name)

    def compare(self, world: World, pod: PodSpec, feasible: list[NodeSpec]) -> None:
        asking, around = world.incoming(pod), self.around
        names = [each.name for each in feasible]
        for profile in self.crowd.profiles.values():
            uses = {use.name: use.args for use in (*profile.filters, *profile.scores)}
            spread, affinity = uses.get("PodTopologySpread", {}), uses.get("InterPodAffinity", {})
            found = world.refusals(PodTopologySpread(spread, "").rules(asking))
            expected = oracle.spread_refusals(pod, spread, around)
            assert found == expected
            found_too = world.refusals(InterPodAffinity(affinity, "").rules(asking))
            expected_too = oracle.affinity_refusals(pod, affinity, around)
            assert found_too == expected_too
            self.seen.update(code for code, _ in (*expected.values(), *expected_too.values()))
            scores = oracle.spread_scores(pod, spread, around, feasible)
            values = SpreadScore(spread, "").values(asking)
            assert bool(values) == bool(scores) or not feasible
            assert not scores or world.spread_scores(values, names) == scores
            scores_too = oracle.affinity_scores(pod, affinity, around, feasible)
            values = AffinityScore(affinity, "").values(asking)
            assert not names or world.affinity_scores(values, names) == (
                scores_too or dict.fromkeys(names, 0)
            )
            self.seen["spread score"] += len(set(scores.values())) > 1
            self.seen["affinity score"] += len(set(scores_too.values())) > 1


@pytest.mark.wide
def test_rules_and_values_are_the_plugins() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        both = Both(Crowd(size_of(seed, work_max=WORK_MAX)))
        for events in both.crowd.history():
            for event in events:
                both.take(event)
            both.look()
        seen.update(both.seen)
    assert len(seen) == 7, seen
    assert min(seen.values()) > 100, seen
