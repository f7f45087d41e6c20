"""What can a producer do to others through what pods ask of each other?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from domain.cycle.schedule import Scheduler
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.limits import (
    anti_affinity_keys_per_pod_max,
    label_keys_idle_max,
    pod_affinity_terms_max,
    rules_per_pod_max,
    wide_terms_per_namespace_max,
)
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import LabelRequirement, LabelSelector, SpreadConstraint
from services.phrases import reason_in_words
from tests import values
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site, audit

KEYS = tuple(f"k{i}" for i in range(pod_affinity_terms_max))
TOO_MUCH = rules_per_pod_max + 1


def shunning(keys: Iterable[str], *, wherever: bool = True) -> Json:
    """Return anti-affinity to every pod, of all namespaces or of the own one, by each topology key."""
    selector: dict[str, Any] = {"namespaceSelector": {}} if wherever else {}
    terms = [{"topologyKey": key, "labelSelector": {}, **selector} for key in keys]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def disliking(keys: Iterable[str]) -> Json:
    """Return the same as a preference."""
    terms = [{"topologyKey": key, "labelSelector": {}, "namespaceSelector": {}} for key in keys]
    preferred = [{"weight": 100, "podAffinityTerm": term} for term in terms]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def placed(site: Site) -> dict[str, str]:
    """Return the node of each pod that has one."""
    pods = site.planner.scheduler.state.pods
    return {entry.spec.key.partition("/")[2]: entry.node for entry in pods.values() if entry.node}


def reasons(site: Site, name: str, namespace: str = "default") -> dict[str, int]:
    """Return why a pod found no node."""
    pod = site.planner.scheduler.state.pods[f"{namespace}/{name}"].spec
    groups = site.planner.scheduler.queue.groups.values()
    (attempt,) = [group.attempt for group in groups if group.signature == pod.signature]
    assert attempt is not None
    return attempt.reasons_at_failure or {}


@pytest.fixture
def site() -> Site:
    """A worker with two nodes, the first of which has no label."""
    site = Site()
    site.tell(
        "ADDED", node_manifest("bare", cpu=1), node_manifest("n1", cpu=8, labels=dict.fromkeys(KEYS, "a"))
    )
    return site


def needing(keys: Iterable[str]) -> Json:
    """Return affinity to pods of the own namespace by each topology key."""
    terms = [{"topologyKey": key, "labelSelector": {}} for key in keys]
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_pod_that_asks_more_than_can_be_counted_waits_and_stops_nobody(site: Site) -> None:
    site.tell("ADDED", pod_manifest("p", affinity=needing(KEYS)))
    site.tell("ADDED", pod_manifest("q", "other", cpu=2))
    assert placed(site) == {"q": "n1"}
    assert reasons(site, "p") == {"too-many-rules": 2}
    audit(site)


@pytest.mark.parametrize("keys", [KEYS[:TOO_MUCH], KEYS[: anti_affinity_keys_per_pod_max + 1]], ids=len)
def test_a_pod_that_shuns_others_by_many_keys_is_held_and_stops_nobody(
    site: Site, keys: tuple[str, ...]
) -> None:
    site.tell("ADDED", pod_manifest("wall", "bad", cpu=2, affinity=shunning(keys)))
    site.tell("ADDED", pod_manifest("p", cpu=2))
    assert placed(site) == {"p": "n1"}
    (code,) = reasons(site, "wall", "bad")
    assert code == "unsupported:anti-affinity-keys"
    assert "spec.affinity.podAntiAffinity" in reason_in_words(code)
    site.tell("ADDED", pod_manifest("few", "bad", cpu=2, affinity=shunning(keys[:8], wherever=False)))
    assert placed(site) == {"p": "n1", "few": "n1"}


def test_a_pod_that_shuns_others_by_many_keys_stops_nobody_where_it_runs_already(site: Site) -> None:
    site.tell("ADDED", pod_manifest("wall", "bad", node_name="n1", affinity=shunning(KEYS)))
    site.tell("ADDED", pod_manifest("p", cpu=2))
    assert placed(site) == {"wall": "n1", "p": "n1"}


def walls(keys: Sequence[str], cpu: int) -> list[Json]:
    """Return pods that together shun all others by more keys than can be counted."""
    each = anti_affinity_keys_per_pod_max
    parts = [keys[i : i + each] for i in range(0, len(keys), each)]
    return [pod_manifest(f"wall{i}", "bad", cpu=cpu, affinity=shunning(part)) for i, part in enumerate(parts)]


UNKNOWN = tuple(f"unknown{i}" for i in range(TOO_MUCH))


def test_keys_that_no_node_has_do_not_count_against_a_pod(site: Site) -> None:
    site.tell("ADDED", *walls(UNKNOWN, cpu=100))
    site.tell("ADDED", pod_manifest("p", cpu=2, affinity=shunning(UNKNOWN[:8], wherever=False)))
    assert placed(site) == {"p": "n1"}


def test_a_key_that_a_node_gets_later_is_heeded(site: Site) -> None:
    site.tell("ADDED", *walls(UNKNOWN, cpu=1))
    site.tell("ADDED", pod_manifest("p1", cpu=2))
    known = {f"wall{i}": "n1" for i in range(4)} | {"p1": "n1"}
    assert {name: node for name, node in placed(site).items() if name == "p1"} == {"p1": "n1"}
    assert placed(site).keys() == known.keys()
    on = placed(site)["wall3"]
    site.tell("MODIFIED", node_manifest(on, cpu=8, labels={UNKNOWN[-1]: "a"}))
    site.tell("ADDED", pod_manifest("p2", cpu=2))
    assert reasons(site, "p2")["existing-pod-anti-affinity"] == 1


def test_preferences_of_others_never_keep_a_pod_from_being_placed(site: Site) -> None:
    site.tell("MODIFIED", node_manifest("bare", cpu=1, labels={f"more{i}": "a" for i in range(4)}))
    site.tell("ADDED", pod_manifest("e1", "bad", cpu=100, affinity=disliking(KEYS)))
    more = [f"more{i}" for i in range(4)]
    site.tell("ADDED", pod_manifest("e2", "bad", cpu=100, affinity=disliking(more)))
    site.tell("ADDED", pod_manifest("p", cpu=2))
    assert placed(site) == {"p": "n1"}


def test_many_different_constraints_take_bounded_memory() -> None:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for n in range(4):
        labels = {"zone": f"z{n % 2}", **{f"k{i}": "x" for i in range(n, 200, 2)}}
        scheduler.fold(NodeUpserted(values.node(f"n{n}", cpu=64_000, pods=1_000, labels=labels)))
    counters = scheduler._slots.counters
    counters._cells_max = 20_000
    taken = []
    for i in range(200):
        constraint = SpreadConstraint(
            topology_key="zone", selector=LabelSelector((LabelRequirement("app", "In", (f"a{i}",)),))
        )
        shape = values.template(100, node_selector={f"k{i}": "x"}, spread=(constraint,))
        scheduler.fold(PodUpserted(values.pod(f"p{i}", shape, labels={"app": f"a{i}"})))
        if i % 10 == 9:
            scheduler.cycle()
            taken.append((len(counters._by_spec), counters._domains.bytes_used))
    assert all(entry.node for entry in scheduler.state.pods.values())
    assert max(count for count, _ in taken) < 80
    assert max(size for _, size in taken) < 80 * 64 + 4 * 64


def seen_by(site: Site, name: str) -> list[str]:
    """Return what the explanation of a pod's attempt says of rules."""
    pod = site.planner.scheduler.state.pods[f"default/{name}"].spec
    groups = site.planner.scheduler.queue.groups.values()
    (attempt,) = [group.attempt for group in groups if group.signature == pod.signature]
    assert attempt is not None
    return [rule.text for rule in attempt.rules or ()]


