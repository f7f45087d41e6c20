"""Does every store export the same rows, and only those that are asked for?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import pytest_asyncio

from domain.model.decisions import Outcome
from domain.model.pods import PodTemplate
from services.codec.encode import Amount, Migrating, Preempting, encode_decision
from services.ports.exports import SCHEMAS, ExportFilter, Kind, What
from services.ports.ledger import Committed, Lease, Ledger, PlacementClosed
from services.ports.store import Store
from tests.batches import batch_of
from tests.contract.batches import (
    AT_MS,
    SIGNATURE,
    advance,
    change_node,
    config,
    decision,
    everything,
    node_spec,
    opened,
    waiting,
)
from tests.contract.ledgers import SHARDS, Backend, start

OTHER = b"another-16-bytes"
FRAGMENT = b'{"signature":"30","requests":{"cpu":1500,"memory":4294967296,"x.io/a.b":3}}'


@pytest_asyncio.fixture
async def leases(ledger: Ledger) -> list[Lease]:
    """Return the leases of all shards; the first one has something in every table."""
    leases = await start(ledger, SHARDS)
    assert await ledger.commit(everything(leases[0])) == Committed()
    assert await ledger.commit(_second(leases)) == Committed()
    return leases


def _second(leases: list[Lease]) -> Any:
    """Return a batch of another namespace, and of what is rare in a record."""
    taken = decision(
        leases[0], 4, "evicted", "n1", namespace="b", outcome=Outcome.EVICTED, reason="has \0 \\u0000"
    )
    nominated = decision(leases[0], 5, "wants", "n1", namespace="b", outcome=Outcome.NOMINATED)
    placed = decision(
        leases[1], 1, "b", "n1", namespace="b", event_at_ms=AT_MS - 5, score=1 / 3, devices=(0, 2)
    )
    leaves = Preempting(preemptor="uid-wants", priority=9, nominated="0-5", shard=1)
    moves = Migrating(source="n1", why=["cpu is 81 %"], relief=Amount(cpu=250, memory=1 << 33), to="n2")
    wants = Preempting(victims=["uid-evicted"], violations=0, expires_at="2023-11-14T22:14:20.123Z")
    return batch_of(
        advances=[advance(leases[0], 5, 6), advance(leases[1], 0, 1)],
        facts=[change_node(2, 1, spec=node_spec("n2"), deleted=True, spec_count=2, sent_by="key:ops")],
        made=[
            (
                taken,
                encode_decision(
                    taken, FRAGMENT, {"a": "ä\0"}, 2, "key:b", preemption=leaves, migration=moves
                ),
            ),
            (
                nominated,
                encode_decision(nominated, FRAGMENT, {}, 2, None, warnings=["ignored:x"], preemption=wants),
            ),
            (placed, encode_decision(placed, FRAGMENT, {}, 3, "direct")),
        ],
        opened=[opened(placed, labels={"b": "c"}, gang="g")],
        closed=[PlacementClosed("uid-placed", AT_MS + 7)],
        pending_added=[waiting(leases[1], "late", 9, namespace="c", signature=OTHER)],
        config=[
            config("b", kind="Namespace", object={}),
            config("s", kind="Service", namespace="b", object={"selector": {}}),
            config("s", kind="Service", namespace="c", object={"selector": {}}),
        ],
        seq_next={leases[0].shard: 6, leases[1].shard: 2},
        log_time_ms=AT_MS + 9,
    )


@pytest.fixture
def store(backend: Backend) -> Store:
    """Return the backend's store."""
    return backend.store()


async def exported(store: Store, what: What, **asked: Any) -> list[dict[str, Any]]:
    """Return the rows of an export by the names of their columns, JSON decoded."""
    schema, found = SCHEMAS[what], []
    async for rows in store.exports.rows(schema, ExportFilter(**asked)):
        assert 0 < len(rows) <= schema.rows_at_once
        for row in rows:
            values = dict(zip(schema.names, row, strict=True))
            for column in schema.columns:
                if column.kind is Kind.JSON and values[column.name] is not None:
                    values[column.name] = msgspec.json.decode(str(values[column.name]))
            found.append(values)
    return found


