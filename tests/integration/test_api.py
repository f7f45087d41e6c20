"""The API against a real ledger that a real worker filled."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock

import httpx
import msgspec
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from domain.model.errors import Unavailable
from domain.model.profiles import BUILT_IN_PROFILES
from services import bootstrap
from services.adapters.postgres.access import PostgresCallers
from services.adapters.postgres.processes import PostgresProcesses
from services.api import answers
from services.api.answers_decisions import Decision, Explanation, PodAttempts
from services.api.app import create_app
from services.api.auth import Gate
from services.api.deps import Deps
from services.api.health import LOOK_SECONDS, Lookout
from services.api.keys import key_hash, new_key
from services.bootstrap import Place
from services.cli.main import app as cli
from services.codec.gateway import Gateway
from services.metrics import ApiMetrics, process_registry
from services.ports.ledger import Incarnation
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry
from services.ports.store import Grant
from tests.builders import event, node_manifest, pod_manifest, usage_manifest
from tests.integration.api_world import (
    AT,
    LATER,
    Client,
    World,
    all_items,
    answer_of,
    checked,
    client_of,
    fresh_database,
    work_off,
)


def trace() -> list[dict[str, Any]]:
    """Return events that give every kind of answer something to show."""
    gpu: Any = {"nvidia.com/gpu": 2}
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    nodes = [
        node_manifest("n1", cpu="4", memory="16Gi", labels={"zone": "a"}),
        node_manifest("n2", cpu="8", memory="32Gi", taints=[taint], **gpu),
        node_manifest("n3", cpu="2", memory="4Gi", unschedulable=True),
        node_manifest("gone", cpu="2", memory="4Gi", unschedulable=True),
    ]
    pods = [pod_manifest(f"web-{i}", cpu="500m", memory="1Gi", labels={"app": "web"}) for i in range(4)]
    pods += [
        pod_manifest("small", "kube-system", cpu="100m"),
        pod_manifest("placed", "kube-system", cpu="1", node_name="n2", labels={"app": "dns"}),
        pod_manifest("huge-0", cpu="64", memory="1Gi"),
        pod_manifest("huge-1", cpu="64", memory="1Gi"),
        pod_manifest("brief", cpu="250m"),
    ]
    events = [event("ADDED", thing, AT, f"id-{thing['metadata']['name']}") for thing in nodes + pods]
    events.append(event("DELETED", node_manifest("gone"), LATER))
    return [*events, event("DELETED", pod_manifest("brief"), LATER)]


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            answer = await client.post("/v1/events", json=trace()[:-2])
            assert answer.status_code == 202, answer.text
            await work_off(place)
            assert (await client.post("/v1/events", json={"events": trace()[-2:]})).status_code == 202
            log = bootstrap.open_log(place)
            writer = await log.writer()
            await writer.append(PODS_TOPIC, [Entry(b"default/bad", b'{"type": "ADDED", "object": \xff}')])
            await writer.append(NODES_TOPIC, [Entry(b"bad", b"not json")])
            await writer.aclose()
            await log.aclose()
            await work_off(place)
            yield World(place, client)


# ------------------------------------------------------------------------------------------ nodes and pods


async def test_nodes_show_quantities_as_kubernetes_writes_them(world: World) -> None:
    found = await answer_of(world, "/v1/nodes", answers.NodePage)
    assert [node["name"] for node in found["items"]] == ["n1", "n2", "n3"]
    n2 = found["items"][1]
    assert n2["allocatable"] == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2", "pods": "110"}
    assert n2["requested"] == {"cpu": "1", "pods": "1"}
    assert n2["free"] == {"cpu": "7", "memory": "32Gi", "nvidia.com/gpu": "2", "pods": "109"}
    assert n2["taints"] == [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    assert found["items"][2]["unschedulable"]


async def test_nodes_are_filtered_by_a_part_of_the_name_taken_literally(world: World) -> None:
    assert len(await all_items(world, "/v1/nodes", answers.NodePage, name="1")) == 1
    assert await all_items(world, "/v1/nodes", answers.NodePage, name="%") == []


async def test_a_node_shows_the_pods_that_its_requests_are_the_sum_of(world: World) -> None:
    n1 = await answer_of(world, "/v1/nodes/n1", answers.NodeDetail)
    names = {pod["name"] for pod in n1["pods"]}
    assert names == {"web-0", "web-1", "web-2", "web-3", "small"}
    assert n1["requested"] == {"cpu": "2100m", "memory": "4Gi", "pods": "5"}
    gone = await answer_of(world, "/v1/nodes/gone", answers.NodeDetail)
    assert gone["deleted"]
    assert gone["pods"] == []


async def test_pods_by_namespace_node_and_phase(world: World) -> None:
    async def names(**params: str) -> set[str]:
        return {pod["name"] for pod in await all_items(world, "/v1/pods", answers.PodPage, **params)}

    everything = {"web-0", "web-1", "web-2", "web-3", "small", "placed", "huge-0", "huge-1"}
    assert await names() == everything
    assert await names(namespace="kube-system") == {"small", "placed"}
    assert await names(node="n2") == {"placed"}
    assert await names(phase="pending") == {"huge-0", "huge-1"}
    assert await names(phase="bound", namespace="default") == {"web-0", "web-1", "web-2", "web-3"}
    assert await names(phase="pending", node="n1") == set()


@pytest.mark.parametrize(
    ("target", "model"),
    [
        ("/v1/nodes", answers.NodePage),
        ("/v1/pods", answers.PodPage),
        ("/v1/decisions", answers.DecisionPage),
        ("/v1/deadletters", answers.DeadLetterPage),
    ],
)
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_hold_each_item_once(
    world: World, target: str, model: type[msgspec.Struct], limit: int
) -> None:
    whole = (await answer_of(world, target, model, limit=100))["items"]
    assert len(whole) > 1
    assert await all_items(world, target, model, limit=limit) == whole


async def test_a_bound_pod(world: World) -> None:
    pod = await answer_of(world, "/v1/pods/default/web-1", answers.PodDetail)
    assert (pod["phase"], pod["node"]) == ("bound", "n1")
    (decision,) = pod["decisions"]
    assert pod["since"] == decision["decided_at"] == pod["placements"][0]["from"]
    assert decision["event_at"] == "2024-05-01T10:00:00.000Z"  # the producer's claim
    assert pod["requests"] == {"cpu": "500m", "memory": "1Gi"}
    assert (pod["labels"], pod["qos_class"], pod["quality"]) == ({"app": "web"}, "Burstable", "mid")
    explained = await answer_of(world, f"/v1/decisions/{pod['decision']}/explanation", Explanation)
    assert explained["quality"] == "mid"
    assert [each["outcome"] for each in pod["decisions"]] == ["bound"]
    assert pod["placements"][0]["to"] is None
    assert pod["decision"] == pod["decisions"][0]["id"] == pod["placements"][0]["decision"]


async def test_pods_are_selected_by_their_quality(world: World) -> None:
    found = {}
    for quality in ("high", "mid", "low"):
        page = await answer_of(world, "/v1/pods", answers.PodPage, quality=quality)
        assert {pod["quality"] for pod in page["items"]} <= {quality}
        found[quality] = {pod["name"] for pod in page["items"]}
    everything = await answer_of(world, "/v1/pods", answers.PodPage)
    assert set().union(*found.values()) == {pod["name"] for pod in everything["items"]}
    assert "web-1" in found["mid"]
    wrong = await world.client.get("/v1/pods?quality=system")
    assert (wrong.status_code, wrong.json()["error"]["path"]) == (422, "quality")


async def test_a_waiting_pod_shows_its_group(world: World) -> None:
    pod = await answer_of(world, "/v1/pods/default/huge-0", answers.PodDetail)
    assert (pod["phase"], pod["node"]) == ("pending", None)
    assert pod["group"]["count"] >= 1
    assert sum(pod["group"]["reasons"].values()) == 3  # when it was last tried, `gone` had left


async def test_a_pod_that_is_gone_keeps_its_history(world: World) -> None:
    pod = await answer_of(world, "/v1/pods/default/brief", answers.PodDetail)
    assert (pod["phase"], pod["node"]) == ("released", None)
    assert [each["outcome"] for each in pod["decisions"]] == ["released", "bound"]
    released, bound = pod["decisions"]
    (span,) = pod["placements"]
    assert (span["from"], span["to"]) == (bound["decided_at"], released["decided_at"])
    assert span["from"] < span["to"]
    assert (pod["qos_class"], pod["quality"]) == (None, None)
    assert pod["requests"] == bound["requests"] == released["requests"] == {"cpu": "250m"}


# ----------------------------------------------------------------------------------------------- decisions


async def test_decisions_are_in_commit_order_per_shard_and_newest_first_is_the_reverse(world: World) -> None:
    items = await all_items(world, "/v1/decisions", answers.DecisionPage)
    for shard in (0, 1):
        seqs = [item["seq"] for item in items if item["shard"] == shard]
        assert seqs == list(range(1, len(seqs) + 1))
        of_shard = await all_items(world, "/v1/decisions", answers.DecisionPage, shard=shard, limit=2)
        assert [item["seq"] for item in of_shard] == seqs
    newest = await all_items(world, "/v1/decisions", answers.DecisionPage, order="newest", limit=4)
    assert newest == items[::-1]


async def test_decisions_by_pod_node_outcome_signature_and_time(world: World) -> None:
    async def names(**params: str) -> list[str]:
        found = await all_items(world, "/v1/decisions", answers.DecisionPage, **params)
        return sorted(item["pod"]["name"] for item in found)

    assert await names(pod="default/brief") == ["brief", "brief"]
    assert await names(pod="small", namespace="kube-system") == ["small"]
    assert await names(pod="default/small") == []
    assert await names(outcome="adopted") == ["placed"]
    assert await names(node="n2") == ["placed"]
    everybody = ["brief", "huge-0", "huge-1", "small", "web-0", "web-1", "web-2", "web-3"]
    assert await names(profile="default-scheduler", revision="1") == everybody
    assert await names(profile="default-scheduler", revision="2") == []
    released, _ = (await answer_of(world, "/v1/pods/default/brief", answers.PodDetail))["decisions"]
    assert await names(since=released["decided_at"]) == ["brief"]
    assert (await names(until=released["decided_at"])).count("brief") == 1
    web = await answer_of(world, "/v1/pods/default/web-0", answers.PodDetail)
    assert await names(signature=web["signature"]) == ["web-0", "web-1", "web-2", "web-3"]


async def explanation_of(world: World, pod: str) -> Any:
    """Return the explanation of a pod's only decision."""
    items = await all_items(world, "/v1/decisions", answers.DecisionPage, pod=pod)
    return await answer_of(world, f"/v1/decisions/{items[0]['id']}/explanation", Explanation)


