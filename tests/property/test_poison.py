"""Can a producer send anything that makes a batch, or what is published of it, fail again and again?"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from domain.model.limits import batch_bytes_max, pods_per_node_max, resource_names_max, resource_value_max
from services.adapters.batches import dead_letter_value
from services.adapters.memory.log import MemoryLog
from services.adapters.postgres.rows import json_text
from services.codec.decode import Decoder
from services.codec.partition import RECORD_BYTES_MAX
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, Record, TopicPartition, TopicSpec
from services.worker.intake import Intake
from tests.builders import Json, event_bytes, node_manifest, pod_manifest, record
from tests.contract.ledgers import ManualClock
from tests.property.site import Site, audit

INT64_MAX = 2**63 - 1


def records(topic: str, *objects: Json) -> list[Record]:
    """Return the arrival of objects."""
    return [record(topic, event_bytes("ADDED", thing), offset=i) for i, thing in enumerate(objects)]


def names(resources: set[str]) -> Any:
    """Return one of each resource, as keyword arguments of the makers."""
    return dict.fromkeys(resources, 1)


def codes(site: Site) -> list[str]:
    return [letter.code for rows in site.database.dead_letters.values() for letter in rows]


def test_the_zone_of_an_address_cannot_smuggle_what_the_ledger_cannot_store() -> None:
    ports = [{"hostPort": 80, "hostIP": "fe80::1%\0"}]
    pod = pod_manifest("p", spec={"containers": [{"name": "c", "ports": ports}]})
    decoded = Decoder().decode(records(PODS_TOPIC, pod)[0])
    assert decoded.rejected is not None
    assert decoded.rejected.path == "object.spec.containers[0].ports[0].hostIP"
    ports[0]["hostIP"] = "fe80::1%eth0"
    accepted = Decoder().decode(records(PODS_TOPIC, pod)[0])
    assert accepted.event is not None
    assert "\\u0000" not in json_text(accepted.event)


def affinity(*terms: list[tuple[str, int]], kind: str = "required") -> Json:
    """Return an affinity; a term is a list of keys, each with so many values."""
    made = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [f"v{i}" for i in range(count)]}
                for key, count in term
            ]
        }
        for term in terms
    ]
    preferred = [{"weight": 1, "preference": term} for term in made]
    selector: Any = {"nodeSelectorTerms": made} if kind == "required" else preferred
    return {"affinity": {"nodeAffinity": {f"{kind}DuringSchedulingIgnoredDuringExecution": selector}}}


@pytest.mark.parametrize(
    ("spec", "bound"),
    [
        ({"schedulingGates": [{"name": f"g{i}"} for i in range(65)]}, "gates_per_pod_max"),
        (
            {"containers": [{"name": "c", "ports": [{"hostPort": 1000 + i} for i in range(257)]}]},
            "host_ports_per_pod_max",
        ),
        ({"tolerations": [{"key": f"k{i}"} for i in range(65)]}, "tolerations_per_pod_max"),
        (affinity(*[[("a", 1)]] * 65), "terms_per_affinity_max"),
        (affinity(*[[("a", 1)] * 9] * 29), "requirements_per_affinity_max"),
        (affinity(*[[("a", 2_501)]] * 2), "values_per_affinity_max"),
        (affinity([("a", 5_001)], kind="preferred"), "values_per_affinity_max"),
    ],
)
def test_what_every_decision_repeats_or_every_pod_is_compared_with_is_bounded(spec: Json, bound: str) -> None:
    """80,000 gates fit an event, and their reasons did not fit a record; ports are compared pair by pair."""
    decoded = Decoder().decode(records(PODS_TOPIC, pod_manifest("p", spec=spec))[0])
    assert decoded.rejected is not None
    assert bound in decoded.rejected.message


def test_sums_over_a_node_stay_within_int64() -> None:
    site = Site()
    site.take(records(NODES_TOPIC, node_manifest("n")))
    pods = [
        pod_manifest(f"p{i}", memory=resource_value_max, node_name=node)
        for node in ("n", "nowhere")
        for i in range(pods_per_node_max + 1)
    ]
    for i, pod in enumerate(pods):
        pod["metadata"]["name"] = f"p{i}"
    site.take(records(PODS_TOPIC, *pods))
    assert codes(site) == ["conflict", "conflict"]
    site.take([record(NODES_TOPIC, event_bytes("DELETED", node_manifest("n")), offset=1)])
    audit(site)
    assert all(0 < row.requested["memory"] <= INT64_MAX for row in site.database.nodes.values())


def test_resource_names_are_bounded_over_all_objects() -> None:
    site = Site()
    nodes = [
        node_manifest(f"n{i}", **names({f"example.com/r{i}-{j}" for j in range(50)}))
        for i in range(resource_names_max // 50 + 2)
    ]
    site.take(records(NODES_TOPIC, *nodes))
    many = [pod_manifest(f"p{i}", cpu=1, **names({f"example.com/x{i}"})) for i in range(resource_names_max)]
    site.take(records(PODS_TOPIC, *many, pod_manifest("plain", cpu=1)))
    assert 0 < len(codes(site)) < len(nodes) + len(many)
    assert len(site.planner.scheduler.state.resources) <= resource_names_max
    placed = {row.opened.name for row in site.database.open_placements.values()}
    assert "plain" in placed
    audit(site)


def test_a_dead_letter_can_always_be_published() -> None:
    site = Site()
    site.take([Record(PODS_TOPIC, 0, 0, b"\xff" * (RECORD_BYTES_MAX - 10), b"broken", 0)])
    (letter,) = site.database.dead_letters[0]
    assert letter.key is not None
    assert len(letter.key) + len(dead_letter_value(letter)) < RECORD_BYTES_MAX


def test_a_batch_of_large_records_is_cut_by_size() -> None:
    async def read() -> list[int]:
        log = MemoryLog(ManualClock())
        await log.ensure_topics([TopicSpec(PODS_TOPIC, 1, True)])
        writer = await log.writer()
        await writer.append(PODS_TOPIC, [Entry(b"k", bytes(1 << 20))] * 100)
        intake = Intake(await log.reader())
        await intake.add({TopicPartition(PODS_TOPIC, 0): 0})
        sizes: list[int] = []
        while sum(sizes) < 100:
            sizes.append(len(await intake.next_batch(2_000, 0.1)))
        return sizes

    sizes = asyncio.run(read())
    assert sum(sizes) == 100
    assert max(sizes) <= (batch_bytes_max >> 20) + 1


def test_decision_records_of_the_largest_pods_fit() -> None:
    gates = [{"name": f"{i:0250}"} for i in range(64)]
    labels = {f"{i:0100}.{'a' * 60}.{'b' * 60}/{'c' * 63}": "d" * 63 for i in range(256)}
    site = Site()
    site.take(records(PODS_TOPIC, pod_manifest("p", labels=labels, spec={"schedulingGates": gates})))
    assert codes(site) == []
    ((_, payload),) = site.database.decisions[0]
    assert orjson.loads(payload)["outcome"] == "unresolvable"
    assert len(payload) < RECORD_BYTES_MAX
