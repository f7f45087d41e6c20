"""Does berth work with a Kafka that asks who it is, and does it say clearly where it is refused?"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from domain.model.errors import BerthError, LogRefused, Unavailable
from services import bootstrap
from services.adapters.kafka.log import KafkaLog
from services.bootstrap import Place
from services.config import KAFKA_MECHANISMS, KafkaAccess, SettingError, Settings
from services.metrics import process_registry
from services.ports.log import (
    DEAD_LETTER_TOPIC,
    DECISIONS_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    SCALES_TOPIC,
    TICKS_TOPIC,
    Entry,
    Record,
    TopicPartition,
    topic_specs,
)
from tests.builders import node_manifest, pod_manifest
from tests.integration.api_world import client_of, fresh_database
from tests.security.kafka_access import AskedBroker, asked_broker, grant, issue

STATE = (NODES_TOPIC, PODS_TOPIC, "berth.usage", "berth.config")
SPECS = topic_specs(1)
_PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.fixture(scope="module")
def broker() -> Iterator[AskedBroker]:
    with asked_broker() as broker:
        yield broker


@pytest_asyncio.fixture(scope="module")
async def granted(broker: AskedBroker) -> AskedBroker:
    """Return the broker with the rights of the docs and berth's topics."""
    page = _PAGE.read_text()
    (commands,) = re.findall(r"```\n(kafka-acls\.sh .*?)```", page, re.DOTALL)
    assert await grant(broker.server.bootstrap, commands) == 4 + 5 + 4 + 2 + 5 + 8 + 1
    async with log_of(broker, broker.by_password("berth-init")) as log:
        await log.ensure_topics(SPECS)
    return broker


@contextlib.asynccontextmanager
async def log_of(broker: AskedBroker, access: KafkaAccess, bootstrap: str = "") -> AsyncIterator[KafkaLog]:
    where = broker.server.sasl_bootstrap if access.sasl else broker.server.tls_bootstrap
    log = KafkaLog(bootstrap or where, timeout_seconds=10.0, access=access)
    try:
        yield log
    finally:
        await log.aclose()


async def refusal(log: KafkaLog) -> str:
    """Return how all ways to use a log are refused, at once."""
    began = time.monotonic()
    said = set()
    with pytest.raises(LogRefused) as raised:
        await log.partitions(PODS_TOPIC)
    said.add(str(raised.value))
    reader, writer = await log.reader(), await log.writer()
    with pytest.raises(LogRefused) as raised:
        await reader.first_offsets([TopicPartition(PODS_TOPIC, 0)])
    said.add(str(raised.value))
    with pytest.raises(LogRefused) as raised:
        await writer.append(PODS_TOPIC, [Entry(b"k", b"v")])
    said.add(str(raised.value))
    assert not raised.value.retriable
    await reader.aclose()
    await writer.aclose()
    assert time.monotonic() - began < 20
    (text,) = said
    return text


@pytest.mark.parametrize("how", [*KAFKA_MECHANISMS, "mTLS"])
async def test_events_go_in_and_out_whatever_the_broker_asks_for(granted: AskedBroker, how: str) -> None:
    name = "berth-api"
    access = granted.by_certificate(name) if how == "mTLS" else granted.by_password(name, mechanism=how)
    async with log_of(granted, access) as log:
        reader, writer = await log.reader(), await log.writer()
        (span,) = await writer.append(PODS_TOPIC, [Entry(b"default/none", b"{}")])
        await reader.assign({TopicPartition(PODS_TOPIC, 0): span.first})
        records: Sequence[Record] = ()
        while not records:
            records = await reader.poll(10, timeout_seconds=5)
        assert records[0].value == b"{}"
        (ahead,) = (await log.backlogs({TopicPartition(PODS_TOPIC, 0): 0})).values()
        assert ahead.end == span.end
        await reader.aclose()
        await writer.aclose()


async def test_a_wrong_password_is_named(broker: AskedBroker) -> None:
    for mechanism in KAFKA_MECHANISMS:
        access = broker.by_password("berth-worker", password="wrong", mechanism=mechanism)
        async with log_of(broker, access) as log:
            text = await refusal(log)
        assert "BERTH_KAFKA_USERNAME" in text
        assert "wrong" not in text.replace("berth", "")


