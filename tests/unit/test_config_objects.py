"""Are namespaces, services, owners of pods and budgets read, kept and asked for as they were written?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from domain.model.colocation import CoLocationPolicy, Portion, ViewRule
from domain.model.config import (
    CONTENTS,
    OF_CLUSTER,
    Content,
    DisruptionBudget,
    Namespace,
    PodGroup,
    Selecting,
    Workload,
)
from domain.model.events import ConfigDeleted, ConfigUpserted, PodUpserted
from domain.model.hosting import HostedReplicas
from domain.model.limits import config_gone_max, config_objects_max
from domain.model.pods import Controller
from domain.model.selectors import LabelRequirement, LabelSelector
from domain.state import config as config_state
from domain.state.changes import ConfigChanged, Refused, Skipped
from domain.state.cluster import ClusterState
from services.codec.decode import Decoder
from services.codec.envelope import KINDS, NAMESPACED_KINDS, Rejected
from services.codec.gateway import Gateway
from services.ports.ledger import ConfigRow
from services.ports.log import CONFIG_TOPIC
from services.worker.ledger_rows import config_object, config_row
from tests.builders import Json, event, event_bytes, pod_manifest, record

WEB = LabelSelector((LabelRequirement("app", "In", ("web",)),))
OWNERS = ("ReplicaSet", "StatefulSet", "Deployment", "Job")


def manifest(kind: str, name: str = "web", version: int | None = None, **fields: Any) -> Json:
    api_version, _ = KINDS[kind]
    metadata: Json = {"name": name} | ({"namespace": "shop"} if kind in NAMESPACED_KINDS else {})
    if version is not None:
        metadata["resourceVersion"] = str(version)
    if labels := fields.pop("labels", None):
        metadata["labels"] = labels
    spec = {"spec": fields.pop("spec")} if "spec" in fields else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata} | spec | fields


def selecting(kind: str, name: str = "web", version: int | None = None) -> Json:
    labels = {"app": "web"}
    selector = labels if kind in ("Service", "ReplicationController") else {"matchLabels": labels}
    return manifest(kind, name, version, spec={"selector": selector, "replicas": 3})


def read(thing: Json) -> ConfigUpserted:
    """Return the event that a worker makes of what the gateway keeps of an object."""
    sent = Gateway().prepare(event("ADDED", thing))
    assert sent.topic == CONFIG_TOPIC
    assert b"replicas" not in (sent.entry.value or b"")
    decoded = Decoder().decode(record(CONFIG_TOPIC, sent.entry.value, sent.entry.key)).event
    assert isinstance(decoded, ConfigUpserted)
    return decoded


def rejected(thing: Json) -> Rejected:
    found = Decoder().decode(record(CONFIG_TOPIC, event_bytes("ADDED", thing))).rejected
    assert found is not None
    return found


def named(name: str, **labels: str) -> dict[str, str]:
    """Return the labels of a namespace, with the one that the API server adds."""
    return {**labels, "kubernetes.io/metadata.name": name}


def state_of(*things: Json) -> ClusterState:
    state = ClusterState(seed=1)
    for thing in things:
        state.apply(read(thing))
    return state


CONTENT: dict[str, tuple[Json, Content]] = {
    "Namespace": (
        manifest("Namespace", "web", labels={"team": "a"}),
        Namespace(labels=named("web", team="a")),
    ),
    "PodDisruptionBudget": (
        manifest(
            "PodDisruptionBudget",
            spec={"selector": {"matchLabels": {"app": "web"}}, "minAvailable": "50%"},
            status={
                "disruptionsAllowed": 2,
                "disruptedPods": {"web-1": None, "web-0": "2026-01-01T00:00:00Z"},
            },
        ),
        DisruptionBudget(
            selector=WEB, min_available="50%", disruptions_allowed=2, disrupted=("web-0", "web-1")
        ),
    ),
    "Workload": (
        manifest("Workload", spec={"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 4}}}]}),
        Workload(pod_groups={"g": 4}),
    ),
    "CoLocationPolicy": (
        manifest(
            "CoLocationPolicy",
            spec={"nodeSelector": {"pool": "a"}, "view": {"margin": {"memory": "4Gi"}, "cap": "60%"}},
        ),
        CoLocationPolicy(
            node_selector={"pool": "a"},
            view=ViewRule(margin_memory=Portion(amount=4 << 30), cap_percent=60.0),
        ),
    ),
    "HostedReplicas": (
        manifest(
            "HostedReplicas", spec={"workload": {"kind": "StatefulSet", "name": "db"}, "min": 2, "max": 9}
        ),
        HostedReplicas(kind="StatefulSet", workload="db", least=2, most=9),
    ),
    "PodGroup": (
        manifest(
            "PodGroup",
            spec={
                "minMember": 3,
                "minResources": {"cpu": "1500m", "memory": "1Gi", "example.com/gpu": "0"},
                "scheduleTimeoutSeconds": 30,
            },
        ),
        PodGroup(min_member=3, min_resources={"cpu": 1500, "memory": 1 << 30}, schedule_timeout_seconds=30),
    ),
    "Service": (selecting("Service"), Selecting(selector=WEB)),
    "ReplicationController": (selecting("ReplicationController"), Selecting(selector=WEB)),
    **{kind: (selecting(kind), Selecting(selector=WEB)) for kind in OWNERS},
}


@pytest.mark.parametrize("kind", CONTENT)
def test_each_kind_is_read_kept_and_restored(kind: str) -> None:
    thing, content = CONTENT[kind]
    seen = read(thing)
    assert seen == ConfigUpserted(kind, "" if kind in OF_CLUSTER else "shop", "web", content)
    state = ClusterState(seed=1)
    (changed,) = state.apply(seen)
    assert isinstance(changed, ConfigChanged)
    row = config_row(changed.object, 7, "someone")
    stored = msgspec.json.decode(msgspec.json.encode(row.object))
    assert config_object(msgspec.structs.replace(row, object=stored)) == changed.object
    assert state.apply(seen) == (Skipped(),)


def test_every_kind_has_a_case() -> None:
    assert CONTENT.keys() == CONTENTS.keys() - {"PriorityClass"}


@pytest.mark.parametrize(
    ("thing", "content"),
    [
        (manifest("Service"), Selecting(selector=None)),
        (manifest("Service", spec={"selector": {}}), Selecting(selector=LabelSelector())),
        (manifest("Job"), Selecting(selector=None)),
        (manifest("Namespace"), Namespace(labels=named("web"))),
        (
            manifest("Namespace", labels={"kubernetes.io/metadata.name": "other"}),
            Namespace(labels=named("web")),
        ),
        (
            manifest("ReplicationController", spec={"template": {"metadata": {"labels": {"app": "web"}}}}),
            Selecting(selector=WEB),
        ),
        (manifest("PodDisruptionBudget"), DisruptionBudget(selector=None)),
        (manifest("PodGroup"), PodGroup(min_member=1)),
        (manifest("PodGroup", spec={"minMember": 0}), PodGroup(min_member=1)),
        (
            manifest("PodDisruptionBudget", spec={"selector": {}, "maxUnavailable": 0}),
            DisruptionBudget(selector=LabelSelector(), max_unavailable=0),
        ),
    ],
    ids=str,
)
def test_what_is_missing_has_the_meaning_of_the_api(thing: Json, content: Content) -> None:
    assert read(thing).content == content


@pytest.mark.parametrize(
    ("thing", "path"),
    [
        (manifest("Namespace", "a.b"), "object.metadata.name"),
        (manifest("Namespace", labels={"a b": "c"}), "object.metadata.labels[a b]"),
        (manifest("Service", spec={"selector": {"a": "b c"}}), "object.spec.selector.a"),
        (manifest("Service", spec={"selector": {"a": 1}}), "object.spec.selector.a"),
        (manifest("ReplicationController", spec={}), "object.spec.selector"),
        (
            manifest("ReplicationController", spec={"template": {"metadata": {"labels": {"a": "b c"}}}}),
            "object.spec.template.metadata.labels.a",
        ),
        (manifest("ReplicaSet"), "object.spec.selector"),
        (manifest("StatefulSet", spec={"selector": {}}), "object.spec.selector"),
        (
            manifest("Deployment", spec={"selector": {"matchLabels": {"a b": "c"}}}),
            "object.spec.selector.matchLabels[a b]",
        ),
        (
            manifest("Job", spec={"selector": {"matchExpressions": [{"key": "a"}]}}),
            "object.spec.selector.matchExpressions[0].operator",
        ),
        (manifest("PodDisruptionBudget", spec={"minAvailable": -1}), "object.spec.minAvailable"),
        (manifest("PodDisruptionBudget", spec={"maxUnavailable": "101%"}), "object.spec.maxUnavailable"),
        (manifest("PodDisruptionBudget", spec={"maxUnavailable": "1"}), "object.spec.maxUnavailable"),
        (
            manifest("PodDisruptionBudget", spec={"minAvailable": 1, "maxUnavailable": 1}),
            "object.spec.maxUnavailable",
        ),
        (manifest("PodDisruptionBudget", spec={"minAvailable": True}), "object.spec.minAvailable"),
        (manifest("PodGroup", spec={"minMember": -1}), "object.spec.minMember"),
        (manifest("PodGroup", spec={"minMember": "3"}), "object.spec.minMember"),
        (manifest("PodGroup", spec={"minResources": {"cpu": "x"}}), "object.spec.minResources.cpu"),
        (manifest("PodGroup", spec={"scheduleTimeoutSeconds": -1}), "object.spec.scheduleTimeoutSeconds"),
        (
            manifest("PodDisruptionBudget", status={"disruptionsAllowed": -1}),
            "object.status.disruptionsAllowed",
        ),
        (
            manifest("PodDisruptionBudget", status={"disruptedPods": {"web-0": None, "a\0": None}}),
            r"object.status.disruptedPods[a\x00]",
        ),
    ],
    ids=str,
)
def test_a_wrong_field_is_named(thing: Json, path: str) -> None:
    assert rejected(thing).path == path


def test_a_record_is_keyed_by_kind_namespace_and_name() -> None:
    for kind, key in (("Service", b"Service/shop/web"), ("Namespace", b"Namespace/web")):
        thing = CONTENT[kind][0]
        assert Gateway().prepare(event("ADDED", thing)).entry.key == key
        wrong = (
            Decoder().decode(record(CONFIG_TOPIC, event_bytes("ADDED", thing), b"Service/desk/web")).rejected
        )
        assert wrong is not None
        assert wrong.code == "key-mismatch"
        gone = Decoder().decode(record(CONFIG_TOPIC, event_bytes("DELETED", thing), key)).event
        assert gone == ConfigDeleted(kind, "shop" if kind == "Service" else "", "web")


def test_the_labels_of_a_namespace_are_those_of_its_latest_object() -> None:
    state = state_of(manifest("Namespace", "a", labels={"team": "x"}), manifest("Namespace", "b"))
    assert state.index.namespaces == {"a": named("a", team="x"), "b": named("b")}
    version = state.index.version
    state.apply(read(manifest("Namespace", "a", 3, labels={"team": "x"})))
    assert state.index.version == version, "nothing else than its version changed"
    state.apply(read(manifest("Namespace", "a", 4, labels={"team": "y"})))
    assert state.index.namespaces["a"] == named("a", team="y")
    assert state.index.version > version
    version = state.index.version
    state.apply(ConfigDeleted("Namespace", "", "a", 5))
    assert state.index.namespaces == {"b": named("b")}
    assert state.index.version > version


def test_services_and_owners_say_by_what_they_select() -> None:
    state = state_of(
        selecting("Service", "b"),
        manifest("Service", "a", spec={"selector": {"tier": "x"}}),
        manifest("Service", "none"),
        *(selecting(kind, "web") for kind in (*OWNERS, "ReplicationController")),
    )
    selectors = state.config.selectors
    tier = LabelSelector((LabelRequirement("tier", "In", ("x",)),))
    assert list(selectors.services("shop")) == [tier, WEB]
    assert list(selectors.services("desk")) == []
    for kind in ("ReplicaSet", "StatefulSet", "ReplicationController"):
        assert selectors.owner("shop", Controller(kind, "web", "any")) == WEB
        assert selectors.owner("desk", Controller(kind, "web", "any")) is None
        assert selectors.owner("shop", Controller(kind, "other", "any")) is None
    state.apply(ConfigDeleted("Service", "shop", "a"))
    state.apply(read(manifest("Service", "b")))
    assert list(selectors.services("shop")) == []
    state.apply(ConfigDeleted("ReplicaSet", "shop", "web"))
    assert selectors.owner("shop", Controller("ReplicaSet", "web", "any")) is None


def test_pods_are_told_apart_by_what_a_service_selects_by() -> None:
    decoder = Decoder()
    state = ClusterState(seed=1)
    for name, labels in (
        ("p", {"app": "web", "n": "1"}),
        ("q", {"app": "web", "n": "2"}),
        ("r", {"app": "db"}),
    ):
        value = event_bytes("ADDED", pod_manifest(name, "shop", labels=labels))
        seen = decoder.decode(record("berth.pods", value)).event
        assert isinstance(seen, PodUpserted)
        state.apply(seen)
    version = state.index.version
    state.apply(read(selecting("Service")))
    assert state.index.version > version
    assert not state.index.is_settled
    state.index.reclassify(state.pods)
    classes = {name: state.pods[f"shop/{name}"].pod_class for name in "pqr"}
    assert classes["p"] is classes["q"] is not None
    assert classes["p"] is not classes["r"]


def test_older_news_changes_nothing_and_a_deletion_without_version_forgets() -> None:
    state = state_of(selecting("Service", version=5))
    assert state.apply(read(selecting("Service", version=4))) == (Skipped("older"),)
    state.apply(ConfigDeleted("Service", "shop", "web", 7))
    assert state.apply(read(selecting("Service", version=6))) == (Skipped("older"),)
    (changed,) = state.apply(ConfigDeleted("Service", "shop", "web"))
    assert isinstance(changed, ConfigChanged)
    assert changed.object.is_forgotten
    assert state.config.known == {}
    assert isinstance(state.apply(read(selecting("Service", version=1)))[0], ConfigChanged)


def test_what_is_gone_is_forgotten_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_gone_max >= 1_000
    monkeypatch.setattr(config_state, "config_gone_max", 2)
    state = state_of(*(selecting("Job", f"j{i}") for i in range(4)))
    last: Iterable[object] = ()
    for i in range(3):
        last = state.apply(ConfigDeleted("Job", "shop", f"j{i}", 10))
    gone, forgotten = last
    assert isinstance(gone, ConfigChanged)
    assert isinstance(forgotten, ConfigChanged)
    assert (gone.object.name, forgotten.object.name) == ("j2", "j0")
    assert forgotten.object.is_forgotten
    assert {name for _, _, name in state.config.known} == {"j1", "j2", "j3"}


def test_a_flood_of_deletions_lets_none_of_another_namespace_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config_state, "config_gone_max", 32)
    state = state_of(selecting("Job", "web"))
    state.apply(ConfigDeleted("Job", "shop", "web", 10))
    for i in range(100):
        state.apply(ConfigUpserted("Job", "flood", f"j{i}", Selecting(selector=WEB), 1))
        state.apply(ConfigDeleted("Job", "flood", f"j{i}", 2))
        assert len(state.config.known) <= 32
    assert state.apply(read(selecting("Job", "web", 9))) == (Skipped("older"),)
    (late,) = state.apply(ConfigUpserted("Job", "flood", "j99", Selecting(selector=WEB), 1))
    assert late == Skipped("older")
    assert isinstance(
        state.apply(ConfigUpserted("Job", "flood", "j0", Selecting(selector=WEB), 1))[0], ConfigChanged
    )


def test_there_are_not_more_objects_of_a_kind_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_objects_max >= 10_000
    monkeypatch.setattr(config_state, "config_objects_max", 2)
    state = state_of(*(selecting("Job", f"j{i}") for i in range(2)), selecting("Service"))
    (refused,) = state.apply(read(selecting("Job", "j2")))
    assert isinstance(refused, Refused)
    assert "config_objects_max" in refused.message
    assert isinstance(state.apply(read(selecting("Job", "j1", 9)))[0], ConfigChanged)
    state.apply(ConfigDeleted("Job", "shop", "j0"))
    assert isinstance(state.apply(read(selecting("Job", "j2")))[0], ConfigChanged)


def test_a_flood_of_one_namespace_takes_no_place_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_state, "config_objects_of_namespace_max", 2)
    state = state_of(*(selecting("Job", f"j{i}") for i in range(2)))
    (refused,) = state.apply(read(selecting("Job", "j2")))
    assert isinstance(refused, Refused)
    assert "namespace shop; allowed are 2 (config_objects_of_namespace_max)" in refused.message
    other = ConfigUpserted("Job", "desk", "j0", Selecting(selector=WEB), 1)
    assert isinstance(state.apply(other)[0], ConfigChanged)
    named = [manifest("Namespace", f"team{i}") for i in range(4)]
    assert all(isinstance(state.apply(read(each))[0], ConfigChanged) for each in named), "they are in none"
    state.apply(ConfigDeleted("Job", "shop", "j0"))
    assert isinstance(state.apply(read(selecting("Job", "j2")))[0], ConfigChanged)


def test_a_row_without_anything_to_remember_goes() -> None:
    row = ConfigRow(kind="Job", namespace="a", name="b", object=None, resource_version=None, at_ms=1)
    assert row.is_forgotten
    assert not msgspec.structs.replace(row, resource_version=1).is_forgotten
