"""Does every record become the event it says, or a refusal that names the field?"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from domain.manifests.objects import node_from_manifest, pod_event_from_manifest
from domain.model.decisions import Decision, Outcome
from domain.model.errors import FieldError
from domain.model.events import (
    ConfigDeleted,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
    ProfileDeleted,
)
from domain.model.limits import event_bytes_max, usage_ahead_seconds_max
from domain.model.pods import PodSpec, PodTemplate
from domain.model.signature import signature
from domain.model.usage import NodeUsage
from services.codec.decode import Decoded, Decoder
from services.codec.encode import (
    decision_key,
    encode_decision,
    encode_event,
    event_topic_and_key,
    template_fragment,
)
from services.codec.envelope import Refusal
from services.ports.log import CONFIG_TOPIC, DECISIONS_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC
from tests.builders import event_bytes, node_manifest, pod_manifest, record, usage_manifest

PROFILES = {"default-scheduler", "first-fit"}
NOW_MS = 1_700_000_000_000


def decode(topic: str, value: bytes | None, key: bytes | None = None, timestamp_ms: int = NOW_MS) -> Decoded:
    return Decoder().decode(record(topic, value, key, timestamp_ms=timestamp_ms))


def test_a_measurement_is_of_its_own_moment_or_of_its_records() -> None:
    usage = NodeUsage(node="n", at_ms=NOW_MS, percent={"cpu": 37.5})
    raw = usage_manifest("n", percent={"cpu": 37.5})
    assert decode(USAGE_TOPIC, event_bytes("ADDED", raw), b"n") == Decoded(NodeUsed(usage), None)
    early = decode(USAGE_TOPIC, event_bytes("MODIFIED", raw, at="2023-11-14T22:13:19Z"), b"n").event
    assert early == NodeUsed(msgspec.structs.replace(usage, at_ms=NOW_MS - 1_000))
    ahead = decode(USAGE_TOPIC, event_bytes("ADDED", raw, at="2023-11-14T22:14:20Z"), b"n").event
    assert ahead == NodeUsed(msgspec.structs.replace(usage, at_ms=NOW_MS + usage_ahead_seconds_max * 1_000))


def pod_of(decoded: Decoded) -> PodSpec:
    assert isinstance(decoded.event, PodUpserted), decoded
    return decoded.event.pod


@pytest.mark.parametrize("event_type", ["ADDED", "MODIFIED"])
def test_a_pod_event(event_type: str) -> None:
    manifest = pod_manifest(
        "p", "shop", cpu="1", labels={"a": "b"}, uid="u", resource_version=7, node_name="n-1"
    )
    manifest["status"] = {"phase": "Running", "qosClass": "Guaranteed", "startTime": "2024-05-01T12:00:00Z"}
    decoded = decode(PODS_TOPIC, event_bytes(event_type, manifest), b"shop/p")
    assert decoded == Decoded(pod_event_from_manifest(manifest), None)
    assert pod_of(decoded).template.node_name == ""


@pytest.mark.parametrize("event_type", ["ADDED", "MODIFIED"])
def test_a_node_event(event_type: str) -> None:
    extended: dict[str, Any] = {"nvidia.com/gpu": 2}
    manifest = node_manifest("n", uid="u", resource_version=3, **extended)
    decoded = decode(NODES_TOPIC, event_bytes(event_type, manifest), b"n")
    assert decoded == Decoded(NodeUpserted(node_from_manifest(manifest)), None)


def test_deleted_events_need_no_more_than_a_name() -> None:
    pod, node = (
        pod_manifest("p", uid="u", resource_version=9, spec={"containers": 5}),
        node_manifest("n", cpu="0"),
    )
    assert decode(PODS_TOPIC, event_bytes("DELETED", pod), b"default/p").event == PodDeleted(
        "default", "p", "u", 9
    )
    assert decode(NODES_TOPIC, event_bytes("DELETED", node), b"n").event == NodeDeleted("n", "", None)


def test_tombstones_delete_what_their_key_names() -> None:
    assert decode(PODS_TOPIC, None, b"shop/p").event == PodDeleted("shop", "p")
    assert decode(NODES_TOPIC, None, b"n-1").event == NodeDeleted("n-1")
    for kind, namespace, name in (
        ("PodDisruptionBudget", "x", "y"),
        ("Service", "x", "y"),
        ("Namespace", "", "x"),
    ):
        key = f"{kind}/{namespace}/{name}" if namespace else f"{kind}/{name}"
        assert decode(CONFIG_TOPIC, None, key.encode()).event == ConfigDeleted(kind, namespace, name)
    assert decode(CONFIG_TOPIC, None, b"SchedulingProfile/x").event == ProfileDeleted("x")
    for wrong in (b"Secret/x", b"Pod/x/y", b"Service/x", b"Namespace/A", b"x"):
        rejected = decode(CONFIG_TOPIC, None, wrong).rejected
        assert rejected is not None
        assert rejected.path == "key", wrong


@pytest.mark.parametrize(
    ("topic", "event_type", "kind", "api_version"),
    [
        (PODS_TOPIC, "BOOKMARK", "Pod", "v1"),
        (NODES_TOPIC, "BOOKMARK", "Node", "v1"),
        (CONFIG_TOPIC, "BOOKMARK", "PodDisruptionBudget", "policy/v1"),
        (CONFIG_TOPIC, "BOOKMARK", "PriorityClass", "scheduling.k8s.io/v1"),
        (CONFIG_TOPIC, "BOOKMARK", "SchedulingProfile", "berth/v1"),
        (USAGE_TOPIC, "BOOKMARK", "NodeUsage", "berth/v1"),
        (USAGE_TOPIC, "DELETED", "NodeUsage", "berth/v1"),
    ],
)
def test_some_events_change_nothing_here(topic: str, event_type: str, kind: str, api_version: str) -> None:
    thing = {"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": "5"}}
    assert decode(topic, event_bytes(event_type, thing, id="e")) == Decoded(None, None, None, "e")


@pytest.mark.parametrize(
    ("at", "event_at_ms"),
    {
        "1970-01-01T00:00:01Z": 1_000,
        "2023-11-14T22:13:20.123456789Z": NOW_MS + 123,
        "2023-11-14t22:13:20.5z": NOW_MS + 500,
        "2023-11-15T03:43:20+05:30": NOW_MS,
        "2023-11-14T22:13:20-00:00": NOW_MS,
        "1900-01-01T00:00:00Z": 0,
        None: None,
    }.items(),
)
def test_an_event_may_claim_when_it_happened(at: str | None, event_at_ms: int | None) -> None:
    assert decode(PODS_TOPIC, event_bytes("ADDED", pod_manifest("p"), at=at)).event_at_ms == event_at_ms


@pytest.mark.parametrize(("timestamp_ms", "at_ms"), {5: 5, -1: 0, 2**62: 253_402_300_799_999}.items())
def test_a_measurement_without_a_time_was_made_when_it_was_written(timestamp_ms: int, at_ms: int) -> None:
    usage = {"kind": "NodeUsage", "apiVersion": "berth/v1", "metadata": {"name": "n"}, "percent": {"cpu": 1}}
    decoded = decode(USAGE_TOPIC, event_bytes("ADDED", usage), timestamp_ms=timestamp_ms)
    assert isinstance(decoded.event, NodeUsed)
    assert (decoded.event.usage.at_ms, decoded.event_at_ms) == (at_ms, None)


POD = pod_manifest("p")
REFUSED: dict[str, tuple[str, bytes | None, bytes | None, str, str]] = {
    "empty": (PODS_TOPIC, b"", None, "not-json", ""),
    "no JSON": (PODS_TOPIC, b"hello", None, "not-json", ""),
    "cut": (PODS_TOPIC, event_bytes("ADDED", POD)[:-1], None, "not-json", ""),
    "no UTF-8": (PODS_TOPIC, event_bytes("ADDED", POD).replace(b'"p"', b'"\xff"'), None, "not-json", ""),
    "too deep": (PODS_TOPIC, b"[" * 100_000, None, "not-json", ""),
    "too deep inside": (PODS_TOPIC, b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}", None, "not-json", ""),
    "a list": (PODS_TOPIC, b"[]", None, "not-an-event", ""),
    "null": (NODES_TOPIC, b"null", None, "not-an-event", ""),
    "nothing": (PODS_TOPIC, b"{}", None, "not-an-event", "type"),
    "no object": (PODS_TOPIC, b'{"type":"ADDED"}', None, "not-an-event", "object"),
    "a bare pod": (PODS_TOPIC, json.dumps(POD).encode(), None, "not-an-event", "type"),
    "type": (PODS_TOPIC, event_bytes("ERROR", POD), None, "unknown-type", "type"),
    "type number": (PODS_TOPIC, b'{"type":1,"object":{}}', None, "invalid-field", "type"),
    "object text": (PODS_TOPIC, b'{"type":"ADDED","object":"x"}', None, "invalid-field", "object"),
    "kind": (PODS_TOPIC, event_bytes("ADDED", {**POD, "kind": "Task"}), None, "unknown-kind", "object.kind"),
    "kind with another shape": (
        PODS_TOPIC,
        event_bytes("ADDED", {"kind": "Status", "apiVersion": "v1", "status": "Failure"}),
        None,
        "unknown-kind",
        "object.kind",
    ),
    "apiVersion": (
        PODS_TOPIC,
        event_bytes("ADDED", {**POD, "apiVersion": "v2"}),
        None,
        "unknown-kind",
        "object.apiVersion",
    ),
    "pod among nodes": (NODES_TOPIC, event_bytes("ADDED", POD), None, "wrong-topic", "object.kind"),
    "node among pods": (
        PODS_TOPIC,
        event_bytes("ADDED", node_manifest("n")),
        None,
        "wrong-topic",
        "object.kind",
    ),
    "pod among budgets": (CONFIG_TOPIC, event_bytes("ADDED", POD), None, "wrong-topic", "object.kind"),
    "another topic": (DECISIONS_TOPIC, event_bytes("ADDED", POD), None, "wrong-topic", "object.kind"),
    "key": (PODS_TOPIC, event_bytes("ADDED", POD), b"default/q", "key-mismatch", "key"),
    "key of a node": (NODES_TOPIC, event_bytes("ADDED", node_manifest("n")), b"\xff", "key-mismatch", "key"),
    "key of a deleted pod": (PODS_TOPIC, event_bytes("DELETED", POD), b"p", "key-mismatch", "key"),
    "tombstone without key": (PODS_TOPIC, None, None, "not-an-event", "key"),
    "tombstone of no pod": (PODS_TOPIC, None, b"p", "not-an-event", "key"),
    "tombstone of no name": (NODES_TOPIC, None, b"\xff", "invalid-field", "key"),
    "tombstone elsewhere": (DECISIONS_TOPIC, None, b"a/b", "not-an-event", "key"),
    "at": (PODS_TOPIC, event_bytes("ADDED", POD, at="yesterday"), None, "invalid-field", "at"),
    "at without offset": (
        PODS_TOPIC,
        event_bytes("ADDED", POD, at="2024-05-01T12:00:00"),
        None,
        "invalid-field",
        "at",
    ),
    "id": (PODS_TOPIC, event_bytes("ADDED", POD, id="a b"), None, "invalid-field", "id"),
    "no metadata": (
        PODS_TOPIC,
        event_bytes("ADDED", {**POD, "metadata": None}),
        None,
        "invalid-field",
        "object.metadata.name",
    ),
    "no spec": (
        PODS_TOPIC,
        event_bytes("ADDED", {**POD, "spec": None}),
        None,
        "invalid-field",
        "object.spec",
    ),
    "spec text": (
        PODS_TOPIC,
        event_bytes("ADDED", {**POD, "spec": "x"}),
        None,
        "invalid-field",
        "object.spec",
    ),
    "labels text": (
        PODS_TOPIC,
        event_bytes("ADDED", {**POD, "metadata": {"name": "p", "labels": "x"}}),
        None,
        "invalid-field",
        "object.metadata.labels",
    ),
    "label": (
        PODS_TOPIC,
        event_bytes("ADDED", pod_manifest("p", labels={"a": "b c"})),
        None,
        "invalid-field",
        "object.metadata.labels.a",
    ),
    "cpu": (
        PODS_TOPIC,
        event_bytes("ADDED", pod_manifest("p", cpu="-1")),
        None,
        "invalid-field",
        "object.spec.containers[0].resources.requests.cpu",
    ),
    "usage percent": (
        USAGE_TOPIC,
        event_bytes("ADDED", usage_manifest("n", percent={"cpu": -1})),
        b"n",
        "invalid-field",
        "object.percent.cpu",
    ),
    "usage text": (
        USAGE_TOPIC,
        event_bytes("ADDED", usage_manifest("n", percent="37")),
        b"n",
        "invalid-field",
        "object.percent",
    ),
    "usage of the future": (
        USAGE_TOPIC,
        event_bytes("ADDED", usage_manifest("n", percent={"cpu": 1}), at="2023-11-14T22:14:21Z"),
        b"n",
        "invalid-field",
        "at",
    ),
    "usage of another node": (
        USAGE_TOPIC,
        event_bytes("ADDED", usage_manifest("n", percent={"cpu": 1})),
        b"m",
        "key-mismatch",
        "key",
    ),
    "number beyond JSON": (
        PODS_TOPIC,
        event_bytes("ADDED", pod_manifest("p", spec={"priority": 7})).replace(
            b'"priority":7', b'"priority":1e999'
        ),
        None,
        "invalid-field",
        "object.spec.priority",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_accepted_is_refused_with_a_reason(case: str) -> None:
    topic, value, key, code, path = REFUSED[case]
    decoded = decode(topic, value, key)
    assert decoded.event is None
    assert decoded.rejected is not None
    assert (decoded.rejected.code, decoded.rejected.path) == (code, path)
    assert decoded.rejected.message
    assert decoded.rejected.message.isprintable()


def test_a_record_as_long_as_allowed_is_read_and_a_longer_one_is_not() -> None:
    manifest = pod_manifest("p", spec={"note": ""})
    room = event_bytes_max - len(event_bytes("ADDED", manifest))
    fits = event_bytes("ADDED", pod_manifest("p", spec={"note": "x" * room}))
    longer = event_bytes("ADDED", pod_manifest("p", spec={"note": "x" * (room + 1)}))
    assert decode(PODS_TOPIC, fits).event is not None
    rejected = decode(PODS_TOPIC, longer).rejected
    assert rejected is not None
    assert rejected.code == "too-large"
    assert "event_bytes_max" in rejected.message


def test_equal_pods_share_one_template_and_one_set_of_labels() -> None:
    decoder = Decoder()

    def pod(name: str, **more: Any) -> PodSpec:
        manifest = pod_manifest(name, cpu="1", labels={"a": "b"}, **more)
        return pod_of(decoder.decode(record(PODS_TOPIC, event_bytes("ADDED", manifest))))

    first, second, bound = (
        pod("p-1"),
        pod("p-2"),
        pod("p-3", node_name="n", spec={"volumes": [{"name": "x"}]}),
    )
    assert first.template is second.template is bound.template
    assert first.signature is second.signature is bound.signature
    assert first.labels is second.labels
    assert [item.node_name for item in (first, second, bound)] == ["", "", "n"]


def test_members_of_one_cluster_share_a_template_that_is_not_that_of_other_pods() -> None:
    decoder = Decoder()

    def read(**labels: str) -> PodSpec:
        manifest = pod_manifest("p", labels={f"berth.io/{key}": value for key, value in labels.items()})
        return pod_of(decoder.decode(record(PODS_TOPIC, event_bytes("ADDED", manifest))))

    first, other, plain, second = (
        read(cluster="c", role="master"),
        read(cluster="d", role="master"),
        read(cluster="c"),
        read(cluster="c", role="master"),
    )
    assert (first.template.cluster, first.template.role) == ("default/c", "master")
    assert first.template is second.template
    assert first.signature == second.signature == signature(first.template)
    assert len({first.signature, other.signature, plain.signature}) == 3
    assert (plain.template.cluster, plain.template.role) == ("", "")


def test_the_qos_class_of_the_status_is_part_of_what_is_remembered() -> None:
    decoder = Decoder()
    classes = []
    for qos in ("Guaranteed", None, "Burstable"):
        manifest = {**pod_manifest("p"), "status": {"qosClass": qos}}
        classes.append(
            pod_of(decoder.decode(record(PODS_TOPIC, event_bytes("ADDED", manifest)))).template.qos_class
        )
    assert classes == ["Guaranteed", "BestEffort", "Burstable"]


def test_the_resources_in_the_status_are_part_of_what_is_remembered() -> None:
    """The spec stays the same while its containers are resized in place."""
    decoder = Decoder()

    def cpu(status: dict[str, Any], node_name: str | None = "n") -> int:
        manifest = pod_manifest("p", cpu=1, node_name=node_name) | {"status": status}
        event = decoder.decode(record(PODS_TOPIC, event_bytes("MODIFIED", manifest)))
        return pod_of(event).template.requests["cpu"]

    grown = {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}
    assert [cpu({}), cpu(grown), cpu({}), cpu(grown)] == [1000, 3000, 1000, 3000]
    assert cpu(grown, node_name=None) == 1000


def test_the_memory_of_a_decoder_is_bounded_and_forgetting_changes_nothing() -> None:
    decoder = Decoder()
    for count in range(1, 5_000):
        manifest = pod_manifest("p", cpu=f"{count}m", labels={"n": str(count)})
        pod = pod_of(decoder.decode(record(PODS_TOPIC, event_bytes("ADDED", manifest))))
        assert pod.template.requests == {"cpu": count}
        assert pod.labels == {"n": str(count)}
    assert decoder.remembered_count < 5_000 + 2 * 2_048


def test_a_forgotten_template_that_a_pod_still_has_is_the_one_that_the_next_pods_get() -> None:
    decoder = Decoder()

    def pod(cpu: str) -> PodSpec:
        manifest = pod_manifest("p", cpu=cpu)
        return pod_of(decoder.decode(record(PODS_TOPIC, event_bytes("ADDED", manifest))))

    kept = pod("1")
    for count in range(2, 2_500):
        pod(f"{count}m")
    assert pod("1").template is kept.template


DECISION = Decision(
    shard=2,
    epoch=3,
    seq=17,
    pod_uid="u",
    namespace="shop",
    name="p",
    resource_version=42,
    outcome=Outcome.BOUND,
    node="n-1",
    decided_at_ms=NOW_MS + 7,
    event_at_ms=NOW_MS,
    profile="default-scheduler",
    profile_revision=3,
    signature=b"\x0f" * 16,
    score=61.25,
    cycle_seq=16,
)
FRAGMENT = template_fragment(PodTemplate(requests={"memory": 5, "cpu": 100}), b"\x0f" * 16)


def test_a_decision_is_written_with_its_keys_in_order() -> None:
    assert encode_decision(DECISION, FRAGMENT, {"a": "b"}, 9, "key:a") == (
        b'{"id":"2-17","shard":2,"epoch":3,"seq":17,'
        b'"pod":{"namespace":"shop","name":"p","uid":"u","resource_version":"42"},'
        b'"outcome":"bound","node":"n-1","decided_at":"2023-11-14T22:13:20.007Z",'
        b'"event_at":"2023-11-14T22:13:20.000Z","sent_by":"key:a","profile":"default-scheduler",'
        b'"profile_revision":3,"reason":"","reasons":{},"score":61.25,'
        b'"template":{"signature":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f","requests":{"cpu":100,"memory":5}},'
        b'"labels":{"a":"b"},"node_version":9}'
    )


def test_a_decision_without_a_node_says_so() -> None:
    waiting = msgspec.structs.replace(
        DECISION,
        outcome=Outcome.UNSCHEDULABLE,
        node=None,
        score=None,
        cycle_seq=0,
        resource_version=None,
        reason="x",
    )
    written = json.loads(encode_decision(waiting, FRAGMENT, {}, None, None, {"insufficient:cpu": 3}))
    assert written["pod"]["resource_version"] is None
    assert [written[key] for key in ("outcome", "node", "score", "node_version")] == [
        "unschedulable",
        *[None] * 3,
    ]
    assert (written["reason"], written["reasons"]) == ("x", {"insufficient:cpu": 3})
    assert list(written)[13] == "reasons"


def test_the_key_of_a_decision_is_the_pod() -> None:
    assert decision_key(DECISION) == b"shop/p"


def test_an_encoded_event_reads_back() -> None:
    manifest = pod_manifest("p", cpu="1")
    topic, key = event_topic_and_key(manifest)
    value = encode_event("ADDED", manifest, "2023-11-14T22:13:20Z", "e-1")
    assert decode(topic, value, key, timestamp_ms=0) == Decoded(
        pod_event_from_manifest(manifest), None, NOW_MS, "e-1"
    )


@pytest.mark.parametrize(
    ("kind", "namespace", "topic", "key"),
    [
        ("Node", None, NODES_TOPIC, b"x"),
        ("Pod", None, PODS_TOPIC, b"default/x"),
        ("Pod", "shop", PODS_TOPIC, b"shop/x"),
        ("NodeUsage", None, USAGE_TOPIC, b"x"),
        ("PodDisruptionBudget", "shop", CONFIG_TOPIC, b"PodDisruptionBudget/shop/x"),
        ("PriorityClass", None, CONFIG_TOPIC, b"PriorityClass/x"),
    ],
)
def test_topic_and_key_follow_from_the_object(
    kind: str, namespace: str | None, topic: str, key: bytes
) -> None:
    assert event_topic_and_key({"kind": kind, "metadata": {"name": "x", "namespace": namespace}}) == (
        topic,
        key,
    )


@pytest.mark.parametrize(
    ("thing", "path"),
    [
        ({}, "items[2].kind"),
        ({"kind": "Secret"}, "items[2].kind"),
        ({"kind": "Pod", "apiVersion": "v9"}, "items[2].apiVersion"),
        ({"kind": "Pod"}, "items[2].metadata.name"),
        ({"kind": "Pod", "metadata": {"name": "A"}}, "items[2].metadata.name"),
        ({"kind": 1}, "items[2].kind"),
    ],
)
def test_what_has_no_topic_is_refused(thing: dict[str, Any], path: str) -> None:
    with pytest.raises(FieldError) as caught:
        event_topic_and_key(thing, "items[2]")
    assert caught.value.path == path


def test_an_event_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(FieldError, match="type: 'CHANGED' is not allowed"):
        encode_event("CHANGED", {})
    for odd in (object(), "\ud800"):
        with pytest.raises(FieldError, match="object: cannot be written as JSON"):
            encode_event("ADDED", {"x": odd})


def test_a_refusal_holds_only_text_that_every_store_can_hold() -> None:
    rejected = Refusal("invalid-field", "a\x00" + "b" * 1000, "\ud800\n" + "c" * 2000).rejected
    assert rejected.path.startswith("a\\x00b")
    assert rejected.message.startswith("\\ud800\\nc")
    assert (len(rejected.path), len(rejected.message)) == (512, 1024)