async def test_the_explanation_of_a_placement(world: World) -> None:
    found = await explanation_of(world, "default/web-0")
    cycle = found["cycle"]
    assert (cycle["profile"], cycle["seed"], cycle["nodes"]) == ("default-scheduler", 7, 4)
    assert found["decision"]["node_version"] >= 2  # the node came, then the pod
    assert found["template"]["requests"] == {"cpu": 500, "memory": 1 << 30}
    assert cycle["reasons"] == {"untolerated-taint": 1, "node-unschedulable": 2}
    assert {each["node"] for each in cycle["candidates"]} == {"n1"}
    weights = {use.name: use.weight for use in BUILT_IN_PROFILES["default-scheduler"].scores}
    for each in cycle["candidates"]:
        total = sum(weights[name] * part for name, part in each["parts"].items())
        assert total == pytest.approx(each["score"])
        assert each["inputs"]["sums"]["pods"]["allocatable"] == "110"
        assert int(each["inputs"]["sums"]["pods"]["requested"]) >= 0
        assert (each["inputs"]["usage"], each["inputs"]["node_version"]) == (None, None)
    assert cycle["looked_at"] == found["decision"]["decided_at"]
    assert cycle["repeated_at_generation"] is None
    assert "default/web-0 was placed on n1; it asks for 500m cpu, 1Gi memory." in found["summary"]
    assert "2 are cordoned; 1 has a taint that it does not tolerate" in found["summary"]


