"""Does every plugin depend on the fields that it declares to read, and on no others?"""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeImage, NodeSpec, Taint
from domain.model.pods import (
    CpuClaim,
    HostPort,
    MemoryClaim,
    NodeAffinity,
    NodeSelectorTerm,
    PodTemplate,
    PreferredTerm,
    Requirement,
    Toleration,
)
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
    WeightedAffinityTerm,
)
from domain.model.usage import Measured
from domain.plugins.base import (
    FirmFilter,
    LimitFilter,
    Plugin,
    RelativeScore,
    ResourceFilter,
    ResourceScore,
    StaticFilter,
    StaticScore,
)
from domain.plugins.contract import declared, registered
from domain.plugins.counting import CountFilter, CountScore, Incoming
from domain.plugins.filters.node_name import NodeName
from domain.plugins.registry import FILTERS, IN_FLIGHT, SCORES, STRATEGIES
from domain.plugins.template_filter import TemplateFilter
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from tests.plain_counting import World
from tests.values import GIB, node, pod, template

PLUGINS = (*FILTERS.values(), *SCORES.values(), *STRATEGIES.values(), *IN_FLIGHT.values(), TemplateFilter)
TEMPLATES_COUNT = 60

_SSD = NodeSelectorTerm((Requirement("disk", "In", ("ssd",)),))
_RANKED = NodeSelectorTerm((Requirement("rank", "Exists"),))
_APP = LabelSelector((LabelRequirement("app", "Exists"),))
_BY_ZONE = SpreadConstraint(topology_key="zone", selector=_APP, honours_taints=True)
_NEAR = AffinityTerm(topology_key="zone", selector=_APP, namespaces=("default",))
_LIKED = WeightedAffinityTerm(weight=5, term=_NEAR)
VALUES: dict[str, tuple[Any, ...]] = {
    "requests": (
        {},
        {"cpu": 500},
        {"cpu": 900, "memory": GIB},
        {"memory": 2 * GIB, "x.io/gpu": 1},
        {"x.io/gpu": 2},
    ),
    "scoring_cpu_milli": (100, 500, 1_500),
    "scoring_memory_bytes": (200 << 20, GIB, 3 * GIB),
    "node_selector": ({}, {"disk": "ssd"}, {"rank": "2"}),
    "node_affinity": (
        None,
        NodeAffinity(required=(_SSD,)),
        NodeAffinity(preferred=(PreferredTerm(7, _RANKED),)),
        NodeAffinity(required=(_RANKED,), preferred=(PreferredTerm(3, _SSD),)),
    ),
    "tolerations": ((), (Toleration("k", "Exists"),), (Toleration(operator="Exists"),)),
    "host_ports": ((), (HostPort(80),), (HostPort(81),)),
    "node_name": ("", "a", "b"),
    "priority": (0, 10, -3),
    "preemption_policy": ("PreemptLowerPriority", "Never"),
    "qos_class": ("BestEffort", "Burstable", "Guaranteed"),
    "profile": ("default-scheduler", "first-fit"),
    "images": ((), ("web:1",), ("web:1", "db:2")),
    "limits": ({}, {"cpu": 1_500}, {"cpu": 2_000, "memory": 4 * GIB}, {"memory": 3 * GIB}),
    "cpu_claim": (CpuClaim(), CpuClaim(fixed_milli=700), CpuClaim(requested_milli=300, silent_count=2)),
    "memory_claim": (None, MemoryClaim(fixed_bytes=GIB), MemoryClaim(requested_bytes=GIB, silent_count=1)),
    "cluster": ("", "x", "y"),
    "role": ("", "master", "replica"),
    "excluded": ((), ("a",), ("b", "c")),
    "gang": ("", "default/x"),
    "gates": ((), ("gate",)),
    "unsupported": ((), ("pod-affinity",)),
    "ignored": ((), ("disks",)),
    "priority_class": ("", "high"),
    "volume_images": ((), ("db:2",)),
    "features": ((), ("f",)),
    "missing": ((), ("unknown-priority-class:high",)),
    "spread": ((), (_BY_ZONE,), (msgspec.structs.replace(_BY_ZONE, hard=False, honours_taints=True),)),
    "pod_affinity": (None, PodAffinity(required=(_NEAR,)), PodAffinity(preferred=(_LIKED,))),
    "pod_anti_affinity": (None, PodAffinity(required=(_NEAR,)), PodAffinity(preferred=(_LIKED,))),
}
"""A few values for every field of a template."""

