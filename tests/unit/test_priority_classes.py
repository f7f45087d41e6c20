"""Does a pod have the priority that its class says, wherever class and pod stand in the log?"""

from __future__ import annotations

from typing import Any

import pytest

from domain.manifests.priority_class import priority_class_from_manifest
from domain.model.errors import FieldError
from domain.model.events import ConfigDeleted, ConfigUpserted, PodUpserted
from domain.model.limits import priority_classes_max
from domain.model.pods import PodSpec, PodTemplate
from domain.state.changes import ConfigChanged, PodResolved, Refused, Skipped
from domain.state.cluster import ClusterState
from services.codec.decode import Decoder
from services.phrases import reason_in_words
from services.plan.objects import Given
from services.plan.plan import Plan
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC
from tests.builders import (
    Json,
    event_bytes,
    node_manifest,
    pod_manifest,
    priority_class_manifest,
    record,
)
from tests.property.site import Site, audit, kept

DECODER = Decoder()


def pod_event(name: str = "p", **spec: Any) -> PodUpserted:
    """Return a pod as a worker reads it; ``spec`` adds fields, ``version`` is its resource version."""
    manifest = pod_manifest(name, resource_version=spec.pop("version", None), spec=spec)
    event = DECODER.decode(record(PODS_TOPIC, event_bytes("ADDED", manifest))).event
    assert isinstance(event, PodUpserted)
    return event


def class_event(name: str, value: int = 1000, **fields: Any) -> ConfigUpserted:
    manifest = priority_class_manifest(name, value, **fields)
    event = DECODER.decode(record(CONFIG_TOPIC, event_bytes("ADDED", manifest))).event
    assert isinstance(event, ConfigUpserted)
    return event


def template_after(*events: ConfigUpserted | ConfigDeleted | PodUpserted) -> PodTemplate:
    state = ClusterState(seed=1)
    for event in events:
        state.apply(event)
    return state.pods["default/p"].spec.template


@pytest.mark.parametrize(
    ("name", "value"), [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
)
def test_the_systems_classes_are_known_without_any_object(name: str, value: int) -> None:
    template = template_after(pod_event(priorityClassName=name))
    assert (template.priority, template.missing) == (value, ())


def test_a_class_gives_priority_and_preemption_policy() -> None:
    never = class_event("high", 1000, preemptionPolicy="Never")
    template = template_after(never, pod_event(priorityClassName="high"))
    assert (template.priority, template.preemption_policy) == (1000, "Never")


def test_a_priority_that_the_pod_says_itself_wins() -> None:
    """A watch stream has both: the number is what admission made of the class."""
    template = template_after(class_event("high"), pod_event(priorityClassName="high", priority=7))
    assert (template.priority, template.priority_class) == (7, "")
    assert template == template_after(pod_event(priority=7))


def test_the_default_class_is_for_pods_that_say_nothing() -> None:
    classes = (class_event("low", 10, globalDefault=True), class_event("high", 20, globalDefault=True))
    assert template_after(*classes, pod_event()).priority == 10, "of several the lowest, as in Kubernetes"
    assert template_after(*classes, pod_event(priority=0)).priority == 0
    assert template_after(classes[1], pod_event()).priority == 20
    gone = ConfigDeleted("PriorityClass", "", "low")
    assert template_after(*classes, gone, pod_event()).priority == 20


def test_a_pod_keeps_what_its_class_said_when_it_came() -> None:
    first, later = class_event("high", 1000), class_event("high", 5)
    gone = ConfigDeleted("PriorityClass", "", "high")
    for change in (later, gone):
        assert template_after(first, pod_event(priorityClassName="high"), change).priority == 1000
        again = (pod_event(priorityClassName="high"), change, pod_event(priorityClassName="high"))
        assert template_after(first, *again).priority == 1000
    other = pod_event(priorityClassName="system-node-critical")
    assert template_after(first, pod_event(priorityClassName="high"), other).priority == 2_000_001_000
    assert (
        template_after(class_event("d", 9, globalDefault=True), pod_event(), gone, pod_event()).priority == 9
    )


def test_the_same_pod_again_changes_nothing() -> None:
    state = ClusterState(seed=1)
    for event in (class_event("high"), pod_event(priorityClassName="high")):
        state.apply(event)
    state.apply(class_event("high", 5))
    assert state.apply(pod_event(priorityClassName="high")) == (Skipped(),)


def test_a_pod_of_an_unknown_class_is_held_until_it_comes() -> None:
    state = ClusterState(seed=1)
    state.apply(pod_event(priorityClassName="high"))
    held = state.pods["default/p"].spec
    assert held.template.missing == ("unknown-priority-class:high",)
    assert state.apply(class_event("other")) == (
        ConfigChanged(state.config.known["PriorityClass", "", "other"]),
    )
    _, resolved = state.apply(class_event("high"))
    now: PodSpec = state.pods["default/p"].spec
    assert resolved == PodResolved(now, state.pods["default/p"].arrival, held)
    assert (now.template.priority, now.template.missing) == (1000, ())
    assert reason_in_words("unknown-priority-class:high") == "were not tried: there is no priority class high"


def test_older_news_of_a_class_changes_nothing() -> None:
    state = ClusterState(seed=1)
    state.apply(class_event("high", 1, resource_version=5))
    for version, why in ((5, "known"), (4, "older")):
        assert state.apply(class_event("high", 2, resource_version=version)) == (Skipped(why),)
    assert state.apply(ConfigDeleted("PriorityClass", "", "high", 4)) == (Skipped("older"),)
    assert isinstance(state.apply(ConfigDeleted("PriorityClass", "", "high", 7))[0], ConfigChanged)
    assert state.apply(class_event("high", 2, resource_version=6)) == (Skipped("older"),)
    assert state.apply(ConfigDeleted("PriorityClass", "", "never-seen", 6)) == (Skipped(),)


def test_there_are_not_more_classes_than_are_allowed() -> None:
    state = ClusterState(seed=1)
    for i in range(priority_classes_max):
        state.apply(class_event(f"c{i}"))
    (refused,) = state.apply(class_event("one-more"))
    assert isinstance(refused, Refused)
    assert "priority_classes_max" in refused.message
    state.apply(ConfigDeleted("PriorityClass", "", "c0"))
    assert isinstance(state.apply(class_event("one-more"))[0], ConfigChanged)


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (priority_class_manifest("high", 1_000_000_001), "object.value: 1000000001 is out of range"),
        (priority_class_manifest("high", 2**31), "object.value: 2147483648 is out of range"),
        (priority_class_manifest("system-mine", 5), "object.metadata.name: names beginning with system-"),
        (priority_class_manifest("system-node-critical", 5), "object.metadata.name: names beginning"),
        (priority_class_manifest("high", preemptionPolicy="Maybe"), "object.preemptionPolicy: 'Maybe'"),
        (
            priority_class_manifest("high", globalDefault="yes"),
            "object.globalDefault: expected true",
        ),
        (priority_class_manifest("HIGH"), "object.metadata.name: 'HIGH' is not a name"),
        ({"kind": "PriorityClass", "metadata": {"name": "high"}}, "object.value: is missing"),
    ],
)
def test_what_kubernetes_refuses_is_refused(manifest: Json, problem: str) -> None:
    with pytest.raises(FieldError) as caught:
        priority_class_from_manifest(manifest)
    assert str(caught.value).startswith(problem)
    rejected = DECODER.decode(record(CONFIG_TOPIC, event_bytes("ADDED", manifest))).rejected
    assert rejected is not None
    assert f"{rejected.path}: {rejected.message}" == str(caught.value)


