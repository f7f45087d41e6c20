"""Random clusters and what happens to them, made from a seed so that sizes shrink on their own."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st

from domain.model.events import Event, NodeDeleted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.nodes import NodeImage, NodeSpec, Taint
from domain.model.pods import (
    COLOCATION_PROFILE,
    CpuClaim,
    HostPort,
    MemoryClaim,
    NodeAffinity,
    NodeSelectorTerm,
    PodSpec,
    PodTemplate,
    PreferredTerm,
    Requirement,
    Toleration,
)
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile
from domain.model.usage import Measured, NodeUsage
from tests.oracle import devices
from tests.oracle.profiles import any_profile
from tests.values import GIB, node, pod, template

RESOURCES = ("ephemeral-storage", "hugepages-2Mi", "a.io/x", "b.io/x", "nvidia.com/gpu", "c.io/y")
LABEL_VALUES = {"zone": ("a", "b", "c"), "rank": ("1", "9", "10", "-3", "1_0", "x", ""), "disk": ("ssd",)}
TAINTS = (
    Taint("team", "blue"),
    Taint("team", "red", "NoExecute"),
    Taint("team", "red", "PreferNoSchedule"),
    Taint("grade", "7"),
    Taint("grade", "1_0"),
)
TOLERATIONS = (
    Toleration(operator="Exists"),
    Toleration("team", "Exists"),
    Toleration("team", "Equal", "blue"),
    Toleration("team", "Exists", effect="NoExecute"),
    Toleration("grade", "Gt", "5"),
    Toleration("grade", "Lt", "8", "NoSchedule"),
    Toleration("node.kubernetes.io/unschedulable", "Exists"),
)
PORTS = (
    HostPort(80),
    HostPort(80, host_ip="10.0.0.1"),
    HostPort(80, host_ip="10.0.0.2"),
    HostPort(80, "UDP"),
    HostPort(81),
)
IMAGES = (
    NodeImage(("web:latest", "mirror.io/web:latest"), 300 << 20),
    NodeImage(("db:2",), 100 << 20),
    NodeImage(("x.io/big:latest",), 3_000 << 20),
    NodeImage(("other:1",), 10 << 20),
)
_DAY_MS = 86_400_000
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


@dataclass(frozen=True)
class Scenario:
    """How large, how varied, how long; everything else follows from the seed."""

    seed: int
    nodes: int
    pods: int
    groups: int
    resources: int
    cycles: int
    changes: int = 3
    alike: bool = False
    constraints: bool = True
    priorities: bool = True
    own_profiles: bool = False
    any_profiles: bool = False
    """Profiles of all plugins, and measured usage."""


def scenarios(
    *, nodes_min: int = 0, nodes_max: int = 60, pods_max: int = 100, groups_max: int = 40
) -> st.SearchStrategy[Scenario]:
    """Return random scenarios."""
    return st.builds(
        Scenario,
        seed=st.integers(0, 1 << 32),
        nodes=st.integers(nodes_min, nodes_max),
        pods=st.integers(1, pods_max),
        groups=st.integers(1, groups_max),
        resources=st.integers(1, 8),
        cycles=st.integers(1, 6),
        changes=st.integers(0, 12),
        alike=st.booleans(),
        constraints=st.booleans(),
        priorities=st.booleans(),
        own_profiles=st.booleans(),
    )


class World:
    """Makes the values and events of a scenario; it knows which nodes and pods it has sent."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._random = Random(scenario.seed)
        self._names = ["cpu", "memory", *RESOURCES][: scenario.resources]
        lends = COLOCATION_PROFILE  # test_colocation.py reads what it lends
        self.profiles = {name: each for name, each in BUILT_IN_PROFILES.items() if name != lends}
        if scenario.own_profiles:
            self.profiles |= {name: _profile(name, self._random) for name in ("one", "two")}
        if scenario.any_profiles:
            names = ("any-1", "any-2", "any-3", "any-4")
            self.profiles = {name: any_profile(name, self._random) for name in names}
        self.templates = [self._template() for _ in range(scenario.groups)]
        self.nodes = [f"n{i}" for i in range(scenario.nodes)]
        self.pods: dict[str, PodSpec] = {}
        self._version = 0
        self._made = 0
        self.now_ms = 20_000 * _DAY_MS - 60_000  # yesterday ends after some measurements

    def first_nodes(self) -> list[Event]:
        """Return the arrival of all nodes."""
        return [NodeUpserted(self._node(name)) for name in self.nodes]

    def measurements(self, share: float) -> list[Event]:
        """Return measurements of a share of the nodes, each newer than all before."""
        if not self.scenario.any_profiles:
            return []
        events: list[Event] = []
        for name in self.nodes:
            if self._random.random() < share:
                self.now_ms += self._random.choice((10, 1_000, 400_000))
                figures = {r: self._figures() for r in ("cpu", "memory") if self._random.random() < 0.8}
                events.append(NodeUsed(NodeUsage(node=name, at_ms=self.now_ms, window=figures)))
        return events

    def _figures(self) -> Measured:
        random = self._random
        average = random.choice((0.0, 7.5, 40.0, 88.0))
        return Measured(
            avg=average if random.random() < 0.8 else None,
            std=random.choice((0.0, 3.0, 20.0)) if random.random() < 0.8 else None,
            latest=50.0 + average / 2 if random.random() < 0.5 else None,
        )

    def new_pods(self, count: int) -> list[Event]:
        """Return pods that arrive, a few already bound."""
        events: list[Event] = []
        for _ in range(count):
            self._made += 1
            bound = self._random.random() < 0.08
            on = self._random.choice([*self.nodes, "n-later"]) if bound else ""
            made = pod(
                f"p{self._made}", self._random.choice(self.templates), on=on, version=self._next_version()
            )
            self.pods[made.key] = made
            events.append(PodUpserted(made))
        return events

    def changes(self, count: int) -> list[Event]:
        """Return things that happen to nodes and pods which exist."""
        return [event for _ in range(count) for event in self._change()]

    def _change(self) -> list[Event]:
        kind = self._random.choice(("node", "node-gone", "pod-gone", "pod-gone", "pod-changed", "finished"))
        if kind.startswith("node"):
            if not self.nodes:
                return []
            name = self._random.choice(self.nodes)
            if kind == "node":
                return [NodeUpserted(self._node(name))]
            return [NodeDeleted(name, resource_version=self._next_version())]
        if not self.pods:
            return []
        key = self._random.choice(sorted(self.pods))
        known = self.pods[key]
        if kind == "pod-changed":
            return [PodUpserted(self._changed(known))]
        del self.pods[key]
        if kind == "finished":
            done = msgspec.structs.replace(known, finished=True, resource_version=self._next_version())
            return [PodUpserted(done)]
        return [PodDeleted(known.namespace, known.name, known.uid, self._next_version())]

    def _changed(self, known: PodSpec) -> PodSpec:
        shape = self._random.choice((known.template, known.template, self._random.choice(self.templates)))
        changed = pod(known.name, shape, on=known.node_name, version=self._next_version())
        self.pods[known.key] = changed
        return changed

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    # ------------------------------------------------------------------------------------------ values

    def _node(self, name: str) -> NodeSpec:
        random, rich = self._random, self.scenario.constraints
        if self.scenario.alike and random.random() < 0.9:
            return node(name, version=self._next_version())
        more = random.choice((0, 0, 500)) if self.scenario.any_profiles else 0
        labels = {key: random.choice(values) for key, values in LABEL_VALUES.items() if random.random() < 0.7}
        made = node(
            name,
            cpu=random.choice((0, 1_000, 2_000, 4_000, 4_000)),
            memory=random.choice((2, 4, 8)) * GIB,
            pods=random.choice((0, 1, 4, 110, 110)),
            version=self._next_version(),
            labels=labels if rich else {},
            taints=tuple(random.sample(TAINTS, random.choice((0, 0, 0, 1, 2)))) if rich else (),
            unschedulable=rich and random.random() < 0.1,
            extended={key: random.choice((0, 1, 2, 5)) for key in RESOURCES if random.random() < 0.7},
            declared_features=("f", "g")[: random.randint(1, 2)] if rich else (),
        )
        if not self.scenario.any_profiles:
            return made
        capacity = {**made.allocatable, "cpu": made.allocatable["cpu"] + more} if more else {}
        images = tuple(random.sample(IMAGES, random.choice((0, 1, 3))))
        return msgspec.structs.replace(made, capacity=capacity, images=images)

    def _template(self) -> PodTemplate:
        random, rich = self._random, self.scenario.constraints
        requests = {key: random.choice((1, 1, 2, 6)) for key in self._names[2:] if random.random() < 0.3}
        if devices.GPU in self._names and devices.GPU not in requests and random.random() < 0.5:
            requests[devices.MILLI] = random.choice((100, 300, 500, 700))
        fields: dict[str, Any] = {
            "requests": requests,
            "priority": random.choice((0, 0, 100, -5)) if self.scenario.priorities else 0,
            "profile": random.choice([*self.profiles, *self.profiles, "nobody"][: None if rich else -1]),
        }
        if rich:
            fields |= {
                "node_selector": {"zone": random.choice("abq")} if random.random() < 0.2 else {},
                "node_affinity": self._affinity() if random.random() < 0.4 else None,
                "tolerations": tuple(random.sample(TOLERATIONS, random.choice((0, 0, 1, 2)))),
                "host_ports": tuple(random.sample(PORTS, random.choice((0, 0, 1, 2)))),
                "node_name": "n1" if random.random() < 0.05 else "",
                "features": ("f", "g") if random.random() < 0.1 else (),
                "gates": ("wait",) if random.random() < 0.05 else (),
                "unsupported": ("pod-affinity",) if random.random() < 0.05 else (),
            }
            if random.random() < 0.3:
                fields |= {
                    "cluster": random.choice("xy"),
                    "role": random.choice(("master", "master", "replica")),
                }
        if self.scenario.any_profiles:
            fields |= self._usage_fields()
        cpu = random.choice((0, 100, 300, 1_000, 3_000))
        return template(cpu, random.choice((0, 1, 1, 3)) * GIB if "memory" in self._names else 0, **fields)

    def _usage_fields(self) -> dict[str, Any]:
        """What only some scores and filters read."""
        random = self._random
        master, limits = random.random() < 0.3, {"cpu": random.choice((200, 5_000)), "memory": 2 * GIB}
        claim = CpuClaim(
            fixed_milli=random.choice((0, 100, 700)),
            requested_milli=random.choice((0, 300)),
            silent_count=random.choice((0, 1)),
        )
        return {
            "limits": limits if random.random() < 0.5 else {},
            "cpu_claim": claim,
            "memory_claim": random.choice((None, MemoryClaim(requested_bytes=GIB // 2, silent_count=1))),
            "images": tuple(random.sample(("web", "db:2", "x.io/big"), random.choice((0, 1, 2)))),
            "cluster": random.choice("ab") if master else "",
            "role": random.choice(("master", "master", "replica")) if master else "",
        }

    def _affinity(self) -> NodeAffinity:
        random = self._random
        terms = []
        for _ in range(random.choice((0, 1, 1, 2))):
            expressions = tuple(self._requirement() for _ in range(random.choice((0, 1, 1, 2))))
            named = Requirement("metadata.name", random.choice(("In", "NotIn")), (f"n{random.randrange(9)}",))
            terms.append(NodeSelectorTerm(expressions, (named,) if random.random() < 0.3 else ()))
        if not self.scenario.any_profiles:
            return NodeAffinity(required=tuple(terms))
        preferred = tuple(PreferredTerm(random.choice((1, 5, 100)), term) for term in terms)
        return NodeAffinity(required=tuple(terms) if random.random() < 0.3 else None, preferred=preferred)

    def _requirement(self) -> Requirement:
        random = self._random
        operator = random.choice(OPERATORS)
        if operator in ("Gt", "Lt"):
            return Requirement(random.choice(("rank", "zone")), operator, (random.choice(("2", "9", "-4")),))
        key = random.choice([*LABEL_VALUES, "nowhere"])
        if operator in ("Exists", "DoesNotExist"):
            return Requirement(key, operator)
        values = LABEL_VALUES.get(key, ("v",))
        return Requirement(
            key, operator, tuple(random.sample(values, min(len(values), random.choice((1, 2)))))
        )


def _profile(name: str, random: Random) -> Profile:
    """Return a profile with filters in any order, some left out, and several weighted scores."""
    filters = list(BUILT_IN_PROFILES["first-fit"].filters)
    random.shuffle(filters)
    resources = [
        {"name": "cpu", "weight": 3},
        {"name": "memory", "weight": random.choice((1, 7))},
        {"name": "nvidia.com/gpu", "weight": 5},
        {"name": "ephemeral-storage"},
    ]
    scores = [PluginUse(name="FirstFit", weight=random.choice((0.5, 2.0)))]
    for kind in random.sample(("LeastAllocated", "MostAllocated"), random.choice((0, 1, 2))):
        strategy = {"type": kind, "resources": random.sample(resources, random.choice((1, 2, 4)))}
        scores.append(PluginUse(name="NodeResourcesFit", weight=3.0, args={"scoringStrategy": strategy}))
    random.shuffle(scores)
    return Profile(
        name=name, revision=7, filters=tuple(filters[random.choice((0, 0, 1)) :]), scores=tuple(scores)
    )
