"""Are pods that wait for other pods tried again when those come, go or change, and not before?"""

from __future__ import annotations

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.model.config import NAMESPACE, Namespace
from domain.model.events import ConfigUpserted, Event, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.pods import PodSpec
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
)
from domain.plugins import registry
from domain.plugins.filters.inter_pod_affinity import InterPodAffinity
from domain.plugins.filters.pod_topology_spread import PodTopologySpread
from tests.values import node, pod, template

FILTERS_ASKED = ("NodeResourcesFit", "PodTopologySpread", "InterPodAffinity")


def web(key: str = "app", value: str = "web") -> LabelSelector:
    return LabelSelector((LabelRequirement(key, "In", (value,)),))


def term(topology_key: str = "zone") -> AffinityTerm:
    return AffinityTerm(topology_key=topology_key, selector=web(), namespaces=("default",))


AFFINE = template(10, pod_affinity=PodAffinity(required=(term(),)))
APART = template(10, pod_anti_affinity=PodAffinity(required=(term(),)))
SPREAD = template(10, spread=(SpreadConstraint(topology_key="zone", selector=web()),))
WEB = {"app": "web"}


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    known = {**registry.FILTERS, **{each.name: each for each in (PodTopologySpread, InterPodAffinity)}}
    monkeypatch.setattr(registry, "FILTERS", known)
    asked = tuple(PluginUse(name=name) for name in FILTERS_ASKED)
    profile = Profile(name="default-scheduler", filters=asked, scores=())
    made = Scheduler({**BUILT_IN_PROFILES, "default-scheduler": profile}, seed=1)
    told(made, *(NodeUpserted(node(f"n-{zone}", labels={"zone": zone})) for zone in "ab"))
    return made


def told(scheduler: Scheduler, *events: Event) -> dict[str, str]:
    """Fold events, run cycles until there is no work, and return who was placed where."""
    for event in events:
        scheduler.fold(event)
    placed: dict[str, str] = {}
    for _ in range(20):
        if not scheduler.has_work:
            return placed
        verdicts = scheduler.cycle().verdicts
        placed |= {v.pod.name: v.node for v in verdicts if isinstance(v, Placement)}
    raise AssertionError("the scheduler never comes to rest")


def labelled(spec: PodSpec, labels: dict[str, str]) -> PodSpec:
    return msgspec.structs.replace(spec, labels=labels)


def test_a_pod_that_comes_cures_affinity(scheduler: Scheduler) -> None:
    assert told(scheduler, PodUpserted(pod("p", AFFINE))) == {}
    assert told(scheduler, PodUpserted(labelled(pod("w", on="n-b"), WEB))) == {"p": "n-b"}


def test_a_pod_that_the_same_cycle_places_cures_affinity(scheduler: Scheduler) -> None:
    other = labelled(pod("w", template(10)), WEB)
    placed = told(scheduler, PodUpserted(pod("p", AFFINE)), PodUpserted(other))
    assert placed["p"] == placed["w"]


def test_a_pod_that_a_later_one_of_its_group_overtook_is_tried_again(scheduler: Scheduler) -> None:
    """The first finds no node, the second does: another pod was placed in between."""
    other = labelled(pod("w", template(10)), WEB)
    for each in (pod("first", AFFINE), other, pod("second", AFFINE)):
        scheduler.fold(PodUpserted(each))
    result = scheduler.cycle()
    (failure,) = (verdict for verdict in result.tried if not isinstance(verdict, Placement))
    assert failure.pod.name == "first"
    assert result.attempts[failure.attempt].reasons_at_failure == {"pod-affinity": 2}
    assert told(scheduler).keys() == {"first"}


def test_a_label_that_a_placed_pod_gets_cures_affinity(scheduler: Scheduler) -> None:
    told(scheduler, PodUpserted(pod("w", on="n-a")), PodUpserted(pod("p", AFFINE)))
    changed = labelled(pod("w", on="n-a", version=2), WEB)
    assert told(scheduler, PodUpserted(changed)) == {"p": "n-a"}


