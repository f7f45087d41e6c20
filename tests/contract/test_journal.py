"""Does every ledger keep one row per batch, and checkpoints from which its state comes back exactly?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from domain.model.errors import Fenced, LedgerMismatch
from domain.model.profiles import BUILT_IN_PROFILES
from services.ports.history import Superseded
from services.ports.journal import (
    Checkpoint,
    Journalled,
    JournalRow,
    Lane,
    Owned,
    Start,
    pack_order,
    unpack_order,
)
from services.ports.ledger import CommitBatch, Committed, Lease, Ledger, LedgerState, NotCommitted
from services.ports.log import PODS_TOPIC
from tests.batches import batch_of, changed
from tests.contract.batches import AT_MS, advance, bind, everything
from tests.contract.ledgers import SHARDS, Backend, loaded, start

COMMITTED, FENCED = Committed(), NotCommitted.FENCED


def began(leases: Sequence[Lease]) -> Start:
    return Start(
        worker="w",
        build="1.2",
        seed=2**63 - 1,
        usage_window_seconds=60,
        tombstone_hours=168,
        profiles=BUILT_IN_PROFILES,
        writers={PODS_TOPIC: "CN=ä"},
        leases=dict(leases),
        offsets=[(lease.shard, PODS_TOPIC, lease.shard, 0) for lease in leases],
    )


def row(number: int, start: Start | None = None, digest: str | None = None) -> JournalRow:
    return JournalRow(
        shard=0,
        batch=number,
        start=start,
        renewed=start is None,
        lanes=[Lane(0, PODS_TOPIC, 0, 0, 5)],
        order=pack_order([0] * 5),
        seqs={0: (1, 4)},
        log_time_ms=AT_MS,
        decisions_hash=b"\0" * 32,
        effects={"nodes": "00ff"},
        digest=digest,
        worker="w",
        owned=[Owned(leases={0: 3, 7: 2**40}, offsets=[(7, PODS_TOPIC, 7, 9)], followed={1: 2**40})],
        followed={3: 2**40},
        forgotten=["ns/ä"],
        lost=[2**40],
        moved={5: 2},
        feed=b"\0\xff",
    )


def journalled(batch: CommitBatch, journal: JournalRow) -> CommitBatch:
    return changed(batch, row=journal)


async def rows_of(backend: Backend, first: int = 1, last: int = 100) -> list[JournalRow]:
    found = [each async for each in backend.history().rows({0: first - 1}, {0: last})]
    return [msgspec.structs.replace(each, position=0) for each in found]


def test_the_order_of_records_comes_back() -> None:
    for order in ([], [0], [0, 1, 0, 1023, 65535]):
        assert list(unpack_order(pack_order(order))) == order


async def test_a_batch_and_its_row_are_written_together(backend: Backend, ledger: Ledger) -> None:
    leases = await start(ledger, SHARDS)
    assert await ledger.journalled(0) is None
    assert await backend.history().span() is None
    first = row(1, began(leases))
    assert await ledger.commit(journalled(everything(leases[0]), first)) == COMMITTED
    assert await ledger.journalled(0) == Journalled(1, None, None)
    stale = journalled(bind(leases[0], [4], 0), row(2))
    assert await ledger.commit(stale) is FENCED
    assert await ledger.commit(journalled(bind(leases[0], [4], 5), row(2, digest="d"))) == COMMITTED
    assert await rows_of(backend) == [first, row(2, digest="d")]
    assert await rows_of(backend, 2, 2) == [row(2, digest="d")]
    assert await backend.history().span() == (1, 2)
    assert await ledger.journalled(0) == Journalled(2, "d", None)
    other = msgspec.structs.replace(row(1), shard=1)
    assert await ledger.commit(journalled(bind(leases[1], [1], 0), other)) == COMMITTED
    assert await ledger.journalled(0) == Journalled(2, None, None), "the state is another one since"


async def test_a_second_row_of_a_batch_is_refused_with_its_batch(backend: Backend, ledger: Ledger) -> None:
    leases = await start(ledger, SHARDS)
    assert await ledger.commit(journalled(everything(leases[0]), row(1))) == COMMITTED
    before = await backend.dump()
    with pytest.raises(LedgerMismatch, match="journal_pkey"):
        await ledger.commit(journalled(bind(leases[0], [4], 5), row(1)))
    assert await backend.dump() == before


async def test_decisions_come_back_as_they_were_recorded(backend: Backend, ledger: Ledger) -> None:
    leases = await start(ledger, SHARDS)
    batch = everything(leases[0])
    await ledger.commit(batch)
    payloads = [payload for _, payload in batch.decisions.made]
    assert list(await backend.history().decisions({0: (1, 4)})) == payloads
    assert list(await backend.history().decisions({0: (2, 3), 1: (1, 9)})) == payloads[1:2]


async def test_the_batch_of_a_decision_is_found_and_where_all_journals_were_then(
    backend: Backend, ledger: Ledger
) -> None:
    leases = await start(ledger, SHARDS)
    history = backend.history()
    assert await history.batch_of(0, 1) is None
    await ledger.commit(journalled(everything(leases[0]), row(1)))
    other = msgspec.structs.replace(row(1), shard=1, seqs={1: (1, 1), 2: (7, 9)})
    await ledger.commit(journalled(bind(leases[1], [1], 0), other))
    await ledger.commit(
        journalled(bind(leases[0], [4], 5), msgspec.structs.replace(row(2), seqs={0: (4, 9)}))
    )
    found = [await history.batch_of(*each) for each in ((0, 1), (0, 3), (0, 4), (0, 8), (2, 8))]
    assert [each and (each.shard, each.batch) for each in found] == [(0, 1), (0, 1), (0, 2), (0, 2), (1, 1)]
    assert found[4] is not None
    assert (found[4].seqs, found[4].feed) == (other.seqs, other.feed)
    assert [await history.batch_of(*each) for each in ((0, 9), (1, 1), (2, 6), (2, 9), (3, 1))] == [None] * 5
    assert [await history.batch_at(AT_MS, is_last=last) for last in (False, True)] == [1, 2]
    assert await history.batch_at(AT_MS + 1, is_last=False) is None
    assert await history.batch_at(AT_MS - 1, is_last=True) is None
    assert await history.ends(1) == {0: 1}
    assert await history.ends(1, 1) == {0: 1, 1: 1}
    assert await history.ends(2) == {0: 2, 1: 1}


# ------------------------------------------------------------------------------------------------ checkpoints


def mark(leases: Sequence[Lease], batch: int, state: LedgerState) -> Checkpoint:
    return Checkpoint(shard=0, batch=batch, start=began(leases), offsets=state.offsets)


async def test_a_checkpoint_gives_back_what_load_gives(backend: Backend, ledger: Ledger) -> None:
    leases = await start(ledger, SHARDS)
    empty = await loaded(ledger, leases)
    await ledger.write_checkpoint(mark(leases, 0, empty), 9, lambda: None)
    assert await ledger.journalled(0) == Journalled(0, None, 0)
    await ledger.commit(journalled(everything(leases[0]), row(1)))
    state = await loaded(ledger, leases)
    await ledger.write_checkpoint(mark(leases, 1, state), 9, lambda: None)
    assert await ledger.journalled(0) == Journalled(1, None, 1)
    history = backend.history()
    kept = await history.checkpoints()
    assert list(kept) == [mark(leases, 0, empty), mark(leases, 1, state)]
    assert [await history.state(each) for each in kept] == [empty, state]
    assert state.placements
    assert state.usage


async def test_what_is_committed_meanwhile_is_not_in_a_checkpoint(backend: Backend, ledger: Ledger) -> None:
    leases = await start(ledger, SHARDS)
    state = await loaded(ledger, leases)
    held: list[bool] = []
    await ledger.write_checkpoint(mark(leases, 0, state), 9, lambda: held.append(True))
    await ledger.commit(everything(leases[0]))
    assert held == [True]
    (kept,) = await backend.history().checkpoints()
    assert await backend.history().state(kept) == state


async def test_a_checkpoint_of_a_ledger_that_moved_on_is_refused(backend: Backend, ledger: Ledger) -> None:
    leases = await start(ledger, SHARDS)
    before = await loaded(ledger, leases)
    assert await ledger.commit(batch_of(advances=[advance(leases[0], 0, 1)])) == COMMITTED
    held: list[bool] = []
    with pytest.raises(Fenced):
        await ledger.write_checkpoint(mark(leases, 0, before), 9, lambda: held.append(True))
    now = await loaded(ledger, leases)
    other = [Lease(lease.shard, lease.epoch + 1) for lease in leases]
    with pytest.raises(Fenced):
        await ledger.write_checkpoint(mark(other, 0, now), 9, lambda: held.append(True))
    assert not held
    assert not await backend.history().checkpoints()


async def test_the_latest_checkpoints_stay(backend: Backend, ledger: Ledger) -> None:
    leases = await start(ledger, SHARDS)
    state = await loaded(ledger, leases)
    for batch in (0, 7, 7, 9, 12):
        await ledger.write_checkpoint(mark(leases, batch, state), 2, lambda: None)
    history = backend.history()
    kept = await history.checkpoints()
    assert [each.batch for each in kept] == [9, 12]
    assert [await history.state(each) for each in kept] == [state, state]


async def test_a_checkpoint_that_workers_drop_before_it_is_read_is_named(
    backend: Backend, ledger: Ledger
) -> None:
    leases = await start(ledger, SHARDS)
    state = await loaded(ledger, leases)
    history = backend.history()
    await ledger.write_checkpoint(mark(leases, 0, state), 1, lambda: None)
    (first,) = await history.checkpoints()
    await ledger.write_checkpoint(mark(leases, 7, state), 1, lambda: None)
    with pytest.raises(Superseded, match="after batch 0 was dropped"):
        await history.state(first)
