"""What becomes of a pod that could not be bound to the node that berth chose for it?"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from domain.model.errors import FieldError
from domain.model.events import BindFailed
from domain.model.limits import bind_failure_seconds
from services.codec.encode import encode_event
from services.codec.gateway import Gateway
from services.plan.objects import Given
from services.plan.plan import Plan
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Producer, Site, audit, batches, kept
from tests.property.team import Team, keys_of, node_of
from tests.property.team import audit as audit_team

AT_MS = 1_700_000_000_000
LATE_MS = AT_MS + bind_failure_seconds * 1_000


def site_of(*nodes: str) -> Site:
    site = Site()
    site.tell("ADDED", *(node_manifest(name, cpu=4, resource_version=1) for name in nodes))
    return site


def told(site: Site | Team, name: str = "p") -> list[tuple[str, str | None]]:
    return [(row["outcome"], row["node"]) for row in site.decided() if row["pod"]["name"] == name]


def failed(node: str, name: str = "p", **more: Any) -> Json:
    return pod_manifest(name, **{"cpu": 1, "resource_version": 1, "node_name": node, **more})


def test_a_pod_waits_again_and_goes_to_another_node() -> None:
    site = site_of("a", "b")
    site.tell("ADDED", pod_manifest("p", cpu=1, resource_version=1))
    (first,) = told(site)
    site.tell("BIND_FAILED", failed(first[1] or ""), sent_by="key:a")
    other = "b" if first[1] == "a" else "a"
    assert told(site) == [first, ("bind-failed", first[1]), ("bound", other)]
    row = next(row for row in site.decided() if row["outcome"] == "bind-failed")
    assert (row["reason"], row["sent_by"]) == (f"could not be bound to {first[1]}", "key:a")
    assert row["node_version"] == 3, "the pod came, and left"
    audit(site)
    assert kept(site.planner) == kept(site.restarted())


def test_the_node_is_excluded_for_that_pod_alone_and_for_a_while() -> None:
    site = site_of("a")
    site.tell("ADDED", pod_manifest("p", cpu=1, resource_version=1), pod_manifest("q", cpu=1))
    site.tell("BIND_FAILED", failed("a"))
    assert told(site) == [("bound", "a"), ("bind-failed", "a"), ("unresolvable", None)]
    site.tell("ADDED", pod_manifest("r", cpu=1))
    assert told(site, "q") == told(site, "r") == [("bound", "a")]
    site.tell("ADDED", pod_manifest("s", cpu=1), at_ms=LATE_MS - 1)
    assert len(told(site)) == 3
    audit(site)
    site.tell("ADDED", pod_manifest("t", cpu=1), at_ms=LATE_MS)
    assert told(site)[3:] == [("bound", "a")]
    audit(site)


def preempting_site() -> Site:
    """Return one whose node a is free, and b full of a pod of lower priority."""
    site = Site(preempts=True)
    site.tell("ADDED", *(node_manifest(name, cpu=4, resource_version=1) for name in ("a", "b")))
    site.tell("ADDED", pod_manifest("low", cpu=4, node_name="b", priority=0))
    site.tell("ADDED", pod_manifest("p", cpu=4, resource_version=1, priority=10))
    site.tell("BIND_FAILED", failed("a", cpu=4, priority=10))
    return site


def test_nobody_is_evicted_for_it_while_the_node_is_excluded() -> None:
    site = preempting_site()
    assert told(site) == [("bound", "a"), ("bind-failed", "a"), ("unschedulable", None)]
    assert told(site, "low") == [("adopted", "b")]
    site.tell("ADDED", node_manifest("tiny", cpu=1), at_ms=LATE_MS - 1)
    assert told(site, "low") == [("adopted", "b")]
    site.tell("ADDED", node_manifest("tiny2", cpu=1), at_ms=LATE_MS)
    assert told(site)[3:] == [("bound", "a")], "it is tried there once more"
    assert told(site, "low") == [("adopted", "b")]
    audit(site)


def test_others_leave_for_it_when_its_node_is_taken_and_excluded_no_more() -> None:
    site = preempting_site()
    site.tell("ADDED", pod_manifest("other", cpu=4, priority=10))
    assert told(site, "other") == [("bound", "a")]
    site.tell("ADDED", node_manifest("tiny", cpu=1), at_ms=LATE_MS)
    assert told(site)[3:] == [("nominated", "b")]
    assert sorted(told(site, "low")) == [("adopted", "b"), ("evicted", "b")]
    audit(site)


def test_a_restart_forgets_which_nodes_are_excluded() -> None:
    site = site_of("a")
    site.tell("ADDED", pod_manifest("p", cpu=1, resource_version=1))
    site.tell("BIND_FAILED", failed("a"))
    audit(site)
    assert kept(site.planner) == kept(site.restarted())
    site.planner = site.restarted()
    site.take([])
    assert told(site)[-1] == ("bound", "a")


def test_what_is_no_failure_of_a_placement_says_how_the_pod_is_now() -> None:
    site = site_of("a", "b")
    site.tell("BIND_FAILED", failed("a", "new"))
    assert [outcome for outcome, _ in told(site, "new")] == ["bound"], "its first event, whatever came before"
    site.tell("ADDED", failed("a", "runs"))
    site.tell("BIND_FAILED", failed("a", "runs"))
    assert told(site, "runs") == [("adopted", "a")], "the log said that it runs there"
    site.tell("ADDED", pod_manifest("p", cpu=1, resource_version=1))
    site.tell("BIND_FAILED", failed("elsewhere"))
    site.tell("BIND_FAILED", failed(told(site)[0][1] or "", uid="another", resource_version=2))
    assert [outcome for outcome, _ in told(site)] == ["bound", "released", "bound"], "another pod of the name"
    audit(site)


def test_a_failure_that_comes_twice_counts_once() -> None:
    site = site_of("a", "b")
    site.tell("ADDED", pod_manifest("p", cpu=1, resource_version=1))
    node = told(site)[0][1] or ""
    site.tell("BIND_FAILED", failed(node), failed(node))
    site.tell("BIND_FAILED", failed(node))
    assert [outcome for outcome, _ in told(site)] == ["bound", "bind-failed", "bound"]


def test_an_older_event_without_a_node_that_comes_after_the_binding_is_no_failure() -> None:
    site = site_of("a")
    site.tell("ADDED", pod_manifest("p", cpu=1, resource_version=1))
    site.tell("MODIFIED", pod_manifest("p", cpu=1, resource_version=2, labels={"app": "x"}))
    assert told(site) == [("bound", "a")]


def test_a_pod_that_is_being_deleted_is_over_when_it_could_not_be_bound() -> None:
    site = site_of("a")
    site.tell("ADDED", pod_manifest("p", cpu=1, resource_version=1))
    manifest = failed("a")
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    site.tell("BIND_FAILED", manifest)
    assert told(site) == [("bound", "a"), ("released", "a")]
    audit(site)


def test_a_failure_names_its_node() -> None:
    site = site_of("a")
    site.tell("BIND_FAILED", pod_manifest("p", cpu=1))
    (letter,) = [letter for rows in site.database.dead_letters.values() for letter in rows]
    assert (letter.path, letter.code) == ("object.spec.nodeName", "invalid-field")


def test_only_pods_fail_to_be_bound() -> None:
    site = site_of("a")
    site.tell("BIND_FAILED", node_manifest("b", cpu=4))
    (letter,) = [letter for rows in site.database.dead_letters.values() for letter in rows]
    assert letter.code == "unknown-type"
    assert "BIND_FAILED" not in letter.message.partition("allowed are")[2]
    with pytest.raises(FieldError):
        encode_event("BIND_ABANDONED", {})


def live(seed: int) -> Site:
    random = Random(seed)
    site = Site()
    for part in batches(Producer(random, bind_failures=True).records(400), random):
        site.take(part)
        if random.random() < 0.1:
            audit(site)
            assert kept(site.planner) == kept(site.restarted())
    return site


@pytest.mark.parametrize("seed", range(8))
def test_random_days_with_failures_are_the_same_after_a_restart(seed: int) -> None:
    live(seed)


def test_these_days_have_failures() -> None:
    assert "bind-failed" in {row["outcome"] for seed in range(4) for row in live(seed).decided()}


def test_other_workers_hear_of_it() -> None:
    team = Team([0], [1])
    (name,) = keys_of(team, 0, 1)
    nodes = [node_of(team, shard) for shard in range(2)]
    team.tell("ADDED", *(node_manifest(node, cpu=4) for node in nodes))
    team.tell("ADDED", pod_manifest(name, cpu=1))
    first = told(team, name)[0][1]
    team.tell("BIND_FAILED", pod_manifest(name, cpu=1, node_name=first))
    other = next(node for node in nodes if node != first)
    assert told(team, name)[1:] == [("bind-failed", first), ("bound", other)]
    audit_team(team)


def test_a_node_that_is_excluded_counts_for_its_zone() -> None:
    """Pods are spread over two zones, one node each; the second one cannot be bound to the empty zone."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    site = Site()
    site.tell("ADDED", *(node_manifest(zone, labels={"zone": zone}, resource_version=1) for zone in "ab"))
    for name in ("p", "q"):
        web = pod_manifest(name, cpu=1, labels={"app": "web"}, resource_version=1)
        web["spec"]["topologySpreadConstraints"] = [spread]
        site.tell("ADDED", web)
    ((_, first),) = told(site)
    ((_, second),) = told(site, "q")
    assert {first, second} == {"a", "b"}
    site.tell("BIND_FAILED", {**web, "spec": {**web["spec"], "nodeName": second}})
    assert [outcome for outcome, _ in told(site, "q")] == ["bound", "bind-failed", "unschedulable"]


def test_the_api_passes_one_on_whole() -> None:
    sent = Gateway().prepare({"type": "BIND_FAILED", "object": failed("a")}).event
    assert isinstance(sent, BindFailed)
    assert (sent.node, sent.pod.pod.key) == ("a", "default/p")
    assert sent.pod.pod.template.requests["cpu"] == 1_000


def test_in_a_plan_the_pod_waits() -> None:
    plan = Plan()
    plan.add(Given("ADDED", node_manifest("a")))
    plan.add(Given("BIND_FAILED", failed("a")))
    assert [each.node for each in plan.place()] == ["a"]