async def test_the_explanation_of_waiting(world: World) -> None:
    found = await explanation_of(world, "default/huge-1")
    assert found["decision"]["outcome"] in ("unschedulable", "unresolvable")
    assert found["summary"].startswith("default/huge-1 waits: no node")
    assert "64 cpu" in found["summary"]
    assert "1 lacks cpu" in found["summary"]


async def test_why_a_pod_was_refused_at_a_moment(world: World) -> None:
    target = "/v1/pods/default/huge-0/attempts"
    everything = await answer_of(world, target, PodAttempts)
    assert (everything["state"], everything["node"]) == ("waiting", None)
    first, *_ = everything["items"]
    assert sum(first["reasons"].values()) == first["nodes"] == 4
    assert (first["profile"], first["profile_revision"]) == ("default-scheduler", 1)
    (decision,) = (await answer_of(world, "/v1/pods/default/huge-0", answers.PodDetail))["decisions"]
    assert decision["reasons"] == first["reasons"]
    then = await answer_of(world, target, PodAttempts, at=first["last_at"])
    assert [each["reasons"] for each in then["items"]] == [first["reasons"]]
    assert then["summary"].startswith(f"At {first['last_at']}, default/huge-0 was waiting: of 4 nodes, ")
    assert "1 lacks cpu" in then["summary"]
    before = await answer_of(world, target, PodAttempts, at="2020-01-01T14:00:00Z")
    assert (before["state"], before["items"]) == ("not there yet", [])


