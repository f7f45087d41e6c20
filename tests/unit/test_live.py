"""Does each reader of the stream get everything once, however often it, or the API, goes away?"""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from contextlib import AsyncExitStack
from typing import Any

import pytest

from domain.model.decisions import Outcome
from domain.model.errors import FieldError, Unavailable
from services.adapters.memory.database import MemoryDatabase
from services.api.caller import Caller
from services.api.live import StreamLimits
from services.api.stream import Asked, EventStream
from services.api.stream_events import KIND_OF, KINDS, Wanted
from services.api.stream_ids import WHOLE, Place, id_of, ledger_mark, parse_id
from tests.contract.batches import decision, new_node
from tests.security.keyed import House, keyed_house
from tests.streaming import Seen, StreamClient, Writer, ids

QUICK = StreamLimits(heartbeat_seconds=0.05)


async def opened(
    stack: AsyncExitStack, shards: int = 1, limits: StreamLimits = QUICK
) -> tuple[House, Writer]:
    """Return an API with an auditor's key, and what writes to its ledger."""
    database = MemoryDatabase(shards)
    writer = Writer(database)
    await writer.begin()
    house = await stack.enter_async_context(keyed_house(database, limits))
    await house.key("auditor", ["auditor"])
    return house, writer


def stream(house: House, last_id: str | None = None, **params: object) -> StreamClient:
    return StreamClient(house.app, "auditor", last_id=last_id, **params)


async def test_what_is_decided_comes_as_it_is_committed() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack)
        await writer.write(2)
        client = await stack.enter_async_context(stream(house))
        await client.begun()
        await writer.write(3)
        assert ids(await client.until(3)) == ["0-3", "0-4", "0-5"], "from now on"
        assert {each.kind for each in client.events} == {"pending"}
        shown = (await house.ask("auditor", "GET", "/v1/decisions/0-4")).json()
        assert client.events[1].data == shown, "an event has the shape of the other answers"


async def test_a_reader_goes_on_behind_any_id() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack, 2)
        first = await stack.enter_async_context(stream(house))
        await first.begun()
        begins = first.last_id
        for at in range(6):
            await writer.write(1 + at % 3, at % 2)
        everything = ids(await first.until(12))
        for at in range(12):
            async with stream(house, first.events[at].id) as client:
                assert ids(await client.until(11 - at)) == everything[at + 1 :]
            async with stream(house, after=first.events[at].id) as client:
                assert ids(await client.until(11 - at)) == everything[at + 1 :]
        async with stream(house, begins) as client:
            assert ids(await client.until(12)) == everything


async def test_a_new_process_goes_on_from_the_ledger() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack, 2)
        async with stream(house) as first:
            await first.begun()
            await writer.write(3)
            await writer.write(3, 1)
            await first.until(6)
        again = await stack.enter_async_context(keyed_house(house.database, QUICK))
        for at, seen in enumerate(first.events):
            async with stream(again, seen.id) as client:
                assert ids(await client.until(5 - at)) == ids(first.events)[at + 1 :]


@pytest.mark.parametrize("seed", range(5))
async def test_no_gap_and_no_double_whoever_goes_away(seed: int) -> None:
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack, 2, QUICK._replace(ring_bytes_max=20_000))
        async with stream(house) as first:
            await first.begun()
            last = first.last_id
        got: list[Seen] = []
        written: list[str] = []
        for _ in range(60):
            if chance.random() < 0.15:  # the API is killed, and starts anew
                house = await stack.enter_async_context(keyed_house(house.database, house_limits(chance)))
            for _ in range(chance.randrange(4)):
                shard, count = chance.randrange(2), chance.randint(1, 4)
                written += [f"{shard}-{seq}" for seq in range(writer.seq(shard), writer.seq(shard) + count)]
                await writer.write(count, shard)
            async with stream(house, last) as client:
                await client.until(chance.randrange(1 + len(written) - len(got)))
            got, last = got + told(client.events), client.last_id
        async with asyncio.timeout(20):
            while len(got) < len(written):
                async with stream(house, last) as client:
                    await client.until(len(written) - len(got))
                got, last = got + told(client.events), client.last_id
        assert ids(got) == written


