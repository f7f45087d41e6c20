"""Do the producer and the reader of the client keep to the contract, with a real broker, worker and relay?"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from berth.client import AsyncClient, InvalidRequest, NotConfigured, Unavailable
from berth.client.kafka import EventProducer
from berth.client.kafka.records import decision_of
from ops.kafka import KafkaServer
from services import bootstrap
from services.bootstrap import Place
from services.ports.log import DECISIONS_TOPIC, Entry, Log, TopicSpec, topic_specs
from tests.client.decision_topics import SHARD, decision
from tests.client.kafka_site import site
from tests.client.reading_decisions import PLACES, Effects
from tests.client.world import node, pod
from tests.security.kafka_access import asked_broker, grant, password_of

CODE_OF_DEATH = 9


async def decided(place: Place) -> list[tuple[int, int, str]]:
    """Return shard, seq and pod of each decision of the ledger."""
    connection = await asyncpg.connect(place.dsn)
    try:
        rows = await connection.fetch(
            "SELECT shard, seq, namespace || '/' || name AS pod FROM decisions ORDER BY shard, seq"
        )
        return [(row["shard"], row["seq"], row["pod"]) for row in rows]
    finally:
        await connection.close()


async def is_as_the_api_shows_it(place: Place, client: AsyncClient) -> None:
    """Compare what a reader makes of decisions with what the API shows."""
    connection = await asyncpg.connect(place.dsn)
    payloads = [row["payload"] for row in await connection.fetch("SELECT payload FROM decisions")]
    await connection.close()
    for payload in payloads[::7]:
        read, labels = decision_of(payload)
        shown = await client.decisions.get(read.id)
        assert msgspec.structs.replace(shown, recorded_at=None, cycle=None) == read
        assert (read.pod.resource_version, labels) == (1, {})


def reading(kafka: str, path: Path, until: int, *more: str) -> subprocess.Popen[str]:
    """Start a reader."""
    command = [sys.executable, "-m", "tests.client.reading_decisions", kafka, str(path), f"--until={until}"]
    return subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


async def read(kafka: str, path: Path, until: int, *more: str) -> int:
    """Let a reader read, and return the code with which it ended."""
    process = reading(kafka, path, until, *more)
    said, _ = await asyncio.to_thread(process.communicate, timeout=90)
    assert process.returncode in (0, CODE_OF_DEATH), said
    return process.returncode


async def test_what_is_written_is_decided_and_each_decision_has_its_effect_once(
    fresh_kafka: str, postgres_dsn: str, tmp_path: Path
) -> None:
    space = f"k-{uuid.uuid4().hex[:6]}"
    async with site(postgres_dsn, fresh_kafka) as there, AsyncClient(there.url) as client:
        pods = [uid_of(pod(f"p{n}", space)) for n in range(60)]
        profile = {
            "apiVersion": "berth/v1", "kind": "SchedulingProfile", "metadata": {"name": "mine"},
            "spec": {"filters": ["NodeResourcesFit"], "scores": [{"name": "NodeResourcesFit", "weight": 1}]},
        }  # fmt: skip
        async with EventProducer(fresh_kafka) as producer:
            first = await producer.apply([node("n1"), node("n2"), profile, *pods[:40]])
            client.read_after(first)
            assert len([each async for each in client.pods.list(namespace=space)]) == 40
            assert (first.accepted, first.pods) == (43, [f"{space}/p{n}" for n in range(40)])
            assert {each.topic for each in first.positions} == {"berth.nodes", "berth.pods", "berth.config"}
            assert {each.partition for each in first.positions if each.topic == "berth.pods"} == {0, 1}
            assert (await client.profiles.get("mine")).revision == 1
            wrong = pod("wrong", space, cpu="one")
            last = await producer.apply([wrong, *pods[40:]])
            fates = await client.wait([f"{space}/p{n}" for n in range(60)])
            assert all(each.is_bound for each in fates.values())
            gone = await producer.delete("pod", f"{space}/p3")
            client.read_after(last)
            client.read_after(gone)
            letters = [each async for each in client.deadletters.list()]
            assert [(each.path, each.topic) for each in letters] == [
                ("object.spec.containers[0].resources.requests.cpu", "berth.pods")
            ]
            assert (await client.wait(gone, until="gone"))[f"{space}/p3"].is_gone
        ledger = await decided(there.place)
        assert len(ledger) >= 61, "60 were placed and one went; who came before its node was told so first"
        await is_as_the_api_shows_it(there.place, client)

        path, deaths = tmp_path / "effects", 0
        for batch in (1, 3):
            for place in PLACES:
                told = (f"--dies-at={place}", f"--batch={batch}", "--batch-max=4")
                deaths += await read(there.kafka, path, len(ledger), *told) == CODE_OF_DEATH
        assert deaths == 2 * len(PLACES)
        assert Effects(path).count() < len(ledger), "they died before the end"
        assert await read(there.kafka, path, len(ledger)) == 0
        assert Effects(path).all() == ledger

        path = tmp_path / "wrong effects"
        told = ("--dies-at=checkpoint", "--batch-max=4", "--checkpoint-first")
        assert await read(there.kafka, path, len(ledger), *told) == CODE_OF_DEATH
        await read(there.kafka, path, len(ledger) - 4)
        found = Effects(path).all()
        assert set(found) < set(ledger), "a checkpoint that is stored before its effect loses decisions"


async def test_a_broker_that_goes_away_takes_nothing_with_it_and_doubles_nothing(
    server_dir: Path, postgres_dsn: str, tmp_path: Path
) -> None:
    server = KafkaServer(server_dir)
    await asyncio.to_thread(server.start)
    process: subprocess.Popen[str] | None = None
    try:
        async with site(postgres_dsn, server.bootstrap) as there:
            pods_count, path = 90, tmp_path / "effects"
            process = reading(there.kafka, path, pods_count, "--batch-max=5", "--seconds=100")
            async with EventProducer(there.kafka, timeout_seconds=4.0) as producer:
                await producer.apply(node("n1"))
                for part in range(3):
                    if part:
                        await until_read(path, 30 * part - 15)  # so both are in the middle of it
                        await asyncio.to_thread(server.stop, kill=part == 1)
                    manifests = [uid_of(pod(f"p{part}-{n}")) for n in range(30)]
                    restarting = asyncio.create_task(asyncio.to_thread(server.start)) if part else None
                    failed = await written(producer, manifests)
                    if restarting is not None:
                        await restarting
                    assert part != 1 or failed, "the broker was away"
                said, _ = await asyncio.to_thread(process.communicate, timeout=120)
                assert process.returncode == 0, said
            assert Effects(path).all() == await decided(there.place)
            assert Effects(path).count() == pods_count
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.communicate()
        await asyncio.to_thread(server.stop)


async def until_read(path: Path, count: int) -> None:
    """Wait until a reader has done so much."""
    async with asyncio.timeout(60):
        while await asyncio.to_thread(lambda: Effects(path).count()) < count:
            await asyncio.sleep(0.1)


def uid_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with a uid and a version, so that its event may come twice."""
    more = {"uid": manifest["metadata"]["name"], "resourceVersion": "1"}
    return {**manifest, "metadata": {**manifest["metadata"], **more}}