def picked(rows: list[dict[str, Any]], *names: str) -> list[Any]:
    return [tuple(row[name] for name in names) if len(names) > 1 else row[names[0]] for row in rows]


async def test_decisions_have_all_that_their_records_say(store: Store, leases: list[Lease]) -> None:
    rows = await exported(store, What.DECISIONS)
    assert picked(rows, "id", "outcome") == [
        ("0-1", "bound"),
        ("0-2", "adopted"),
        ("0-3", "unschedulable"),
        ("0-4", "evicted"),
        ("0-5", "nominated"),
        ("1-1", "bound"),
    ]
    assert {name for row in rows for name, value in row.items() if value is not None} == set(
        SCHEMAS[What.DECISIONS].names
    ) - {"profile_revision"}
    first, evicted, nominated, last = rows[0], rows[3], rows[4], rows[5]
    assert (first["score"], first["cycle"], first["sent_by"], first["cpu_milli"]) == (
        12.5,
        "0-1",
        "key:ops",
        0,
    )
    assert (first["resource_version"], first["signature"], first["node_version"]) == (
        1,
        SIGNATURE.hex(),
        None,
    )
    assert (first["decided_at"], first["event_at"], first["requests"]) == (AT_MS + 1, None, {})
    assert (evicted["preemptor"], evicted["preemptor_priority"], evicted["nominated"]) == (
        "uid-wants",
        9,
        "0-5",
    )
    assert (evicted["moved_to"], evicted["moved_why"]) == ("n2", ["cpu is 81 %"])
    assert (evicted["relief_cpu_milli"], evicted["relief_memory_bytes"]) == (250, 1 << 33)
    assert (nominated["victims"], nominated["violations"]) == (["uid-evicted"], 0)
    assert (nominated["expires_at"], nominated["warnings"]) == (1_700_000_060_123, ["ignored:x"])
    assert (last["cpu_milli"], last["memory_bytes"], last["devices"]) == (1500, 1 << 32, [0, 2])
    assert last["requests"] == {"cpu": 1500, "memory": 1 << 32, "x.io/a.b": 3}
    assert (last["score"], last["event_at"], last["node_version"]) == (1 / 3, AT_MS - 5, 3)


async def test_placements_say_from_when_to_when(store: Store, leases: list[Lease]) -> None:
    rows = await exported(store, What.PLACEMENTS)
    assert picked(rows, "id", "name", "node", "bound_at", "released_at", "adopted") == [
        ("0-1", "placed", "n1", AT_MS + 1, AT_MS + 7, False),
        ("0-2", "adopted", "n2", AT_MS + 2, None, True),
        ("1-1", "b", "n1", AT_MS + 1, None, False),
    ]
    assert (
        picked(rows, "cpu_milli", "memory_bytes", "requests")
        == [(100, 0, {"cpu": 100, "nvidia.com/gpu": 2})] * 3
    )
    assert picked(rows, "labels", "gang") == [({"app": "web"}, None), ({}, None), ({"b": "c"}, "g")]


async def test_nodes_and_configuration_come_deleted_ones_too(store: Store, leases: list[Lease]) -> None:
    first, second = await exported(store, What.NODES)
    assert (first["name"], first["deleted"], first["allocatable_cpu_milli"]) == ("n1", False, 8000)
    assert (first["requested_cpu_milli"], first["requested_pods"]) == (100, 1)
    assert first["requested"] == {"cpu": 100, "pods": 1, "nvidia.com/gpu": 2}
    assert first["allocatable"] == {"cpu": 8000, "memory": 1 << 35, "pods": 110}
    assert (first["node_labels"], [each["key"] for each in first["taints"]]) == ({"zone": "ä"}, ["gpu"])
    assert (first["spec_changed_at"], first["spec_sent_by"]) == (AT_MS, "key:ops")
    assert (second["name"], second["deleted"], second["spec_changed_at"]) == ("n2", True, AT_MS + 9)
    rows = await exported(store, What.CONFIG)
    assert picked(rows, "kind", "namespace", "name", "revision", "deleted") == [
        ("Namespace", "", "b", 0, False),
        ("PriorityClass", "", "gone", 0, True),
        ("PriorityClass", "", "high", 0, False),
        ("Profile", "", "batch", 1, False),
        ("Profile", "", "gone", 4, True),
        ("Service", "b", "s", 0, False),
        ("Service", "c", "s", 0, False),
    ]
    assert rows[2]["object"] == {"value": 7, "z": ["ä", "\0"]}


