"""Does a stream of events show each key what it may see, and no key more of this process than its share?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from services.adapters.memory.database import MemoryDatabase
from services.api.live import StreamLimits
from tests.contract.batches import decision, new_node
from tests.security.keyed import House, keyed_house
from tests.streaming import StreamClient, Writer, ids

LIMITS = StreamLimits(streams_max=3, per_key_max=2, heartbeat_seconds=0.05)


class Home:
    """An API with keys, and what writes to its ledger."""

    def __init__(self, house: House, writer: Writer) -> None:
        self.house, self.writer = house, writer

    def stream(self, key: str | None, **params: str) -> StreamClient:
        """Return a stream that is not open yet."""
        return StreamClient(self.house.app, key, **params)

    async def begins(self) -> str:
        """Return an id before all that comes."""
        async with self.stream("auditor") as client:
            await client.begun()
            return client.last_id

    async def refused(self, key: str | None, **params: str) -> tuple[int, str]:
        """Return with which status and code a stream is refused."""
        async with self.stream(key, **params) as client:
            await client.ended_without_events()
            return client.status, client.error["code"]


@pytest_asyncio.fixture
async def home() -> AsyncIterator[Home]:
    """Return an API with keys of several roles and namespaces."""
    database = MemoryDatabase(1)
    writer = Writer(database)
    await writer.begin()
    async with keyed_house(database, LIMITS) as house:
        await house.key("auditor", ["auditor"])
        await house.key("team-a", ["auditor"], namespaces=["a"])
        await house.key("producer", ["producer"])
        await house.key("agent", ["agent"], node="n1")
        yield Home(house, writer)


def of(namespace: str, lease: Any, seq: int, **more: Any) -> Any:
    return decision(lease, seq, f"p{seq}", "n1", namespace=namespace, **more)


async def test_a_key_with_namespaces_gets_its_pods_events_and_no_name_of_a_sender(home: Home) -> None:
    begins, lease = await home.begins(), home.writer.lease()
    decisions = [of("a", lease, 1), of("b", lease, 2), of("a", lease, 3), of("b", lease, 4)]
    facts = [new_node(1, sent_by="key:ops")]
    await home.writer.write(4, decisions=decisions, facts=facts)
    async with home.stream("team-a", after=begins) as own, home.stream("auditor", after=begins) as all_:
        assert len(await all_.until(5)) == 5
        assert [each.kind for each in await own.until(3)] == ["nodes", "decisions", "decisions"]
        assert [each.data["pod"]["namespace"] for each in own.events[1:]] == ["a", "a"]
        assert (own.events[0].data["spec_sent_by"], all_.events[0].data["spec_sent_by"]) == (None, "key:ops")
        assert b"p2" not in own.body
        assert own.events[1].id == all_.events[1].id, "an id is that of the event, whoever reads it"


async def test_a_key_goes_on_behind_an_event_that_it_does_not_see(home: Home) -> None:
    begins, lease = await home.begins(), home.writer.lease()
    await home.writer.write(3, decisions=[of("a", lease, 1), of("b", lease, 2), of("a", lease, 3)])
    async with home.stream("auditor", after=begins) as all_:
        await all_.until(3)
    async with home.stream("team-a", after=all_.events[1].id) as own:
        assert ids(await own.until(1)) == ["0-3"]


async def test_who_may_not_read_gets_no_stream(home: Home) -> None:
    assert await home.refused(None) == (401, "unauthorized")
    assert await home.refused("nobody") == (401, "unauthorized")
    assert await home.refused("producer") == (403, "forbidden")
    assert await home.refused("agent") == (403, "forbidden")
    assert await home.refused("agent", node="n1") == (403, "forbidden")
    assert await home.refused("team-a", namespace="b") == (403, "forbidden")
    assert await home.refused("team-a", pod="b/x") == (403, "forbidden")


@pytest.mark.parametrize(
    "position",
    ["berth.pods/1/0", "berth.config/1/0", "berth.decisions/0/0", "berth.x/0/0", "berth.pods/0", "x", "a,b"],
)
async def test_a_read_does_not_wait_for_what_never_comes(home: Home, position: str) -> None:
    """The ledger has one shard; no event is in any other partition, or in a topic that berth writes."""
    answer = await home.house.ask("auditor", "GET", f"/v1/totals?wait={position}")
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "wait"), answer.text


async def test_what_is_no_id_kind_or_parameter_is_refused(home: Home) -> None:
    wrong: list[dict[str, str]] = [
        {"after": "x"},
        {"kinds": "pods"},
        {"kind": "decisions"},
        {"since": "x"},
    ]
    for params in [*wrong, {"after": "A" * 35}, {"node": "\0"}, {"wait": "5s"}]:
        assert await home.refused("auditor", **params) == (422, "invalid-field"), params


async def test_one_key_has_its_share_of_the_streams_and_no_more(home: Home) -> None:
    await home.house.key("other", ["auditor"])
    async with home.stream("auditor") as first, home.stream("auditor") as second:
        await asyncio.gather(first.begun(), second.begun())
        assert await home.refused("auditor") == (429, "too-many-requests")
        metrics = await home.house.ask("auditor", "GET", "/metrics")
        assert "berth_api_streams 2.0" in metrics.text
        async with home.stream("other") as third:
            await third.begun()
            assert third.status == 200
            assert await home.refused("team-a") == (503, "busy")
    async with home.stream("auditor") as again:
        await again.begun()
        assert again.status == 200, "a stream that was closed is counted no more"


async def test_the_access_log_has_a_stream_once_and_from_its_beginning(home: Home) -> None:
    async def noted() -> list[tuple[str, int, int]]:
        await home.house.accesses.write()
        rows = home.house.database.accesses.values()
        return [(each.caller or "", each.status, each.times) for each in rows if each.route == "/v1/events"]

    async with home.stream("auditor") as client:
        await client.begun()
        assert await noted() == [("key:auditor", 200, 1)]
    assert await noted() == [("key:auditor", 200, 1)]


async def test_a_stream_is_open_only_so_long_that_a_revoked_key_reads_no_more(home: Home) -> None:
    async with keyed_house(home.house.database, LIMITS._replace(seconds_max=0.2)) as house:
        async with StreamClient(house.app, "auditor") as client:
            await client.begun()
            await home.house.store.callers.revoke_key("auditor")
            assert (await client.ended()).data["error"]["code"] == "time"
        async with StreamClient(house.app, "auditor", last_id=client.last_id) as client:
            await client.ended_without_events()
            assert client.status == 401


# --------------------------------------------------------------------------------- a read that waits


async def test_a_read_waits_for_what_an_id_says(home: Home) -> None:
    begins = await home.begins()
    await home.writer.write()
    async with home.stream("auditor", after=begins) as client:
        await client.until(1)
    answer = await home.house.ask("auditor", "GET", f"/v1/pods?wait={client.last_id}")
    assert answer.status_code == 200
    for wrong in ("x", "berth.pods", "berth.pods/0/x", "berth.pods/0/9223372036854775807", "a/0/1,"):
        answer = await home.house.ask("auditor", "GET", "/v1/pods", params={"wait": wrong})
        assert (answer.status_code, answer.json()["error"]["path"]) == (422, "wait"), wrong


async def test_a_read_waits_until_positions_of_the_log_are_folded(home: Home) -> None:
    asked = asyncio.create_task(home.house.ask("auditor", "GET", "/v1/decisions?wait=berth.pods/0/1"))
    await home.writer.write()
    await asyncio.sleep(0.1)
    assert not asked.done(), "the second record is not folded"
    await home.writer.write()
    answer = await asked
    assert [each["id"] for each in answer.json()["items"]] == ["0-1", "0-2"]


async def test_a_key_that_may_not_read_waits_for_nothing(home: Home) -> None:
    answer = await home.house.ask("producer", "GET", "/v1/pods?wait=berth.pods/0/99")
    assert answer.status_code == 403
