"""Does the client write what the API writes, and find the brokers as the commands do?"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from berth.client import InvalidRequest, NotConfigured
from berth.client.kafka import DecisionConsumer, EventProducer, find_brokers
from berth.client.kafka.records import (
    DECISIONS_TOPIC,
    KINDS,
    RECORD_BYTES_MAX,
    TOPICS,
    decision_of,
    partition_of,
    record_of,
)
from domain.model.limits import event_bytes_max
from domain.model.quantities import format_resource
from services.adapters.kafka.connection import Cluster
from services.codec import envelope
from services.codec.encode import event_topic_and_key
from services.codec.gateway import Gateway
from services.codec.partition import partition_for
from services.config import Settings
from services.ports import log
from tests.client.decision_topics import decision
from tests.client.world import node, pod


@given(st.binary(min_size=1, max_size=80), st.integers(1, 1024))
def test_a_key_has_the_partition_that_the_api_gives_it(key: bytes, count: int) -> None:
    assert partition_of(key, count) == partition_for(key, b"", count)


def test_topics_and_limits_are_those_of_the_services() -> None:
    assert (log.NODES_TOPIC, log.PODS_TOPIC, log.USAGE_TOPIC, log.CONFIG_TOPIC) == TOPICS
    assert log.DECISIONS_TOPIC == DECISIONS_TOPIC
    assert set(KINDS) == set(envelope.KINDS)
    assert event_bytes_max == RECORD_BYTES_MAX


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metadata", [{"name": "a.b"}, {"name": "web", "namespace": "shop"}])
def test_an_object_has_the_topic_and_the_key_that_the_api_gives_it(
    kind: str, metadata: dict[str, str]
) -> None:
    thing = {"kind": kind, "metadata": metadata}
    found = record_of({"type": "ADDED", "object": thing}, 0)
    assert (found.topic, found.key) == event_topic_and_key(thing)


@pytest.mark.parametrize("manifest", [node("n1"), pod("web", "shop")], ids=["node", "pod"])
@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_says_what_the_api_lets_it_say(manifest: dict[str, Any], kind: str) -> None:
    event = {"type": kind, "object": manifest, "at": "2026-01-01T00:00:00Z", "id": "call-7"}
    sent = Gateway().prepare(event)
    found = record_of(event, 0)
    assert (found.topic, found.key) == (sent.topic, sent.entry.key)
    assert json.loads(found.value) == event
    assert Gateway().prepare(json.loads(found.value)).event == sent.event


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"type": "ADDED", "object": 7}, r"events\[3\]\.object: is missing"),
    ({"type": "ADDED", "object": {"kind": "Secret"}}, r"events\[3\]\.object\.kind: 'Secret' is unknown"),
    ({"type": "ADDED", "object": {"kind": ["Pod"]}}, r"events\[3\]\.object\.kind"),
    ({"type": "ADDED", "object": {"kind": "Pod", "metadata": {}}}, r"object\.metadata\.name: is missing"),
    ({"type": "ADDED", "object": {"kind": "Node", "metadata": {"name": "\ud800"}}}, "UTF-8"),
    ({"type": "BIND_FAILED", "object": node("n")}, r"events\[3\]\.type: 'BIND_FAILED' is not allowed"),
    ({"type": "ADDED", "object": node("n", labels={"a": "x" * 2**20})}, "allowed are 1048576"),
    ({"type": "ADDED", "object": node("n", labels={"a": object()})}, "cannot be written as JSON"),
]


@pytest.mark.parametrize(("event", "says"), WRONG)
def test_what_has_no_place_in_the_log_is_refused(event: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as raised:
        record_of(event, 3)
    assert [each.index for each in raised.value.details] == [3]


def test_a_pod_may_say_that_it_could_not_be_bound() -> None:
    assert record_of({"type": "BIND_FAILED", "object": pod("p")}, 0).topic == "berth.pods"


@given(
    st.dictionaries(
        st.sampled_from(["cpu", "memory", "storage", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"]),
        st.integers(0, 2**50) | st.integers(0, 40).map(lambda bits: 1 << bits),
    )
)
def test_amounts_are_shown_as_the_api_shows_them(amounts: dict[str, int]) -> None:
    told = json.loads(decision(1, "p"))
    told["template"]["requests"] = amounts
    shown, labels = decision_of(json.dumps(told).encode())
    assert shown.requests == {name: format_resource(name, amounts[name]) for name in amounts}
    assert (shown.signature, shown.pod.resource_version, labels) == ("00ff", 7, {"app": "p"})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return the variables that name certificates."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    mine = authority.issue_cert("me.example")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    names = {"CA": "ca", "CERT": "cert", "KEY": "key"}
    return {f"BERTH_KAFKA_{name}_FILE": str(tmp_path / f"{file}.pem") for name, file in names.items()}


LOGIN = {"BERTH_KAFKA_USERNAME": "me", "BERTH_KAFKA_PASSWORD": "secret"}


@pytest.mark.parametrize("how", ["", "plaintext", "tls", "sasl-plaintext", "sasl-tls"])
@pytest.mark.parametrize("mechanism", ["", "PLAIN"])
def test_the_variables_mean_what_they_mean_to_the_commands(
    how: str, mechanism: str, files: dict[str, str]
) -> None:
    environ = {"BERTH_KAFKA_BOOTSTRAP": "kafka:9092", "BERTH_KAFKA_SECURITY": how}
    environ |= files if how.endswith("tls") else {}
    environ |= {**LOGIN, "BERTH_KAFKA_SASL_MECHANISM": mechanism} if how.startswith("sasl") else {}
    found = find_brokers(environ=environ)
    theirs = Cluster("kafka:9092", 1.0, Settings.from_env(environ).kafka_access).options
    assert isinstance(found.options.get("ssl_context"), ssl.SSLContext) == (theirs["ssl_context"] is not None)
    for name, value in found.options.items():
        assert name == "ssl_context" or theirs[name] == value, name
    assert ("sasl_plain_password" in found.options) == (theirs["sasl_plain_password"] is not None)
    assert "secret" not in repr(found)


def test_arguments_go_before_the_variables(tmp_path: Path) -> None:
    environ = {"BERTH_KAFKA_BOOTSTRAP": "kafka:9092", "BERTH_KAFKA_SECURITY": "nonsense"}
    found = find_brokers("other:1", {"security_protocol": "SSL"}, environ=environ)
    assert found.options == {"bootstrap_servers": "other:1", "security_protocol": "SSL"}


WRONG_VARIABLES: list[tuple[dict[str, str], str]] = [
    ({"BERTH_KAFKA_BOOTSTRAP": ""}, "no Kafka brokers are named"),
    ({"BERTH_KAFKA_SECURITY": "ssl"}, "'ssl'; allowed are plaintext, tls"),
    ({"BERTH_KAFKA_USERNAME": "me"}, "BERTH_KAFKA_USERNAME has no effect"),
    ({"BERTH_KAFKA_SECURITY": "sasl-tls", "BERTH_KAFKA_USERNAME": "me"}, "needs BERTH_KAFKA_PASSWORD"),
    ({"BERTH_KAFKA_SECURITY": "sasl-plaintext", **LOGIN, "BERTH_KAFKA_SASL_MECHANISM": "X"}, "'X'; allowed"),
    ({"BERTH_KAFKA_SECURITY": "tls", "BERTH_KAFKA_CERT_FILE": "/c"}, "go together"),
    ({"BERTH_KAFKA_SECURITY": "tls", "BERTH_KAFKA_CA_FILE": "/nowhere/ca"}, "holds no certificates"),
]


@pytest.mark.parametrize(("environ", "says"), WRONG_VARIABLES)
def test_variables_that_do_not_go_together_are_refused(
    environ: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"BERTH_KAFKA_BOOTSTRAP": "kafka:9092", **environ}.items():
        monkeypatch.setenv(name, value)
    for opened in (EventProducer, DecisionConsumer):
        with pytest.raises(NotConfigured, match=says):
            opened()


def test_without_its_library_the_extra_says_what_to_install() -> None:
    program = (
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'aiokafka' else find(name, *more)\n"
        "import berth.client, berth.client.objects\n"
        "import berth.client.kafka\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: berth.client.kafka needs aiokafka: pip install 'berth-client[kafka]'" in done.stderr


def test_the_rest_of_the_client_does_not_load_it() -> None:
    program = (
        "import sys, berth.client\n"
        "for name in dir(berth.client): getattr(berth.client, name)\n"
        "assert 'aiokafka' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
