"""Do pods that come later leave alone what a pod with a promised node will need: ports, distance, spread?"""

from __future__ import annotations

from typing import Any

import pytest

from services.phrases import rule_in_words
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site
from tests.unit.preempted import leave, same_after_a_restart, told, victims

ZONE = "topology.kubernetes.io/zone"
NODES = ("n0", "n1", "n2")
PROMISED = ", counting pods to which a node is promised"


def ports(*numbers: int) -> Json:
    """Return a container with host ports."""
    listed = [{"containerPort": number, "hostPort": number} for number in numbers]
    return {"containers": [{"name": "main", "image": "pause", "ports": listed}]}


def avoiding(app: str) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(app: str) -> Json:
    selector = {"matchLabels": {"app": app}}
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [rule | {"labelSelector": selector}]}


def site_with(*nodes: Json) -> Site:
    site = Site(preempts=True)
    site.tell("ADDED", *nodes)
    return site


def node(name: str, zone: str, **more: Any) -> Json:
    return node_manifest(name, labels={ZONE: zone}, resource_version=1, **{"cpu": 4, **more})


def port_site() -> Site:
    """Return a site where a pod waits for a node whose two ports two pods hold, of which one has left."""
    site = site_with(node("n0", "a"))
    low = [pod_manifest(f"low{i}", priority=0, spec=ports(80 + i)) for i in range(2)]
    site.tell("ADDED", *low)
    site.tell("ADDED", pod_manifest("high", priority=10, spec=ports(80, 81)))
    assert told(site, "high") == [("high", "nominated", "n0")]
    leave(site, "low0")
    return site


def why(site: Site, name: str) -> list[str]:
    """Return what the rules of the latest attempt of a pod's group saw, in words."""
    scheduler = site.planner.scheduler
    (group,) = (
        group
        for group in scheduler.queue.groups.values()
        if any(f"default/{name}" in line.pods for line in group.lines.values())
    )
    assert group.attempt is not None
    return [rule_in_words(each) for each in group.attempt.rules or ()]


@pytest.mark.parametrize("priority", [0, 10])
def test_a_later_pod_of_no_higher_priority_does_not_take_a_port_that_is_waited_for(priority: int) -> None:
    site = port_site()
    site.tell("ADDED", pod_manifest("late", priority=priority, spec=ports(80)))
    assert told(site, "late") == [("late", "unschedulable", None)]
    assert why(site, "late") == [f"None may be there before it: 80/TCP{PROMISED}; n0 has 1."]
    same_after_a_restart(site)
    leave(site, "low1")
    assert told(site, "high")[1:] == [("high", "bound", "n0")]
    assert victims(site) == ["low0", "low1"]
    same_after_a_restart(site)


def test_it_does_not_after_a_restart_either() -> None:
    site = port_site()
    site.planner = site.restarted()
    site.tell("ADDED", pod_manifest("late", priority=0, spec=ports(80)))
    assert told(site, "late") == [("late", "unschedulable", None)]
    site.planner = site.restarted()
    leave(site, "low1")
    assert told(site, "high")[1:] == [("high", "bound", "n0")]


def test_another_port_and_a_higher_priority_are_free_to_come() -> None:
    site = port_site()
    site.tell("ADDED", pod_manifest("other", priority=0, spec=ports(8080)))
    assert told(site, "other") == [("other", "bound", "n0")]
    site.tell("ADDED", pod_manifest("urgent", priority=20, spec=ports(80)))
    assert told(site, "urgent") == [("urgent", "bound", "n0")]
    leave(site, "low1")
    assert told(site, "high")[1] == ("high", "cleared", "n0")
    same_after_a_restart(site)


def test_who_waited_for_a_promised_port_has_it_when_the_promise_is_over() -> None:
    site = port_site()
    site.tell("ADDED", pod_manifest("late", priority=0, spec=ports(80)))
    leave(site, "high")
    assert told(site, "late")[-1] == ("late", "bound", "n0")
    same_after_a_restart(site)