async def written(producer: EventProducer, manifests: list[dict[str, Any]]) -> int:
    """Write manifests, however often that fails; return how often it did."""
    failed = 0
    async with asyncio.timeout(60):
        while True:
            try:
                await producer.apply(manifests)
                return failed
            except Unavailable:
                failed += 1
                await asyncio.sleep(0.2)


async def test_a_producer_says_what_is_wrong_before_it_writes(fresh_kafka: str) -> None:
    with pytest.raises(NotConfigured, match=r"no topic berth\.nodes; `berth init` makes it"):
        async with EventProducer(fresh_kafka):
            pass
    log = bootstrap.open_log(Place("", fresh_kafka))
    assert not await log.partitions("berth.nodes"), "asking for a topic makes none"
    await log.aclose()
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 does not answer"):
        await EventProducer("127.0.0.1:1", timeout_seconds=2.0).apply(node("n"))
    with pytest.raises(InvalidRequest, match=r"events\[1\]\.object\.metadata\.name: is missing"):
        await EventProducer(fresh_kafka).apply([node("n"), {"kind": "Pod"}])


async def test_a_topic_that_is_made_anew_is_read_from_its_first_record(
    fresh_kafka: str, tmp_path: Path
) -> None:
    log = bootstrap.open_log(Place("", fresh_kafka))
    path, specs = (
        tmp_path / "effects",
        [each for each in topic_specs(SHARD + 1) if each.name == DECISIONS_TOPIC],
    )
    rows = [(SHARD, seq, f"shop/p{seq}") for seq in range(1, 31)]

    async def write(first: int, end: int) -> None:
        writer = await log.writer()
        entries = [Entry(b"k", decision(seq, f"p{seq}"), None, b"a.b.1.0") for seq in range(first, end)]
        await writer.append(DECISIONS_TOPIC, entries, SHARD)
        await writer.aclose()

    await log.ensure_topics(specs)
    await write(1, 11)
    assert await read(fresh_kafka, path, 10) == 0
    process = reading(fresh_kafka, path, 30)
    try:
        for end in (21, 31):  # the reader is there at the second time, and maybe at the first
            await remade(log, fresh_kafka, specs)
            await write(1, 9)
            await write(1, end)
            await until_read(path, end - 1)
        said, _ = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()
        await log.aclose()
    assert Effects(path).all() == rows


