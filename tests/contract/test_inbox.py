"""Does every ledger hand an event over once, with the batch that read it, and to whoever holds its home?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from domain.model.errors import LedgerMismatch
from services.codec.effects import journal_row
from services.ports.inbox import Forwarded, Handed, InboxRecord, Waiting, handed_topic, inbox_topic
from services.ports.journal import JournalRow
from services.ports.ledger import CommitBatch, Committed, Lease, Ledger, NotCommitted, OffsetAdvance
from services.ports.log import PODS_TOPIC
from tests.batches import batch_of, changed
from tests.contract.batches import AT_MS, advance
from tests.contract.ledgers import BACKENDS, LEASE_SECONDS, Backend, open_backend, refuses, start_two
from tests.servers import MakeDatabase

Writer = tuple[Ledger, Lease]


@pytest_asyncio.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Backend]:
    """Return each kind of ledger in turn."""
    async with open_backend(request.param, request, database) as found:
        yield found


@pytest_asyncio.fixture
async def writers(backend: Backend) -> tuple[Writer, Writer]:
    """Return two writers with a shard each."""
    return await start_two(backend)


def handed(lo: int, hi: int, home: int = 1, source: int = 0) -> list[Handed]:
    return [
        Handed(
            home, source, number, 40 + number, b"ns/p%d" % number, b"{}" if number else None, AT_MS, b"seal"
        )
        for number in range(lo, hi)
    ]


def hand_over(lease: Lease, lo: int, hi: int, **more: Any) -> CommitBatch:
    """Return the batch that hands events over from shard 0 to shard 1."""
    lane = OffsetAdvance(lease.shard, handed_topic(1), lease.shard, lease.epoch, lo, hi)
    return batch_of(advances=[advance(lease, lo, hi), lane], handed=handed(lo, hi), **more)


def fold(lease: Lease, lo: int, hi: int) -> CommitBatch:
    """Return the batch that takes them."""
    return batch_of(advances=[OffsetAdvance(1, inbox_topic(0), 1, lease.epoch, lo, hi)])


async def test_what_was_handed_over_is_read_in_order_and_up_to_where_it_is_committed(
    writers: tuple[Writer, Writer],
) -> None:
    (first, lease), (second, _) = writers
    assert await first.commit(hand_over(lease, 0, 3)) == Committed()
    assert await first.commit(hand_over(lease, 3, 5)) == Committed()
    assert list(await second.read_inbox([Waiting(1, 0, 0, 9)], 100)) == handed(0, 5)
    assert list(await second.read_inbox([Waiting(1, 0, 1, 4), Waiting(1, 1, 0, 4)], 4)) == handed(1, 3)
    assert list(await second.read_inbox([], 4)) == []
    record = handed(3, 4)[0].record()
    assert (record.topic, record.partition, record.offset) == (inbox_topic(0), 1, 3)
    assert isinstance(record, InboxRecord)
    assert record.read[:5] == (PODS_TOPIC, 0, 43, b"ns/p3", b"{}")
    assert (record.read.timestamp_ms, record.read.seal, record.seal) == (AT_MS, b"seal", b"seal")


async def test_both_ends_of_an_inbox_are_offsets_that_fence(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    (first, lease), (second, other) = writers
    await first.commit(hand_over(lease, 0, 3))
    await refuses(backend, first, hand_over(lease, 0, 3), NotCommitted.FENCED)
    await refuses(backend, first, hand_over(lease, 4, 5), NotCommitted.FENCED)
    assert await second.commit(fold(other, 0, 2)) == Committed()
    await refuses(backend, second, fold(other, 0, 2), NotCommitted.FENCED)
    lanes = {(0, handed_topic(1)): 3, (1, inbox_topic(0)): 2}
    assert (await second.load_base()).lanes == lanes
    part = await second.load_part([other])
    assert part.offsets[1, inbox_topic(0), 1] == 2


async def test_a_new_owner_of_the_home_goes_on_where_the_last_one_was(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    (first, lease), (second, other) = writers
    await first.commit(hand_over(lease, 0, 3))
    await second.commit(fold(other, 0, 1))
    third = backend.ledger()
    await second.release([other])
    (taken,) = await third.acquire("third", LEASE_SECONDS, [1])
    await refuses(backend, second, fold(other, 1, 3), NotCommitted.FENCED)
    assert (await third.load_part([taken])).offsets[1, inbox_topic(0), 1] == 1
    assert await third.commit(fold(taken, 1, 3)) == Committed()


async def test_an_unknown_outcome_of_the_first_use_of_an_inbox_is_resolved(
    writers: tuple[Writer, Writer],
) -> None:
    (first, lease), _ = writers
    batch = hand_over(lease, 0, 3)
    assert await first.resolve(batch) is NotCommitted.ABSENT
    await first.commit(batch)
    assert await first.resolve(batch) == Committed()
    assert await first.resolve(hand_over(lease, 3, 4)) is NotCommitted.ABSENT


async def test_no_event_is_written_under_a_number_that_is_taken(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    (first, lease), _ = writers
    await first.commit(hand_over(lease, 0, 3))
    before = await backend.dump()
    with pytest.raises(LedgerMismatch, match="inbox_pkey"):
        await first.commit(batch_of(advances=[advance(lease, 3, 4)], handed=handed(2, 3)))
    assert await backend.dump() == before


async def test_where_the_events_of_a_key_go_is_kept_for_the_next_owner_of_the_shard(
    writers: tuple[Writer, Writer],
) -> None:
    (first, lease), (second, other) = writers
    live, gone = Forwarded(0, "ns/a", 1, "u1"), Forwarded(0, "ns/b", 1, "u2", 5, AT_MS)
    await first.commit(hand_over(lease, 0, 1, forwarded=[live, gone]))
    assert list((await first.load_part([lease])).forwarded) == [live, gone]
    assert list((await second.load_part([other])).forwarded) == []
    later = live._replace(gone_number=7, gone_at_ms=AT_MS + 1)
    former, last = gone._replace(gone_number=None), Forwarded(0, "ns/b", 2, "u3")
    await first.commit(hand_over(lease, 1, 2, forwarded=[later, last, former]))
    rows = list((await first.load_part([lease])).forwarded)
    assert rows == [later, former, last]
    assert [row.is_last for row in rows] == [True, False, True]


async def test_followers_are_told_how_far_inboxes_are_and_a_replay_reads_them_again(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    (first, lease), (second, _) = writers
    batch = hand_over(lease, 0, 3)
    row = journal_row(batch, [], JournalRow(shard=0, batch=1), None)
    await first.commit(changed(batch, row=row))
    (followed,) = await second.follow({0: 0})
    assert [tuple(lane) for lane in followed.feed.lanes] == [(0, handed_topic(1), 3)]
    history = backend.history()
    assert list(await history.inbox(Waiting(1, 0, 1, 3))) == handed(1, 3)
    assert list(await history.inbox(Waiting(1, 0, 2, 9))) == handed(2, 3)