_GPU = {
    "resources": [
        {"name": "cpu", "weight": 1},
        {"name": "memory", "weight": 2},
        {"name": "x.io/gpu", "weight": 3},
    ]
}
_CURVE = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
_MEASURED = {"name": "cpu", "threshold": 20, "of": "measured"}
ARGS: dict[str, dict[str, Any]] = {
    "Allocated": {"scoringStrategy": {"type": "LeastAllocated", **_GPU}},
    "RequestedToCapacityRatio": {
        "scoringStrategy": {"type": "RequestedToCapacityRatio", **_GPU, "requestedToCapacityRatio": _CURVE}
    },
    "Peaks": {"nodePowerModel": {name: {"k0": 1, "k1": 2, "k2": 0.5} for name in "abcd"}},
    "ResourceThreshold": {
        "resources": [
            {"name": "cpu", "threshold": 40},
            {"name": "memory", "threshold": 20, "of": "measured"},
            _MEASURED,
        ],
        "inFlight": True,
    },
    "GlobalVariance": {"resources": ["cpu", "memory"], "of": "measured", "inFlight": True},
    "SearchScore": {"load": "measured", "inFlight": True},
    "TargetLoadPacking": {"resource": "memory"},
    "PeaksInFlight": {"nodePowerModel": {"a": {"k1": 2, "k2": 0.5}}, "inFlight": True},
    "PodTopologySpread": {
        "defaultingType": "List",
        "defaultConstraints": [
            {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": action}
            for action in ("DoNotSchedule", "ScheduleAnyway")
        ],
    },
    "PeakUsage": {"resources": [{"name": "cpu", "threshold": 20}]},
}
"""Arguments with which a plugin reads all that it ever reads."""


def world() -> NodeView:
    """Return four nodes that differ in all that plugins look at, with pods on two of them."""
    state = ClusterState(seed=1)
    sized = (NodeImage(("web:1",), 300 << 20), NodeImage(("db:2",), 700 << 20))
    nodes: tuple[NodeSpec, ...] = (
        node("a", labels={"disk": "ssd"}, taints=(Taint("k", "v", "PreferNoSchedule"),)),
        node("b", labels={"rank": "2", "disk": "hdd"}, cpu=2_000, extended={"x.io/gpu": 4}),
        node("c", taints=(Taint("k"),), unschedulable=True, memory=4 * GIB),
        node("d", labels={"disk": "ssd", "rank": "1"}, pods=9, extended={"x.io/gpu": 2}),
    )
    for i, each in enumerate(nodes):
        declared_features = ("f",)[: i % 2]
        spec = msgspec.structs.replace(each, images=sized[: i % 3], declared_features=declared_features)
        state.apply(NodeUpserted(spec))
    on_a = template(500, GIB, 80, cluster="x", role="master", limits={"cpu": 900, "memory": 2 * GIB})
    for name, shape, on in (("p", on_a, "a"), ("q", template(300, cluster="x", role="replica"), "b")):
        state.apply(PodUpserted(pod(name, shape, on=on)))
    state.table.hot[0] = True
    cpu, memory = Measured(avg=30.0, std=9.0, peak=25.0), Measured(avg=55.0, std=20.0)
    return NodeView(state, {"a": {"cpu": cpu, "memory": memory}, "b": {"cpu": Measured(avg=10.0, std=2.0)}})


def answers(plugin: Plugin, shape: PodTemplate, view: NodeView) -> dict[str, str]:
    """Return a plugin's answers to every question of its kinds, as text."""
    rows, resources = view.all_rows(), view.resources
    found: dict[str, Any] = {}
    if isinstance(plugin, StaticFilter):
        found["refuse"] = plugin.refuse(shape, view, rows)
    if isinstance(plugin, LimitFilter):
        found["limits"] = plugin.limits(shape, resources)
    if isinstance(plugin, ResourceFilter | FirmFilter):
        found["demands"] = plugin.demands(shape, resources)
    if isinstance(plugin, RelativeScore):
        found["parts"] = plugin.parts(shape, resources)
    if isinstance(plugin, ResourceScore):
        found["term"] = plugin.term(shape, resources)
    asking = Incoming(shape, "default", {"app": "web"}, None, World((), selected={"default": [_APP]}))
    if isinstance(plugin, CountFilter):
        found["rules"] = (plugin.rules(asking), plugin.grows(shape, asking.pods))
    if isinstance(plugin, CountScore):
        found["values"] = plugin.values(asking)
    elif isinstance(plugin, StaticScore):
        found["raw"] = plugin.raw(shape, view, rows)
    return {
        question: np.array2string(a) if isinstance(a, np.ndarray) else repr(a)
        for question, a in found.items()
    }


def random_template(random: Random) -> PodTemplate:
    return PodTemplate(**{field: random.choice(values) for field, values in VALUES.items()})


def fields_that_matter(plugin: Plugin, questions: tuple[str, ...] = ()) -> set[str]:
    """Change one field at a time of random templates; return those that changed any answer."""
    random, view = Random(plugin.name), world()
    found: set[str] = set()
    for _ in range(TEMPLATES_COUNT):
        before = random_template(random)
        said = answers(plugin, before, view)
        for field, values in VALUES.items():
            after = msgspec.structs.replace(before, **{field: random.choice(values)})
            says = answers(plugin, after, view)
            if any(says[question] != said[question] for question in questions or said):
                found.add(field)
    return found


def test_every_field_of_a_template_is_tried() -> None:
    assert set(VALUES) == {field.name for field in msgspec.structs.fields(PodTemplate)}


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: f"{p.__module__}.{p.__name__}")
def test_answers_change_with_the_declared_fields_and_with_no_others(plugin: type[Plugin]) -> None:
    made = plugin(ARGS.get(plugin.__name__, {}), "args")
    assert fields_that_matter(made) == plugin.reads
    if isinstance(made, StaticFilter):
        assert fields_that_matter(made, ("refuse",)) == made.static_reads