async def test_a_broker_that_nobody_vouches_for_is_not_told_the_password(
    broker: AskedBroker, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    for ca_file in (tmp_path / "other.pem", None):
        async with log_of(broker, broker.by_password("berth-worker", ca_file=ca_file)) as log:
            assert "BERTH_KAFKA_CA_FILE" in await refusal(log)


async def test_a_broker_under_another_name_is_refused(broker: AskedBroker) -> None:
    port = broker.server.sasl_bootstrap.rpartition(":")[2]
    async with log_of(broker, broker.by_password("berth-worker"), f"localhost:{port}") as log:
        text = await refusal(log)
    assert "localhost" in text


async def test_a_certificate_that_the_broker_does_not_know_is_named(
    broker: AskedBroker, tmp_path: Path
) -> None:
    cert_file, key_file = issue(trustme.CA(), tmp_path, "berth-worker", "x@berth.example")
    none = KafkaAccess(tls=True, ca_file=broker.ca_file)
    foreign = KafkaAccess(tls=True, ca_file=broker.ca_file, cert_file=cert_file, key_file=key_file)
    for access in (none, foreign):
        async with log_of(broker, access) as log:
            assert "BERTH_KAFKA_CERT_FILE" in await refusal(log)


async def test_tls_is_not_given_up_where_the_broker_has_none(broker: AskedBroker) -> None:
    async with log_of(broker, broker.by_password("berth-worker"), broker.server.bootstrap) as log:
        with pytest.raises((LogRefused, Unavailable)):
            await log.partitions(PODS_TOPIC)


async def test_a_password_over_tls_is_asked_for_and_not_a_certificate(broker: AskedBroker) -> None:
    async with log_of(broker, broker.by_certificate("berth-api"), broker.server.sasl_bootstrap) as log:
        with pytest.raises((LogRefused, Unavailable)):
            await log.partitions(PODS_TOPIC)


async def test_nobody_does_more_than_its_work(granted: AskedBroker) -> None:
    writes = {
        "berth-init": (),
        "berth-worker": (),
        "berth-relay": (DECISIONS_TOPIC, DEAD_LETTER_TOPIC, SCALES_TOPIC, TICKS_TOPIC),
        "berth-api": STATE,
        "stranger": (),
    }
    for name, allowed in writes.items():
        async with log_of(granted, granted.by_password(name)) as log:
            for spec in SPECS:
                if spec.name in allowed:
                    continue
                writer = await log.writer()
                with pytest.raises(LogRefused, match=spec.name.replace(".", r"\.")):
                    await writer.append(spec.name, [Entry(b"k", b"v")])
                await writer.aclose()


@pytest.mark.parametrize("name", ["stranger", "berth-relay"])
async def test_who_may_not_read_events_is_told_so(granted: AskedBroker, name: str) -> None:
    async with log_of(granted, granted.by_password(name)) as log:
        reader = await log.reader()
        with pytest.raises(LogRefused, match=r"berth\.pods"):
            await reader.assign({TopicPartition(PODS_TOPIC, 0): 0})
        await reader.aclose()
        if name == "stranger":
            with pytest.raises(LogRefused, match=r"berth\."):
                await log.ensure_topics(SPECS)


async def test_each_process_works_with_its_own_rights_alone(granted: AskedBroker, embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn) as place:

        def as_one(name: str) -> Place:
            where = granted.server.sasl_bootstrap
            return place._replace(kafka_bootstrap=where, kafka_access=granted.by_password(name))

        settings, registry = Settings(worker_name="test"), process_registry()
        await bootstrap.initialise(as_one("berth-init"), 1)
        async with client_of(as_one("berth-api")) as client:
            running = [
                asyncio.create_task(bootstrap.run_worker(as_one("berth-worker"), settings, registry)),
                asyncio.create_task(bootstrap.run_relay(as_one("berth-relay"), settings, process_registry())),
            ]
            events = [{"type": "ADDED", "object": each} for each in (node_manifest("n"), pod_manifest("web"))]
            answer = await client.post(
                "/v1/events", params={"wait": "60s", "until": "decided"}, json=events, timeout=70
            )
            assert [each["outcome"] for each in answer.json()["decisions"]] == ["bound"], answer.text
            async with log_of(granted, granted.by_password("berth-relay")) as log, asyncio.timeout(30):
                while await log.last_record(TopicPartition(DECISIONS_TOPIC, 0)) is None:
                    assert not any(task.done() for task in running)
                    await asyncio.sleep(0.1)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def test_a_worker_that_is_refused_ends_and_says_why(granted: AskedBroker, embedded_dsn: str) -> None:
    """A worker that tried again and again would look alive, and lock its account out."""
    async with fresh_database(embedded_dsn) as place:
        where, access = granted.server.sasl_bootstrap, granted.by_password("berth-init")
        at = place._replace(kafka_bootstrap=where, kafka_access=access)
        await bootstrap.initialise(at, 1)
        wrong = at._replace(kafka_access=granted.by_password("berth-worker", password="wrong"))
        async with asyncio.timeout(60):
            with pytest.raises(LogRefused, match="BERTH_KAFKA_PASSWORD"):
                await bootstrap.run_worker(wrong, Settings(worker_name="test"), process_registry())


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"SECURITY": "ssl"}, "BERTH_KAFKA_SECURITY"),
        ({"SECURITY": "sasl-tls", "PASSWORD": "x"}, "BERTH_KAFKA_USERNAME"),
        ({"SECURITY": "sasl-tls", "USERNAME": "x"}, "BERTH_KAFKA_PASSWORD"),
        ({"USERNAME": "x", "PASSWORD": "x"}, "BERTH_KAFKA_USERNAME has no effect"),
        ({"CA_FILE": "x"}, "BERTH_KAFKA_CA_FILE has no effect"),
        ({"SECURITY": "tls", "PASSWORD": "x"}, "BERTH_KAFKA_PASSWORD has no effect"),
        ({"SECURITY": "tls", "CERT_FILE": "x"}, "BERTH_KAFKA_KEY_FILE"),
        ({"SECURITY": "tls", "BOOTSTRAP": ""}, "BERTH_KAFKA_BOOTSTRAP"),
        ({"SASL_MECHANISM": "GSSAPI"}, "BERTH_KAFKA_SASL_MECHANISM"),
    ],
)
def test_settings_that_do_not_go_together_are_named(told: dict[str, str], named: str) -> None:
    environ = {f"BERTH_KAFKA_{name}": value for name, value in ({"BOOTSTRAP": "kafka:9093"} | told).items()}
    with pytest.raises(SettingError, match=named):
        _ = Settings.from_env(environ).kafka_access