async def test_a_reader_that_is_not_waited_for_any_more_goes_on_wherever_it_was(
    fresh_kafka: str, tmp_path: Path
) -> None:
    log, path = bootstrap.open_log(Place("", fresh_kafka)), tmp_path / "effects"
    await log.ensure_topics([each for each in topic_specs(SHARD + 1) if each.name == DECISIONS_TOPIC])
    writer = await log.writer()
    entries = [Entry(b"k", decision(seq, f"p{seq}"), None, b"a.b.1.0") for seq in range(1, 13)]
    await writer.append(DECISIONS_TOPIC, entries, SHARD)
    await writer.aclose()
    await log.aclose()
    assert await read(fresh_kafka, path, 12, "--patience=0.001", "--batch-max=4") == 0
    assert Effects(path).all() == [(SHARD, seq, f"shop/p{seq}") for seq in range(1, 13)]


async def test_shards_that_are_added_are_read(fresh_kafka: str, tmp_path: Path) -> None:
    log, path = bootstrap.open_log(Place("", fresh_kafka)), tmp_path / "effects"
    await log.ensure_topics([each for each in topic_specs(SHARD) if each.name == DECISIONS_TOPIC])
    process = reading(fresh_kafka, path, 5, "--look-seconds=1")
    try:
        await asyncio.sleep(3)  # it is there, or comes later, which is no fault
        await log.add_partitions([DECISIONS_TOPIC], SHARD + 1)
        writer = await log.writer()
        entries = [Entry(b"k", decision(seq, f"p{seq}"), None, b"a.b.1.0") for seq in range(1, 6)]
        await writer.append(DECISIONS_TOPIC, entries, SHARD)
        await writer.aclose()
        said, _ = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()
        await log.aclose()
    assert Effects(path).all() == [(SHARD, seq, f"shop/p{seq}") for seq in range(1, 6)]


async def remade(log: Log, kafka: str, specs: list[TopicSpec]) -> None:
    """Delete topics, and make them again."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.delete_topics([each.name for each in specs])
    await admin.close()
    while await log.partitions(DECISIONS_TOPIC):
        await asyncio.sleep(0.1)
    await log.ensure_topics(specs)


@pytest.mark.deep
async def test_brokers_that_ask_who_comes_are_shown_what_the_variables_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with asked_broker() as broker:
        log = bootstrap.open_log(Place("", broker.server.bootstrap))
        await log.ensure_topics(topic_specs(1))
        await log.aclose()
        rights = "--operation Write --operation Describe --topic berth.nodes"
        command = f"kafka-acls.sh --add --allow-principal User:berth-api {rights}"
        assert await grant(broker.server.bootstrap, command) == 2
        variables = {
            "BOOTSTRAP": broker.server.sasl_bootstrap, "SECURITY": "sasl-tls", "CA_FILE": str(broker.ca_file),
            "USERNAME": "berth-api", "PASSWORD": password_of("berth-api"),
        }  # fmt: skip
        for name, value in variables.items():
            monkeypatch.setenv(f"BERTH_KAFKA_{name}", value)
        async with EventProducer() as producer:
            applied = await producer.apply(node("n1"))
            assert [(each.topic, each.offset) for each in applied.positions] == [("berth.nodes", 0)]
            with pytest.raises(NotConfigured, match=r"shows no topic berth\.pods"):
                await producer.apply(pod("p"))
        monkeypatch.setenv("BERTH_KAFKA_PASSWORD", "wrong")
        with pytest.raises(Unavailable, match="may refuse the name, the password or the certificate"):
            await EventProducer(timeout_seconds=5.0).apply(node("n1"))