def test_an_explanation_does_not_show_what_pods_of_other_namespaces_ask_for(site: Site) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["secret-project"]}]}
    term = {"topologyKey": KEYS[0], "labelSelector": selector, "namespaceSelector": {}}
    wall = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    site.tell("ADDED", pod_manifest("wall", "bad", cpu=2, labels={"app": "secret-project"}, affinity=wall))
    site.tell("ADDED", pod_manifest("p", cpu=2))
    assert reasons(site, "p")["existing-pod-anti-affinity"] == 1
    assert seen_by(site, "p") == [KEYS[0]]


def test_an_explanation_does_not_grow_with_selectors(site: Site) -> None:
    values_of = [f"{i:063d}" for i in range(900)]
    selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values_of}]}
    terms = [{"topologyKey": KEYS[0], "labelSelector": selector}]
    wall = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    site.tell("ADDED", *(pod_manifest(f"p{i}", cpu=2, affinity=wall) for i in range(2)))
    (text,) = seen_by(site, "p1")
    assert text.startswith(f"{KEYS[0]} app notin (")
    assert len(text) < 300


# ------------------------------------------------------------------------- who tells whose pods apart


def asking(operator: str, *listed: str, term: Json | None = None) -> Json:
    """Return anti-affinity to pods of all namespaces by a label that each pod has with a value of its own."""
    expression = {"key": "job-index", "operator": operator, **({"values": list(listed)} if listed else {})}
    selector = {"matchExpressions": [expression]}
    terms = [{"topologyKey": KEYS[0], "labelSelector": selector, "namespaceSelector": {}, **(term or {})}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def groups_of(site: Site, namespace: str = "default") -> int:
    """Return how many groups the waiting pods of a namespace are."""
    groups = site.planner.scheduler.queue.groups.values()
    return sum(any(key.startswith(f"{namespace}/") for key in group.pods) for group in groups)


def jobs(count: int) -> list[Json]:
    """Return pods that are equal but for their index, and find no node."""
    return [pod_manifest(f"job-{i}", cpu=100, labels={"job-index": str(i)}) for i in range(count)]


@pytest.mark.parametrize("is_there_first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("operator", "listed", "groups"),
    [("Exists", (), 1), ("DoesNotExist", (), 1), ("In", ("3", "5"), 3), ("NotIn", ("3",), 2)],
    ids=str,
)
def test_a_selector_tells_only_pods_apart_whose_labels_it_names(
    site: Site, operator: str, listed: tuple[str, ...], groups: int, is_there_first: bool
) -> None:
    wall = pod_manifest("wall", "bad", cpu=100, affinity=asking(operator, *listed))
    told = [[wall], jobs(20)]
    for each in told if is_there_first else reversed(told):
        site.tell("ADDED", *each)
    assert groups_of(site) == groups
    audit(site)


def test_pods_are_one_group_again_when_the_last_selector_goes(site: Site) -> None:
    site.tell("ADDED", *jobs(20))
    assert groups_of(site) == 1
    walls = [pod_manifest(f"wall{i}", "bad", cpu=100, affinity=asking("In", "3")) for i in range(2)]
    site.tell("ADDED", *walls)
    assert groups_of(site) == 2
    site.tell("DELETED", walls[0])
    site.tell("ADDED", pod_manifest("p", cpu=1))
    assert groups_of(site) == 2
    site.tell("DELETED", walls[1])
    site.tell("ADDED", pod_manifest("q", cpu=1))
    assert groups_of(site) == 1
    audit(site)


def test_a_label_key_is_watched_no_more_once_others_were_asked_for(site: Site) -> None:
    index = site.planner.scheduler.state.index
    site.tell("ADDED", *(pod_manifest(f"p{i}", cpu=100, labels={"a": "x", "b": str(i)}) for i in range(3)))
    for i in range(2 * label_keys_idle_max):
        selector = {"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]}
        term = {"labelSelector": selector if i else {"matchLabels": {"a": "x", "b": "1"}}}
        wall = pod_manifest(f"wall{i}", "bad", cpu=100, affinity=asking("Exists", term=term))
        site.tell("ADDED", wall)
        site.tell("DELETED", wall)
    site.tell("ADDED", pod_manifest("last", cpu=100))
    watched = index._watching
    assert len(watched._idle) <= label_keys_idle_max
    assert sum(map(len, watched.watched.values())) <= label_keys_idle_max
    assert not any(watched._pods.values())
    classes = {entry.pod_class for entry in site.planner.scheduler.state.pods.values()}
    assert [each and each.labels for each in classes] == [{}]
    audit(site)


# --------------------------------------------------------------------- who looks at all pods of others


def looking(number: int, namespace: str = "bad", *, wherever: bool = True) -> Json:
    """Return a pod that shuns nearly all others by a selector of its own."""
    unlike = {"key": "team", "operator": "NotIn", "values": [f"t{number}"]}
    term: Json = {"topologyKey": "unknown", "labelSelector": {"matchExpressions": [unlike]}}
    term |= {"namespaceSelector": {}} if wherever else {}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod_manifest(f"wide{number}", namespace, affinity=affinity)


def test_so_many_different_terms_of_a_namespace_look_at_all_others_and_the_rest_waits(site: Site) -> None:
    most, index = wide_terms_per_namespace_max, site.planner.scheduler.state.index
    site.tell("MODIFIED", node_manifest("n1", cpu=8, pods=500))
    site.tell("ADDED", *(looking(i) for i in range(most + 3)))
    site.tell("ADDED", looking(0, "good"), looking(most, "good"), pod_manifest("p", cpu=2))
    state = site.planner.scheduler.state
    waiting = [key for key, entry in state.pods.items() if not entry.node]
    assert waiting == [f"bad/wide{most + i}" for i in range(3)]
    code = "too-many-wide-terms"
    assert reasons(site, f"wide{most}", "bad") == {code: 2}
    assert "its namespace has too many" in reason_in_words(code)
    assert len(index.terms_near("default", {})) == most + 1
    audit(site)
    site.tell("DELETED", looking(3))
    site.tell("ADDED", pod_manifest("q", cpu=1))
    assert [key for key, entry in state.pods.items() if not entry.node] == waiting[1:]
    site.tell("DELETED", *(looking(i) for i in range(most + 3) if i != 3), looking(0, "good"))
    site.tell("DELETED", looking(most, "good"))
    assert (index._wide, index._terms) == ({}, {})
    audit(site)


def test_terms_over_the_own_namespace_are_not_limited(site: Site) -> None:
    site.tell("MODIFIED", node_manifest("n1", cpu=8, pods=500))
    count = wide_terms_per_namespace_max + 3
    site.tell("ADDED", *(looking(i, wherever=False) for i in range(count)))
    assert len(placed(site)) == count
