"""What a key may do, may not do, and how much of it: scope, rates, event ids and failed logins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from fastapi import Request
from typer.testing import CliRunner

from domain.model import limits
from domain.model.errors import FieldError
from services import forgetting
from services.adapters.memory.access import MemoryCallers
from services.adapters.memory.store import MemoryStore
from services.api import answers
from services.api.allowance import FAILED_LOGINS_PER_MINUTE, GOOD_KEYS_MAX, Logins
from services.api.auth import Gate
from services.api.failures import ApiError
from services.api.keys import checked_grant
from services.api.scope import SENT_BY
from services.cli import keys
from services.cli.main import app
from services.codec.envelope import KINDS
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, TopicPartition
from services.ports.store import Grant, PodFilter, PodState, Rows
from services.rate_limit import ADDRESSES_MAX, address_of
from tests.builders import (
    Json,
    action_manifest,
    event,
    node_manifest,
    pod_manifest,
    priority_class_manifest,
    profile_manifest,
    usage_manifest,
)
from tests.property.device_team import gpu_node
from tests.property.site import Site
from tests.security.keyed import House, keyed_house

ROOT = Path(__file__).parents[2]
BY_MAP = ("Service", "ReplicationController")
SENT: dict[str, Json] = {
    "Pod": pod_manifest("p", "team-a"),
    "PodDisruptionBudget": {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "team-a"},
    },
    **{
        kind: {
            "apiVersion": KINDS[kind][0],
            "kind": kind,
            "metadata": {"name": "w", "namespace": "team-a"},
            "spec": {"selector": {"app": "w"} if kind in BY_MAP else {"matchLabels": {"app": "w"}}},
        }
        for kind in (*BY_MAP, "Deployment", "Job", "ReplicaSet", "StatefulSet")
    },
    "Namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
    "Node": node_manifest("n1"),
    "NodeUsage": usage_manifest("n1", percent={"cpu": 10}),
    "NodeAction": action_manifest("n1"),
    "PriorityClass": priority_class_manifest("high"),
    "SchedulingProfile": profile_manifest("default-scheduler"),
}
"""One valid object of each kind."""

OF_CLUSTER = {"Namespace", "Node", "NodeAction", "NodeUsage", "PriorityClass", "SchedulingProfile"}
OF_TEAMS = SENT.keys() - OF_CLUSTER


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    async with keyed_house() as house:
        yield house


def error_of(answer: Any) -> answers.ErrorBody:
    """Return an error of the one shape."""
    return msgspec.convert(answer.json(), answers.Error).error


# -------------------------------------------------------------------------------------------- what it sends


@pytest.mark.parametrize(
    ("roles", "scope", "allowed"),
    [
        (["producer"], {}, OF_TEAMS),
        (["producer"], {"namespaces": ["team-a"]}, OF_TEAMS),
        (["operator"], {}, OF_CLUSTER),
        (["producer", "operator"], {}, OF_TEAMS | OF_CLUSTER),
        (["admin"], {}, OF_TEAMS | OF_CLUSTER),
        (["producer"], {"kinds": ["NodeUsage"]}, {"NodeUsage"}),
        (["producer", "auditor"], {"kinds": ["Pod"]}, {"Pod"}),
        (["operator"], {"kinds": ["Node"]}, {"Node"}),
        (["producer"], {"kinds": ["Pod", "Node"], "namespaces": ["team-a"]}, {"Pod"}),
        (["operator"], {"namespaces": ["team-a"]}, set()),
    ],
)
async def test_each_key_sends_its_kinds_and_no_others(
    house: House, roles: list[str], scope: dict[str, Any], allowed: set[str]
) -> None:
    await house.key("ci", roles, **scope)
    for kind, thing in SENT.items():
        for change in ("ADDED", "DELETED"):
            answer = await house.send("ci", event(change, thing))
            assert answer.status_code == (202 if kind in allowed else 403), (kind, change, answer.text)
            if kind not in allowed:
                error = error_of(answer)
                assert error.code == "forbidden"
                (detail,) = error.details or []
                assert (detail.index, detail.path) == (0, "object.kind")
                assert "the key ci" in detail.message
                assert all(name in detail.message for name in sorted(allowed))
    topics = {"Pod": PODS_TOPIC, "Node": NODES_TOPIC, "NodeUsage": USAGE_TOPIC, "NodeAction": USAGE_TOPIC}
    for topic in (PODS_TOPIC, NODES_TOPIC, USAGE_TOPIC, CONFIG_TOPIC):
        expected = sum(2 for kind in allowed if topics.get(kind, CONFIG_TOPIC) == topic)
        assert len(house.keys_of(topic)) == expected, "what is refused does not reach the log"


async def test_a_key_stays_in_its_namespaces(house: House) -> None:
    await house.key("ci", ["producer"], namespaces=["team-a", "team-c"])
    foreign = pod_manifest("p", "team-b", uid="u1")
    nameless = {**foreign, "metadata": {"name": "p", "namespace": "team-b"}}
    no_namespace = {**foreign, "metadata": {"name": "p"}}
    budget: dict[str, Any] = SENT["PodDisruptionBudget"]
    its_budget = {**budget, "metadata": {"name": "b", "namespace": "team-b"}}
    for change in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        for thing, where in (
            (foreign, "team-b"),
            (nameless, "team-b"),
            (no_namespace, "default"),
            (its_budget, "team-b"),
        ):
            answer = await house.send("ci", event(change, thing))
            assert answer.status_code == 403, (change, answer.text)
            (detail,) = error_of(answer).details or []
            assert detail.path == "object.metadata.namespace"
            assert where in detail.message
            assert "the key ci" in detail.message
            assert "team-a, team-c" in detail.message
    assert house.keys_of(PODS_TOPIC) == house.keys_of(CONFIG_TOPIC) == []
    own = pod_manifest("p", "team-a")  # a deletion without a uid works at home
    assert (await house.send("ci", event("ADDED", own), event("DELETED", own))).status_code == 202


async def test_partial_sends_what_the_key_may_send(house: House) -> None:
    await house.key("ci", ["producer"], namespaces=["team-a"])
    events = [
        event("ADDED", pod_manifest("mine", "team-a")),
        event("ADDED", pod_manifest("theirs", "team-b")),
        event("ADDED", pod_manifest("wrong", "team-a", cpu="a lot")),
        event("ADDED", profile_manifest("default-scheduler")),
    ]
    refused = await house.send("ci", *events)
    assert refused.status_code == 403
    error = error_of(refused)
    assert [each.index for each in error.details or []] == [1, 2, 3], "all that is wrong is told at once"
    assert "events[1].object.metadata.namespace" in error.message
    sent = await house.send("ci", *events, partial=True)
    assert (sent.status_code, sent.json()["accepted"], sent.json()["invalid"]) == (202, 1, 3)
    assert house.keys_of(PODS_TOPIC) == ["team-a/mine"]
    assert house.keys_of(CONFIG_TOPIC) == []


async def test_only_a_key_with_the_grant_binds_a_pod_by_its_node_name(house: House) -> None:
    await house.key("team", ["producer"], namespaces=["team-a"])
    await house.key("executor", ["producer"], namespaces=["team-a"], kinds=["Pod", "Pod/binding"])
    await house.key("bridge", ["producer", "operator"])
    huge = event("ADDED", pod_manifest("huge", "team-a", cpu=2000, node_name="n1", uid="u1"))
    refused = await house.send("team", huge)
    assert refused.status_code == 403
    (detail,) = error_of(refused).details or []
    assert detail.path == "object.spec.nodeName"
    assert "Pod/binding" in detail.message
    assert house.keys_of(PODS_TOPIC) == []
    for holder in ("executor", "bridge"):
        assert (await house.send(holder, huge)).status_code == 202
    finished = pod_manifest("done", "team-a", node_name="n1", phase="Succeeded")
    assert (await house.send("team", event("MODIFIED", finished))).status_code == 202, "it holds nothing"


def test_a_team_may_repeat_where_its_pod_was_placed() -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n1"), node_manifest("n2", unschedulable=True))
    site.tell("ADDED", pod_manifest("p", "team-a", cpu=1, uid="u1"), pod_manifest("q", "team-a", cpu=99))

    async def statuses() -> list[int]:
        async with keyed_house(site.database) as house:
            await house.key("team", ["producer"], namespaces=["team-a"])
            sent = [("p", "n1", "u1"), ("p", "n2", "u1"), ("p", "n1", "u2"), ("q", "n1", None)]
            pods = [pod_manifest(name, "team-a", node_name=node, uid=uid) for name, node, uid in sent]
            return [(await house.send("team", event("MODIFIED", pod))).status_code for pod in pods]

    assert asyncio.run(statuses()) == [202, 403, 403, 403], "the node, the pod of that uid, and placed at all"
    site.tell("MODIFIED", pod_manifest("p", "team-a", cpu=2, uid="u1"))
    assert asyncio.run(statuses()) == [202, 403, 403, 403], "resized, it is still there"
    site.tell("DELETED", pod_manifest("p", "team-a", uid="u1"))
    assert asyncio.run(statuses()) == [403, 403, 403, 403]


DEVICES = "berth.dev/devices"


def with_gpu(name: str, devices: str | None = None, **how: Any) -> Json:
    """Return a pod of team-a that asks for a whole GPU; ``devices`` says which it has."""
    pod = pod_manifest(name, "team-a", uid=name, **how)
    one = {"nvidia.com/gpu": "1"}
    pod["spec"]["containers"][0]["resources"] = {"requests": one, "limits": one}
    if devices is not None:
        pod["metadata"]["annotations"] = {DEVICES: devices, "other": "not kept"}
    return pod


async def test_the_api_keeps_which_devices_a_bound_pod_has(house: House) -> None:
    await house.key("bridge", ["producer", "operator"])
    assert (await house.send("bridge", event("ADDED", with_gpu("p", "3", node_name="n1")))).status_code == 202
    (record,) = house.log.partition(TopicPartition(PODS_TOPIC, 0)).records
    assert msgspec.json.decode(record.value or b"")["object"]["metadata"]["annotations"] == {DEVICES: "3"}


def test_a_team_names_no_devices_but_those_that_its_pod_was_given() -> None:
    site = Site()
    site.tell("ADDED", gpu_node("n1", 2))
    site.tell("ADDED", with_gpu("p"))

    async def answers_to(holder: str, *sent: tuple[str, Json]) -> list[answers.ErrorDetail | None]:
        async with keyed_house(site.database) as house:
            await house.key("team", ["producer"], namespaces=["team-a"])
            await house.key("executor", ["producer"], namespaces=["team-a"], kinds=["Pod", "Pod/binding"])
            found: list[answers.ErrorDetail | None] = []
            for change, pod in sent:
                answer = await house.send(holder, event(change, pod))
                refused = [] if answer.status_code == 202 else error_of(answer).details or []
                found.append(refused[0] if refused else None)
            return found

    own, taken = with_gpu("p", "0", node_name="n1"), with_gpu("p", "1", node_name="n1")
    site_says = {each["pod"]["name"]: each["devices"] for each in site.decided()}
    assert site_says == {"p": [0]}
    repeated, refused, waits = asyncio.run(
        answers_to("team", ("MODIFIED", own), ("MODIFIED", taken), ("ADDED", with_gpu("q", "1")))
    )
    assert (repeated, waits) == (None, None), "of a pod that waits it is not read"
    assert refused is not None
    assert refused.path == f"object.metadata.annotations[{DEVICES}]"
    assert "team-a/p was given 0; " in refused.message
    assert "Pod/binding" in refused.message
    assert asyncio.run(answers_to("executor", ("MODIFIED", taken))) == [None]


def test_a_failed_bind_names_no_devices() -> None:
    """It needs no grant, as it frees a node; so it says of no device that it is taken."""
    site = Site()
    site.tell("ADDED", gpu_node("n1", 2))
    site.tell("ADDED", with_gpu("runs", node_name="n1"))
    site.tell("BIND_FAILED", with_gpu("runs", "1", node_name="n1"), with_gpu("new", "0", node_name="n1"))
    given = {each["pod"]["name"]: (each["outcome"], each["devices"]) for each in site.decided()}
    assert given == {"runs": ("adopted", [0]), "new": ("bound", [1])}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"priority": 2_000_001_000}, "object.spec.priority"),
        ({"priority": 1_000_000_001}, "object.spec.priority"),
        ({"priorityClassName": "system-node-critical"}, "object.spec.priorityClassName"),
        ({"priority": 1_000_000_000}, None),
        ({"priorityClassName": "high"}, None),
    ],
)
async def test_priorities_of_the_system_need_a_grant(
    house: House, spec: dict[str, Any], path: str | None
) -> None:
    await house.key("all", ["producer"])
    await house.key("system", ["producer"], kinds=["Pod", "Pod/priority"])
    await house.key("bridge", ["producer", "operator"])
    sent = event("ADDED", pod_manifest("p", "team-a", spec=spec))
    answer = await house.send("all", sent)
    assert answer.status_code == (202 if path is None else 403)
    if path is not None:
        (detail,) = error_of(answer).details or []
        assert detail.path == path
        assert "Pod/priority" in detail.message
    for holder in ("system", "bridge"):
        assert (await house.send(holder, sent)).status_code == 202


NUMBER, CLASS = "object.spec.priority", "object.spec.priorityClassName"


@pytest.mark.parametrize(
    ("scope", "spec", "path"),
    [
        ({}, {}, None),
        ({}, {"priority": 0}, None),
        ({}, {"priority": -5}, None),
        ({}, {"priority": 1}, NUMBER),
        ({}, {"priority": 1_000_000_000}, NUMBER),
        ({}, {"priority": 1, "priorityClassName": "batch"}, NUMBER),
        ({}, {"priorityClassName": "batch"}, CLASS),
        ({"priority_max": 10}, {"priority": 10}, None),
        ({"priority_max": 10}, {"priority": 11}, NUMBER),
        ({"priority_max": 10}, {"priorityClassName": "batch"}, CLASS),
        ({"priority_max": -1}, {"priority": -1}, None),
        ({"priority_max": -1}, {"priority": 0}, NUMBER),
        ({"priority_max": -1}, {}, NUMBER),
        ({"priority_max": -1, "priority_classes": ["batch"]}, {"priorityClassName": "batch"}, None),
        ({"priority_classes": ["batch"]}, {"priorityClassName": "batch"}, None),
        ({"priority_classes": ["batch"]}, {"priorityClassName": "high"}, CLASS),
        ({"priority_classes": ["batch"]}, {"priorityClassName": "system-node-critical"}, CLASS),
        ({"priority_classes": ["batch"]}, {"priority": 1}, NUMBER),
        ({"priority_classes": ["batch"], "namespaces": None}, {"priority": 1}, NUMBER),
        ({"priority_classes": ["batch"], "namespaces": None}, {"priorityClassName": "high"}, CLASS),
        ({"priority_max": 10, "namespaces": None}, {"priority": 11}, NUMBER),
        ({"priority_max": 10, "namespaces": None}, {"priorityClassName": "high"}, CLASS),
        ({"kinds": ["Pod", "Pod/priority"]}, {"priority": 2_000_000_000}, None),
    ],
)
async def test_the_pods_of_a_key_ask_for_no_more_than_its_priority(
    house: House, scope: dict[str, Any], spec: dict[str, Any], path: str | None
) -> None:
    await house.key("team", ["producer"], **{"namespaces": ["team-a"]} | scope)
    node = {"nodeName": "n1"}
    for change, more in (("ADDED", {}), ("MODIFIED", {}), ("BIND_FAILED", node)):
        pod = pod_manifest("p", "team-a", uid="u1", spec=spec | more)
        answer = await house.send("team", event(change, pod))
        assert answer.status_code == (202 if path is None else 403), (change, answer.text)
        if path is not None:
            (detail,) = error_of(answer).details or []
            assert detail.path == path
            assert "the key team" in detail.message
            assert "may" in detail.message.rpartition(";")[2], "the remedy"
    assert len(house.keys_of(PODS_TOPIC)) == (3 if path is None else 0)


async def test_a_pod_that_runs_already_has_no_higher_priority_either(house: House) -> None:
    """Bound by its sender, or running: a high priority would keep it from ever being evicted."""
    await house.key("executor", ["producer"], namespaces=["team-a"], kinds=["Pod", "Pod/binding"])
    pod = pod_manifest("p", "team-a", priority=7, node_name="n1", uid="u1", phase="Running")
    answer = await house.send("executor", event("ADDED", pod))
    assert [each.path for each in error_of(answer).details or []] == [NUMBER]


async def test_no_key_with_namespaces_makes_or_raises_a_priority_class(house: House) -> None:
    """Not even one that the table of keys says may send it, nor one that is the default of all pods."""
    kinds = ["Pod", "PriorityClass"]
    await house.key("team", ["producer"], namespaces=["team-a"], kinds=kinds, priority_classes=["batch"])
    await house.key("boss", ["producer", "operator"], namespaces=["team-a"])
    raised = priority_class_manifest("batch", 1_000_000)
    default = priority_class_manifest("everybody", 1_000_000) | {"globalDefault": True}
    in_a_namespace = {**raised, "metadata": {"name": "batch", "namespace": "team-a"}}
    for holder in ("team", "boss"):
        for change in ("ADDED", "MODIFIED", "DELETED"):
            for thing in (raised, default, in_a_namespace):
                answer = await house.send(holder, event(change, thing))
                assert [each.path for each in error_of(answer).details or []] == ["object.kind"]
    assert house.keys_of(CONFIG_TOPIC) == []


# -------------------------------------------------------------------------- what it keeps others away from

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NAME = "kubernetes.io/metadata.name"


def shunning(*terms: Json, whose: str = "team-a", **how: Any) -> Json:
    """Return a pod with these required terms of anti-affinity."""
    required = [{"labelSelector": {}, "topologyKey": ZONE, **term} for term in terms]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return pod_manifest("p", whose, affinity=affinity, uid="u1", **how)


def named(*names: str, operator: str = "In", key: str = NAME) -> Json:
    """Return a selector of namespaces by their names."""
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(names)}]}


@pytest.mark.parametrize(
    ("term", "field"),
    [
        ({}, None),
        ({"namespaces": ["team-a", "team-c"]}, None),
        ({"namespaces": ["team-b"]}, "namespaces"),
        ({"namespaces": ["team-a", "team-b"]}, "namespaces"),
        ({"namespaceSelector": {}}, "namespaceSelector"),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, "namespaceSelector"),
        ({"namespaceSelector": {}, "namespaces": ["team-a"]}, "namespaceSelector"),
        ({"namespaceSelector": {"matchLabels": {NAME: "team-c"}}}, None),
        ({"namespaceSelector": named("team-a", "team-c")}, None),
        ({"namespaceSelector": named("team-a", "team-b")}, "namespaceSelector"),
        ({"namespaceSelector": named("team-a", operator="NotIn")}, "namespaceSelector"),
        ({"namespaceSelector": named("team-a", key="name")}, "namespaceSelector"),
        ({"namespaceSelector": {}, "topologyKey": HOST}, None),
        ({"namespaces": ["team-b"], "topologyKey": HOST}, None),
    ],
)
async def test_a_key_keeps_pods_of_other_namespaces_off_single_nodes_at_most(
    house: House, term: Json, field: str | None
) -> None:
    await house.key("team", ["producer"], namespaces=["team-a", "team-c"])
    await house.key("executor", ["producer"], namespaces=["team-a"], kinds=["Pod", "Pod/binding"])
    sent = [
        ("team", "ADDED", shunning({}, term)),
        ("team", "MODIFIED", shunning({}, term, labels={"app": "other"})),
        ("team", "BIND_FAILED", shunning({}, term, node_name="n1")),
        ("executor", "ADDED", shunning({}, term, node_name="n1", phase="Running")),
    ]
    if "team-c" in str(term):
        del sent[-1]  # that key may not send there
    for holder, change, pod in sent:
        answer = await house.send(holder, event(change, pod))
        assert answer.status_code == (202 if field is None else 403), (change, answer.text)
        if field is not None:
            (detail,) = error_of(answer).details or []
            at = "object.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            assert detail.path == f"{at}[1].{field}"
            assert f"the key {holder}" in detail.message
            assert "Pod/anti-affinity" in detail.message
    assert len(house.keys_of(PODS_TOPIC)) == (len(sent) if field is None else 0)


async def test_with_the_grant_or_all_namespaces_a_key_keeps_pods_off_a_zone(house: House) -> None:
    grants = ["Pod", "Pod/anti-affinity"]
    await house.key("daemon", ["producer"], namespaces=["team-a"], kinds=grants)
    await house.key("bridge", ["producer"])
    for holder in ("daemon", "bridge"):
        answer = await house.send(holder, event("ADDED", shunning({"namespaceSelector": {}})))
        assert answer.status_code == 202, answer.text


def test_what_is_allowed_keeps_pods_of_other_teams_off_one_node_only() -> None:
    """And what is refused would keep them off all: the attack itself, and what is left of it."""
    for key, free in ((ZONE, set()), (HOST, {"n2", "n3"})):
        site = Site()
        for name in ("n1", "n2", "n3"):
            site.tell("ADDED", node_manifest(name, labels={ZONE: "z", HOST: name}))
        wide = {"namespaceSelector": {}, "topologyKey": key}
        site.tell("ADDED", shunning(wide, node_name="n1"))
        site.tell("ADDED", *(pod_manifest(f"q{i}", "team-b", cpu="1m") for i in range(9)))
        pods = site.planner.scheduler.state.pods
        others = [entry for entry in pods.values() if entry.spec.namespace == "team-b"]
        assert len(others) == 9
        assert {entry.node for entry in others if entry.node} == free


# ---------------------------------------------------------------------------------------- what a key may be


@pytest.mark.parametrize(
    ("grant", "path"),
    [
        (Grant("", ["auditor"]), "name"),
        (Grant("a\n\x1b[2J", ["auditor"]), "name"),
        (Grant("a" * 64, ["auditor"]), "name"),
        (Grant("team/a", ["auditor"]), "name"),
        (Grant("-rf", ["auditor"]), "name"),
        (Grant("a", []), "roles"),
        (Grant("a", ["root"]), "roles"),
        (Grant("a", ["producer"], ["Team A"]), "namespaces"),
        (Grant("a", ["producer"], ["team-*"]), "namespaces"),
        (Grant("a", ["producer"], []), "namespaces"),
        (Grant("a", ["producer"], None, []), "kinds"),
        (Grant("a", ["producer"], priority_classes=[]), "priority_classes"),
        (Grant("a", ["producer"], [f"team-{i}" for i in range(101)]), "namespaces"),
        (Grant("a", ["admin"], ["team-a"]), "roles"),
        (Grant("a", ["admin"], None, ["Pod"]), "roles"),
        (Grant("a", ["producer", "operator"], ["team-a"]), "roles"),
        (Grant("a", ["producer"], None, ["Secret"]), "kinds"),
        (Grant("a", ["auditor"], None, ["Pod"]), "kinds"),
        (Grant("a", ["producer"], ["team-a"], ["Pod", "Node"]), "kinds"),
        (Grant("a", ["producer"], None, ["Pod/binding"]), "kinds"),
        (Grant("a", ["producer"], events_per_second=0), "events_per_second"),
        (Grant("a", ["producer"], bytes_per_second=-1), "bytes_per_second"),
        (Grant("a", ["producer"], requests_at_once=2**31), "requests_at_once"),
        (Grant("a", ["producer"], priority_max=1_000_000_001), "priority_max"),
        (Grant("a", ["producer"], priority_max=-(2**31) - 1), "priority_max"),
        (Grant("a", ["producer"], priority_classes=["High"]), "priority_classes"),
        (Grant("a", ["producer"], priority_classes=["system-node-critical"]), "priority_classes"),
        (Grant("a", ["producer"], priority_classes=[f"c{i}" for i in range(101)]), "priority_classes"),
        (Grant("a", ["auditor"], ["team-a"], priority_max=0), "priority_max"),
        (Grant("a", ["producer", "operator"], priority_max=0), "priority_max"),
        (Grant("a", ["producer"], None, ["Pod", "Pod/priority"], priority_max=0), "priority_max"),
        (
            Grant("a", ["producer"], None, ["Pod", "PriorityClass"], priority_classes=["b"]),
            "priority_classes",
        ),
        (Grant("a", ["producer"], None, ["Service"], priority_classes=["b"]), "priority_classes"),
        (Grant("a", ["producer"], None, ["Pod", "Pod/anti-affinity"]), "kinds"),
        (Grant("a", ["producer"], ["team-a"], ["Pod/anti-affinity"]), "kinds"),
        (Grant("a", ["agent"]), "node"),
        (Grant("a", ["agent"], node="N 1"), "node"),
        (Grant("a", ["auditor"], node="n1"), "node"),
        (Grant("a", ["agent", "auditor"], node="n1"), "roles"),
        (Grant("a", ["agent"], ["team-a"], node="n1"), "roles"),
        (Grant("a", ["agent"], None, ["NodeUsage"], node="n1"), "roles"),
        (Grant("a", ["agent"], priority_max=1, node="n1"), "priority_max"),
        (Grant("a", ["producer"], None, ["Pod/eviction"]), "kinds"),
    ],
)
def test_a_grant_that_is_wrong_or_contradicts_itself_is_refused(grant: Grant, path: str) -> None:
    with pytest.raises(FieldError) as refused:
        checked_grant(grant)
    assert refused.value.path == path


def test_a_grant_names_each_thing_once() -> None:
    found = checked_grant(Grant("a", ["producer", "producer"], ["b", "b"], ["Pod", "Pod"]))
    assert found == Grant("a", ["producer"], ["b"], ["Pod"])


def test_the_page_of_keys_names_what_each_role_sends() -> None:
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| `")]
    rows = [row for row in rows if row[0].strip(" `") in SENT_BY]
    told = {row[0].strip(" `"): {each.strip() for each in row[1].split(",")} - {"–"} for row in rows}
    assert told == SENT_BY


# ------------------------------------------------------------------------------------------------ event ids


async def test_two_teams_may_use_the_same_id(house: House) -> None:
    for team in ("team-a", "team-b"):
        await house.key(team, ["producer"], namespaces=[team])
        sent = event("ADDED", pod_manifest("p", team), id="1")
        first = (await house.send(team, sent)).json()
        again = (await house.send(team, sent)).json()
        assert (first["accepted"], first["duplicates"]) == (1, 0)
        assert (again["accepted"], again["duplicates"]) == (0, 1)
        other = await house.send(team, event("ADDED", pod_manifest("q", team), id="1"))
        assert (other.status_code, error_of(other).code) == (422, "invalid-events")
    assert house.keys_of(PODS_TOPIC) == ["team-a/p", "team-b/p"]


async def test_ids_are_forgotten_after_a_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "FORGET_AT_ONCE_MAX", 2)
    await house.store.callers.record_events("ci", {str(n): b"" for n in range(7)})
    house.database.now_ms = lambda: 3_600_001
    await house.store.callers.record_events("ci", {"new": b""})
    await forgetting.forget_old(house.store.callers.forget_events, 3600)
    assert [*house.database.events] == [("ci", "new")]


# --------------------------------------------------------------------------------------------- how much


async def test_events_per_second_of_a_name(house: House) -> None:
    await house.key("slow", ["producer"], events_per_second=10)
    await house.key("other", ["producer"])
    pods = [event("ADDED", pod_manifest(f"p{i}")) for i in range(100)]
    assert (await house.send("slow", *pods[:10])).status_code == 202, "a burst of a second is free"
    assert (await house.send("slow", *pods)).status_code == 202, "no request is too large for ever"
    refused = await house.send("slow", pods[0])
    assert (refused.status_code, error_of(refused).code) == (429, "rate-exceeded")
    assert refused.headers["retry-after"] == "10"
    assert "10 events per second" in error_of(refused).message
    assert "the key slow" in error_of(refused).message
    assert (await house.send("other", pods[0])).status_code == 202
    house.seconds += 9.9
    assert (await house.send("slow", pods[0])).status_code == 429
    house.seconds += 0.2
    assert (await house.send("slow", pods[0])).status_code == 202


async def test_bytes_per_second_of_a_name_count_whatever_they_hold(house: House) -> None:
    await house.key("slow", ["producer"], bytes_per_second=1000)
    rubbish = b"x" * 5000
    json = {"Content-Type": "application/json"}
    auth = {"Authorization": "Bearer slow"}
    first = await house.client.post("/v1/events", content=rubbish, headers=json | auth)
    assert first.status_code == 422
    second = await house.client.post("/v1/events", content=rubbish, headers=json | auth)
    assert (second.status_code, second.headers["retry-after"]) == (429, "4")
    house.seconds += 5
    large = await house.client.post("/v1/events", content=bytes(17 << 20), headers=json | auth)
    assert large.status_code == 413
    third = await house.client.post("/v1/events", content=rubbish, headers=json | auth)
    assert third.status_code == 429
    assert int(third.headers["retry-after"]) > 16_000


async def test_a_request_is_taken_whole_however_many_bytes_it_has(house: House) -> None:
    await house.key("slow", ["producer"], events_per_second=10, bytes_per_second=100)
    pods = [event("ADDED", pod_manifest(f"p{i}")) for i in range(5)]
    assert (await house.send("slow", *pods)).status_code == 202
    assert (await house.send("slow", pods[0])).status_code == 429


async def test_requests_that_come_together_overdraw_by_one_only(house: House) -> None:
    await house.key("slow", ["producer"], events_per_second=10)
    pods = [event("ADDED", pod_manifest(f"p{i}")) for i in range(100)]
    found = await asyncio.gather(*(house.send("slow", *pods) for _ in range(10)))
    assert sorted(each.status_code for each in found) == [202] + [429] * 9


async def test_requests_at_once_of_a_name(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.key("few", ["auditor"], requests_at_once=2)
    await house.key("many", ["auditor"])
    let_go = asyncio.Event()

    nodes: Any = house.store.nodes

    async def slow(*which: object) -> Any:
        await let_go.wait()
        return await nodes(*which)

    monkeypatch.setattr(house.store, "nodes", slow)
    running = [asyncio.create_task(house.ask(key, "GET", "/v1/nodes")) for key in ("few", "few", "many")]
    await asyncio.sleep(0.05)
    refused = await house.ask("few", "GET", "/v1/shards")
    assert (refused.status_code, error_of(refused).code) == (429, "too-many-requests")
    assert refused.headers["retry-after"] == "1"
    assert (await house.ask("many", "GET", "/v1/shards")).status_code == 200
    let_go.set()
    assert [each.status_code for each in await asyncio.gather(*running)] == [200] * 3
    for _ in range(3):  # also those that fail give their place back
        assert (await house.ask("few", "GET", "/v1/nodes/none")).status_code == 404
    assert (await house.ask("few", "GET", "/v1/shards")).status_code == 200


async def test_the_questions_of_one_key_leave_others_their_turn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many a key asks at once, its holder has few of the connections to the ledger."""
    for name in ("flood", "other"):
        await house.key(name, ["auditor"], namespaces=["team-a"])
    asked, release, read = 0, asyncio.Event(), MemoryStore.pods

    async def slow(self: MemoryStore, which: PodFilter, *page: Any) -> Rows[PodState]:
        nonlocal asked
        asked += 1
        await release.wait()
        return await read(self, which, *page)

    monkeypatch.setattr(MemoryStore, "pods", slow)
    flood = [asyncio.create_task(house.ask("flood", "GET", "/v1/pods")) for _ in range(30)]
    await asyncio.sleep(0.1)
    assert asked == limits.reads_of_key_at_once
    other = asyncio.create_task(house.ask("other", "GET", "/v1/pods"))
    await asyncio.sleep(0.1)
    assert asked == limits.reads_of_key_at_once + 1
    gone = flood.pop()
    gone.cancel()  # who leaves gives his place back
    release.set()
    assert {each.status_code for each in await asyncio.gather(*flood, other)} == {200}
    assert (await house.ask("flood", "GET", "/v1/pods")).status_code == 200


