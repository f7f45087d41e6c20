"""Does every outbox give the relay committed rows in order, a cursor, and one relay per shard?"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import orjson
import pytest
import pytest_asyncio

from domain.model.limits import dead_letter_topic_raw_bytes_max
from services.ports.ledger import Committed, Lease, Ledger
from services.ports.outbox import Outbox, Stream
from tests.batches import batch_of
from tests.builders import without_recorded_at
from tests.contract.batches import advance, bind, dead_letter, decision, record, waiting
from tests.contract.ledgers import BACKENDS, LEASE_SECONDS, SHARDS, Backend, open_backend, start
from tests.servers import MakeDatabase

DECISIONS, DEAD_LETTERS = Stream.DECISIONS, Stream.DEAD_LETTERS


@pytest_asyncio.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Backend]:
    """Return each kind of ledger in turn."""
    async with open_backend(request.param, request, database) as opened:
        yield opened


@pytest.fixture
def outbox(backend: Backend) -> Outbox:
    return backend.outbox()


@pytest.fixture
def ledger(backend: Backend) -> Ledger:
    return backend.ledger()


async def _bind(ledger: Ledger, lease: Lease, first: int, count: int) -> None:
    batch = bind(lease, range(first, first + count), first - 1)
    assert await ledger.commit(batch) == Committed()


async def test_it_knows_the_number_of_shards(outbox: Outbox) -> None:
    assert await outbox.shards() == SHARDS


async def test_it_says_how_far_the_ledger_came_while_pods_wait(outbox: Outbox, ledger: Ledger) -> None:
    (lease, _) = await start(ledger, SHARDS)
    await _bind(ledger, lease, 1, 1)
    assert await outbox.timed() is None, "nobody waits"
    assert await ledger.commit(bind(lease, [2], 1, pending_added=[waiting(lease, "a", 1)])) == Committed()
    before = await outbox.timed()
    assert before is not None
    assert before.due_ms is None
    now_ms = before.log_time_ms + 1_000
    batch = bind(lease, [3], 2, log_time_ms=now_ms, due_ms=now_ms + 500)
    assert await ledger.commit(batch) == Committed()
    after = await outbox.timed()
    assert after == (now_ms, now_ms + 500)
    assert await ledger.commit(bind(lease, [4], 3, log_time_ms=now_ms + 500, due_ms=now_ms)) == Committed()
    assert await outbox.timed() == (now_ms + 500, None), "it is over"


async def test_decisions_come_in_order_per_shard(outbox: Outbox, ledger: Ledger) -> None:
    first, second = await start(ledger, SHARDS)
    await _bind(ledger, first, 1, 3)
    await _bind(ledger, second, 1, 1)
    await _bind(ledger, first, 4, 2)
    items = await outbox.unpublished(0, DECISIONS, 0, 100)
    assert [item.seq for item in items] == [1, 2, 3, 4, 5]
    assert [item.key for item in items] == [f"ns/p0-{seq}".encode() for seq in range(1, 6)]
    assert [orjson.loads(item.value)["id"] for item in items] == [f"0-{seq}" for seq in range(1, 6)]
    recorded = {orjson.loads(item.value)["recorded_at"] for item in items}
    assert all(len(at) == len("2026-01-01T00:00:00.000Z") and at > "2023" for at in recorded)
    assert [item.seq for item in await outbox.unpublished(0, DECISIONS, 2, 2)] == [3, 4]
    assert not await outbox.unpublished(0, DECISIONS, 5, 100)
    (item,) = await outbox.unpublished(1, DECISIONS, 0, 100)
    payload = record(decision(second, 1, "p1-1", "n1"))[1]
    assert without_recorded_at(item.value) == payload
    assert list(orjson.loads(item.value))[-1] == "recorded_at"


async def test_dead_letters_are_json_with_the_raw_bytes(outbox: Outbox, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    long = b"\xff" * (dead_letter_topic_raw_bytes_max + 1)
    letters = [dead_letter(lease, 1), dead_letter(lease, 2, key=None, raw=long, path="spec", code="x")]
    batch = batch_of(advances=[advance(lease, 0, 2)], dead_letters=letters, dead_seq_next={0: 3})
    assert await ledger.commit(batch) == Committed()
    first, second = await outbox.unpublished(0, DEAD_LETTERS, 0, 10)
    assert (first.seq, first.key, second.seq, second.key) == (1, b"ns/bad", 2, None)
    assert orjson.loads(first.value) == {
        "shard": 0,
        "seq": 1,
        "topic": "berth.pods",
        "partition": 0,
        "offset": 7,
        "key": "ns/bad",
        "code": "invalid-json",
        "path": "",
        "message": "it is not JSON",
        "at": "2023-11-14T22:13:20.000Z",
        "raw": base64.b64encode(b"{not json").decode(),
        "raw_bytes": 9,
        "raw_truncated": False,
        "sent_by": "direct",
    }
    cut = orjson.loads(second.value)
    assert base64.b64decode(cut["raw"]) == long[:-1]
    assert (cut["raw_truncated"], cut["raw_bytes"]) == (True, len(long))


async def test_the_cursor_moves_forward_only_and_per_stream(outbox: Outbox) -> None:
    epoch = await outbox.acquire(0, "relay", LEASE_SECONDS)
    assert await outbox.published(0, DECISIONS) == 0
    assert await outbox.mark_published(0, DECISIONS, epoch, 5)
    assert await outbox.mark_published(0, DECISIONS, epoch, 3)
    assert await outbox.published(0, DECISIONS) == 5
    assert await outbox.published(0, DEAD_LETTERS) == 0
    assert await outbox.published(1, DECISIONS) == 0


async def test_a_relay_with_an_old_epoch_marks_nothing(backend: Backend, outbox: Outbox) -> None:
    epoch = await outbox.acquire(0, "relay", LEASE_SECONDS)
    await backend.pass_time(LEASE_SECONDS + 1)
    other = backend.outbox()
    assert await other.acquire(0, "other", LEASE_SECONDS) == epoch + 1
    await _is_refused(backend, outbox, epoch)


async def test_an_epoch_that_was_lost_and_given_again_is_only_the_second_relays(
    backend: Backend, outbox: Outbox
) -> None:
    epoch, other = await outbox.acquire(0, "relay", LEASE_SECONDS), backend.outbox()
    await backend.lose_owners()
    assert await other.acquire(0, "other", LEASE_SECONDS) == epoch
    await _is_refused(backend, outbox, epoch)
    assert await other.mark_published(0, DECISIONS, epoch, 5)


async def _is_refused(backend: Backend, outbox: Outbox, epoch: int) -> None:
    before = await backend.dump()
    assert not await outbox.mark_published(0, DECISIONS, epoch, 5)
    assert not await outbox.raise_alarm(0, epoch, "the topic differs", 7)
    assert not await outbox.renew_lease(0, epoch, LEASE_SECONDS)
    await outbox.release(0, epoch)
    assert await backend.dump() == before


async def test_each_shard_has_its_own_relay(backend: Backend, outbox: Outbox) -> None:
    other = backend.outbox()
    assert await outbox.acquire(0, "a", LEASE_SECONDS) == 1
    assert await other.acquire(1, "b", LEASE_SECONDS) == 1
    assert await other.acquire(0, "b", LEASE_SECONDS) == 0
    assert await outbox.acquire(1, "a", LEASE_SECONDS) == 0


async def test_a_relay_that_is_gone_or_gave_up_is_replaced(backend: Backend, outbox: Outbox) -> None:
    other = backend.outbox()
    assert await outbox.acquire(0, "a", LEASE_SECONDS) == 1
    assert await outbox.acquire(1, "a", LEASE_SECONDS) == 1
    assert await outbox.renew_lease(0, 1, LEASE_SECONDS)
    await outbox.release(0, 1)
    assert await other.acquire(0, "b", LEASE_SECONDS) == 2
    assert await other.acquire(1, "b", LEASE_SECONDS) == 0
    await outbox.aclose()
    assert await other.acquire(1, "b", LEASE_SECONDS) == 0  # a lease outlives its connection
    await backend.pass_time(LEASE_SECONDS + 1)
    assert await other.acquire(1, "b", LEASE_SECONDS) == 2


async def test_waiting_ends_with_a_commit(outbox: Outbox, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    await outbox.acquire(0, "relay", LEASE_SECONDS)
    waits = asyncio.create_task(outbox.wait(0, 60))
    await asyncio.sleep(0.1)
    assert not waits.done()
    await _bind(ledger, lease, 1, 1)
    async with asyncio.timeout(5):
        await waits


async def test_waiting_does_not_miss_what_was_committed_before(outbox: Outbox, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    await outbox.acquire(0, "relay", LEASE_SECONDS)
    await _bind(ledger, lease, 1, 1)
    async with asyncio.timeout(5):
        # Two tasks of one relay wait at the same time: none takes the other's wake-up away.
        await asyncio.gather(outbox.wait(0, 60), outbox.wait(0, 60))


async def test_waiting_tasks_of_several_shards_are_told_of_their_own(outbox: Outbox, ledger: Ledger) -> None:
    lease, other = await start(ledger, SHARDS)
    for shard in (0, 1):
        await outbox.acquire(shard, "relay", LEASE_SECONDS)
    waits = [asyncio.create_task(outbox.wait(shard, 60)) for shard in (0, 1)]
    for of in (lease, other):
        await asyncio.sleep(0.1)
        await _bind(ledger, of, 1, 1)
    async with asyncio.timeout(5):
        await asyncio.gather(*waits)


async def test_waiting_ends_after_its_time(outbox: Outbox, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    epoch = await outbox.acquire(0, "relay", LEASE_SECONDS)
    await _bind(ledger, lease, 1, 1)
    await outbox.mark_published(0, DECISIONS, epoch, 1)
    started = asyncio.get_running_loop().time()
    async with asyncio.timeout(5):
        await outbox.wait(0, 0.15)
    assert asyncio.get_running_loop().time() - started > 0.1


async def test_what_was_compared_when_an_alarm_is_taken_back_is_acknowledged(
    backend: Backend, outbox: Outbox
) -> None:
    epoch = await outbox.acquire(0, "relay", LEASE_SECONDS)
    await outbox.raise_alarm(0, epoch, "the topic differs", 7)
    assert await outbox.acknowledged(0) == (0, None), "nobody has seen it"
    assert await outbox.acknowledge() == {0: "the topic differs"}
    below, at_ms = await outbox.acknowledged(0)
    assert below == 7
    assert at_ms is not None
    await outbox.raise_alarm(0, epoch, "it differs again", 9)
    assert await outbox.acknowledged(0) == (7, at_ms)
    assert await outbox.acknowledged(1) == (0, None), "it had no alarm"


async def test_each_alarm_gives_a_shard_a_name_that_it_never_had(backend: Backend, outbox: Outbox) -> None:
    epoch = await outbox.acquire(0, "relay", LEASE_SECONDS)
    names, of_others = [await outbox.ledger_name(0)], await outbox.ledger_name(1)
    for compared in (7, 9, 8):
        assert await outbox.raise_alarm(0, epoch, "the topic differs", compared)
        names.append(await outbox.ledger_name(0))
        await outbox.acknowledge()
    assert len(set(names)) == 4
    assert await outbox.ledger_name(1) == of_others
    assert not await outbox.raise_alarm(0, epoch - 1, "late", 10)
    assert await outbox.ledger_name(0) == names[-1] == (await backend.store().processes.shards())[0].ledger


async def test_a_ledger_has_one_name_for_all_who_ask(backend: Backend) -> None:
    first, second = backend.outbox(), backend.outbox()
    names = {await first.ledger_name(0), await second.ledger_name(0)}
    assert len(names) == 1
    name = names.pop()
    assert name.count(".") in (2, 3)
    assert (await backend.store().processes.shards())[0].ledger == name
    await first.aclose()
    await second.aclose()