def test_a_pod_that_goes_opens_other_nodes_of_its_zone(scheduler: Scheduler) -> None:
    more = [NodeUpserted(node("m-a", labels={"zone": "a"}))]
    told(scheduler, *more, *(PodUpserted(labelled(pod(f"w-{z}", on=f"n-{z}"), WEB)) for z in "ab"))
    assert told(scheduler, PodUpserted(pod("p", APART))) == {}
    assert list(told(scheduler, PodDeleted("default", "w-a"))) == ["p"]
    assert scheduler.state.pods["default/p"].node in ("n-a", "m-a")


def test_a_node_that_goes_cures_spread(scheduler: Scheduler) -> None:
    """Zone b is full, so that nothing raises its count: only without it zone a is not too far ahead."""
    full = PodUpserted(pod("full", template(4_000), on="n-b"))
    web_a = PodUpserted(labelled(pod("w", on="n-a"), WEB))
    waits = labelled(pod("p", SPREAD), WEB)
    assert told(scheduler, full, web_a, PodUpserted(waits)) == {}
    assert told(scheduler, NodeDeleted("n-b")) == {"p": "n-a"}


def test_a_pod_that_comes_to_the_emptiest_zone_cures_spread(scheduler: Scheduler) -> None:
    full = PodUpserted(pod("full", template(4_000), on="n-b"))
    web_a = PodUpserted(labelled(pod("w", on="n-a"), WEB))
    assert told(scheduler, full, web_a, PodUpserted(labelled(pod("p", SPREAD), WEB))) == {}
    assert told(scheduler, PodUpserted(labelled(pod("w2", on="n-b"), WEB))) == {"p": "n-a"}


def test_what_moves_no_counter_costs_no_attempt(scheduler: Scheduler) -> None:
    assert told(scheduler, PodUpserted(pod("p", AFFINE))) == {}
    scheduler.fold(PodUpserted(labelled(pod("other", on="n-a"), {"app": "db"})))
    assert scheduler.cycle().attempts == []
    assert not scheduler.has_work


def test_labels_that_nobody_asks_for_make_no_group(scheduler: Scheduler) -> None:
    for i in range(5):
        scheduler.fold(PodUpserted(labelled(pod(f"p{i}", AFFINE), {"job": str(i), "app": "db"})))
    scheduler.cycle()
    assert len(scheduler.queue.groups) == 1


def test_pods_that_only_another_pod_tells_apart_are_two_groups(scheduler: Scheduler) -> None:
    """An anti-affinity refuses one of two pods of one template."""
    told(scheduler, PodUpserted(pod("apart", APART, on="n-a")), NodeDeleted("n-b"))
    for name, labels in (("w", WEB), ("d", {"app": "db"})):
        scheduler.fold(PodUpserted(labelled(pod(name, template(10)), labels)))
    assert told(scheduler) == {"d": "n-a"}


def test_a_term_tells_the_pods_of_each_of_its_namespaces_apart(scheduler: Scheduler) -> None:
    shunned = AffinityTerm(topology_key="zone", selector=web(), namespaces=("a", "b"))
    apart = template(10, pod_anti_affinity=PodAffinity(required=(shunned,)))
    told(scheduler, *(PodUpserted(pod(f"p-{zone}", apart, on=f"n-{zone}")) for zone in "ab"))
    for namespace in "ab":
        asked = labelled(pod("w", template(10), namespace=namespace), WEB)
        assert told(scheduler, PodUpserted(asked)) == {}


def test_a_namespace_that_no_longer_matches_cures_the_anti_affinity_of_others(scheduler: Scheduler) -> None:
    apart = AffinityTerm(
        topology_key="zone",
        selector=LabelSelector(),
        namespaces=(),
        namespace_selector=LabelSelector((LabelRequirement("team", "In", ("blue",)),)),
    )
    shape = template(10, pod_anti_affinity=PodAffinity(required=(apart,)))
    blue = ConfigUpserted(NAMESPACE, "", "default", Namespace(labels={"team": "blue"}), 1)
    told(scheduler, blue, *(PodUpserted(pod(f"w-{z}", shape, on=f"n-{z}", namespace="other")) for z in "ab"))
    assert told(scheduler, PodUpserted(pod("p", template(10)))) == {}
    red = ConfigUpserted(NAMESPACE, "", "default", Namespace(labels={"team": "red"}), 2)
    assert list(told(scheduler, red)) == ["p"]
