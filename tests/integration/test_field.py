"""Does ``GET /v1/field`` answer in its documented shape, small, and only where something is new?"""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import msgspec
import pytest_asyncio

from services import bootstrap
from services.api import field
from tests.builders import event, node_manifest, pod_manifest
from tests.integration.api_world import World, answer_of, client_of, fresh_database, work_off

EVENTS = [
    event("ADDED", node_manifest("n1", cpu="2", memory="4Gi", labels={"zone": "a"})),
    event("ADDED", node_manifest("n2", cpu="1", memory="1Gi", labels={"zone": "b"})),
    event("ADDED", pod_manifest("web-0", cpu="1500m")),
]


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    """Return a ledger with two nodes and a pod."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            assert (await client.post("/v1/events", json=EVENTS)).status_code == 202
            await work_off(place)
            yield World(place, client)


async def test_it_has_its_documented_shape(world: World) -> None:
    found = await answer_of(world, "/v1/field", field.Field, by="zone", resources="cpu,memory")
    assert found == {
        "at": None,
        "by": "zone",
        "groups": [{"value": "a", "nodes": 1}, {"value": "b", "nodes": 1}],
        "names": ["n1", "n2"],
        "resources": [
            {"name": "cpu", "allocatable": [2000, 1000], "requested": [1500, 0], "measured": None},
            {"name": "memory", "allocatable": [4 << 30, 1 << 30], "requested": [0, 0], "measured": None},
        ],
        "unschedulable": [],
        "not_ready": [],
        "tainted": [],
        "hot": None,
    }


async def test_it_comes_compressed_and_only_once(world: World) -> None:
    packed = await world.client.get("/v1/field", headers={"Accept-Encoding": "gzip"})
    plain = await world.client.get("/v1/field", headers={"Accept-Encoding": "identity"})
    assert (packed.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
    assert packed.json() == plain.json()
    etag = plain.headers["etag"]
    again = await world.client.get("/v1/field", headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    other = await world.client.get("/v1/field", params={"by": "zone"}, headers={"If-None-Match": etag})
    assert other.status_code == 200


async def test_what_it_does_not_have_is_refused(world: World) -> None:
    for params, path in (
        ({"resources": ","}, "resources"),
        ({"measured": "maybe"}, "measured"),
        ({"by": "x" * 400}, "by"),
        ({"zone": "a"}, "query.zone"),
    ):
        answer = await world.client.get("/v1/field", params=params)
        assert (answer.status_code, answer.json()["error"]["path"]) == (422, path)


async def test_a_compressed_answer_is_no_larger_for_twenty_thousand_nodes_than_is_sent_in_a_moment() -> None:
    count = 20_000
    columns = [
        field.FieldColumn(name=name, allocatable=[each] * count, requested=list(range(count)), measured=None)
        for name, each in (("cpu", 64_000), ("memory", 1 << 38), ("nvidia.com/gpu", 0), ("pods", 110))
    ]
    whole = field.Field(
        at=None,
        by=None,
        groups=[field.FieldGroup(value=None, nodes=count)],
        names=[f"ip-10-{n >> 8}-{n & 255}.eu-west-1.compute.internal" for n in range(count)],
        resources=columns,
        unschedulable=[],
        not_ready=[],
        tainted=[],
        hot=None,
    )
    assert len(gzip.compress(msgspec.json.encode(whole), 5)) < 600_000