def test_the_password_comes_from_a_file_and_is_shown_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hush-hush\n")
    file.chmod(0o600)
    told = {"BOOTSTRAP": "kafka:9093", "SECURITY": "sasl-tls", "USERNAME": "me", "PASSWORD_FILE": str(file)}
    settings = Settings.from_env({f"BERTH_KAFKA_{name}": value for name, value in told.items()})
    access = settings.kafka_access
    assert access.password == "hush-hush"
    assert "hush" not in f"{settings} {access} {Place('postgresql://x', 'kafka:9093', access)}"


async def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    wrong, authority = tmp_path / "wrong.pem", trustme.CA()
    wrong.write_text("no certificate")
    cert_file, _ = issue(authority, tmp_path, "a", "a@berth.example")
    _, other_key = issue(authority, tmp_path, "b", "b@berth.example")
    found: list[tuple[KafkaAccess, str]] = [
        (KafkaAccess(tls=True, ca_file=wrong), "BERTH_KAFKA_CA_FILE"),
        (KafkaAccess(tls=True, ca_file=tmp_path / "none"), "BERTH_KAFKA_CA_FILE"),
        (KafkaAccess(tls=True, cert_file=wrong, key_file=wrong), "BERTH_KAFKA_CERT_FILE"),
        (KafkaAccess(tls=True, cert_file=cert_file, key_file=other_key), "BERTH_KAFKA_KEY_FILE"),
    ]
    for access, named in found:
        with pytest.raises(BerthError, match=named):
            await KafkaLog("127.0.0.1:1", access=access).partitions(PODS_TOPIC)
    assert ssl.create_default_context().check_hostname
