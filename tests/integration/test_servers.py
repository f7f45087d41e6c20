"""The servers that berth starts: they keep their data, leave nothing behind, and say what is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import asyncpg
import psutil
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from domain.model.errors import FieldError
from ops.kafka import VERSION, KafkaServer, KafkaServerError, check_jars, free_port, jars
from ops.postgres import server as embedded
from ops.postgres.account import server_account
from ops.postgres.server import EmbeddedServer, EmbeddedServerError
from services.adapters.kafka.log import KafkaLog
from services.adapters.kafka.topics import topic_configs, unsafe
from services.ports.log import Entry, TopicPartition, TopicSpec

REPOSITORY = Path(__file__).parents[2]

_START = """
import sys, time
from pathlib import Path
from ops.postgres.server import EmbeddedServer
print(EmbeddedServer(Path(sys.argv[1])).start(), flush=True)
time.sleep(600)
"""


async def execute(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def child(*command: str) -> tuple[subprocess.Popen[str], str]:
    """Start a Python process and return it with the first line that it prints."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, start_new_session=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    assert process.stdout is not None
    process.stdout.close()
    return process.wait(60)


def servers_of(directory: Path) -> list[int]:
    """Return the process ids of everything that runs with this directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or ())
        if str(directory) in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return [pid for pid in found if pid != os.getpid()]


def wait_until_gone(directory: Path) -> None:
    deadline = time.monotonic() + 30
    while servers_of(directory):
        assert time.monotonic() < deadline, servers_of(directory)
        time.sleep(0.05)


async def test_data_survive_a_restart_and_a_stop_leaves_no_process(server_dir: Path) -> None:
    with EmbeddedServer(server_dir) as dsn:
        await execute(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        assert servers_of(server_dir)
    assert not servers_of(server_dir)
    with EmbeddedServer(server_dir) as dsn:
        assert await execute(dsn, "SELECT n FROM kept") == 7
        assert await execute(dsn, "SELECT current_setting('synchronous_commit')") == "on"
        assert await execute(dsn, "SELECT current_setting('listen_addresses')") == ""
    wait_until_gone(server_dir)


async def test_over_tcp_a_password_is_needed(postgres_dsn: str) -> None:
    assert await execute(postgres_dsn, "SELECT 1") == 1
    user, at, address = postgres_dsn.partition("@")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await execute(f"{user[:-1]}{at}{address}", "SELECT 1")


async def test_a_killed_parent_takes_the_server_with_it(server_dir: Path) -> None:
    parent, dsn = child("-c", _START, str(server_dir))
    await execute(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    end(parent, signal.SIGKILL)
    # At once, while the reaper may still be at work: the new start waits for it.
    with EmbeddedServer(server_dir) as dsn:
        assert await execute(dsn, "SELECT n FROM kept") == 7
    wait_until_gone(server_dir)


async def test_a_server_that_outlived_parent_and_reaper_is_replaced(server_dir: Path) -> None:
    parent, dsn = child("-c", _START, str(server_dir))
    await execute(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    for process in psutil.Process(parent.pid).children():
        if any(word.endswith("ops/reaper.py") for word in process.cmdline()):
            process.kill()
    end(parent, signal.SIGKILL)
    leftover = servers_of(server_dir)
    assert leftover
    with EmbeddedServer(server_dir) as dsn:
        assert not set(leftover) & set(servers_of(server_dir))
        assert await execute(dsn, "SELECT n FROM kept") == 7
    wait_until_gone(server_dir)


async def test_a_stale_process_id_that_now_is_somebody_elses(server_dir: Path) -> None:
    with EmbeddedServer(server_dir):
        pass
    somebody, _ = child("-c", "import time; print(flush=True); time.sleep(600)")
    pid_file = server_dir / "data" / "postmaster.pid"
    pid_file.write_text(f"{somebody.pid}\n{server_dir / 'data'}\n1\n5432\n\n\n\nready\n")
    server_account().own(pid_file)
    with EmbeddedServer(server_dir) as dsn:
        assert await execute(dsn, "SELECT 1") == 1
        assert somebody.poll() is None
    end(somebody, signal.SIGKILL)


async def test_the_second_process_in_a_directory_is_told_who_has_it(server_dir: Path) -> None:
    parent, dsn = child("-c", _START, str(server_dir))
    with pytest.raises(EmbeddedServerError, match=f"in use by process {parent.pid}"):
        EmbeddedServer(server_dir).start()
    assert await execute(dsn, "SELECT 1") == 1
    end(parent, signal.SIGTERM)
    wait_until_gone(server_dir)


def test_a_process_that_was_killed_and_not_asked_for_yet_has_no_directory(server_dir: Path) -> None:
    parent, _ = child("-c", _START, str(server_dir))
    os.kill(parent.pid, signal.SIGKILL)
    os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)  # nobody takes its end: it stays as a zombie
    with EmbeddedServer(server_dir):
        pass
    end(parent, signal.SIGKILL)


async def test_who_only_reads_joins_the_server_of_another_process(server_dir: Path) -> None:
    assert EmbeddedServer(server_dir).join() is None
    with EmbeddedServer(server_dir) as dsn:
        assert EmbeddedServer(server_dir).join() == dsn


async def test_a_deep_directory_gets_a_short_socket_path(server_dir: Path) -> None:
    deep = server_dir / ("d" * 60) / ("e" * 60)
    with EmbeddedServer(deep) as dsn:
        assert await execute(dsn, "SELECT 1") == 1
        assert str(deep) not in dsn


async def test_a_half_made_data_directory_is_made_again(server_dir: Path) -> None:
    (server_dir / "data.new").mkdir()
    (server_dir / "data.new" / "PG_VERSION").write_text("18")
    with EmbeddedServer(server_dir) as dsn:
        assert await execute(dsn, "SELECT 1") == 1


def test_a_server_that_does_not_start_says_why(server_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedServerError, match="Address already in use"):
            EmbeddedServer(server_dir, tcp_port=port).start()
        wait_until_gone(server_dir)
        with pytest.raises(KafkaServerError, match=f"port {port} .* in use"):
            KafkaServer(server_dir, port).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as somebody else")
def test_a_private_directory_is_refused_when_run_by_root(server_dir: Path) -> None:
    server_dir.chmod(0o700)
    with pytest.raises(EmbeddedServerError, match="choose a directory"):
        EmbeddedServer(server_dir / "inside").start()
    assert embedded.default_dir().is_absolute()


@pytest.mark.deep
@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("module", ["ops.kafka", "ops.postgres"])
def test_a_server_in_the_foreground_goes_with_its_parent(
    server_dir: Path, module: str, number: signal.Signals
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    parent, line = child("-m", module, "--port", port, "--dir", str(server_dir))
    setting = {"ops.kafka": "BERTH_KAFKA_BOOTSTRAP=", "ops.postgres": "BERTH_POSTGRES_DSN=postgresql://"}
    assert line.startswith(setting[module])
    assert f"127.0.0.1:{port}" in line
    assert end(parent, number) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    wait_until_gone(server_dir)


@pytest.mark.deep
@pytest.mark.real
@pytest.mark.parametrize("module", ["ops.kafka", "ops.postgres"])
def test_a_server_that_is_killed_ends_its_parent_too(server_dir: Path, module: str) -> None:
    parent, _ = child("-m", module, "--port", str(free_port()), "--dir", str(server_dir))
    server = next(
        each for each in psutil.Process(parent.pid).children() if each.name() in ("java", "postgres")
    )
    server.kill()
    assert parent.stdout is not None
    parent.stdout.close()
    assert parent.wait(60) == 1
    wait_until_gone(server_dir)


@pytest.mark.deep
@pytest.mark.real
async def test_kafka_keeps_its_data_over_a_restart(server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One id of a cluster in 64 begins with "-", as an option of the tool that formats the directory does.
    monkeypatch.setattr("ops.kafka.uuid.uuid4", lambda: uuid.UUID(bytes=b"\xf8" * 16))
    server = KafkaServer(server_dir)
    log = KafkaLog(server.start())
    try:
        await log.ensure_topics([TopicSpec("kept", 1, True)])
        writer = await log.writer()
        await writer.append("kept", [Entry(b"k", b"v")])
        await writer.aclose()
        server.stop()
        assert not servers_of(server_dir)
        server.start()
        last = await log.last_record(TopicPartition("kept", 0))
        assert last is not None
        assert last.value == b"v"
    finally:
        server.stop()


@pytest.mark.real
async def test_a_producers_clock_moves_nothing(
    kafka_bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before `berth init` a record carries its producer's time, which may be any; after it the broker's."""
    topic, year_2199_ms = "claims", 7_226_582_400_000
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    laid_down = {
        "retention.ms": "-1",
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "max.message.bytes": "1000000",  # the servers of the tests take more, which is warned about
        "unclean.leader.election.enable": "true",
    }
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=laid_down)])
    log = KafkaLog(kafka_bootstrap)
    while not await log.partitions(topic):
        await asyncio.sleep(0.05)
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
    await producer.start()
    before_ms = time.time_ns() // 1_000_000
    for claimed_ms in (1_000, year_2199_ms):
        await producer.send_and_wait(topic, b"v", timestamp_ms=claimed_ms)
    await log.ensure_topics([TopicSpec(topic, 1, False)])
    await log.ensure_topics([TopicSpec(topic, 1, False)])
    for claimed_ms in (1_000, year_2199_ms):
        await producer.send_and_wait(topic, b"v", timestamp_ms=claimed_ms)
    await producer.stop()
    reader = await log.reader()
    await reader.assign({TopicPartition(topic, 0): 0})
    times: list[int] = []
    while len(times) < 4:
        times += [record.timestamp_ms for record in await reader.poll(10, 5.0)]
    after_ms = time.time_ns() // 1_000_000
    await reader.aclose()
    await log.aclose()
    assert times[0] == 1_000
    assert all(before_ms <= at <= after_ms for at in times[1:])
    assert times[1] != times[3]
    said = [record.getMessage() for record in caplog.records if topic in record.getMessage()]
    assert len(said) == 2
    assert {"from now on" in message for message in said} == {True, False}
    (settings,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    kept = {key: value for key, value, _, source, *_ in settings.resources[0][4] if source == 1}
    safe = {"message.timestamp.type": "LogAppendTime", "unclean.leader.election.enable": "false"}
    assert kept == {**laid_down, **safe}
    await admin.close()


def test_missing_maven_is_named(server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_KAFKA_JARS", str(server_dir / "none"))
    monkeypatch.setenv("PATH", str(server_dir))
    with pytest.raises(KafkaServerError, match="install Maven"):
        jars()


def test_a_jar_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    for jar in jars().iterdir():
        (tmp_path / jar.name).symlink_to(jar)
    check_jars(tmp_path)
    (tmp_path / "lz4-java-1.8.0.jar").write_bytes(b"another")
    with pytest.raises(KafkaServerError, match=r"lz4-java-1\.8\.0\.jar"):
        check_jars(tmp_path)


def test_the_broker_for_development_is_the_one_of_compose_and_free_of_the_faults_of_lz4() -> None:
    assert f"apache/kafka:{VERSION}@" in (Path(__file__).parents[2] / "docker-compose.yml").read_text()
    assert tuple(map(int, VERSION.split("."))) >= (4, 1, 2)


def test_two_replicas_have_a_record_before_it_counts_where_one_may_still_fail() -> None:
    made = topic_configs(TopicSpec("t", 1, True))
    assert (unsafe(made, 1), unsafe(made, 2)) == ({}, {})
    assert unsafe(made, 3) == {"min.insync.replicas": "2"}
    assert unsafe({**made, "min.insync.replicas": "3"}, 5) == {}


@pytest.mark.real
async def test_a_state_topic_that_forgets_state_is_warned_about(
    kafka_bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    for name in ("forgets", "usage"):
        await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"cleanup.policy": "delete"})])
    await admin.close()
    log = KafkaLog(kafka_bootstrap)
    await log.ensure_topics([TopicSpec("forgets", 1, True), TopicSpec("usage", 1, False)])
    await log.aclose()
    (said,) = [each.message for each in caplog.records if "cleanup.policy" in each.message]
    assert "topic forgets has cleanup.policy=delete" in said