class Forgetful(NodeName):
    """Reads the node's name and says nothing of it."""

    name: ClassVar[str] = "Forgetful"
    reads: ClassVar[frozenset[str]] = frozenset()


def test_a_field_that_is_read_in_secret_is_found() -> None:
    assert fields_that_matter(Forgetful({}, "args")) == {"node_name"}


# ------------------------------------------------------------------------------------------ registration


class Silent(StaticFilter):
    """Declares its name alone."""

    name: ClassVar[str] = "Silent"
    reasons = ()

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        return None


class Nameless(NodeName):
    name = None  # type: ignore[assignment]


class Misspelt(NodeName):
    name: ClassVar[str] = "Misspelt"
    reads: ClassVar[frozenset[str]] = frozenset({"node"})


class Unfinished(StaticFilter):
    name: ClassVar[str] = "Unfinished"
    reads: ClassVar[frozenset[str]] = frozenset()


class Listed(NodeName):
    name: ClassVar[str] = "Listed"
    reads = ["node_name"]  # type: ignore[assignment]  # noqa: RUF012


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Silent, "Silent does not declare `reads`"),
        (Listed, "Listed does not declare `reads`: a frozenset"),
        (Nameless, "Nameless does not declare `name`"),
        (Misspelt, "Misspelt reads 'node'; allowed are requests,"),
        (Unfinished, "Unfinished does not implement refuse"),
    ],
)
def test_a_plugin_that_does_not_say_what_it_must_is_not_registered(
    plugin: type[Plugin], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        registered(NodeName, plugin)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(TypeError, match="the name NodeName is taken"):
        registered(NodeName, declared(NodeName))
