"""Does a secret of a manifest, in an environment or an annotation, ever reach a store?"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from domain.manifests.fields import SHAPES, Treatment
from domain.model.errors import FieldError
from domain.model.limits import event_bytes_max
from services import bootstrap
from services.codec.decode import Decoder
from services.codec.encode import encode_event
from services.codec.gateway import Gateway
from services.codec.kept import KEPT, kept_of_refused, stripped
from services.config import Settings
from services.metrics import process_registry
from services.ports.log import DEAD_LETTER_TOPIC, PODS_TOPIC, Entry
from tests.builders import node_manifest, pod_manifest, record
from tests.integration.api_world import client_of, fresh_database, work_off

MANIFESTS = Path(__file__).parents[1] / "manifests"
SECRET = "hunter2"


def leaky_pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    """Return a pod with a secret in every place where people put them."""
    container = {
        "name": "web",  # the status names the container by it
        "image": "web",
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "command": ["run", f"--password={SECRET}"],
        "args": [SECRET],
        "lifecycle": {"postStart": {"exec": {"command": [SECRET]}}},
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "ports": [{"containerPort": 80, "hostPort": 8080, "name": SECRET}],
    }
    volumes = [
        {"name": SECRET, "csi": {"volumeAttributes": {"password": SECRET}}},
        {"name": "v", "rbd": {"keyring": SECRET, "monitors": [SECRET]}},
        {"name": "w", "ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": {"a": SECRET}}}}},
    ]
    manifest = pod_manifest(name, spec={"containers": [container], "volumes": volumes, **spec})
    manifest["metadata"] |= {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": SECRET})},
        "managedFields": [{"fieldsV1": {f"f:{SECRET}": {}}}],
        "ownerReferences": [{"name": "web", "blockOwnerDeletion": SECRET}],
    }
    return manifest | {"status": {"phase": "Pending", "message": SECRET, "conditions": [{"message": SECRET}]}}


def leaky_node() -> dict[str, Any]:
    manifest = node_manifest("n")
    manifest["metadata"]["annotations"] = {"token": SECRET, "berth.io/usage-window-seconds": "900"}
    manifest["metadata"]["managedFields"] = [{"manager": SECRET}]
    manifest["spec"] = {"providerID": SECRET}
    manifest["status"]["nodeInfo"] = {"machineID": SECRET}
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "True", "message": SECRET}]
    return manifest


@pytest.mark.parametrize("event_type", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
@pytest.mark.parametrize("thing", [leaky_pod(), leaky_node()], ids=["pod", "node"])
def test_the_record_of_an_event_holds_no_secret(event_type: str, thing: dict[str, Any]) -> None:
    sent = Gateway().prepare({"type": event_type, "object": thing, "at": "2024-05-01T10:00:00Z", "id": "e"})
    assert SECRET.encode() not in (sent.entry.value or b"")
    assert sent.id == "e"


def corpus() -> Iterator[dict[str, Any]]:
    for name in ("kubectl-all.json", "kubectl-nodes.json"):
        found = json.loads((MANIFESTS / name).read_text())
        yield from (each for each in found["items"] if each["kind"] in KEPT)
    yield from (leaky_pod(), leaky_node())
    near = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    yield leaky_pod("q", affinity={"podAffinity": near}, tolerations=[{"key": "a", "tolerationSeconds": 3}])
    yield leaky_pod("r", initContainers=[{"restartPolicy": "Always"}], overhead={"cpu": "1"}, priority=5)
    yield leaky_pod("s", resources={"claims": [{"name": "g"}]}, schedulingGroup={"podGroupName": "g"})
    yield leaky_pod("t", workloadRef={"name": "w", "podGroup": "g", "podGroupReplicaKey": "k"})


@pytest.mark.parametrize("event_type", ["ADDED", "DELETED"])
def test_a_worker_reads_the_same_as_from_the_whole_event(event_type: str) -> None:
    seen = set()
    for thing in corpus():
        sent = Gateway().prepare({"type": event_type, "object": thing})
        whole = Decoder().decode(record(sent.topic, encode_event(event_type, thing), sent.entry.key))
        assert whole.rejected is None
        assert sent.event == whole.event
        assert Decoder().decode(record(sent.topic, sent.entry.value, sent.entry.key)).event == whole.event
        seen.add(thing["kind"])
    assert {"Pod", "Node"} <= seen


def test_a_tolerant_reading_keeps_the_same() -> None:
    for thing in corpus():
        raw = Gateway().prepare({"type": "ADDED", "object": thing}).entry.value or b""
        assert json.loads(msgspec.json.encode(stripped(thing))) == json.loads(raw)["object"]


def test_no_field_of_no_matter_is_kept() -> None:
    for shape in SHAPES:
        read = {field.encode_name for field in msgspec.structs.fields(shape.wire)}
        assert not read & {field.name for field in shape.fields if field.treatment is Treatment.NONE}, (
            shape.path
        )


def test_the_digest_of_an_event_is_that_of_all_of_it() -> None:
    """A repeated id with another content is refused, also if they differ in what is not kept."""
    plain, other = leaky_pod(), leaky_pod()
    other["spec"]["containers"][0]["env"][0]["value"] = "other"
    sent = [Gateway().prepare({"type": "ADDED", "object": thing, "id": "e"}) for thing in (plain, other)]
    assert sent[0].entry == sent[1].entry
    assert sent[0].digest != sent[1].digest


def test_what_is_wrong_is_still_said_with_its_field() -> None:
    wrong = leaky_pod()
    wrong["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    with pytest.raises(FieldError, match=r"object\.spec\.containers\[0\]\.resources\.requests\.cpu"):
        Gateway().prepare({"type": "ADDED", "object": wrong})
    wrong["spec"]["containers"][0]["resources"] = "much"
    with pytest.raises(FieldError, match=r"object\.spec\.containers\[0\]\.resources"):
        Gateway().prepare({"type": "ADDED", "object": wrong})


@pytest.mark.parametrize("kind", [[], {}, None, 5, "Secret"])
@pytest.mark.parametrize("event_type", [[], None, "ADDED", "DELETED"])
def test_a_kind_that_is_none_is_refused(kind: object, event_type: object) -> None:
    thing = {"kind": kind, "apiVersion": "v1", "metadata": {"name": "n"}, "data": {"password": SECRET}}
    with pytest.raises(FieldError, match=r"object\.kind"):
        Gateway().prepare({"type": event_type, "object": thing})


# ------------------------------------------------------------------------------------------- dead letters


def refused() -> dict[str, bytes]:
    wrong = leaky_pod()
    wrong["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    other = leaky_pod()
    other["spec"]["containers"] = [SECRET, {"image": {"env": SECRET}, "ports": SECRET}]
    other["metadata"]["labels"] = {"a": {"b": SECRET}}
    whole = encode_event("ADDED", wrong)
    return {
        "a wrong field": whole,
        "wrong types": encode_event("ADDED", other),
        "cut off": whole[:-30],
        "no event": json.dumps({"password": SECRET, "object": SECRET}).encode(),
        "no object": json.dumps([SECRET]).encode(),
        "an unknown kind": json.dumps(
            {"type": "ADDED", "object": {"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": SECRET}}}
        ).encode(),
        "no type": json.dumps({"object": leaky_pod()}).encode(),
        "no json": f"password={SECRET}".encode(),
        "too large": json.dumps(
            {"type": "ADDED", "object": leaky_pod(), "x": "y" * event_bytes_max}
        ).encode(),
        "too deep": b'{"object":' + b"[" * 5000 + SECRET.encode(),
        "a number that nothing holds": f'{{"object":{{"x":1e999,"y":"{SECRET}"}}}}'.encode(),
    }


@pytest.mark.parametrize("name", sorted(refused()))
def test_a_dead_letter_keeps_no_secret(name: str) -> None:
    value = refused()[name]
    decoded = Decoder().decode(record(PODS_TOPIC, value, b"default/p"))
    assert decoded.rejected is not None
    raw, note = kept_of_refused(value)
    assert SECRET.encode() not in raw
    assert SECRET not in decoded.rejected.message + note
    assert bool(raw) != bool(note)


def test_a_dead_letter_of_an_event_still_shows_what_was_wrong() -> None:
    raw, note = kept_of_refused(refused()["a wrong field"])
    assert note == ""
    assert json.loads(raw)["object"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "much"}}
    assert kept_of_refused(b"")[0] == b""
    assert "nothing of its 16 bytes is kept here (SHA-256 " in kept_of_refused(refused()["no json"])[1]


async def test_no_table_and_no_topic_holds_the_secret(embedded_dsn: str) -> None:
    """Events by the API and records past it, worked off by a real worker and relay."""
    values = refused()
    wrong = [values["a wrong field"], values["no json"]]
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        async with client_of(place) as client:
            things = (leaky_node(), leaky_pod())
            events = [{"type": "ADDED", "object": each, "id": each["kind"]} for each in things]
            answer = await client.post("/v1/events", json=events)
            assert answer.status_code == 202, answer.text
        log = bootstrap.open_log(place)
        async with contextlib.aclosing(log), contextlib.aclosing(await log.writer()) as writer:
            await writer.append(PODS_TOPIC, [Entry(b"default/p", value) for value in wrong])
        await work_off(place)
        relay = asyncio.create_task(
            bootstrap.run_relay(place, Settings(worker_name="relay"), process_registry())
        )
        connection = await asyncpg.connect(place.dsn)
        try:
            assert await connection.fetchval("SELECT count(*) FROM dead_letters") == 2
            async with asyncio.timeout(20):
                query = "SELECT count(*) FROM log_records WHERE topic = $1"
                while await connection.fetchval(query, DEAD_LETTER_TOPIC) < 2:
                    await asyncio.sleep(0.05)
            for (table,) in await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            ):
                for row in await connection.fetch(f"SELECT * FROM {table}"):
                    values_of = dict(row)
                    if values_of.get("value") in wrong:
                        continue  # what a producer wrote into the log itself
                    said = {name: texts_of(value) for name, value in values_of.items()}
                    assert SECRET not in str(said), table
        finally:
            relay.cancel()
            await asyncio.gather(relay, return_exceptions=True)
            await connection.close()


def texts_of(value: Any) -> str:
    """Return a column's value as text; of a published dead letter, also what it holds in base64."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if text.startswith("{") and '"raw":"' in text:
        text += base64.b64decode(json.loads(text)["raw"]).decode(errors="replace")
    return text
