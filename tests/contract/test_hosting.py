"""Does every ledger keep what is said of hosted workloads, for workers, the relay and the API?"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from domain.model.hosting import HostedChange, ReplicasSaid, WaitSaid
from services.ports.ledger import Committed, Lease, Ledger, Scale
from services.ports.outbox import Outbox, Stream
from services.ports.store import Store
from tests.batches import batch_of
from tests.contract.batches import AT_MS, advance, config
from tests.contract.ledgers import LEASE_SECONDS, SHARDS, Backend, start


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store()


@pytest.fixture
def outbox(backend: Backend) -> Outbox:
    return backend.outbox()


def said(namespace: str, name: str, seq: int, **more: Any) -> ReplicasSaid:
    """Return what is said of an object."""
    first = ReplicasSaid(
        namespace=namespace,
        name=name,
        kind="ReplicaSet",
        workload="web",
        least=1,
        most=9,
        wanted=seq,
        running=2,
        waiting_since_ms=None,
        load_percent=12.5,
        reason="ä load",
        at_ms=AT_MS,
        seq=seq,
    )
    return replace(first, **more)


def scale(seq: int, name: str = "web") -> Scale:
    return Scale(seq, "a", name, AT_MS, b'{"seq":%d}' % seq)


def wait(shard: int, since_ms: int, workload: str = "web") -> WaitSaid:
    return WaitSaid(shard, "a", "ReplicaSet", workload, since_ms)


async def commit(ledger: Ledger, lease: Lease, at: int, hosted: HostedChange, *scales: Scale) -> None:
    batch = batch_of(advances=[advance(lease, at, at + 1)], hosted=hosted, scales=scales, log_time_ms=AT_MS)
    assert await ledger.commit(batch) == Committed()


async def test_a_worker_reads_what_was_said_last(ledger: Ledger) -> None:
    lease, other = await start(ledger, SHARDS)
    assert (await ledger.load_base()).replicas == []
    first = said("a", "web", 1, waiting_since_ms=AT_MS - 9, load_percent=None)
    await commit(
        ledger, lease, 0, HostedChange([said("b", "db", 2), first], [], [wait(0, 5)]), scale(1), scale(2)
    )
    await commit(ledger, other, 0, HostedChange(waits=[wait(1, 7), wait(1, 8, "db")]))
    base, part = await ledger.load_base(), await ledger.load_part([lease])
    assert base.replicas == [first, said("b", "db", 2)]
    assert base.waits == [wait(0, 5), wait(1, 8, "db"), wait(1, 7)]
    assert part.scale_seq == 2
    again = said("a", "web", 3)
    await commit(ledger, lease, 1, HostedChange([again], [("b", "db")], [wait(0, 6)]), scale(3))
    await commit(ledger, other, 1, HostedChange(waits=[wait(1, 0)]))
    base, part = await ledger.load_all()
    assert base.replicas == [again]
    assert base.waits == [wait(0, 6), wait(1, 8, "db")]
    assert part.scale_seq == 3


async def test_a_relay_reads_scales_in_order_and_of_one_shard(ledger: Ledger, outbox: Outbox) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await outbox.unpublished(0, Stream.SCALES, 0, 9) == []
    await commit(ledger, lease, 0, HostedChange(), scale(1), scale(2, "db"))
    await commit(ledger, lease, 1, HostedChange(), scale(3))
    items = await outbox.unpublished(0, Stream.SCALES, 0, 9)
    assert [item.seq for item in items] == [1, 2, 3]
    assert [item.key for item in items] == [b"a/web", b"a/db", b"a/web"]
    assert items[1].value == b'{"seq":2}'
    assert [item.seq for item in await outbox.unpublished(0, Stream.SCALES, 1, 1)] == [2]
    assert await outbox.unpublished(1, Stream.SCALES, 0, 9) == []
    epoch = await outbox.acquire(0, "relay", LEASE_SECONDS)
    assert await outbox.mark_published(0, Stream.SCALES, epoch, 2)
    assert await outbox.published(0, Stream.SCALES) == 2
    assert await outbox.published(0, Stream.DECISIONS) == 0


async def test_time_passes_in_a_quiet_log_where_replicas_are_hosted(ledger: Ledger, outbox: Outbox) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await outbox.timed() is None
    thing = config("web", kind="HostedReplicas", namespace="a", object={"least": 1})
    first = batch_of(
        advances=[advance(lease, 0, 1)], config=[thing], log_time_ms=AT_MS, due_ms=AT_MS + 30_000
    )
    assert await ledger.commit(first) == Committed()
    assert await outbox.timed() == (AT_MS, AT_MS + 30_000)
    gone = replace(thing, object=None, resource_version=7)
    last = HostedChange([said("a", "web", 1)])
    then = batch_of(
        advances=[advance(lease, 1, 2)],
        config=[gone],
        hosted=last,
        scales=[scale(1)],
        log_time_ms=AT_MS,
        due_ms=AT_MS + 30_000,
    )
    assert await ledger.commit(then) == Committed()
    assert await outbox.timed() == (AT_MS, AT_MS + 30_000), "what was said of it is yet to be withdrawn"
    await commit(ledger, lease, 2, HostedChange([], [("a", "web")]))
    assert await outbox.timed() is None


async def test_what_is_said_is_shown_page_by_page_to_those_who_may_see_it(
    ledger: Ledger, store: Store
) -> None:
    lease, _ = await start(ledger, SHARDS)
    names = (("a", "db"), ("a", "web"), ("b", "web"), ("c", "web"))
    rows = [said(namespace, name, seq) for seq, (namespace, name) in enumerate(names, 1)]
    await commit(ledger, lease, 0, HostedChange(rows[::-1]), *(scale(seq) for seq in range(1, 5)))
    ask = store.processes.replicas
    assert list(await ask(None, None, None, 9, None)) == rows
    assert list(await ask("a", None, None, 9, None)) == rows[:2]
    assert list(await ask("a", "web", None, 9, None)) == [rows[1]]
    assert list(await ask(None, None, frozenset({"b", "c"}), 9, None)) == rows[2:]
    assert list(await ask("a", None, frozenset({"b"}), 9, None)) == []
    page = await ask(None, None, None, 3, None)
    assert (list(page), page.more) == (rows[:3], True)
    page = await ask(None, None, None, 3, ("b", "web"))
    assert (list(page), page.more) == (rows[3:], False)
