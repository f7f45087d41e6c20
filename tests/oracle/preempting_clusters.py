"""Random clusters for preemption, told to the oracle and to the state alike."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from domain.model.config import DisruptionBudget
from domain.model.events import ConfigUpserted, Event
from domain.model.pods import HostPort, PodSpec, PodTemplate, Toleration
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
)
from domain.model.signature import signature
from domain.state.cluster import ClusterState
from domain.state.steps import Written
from tests.oracle.devices import GPU, MILLI
from tests.oracle.placing import Oracle
from tests.oracle.preempting import Budget

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("a", "b", "c")
MOMENT_MS = 1_767_225_600_000  # 2026-01-01
DEFAULT = BUILT_IN_PROFILES["default-scheduler"]
STRICT = Profile(
    name="default-scheduler",
    revision=1,
    filters=(
        *DEFAULT.filters,
        PluginUse(name="MasterShare"),
        PluginUse(name="MaxMemorySum"),
        PluginUse(
            name="ResourceThreshold",
            args={"resources": [{"name": "cpu", "threshold": 90, "of": "requested"}]},
        ),
    ),
    scores=(),
)


def selector(app: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", "In", (app,)),))


@dataclass
class Cluster:
    """A random cluster, told to the oracle and to the state alike."""

    profile: Profile
    oracle: Oracle = field(init=False)
    state: ClusterState = field(init=False)
    budgets: list[Budget] = field(default_factory=list)
    preemptors: list[PodSpec] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.oracle = Oracle({self.profile.name: self.profile}, seed=3)
        self.state = ClusterState(seed=3)

    def take(self, event: Event) -> None:
        self.oracle.take(event)
        self.state.apply(event)

    def place_at(self, key: str, at_ms: int) -> None:
        """Say when a pod was placed."""
        self.oracle.pods[key].placed_ms = at_ms
        self.state.apply(Written({key: at_ms}))

    def add_budget(self, name: str, budget: Budget) -> None:
        self.budgets.append(budget)
        content = DisruptionBudget(
            selector=budget.selector,
            disruptions_allowed=budget.allowed,
            disrupted=tuple(sorted(budget.disrupted)),
        )
        self.take(ConfigUpserted("PodDisruptionBudget", budget.namespace, name, content))


def pod_of(name: str, template: PodTemplate, app: str = "", node: str = "", start: str = "") -> PodSpec:
    return PodSpec(
        uid=f"uid-{name}",
        key=f"d/{name}",
        resource_version=1,
        template=template,
        signature=signature(template),
        labels={"app": app} if app else {},
        node_name=node,
        start_time=start,
    )


def random_template(
    rng: random.Random, priority: int, wild: float, *, asks_devices: float = 0.0
) -> PodTemplate:
    """Return a pod that now and then asks something of other pods, or of its node, or for devices of it."""
    terms = tuple(
        AffinityTerm(selector=selector(rng.choice(APPS)), topology_key=key, namespaces=("d",))
        for key in rng.choices((ZONE, HOST), k=rng.randint(1, 2))
    )
    requests = {"cpu": rng.choice((100, 300, 700)), "memory": rng.choice((1, 2, 5))}
    is_master = rng.random() < wild / 2
    requests = requests if rng.random() < 0.9 else {}
    if asks_devices and rng.random() < asks_devices:
        asks = ({GPU: 1}, {GPU: 2}, {MILLI: 200}, {MILLI: 300}, {MILLI: 500}, {MILLI: 800})
        requests = requests | rng.choice(asks)
    return PodTemplate(
        requests=requests,
        limits={"memory": rng.choice((2, 6))} if rng.random() < 0.3 else {},
        host_ports=(HostPort(rng.choice((80, 81))),) if rng.random() < wild else (),
        tolerations=(Toleration(operator="Exists"),) if rng.random() < 0.3 else (),
        pod_anti_affinity=PodAffinity(required=terms) if rng.random() < wild else None,
        pod_affinity=PodAffinity(required=terms[:1]) if rng.random() < wild else None,
        spread=tuple(
            SpreadConstraint(
                topology_key=term.topology_key,
                max_skew=rng.randint(1, 2),
                hard=True,
                selector=term.selector,
                min_domains=rng.choice((1, 1, 3)),
            )
            for term in terms
        )
        if rng.random() < wild
        else (),
        cluster="d/c" if is_master else "",
        role="master" if is_master else "",
        priority=priority,
    )
