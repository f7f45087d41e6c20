"""Which change wakes a pod that a filter refused, and which does not: every filter against every change.

The refused pod waits for the only node, ``a``, on which a small pod runs. Each change is told alone. What a
filter can be cured by must place the pod; anything else must not cost an attempt, but for ``costs_in_vain``.
There is room on the node except where room is the matter, so that nothing but the filter keeps the pod out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Failure, Placement
from domain.model.colocation import Amounts, UseByQuality
from domain.model.config import NAMESPACE, Namespace
from domain.model.events import (
    ConfigUpserted,
    Event,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
)
from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import CpuClaim, MemoryClaim, NodeSelectorTerm, PodSpec, PodTemplate, Requirement
from domain.model.pods import NodeAffinity as Affinity
from domain.model.profiles import PluginUse, Profile
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
)
from domain.model.usage import NodeUsage
from domain.plugins.registry import FILTERS
from tests.values import GIB, node, pod, template

DAY_MS = 86_400_000
BLUE = LabelSelector((LabelRequirement("team", "In", ("blue",)),))
WEB = LabelSelector((LabelRequirement("app", "In", ("web",)),))
SMALL = template(100)


class Case(NamedTuple):
    """A filter, the pod that it refuses on node ``a``, and what cures that.

    ``cured_by`` names the changes that let the pod in, of those of ``changes_of``. ``changes`` replaces some:
    what is of no use to one filter may be what another waits for.
    """

    filter: str
    reason: str
    cured_by: frozenset[str]
    waits: PodTemplate = SMALL
    args: Mapping[str, Any] = {}
    spec: NodeSpec = node("a", labels={"zone": "a"})
    before: tuple[Event, ...] = ()
    changes: Mapping[str, Event] = {}
    labels: Mapping[str, str] = {}


def labelled(spec: PodSpec, **labels: str) -> PodSpec:
    return msgspec.structs.replace(spec, labels=labels)


def used(percent: float, at_ms: int, resource: str = "cpu") -> Event:
    return NodeUsed(NodeUsage(node="a", at_ms=at_ms, percent={resource: percent}))


def namespace(team: str, version: int) -> Event:
    return ConfigUpserted(NAMESPACE, "", "default", Namespace(labels={"team": team}), version)


def changes_of(case: Case) -> dict[str, Event]:
    """Return everything that may happen, by name."""
    spec = msgspec.structs.replace(case.spec, resource_version=2)
    changes: dict[str, Event] = {
        "a node comes": NodeUpserted(node("b", labels={"zone": "b", "disk": "ssd"})),
        "the node is relabelled": NodeUpserted(
            msgspec.structs.replace(spec, labels={**spec.labels, "disk": "ssd"})
        ),
        "the node loses its taints": NodeUpserted(msgspec.structs.replace(spec, taints=())),
        "the node is uncordoned": NodeUpserted(msgspec.structs.replace(spec, unschedulable=False)),
        "the node grows": NodeUpserted(
            msgspec.structs.replace(
                spec, allocatable={name: 2 * amount for name, amount in spec.allocatable.items()}
            )
        ),
        "the node declares more": NodeUpserted(
            msgspec.structs.replace(spec, declared_features=("RestartAllContainersOnContainerExits",))
        ),
        "the pod there leaves": PodDeleted("default", "there"),
        "another pod leaves": PodDeleted("default", "tiny"),
        "a pod comes there": PodUpserted(labelled(pod("new", template(1), on="a"), app="db")),
        "a pod waits": PodUpserted(pod("other", template(1, priority=-1))),
        "the node is measured": used(10.0, 2 * DAY_MS),
        "its namespace is relabelled": namespace("red", 2),
        "a pod comes that it asks for": PodUpserted(labelled(pod("asked", template(1), on="a"), app="web")),
    }
    return changes | dict(case.changes)


def affine(**fields: Any) -> PodAffinity:
    term = AffinityTerm(topology_key="zone", selector=WEB, namespaces=("default",), **fields)
    return PodAffinity(required=(term,))


def there(of: PodTemplate, **labels: str) -> Event:
    return PodUpserted(labelled(pod("there", of, on="a"), **labels))


def used_by_high(cpu_milli: int, at_ms: int) -> Event:
    use = UseByQuality(high=Amounts(cpu_milli))
    return NodeUsed(NodeUsage(node="a", at_ms=at_ms, percent={"cpu": 1.0}, quality=use))


COMES, GROWS, LEAVES = "a node comes", "the node grows", "the pod there leaves"
LABEL, MEASURED, ASKED = "the node is relabelled", "the node is measured", "a pod comes that it asks for"
NAMESPACE_CHANGES = "its namespace is relabelled"
MASTER = template(100, cluster="default/c", role="master")
BORROWS = template(100, cpu_claim=CpuClaim(fixed_milli=3_000), memory_claim=MemoryClaim())
GREEDY = template(100, limits={"memory": 6 * GIB})
RESTARTS = template(100, features=("RestartAllContainersOnContainerExits",))
OF_BLUE = template(
    100,
    pod_anti_affinity=PodAffinity(
        required=(
            AffinityTerm(
                topology_key="zone", selector=LabelSelector(), namespaces=(), namespace_selector=BLUE
            ),
        )
    ),
)
FULL_B = NodeUpserted(node("full", cpu=100, labels={"zone": "b"}))
THRESHOLD = {"resources": [{"name": "cpu", "threshold": 50}]}
CASES = (
    Case("NodeUnschedulable", "node-unschedulable", frozenset({COMES, "the node is uncordoned"}),
         spec=node("a", unschedulable=True, labels={"zone": "a"})),
    Case("NodeName", "node-name", frozenset({COMES}), waits=template(100, node_name="b")),
    Case("TaintToleration", "untolerated-taint", frozenset({COMES, "the node loses its taints"}),
         spec=node("a", taints=(Taint("t"),), labels={"zone": "a"})),
    Case("NodeAffinity", "node-affinity", frozenset({COMES, LABEL}),
         waits=template(100, node_affinity=Affinity(
             required=(NodeSelectorTerm((Requirement("disk", "In", ("ssd",)),)),)))),
    Case("NodeDeclaredFeatures", "node-declared-features", frozenset({"the node declares more"}),
         waits=RESTARTS),
    Case("NodePorts", "host-port-conflict", frozenset({COMES, LEAVES}), waits=template(100, 0, 80),
         before=(there(template(100, 0, 80)),)),
    Case("NodeResourcesFit", "insufficient:cpu", frozenset({COMES, GROWS, LEAVES}), waits=template(3_000),
         before=(there(template(3_000)),)),
    Case("ColocationFit", "insufficient-room:cpu", frozenset({GROWS, MEASURED}), waits=BORROWS,
         before=(used_by_high(2_000, DAY_MS),), changes={MEASURED: used_by_high(100, 2 * DAY_MS)}),
    Case("ColocationFit", "insufficient-room:cpu", frozenset({GROWS, LEAVES}), waits=BORROWS,
         before=(used_by_high(100, DAY_MS), there(BORROWS)),
         changes={MEASURED: used_by_high(100, 2 * DAY_MS)}),
    Case("PodTopologySpread", "topology-spread", frozenset({COMES, LEAVES, ASKED}),
         waits=template(200, spread=(SpreadConstraint(topology_key="zone", selector=WEB),)),
         labels={"app": "web"}, before=(FULL_B, there(SMALL, app="web")),
         changes={ASKED: PodUpserted(labelled(pod("asked", template(1), on="full"), app="web"))}),
    Case("InterPodAffinity", "pod-affinity", frozenset({ASKED}), waits=template(100, pod_affinity=affine())),
    Case("InterPodAffinity", "pod-anti-affinity", frozenset({COMES, LEAVES}),
         waits=template(100, pod_anti_affinity=affine()), before=(there(SMALL, app="web"),)),
    Case("InterPodAffinity", "existing-pod-anti-affinity", frozenset({COMES, LEAVES, NAMESPACE_CHANGES}),
         before=(namespace("blue", 1), PodUpserted(pod("there", OF_BLUE, on="a", namespace="other"))),
         changes={LEAVES: PodDeleted("other", "there")}),
    Case("ResourceThreshold", "over-threshold:cpu", frozenset({COMES, GROWS, LEAVES}), args=THRESHOLD,
         waits=template(1_500), before=(there(template(1_500)),)),
    Case("ResourceThreshold", "over-threshold-measured:cpu", frozenset({COMES, MEASURED}),
         args={"resources": [{"name": "cpu", "threshold": 50, "of": "measured"}]},
         before=(used(90.0, DAY_MS),)),
    Case("MaxMemorySum", "max-memory-sum", frozenset({COMES, GROWS, LEAVES}), waits=GREEDY,
         before=(there(GREEDY),)),
    Case("MasterShare", "master-share", frozenset({COMES, LEAVES}), waits=MASTER, before=(there(MASTER),)),
    Case("PeakUsage", "peak-usage:cpu", frozenset({COMES, MEASURED}),
         before=(used(90.0, DAY_MS), used(10.0, 2 * DAY_MS)), changes={MEASURED: used(10.0, 3 * DAY_MS)}),
)  # fmt: skip

ROOM = {"insufficient:cpu", "insufficient-room:cpu"}
ROOM_OF_ANOTHER = {
    "host-port-conflict",
    "over-threshold:cpu",
    "max-memory-sum",
    "master-share",
    "topology-spread",
}
IN_VAIN = {
    *((reason, "another pod leaves") for reason in ROOM_OF_ANOTHER),
    *((reason, NAMESPACE_CHANGES) for reason in ("topology-spread", "pod-affinity", "pod-anti-affinity")),
    *((reason, COMES) for reason in ("pod-affinity", "node-declared-features")),
    ("pod-anti-affinity", ASKED),
}


def costs_in_vain(case: Case, change: str) -> bool:
    """Say whether a change that does not cure costs one attempt, as it would cost more to know that.

    A node with room that changed its spec is looked at by all whom a node may cure. It may be another pod
    that leaves than the one that matters; and a counter may move the wrong way.
    """
    is_other_spec = change in {LABEL, GROWS, "the node declares more"} and case.reason not in ROOM
    return is_other_spec or (case.reason, change) in IN_VAIN


def test_every_filter_is_here() -> None:
    assert {case.filter for case in CASES} == set(FILTERS)


def waiting_for(case: Case) -> Scheduler:
    """Return a scheduler in which the pod of a case was refused for its reason, and nothing is to be done."""
    filters = {"NodeResourcesFit": {}, case.filter: dict(case.args)}
    uses = tuple(PluginUse(name=name, args=args) for name, args in filters.items())
    profile = Profile(name="default-scheduler", filters=uses, scores=())
    scheduler = Scheduler({profile.name: profile}, seed=1)
    spec = labelled(pod("p", case.waits), **case.labels)
    tiny = PodUpserted(pod("tiny", template(1), on="a"))
    for event in (NodeUpserted(case.spec), tiny, *case.before, PodUpserted(spec)):
        scheduler.fold(event)
    result = scheduler.cycle()
    (failure,) = (each for each in result.verdicts if isinstance(each, Failure))
    assert failure.pod.name == "p"
    assert case.reason in result.attempts[failure.attempt].reasons_at_failure
    while scheduler.has_work:
        scheduler.cycle()
    return scheduler


@pytest.mark.parametrize("change", changes_of(CASES[0]))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_a_change_wakes_whom_it_cures_and_nobody_else(case: Case, change: str) -> None:
    scheduler = waiting_for(case)
    scheduler.fold(changes_of(case)[change])
    signature, tried, placed = scheduler.state.pods["default/p"].spec.signature, 0, set()
    for _ in range(5):
        result = scheduler.cycle()
        tried += sum(attempt.signature == signature for attempt in result.attempts)
        placed |= {each.pod.name for each in result.verdicts if isinstance(each, Placement)}
    assert not scheduler.has_work
    assert ("p" in placed) is (change in case.cured_by)
    assert tried == (change in case.cured_by or costs_in_vain(case, change))
