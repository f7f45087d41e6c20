"""Does a shard have one owner at a time, who is replaced when its lease ran out, and fenced by the epoch?"""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from domain.model.errors import Fenced, Unavailable
from domain.model.limits import heartbeat_seconds_max, worker_seen_seconds_max
from services.ports.ledger import Committed, Incarnation, Lease, NotCommitted
from services.ports.log import PODS_TOPIC, TopicPartition
from services.ports.positions import LogFault
from services.ports.store import OwnerFilter, OwnerSpan
from tests.contract.batches import bind
from tests.contract.ledgers import BACKENDS, LEASE_SECONDS, SHARDS, Backend, loaded, open_backend, start
from tests.servers import MakeDatabase


@pytest_asyncio.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Backend]:
    """Return each kind of ledger in turn."""
    async with open_backend(request.param, request, database) as opened:
        yield opened


async def test_all_shards_are_taken_with_the_first_epoch(backend: Backend) -> None:
    assert await backend.ledger().acquire("a", LEASE_SECONDS) == [Lease(0, 1), Lease(1, 1)]


async def test_a_live_owner_keeps_its_shards(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    before = await backend.dump()
    assert not await second.acquire("b", LEASE_SECONDS)
    assert not await second.acquire("a", LEASE_SECONDS)  # the same name, but another process
    assert await backend.dump() == before
    assert await first.commit(bind(leases[0], [1], 0)) == Committed()


async def test_an_expired_lease_is_taken_over_with_the_next_epoch(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    old = await start(first, SHARDS, "a")
    await backend.pass_time(LEASE_SECONDS + 1)
    new = await second.acquire("b", LEASE_SECONDS)
    assert new == [Lease(0, 2), Lease(1, 2)]
    assert not await first.renew_leases(old, LEASE_SECONDS)
    assert await first.commit(bind(old[0], [1], 0)) is NotCommitted.FENCED
    assert await second.commit(bind(new[0], [1], 0)) == Committed()


async def test_a_renewed_lease_does_not_expire(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    for _ in range(3):
        await backend.pass_time(LEASE_SECONDS - 5)
        assert await first.renew_leases(leases, LEASE_SECONDS)
    assert not await second.acquire("b", LEASE_SECONDS)


async def test_a_lease_that_ran_out_unnoticed_may_be_renewed(backend: Backend) -> None:
    first = backend.ledger()
    leases = await start(first, SHARDS, "a")
    await backend.pass_time(LEASE_SECONDS * 3)
    assert await first.renew_leases(leases, LEASE_SECONDS)
    assert not await backend.ledger().acquire("b", LEASE_SECONDS)


async def test_a_clock_that_was_set_back_keeps_no_lease_for_hours(backend: Backend) -> None:
    first, second, third = backend.ledger(), backend.ledger(), backend.ledger()
    old = await start(first, SHARDS, "a")
    await backend.pass_time(-3600)
    assert await first.renew_leases(old, LEASE_SECONDS)  # it lives, and its lease ends soon again
    assert not await second.acquire("b", LEASE_SECONDS)
    await backend.pass_time(-3600)
    assert await third.acquire("c", LEASE_SECONDS) == [Lease(0, 2), Lease(1, 2)]
    outbox = backend.outbox()
    assert await outbox.acquire(0, "a", LEASE_SECONDS) == 1
    await backend.pass_time(-3600)
    assert await backend.outbox().acquire(0, "b", LEASE_SECONDS) == 2


async def test_a_lease_outlives_its_connections(backend: Backend) -> None:
    """Else a restart of the database, or a pool of connections, would make every lease look dead."""
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    await backend.cut()
    assert not await second.acquire("b", LEASE_SECONDS)
    assert await first.renew_leases(leases, LEASE_SECONDS)
    await first.aclose()
    assert not await second.acquire("a", LEASE_SECONDS)  # the same name, but another process
    await backend.pass_time(LEASE_SECONDS + 1)
    assert await second.acquire("b", LEASE_SECONDS) == [Lease(0, 2), Lease(1, 2)]


async def test_a_renewal_waits_for_no_commit(backend: Backend) -> None:
    """A commit holds the rows of all shards: a renewal that wanted them would wait, or end in a deadlock."""
    ledger = backend.ledger()
    leases = await start(ledger, SHARDS, "a")
    async with backend.commit_in_flight(), asyncio.timeout(1):
        assert await ledger.renew_leases(leases, LEASE_SECONDS)


async def test_an_owner_may_start_over_in_the_same_process(backend: Backend) -> None:
    ledger = backend.ledger()
    old = await start(ledger, SHARDS, "a")
    new = await ledger.acquire("a", LEASE_SECONDS)
    assert new == [Lease(0, 2), Lease(1, 2)]
    assert await ledger.commit(bind(old[0], [1], 0)) is NotCommitted.FENCED
    assert await ledger.commit(bind(new[0], [1], 0)) == Committed()


async def test_an_epoch_that_was_lost_and_given_again_is_only_the_second_owners(backend: Backend) -> None:
    """A replica that takes over without the last acquisition counts the same epoch for another owner."""
    first, second = backend.ledger(), backend.ledger()
    old = await start(first, SHARDS, "a")
    await backend.lose_owners()
    assert await start(second, SHARDS, "b") == old
    before = await backend.dump()
    batch = bind(old[0], [1], 0)
    assert await first.commit(batch) is NotCommitted.FENCED
    assert await first.resolve(batch) is NotCommitted.FENCED
    assert not await first.renew_leases(old, LEASE_SECONDS)
    await first.release(old)
    with pytest.raises(Fenced):
        await first.ensure_offsets(old[0], {TopicPartition(PODS_TOPIC, 5): 0})
    fault = LogFault(
        shard=0,
        epoch=old[0].epoch,
        at=TopicPartition(PODS_TOPIC, 0),
        code="tail-lost",
        next_offset=0,
        first=0,
        end=0,
        goes_on_at=0,
        topic_id=None,
        resync_below=None,
    )
    with pytest.raises(Fenced):
        await first.note_log_faults([fault])
    assert await backend.dump() == before
    assert await second.commit(batch) == Committed()


async def test_who_read_another_life_of_the_ledger_reads_it_again(backend: Backend) -> None:
    """What it has followed may be lost when a replica takes over, though its own shards lost nothing."""
    ledger = backend.ledger()
    leases = await start(ledger, SHARDS, "a")
    await ledger.load_base()
    batches = [bind(leases[0], [seq], seq - 1) for seq in (1, 2)]
    assert isinstance(await ledger.commit(batches[0]), Committed)
    await backend.begin_anew()
    before = await backend.dump()
    for _ in range(2):
        with pytest.raises((Fenced, Unavailable)):
            await ledger.commit(batches[1])
        with pytest.raises((Fenced, Unavailable)):
            await ledger.follow({0: 0})
    with pytest.raises(Fenced):
        await ledger.follow({0: 0})
    assert await backend.dump() == before
    await ledger.load_base()
    assert isinstance(await ledger.commit(batches[1]), Committed)


async def test_released_shards_are_free(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    await first.release(leases)
    assert not await first.renew_leases(leases, LEASE_SECONDS)
    assert await second.acquire("b", LEASE_SECONDS) == [Lease(0, 2), Lease(1, 2)]


async def test_a_release_with_an_old_epoch_changes_nothing(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    old = await start(first, SHARDS, "a")
    await backend.pass_time(LEASE_SECONDS + 1)
    await start(second, SHARDS, "b")
    await first.release(old)
    assert not await backend.ledger().acquire("c", LEASE_SECONDS)


async def test_renewing_prolongs_what_is_still_held(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    await backend.pass_time(LEASE_SECONDS - 1)
    assert await first.renew_leases([leases[0], Lease(1, 7)], LEASE_SECONDS) == [leases[0]]
    await backend.pass_time(2)
    assert await second.acquire("b", LEASE_SECONDS, [0, 1]) == [Lease(1, 2)]


async def test_shards_are_taken_all_or_none(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    await first.release(leases[:1])
    assert not await second.acquire("b", LEASE_SECONDS)


async def test_a_part_is_taken_by_who_wants_a_part(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    leases = await start(first, SHARDS, "a")
    await first.release(leases[1:])
    assert await second.acquire("b", LEASE_SECONDS, [0, 1]) == [Lease(1, 2)]
    assert await second.acquire("b", LEASE_SECONDS, [0, 1]) == [Lease(1, 3)]
    assert await first.renew_leases(leases, LEASE_SECONDS) == leases[:1]
    assert await first.commit(bind(leases[0], [1], 0)) == Committed()
    assert await first.commit(bind(leases[1], [1], 0)) is NotCommitted.FENCED
    assert await second.commit(bind(Lease(1, 3), [1], 0)) == Committed()


async def test_only_the_shards_that_are_wanted_are_taken(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    assert await first.acquire("a", LEASE_SECONDS, [0]) == [Lease(0, 1)]
    assert await second.acquire("b", LEASE_SECONDS, [0]) == []
    assert await second.acquire("b", LEASE_SECONDS, [0, 1]) == [Lease(1, 1)]
    assert await second.acquire("b", LEASE_SECONDS, []) == []


async def test_a_muster_tells_who_is_ready_and_what_is_free(backend: Backend) -> None:
    first, second, third = backend.ledger(), backend.ledger(), backend.ledger()
    told = Incarnation(name="a")
    for ledger in (first, second):
        await ledger.announce(told, is_ready=True)
    await third.announce(told, is_ready=False)
    assert len((await first.muster()).workers) == 2
    assert list((await first.muster()).free) == [0, 1]
    await first.acquire("a", LEASE_SECONDS, [1])
    found = await second.muster()
    assert sorted(found.workers.values()) == [0, 1]
    assert (found.workers[found.me], list(found.free)) == (0, [0])
    assert 0 < found.free_in_seconds <= LEASE_SECONDS
    assert not found.expired
    found = await first.muster()
    assert (found.workers[found.me], list(found.free), found.free_in_seconds) == (1, [0, 1], math.inf)
    await third.announce(told, is_ready=True)
    assert len((await first.muster()).workers) == 3
    await third.aclose()
    assert len((await first.muster()).workers) == 2


async def test_whose_lease_ran_out_or_who_was_not_seen_gets_no_share(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    told = Incarnation(name="a")
    await first.announce(told, is_ready=True)
    await first.acquire("a", 1.0, [0])
    await backend.pass_time(2.0)
    await second.announce(told, is_ready=True)
    found = await second.muster()
    assert (found.workers, list(found.free)) == ({found.me: 0}, [0, 1])
    assert found.expired == {0: "a"}
    assert not (await first.muster()).expired
    await backend.pass_time(worker_seen_seconds_max)
    assert not (await second.muster()).workers


async def test_a_worker_is_up_while_its_heart_beats(backend: Backend) -> None:
    first, second, store = backend.ledger(), backend.ledger(), backend.store()
    told = Incarnation(name="a", build="1.0", seed=7, settings={"usage_window_seconds": 900})
    for _ in range(2):
        await first.announce(told, is_ready=True)
    await second.announce(told, is_ready=True)
    assert (await store.processes.pulse()).workers_count == 2
    await backend.pass_time(heartbeat_seconds_max + 1)
    assert (await store.processes.pulse()).workers_count == 0
    await first.announce(told, is_ready=True)
    assert (await store.processes.pulse()).workers_count == 1
    await first.aclose()
    assert (await store.processes.pulse()).workers_count == 0


async def test_a_new_owner_takes_over_the_offset_rows(backend: Backend) -> None:
    first, second = backend.ledger(), backend.ledger()
    old = await start(first, SHARDS, "a")
    assert await first.commit(bind(old[0], [1, 2, 3], 0)) == Committed()
    await backend.pass_time(LEASE_SECONDS + 1)
    new = await start(second, SHARDS, "b")
    await second.ensure_offsets(new[0], {TopicPartition(PODS_TOPIC, 0): 0})
    state = await loaded(second, new)
    assert state.offsets[0, PODS_TOPIC, 0] == 3
    assert state.seq_next == {0: 4, 1: 1}
    assert await second.commit(bind(new[0], [4], 3)) == Committed()


async def test_of_many_that_want_the_shards_one_gets_them(backend: Backend) -> None:
    ledgers = [backend.ledger() for _ in range(5)]
    taken = await asyncio.gather(
        *(ledger.acquire(f"w{i}", LEASE_SECONDS) for i, ledger in enumerate(ledgers))
    )
    assert sorted(map(len, taken)) == [0, 0, 0, 0, SHARDS]


# ---------------------------------------------------------------------------------- the history of owners


def _spans(rows: Sequence[OwnerSpan]) -> list[tuple[int, int, str, bool]]:
    return [(row.shard, row.epoch, row.owner, row.ended_at is None) for row in rows]


async def test_who_owned_which_shard_when_is_kept(backend: Backend) -> None:
    first, second, store = backend.ledger(), backend.ledger(), backend.store().processes
    leases = await start(first, SHARDS, "a")
    assert _spans(await store.owners(OwnerFilter(), 10, None)) == [
        (0, 1, "a", True),
        (1, 1, "a", True),
    ]
    await first.release([leases[1]])
    await backend.pass_time(1)
    await second.acquire("b", LEASE_SECONDS, [1])
    found = await store.owners(OwnerFilter(), 10, None)
    assert _spans(found) == [(1, 2, "b", True), (0, 1, "a", True), (1, 1, "a", False)]
    ended = found[2].ended_at
    assert ended is not None
    assert found[2].taken_at <= ended <= found[0].taken_at
    page = await store.owners(OwnerFilter(), 1, None)
    assert page.more
    rest = await store.owners(OwnerFilter(), 10, (page[0].taken_at, page[0].shard))
    assert [*page, *rest] == found
    assert _spans(await store.owners(OwnerFilter(shard=0), 10, None)) == [(0, 1, "a", True)]
    since = found[0].taken_at
    assert _spans(await store.owners(OwnerFilter(shard=1, since=since), 10, None)) == [(1, 2, "b", True)]
    assert _spans(await store.owners(OwnerFilter(shard=1, until=since), 10, None)) == [(1, 1, "a", False)]


async def test_a_lease_that_ran_out_ends_the_span_of_its_owner(backend: Backend) -> None:
    store = backend.store()
    await start(backend.ledger(), SHARDS, "a")
    await backend.pass_time(LEASE_SECONDS + 1)
    assert [row.ended_at is None for row in await store.processes.owners(OwnerFilter(), 10, None)] == [
        False,
        False,
    ]
    await start(backend.ledger(), SHARDS, "b")
    found = _spans(await store.processes.owners(OwnerFilter(shard=0), 10, None))
    assert [owner for _, _, owner, _ in found if owner == "a"] == ["a"]
    assert (0, 2, "b", True) in found


async def test_owners_of_long_ago_are_forgotten_and_present_ones_stay(backend: Backend) -> None:
    """An owner is present until another one has its shard, though its lease ran out: it may be renewed."""
    first, second, store = backend.ledger(), backend.ledger(), backend.store()
    await start(first, SHARDS, "a")
    for _ in range(3):
        leases = await first.acquire("a", LEASE_SECONDS)
    await first.release([leases[1]])
    await backend.pass_time(3600)
    await second.acquire("b", LEASE_SECONDS, [1])
    await second.release([Lease(1, 5)])
    assert await first.forget_owners(7200, 10) == 0
    assert await first.forget_owners(1800, 2) == 2
    assert await first.forget_owners(1800, 10) == 5
    kept = [(0, 4, "a"), (1, 5, "b")]
    assert sorted(row[:3] for row in await store.processes.owners(OwnerFilter(), 10, None)) == kept
    await backend.pass_time(3600)
    assert await first.forget_owners(1800, 10) == 1, "a shard that nobody has needs no owner"
    assert [row[:3] for row in await store.processes.owners(OwnerFilter(), 10, None)] == kept[:1]


async def test_workers_of_long_ago_are_forgotten_and_those_that_live_or_hold_shards_stay(
    backend: Backend,
) -> None:
    stopped, killed, frozen, lives = (backend.ledger() for _ in range(4))
    told = {name: Incarnation(name=name) for name in ("stopped", "killed", "frozen", "lives")}
    await stopped.announce(told["stopped"], is_ready=True)
    await killed.announce(told["killed"], is_ready=True)
    await frozen.announce(told["frozen"], is_ready=True)
    await start(frozen, SHARDS, "frozen")
    await stopped.aclose()
    await backend.pass_time(3600)
    await lives.announce(told["lives"], is_ready=True)
    store, long_ago = backend.store(), datetime.datetime.fromtimestamp(0, datetime.UTC)
    assert await lives.forget_workers(7200, 10) == 0
    assert await lives.forget_workers(1800, 1) == 1
    assert await lives.forget_workers(1800, 10) == 1
    assert [row.name for row in await store.processes.workers(long_ago)] == ["frozen", "lives"]
    await killed.announce(told["killed"], is_ready=True)
    assert "killed" in {row.name for row in await store.processes.workers(long_ago)}, "it was only paused"


async def test_workers_are_listed_with_their_shards_and_their_state(backend: Backend) -> None:
    first, second, store = backend.ledger(), backend.ledger(), backend.store()
    await first.announce(Incarnation(name="a", build="1"), is_ready=True)
    await second.announce(Incarnation(name="b", build="2"), is_ready=False)
    await start(first, SHARDS, "a")
    long_ago = datetime.datetime.fromtimestamp(0, datetime.UTC)
    a, b = await store.processes.workers(long_ago)
    assert (a.name, a.build, a.is_up, a.is_ready, list(a.shards)) == ("a", "1", True, True, [0, 1])
    assert (b.name, b.is_up, b.is_ready, list(b.shards), b.stopped_at) == ("b", True, False, [], None)
    await first.announce(Incarnation(name="a", build="1"), is_ready=True)
    assert (await store.processes.workers(long_ago))[0].started_at == a.started_at
    await second.aclose()
    stopped = (await store.processes.workers(long_ago))[1]
    assert (stopped.is_up, stopped.stopped_at is None) == (False, False)
    assert await store.processes.workers(a.seen_at + datetime.timedelta(days=1)) == []