def told(events: list[Seen]) -> list[Seen]:
    """Return events but that a stream ends, as where its reader was too slow for a small ring."""
    return [each for each in events if each.kind != "end"]


def house_limits(chance: random.Random) -> StreamLimits:
    return QUICK._replace(ring_bytes_max=chance.choice((1, 20_000, 1 << 20)))


async def test_filters_let_pass_what_they_name_and_the_reader_moves_on() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack)
        other = await stack.enter_async_context(stream(house, pod="ns/none"))
        kinds = await stack.enter_async_context(stream(house, kinds="releases,nodes"))
        placed = await stack.enter_async_context(stream(house, node="n1"))
        for client in (other, kinds, placed):
            await client.begun()
        began = other.last_id
        lease = writer.lease()
        gone = decision(lease, 2, "b", "n1", outcome=Outcome.RELEASED)
        await writer.write(
            3, facts=[new_node(1)], decisions=[decision(lease, 1, "a", "n1"), gone, decision(lease, 3, "c")]
        )
        found = await kinds.until(2)
        assert [(each.kind, each.data.get("name") or each.data["pod"]["name"]) for each in found] == [
            ("nodes", "n1"),
            ("releases", "b"),
        ]
        assert [each.kind for each in await placed.until(3)] == ["nodes", "decisions", "releases"]
        async with asyncio.timeout(5):
            while other.last_id == began:
                await asyncio.sleep(0.02)
        assert not other.events, "its place moves on with the heartbeats"


async def test_a_stream_begins_at_a_log_time() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack)
        lease = writer.lease()
        for at_ms in (10_000, 20_000, 30_000):
            seq = writer.seq()
            await writer.write(decisions=[decision(lease, seq, "a", decided_at_ms=1_700_000_000_000 + at_ms)])
        client = await stack.enter_async_context(stream(house, since="2023-11-14T22:13:22Z"))
        # the batches' log times are 1, 2 and 3 s after; what they hold is later
        assert ids(await client.until(2)) == ["0-2", "0-3"]


# ------------------------------------------------------------------------------------- readers that are slow


async def test_a_slow_reader_is_told_so_and_goes_on_by_its_last_id() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack, limits=QUICK._replace(ring_bytes_max=20_000))
        slow = await stack.enter_async_context(stream(house))
        quick = await stack.enter_async_context(stream(house))
        await slow.begun()
        await quick.begun()
        slow.pause.clear()
        for at in range(50):
            await writer.write(2)
            await quick.until(2 * at + 2)
        slow.pause.set()
        last = await slow.ended()
        assert (last.kind, last.data["error"]["code"]) == ("end", "slow-reader")
        got = ids(slow.events)
        assert len(got) < 100
        async with stream(house, slow.last_id) as again:
            got += ids(await again.until(100 - len(got)))
        assert got == ids(quick.events) == [f"0-{seq}" for seq in range(1, 101)]


async def test_ten_thousand_slow_readers_neither_stop_nor_bloat_the_api() -> None:
    count, ring_bytes = 10_000, 200_000
    limits = StreamLimits(count + 1, count + 1, ring_bytes_max=ring_bytes)
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack, limits=limits)
        answer = EventStream(house.app.state.live, Caller.unnamed(), Asked(None, Wanted()))
        slow = [StreamClient(answer) for _ in range(count)]
        for each in slow:
            each.keeps = False
            each.pause.clear()
            await each.__aenter__()
        async with asyncio.timeout(120):
            while any(not each.status for each in slow):
                await asyncio.sleep(0.05)
        quick = await stack.enter_async_context(stream(house))
        await quick.begun()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for at in range(100):
            await writer.write(10)
            await quick.until(10 * at + 10, 30)
        held_bytes = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(ids(quick.events)) == 1000
        own_bytes = 20 * len(quick.body) + 12_000_000  # what the test and the ledger in memory hold
        assert held_bytes < own_bytes < count * ring_bytes / 20
        for each in slow:
            each.cut()


