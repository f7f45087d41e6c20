"""Does every event keep who sent it until it is in the ledger, and can nobody send in another's name?"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer

from services.adapters.kafka.log import KafkaLog
from services.adapters.memory.database import SEAL_SECRET
from services.adapters.memory.ledger import state_of
from services.codec.seal import DIRECT, UNVERIFIED, Senders, seal
from services.config import SettingError, Settings
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, Record, TopicPartition, TopicSpec
from tests.builders import (
    event,
    node_manifest,
    pod_manifest,
    priority_class_manifest,
    profile_manifest,
    usage_manifest,
)
from tests.property.site import Site, planner_at
from tests.security.keyed import keyed_house


@pytest.fixture
def site() -> Site:
    return Site()


def senders(site: Site) -> list[tuple[str, str, str | None]]:
    """Return pod, outcome and sender of every decision."""
    return sorted((d["pod"]["name"], d["outcome"], d["sent_by"]) for d in site.decided())


# --------------------------------------------------------------------------------------- in the ledger


def test_a_decision_names_who_sent_the_event_that_it_answers(site: Site) -> None:
    site.tell("ADDED", pod_manifest("a", cpu=1), sent_by="key:team-a")
    site.tell("ADDED", node_manifest("n1"), sent_by="key:ops")
    site.tell("ADDED", pod_manifest("b", node_name="n1"), sent_by="key:team-b")
    site.tell("DELETED", node_manifest("n1"), sent_by="key:ops")
    site.tell("DELETED", pod_manifest("a"), sent_by="key:janitor")
    assert senders(site) == [
        ("a", "bound", "key:team-a"),  # the pod's event, not the node's that made room
        ("a", "orphaned", "key:ops"),
        ("a", "released", "key:janitor"),
        ("a", "unschedulable", "key:team-a"),
        ("b", "adopted", "key:team-b"),
        ("b", "orphaned", "key:ops"),
    ]


def test_a_restart_keeps_who_sent_what_waits(site: Site) -> None:
    site.tell("ADDED", pod_manifest("a", cpu=1), sent_by="key:team-a")
    site.planner = site.restarted()
    site.tell("ADDED", node_manifest("n1"), sent_by="key:ops")
    assert senders(site) == [("a", "bound", "key:team-a"), ("a", "unschedulable", "key:team-a")]


def test_a_change_by_somebody_else_makes_the_pod_his(site: Site) -> None:
    site.tell("ADDED", pod_manifest("a", cpu=1), sent_by="key:team-a")
    site.tell("MODIFIED", pod_manifest("a", cpu=2), sent_by="key:team-b")
    assert ("a", "unschedulable", "key:team-b") in senders(site)


def test_what_is_no_pod_keeps_who_sent_it_too(site: Site) -> None:
    fit = ["NodeResourcesFit"]
    site.tell("ADDED", node_manifest("n1"), sent_by="key:ops")
    site.tell("ADDED", usage_manifest("n1", percent={"cpu": 5}), sent_by="key:agent")
    site.tell("ADDED", profile_manifest("mine", filters=fit, scores=[]), sent_by="key:admin")
    site.tell("ADDED", priority_class_manifest("high", 7), sent_by="key:admin")
    site.tell("ADDED", pod_manifest("bad", cpu=-1), sent_by="key:team-b")
    database = site.database
    (node,) = database.nodes.values()
    assert database.spec_changes[node.id][1] == "key:ops"
    assert database.measured.usage["n1"].sent_by == "key:agent"
    assert [row.sent_by for row in database.profiles.values()] == ["key:admin"]
    assert [row.sent_by for row in database.config_objects.values()] == ["key:admin"]
    (letter,) = (letter for letters in database.dead_letters.values() for letter in letters)
    assert letter.sent_by == "key:team-b"


# ----------------------------------------------------------------------------------------- through the API


async def test_the_api_seals_the_name_of_the_key() -> None:
    async with keyed_house() as house:
        for team in ("team-a", "team-b"):
            await house.key(team, ["producer"])
            assert (await house.send(team, event("ADDED", pod_manifest(team)))).status_code == 202
        records = house.log.partition(TopicPartition(PODS_TOPIC, 0)).records
    assert [Senders(SEAL_SECRET).of(record) for record in records] == ["key:team-a", "key:team-b"]


def test_a_key_with_namespaces_is_told_who_sent_events_of_its_pods_and_nobody_else() -> None:
    site = Site(preempts=True)
    site.tell("ADDED", node_manifest("n1", cpu=4), node_manifest("n2", cpu=4), sent_by="key:ops")
    team = [pod_manifest("placed", "team-a", cpu=3, uid="u1"), pod_manifest("huge", "team-a", cpu=99)]
    site.tell("ADDED", *team, pod_manifest("ran", "team-a", node_name="n2"), sent_by="key:ci")
    site.tell("MODIFIED", pod_manifest("ran", "team-a", cpu=4, node_name="n2"), sent_by="key:bridge")
    rival = pod_manifest("rival", "team-b", cpu=3, priority=7)
    site.tell("ADDED", rival, sent_by="key:rival")
    site.tell("DELETED", rival, sent_by="key:rival")
    for name in ("n1", "n2"):
        site.tell("DELETED", node_manifest(name), sent_by="key:ops")
        site.tell("ADDED", node_manifest(name, cpu=4), sent_by="key:ops")
    site.tell("DELETED", team[0], sent_by="key:janitor")

    async def told(key: str) -> dict[str, set[str | None]]:
        async with keyed_house(site.database) as house:
            await house.key("all", ["auditor"])
            await house.key("ours", ["auditor"], namespaces=["team-a"])
            items = (await house.ask(key, "GET", "/v1/decisions?namespace=team-a")).json()["items"]
            found: dict[str, set[str | None]] = {}
            for item in items:
                pod, of_id = item["pod"], f"/v1/decisions/{item['id']}"
                history = await house.ask(key, "GET", f"/v1/pods/team-a/{pod['name']}")
                alone = [
                    *(each for each in history.json()["decisions"] if each["id"] == item["id"]),
                    (await house.ask(key, "GET", of_id)).json(),
                    (await house.ask(key, "GET", f"{of_id}/explanation")).json()["decision"],
                ]
                assert [each["sent_by"] for each in alone] == [item["sent_by"]] * 3
                found.setdefault(item["outcome"], set()).add(item["sent_by"])
            return found

    of_its_pods = {
        "bound": {"key:ci"},
        "unresolvable": {"key:ci"},
        "adopted": {"key:ci"},
        "resized": {"key:bridge"},
        "released": {"key:janitor"},
    }
    of_others = {
        "evicted": {"key:rival"},
        "spared": {"key:rival"},
        "orphaned": {"key:ops"},
        "returned": {"key:ops"},
    }
    assert asyncio.run(told("all")) == of_its_pods | of_others
    assert asyncio.run(told("ours")) == of_its_pods | {outcome: {None} for outcome in of_others}


# -------------------------------------------------------------------------------- whoever writes to Kafka


def told_by(site: Site, sealed: bytes | None) -> str:
    """Return the sender of a pod whose record carries this beside it."""
    raw = orjson.dumps(event("ADDED", pod_manifest("a", cpu=1)))
    site.take([Record(PODS_TOPIC, 0, 0, b"default/a", raw, 1_700_000_000_000, sealed)])
    (decision,) = site.decided()
    return str(decision["sent_by"])


def test_a_record_without_a_name_says_that_nobody_knows(site: Site) -> None:
    assert told_by(site, None) == DIRECT


@pytest.mark.parametrize("name", [b"key:team-a", b"team-a", b"", b"\xff" * 40, b"x" * 100_000])
def test_a_name_that_a_producer_invents_does_not_count(site: Site, name: bytes) -> None:
    assert told_by(site, bytes(32) + name) == UNVERIFIED


def test_a_seal_of_another_event_does_not_count(site: Site) -> None:
    other = orjson.dumps(event("ADDED", pod_manifest("a", cpu=2)))
    assert told_by(site, seal(SEAL_SECRET, PODS_TOPIC, b"default/a", other, "key:team-a")) == UNVERIFIED


def test_a_wrong_seal_is_counted(site: Site) -> None:
    raw = orjson.dumps(event("ADDED", node_manifest("n1")))
    forged = Record(NODES_TOPIC, 0, 0, b"n1", raw, 1, b"forged")
    assert site.planner.plan_batch([forged]).decisions.unverified_count == 1


def test_a_topic_with_one_writer_says_who_that_is() -> None:
    known = Settings.from_env(
        {"BERTH_KAFKA_WRITERS": "berth.pods=User:CN=bridge,OU=a;berth.usage=User:agent"}
    ).kafka_writers
    site = Site()
    state = state_of(site.database, site.leases)
    site.planner = planner_at(site.leases, state, seed=3, writers=known)
    assert told_by(site, None) == "direct:User:CN=bridge,OU=a"
    with pytest.raises(SettingError, match="BERTH_KAFKA_WRITERS"):
        Settings.from_env({"BERTH_KAFKA_WRITERS": "berth.decisions=User:a"})


async def test_a_broker_keeps_what_a_producer_put_beside_a_record_and_the_seal_tells(
    kafka_bootstrap: str,
) -> None:
    topic = f"who.{uuid.uuid4().hex[:12]}"
    log = KafkaLog(kafka_bootstrap)
    await log.ensure_topics([TopicSpec(topic, 1, compacted=False)])
    good = seal(SEAL_SECRET, topic, b"k", b"v", "key:team-a")
    async with contextlib.aclosing(await log.writer()) as writer:
        await writer.append(topic, [Entry(b"k", b"v", good)])
    others: list[list[tuple[str, Any]]] = [
        [],
        [("trace", b"x")],
        [("berth-seal", bytes(32) + b"key:team-a")],
        [("berth-seal", None)],
        [("berth-seal", good), ("trace", None), ("berth-seal", b"the last one counts")],
    ]
    producer = AIOKafkaProducer(bootstrap_servers=kafka_bootstrap)
    await producer.start()
    for headers in others:
        await producer.send_and_wait(topic, b"v", key=b"k", headers=headers)
    await producer.stop()
    senders = Senders(SEAL_SECRET)
    found: list[str] = []
    async with contextlib.aclosing(await log.reader()) as reader:
        await reader.assign({TopicPartition(topic, 0): 0})
        while len(found) < 6:
            found += [senders.of(record) for record in await reader.poll(10, 5.0)]
    await log.aclose()
    assert found == ["key:team-a", DIRECT, DIRECT, UNVERIFIED, UNVERIFIED, UNVERIFIED]