def crowded(*, high: Json, small: str = "n2", **late: Any) -> Site:
    """Return a site where a pod waits for n0 of zone a; a later one would rather not have the small node."""
    site = site_with(
        *(node(n, zone, cpu=2 if n == small else 4) for n, zone in zip(NODES, "aab", strict=True))
    )
    low = pod_manifest("low", cpu=4, priority=0, spec={"nodeSelector": {"on": "n0"}})
    site.tell("MODIFIED", node("n0", "a") | {"metadata": meta("n0", "a")})
    site.tell("ADDED", low)
    site.tell("ADDED", high)
    assert told(site, "high") == [("high", "nominated", "n0")]
    site.tell("ADDED", pod_manifest("late", cpu=1, priority=0, **late))
    return site


def meta(name: str, zone: str) -> Json:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": "2", "labels": {ZONE: zone, "on": name}}


def high(**more: Any) -> Json:
    selector = {"spec": {"nodeSelector": {"on": "n0"}} | more.pop("spec", {})}
    return pod_manifest("high", cpu=4, priority=10, **selector, **more)


def ends_well(site: Site) -> None:
    """Let the victim leave: the promise is kept, and nobody else had to go."""
    same_after_a_restart(site)
    leave(site, "low")
    assert told(site, "high")[1:] == [("high", "bound", "n0")]
    assert victims(site) == ["low"]
    same_after_a_restart(site)


def test_a_later_pod_stays_away_from_where_a_nominated_one_wants_nobody() -> None:
    site = crowded(high=high(affinity=avoiding("web")), labels={"app": "web"})
    assert told(site, "late") == [("late", "bound", "n2")]
    ends_well(site)


def test_a_later_pod_that_wants_nobody_stays_away_from_a_nominated_one() -> None:
    site = crowded(high=high(labels={"app": "web"}), affinity=avoiding("web"))
    assert told(site, "late") == [("late", "bound", "n2")]
    ends_well(site)


def test_a_later_pod_is_spread_as_if_the_nominated_one_were_there() -> None:
    site = crowded(high=high(labels={"app": "web"}), labels={"app": "web"}, spec=spread("web"))
    assert told(site, "late") == [("late", "bound", "n2")]
    ends_well(site)


def test_a_pod_that_needs_another_nearby_does_not_rely_on_a_promise() -> None:
    near = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    site = crowded(high=high(labels={"app": "web"}), affinity=affinity)
    assert told(site, "late") == [("late", "unresolvable", None)]
    ends_well(site)
    assert told(site, "late")[-1] == ("late", "bound", "n1")


def test_the_first_of_its_kind_goes_where_its_like_has_a_node_promised() -> None:
    """It needs nobody while there is nobody, but with the promised pod it needs that one."""
    near = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    like = {"labels": {"app": "web"}, "affinity": affinity}
    site = crowded(high=high(**like), small="n1", **like)
    assert told(site, "late") == [("late", "bound", "n1")]
    ends_well(site)


def test_a_nominated_pod_does_not_go_to_its_node_against_a_more_urgent_promise() -> None:
    site = site_with(*(node(name, "a") for name in NODES[:2]))
    for name in NODES[:2]:
        site.tell("MODIFIED", node(name, "a") | {"metadata": meta(name, "a")})
        here = {"nodeSelector": {"on": name}}
        site.tell("ADDED", pod_manifest(f"low-{name}", cpu=4, priority=0, spec=here))
    here = {"nodeSelector": {"on": "n1"}}
    site.tell("ADDED", pod_manifest("web", cpu=4, priority=5, labels={"app": "web"}, spec=here))
    site.tell("ADDED", high(affinity=avoiding("web")))
    assert told(site, "web", "high") == [("web", "nominated", "n1"), ("high", "nominated", "n0")]
    leave(site, "low-n1")
    assert told(site, "web")[1] == ("web", "cleared", "n1")
    same_after_a_restart(site)
    leave(site, "low-n0")
    assert told(site, "high")[1:] == [("high", "bound", "n0")]
    assert victims(site) == ["low-n0", "low-n1"]
