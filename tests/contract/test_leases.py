"""Does a shard have one owner at a time, who is replaced at once when gone and fenced by the epoch?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from services.ports.ledger import CommitOutcome, Lease, Ledger
from services.ports.log import PODS_TOPIC, TopicPartition
from tests.contract.batches import bind
from tests.contract.ledgers import BACKENDS, LEASE_SECONDS, SHARDS, Backend, open_backend, start
from tests.servers import MakeDatabase


@pytest_asyncio.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Backend]:
    """Return each kind of ledger in turn."""
    async with open_backend(request.param, request, database) as opened:
        yield opened


async def _acquired(ledger: Ledger, owner: str) -> Sequence[Lease]:
    """Acquire as soon as the server has noticed that the last owner's connection is gone."""
    async with asyncio.timeout(5):
        while not (leases := await ledger.acquire(owner, LEASE_SECONDS)):
            await asyncio.sleep(0.01)
    return leases


async def test_all_shards_are_taken_with_the_first_epoch(backend: Backend) -> None:
    assert await backend.ledger().acquire("a", LEASE_SECONDS) == [Lease(0, 1), Lease(1, 1)]


async def test_a_live_owner_keeps_its_shards(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    before = await backend.dump()
    assert not await second.acquire("b", LEASE_SECONDS)
    assert not await second.acquire("a", LEASE_SECONDS)  # the same name, but another process
    assert await backend.dump() == before
    assert await first.commit(bind(leases[0], [1], 0)) is CommitOutcome.COMMITTED


async def test_an_expired_lease_is_taken_over_with_the_next_epoch(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    old = await start(first, SHARDS, "a")
    await backend.pass_time(LEASE_SECONDS + 1)
    new = await second.acquire("b", LEASE_SECONDS)
    assert new == [Lease(0, 2), Lease(1, 2)]
    assert not await first.renew(old, LEASE_SECONDS)
    assert await first.commit(bind(old[0], [1], 0)) is CommitOutcome.FENCED
    assert await second.commit(bind(new[0], [1], 0)) is CommitOutcome.COMMITTED


async def test_a_renewed_lease_does_not_expire(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    for _ in range(3):
        await backend.pass_time(LEASE_SECONDS - 5)
        assert await first.renew(leases, LEASE_SECONDS)
    assert not await second.acquire("b", LEASE_SECONDS)


async def test_a_lease_that_ran_out_unnoticed_may_be_renewed(backend: Backend) -> None:
    first = backend.ledger()
    leases = await start(first, SHARDS, "a")
    await backend.pass_time(LEASE_SECONDS * 3)
    assert await first.renew(leases, LEASE_SECONDS)
    assert not await backend.ledger().acquire("b", LEASE_SECONDS)


async def test_an_owner_whose_connection_is_gone_is_replaced_at_once(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    await start(first, SHARDS, "a")
    await first.aclose()
    assert await _acquired(second, "b") == [Lease(0, 2), Lease(1, 2)]


async def test_a_restarted_owner_gets_its_own_shards_back(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    await start(first, SHARDS, "a")
    await first.aclose()
    assert await _acquired(second, "a") == [Lease(0, 2), Lease(1, 2)]


async def test_an_owner_may_start_over_through_the_same_connection(backend: Backend) -> None:
    ledger = backend.ledger()
    old = await start(ledger, SHARDS, "a")
    new = await ledger.acquire("a", LEASE_SECONDS)
    assert new == [Lease(0, 2), Lease(1, 2)]
    assert await ledger.commit(bind(old[0], [1], 0)) is CommitOutcome.FENCED
    assert await ledger.commit(bind(new[0], [1], 0)) is CommitOutcome.COMMITTED


async def test_released_shards_are_free(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    await first.release(leases)
    assert not await first.renew(leases, LEASE_SECONDS)
    assert await second.acquire("b", LEASE_SECONDS) == [Lease(0, 2), Lease(1, 2)]


async def test_a_release_with_an_old_epoch_changes_nothing(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    old = await start(first, SHARDS, "a")
    await backend.pass_time(LEASE_SECONDS + 1)
    await start(second, SHARDS, "b")
    await first.release(old)
    assert not await backend.ledger().acquire("c", LEASE_SECONDS)


async def test_renewing_is_all_or_nothing(backend: Backend) -> None:
    first = backend.ledger()
    leases = await start(first, SHARDS, "a")
    before = await backend.dump()
    assert not await first.renew([leases[0], Lease(1, 7)], LEASE_SECONDS)
    assert await backend.dump() == before


async def test_shards_are_taken_all_or_none(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    await first.release(leases[:1])
    assert not await second.acquire("b", LEASE_SECONDS)


async def test_a_new_owner_takes_over_the_offset_rows(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    old = await start(first, SHARDS, "a")
    assert await first.commit(bind(old[0], [1, 2, 3], 0)) is CommitOutcome.COMMITTED
    await backend.pass_time(LEASE_SECONDS + 1)
    new = await start(second, SHARDS, "b")
    await second.ensure_offsets(new[0], {TopicPartition(PODS_TOPIC, 0): 0})
    state = await second.load(new)
    assert state.offsets[0, PODS_TOPIC, 0] == 3
    assert state.seq_next == {0: 4, 1: 1}
    assert await second.commit(bind(new[0], [4], 3)) is CommitOutcome.COMMITTED


async def test_of_many_that_want_the_shards_one_gets_them(backend: Backend) -> None:
    ledgers = [backend.ledger() for _ in range(5)]
    taken = await asyncio.gather(
        *(ledger.acquire(f"w{i}", LEASE_SECONDS) for i, ledger in enumerate(ledgers))
    )
    assert sorted(map(len, taken)) == [0, 0, 0, 0, SHARDS]