async def test_the_events_of_one_key_leave_others_their_turn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests with events a key sends at once, few of them use the ledger or the log."""
    for name in ("flood", "other"):
        await house.key(name, ["producer"], namespaces=["team-a"])
    asked, release, read = 0, asyncio.Event(), MemoryCallers.known_events

    async def slow(self: MemoryCallers, holder: str, ids: Sequence[str]) -> Mapping[str, bytes | None]:
        nonlocal asked
        asked += 1
        await release.wait()
        return await read(self, holder, ids)

    monkeypatch.setattr(MemoryCallers, "known_events", slow)
    sent = [event("ADDED", pod_manifest(f"p{i}", "team-a"), None, f"id-{i % 5}") for i in range(30)]
    flood = [asyncio.create_task(house.send("flood", each)) for each in sent]
    await asyncio.sleep(0.1)
    assert asked == limits.appends_of_key_at_once
    other = asyncio.create_task(house.send("other", sent[0]))
    await asyncio.sleep(0.1)
    assert asked == limits.appends_of_key_at_once + 1
    release.set()
    codes = [each.status_code for each in await asyncio.gather(*flood, other)]
    assert codes == [202] * 5 + [422] * 25 + [202], "an id names one event; to wait for it blocks nobody"


async def test_wrong_keys_are_not_looked_up_for_ever(house: House) -> None:
    await house.key("good", ["auditor"])
    await house.key("late", ["auditor"])
    assert (await house.ask("good", "GET", "/v1/nodes")).status_code == 200
    looked_up = house.count_lookups()
    found = [await house.ask(f"wrong-{n}", "GET", "/v1/nodes") for n in range(100)]
    assert [each.status_code for each in found] == [401] * 31 + [429] * 69
    assert looked_up() == FAILED_LOGINS_PER_MINUTE + 1
    assert error_of(found[-1]).code == "too-many-failures"
    assert 1 <= int(found[-1].headers["retry-after"]) <= 2
    assert (await house.ask("good", "GET", "/v1/nodes")).status_code == 200, "who was let in before still is"
    assert (await house.ask("late", "GET", "/v1/nodes")).status_code == 429
    assert (await house.ask(None, "GET", "/v1/nodes")).status_code == 401
    await house.store.callers.revoke_key("good")
    assert (await house.ask("good", "GET", "/v1/nodes")).status_code == 401, "at once"
    house.seconds += 5
    assert (await house.ask("late", "GET", "/v1/nodes")).status_code == 200


def test_what_counts_as_one_address() -> None:
    assert address_of("2001:db8::1") == address_of("2001:db8::ffff:2") != address_of("2001:db8:0:1::1")
    assert address_of("::ffff:10.0.0.1") == address_of("10.0.0.1") == "10.0.0.1"
    assert address_of(None) == ""


def test_what_is_remembered_of_callers_is_bounded() -> None:
    logins = Logins(lambda: 0.0)
    for n in range(ADDRESSES_MAX + 10):
        logins.note(str(n), b"%d" % n, good=False)
    for n in range(GOOD_KEYS_MAX + 10):
        logins.note("", b"good%d" % n, good=True)
    assert (len(logins._failed._meters), len(logins._good)) == (ADDRESSES_MAX, GOOD_KEYS_MAX)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("a", "--role", "boss"), "--role: 'boss' is not allowed"),
        (("a", "--role", "producer", "--kind", "Pods"), "--kind: 'Pods' is not allowed"),
        (("a", "--role", "producer", "--namespace", "A"), "--namespace: 'A' is not"),
        (("a", "--role", "producer", "--events-per-second", "0"), "--events-per-second: 0 is out of range"),
        (("a b", "--role", "producer"), "NAME: 'a b' is not allowed"),
        (("a", "--role", "producer", "--priority-max", "1000000001"), "--priority-max: 1000000001 is out"),
        (("a", "--role", "producer", "--priority-class", "A"), "--priority-class: 'A' is not"),
    ],
)
def test_the_command_names_what_is_wrong_as_it_was_given(given: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, ["api-key", "create", *given])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {said}")


# --------------------------------------------------------------------------------------- keys over HTTP


async def test_an_admin_makes_lists_and_revokes_keys(house: House) -> None:
    await house.key("root", ["admin"])
    wanted = {"name": "ci", "roles": ["producer"], "namespaces": ["team-a"], "events_per_second": 5}
    made = await house.ask("root", "POST", "/v1/keys", json=wanted)
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    key = msgspec.convert(made.json(), answers.NewKey)
    assert (await house.send(key.key, event("ADDED", pod_manifest("p", "team-a")))).status_code == 202
    assert (await house.send(key.key, event("ADDED", pod_manifest("p", "team-b")))).status_code == 403
    listed = await house.ask("root", "GET", "/v1/keys")
    assert key.key not in listed.text
    ci, one = sorted(msgspec.convert(listed.json(), answers.KeyPage).items, key=lambda each: each.name)
    assert (one.name, one.roles, one.revoked_at) == ("root", ["admin"], None)
    assert (ci.name, ci.namespaces, ci.kinds, ci.events_per_second) == ("ci", ["team-a"], None, 5)
    gone = await house.ask("root", "DELETE", "/v1/keys/ci")
    assert (gone.status_code, gone.json()) == (200, {"name": "ci", "revoked": 1})
    assert (await house.send(key.key)).status_code == 401
    assert (await house.ask("root", "DELETE", "/v1/keys/ci")).status_code == 404


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"roles": ["admin"]}, "name"),
        ({"name": "ci", "roles": "admin"}, "roles"),
        ({"name": "ci", "roles": ["root"]}, "roles"),
        ({"name": "ci", "roles": ["producer"], "namespace": "team-a"}, "namespace"),
        ({"name": "ci", "roles": ["producer"], "kinds": ["Secret"]}, "kinds"),
    ],
)
async def test_a_key_that_makes_no_sense_is_not_made(house: House, body: object, path: str) -> None:
    await house.key("root", ["admin"])
    refused = await house.ask("root", "POST", "/v1/keys", json=body)
    assert (refused.status_code, error_of(refused).code) == (422, "invalid-field"), refused.text
    assert path in f"{error_of(refused).path} {error_of(refused).message}"
    assert len(house.database.keys) == 1


async def test_an_unknown_field_of_a_key_is_named_with_those_that_are_allowed(house: House) -> None:
    await house.key("root", ["admin"])
    body = {"name": "ci", "roles": ["producer"], "name\x1bspace": "team-a"}
    refused = error_of(await house.ask("root", "POST", "/v1/keys", json=body))
    assert refused.path == r"name\x1bspace"
    assert refused.message.endswith(f"allowed are {', '.join(Grant._fields)}")


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"name":' * 100_000, b'{"x":' + b"[" * 100_000, b'{"name":"\xff"}', b'{"\xff":1}'],
    ids=["list", "object", "unknown", "value", "key"],
)
async def test_a_body_that_is_no_key_is_a_fault_of_its_sender(house: House, body: bytes) -> None:
    await house.key("root", ["admin"])
    headers = {"Authorization": "Bearer root", "Content-Type": "application/json"}
    refused = await house.client.post("/v1/keys", content=body, headers=headers)
    assert refused.status_code == 422, refused.text


async def test_the_list_of_keys_says_which_priority_holds(house: House) -> None:
    await house.key("root", ["admin"])
    team = {"roles": ["producer"], "namespaces": ["team-a"]}
    for body in (
        {"name": "team", **team},
        {"name": "batch", **team, "priority_max": 5, "priority_classes": ["batch", "nightly"]},
        {"name": "all", "roles": ["producer"]},
        {"name": "eyes", "roles": ["auditor"]},
    ):
        assert (await house.ask("root", "POST", "/v1/keys", json=body)).status_code == 201
    items = (await house.ask("root", "GET", "/v1/keys")).json()["items"]
    assert {each["name"]: (each["priority_max"], each["priority_classes"]) for each in items} == {
        "root": (None, None),
        "team": (0, None),
        "batch": (5, ["batch", "nightly"]),
        "all": (1_000_000_000, None),
        "eyes": (None, None),
    }
    told = {each["name"]: keys._scope(each) for each in items}
    assert [told[name] for name in ("team", "batch", "all")] == [
        "namespaces team-a; priority 0",
        "namespaces team-a; priority classes batch nightly; priority 5",
        "",
    ]


async def test_without_keys_nobody_makes_one_over_http(house: House) -> None:
    gate = Gate(house.store, keys_required=False)
    request: Any = Request({"type": "http", "headers": [], "client": ("127.0.0.1", 1)})
    assert (await gate.check(request, "write")).name is None
    with pytest.raises(ApiError) as refused:
        await gate.check(request, "manage")
    assert refused.value.code == "forbidden"
    local = Gate(house.store, keys_required=False, local_user="me")
    assert (await local.check(request, "manage")).name is None


async def test_another_method_is_told_all_that_there_are(house: House) -> None:
    found = await house.ask(None, "OPTIONS", "/v1/keys")
    assert (found.status_code, found.headers["allow"]) == (405, "GET, POST")
    found = await house.ask(None, "PUT", "/v1/nodes/n1")
    assert (found.status_code, found.headers["allow"]) == (405, "GET")


# ------------------------------------------------------------------------------------- who may ask for what

EVERYBODY = {None, "producer", "operator", "auditor", "agent", "admin"}
READERS = {"operator", "auditor", "admin"}
ROUTES: dict[tuple[str, str], set[str | None]] = {
    ("GET", "/healthz"): EVERYBODY,
    ("GET", "/readyz"): EVERYBODY,
    ("GET", "/"): EVERYBODY,
    ("GET", "/docs/assets"): EVERYBODY,
    ("GET", "/docs"): EVERYBODY,
    ("GET", "/openapi.json"): EVERYBODY,
    ("POST", "/v1/events"): {"producer", "operator", "agent", "admin"},
    ("GET", "/v1/nodes/{name}"): {*READERS, "agent"},
    ("POST", "/v1/deadletters/{id}/resend"): {"producer", "operator", "admin"},
    ("GET", "/v1/keys"): {"admin"},
    ("POST", "/v1/keys"): {"admin"},
    ("DELETE", "/v1/keys/{name}"): {"admin"},
    ("GET", "/v1/accesses"): {"auditor", "admin"},
    ("GET", "/v1/audit"): {"auditor", "admin"},
}
"""Who may use a route that is not for all readers. Another route is for readers, and must be below /v1."""


async def test_each_route_is_for_its_roles(house: House) -> None:
    for role in SENT_BY:
        await house.key(role, [role], **({"node": "x"} if role == "agent" else {}))
    found = house.routes()
    assert ROUTES.keys() <= found
    for method, path in sorted(found):
        target = path.replace("{name}", "x").replace("{namespace}", "x").replace("{id}", "0-1")
        target = target.replace("{kind}", "Service").replace("{shard}", "0").replace("{what}", "nodes")
        target = target.replace("{signature}", "00" * 16)
        assert "{" not in target, "give the parameter a value here"
        allowed = ROUTES.get((method, path), READERS)
        assert allowed is not READERS or path.startswith(("/v1/", "/metrics")), "say who may use this"
        caller: str | None
        for caller in (None, *SENT_BY):
            answer = await house.ask(caller, method, target, json=[] if method == "POST" else None)
            if caller in allowed:
                assert answer.status_code not in (401, 403), (method, path, caller, answer.text)
            else:
                assert answer.status_code == (403 if caller else 401), (method, path, caller, answer.text)
                assert error_of(answer).message