async def test_a_pod_that_never_waited_has_no_attempts(world: World) -> None:
    bound = await answer_of(world, "/v1/pods/default/web-0/attempts", PodAttempts)
    assert (bound["state"], bound["node"], bound["items"]) == ("bound", "n1", [])
    gone = await answer_of(world, "/v1/pods/default/brief/attempts", PodAttempts)
    assert (gone["state"], gone["node"], gone["items"]) == ("gone", None, [])


async def test_a_decision_by_its_id(world: World) -> None:
    detail = await answer_of(world, "/v1/pods/default/brief", answers.PodDetail)
    for listed in detail["decisions"]:
        assert await answer_of(world, f"/v1/decisions/{listed['id']}", Decision) == listed


async def test_the_explanation_of_an_adopted_pod_needs_no_cycle(world: World) -> None:
    found = await explanation_of(world, "kube-system/placed")
    assert found["cycle"] is None
    assert "was already bound to n2" in found["summary"]


# ------------------------------------------------------------------------------ pending, shards, dead letters


async def test_pending_groups(world: World) -> None:
    found = (await answer_of(world, "/v1/pending", answers.PendingPage))["items"]
    assert sum(group["count"] for group in found) == 2
    for group in found:
        assert group["requests"] == {"cpu": "64", "memory": "1Gi"}
        assert set(group["examples"]) <= {"default/huge-0", "default/huge-1"}
        assert sum(group["reasons"].values()) == 3
    assert len({group["signature"] for group in found}) == 1
    shard = found[0]["shard"]
    of_shard = await answer_of(world, "/v1/pending", answers.PendingPage, shard=shard)
    assert {group["shard"] for group in of_shard["items"]} == {shard}


async def test_shards(world: World) -> None:
    found = (await answer_of(world, "/v1/shards", answers.ShardPage))["items"]
    assert [shard["shard"] for shard in found] == [0, 1]
    decisions = await all_items(world, "/v1/decisions", answers.DecisionPage)
    assert sum(shard["decisions"] for shard in found) == len(decisions)
    assert all(shard["published"] == shard["decisions"] for shard in found)
    topics = {at["topic"] for shard in found for at in shard["offsets"]}
    assert topics == {"berth.nodes", "berth.pods", "berth.usage", "berth.config", "berth.ticks"}


async def test_dead_letters_keep_no_bytes_that_are_no_object(world: World) -> None:
    found = await all_items(world, "/v1/deadletters", answers.DeadLetterPage)
    by_key = {letter["key"]: letter for letter in found}
    for key, raw in (("bad", b"not json"), ("default/bad", b'{"type": "ADDED", "object": \xff}')):
        letter = by_key[key]
        assert letter["code"] == "not-json"
        assert (letter["raw_bytes"], letter["raw_base64"], letter["raw_text"]) == (0, "", "")
        assert f"{len(raw)} bytes" in letter["message"]
        assert hashlib.sha256(raw).hexdigest() in letter["message"]


# ------------------------------------------------------------------------------------------------- ingest


