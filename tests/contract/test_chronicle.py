"""Does every ledger tell what happened to one object in one order, page by page, whichever source said it?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio

from domain.model.decisions import Outcome
from services.ports.chronicle import Chronicle, JournalKept, PastPlace, Rank, Window
from services.ports.ledger import Committed, Ledger
from services.ports.store import Store
from tests.contract.batches import AT_MS, change_node, decision, new_node, node_spec
from tests.contract.ledgers import SHARDS, Backend, start
from tests.streaming import made

Read = Callable[[Window], Awaitable[Sequence[Any]]]


@pytest_asyncio.fixture
async def past(backend: Backend, ledger: Ledger) -> Chronicle:
    """Return what happened to a pod of two shards on a node whose spec changed."""
    own, other = await start(ledger, SHARDS)

    async def commit(lease: Any, number: int, *made_: Any, **more: Any) -> None:
        seqs = range(made_[0].seq, made_[-1].seq + 1)
        batch = made(lease, seqs, number, decisions=list(made_), **more)
        assert await ledger.commit(batch) == Committed()

    at: dict[str, Any] = {"decided_at_ms": AT_MS + 1000}
    await commit(own, 1, decision(own, 1, "web", "n1", **at), facts=[new_node(1, sent_by="key:ops")])
    evicted = {"outcome": Outcome.EVICTED, **at}
    leaves, stays = decision(other, 1, "web", "n1", **evicted), decision(other, 2, "web", "n1", **at)
    await commit(other, 1, leaves, stays, decision(other, 3, "other", "n1", **at))
    changed = change_node(1, 1, spec=node_spec("n1", unschedulable=True), spec_count=2)
    gone = decision(own, 2, "web", "n1", outcome=Outcome.RELEASED, decided_at_ms=AT_MS + 2000)
    await commit(own, 2, gone, decision(own, 3, "web", "n2", decided_at_ms=AT_MS + 3000), facts=[changed])
    store: Store = backend.store()
    return store.chronicle


async def pages(read: Read, limit: int, *, newest_first: bool) -> list[Any]:
    """Walk all pages of a source."""
    found: list[Any] = []
    after: PastPlace | None = None
    while page := await read(Window(limit, after, newest_first)):
        assert len(page) <= limit
        found += page
        after = page[-1].place
    return found


def readers(past: Chronicle) -> dict[str, Read]:
    return {
        "a pod": lambda window: past.of_pod("ns", "web", None, window),
        "a node": lambda window: past.on_node("n1", None, window),
        "specs": lambda window: past.specs("n1", window),
    }


async def test_a_pod_is_told_in_the_order_of_its_moments(past: Chronicle) -> None:
    rows = await past.of_pod("ns", "web", None, Window(100))
    assert [(row.row.shard, row.row.seq) for row in rows] == [(0, 1), (1, 2), (1, 1), (0, 2), (0, 3)]
    assert [row.place for row in rows] == sorted(row.place for row in rows)
    assert await past.of_pod("ns", "web", ["elsewhere"], Window(100)) == []
    assert len(await past.on_node("n1", ["ns"], Window(100))) == 5


async def test_pages_have_each_entry_once_in_both_orders(past: Chronicle) -> None:
    for name, read in readers(past).items():
        whole = list(await read(Window(100)))
        assert whole, name
        for limit in range(1, len(whole) + 2):
            assert await pages(read, limit, newest_first=False) == whole, name
            assert await pages(read, limit, newest_first=True) == whole[::-1], name


async def test_a_place_of_another_source_is_one_in_each(past: Chronicle) -> None:
    places = [row.place for read in readers(past).values() for row in await read(Window(100))]
    places += [place._replace(rank=rank) for place in places for rank in Rank]
    places += [place._replace(recorded_us=0, rank=Rank.ACTION) for place in places]
    for read in readers(past).values():
        whole = await read(Window(100))
        for place in places:
            later = [row for row in whole if row.place > place]
            assert list(await read(Window(100, place))) == later
            sooner = [row for row in whole if row.place < place][::-1]
            assert list(await read(Window(100, place, newest_first=True))) == sooner


async def test_a_window_is_of_its_time(past: Chronicle) -> None:
    rows = await past.of_pod("ns", "web", None, Window(9, since_ms=AT_MS + 1001, until_ms=AT_MS + 3000))
    assert [(row.row.shard, row.row.seq) for row in rows] == [(0, 2)]


async def test_a_node_has_all_its_specs(past: Chronicle) -> None:
    first, second = await past.specs("n1", Window(9))
    assert (first.is_first, first.spec.unschedulable, first.sent_by) == (True, False, "key:ops")
    assert (second.is_first, second.spec.unschedulable, second.deleted) == (False, True, False)
    assert await past.specs("n2", Window(9)) == []


async def test_a_journal_says_what_is_missing(backend: Backend, past: Chronicle) -> None:
    assert await past.journal(0) == JournalKept(1, 2, 0)
    assert await past.journal(9) is None
    assert await past.faults(0) == []


@pytest.mark.parametrize("shard", [1])
async def test_a_row_between_others_is_missed(backend: Backend, ledger: Ledger, shard: int) -> None:
    _, other = await start(ledger, SHARDS)
    for number in range(1, 4):
        assert await ledger.commit(made(other, range(number, number + 1), number)) == Committed()
    await backend.lose_batch(shard, 2)
    assert await backend.store().chronicle.journal(shard) == JournalKept(1, 3, 1)
