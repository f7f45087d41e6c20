"""Does every ledger tell a stream what its batches did: all of it, once, and nothing past one in flight?"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from domain.model.decisions import Outcome
from services.ports.journal import BATCHES, Owned
from services.ports.ledger import CommitBatch, Committed, Ledger
from services.ports.store import Store
from services.ports.tail import NotKept, Spot, Tail, TailBatch
from tests.contract.batches import AT_MS, decision, new_node
from tests.contract.ledgers import SHARDS, Backend, PostgresBackend, start
from tests.streaming import made

LOOKS_MAX = 20


async def commit(ledger: Ledger, batch: CommitBatch) -> None:
    assert await ledger.commit(batch) == Committed()


async def settled(tail: Tail, position: int = 0) -> int:
    """Return how far the journal is complete, once that is known."""
    for _ in range(LOOKS_MAX):
        found = (await tail.look(position)).position
        if found is not None:
            return found
    raise AssertionError("no look found out how far the journal is complete")


async def read_all(tail: Tail, after: int, until: int) -> list[TailBatch]:
    """Return all batches of a span, answer by answer."""
    found: list[TailBatch] = []
    while batches := await tail.read(found[-1].position if found else after, until):
        found += batches
    return found


@pytest.fixture
def tail(backend: Backend) -> Tail:
    """Return the tail of a store, as an API process would open it."""
    return backend.store().tail


async def test_batches_come_once_in_the_order_of_positions_with_all_that_they_did(
    ledger: Ledger, tail: Tail
) -> None:
    own, other = await start(ledger, SHARDS)
    node = new_node(1)
    taken = [Owned(leases={0: own.epoch, 1: other.epoch}, offsets=[(0, BATCHES, 0, 0), (0, "t", 0, 0)])]
    await commit(ledger, made(own, range(1, 4), 1, facts=[node], owned=taken))
    await commit(ledger, made(other, range(1, 2), 1))
    await commit(ledger, made(own, range(4, 6), 2, owned=[Owned(leases={}), *taken[:0]]))
    end = await settled(tail)
    first, second, third = await read_all(tail, 0, end)
    assert [(each.shard, each.batch) for each in (first, second, third)] == [(0, 1), (1, 1), (0, 2)]
    assert first.position < second.position < third.position == end
    assert [each.row.seq for each in first.decisions] == [1, 2, 3]
    assert [(each.namespace, each.name, each.node) for each in second.decisions] == [("ns", "p1", None)]
    assert [each.spec.name for each in first.nodes] == ["n1"]
    assert not second.nodes
    assert [(each.shard, each.epoch) for each in first.taken] == [(0, own.epoch)]
    assert first.taken[0].owner, "a lease has the name of its owner"
    assert not third.taken, "a shard that is given up was not taken"
    assert await read_all(tail, first.position, second.position) == [second]


async def test_of_one_moment_an_eviction_comes_last(ledger: Ledger, tail: Tail) -> None:
    own, _ = await start(ledger, SHARDS)
    at: dict[str, Any] = {"decided_at_ms": AT_MS}
    evicted = decision(own, 1, "victim", "n1", outcome=Outcome.EVICTED, **at)
    decisions = [evicted, decision(own, 2, "victim", "n1", **at), decision(own, 3, "x", decided_at_ms=1)]
    await commit(ledger, made(own, range(1, 4), 1, decisions=decisions))
    (batch,) = await read_all(tail, 0, await settled(tail))
    assert [each.row.seq for each in batch.decisions] == [3, 2, 1]


async def test_another_process_finds_the_same(backend: Backend, ledger: Ledger, tail: Tail) -> None:
    own, _ = await start(ledger, SHARDS)
    for number in range(1, 6):
        await commit(ledger, made(own, range(number, number + 1), number))
    other = backend.store().tail
    end = await settled(tail)
    assert await settled(other) == end
    assert await read_all(tail, 0, end) == await read_all(other, 0, end)


async def test_a_row_has_a_check_that_a_ledger_which_was_set_back_has_not(
    backend: Backend, ledger: Ledger, tail: Tail
) -> None:
    own, _ = await start(ledger, SHARDS)
    await commit(ledger, made(own, range(1, 2), 1))
    await commit(ledger, made(own, range(2, 3), 2))
    end = await settled(tail)
    last = (await read_all(tail, 0, end))[-1]
    assert (await tail.look(end)).check == last.check
    before = (await tail.look(end)).ledger
    await backend.lose_batch(0, 2)
    tail = backend.store().tail
    assert (await tail.look(end)).check is None
    await backend.begin_anew()
    assert (await backend.store().tail.look(end)).ledger != before


async def test_what_was_pruned_is_told(backend: Backend, ledger: Ledger) -> None:
    own, _ = await start(ledger, SHARDS)
    for number in range(1, 4):
        await commit(ledger, made(own, range(number, number + 1), number))
    tail = backend.store().tail
    end = await settled(tail)
    first, second, third = await read_all(tail, 0, end)
    assert await tail.spot(first.position) == Spot(first.check, True)
    await backend.lose_batch(0, 1)
    tail = backend.store().tail
    assert await tail.spot(first.position) == Spot(None, False), "the next one may have been pruned, too"
    assert await tail.spot(second.position) == Spot(second.check, True)
    assert await tail.spot(third.position) == Spot(third.check, True)
    assert not (await tail.spot(0)).is_kept_behind
    with pytest.raises(NotKept):
        await tail.position_before(AT_MS, end)
    assert await tail.position_before(AT_MS + 3000, end) == second.position


async def test_a_log_time_is_found_in_all_journals(ledger: Ledger, tail: Tail) -> None:
    own, other = await start(ledger, SHARDS)
    for number in range(1, 10):
        await commit(ledger, made(own, range(number, number + 1), number))
        if number % 3 == 0:
            await commit(ledger, made(other, range(number // 3, number // 3 + 1), number // 3))
    end = await settled(tail)
    batches = await read_all(tail, 0, end)
    for at_ms in range(AT_MS - 500, AT_MS + 11_000, 500):
        position = await tail.position_before(at_ms, end)
        later = [each.position for each in batches if each.log_time_ms >= at_ms]
        assert position == (min(later) - 1 if later else end)


# ------------------------------------------------------------------------------- transactions in flight

INSERT = """
INSERT INTO journal (shard, batch, renewed, lanes, record_order, seqs, log_time_ms, decisions_hash, effects)
VALUES ($1, $2, false, '[]', '', '{}', 1, '', '{}') RETURNING position
"""


async def in_flight(backend: PostgresBackend, shard: int, batch: int) -> tuple[asyncpg.Connection, int]:
    """Write a row of the journal as a commit does that is not over."""
    connection = await asyncpg.connect(backend.dsn)
    await connection.execute("BEGIN")
    await connection.execute("SELECT pg_current_xact_id()")  # a commit has changed offsets by then
    return connection, await connection.fetchval(INSERT, shard, batch)


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
async def test_nothing_is_told_past_a_batch_that_is_in_flight(backend: Backend, ends: str) -> None:
    if not isinstance(backend, PostgresBackend):
        pytest.skip("a commit takes no time in memory")
    ledger, tail = backend.ledger(), backend.store().tail
    own, _ = await start(ledger, SHARDS)
    await commit(ledger, made(own, range(1, 2), 1))
    before = await settled(tail)
    late, position = await in_flight(backend, 1, 1)
    early, second = await in_flight(backend, 0, 2)
    try:
        await early.execute("COMMIT")
        for _ in range(LOOKS_MAX):
            assert (await tail.look(before)).position == before, "the batch before is not there yet"
        beginner = backend.store().tail
        for _ in range(LOOKS_MAX):
            assert (await beginner.look(0)).position in (None, before), "a new process knows it as well"
        await late.execute(ends)
    finally:
        await late.close()
        await early.close()
    assert position < second
    for each in (tail, beginner):
        found = [await each.look(before) for _ in range(3)][-1].position
        assert found == second
        told = [(batch.shard, batch.batch) for batch in await read_all(each, before, second)]
        assert told == ([(1, 1), (0, 2)] if ends == "COMMIT" else [(0, 2)])


async def test_decisions_that_were_pruned_are_missed(backend: Backend, ledger: Ledger, tail: Tail) -> None:
    if not isinstance(backend, PostgresBackend):
        pytest.skip("nothing prunes decisions in memory")
    own, _ = await start(ledger, SHARDS)
    await commit(ledger, made(own, range(1, 4), 1))
    end = await settled(tail)
    await backend.execute("DELETE FROM decisions WHERE seq = 2")
    with pytest.raises(NotKept):
        await tail.read(0, end)


def test_a_store_has_a_tail(backend: Backend) -> None:
    store: Store = backend.store()
    assert store.tail is store.seen_by(["ns"]).tail, "one reader learns from its own looks"
