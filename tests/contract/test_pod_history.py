"""Is what was said of a pod told in the order in which it happened, whichever shards decided it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest_asyncio

from domain.model.decisions import Decision, Outcome
from services.ports.ledger import Committed, Ledger
from services.ports.store import Store
from tests.batches import batch_of
from tests.contract.batches import AT_MS, advance, decision, opened, record
from tests.contract.ledgers import SHARDS, Backend, start


@pytest_asyncio.fixture
async def store(backend: Backend, ledger: Ledger) -> Store:
    """Return a store of a pod of shard 0 that left for one of shard 1, which had decided far more."""
    own, other = await start(ledger, SHARDS)

    async def commit(*made: Decision, **more: Any) -> None:
        lease = own if made[0].shard == 0 else other
        seq = made[-1].seq
        batch = batch_of(
            advances=[advance(lease, made[0].seq - 1, seq)],
            made=[record(each) for each in made],
            seq_next={lease.shard: seq + 1},
            log_time_ms=AT_MS,
            **more,
        )
        assert await ledger.commit(batch) == Committed()

    at: dict[str, Any] = {"decided_at_ms": AT_MS + 9}
    others = [decision(other, seq, f"other{seq}", **at) for seq in range(1, 9)]
    await commit(decision(own, 1, "victim", "n1"))
    evicted: dict[str, Any] = {"pod_uid": "uid-victim", "outcome": Outcome.EVICTED}
    await commit(*others, decision(other, 9, "victim", "n1", **evicted, **at))
    await commit(decision(own, 2, "victim", "n1", outcome=Outcome.BIND_FAILED, decided_at_ms=AT_MS + 10))
    again = decision(own, 3, "victim", "n1", pod_uid="uid-again", decided_at_ms=AT_MS + 11)
    await commit(again, opened=[opened(again, resource_version=7)])
    return backend.store()


async def test_the_history_of_a_pod_is_in_the_order_of_its_moments(store: Store) -> None:
    async def ids(limit: int = 100) -> Sequence[tuple[int, int]]:
        return [(row.shard, row.seq) for row in await store.pod_decisions("ns", "victim", limit)]

    assert await ids() == [(0, 3), (0, 2), (1, 9), (0, 1)]
    assert await ids(2) == [(0, 3), (0, 2)]
    assert await store.pod_decisions("ns", "none", 9) == []
    assert await store.seen_by(["elsewhere"]).pod_decisions("ns", "victim", 9) == []


async def test_the_latest_word_on_a_pod_is_that_of_the_latest_moment(store: Store) -> None:
    rows = await store.latest_decisions(["ns/victim", "ns/other1"])
    assert [(row.shard, row.seq) for row in rows] == [(1, 1), (0, 3)]


async def test_the_version_of_a_pod_is_that_of_the_one_that_lives(store: Store) -> None:
    assert await store.known_versions(["ns/victim"]) == {"ns/victim": 7}