def test_the_systems_own_objects_are_accepted_as_a_cluster_has_them() -> None:
    manifest = priority_class_manifest("system-node-critical", 2_000_001_000, description="Used for …")
    assert priority_class_from_manifest(manifest).value == 2_000_001_000


@pytest.mark.parametrize("key", [b"PriorityClass/high", b"high", None])
def test_a_class_can_be_deleted_by_its_event(key: bytes | None) -> None:
    value = event_bytes("DELETED", priority_class_manifest("high", resource_version=3))
    deleted = DECODER.decode(record(CONFIG_TOPIC, value, key))
    assert deleted.event == ConfigDeleted("PriorityClass", "", "high", 3)


def test_a_class_can_be_deleted_by_a_null_value() -> None:
    assert DECODER.decode(record(CONFIG_TOPIC, None, b"PriorityClass/high")).event == ConfigDeleted(
        "PriorityClass", "", "high"
    )


def test_a_held_pod_is_placed_when_its_class_comes_also_after_a_restart() -> None:
    site = Site()
    held = pod_manifest("p", spec={"priorityClassName": "high"})
    low = pod_manifest("low", cpu="1", priority=5)
    site.take([record(NODES_TOPIC, event_bytes("ADDED", node_manifest("n", cpu="1")))])
    site.take(
        [
            record(PODS_TOPIC, event_bytes("ADDED", held)),
            record(PODS_TOPIC, event_bytes("ADDED", low), offset=1),
        ]
    )
    (group,) = site.database.pending_groups.values()
    assert group.reasons == {"unknown-priority-class:high": 1}
    site.planner = site.restarted()
    site.take([record(CONFIG_TOPIC, event_bytes("ADDED", priority_class_manifest("high")))])
    audit(site)
    assert {row.opened.name for row in site.database.open_placements.values()} == {"p", "low"}
    assert kept(site.restarted()) == kept(site.planner)


def test_a_plan_honours_classes_in_whatever_order_they_are_written() -> None:
    plan = Plan()
    plan.add(Given("ADDED", node_manifest("n", cpu="1")))
    for name, of in (("low", None), ("high", "urgent")):
        spec = {} if of is None else {"priorityClassName": of}
        plan.add(Given("ADDED", pod_manifest(name, cpu="1", spec=spec)))
    plan.add(Given("ADDED", priority_class_manifest("urgent")))
    assert [(each.pod.name, each.node) for each in plan.place()] == [("high", "n"), ("low", None)]


@pytest.mark.parametrize("others", [(), ("a", "b", "c", "d")], ids=["alone", "others wait"])
def test_a_pod_whose_class_comes_is_told_what_still_holds_it(others: tuple[str, ...]) -> None:
    site, gates = Site(), [{"name": "quota"}]
    for name in others:
        site.tell("ADDED", pod_manifest(name, priority=1000, spec={"schedulingGates": gates}))
    spec = {"schedulingGates": gates, "priorityClassName": "urgent"}
    site.tell("ADDED", *(pod_manifest(name, spec=spec) for name in "pqrs"))
    site.tell("ADDED", priority_class_manifest("urgent"))
    audit(site)
    assert {tuple(each.reasons) for each in site.database.pending_groups.values()} == {
        ("scheduling-gated:quota",)
    }
