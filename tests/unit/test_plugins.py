"""Does each plugin refuse and rate as its counterpart in Kubernetes does?"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from domain.counting.counted import PodsKnown
from domain.cycle.schedule import Scheduler
from domain.kernels.arrays import DEMANDS_MAX, PARTS_MAX, STATIC_MAX, TERMS_MAX
from domain.model.decisions import Attempt
from domain.model.errors import FieldError
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.limits import requested_resources_max
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
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile
from domain.model.selectors import AffinityTerm, LabelSelector, PodAffinity, SpreadConstraint
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
from domain.plugins.counting import CountFilter, CountScore, Incoming
from domain.plugins.node_selectors import match_term
from domain.plugins.registry import FILTERS, IN_FLIGHT, SCORES, STRATEGIES, ProfilePlan
from domain.plugins.tolerations import tolerated, tolerates
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from tests.values import GIB, node, pod, template

PLUGINS: tuple[type[Plugin], ...] = (
    *FILTERS.values(),
    *SCORES.values(),
    *STRATEGIES.values(),
    *IN_FLIGHT.values(),
)
CURVE = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
NEEDED: dict[str, dict[str, Any]] = {
    "ResourceThreshold": {
        "resources": [
            {"name": "cpu", "threshold": 80},
            {"name": "cpu", "threshold": 80, "of": "measured"},
            {"name": "memory", "threshold": 80, "of": "measured"},
        ],
        "inFlight": True,
    },
    "Peaks": {"nodePowerModel": {"n": {"k1": 1}}},
    "PeaksInFlight": {"nodePowerModel": {"n": {"k1": 1}}},
    "GlobalVariance": {"of": "measured", "inFlight": True},
    "SearchScore": {"load": "measured", "inFlight": True},
    "TargetLoadPacking": {"resource": "memory"},
    "RequestedToCapacityRatio": {"scoringStrategy": {"requestedToCapacityRatio": CURVE}},
}
"""Arguments without which a plugin cannot be, or does not read all that it ever reads."""
OF_PLATFORMS = ("ColocationFit", "ResourceThreshold", "MaxMemorySum", "MasterShare", "PeakUsage")
"""Filters that a profile has only when it says so."""


def attempt(profile: Profile, nodes: list[NodeSpec], *pods: PodSpec) -> Attempt:
    """Return the attempt of the last pod."""
    scheduler = Scheduler({profile.name: profile}, seed=1)
    for spec in nodes:
        scheduler.fold(NodeUpserted(spec))
    for each in pods:
        scheduler.fold(PodUpserted(each))
    return scheduler.cycle().attempts[-1]


def only(filter_: str, **args: Any) -> Profile:
    """Return a default profile with one filter and no score."""
    return Profile(name="default-scheduler", filters=(PluginUse(name=filter_, args=args),))


def rated(use: PluginUse, nodes: list[NodeSpec], shape: PodTemplate, *others: PodSpec) -> dict[str, float]:
    """Return the score of every node."""
    profile = Profile(name="default-scheduler", scores=(use,))
    candidates = attempt(profile, nodes, *others, pod("rated", shape)).candidates
    return {candidate.node: round(candidate.score, 6) for candidate in candidates}


def allocated(kind: str, *resources: dict[str, Any]) -> PluginUse:
    strategy: dict[str, Any] = {"type": kind, **({"resources": list(resources)} if resources else {})}
    return PluginUse(name="NodeResourcesFit", args={"scoringStrategy": strategy})


# ---------------------------------------------------------------------------------------------- contract


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: f"{plugin.__module__}.{plugin.__name__}")
def test_declares_fields_that_exist_and_says_where_it_comes_from(plugin: type[Plugin]) -> None:
    fields = {field.name for field in msgspec.structs.fields(PodTemplate)}
    assert plugin.reads <= fields
    assert plugin.__doc__ is not None
    assert "Source:" in plugin.__doc__


class Reader:
    """A template that notes which of its fields are looked at."""

    def __init__(self, shape: PodTemplate) -> None:
        self._shape = shape
        self.read: set[str] = set()

    def __getattr__(self, field: str) -> Any:
        self.read.add(field)
        return getattr(self._shape, field)


def ask(plugin: Plugin, shape: Any, state: ClusterState) -> None:
    """Put to a plugin every question that its kind answers."""
    view, rows = NodeView(state), np.arange(state.table.count)
    if isinstance(plugin, StaticFilter):
        plugin.refuse(shape, view, rows)
    if isinstance(plugin, LimitFilter):
        plugin.limits(shape, state.resources)
    if isinstance(plugin, ResourceFilter | FirmFilter):
        plugin.demands(shape, state.resources)
    if isinstance(plugin, RelativeScore):
        plugin.parts(shape, state.resources)
    if isinstance(plugin, ResourceScore):
        plugin.term(shape, state.resources)
    if isinstance(plugin, CountFilter | CountScore):
        incoming = Incoming(shape, "ns", {}, None, PodsKnown(state))
        if isinstance(plugin, CountFilter):
            plugin.rules(incoming)
        else:
            plugin.values(incoming)
    if isinstance(plugin, StaticScore):
        measured = Measured(avg=50.0, std=10.0)
        plugin.raw(shape, NodeView(state, {"n": {"cpu": measured, "memory": measured}}), rows)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: f"{plugin.__module__}.{plugin.__name__}")
def test_reads_the_fields_that_it_declares_and_no_others(plugin: type[Plugin]) -> None:
    """Groups that agree in these fields share the answers of static plugins."""
    requirement = Requirement("k", "In", ("v",))
    rich = template(
        1, GIB, 80,
        requests={"x.io/a": 1},
        node_selector={"k": "v"},
        node_affinity=NodeAffinity(required=(NodeSelectorTerm((requirement,)),)),
        tolerations=(Toleration("k"),),
        node_name="n",
        role="master",
        cluster="c",
        spread=tuple(
            SpreadConstraint(topology_key="zone", selector=LabelSelector(), honours_taints=True, hard=hard)
            for hard in (True, False)
        ),
        pod_affinity=PodAffinity(required=(AffinityTerm(topology_key="zone", namespaces=("ns",)),)),
        pod_anti_affinity=PodAffinity(required=(AffinityTerm(topology_key="zone", namespaces=("ns",)),)),
    )  # fmt: skip
    state = ClusterState(seed=1)
    state.apply(NodeUpserted(node("n", unschedulable=True, taints=(Taint("k"),), labels={"k": "v"})))
    read = set()
    for shape in (rich, template()):
        reader = Reader(shape)
        ask(plugin(NEEDED.get(plugin.__name__, {}), ""), reader, state)
        read |= reader.read
    assert read == plugin.reads


def test_static_answers_are_shared_only_within_a_profile_and_its_revision() -> None:
    profile = BUILT_IN_PROFILES["first-fit"]
    plan = ProfilePlan(profile)
    view = NodeView(ClusterState(seed=1))
    key = plan.static_key(template(1), view)
    assert plan.static_key(template(2, GIB, 80, priority=3), view) == key
    assert plan.static_key(template(1, node_selector={"a": "b"}), view) != key
    assert ProfilePlan(msgspec.structs.replace(profile, revision=2)).static_key(template(1), view) != key
    assert ProfilePlan(msgspec.structs.replace(profile, name="other")).static_key(template(1), view) != key


@pytest.mark.parametrize("profile", BUILT_IN_PROFILES.values(), ids=lambda profile: profile.name)
def test_built_in_profiles_use_kubernetes_filters_and_stay_within_the_kernel(profile: Profile) -> None:
    plan = ProfilePlan(profile)
    firm = () if plan.firm is None else (plan.firm.name,)
    named = [name for name in FILTERS if name not in OF_PLATFORMS or name in firm]
    assert [use.name for use in profile.filters] == named
    assert plan.fit is not None
    assert sum(len(plugin.reasons) for _, plugin in plan.static_filters) <= STATIC_MAX
    assert len(plan.resource_scores) <= TERMS_MAX
    resources = {f"x.io/r{i}": 1 for i in range(requested_resources_max)}
    shape = template(requests=resources)
    index = ClusterState(seed=1).resources
    demands, firm_count = plan.demands(shape, index)
    assert len(demands) - firm_count == requested_resources_max + 1 <= DEMANDS_MAX - FirmFilter.demands_max
    parts = [part for use in plan.resource_scores for part in use.plugin.term(shape, index).parts]
    assert len(parts) <= PARTS_MAX


@pytest.mark.parametrize(
    ("profile", "path", "word"),
    [
        (only("Nonsense"), "filters[0].name", "NodeUnschedulable"),
        (only("NodeName", x=1), "filters[0].args.x", "takes none"),
        (
            Profile(name="p", filters=(PluginUse(name="NodePorts"), PluginUse(name="NodePorts"))),
            "filters[1].name",
            "twice",
        ),
        (only("NodeResourcesFit", x=1), "filters[0].args.x", "ignoredResources"),
        (Profile(name="p", scores=(PluginUse(name="NodeName"),)), "scores[0].name", "FirstFit"),
        (
            Profile(name="p", scores=(allocated("Most"),)),
            "scores[0].args.scoringStrategy.type",
            "LeastAllocated",
        ),
        (
            Profile(name="p", scores=(allocated("MostAllocated", {"name": "cpu", "weight": 101}),)),
            "scores[0].args.scoringStrategy.resources[0].weight",
            "1..100",
        ),
    ],
)
def test_a_profile_that_makes_no_sense_names_the_field_and_what_is_allowed(
    profile: Profile, path: str, word: str
) -> None:
    with pytest.raises(FieldError) as error:
        ProfilePlan(profile)
    assert error.value.path == path
    assert word in error.value.message


# ----------------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("filter_", "spec", "shape", "reason", "unresolvable"),
    [
        ("NodeUnschedulable", node("n", unschedulable=True), template(1), "node-unschedulable", True),
        ("NodeName", node("n"), template(1, node_name="m"), "node-name", True),
        ("TaintToleration", node("n", taints=(Taint("k"),)), template(1), "untolerated-taint", True),
        ("NodeAffinity", node("n"), template(1, node_selector={"a": "b"}), "node-affinity", True),
        (
            "NodeDeclaredFeatures",
            node("n", declared_features=("a",)),
            template(1, features=("a", "b")),
            "node-declared-features",
            True,
        ),
        ("NodeResourcesFit", node("n", cpu=1), template(2), "insufficient:cpu", True),
        ("NodeResourcesFit", node("n", pods=0), template(1), "too-many-pods", False),
        ("NodeResourcesFit", node("n"), template(requests={"x.io/a": 1}), "insufficient:x.io/a", True),
        (
            "NodeResourcesFit",
            node("n", cpu=1, memory=1),
            template(2, 2, requests={"x.io/a": 1, "ephemeral-storage": 1}),
            "insufficient:cpu,insufficient:memory,insufficient:ephemeral-storage,insufficient:x.io/a",
            True,
        ),
    ],
)
def test_a_filter_gives_its_reason(
    filter_: str, spec: NodeSpec, shape: PodTemplate, reason: str, unresolvable: bool
) -> None:
    found = attempt(only(filter_), [spec], pod("p", shape))
    assert found.reasons == found.reasons_at_failure == {reason: 1}
    assert (found.unresolvable, found.feasible_count) == (unresolvable, 0)


def test_what_other_pods_occupy_is_resolvable() -> None:
    full = attempt(only("NodeResourcesFit"), [node("n", pods=1)], pod("q", on="n"), pod("p"))
    assert (full.reasons, full.unresolvable) == ({"too-many-pods": 1}, False)
    taken = template(1, 0, 80)
    port = attempt(only("NodePorts"), [node("n")], pod("q", taken, on="n"), pod("p", taken))
    assert (port.reasons, port.unresolvable) == ({"host-port-conflict": 1}, False)


def test_only_the_first_filter_that_refuses_is_counted() -> None:
    profile = BUILT_IN_PROFILES["default-scheduler"]
    nodes = [
        node("a", unschedulable=True, taints=(Taint("k"),), cpu=0),
        node("b", taints=(Taint("k"),), cpu=0),
        node("c", cpu=0),
        node("d", cpu=0, pods=0),
    ]
    found = attempt(profile, nodes, pod("p", template(1)))
    assert found.reasons == {
        "node-unschedulable": 1,
        "untolerated-taint": 1,
        "insufficient:cpu": 1,
        "too-many-pods,insufficient:cpu": 1,
    }


def test_a_node_that_declares_all_features_takes_the_pod() -> None:
    able = node("n", declared_features=("a", "b", "c"))
    asking = pod("p", template(1, features=("a", "b")))
    assert attempt(only("NodeDeclaredFeatures"), [able], asking).bound_count


def test_a_pod_that_names_nodes_is_refused_by_all_others_for_that() -> None:
    """Upstream asks no filter about the others, so a cordon or a taint there is no reason."""
    nodes = [node("a", unschedulable=True), node("b", unschedulable=True), node("c", unschedulable=True)]

    def reasons(*names: tuple[str, ...]) -> dict[str, int]:
        terms = tuple(
            NodeSelectorTerm((), tuple(Requirement("metadata.name", "In", (name,)) for name in each))
            for each in names
        )
        asking = template(1, node_affinity=NodeAffinity(required=terms))
        return attempt(BUILT_IN_PROFILES["default-scheduler"], nodes, pod("p", asking)).reasons

    assert reasons(("a",)) == {"node-unschedulable": 1, "node-affinity": 2}
    assert reasons(("a",), ("c", "c")) == {"node-unschedulable": 2, "node-affinity": 1}
    assert reasons(("a", "b")) == {"node-affinity": 3}
    assert reasons(("a",), ()) == {"node-unschedulable": 3}


def test_a_cordoned_node_takes_a_pod_that_tolerates_the_cordon() -> None:
    shape = template(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert attempt(only("NodeUnschedulable"), [node("n", unschedulable=True)], pod("p", shape)).bound_count


def test_prefer_no_schedule_repels_nobody() -> None:
    spec = node("n", taints=(Taint("k", "", "PreferNoSchedule"),))
    assert attempt(only("TaintToleration"), [spec], pod("p")).bound_count


@pytest.mark.parametrize("args", [{"ignoredResources": ["x.io/a"]}, {"ignoredResourceGroups": ["x.io"]}])
def test_ignored_resources_are_not_checked(args: dict[str, Any]) -> None:
    shape = template(requests={"x.io/a": 1})
    assert attempt(only("NodeResourcesFit", **args), [node("n")], pod("p", shape)).bound_count
    other = template(requests={"y.io/a": 1})
    assert not attempt(only("NodeResourcesFit", **args), [node("n")], pod("p", other)).bound_count


@pytest.mark.parametrize(
    ("toleration", "taint", "covered"),
    [
        (Toleration("k", "Equal", "v"), Taint("k", "v"), True),
        (Toleration("k", "Equal", "w"), Taint("k", "v"), False),
        (Toleration("k"), Taint("k"), True),
        (Toleration("", "Equal", "v"), Taint("k", "v"), False),
        (Toleration("k", "Exists"), Taint("k", "v"), True),
        (Toleration("j", "Exists"), Taint("k", "v"), False),
        (Toleration(operator="Exists"), Taint("k", "v", "NoExecute"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), Taint("k", "v", "NoExecute"), False),
        (Toleration("k", "Exists", effect="NoExecute"), Taint("k", "v", "NoExecute"), True),
        (Toleration("k", "Gt", "5"), Taint("k", "6"), False),
        (Toleration("k", "Lt", "5"), Taint("k", "4"), False),
    ],
)
def test_toleration(toleration: Toleration, taint: Taint, covered: bool) -> None:
    assert tolerates(toleration, taint) is covered
    assert tolerated(taint, ()) is False
    assert tolerated(taint, (Toleration("other", "Exists"), toleration)) is covered


@pytest.mark.parametrize(
    ("labels", "requirement", "matched"),
    [
        ({"k": "v"}, Requirement("k", "In", ("u", "v")), True),
        ({"k": "v"}, Requirement("k", "In", ("u",)), False),
        ({}, Requirement("k", "In", ("u",)), False),
        ({"k": "v"}, Requirement("k", "NotIn", ("u",)), True),
        ({"k": "v"}, Requirement("k", "NotIn", ("v",)), False),
        ({}, Requirement("k", "NotIn", ("v",)), True),
        ({"k": ""}, Requirement("k", "Exists"), True),
        ({}, Requirement("k", "Exists"), False),
        ({}, Requirement("k", "DoesNotExist"), True),
        ({"k": ""}, Requirement("k", "DoesNotExist"), False),
        ({"k": "10"}, Requirement("k", "Gt", ("9",)), True),
        ({"k": "9"}, Requirement("k", "Gt", ("9",)), False),
        ({"k": "10"}, Requirement("k", "Gt", ("-9",)), False),
        ({"k": "10"}, Requirement("k", "Gt", ("+9",)), False),
        ({"k": "x"}, Requirement("k", "Lt", ("9",)), False),
        ({}, Requirement("k", "Lt", ("9",)), False),
        ({"k": "1_0"}, Requirement("k", "Gt", ("9",)), False),
        ({"k": "9223372036854775807"}, Requirement("k", "Gt", ("9",)), True),
        ({"k": "9223372036854775808"}, Requirement("k", "Gt", ("9",)), False),
        ({"k": "0" * 60 + "11"}, Requirement("k", "Gt", ("9",)), True),
    ],
)
def test_requirement_on_a_label(labels: dict[str, str], requirement: Requirement, matched: bool) -> None:
    alone = [node("n", labels=labels)]
    for nodes in (alone, [node("z", labels={"k": "other", "l": "v"}), *alone]):
        state = ClusterState(seed=1)
        for spec in nodes:
            state.apply(NodeUpserted(spec))
        found = match_term(NodeSelectorTerm((requirement,)), state.table, np.arange(len(nodes)))
        assert found.tolist()[-1] == matched


@pytest.mark.parametrize(
    ("terms", "matched"),
    [
        ((), False),
        ((NodeSelectorTerm(),), False),
        ((NodeSelectorTerm((), (Requirement("metadata.name", "In", ("n",)),)),), True),
        ((NodeSelectorTerm((), (Requirement("metadata.name", "NotIn", ("n",)),)),), False),
        ((NodeSelectorTerm((Requirement("k", "Exists"), Requirement("l", "Exists"))),), False),
        (
            (
                NodeSelectorTerm((Requirement("l", "Exists"),)),
                NodeSelectorTerm((Requirement("k", "Exists"),)),
            ),
            True,
        ),
    ],
)
def test_required_terms_are_alternatives_and_an_empty_one_matches_nothing(
    terms: tuple[NodeSelectorTerm, ...], matched: bool
) -> None:
    shape = template(1, node_affinity=NodeAffinity(required=terms))
    found = attempt(only("NodeAffinity"), [node("n", labels={"k": "v"})], pod("p", shape))
    assert found.bound_count == matched


@pytest.mark.parametrize(
    ("held", "wanted", "conflict"),
    [
        (HostPort(80), HostPort(80), True),
        (HostPort(80), HostPort(81), False),
        (HostPort(80), HostPort(80, "UDP"), False),
        (HostPort(80), HostPort(80, host_ip="10.0.0.1"), True),
        (HostPort(80, host_ip="10.0.0.1"), HostPort(80), True),
        (HostPort(80, host_ip="10.0.0.1"), HostPort(80, host_ip="10.0.0.2"), False),
        (HostPort(80, host_ip=""), HostPort(80, host_ip="10.0.0.2"), True),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["held before", "held in the same cycle"])
def test_host_ports(held: HostPort, wanted: HostPort, conflict: bool, before: bool) -> None:
    holder = pod("holder", template(1, host_ports=(held,)), on="n" if before else "")
    found = attempt(only("NodePorts"), [node("n")], holder, pod("p", template(2, host_ports=(wanted,))))
    assert found.bound_count == (not conflict)


def test_pods_of_one_group_with_a_host_port_go_to_different_nodes() -> None:
    pods = [pod(f"p{i}", template(1, 0, 80)) for i in range(3)]
    found = attempt(BUILT_IN_PROFILES["default-scheduler"], [node("a"), node("b")], *pods)
    assert (found.pods_count, found.bound_count) == (3, 2)
    assert found.reasons_at_failure == {"host-port-conflict": 2}


# ------------------------------------------------------------------------------------------------ scores


def test_least_allocated_prefers_the_emptier_and_most_allocated_the_fuller_node() -> None:
    nodes = [node("half", cpu=2_000, memory=4 * GIB), node("whole", cpu=4_000, memory=8 * GIB)]
    shape = template(1_000, 2 * GIB)
    assert rated(allocated("LeastAllocated"), nodes, shape) == {"whole": 75.0, "half": 50.0}
    assert rated(allocated("MostAllocated"), nodes, shape) == {"half": 50.0, "whole": 25.0}


def test_what_runs_on_the_node_counts_with_its_non_zero_request() -> None:
    others = [pod("q", template(), on="n"), pod("r", template(700, GIB), on="n")]
    (score,) = rated(allocated("LeastAllocated"), [node("n")], template(), *others).values()
    cpu = (4_000 - 900) * 100 / 4_000
    memory = (8 * GIB - 2 * (200 << 20) - GIB) * 100 / (8 * GIB)
    assert score == round((cpu + memory) / 2, 6)


def test_weights_and_resources_that_a_node_or_a_pod_does_not_have() -> None:
    gpu = {"name": "nvidia.com/gpu", "weight": 3}
    nodes = [node("with", extended={"nvidia.com/gpu": 4}), node("without")]
    use = allocated("MostAllocated", {"name": "cpu", "weight": 1}, gpu)
    asks = template(1_000, requests={"nvidia.com/gpu": 2})
    assert rated(use, nodes, asks) == {"with": (25 + 3 * 50) / 4, "without": 25.0}
    assert rated(use, nodes, template(1_000)) == {"with": 25.0, "without": 25.0}
    assert rated(allocated("MostAllocated", gpu), nodes, template(1)) == {"with": 0.0, "without": 0.0}


@pytest.mark.parametrize(("kind", "score"), [("LeastAllocated", 0.0), ("MostAllocated", 100.0)])
def test_a_node_over_its_capacity_scores_as_a_full_one(kind: str, score: float) -> None:
    use = allocated(kind, {"name": "cpu"})
    assert rated(use, [node("n", cpu=1_000)], template(500), pod("q", template(900), on="n")) == {"n": score}


def test_first_fit_prefers_the_node_that_joined_first_whatever_its_name() -> None:
    nodes = [node("z"), node("a"), node("m")]
    assert rated(PluginUse(name="FirstFit"), nodes, template(1)) == {"z": 100.0, "a": 50.0, "m": 33.333333}


def test_scores_add_up_with_their_weights() -> None:
    first_fit = PluginUse(name="FirstFit", weight=2.0)
    least = msgspec.structs.replace(allocated("LeastAllocated", {"name": "cpu"}), weight=3.0)
    profile = Profile(name="default-scheduler", scores=(least, first_fit))
    (candidate,) = attempt(profile, [node("n")], pod("p", template(1_000))).candidates
    assert candidate.parts == {"FirstFit": 100.0, "NodeResourcesFit": 75.0}
    assert candidate.score == 2 * 100.0 + 3 * 75.0


def test_equal_nodes_share_the_load_by_seed() -> None:
    nodes = [node(f"n{i}") for i in range(50)]
    first = [attempt_with_seed(seed, nodes) for seed in range(40)]
    assert len(set(first)) > 20
    assert [attempt_with_seed(seed, list(reversed(nodes))) for seed in range(40)] == first


def attempt_with_seed(seed: int, nodes: list[NodeSpec]) -> str:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=seed)
    for spec in nodes:
        scheduler.fold(NodeUpserted(spec))
    scheduler.fold(PodUpserted(pod("p")))
    return scheduler.cycle().attempts[0].candidates[0].node
