"""Does the decoder survive any bytes, and leave only text that every store can hold?"""

from __future__ import annotations

import msgspec
import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.model.events import NodeUpserted, PodUpserted
from domain.model.signature import signature, template_to_json
from services.codec.decode import Decoded, Decoder
from services.ports.log import CONFIG_TOPIC, DECISIONS_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC
from tests.builders import Json, event, node_manifest, pod_manifest, record
from tests.depth import examples

PATIENT = settings(
    max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine is no finding

topics = st.sampled_from([PODS_TOPIC, NODES_TOPIC, CONFIG_TOPIC, USAGE_TOPIC, DECISIONS_TOPIC])
keys = st.none() | st.binary(max_size=20) | st.just(b"default/p") | st.just(b"n")
times = st.integers(min_value=-(2**63), max_value=2**63 - 1)

SPEC: Json = {
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "initContainers": [{"restartPolicy": "Always", "resources": {"limits": {"cpu": 1}}}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1"]}]}]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, "namespaces": ["a"]}
            ]
        },
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["1"]}]},
            "matchLabelKeys": ["a"],
        }
    ],
}
STATUS: Json = {"phase": "Running", "startTime": "2024-05-01T12:00:00Z", "qosClass": "Burstable"}
EVENTS: list[Json] = [
    event(
        "ADDED",
        {**pod_manifest("p", cpu="1", labels={"a": "b"}, host_port=80, spec=SPEC), "status": STATUS},
        id="e",
    ),
    event(
        "ADDED",
        node_manifest("n", taints=[{"key": "k", "effect": "NoSchedule"}], labels={"a": "b"}),
        "2024-05-01T12:00:00Z",
    ),
    event("DELETED", pod_manifest("p", uid="u", resource_version=4)),
]

odd_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(
        ["-1", "1e60", "1e99", "\x00", "ADDED", "Node", "Pod", "v1", "2024-13-01T00:00:00Z", "9" * 30]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def check(decoded: Decoded) -> None:
    """Assert what the ledger and the cycle rely on for any outcome."""
    assert decoded.event is None or decoded.rejected is None
    assert decoded.event_at_ms is None or 0 <= decoded.event_at_ms <= 253_402_300_799_999
    if decoded.rejected is not None:
        text = decoded.rejected.path + decoded.rejected.message
        assert text.isprintable()
        assert len(text) <= 512 + 1024
        text.encode()
    written = b""
    if isinstance(decoded.event, PodUpserted):
        pod = decoded.event.pod
        assert pod.signature == signature(pod.template)
        written = template_to_json(pod.template) + orjson.dumps([pod.labels, pod.uid, pod.key, pod.node_name])
        assert all(0 < value < 2**51 for value in pod.template.requests.values())
    if isinstance(decoded.event, NodeUpserted):
        written = msgspec.json.encode(decoded.event.node)
    assert b"\\u0000" not in written


@PATIENT
@given(topic=topics, key=keys, value=st.none() | st.binary(max_size=200), timestamp_ms=times)
def test_any_bytes(topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int) -> None:
    check(Decoder().decode(record(topic, value, key, timestamp_ms=timestamp_ms)))


@PATIENT
@given(data=st.data(), topic=topics, key=keys)
def test_any_value_in_place_of_any_part_of_an_event(
    data: st.DataObject, topic: str, key: bytes | None
) -> None:
    changed = orjson.loads(orjson.dumps(data.draw(st.sampled_from(EVENTS))))
    at = changed
    while True:
        step = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if isinstance(at[step], dict | list) and at[step] and data.draw(st.integers(0, 3)):
            at = at[step]
            continue
        at[step] = data.draw(odd_values)
        break
    check(Decoder().decode(record(topic, orjson.dumps(changed), key)))


@PATIENT
@given(which=st.sampled_from(EVENTS), topic=topics, data=st.data())
def test_any_bytes_in_place_of_any_bytes_of_an_event(which: Json, topic: str, data: st.DataObject) -> None:
    value = bytearray(orjson.dumps(which))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(value)))
        value[start : start + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    check(Decoder().decode(record(topic, bytes(value), None)))
