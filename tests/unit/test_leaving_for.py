"""Does a pod wait while others leave a node that another scheduler named for it, and no longer than that?"""

from __future__ import annotations

from tests.builders import Json, node_manifest, pod_group_manifest, pod_manifest
from tests.property.site import Site
from tests.unit.preempted import high, leave, same_after_a_restart, site_of, told, victims

LABEL = "scheduling.x-k8s.io/pod-group"


def leaving(name: str, node: str, priority: int = 0, reason: str = "PreemptionByScheduler") -> Json:
    """Return a placed pod that a scheduler deleted, so that another one finds room."""
    pod = pod_manifest(name, cpu=2, priority=priority, node_name=node, resource_version=9)
    pod["metadata"]["deletionTimestamp"] = "2023-11-14T22:20:00Z"
    pod["status"] = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}
    return pod


def named(node: str, name: str = "high", **more: object) -> Json:
    """Return a pod for which a scheduler named a node."""
    return high(name, **more) | {"status": {"nominatedNodeName": node}}


def two_nodes(**of: object) -> tuple[Site, str, list[str]]:
    """Return a site of two full nodes; of one of them its name, and its two pods, of which one leaves."""
    site = site_of(nodes=2)
    at = {row["pod"]["name"]: row["node"] for row in site.decided() if row["outcome"] == "bound"}
    node = at["low0"]
    site.tell("MODIFIED", leaving("low0", node, **of))  # type: ignore[arg-type]
    return site, node, ["low0", *(name for name in at if at[name] == node and name != "low0")]


def test_nobody_is_evicted_for_a_pod_while_others_leave_the_node_named_for_it() -> None:
    site, node, (first, second) = two_nodes()
    site.tell("ADDED", named(node))
    assert told(site, "high") == [("high", "unschedulable", None)]
    assert victims(site) == []
    same_after_a_restart(site)
    leave(site, first)
    assert told(site, "high")[1:] == [("high", "nominated", node)], "nobody leaves any more: one has to go"
    assert victims(site) == [second]
    same_after_a_restart(site)


def test_it_takes_what_they_leave() -> None:
    site, node, (first, _) = two_nodes()
    site.tell("ADDED", named(node, cpu=2))
    leave(site, first)
    assert told(site, "high")[1:] == [("high", "bound", node)]
    assert victims(site) == []


def test_it_waits_no_longer_where_the_node_is_gone() -> None:
    site, node, _ = two_nodes()
    site.tell("ADDED", named(node))
    site.tell("DELETED", node_manifest(node, resource_version=2))
    (other,) = {"n0", "n1"} - {node}
    assert told(site, "high")[-1] == ("high", "nominated", other)
    same_after_a_restart(site)


def test_others_of_its_group_do_not_wait_with_it() -> None:
    site, node, _ = two_nodes()
    site.tell("ADDED", named(node), high("other"))
    (elsewhere,) = {"n0", "n1"} - {node}
    assert told(site, "high") == [("high", "unschedulable", None)]
    assert told(site, "other") == [("other", "nominated", elsewhere)]
    site.tell("ADDED", high("late", cpu=1))
    assert told(site, "late")[-1][1] == "nominated"


def test_who_leaves_for_another_reason_or_is_no_less_urgent_holds_nobody_up() -> None:
    for of in ({"reason": "EvictionByEvictionAPI"}, {"priority": 10}):
        site, node, _ = two_nodes(**of)
        site.tell("ADDED", named(node))
        assert told(site, "high")[-1][1] == "nominated"


def test_nor_does_a_node_that_refuses_the_pod_whatever_leaves() -> None:
    site, node, _ = two_nodes()
    (other,) = {"n0", "n1"} - {node}
    cordoned = node_manifest(node, cpu=4, unschedulable=True, resource_version=2)
    site.tell("MODIFIED", cordoned)
    site.tell("ADDED", named(node))
    assert told(site, "high") == [("high", "nominated", other)]


def test_a_gang_waits_with_each_of_its_pods() -> None:
    site, node, (first, _) = two_nodes()
    site.tell("ADDED", pod_group_manifest("g", 2))
    members = [named(node, "g0", labels={LABEL: "g"}), high("g1", labels={LABEL: "g"})]
    site.tell("ADDED", *members)
    assert {how for _, how, _ in told(site, "g0", "g1")} == {"gang-waiting"}
    leave(site, first)
    assert [how for _, how, _ in told(site, "g0", "g1")][-2:] == ["nominated", "nominated"]