@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("GET", "/v1/nodes/none", 404, "not-found"),
        ("GET", "/v1/pods/none/none", 404, "not-found"),
        ("GET", "/v1/decisions/0-999/explanation", 404, "not-found"),
        ("GET", "/v1/decisions/99999-1/explanation", 404, "not-found"),
        ("GET", "/v1/decisions/nope/explanation", 422, "invalid-field"),
        ("GET", "/v1/decisions/0-99999999999999999999/explanation", 422, "invalid-field"),
        ("GET", "/v2/nodes", 404, "not-found"),
        ("DELETE", "/v1/nodes", 405, "method-not-allowed"),
        ("GET", "/v1/pods?limit=0", 422, "invalid-field"),
        ("GET", "/v1/pods?limit=many", 422, "invalid-field"),
        ("GET", "/v1/pods?phase=running", 422, "invalid-field"),
        ("GET", "/v1/pods?fase=bound", 422, "invalid-field"),
        ("GET", "/v1/decisions?outcome=boud", 422, "invalid-field"),
        ("GET", "/v1/pods?cursor=%21%21", 422, "invalid-field"),
        ("GET", "/v1/pods?cursor=YQBi", 422, "invalid-field"),
        ("GET", "/v1/decisions?cursor=abc", 422, "invalid-field"),
        ("GET", "/v1/decisions?since=yesterday", 422, "invalid-field"),
        ("GET", "/v1/decisions?until=2024-01-01T25:00:00", 422, "invalid-field"),
        ("GET", "/v1/decisions?signature=xyz", 422, "invalid-field"),
        ("GET", "/v1/decisions?revision=3", 422, "invalid-field"),
        ("GET", "/v1/decisions/0-999", 404, "not-found"),
        ("GET", "/v1/pods/none/none/attempts", 404, "not-found"),
        ("GET", "/v1/pods/none/none/attempts?at=noon", 422, "invalid-field"),
        ("GET", "/v1/nodes/a%00b", 422, "invalid-field"),
        ("POST", "/v1/events", 422, "not-json"),
    ],
)
async def test_every_error_has_the_one_shape(
    world: World, method: str, target: str, status: int, code: str
) -> None:
    answer = await world.client.request(method, target, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    checked(answer.json(), answers.Error)
    assert answer.json()["error"]["code"] == code
    assert "pattern" not in answer.text, "what is allowed is said in words"


async def test_a_fault_of_ours_has_the_shape_too(world: World) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("secret detail")

    broken: Any = Broken()
    gate = Gate(broken, keys_required=False, local_user="me")
    metrics, lookout = ApiMetrics(process_registry()), Lookout(broken, broken, lambda *_: "")
    app = create_app(Deps(broken, broken, broken, gate, Gateway(), metrics, lookout))
    async with Client(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://berth"
    ) as client:
        answer = await client.get("/v1/nodes")
    assert answer.status_code == 500
    checked(answer.json(), answers.Error)
    assert "secret" not in answer.text


async def test_without_a_database_the_api_lives_and_says_so() -> None:
    nowhere = Place("postgresql://nobody@127.0.0.1:1/none", None)
    async with client_of(nowhere) as client:
        assert (await client.get("/healthz")).status_code == 200
        ready = await client.get("/readyz")
        assert ready.status_code == 503
        checked(ready.json(), answers.Health)
        assert ready.json()["checks"]["database"] != "ok"
        answer = await client.get("/v1/nodes")
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "unavailable"
        assert answer.headers["retry-after"] == "1"


async def test_an_empty_database_is_not_ready(embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn) as place, client_of(place) as client:
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert "berth init" in answer.json()["checks"]["migrations"]
        answer = await client.get("/v1/nodes")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not-ready")
        assert "berth init" in answer.json()["error"]["message"]
        await bootstrap.initialise(place, 1)
        health = await until_looked_at(client)
        assert health["checks"] | {"workers": ""} == {
            "database": "ok",
            "migrations": "ok",
            "log": "ok",
            "workers": "",
        }


async def test_a_relays_alarm_is_shown_until_it_is_acknowledged(embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn) as place, client_of(place) as client:
        await bootstrap.initialise(place, 1)
        async with contextlib.aclosing(bootstrap.open_outbox(place)) as outbox:
            epoch = await outbox.acquire(0, "relay", 10)
            await outbox.raise_alarm(0, epoch, "topic berth.decisions, partition 0, offset 7: no", 8)
        assert (await until_looked_at(client))["alarms"] == [
            "topic berth.decisions, partition 0, offset 7: no"
        ]
        assert 'berth_ledger_topic_alarm{shard="0"} 1.0' in (await client.get("/metrics")).text
        told = {"BERTH_POSTGRES_DSN": place.dsn}
        result = await asyncio.to_thread(CliRunner().invoke, cli, ["relay", "--acknowledge"], env=told)
        assert result.exit_code == 0, result.output
        assert "acknowledged: 1 alarm" in result.output
        assert (await until_looked_at(client))["alarms"] == []


async def until_looked_at(client: Client) -> dict[str, Any]:
    """Return the next look at the deployment; until then the last one is repeated."""
    await asyncio.sleep(LOOK_SECONDS)
    answer = await client.get("/readyz")
    found: dict[str, Any] = checked(answer.json(), answers.Health)
    assert answer.status_code == (200 if found["status"] == "ok" else 503)
    return found


async def test_without_a_worker_nothing_is_ready(embedded_dsn: str) -> None:
    """A worker that is up differs from none, and waiting records are counted in both cases."""
    async with fresh_database(embedded_dsn) as place, client_of(place) as client:
        await bootstrap.initialise(place, 2)
        pod = {"type": "ADDED", "object": pod_manifest("p")}
        usage = {"type": "ADDED", "object": usage_manifest("n", percent={"cpu": 1})}
        assert (await client.post("/v1/events", json=[pod, usage])).status_code == 202
        health = await until_looked_at(client)
        assert "none is up; start `berth worker`" in health["checks"]["workers"]
        assert sum(lag["records"] for lag in health["lag"]) == 2
        assert max(lag["seconds"] for lag in health["lag"]) > 0.5
        listed = (await client.get("/v1/shards")).json()["items"]
        assert [item["lag_records"] for item in listed] == [lag["records"] for lag in health["lag"]]
        assert 'berth_ledger_lag_records{shard="0"}' in (await client.get("/metrics")).text
        ledger = bootstrap.open_ledger(place)
        await ledger.announce(Incarnation(name="w"), is_ready=True)
        assert "yet; 1 is starting" in (await until_looked_at(client))["checks"]["workers"]
        leases = await ledger.acquire("w", 60.0)
        assert (await until_looked_at(client))["status"] == "ok"
        await ledger.release(leases)
        await ledger.aclose()
        assert "none is up" in (await until_looked_at(client))["checks"]["workers"]
        await work_off(place)
        lags = (await until_looked_at(client))["lag"]
        assert lags == [{"shard": shard, "records": 0, "seconds": 0.0} for shard in (0, 1)]


# --------------------------------------------------------------------------------------------------- keys


async def test_keys_and_roles(embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        store = bootstrap.open_store(place)
        keys = {role: new_key() for role in ("producer", "auditor", "admin")}
        for role, key in keys.items():
            await store.callers.create_key(key_hash(key), Grant(f"the-{role}", [role]))
        async with client_of(place) as client:

            async def status(method: str, target: str, key: str | None) -> int:
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                body: list[Any] | None = [] if method == "POST" else None
                answer = await client.request(method, target, headers=headers, json=body)
                if answer.status_code >= 400:
                    checked(answer.json(), answers.Error)
                return answer.status_code

            table = {"producer": (202, 403), "auditor": (403, 200), "admin": (202, 200)}
            for role, expected in table.items():
                found = [
                    await status("POST", "/v1/events", keys[role]),
                    await status("GET", "/v1/nodes", keys[role]),
                ]
                assert tuple(found) == expected, role
            assert await status("GET", "/v1/nodes", None) == 401
            assert await status("GET", "/metrics", None) == 401
            assert await status("GET", "/v1/nodes", "berth_wrong") == 401
            assert await status("GET", "/healthz", None) == 200
            assert await store.callers.revoke_key("the-auditor") == 1
            assert await status("GET", "/v1/nodes", keys["auditor"]) == 401
        await store.aclose()


async def test_beyond_loopback_a_key_is_needed_even_when_there_is_none(world: World) -> None:
    async with client_of(world.place, keys_required=True) as client:
        assert (await client.get("/v1/nodes")).status_code == 401
        assert (await client.post("/v1/events", json=[])).status_code == 401
        assert (await client.get("/readyz")).json()["checks"]["database"] == "ok"


# ------------------------------------------------------------------------------------- metrics and contract


async def test_metrics(world: World) -> None:
    await world.client.get("/v1/nodes")
    text = (await world.client.get("/metrics")).text
    assert 'berth_api_requests_total{method="GET",route="/v1/nodes",status="200"}' in text
    assert "berth_ledger_pending_pods 2.0" in text
    assert 'berth_ledger_decisions_unpublished{shard="1"} 0.0' in text


async def test_metrics_without_a_database(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "berth_ledger" in (await world.client.get("/metrics")).text
    monkeypatch.setattr("services.api.auth._CACHE_SECONDS", -1.0)
    parts = ((PostgresCallers, "keys"), (PostgresProcesses, "counts"), (PostgresProcesses, "shards"))
    for part, name in parts:
        monkeypatch.setattr(part, name, AsyncMock(side_effect=Unavailable("away")))
    answer = await world.client.get("/metrics")
    assert answer.status_code == 200
    assert "berth_api_requests_total" in answer.text
    assert "berth_ledger" not in answer.text


def undocumented(schema: Any, where: str) -> list[str]:
    """Return the places of a schema that say nothing of themselves."""
    missing = []
    for name, field in schema.get("properties", {}).items():
        if not field.get("description"):
            missing.append(f"{where}.{name}")
    return missing


async def test_everything_in_the_contract_is_described(world: World) -> None:
    spec = (await world.client.get("/openapi.json")).json()
    missing = []
    for name, schema in spec["components"]["schemas"].items():
        assert schema.get("description"), name
        missing += undocumented(schema, name)
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary"), (method, path)
            missing += [
                f"{method} {path} {parameter['name']}"
                for parameter in operation.get("parameters", [])
                if not parameter.get("description")
            ]
    assert missing == []
    body = spec["paths"]["/v1/events"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    whole, several, one = body["anyOf"]
    assert whole == {"$ref": "#/components/schemas/EventList"}
    assert several["items"] == one == {"$ref": "#/components/schemas/Event"}
    assert {"Event", "EventList"} <= spec["components"]["schemas"].keys()
    referred = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(spec)))
    assert referred == spec["components"]["schemas"].keys(), "what is named is there"


async def test_the_contract_names_all_routes(world: World) -> None:
    spec = (await world.client.get("/openapi.json")).json()
    assert set(spec["paths"]) == {
        "/v1/events",
        "/v1/nodes",
        "/v1/nodes/{name}",
        "/v1/pods",
        "/v1/pods/{namespace}/{name}",
        "/v1/pods/{namespace}/{name}/attempts",
        "/v1/decisions",
        "/v1/decisions/{id}",
        "/v1/decisions/{id}/explanation",
        *("/v1/totals", "/v1/moment", "/v1/diff", "/v1/field"),
        "/v1/pods/{namespace}/{name}/why",
        *("/v1/pending", "/v1/pending/{shard}/{signature}", "/v1/pending/{shard}/{signature}/why"),
        "/v1/nominations",
        "/v1/bill",
        "/v1/usage",
        "/v1/export/{what}",
        "/v1/actions",
        *("/v1/replicas", "/v1/replicas/{namespace}/{name}"),
        *("/v1/gangs", "/v1/gangs/{namespace}/{name}"),
        "/v1/profiles",
        "/v1/profiles/{name}",
        "/v1/shards",
        *("/v1/history/pods/{namespace}/{name}", "/v1/history/nodes/{name}"),
        *("/v1/history/shards/{shard}", "/v1/history/profiles/{name}"),
        *("/v1/deadletters", "/v1/deadletters/{id}"),
        "/v1/deadletters/{id}/resend",
        *("/v1/config", "/v1/config/{kind}/{name}", "/v1/config/{kind}/{namespace}/{name}"),
        *("/v1/keys", "/v1/keys/{name}", "/v1/accesses", "/v1/audit", "/v1/workers", "/v1/owners"),
        *("/v1/shadow", "/v1/plan", "/v1/caller", "/v1/sessions"),
    } | {"/healthz", "/readyz", "/metrics"}


async def test_each_link_of_the_first_page_answers(world: World) -> None:
    first = (await world.client.get("/", headers={"Accept": "application/json"})).json()
    for link in first["links"]:
        answer = await world.client.get(link["path"])
        # The worker that filled the ledger is gone.
        # Nobody manages keys without one.
        expected = {"/readyz": 503, "/v1/keys": 403}.get(link["path"], 200)
        assert answer.status_code == expected, link