# --------------------------------------------------------------------------------------------- how it ends


async def ended_with(client: StreamClient) -> str:
    last = await client.ended()
    assert last.kind == "end"
    return str(last.data["error"]["code"])


async def test_a_stream_ends_after_its_time_and_when_the_process_does() -> None:
    async with AsyncExitStack() as stack:
        house, _ = await opened(stack, limits=QUICK._replace(seconds_max=0.2))
        assert await ended_with(await stack.enter_async_context(stream(house))) == "time"
    async with AsyncExitStack() as stack:
        house, _ = await opened(stack)
        client = await stack.enter_async_context(stream(house))
        await client.begun()
        house.app.state.live.stop()
        assert await ended_with(client) == "stopping"


async def test_a_ledger_that_was_set_back_ends_streams_and_knows_its_ids_no_more() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack)
        client = await stack.enter_async_context(stream(house))
        await client.begun()
        await writer.write(2)
        await client.until(2)
        house.database.timeline += 1
        assert await ended_with(client) == "another-ledger"
        refused = await stack.enter_async_context(stream(house, client.last_id))
        await refused.ended_without_events()
        assert (refused.status, refused.error["code"]) == (410, "another-ledger")
        now = refused.error["details"][0]["message"]
        async with stream(house, now) as again:
            await again.begun()
            assert again.status == 200


async def test_a_batch_that_took_the_place_of_another_is_found() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack)
        async with stream(house) as client:
            await client.begun()
            await writer.write(2)
            await client.until(2)
        place = parse_id(client.last_id, "after")
        wrong = id_of(place._replace(check=place.check ^ 1))
        ahead = id_of(place._replace(position=place.position + 9))
        for each in (wrong, ahead):
            refused = await stack.enter_async_context(stream(house, each))
            await refused.ended_without_events()
            assert (refused.status, refused.error["code"]) == (410, "another-ledger")


async def test_what_was_pruned_is_told_with_the_id_to_go_on_from() -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack)
        async with stream(house) as client:
            await client.begun()
            begins = client.last_id
            for _ in range(3):
                await writer.write()
            await client.until(3)
        del house.database.journal[0, 1]
        refused = await stack.enter_async_context(stream(house, begins))
        await refused.ended_without_events()
        assert (refused.status, refused.error["code"]) == (410, "not-kept")
        async with stream(house, client.events[1].id) as again:
            assert ids(await again.until(1)) == ["0-3"]


async def test_an_outage_of_the_ledger_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as stack:
        house, writer = await opened(stack)
        client = await stack.enter_async_context(stream(house))
        await client.begun()
        look = house.store.tail.look

        async def away(position: int) -> Any:
            raise Unavailable("the ledger is away")

        monkeypatch.setattr(house.store.tail, "look", away)
        await writer.write(2)
        async with asyncio.timeout(5):
            while b"does not answer" not in client.body:
                await asyncio.sleep(0.02)
        monkeypatch.setattr(house.store.tail, "look", look)
        assert ids(await client.until(2)) == ["0-1", "0-2"]


# ---------------------------------------------------------------------------------------------------- ids


def test_an_id_comes_back_as_its_place_and_only_whole() -> None:
    for place in (Place(b"123456", 0, 0), Place(ledger_mark("x"), 2**63 - 1, 2**31 - 1, 0)):
        text = id_of(place)
        assert parse_id(text, "after") == place
        for at in range(len(text) - 1):
            changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
            with pytest.raises(FieldError):
                parse_id(changed, "after")
    for wrong in ("", "x", "ä" * 35, "A" * 34, "A" * 36):
        with pytest.raises(FieldError):
            parse_id(wrong, "after")
    assert WHOLE == 2**32 - 1


def test_each_outcome_is_of_one_kind() -> None:
    assert KIND_OF.keys() == set(Outcome)
    assert set(KIND_OF.values()) | {"nodes", "shards"} == set(KINDS)