@pytest.mark.real
async def test_a_topic_that_takes_more_than_a_record_is_warned_about(
    kafka_bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody else may have laid it down: what is larger fills the log and no reader takes it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    await admin.create_topics(
        [NewTopic("large-batches", 1, 1, topic_configs={"max.message.bytes": "8000000"})]
    )
    await admin.close()
    log = KafkaLog(kafka_bootstrap)
    await log.ensure_topics([TopicSpec("large-batches", 1, False), TopicSpec("of-berth", 1, False)])
    await log.aclose()
    (said,) = [each.message for each in caplog.records if "max.message.bytes" in each.message]
    assert "large-batches" in said
    assert "8000000" in said


@pytest.mark.real
async def test_a_topic_that_takes_less_than_a_record_is_named(kafka_bootstrap: str) -> None:
    """Topics that somebody else laid down may have Kafka's default limit of 1 MiB."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    await admin.create_topics(
        [NewTopic("small-records", 1, 1, topic_configs={"max.message.bytes": "100000"})]
    )
    await admin.close()
    log = KafkaLog(kafka_bootstrap)
    while not await log.partitions("small-records"):
        await asyncio.sleep(0.05)
    writer = await log.writer()
    with pytest.raises(FieldError, match=r"max\.message\.bytes"):
        await writer.append("small-records", [Entry(b"k", os.urandom(200_000))])
    await writer.append("small-records", [Entry(b"k", b"v")])
    last = await log.last_record(TopicPartition("small-records", 0))
    assert last is not None
    assert last.value == b"v"
    await writer.aclose()
    await log.aclose()