async def test_attempts_are_those_that_are_kept(store: Store, leases: list[Lease]) -> None:
    (row,) = await exported(store, What.ATTEMPTS)
    assert row == {
        "shard": 0,
        "signature": OTHER.hex(),
        "number": 1,
        "at": AT_MS,
        "last_at": AT_MS,
        "times": 1,
        "profile": "",
        "profile_revision": None,
        "nodes": 0,
        "reasons": {"cpu": 2},
        "unresolvable": True,
        "cycle": "0-3",
    }


async def test_a_time_is_from_its_beginning_to_before_its_end(store: Store, leases: list[Lease]) -> None:
    async def ids(what: What, **asked: int) -> list[Any]:
        return picked(await exported(store, what, **asked), "id")

    assert await ids(What.DECISIONS, since_ms=AT_MS + 2, until_ms=AT_MS + 4) == ["0-2", "0-3"]
    assert await ids(What.DECISIONS, since_ms=AT_MS + 9) == []
    assert await ids(What.PLACEMENTS, since_ms=AT_MS + 7, until_ms=AT_MS + 8) == ["0-1", "0-2", "1-1"]
    assert await ids(What.PLACEMENTS, since_ms=AT_MS + 8) == ["0-2", "1-1"]
    assert await ids(What.PLACEMENTS, until_ms=AT_MS + 2) == ["0-1", "1-1"]
    assert picked(await exported(store, What.NODES, since_ms=AT_MS + 1), "name") == ["n2"]
    assert picked(await exported(store, What.CONFIG, until_ms=AT_MS), "name") == []


async def test_rows_of_other_namespaces_are_left_out(store: Store, leases: list[Lease]) -> None:
    async def of(what: What, *namespaces: str, **asked: Any) -> list[Any]:
        name = "signature" if what is What.ATTEMPTS else "name"
        return picked(await exported(store, what, namespaces=namespaces, **asked), name)

    assert await of(What.DECISIONS, "b") == ["evicted", "wants", "b"]
    assert await of(What.DECISIONS, "ns") == ["placed", "adopted", "waits"]
    assert await of(What.DECISIONS) == []
    assert await of(What.PLACEMENTS, "b", "none") == ["b"]
    assert await of(What.NODES, "none") == ["n1", "n2"]
    assert await of(What.ATTEMPTS, "b") == []
    assert await of(What.ATTEMPTS, "c") == [], "its pod is of another shard"
    assert await of(What.CONFIG, "b") == ["b", "s"]
    assert await of(What.CONFIG, "b", with_shared=True) == ["b", "gone", "high", "batch", "gone", "s"]


async def test_attempts_from_before_ones_own_pods_were_there_do_not_tell_of_others(
    store: Store, ledger: Ledger, leases: list[Lease]
) -> None:
    """The group has waited since ``AT_MS``; a pod of another namespace came to it later."""
    late = waiting(leases[0], "late", 12, namespace="b", signature=OTHER, since_ms=AT_MS + 50)
    made = {SIGNATURE: PodTemplate(requests={"cpu": 1})}
    batch = batch_of(advances=[advance(leases[0], 6, 7)], pending_added=[late], templates=made)
    assert await ledger.commit(batch) == Committed()
    assert picked(await exported(store, What.ATTEMPTS, namespaces=["ns"]), "at") == [AT_MS]
    assert await exported(store, What.ATTEMPTS, namespaces=["b"]) == []
