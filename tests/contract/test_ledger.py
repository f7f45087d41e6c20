"""Does every ledger write a batch wholly or not at all, once, and only for the owner of the shard?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from domain.model.errors import Fenced
from services.ports.ledger import CommitBatch, Committed, Lease, Ledger, LedgerState, NotCommitted, both
from services.ports.log import PODS_TOPIC
from tests.batches import batch_of
from tests.contract.batches import (
    advance,
    bind,
    change_node,
    decision,
    everything,
    load_node,
    new_node,
    opened,
    record,
    waiting,
)
from tests.contract.ledgers import SHARDS, Backend, loaded, refuses, start

COMMITTED, FENCED = Committed(), NotCommitted.FENCED


def _by_arrival(batch: CommitBatch, secret: bytes) -> LedgerState:
    """Return what ``load`` must give after ``everything`` alone."""
    (lease_offset,) = batch.offsets.advances
    return LedgerState(
        offsets={(lease_offset.shard, PODS_TOPIC, lease_offset.partition): lease_offset.hi},
        nodes=[],
        templates=batch.pods.templates,
        placements=list(batch.pods.opened),
        pending=batch.pods.pending_added,
        tombstones=list(batch.pods.tombstones),
        profiles=batch.cluster.profiles,
        config=batch.cluster.config,
        usage=batch.cluster.usage,
        seq_next=batch.offsets.seq_next,
        dead_seq_next=batch.offsets.dead_seq_next,
        log_time_ms=batch.offsets.log_time_ms,
        seal_secret=secret,
        shards_count=SHARDS,
        orphaned=[],
        forwarded=[],
        nominations=[],
        moves=[],
        replicas=[],
        waits=[],
    )


# -------------------------------------------------------------------------------------------- round trip


async def test_load_returns_exactly_what_was_committed(backend: Backend, ledger: Ledger) -> None:
    first, _ = await start(ledger, SHARDS)
    batch = everything(first)
    assert await ledger.commit(batch) == COMMITTED
    state = await loaded(ledger, [first])
    assert msgspec.structs.replace(state, nodes=[]) == _by_arrival(
        batch, await backend.store().callers.seal_secret()
    )
    assert len(state.seal_secret) >= 16
    assert [(n.id, n.name, n.version, n.spec, n.requested, n.deleted) for n in state.nodes] == [
        (w.id, w.name, 1, w.spec, w.delta, False) for w in batch.cluster.facts
    ]


async def test_an_empty_ledger_loads_empty(ledger: Ledger) -> None:
    leases = await start(ledger, SHARDS)
    state = await loaded(ledger, leases)
    assert state.seq_next == state.dead_seq_next == {0: 1, 1: 1}
    assert state.offsets == {(0, PODS_TOPIC, 0): 0, (1, PODS_TOPIC, 1): 0}
    assert not any([state.nodes, state.templates, state.placements, state.pending, state.tombstones])
    assert not state.profiles
    assert not state.config
    assert not state.usage


async def test_load_gives_placements_of_all_shards_but_only_own_pending_pods(ledger: Ledger) -> None:
    first, second = await start(ledger, SHARDS)
    assert await ledger.commit(bind(first, [1], 0, pending_added=[waiting(first, "a", 1)])) == COMMITTED
    assert await ledger.commit(bind(second, [1], 0, pending_added=[waiting(second, "b", 2)])) == COMMITTED
    state = await loaded(ledger, [second])
    assert [placement.shard for placement in state.placements] == [0, 1]
    assert [pod.name for pod in state.pending] == ["b"]
    assert list(state.seq_next) == [1]


async def test_who_only_looks_reads_all_shards_whoever_owns_them(backend: Backend, ledger: Ledger) -> None:
    first, second = await start(ledger, SHARDS)
    assert await ledger.commit(bind(first, [1], 0, pending_added=[waiting(first, "a", 1)])) == COMMITTED
    assert await ledger.commit(bind(second, [1], 0, pending_added=[waiting(second, "b", 2)])) == COMMITTED
    base, part = await backend.ledger().load_all()
    assert both(base, part) == await loaded(ledger, [first, second])
    assert {pod.name for pod in part.pending} == {"a", "b"}


async def test_load_with_a_lost_epoch_is_fenced(backend: Backend, ledger: Ledger) -> None:
    old = await start(ledger, SHARDS)
    await backend.pass_time(3600)
    await start(backend.ledger(), SHARDS, "other")
    with pytest.raises(Fenced):
        await loaded(ledger, old)


async def test_a_big_batch(ledger: Ledger) -> None:
    (lease, _) = await start(ledger, SHARDS)
    count = 3000
    nodes = [new_node(number) for number in range(1, 1501)]
    assert await ledger.commit(bind(lease, range(1, count + 1), 0, nodes=nodes)) == COMMITTED
    loads = [load_node(number, 1, cpu=number) for number in range(1500, 0, -1)]
    assert await ledger.commit(bind(lease, range(count + 1, 2 * count + 1), count, nodes=loads)) == COMMITTED
    state = await loaded(ledger, [lease])
    assert len(state.placements) == 2 * count
    assert [(n.version, n.requested) for n in state.nodes] == [(2, {"cpu": n}) for n in range(1, 1501)]


# ------------------------------------------------------------------------------------------ offsets, fencing


async def test_an_offset_that_is_elsewhere_is_fenced(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1, 2], 0)) == COMMITTED
    await refuses(backend, ledger, bind(lease, [3], 1), FENCED)
    await refuses(backend, ledger, bind(lease, [3], 3), FENCED)
    assert await ledger.commit(bind(lease, [3], 2)) == COMMITTED


async def test_an_offset_row_that_does_not_exist_is_fenced(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    unknown = advance(lease, 0, 1)._replace(partition=9)
    await refuses(backend, ledger, bind(lease, [1], 0, advances=[advance(lease, 0, 1), unknown]), FENCED)


async def test_a_stale_epoch_writes_nothing(backend: Backend, ledger: Ledger) -> None:
    old, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(old, [1], 0)) == COMMITTED
    await backend.pass_time(3600)
    other = backend.ledger()
    new, _ = await start(other, SHARDS, "other")
    assert new.epoch == old.epoch + 1
    await refuses(backend, ledger, bind(old, [2], 1), FENCED)
    assert await ledger.resolve(bind(old, [2], 1)) is NotCommitted.FENCED
    assert await other.commit(bind(new, [2], 1)) == COMMITTED
    await refuses(backend, ledger, bind(old, [3], 2), FENCED)


async def test_a_stale_epoch_of_one_shard_fences_the_whole_batch(backend: Backend, ledger: Ledger) -> None:
    first, second = await start(ledger, SHARDS)
    stale = Lease(second.shard, second.epoch - 1)
    both = bind(first, [1], 0, advances=[advance(first, 0, 1), advance(stale, 0, 1)])
    await refuses(backend, ledger, both, FENCED)


async def test_a_stale_epoch_of_a_shard_that_moves_nothing_fences_the_whole_batch(
    backend: Backend, ledger: Ledger
) -> None:
    """A pod of it may wait on in another group, and another owner may have placed it meanwhile."""
    first, second = await start(ledger, SHARDS)

    def batch(lease: Lease) -> CommitBatch:
        pod = waiting(lease, "p", 1)
        return bind(first, [1], 0, shards=dict([first, lease]), pending_added=[pod])

    await refuses(backend, ledger, batch(Lease(second.shard, second.epoch - 1)), FENCED)
    assert await ledger.commit(batch(second)) == COMMITTED
    assert [pod.shard for pod in (await loaded(ledger, [second])).pending] == [1]


async def test_a_shard_may_decide_without_events_of_its_own_but_not_with_a_stale_epoch(
    backend: Backend, ledger: Ledger
) -> None:
    first, second = await start(ledger, SHARDS)

    def batch(lease: Lease) -> CommitBatch:
        made = decision(lease, 1, "woken", "n1")
        return batch_of(
            advances=[advance(first, 0, 1)],
            made=[record(made)],
            opened=[opened(made)],
            seq_next={lease.shard: 2},
        )

    await refuses(backend, ledger, batch(Lease(second.shard, second.epoch - 1)), FENCED)
    assert await ledger.commit(batch(second)) == COMMITTED
    assert (await loaded(ledger, [second])).seq_next == {1: 2}


async def test_sending_a_committed_batch_again_is_fenced_and_resolves_as_committed(
    backend: Backend, ledger: Ledger
) -> None:
    lease, _ = await start(ledger, SHARDS)
    batch = everything(lease)
    assert await ledger.resolve(batch) is NotCommitted.ABSENT
    assert await ledger.commit(batch) == COMMITTED
    await refuses(backend, ledger, batch, FENCED)
    assert await ledger.resolve(batch) == Committed()
    assert await ledger.commit(bind(lease, [4], 5)) == COMMITTED
    assert await ledger.resolve(batch) is NotCommitted.FENCED  # it is history: nobody may ask any more


async def test_a_batch_without_events_is_told_apart_by_its_decisions(
    backend: Backend, ledger: Ledger
) -> None:
    lease, _ = await start(ledger, SHARDS)
    batch = bind(lease, [1], 0, advances=[advance(lease, 0, 0)], nodes=[new_node(1)])
    assert await ledger.resolve(batch) is NotCommitted.ABSENT
    assert await ledger.commit(batch) == COMMITTED
    assert await ledger.resolve(batch) == Committed()
    await refuses(backend, ledger, batch, FENCED)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"advances": []}, "no offset row"),
        ({"made": [], "opened": [], "seq_next": {}, "advances": "still"}, "moves no offset"),
        ({"seq_next": {0: 3}}, "without a hole"),
        ({"seq_next": {}}, "without its next seq"),
        ({"advances": "backwards"}, "backwards"),
        ({"facts": [new_node(1), new_node(1)]}, "twice"),
        ({"facts": [change_node(1, 0)]}, "without a spec"),
    ],
)
async def test_a_batch_that_could_not_be_resolved_or_is_malformed_is_refused(
    backend: Backend, ledger: Ledger, change: dict[str, Any], why: str
) -> None:
    lease, _ = await start(ledger, SHARDS)
    moves = {"still": [advance(lease, 0, 0)], "backwards": [advance(lease, 1, 0)]}
    offsets = change.get("advances")
    changes = {**change, "advances": moves[offsets]} if isinstance(offsets, str) else change
    before = await backend.dump()
    with pytest.raises(ValueError, match=why):
        await ledger.commit(bind(lease, [1], 0, **changes))
    assert await backend.dump() == before
