"""Does a ledger keep which pods have to leave a hot node, until they left or may stay, and it has rested?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import orjson
import pytest
import pytest_asyncio

from domain.model.decisions import Outcome
from domain.model.errors import LedgerMismatch
from services.codec.checkpoint import pack_head, pack_rows, unpack_state
from services.codec.effects import journal_row
from services.codec.feed import pack_feed, unpack_feed
from services.ports.guards import Guard
from services.ports.journal import BATCHES, Feed, JournalRow, MovesFed
from services.ports.ledger import CommitBatch, Committed, Lease, Ledger, MoveRow, PlacementClosed
from services.ports.log import TopicPartition
from services.ports.outbox import Stream
from tests.batches import batch_of, changed
from tests.contract.batches import AT_MS, advance, bind, change_node, decision, load_node, new_node, record
from tests.contract.ledgers import BACKENDS, Backend, open_backend, start_two
from tests.servers import MakeDatabase

Writer = tuple[Ledger, Lease]


@pytest_asyncio.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Backend]:
    """Return each kind of ledger in turn."""
    async with open_backend(request.param, request, database) as found:
        yield found


@pytest_asyncio.fixture
async def writers(backend: Backend) -> tuple[Writer, Writer]:
    """Return two writers with a shard each. Two pods of the first one are on node 1."""
    first, second = await start_two(backend)
    for ledger, lease in (first, second):
        await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    await commit(first, bind(first[1], [1, 2], 0, facts=[new_node(1, delta={"cpu": 2000, "pods": 2})]))
    return first, second


async def commit(writer: Writer, batch: CommitBatch) -> None:
    assert await writer[0].commit(batch) == Committed()


def move_of(number: int, by: int, node: str = "n1") -> MoveRow:
    """Return the move of a pod of the first writer, which a shard decides."""
    return MoveRow(
        node=node,
        pod_uid=f"uid-p0-{number}",
        shard=0,
        namespace="ns",
        name=f"p0-{number}",
        target="n7",
        decided_by=by,
        at_ms=AT_MS,
        expires_ms=AT_MS + 60_000,
        rests_until_ms=AT_MS + 300_000,
    )


def relieve(writer: Writer, *pods: int, version: int = 1, batch: int = 1, **more: Any) -> CommitBatch:
    """Return the batch by which pods have to leave node 1."""
    lease = writer[1]
    seq = 1 if lease.shard else 3
    made = [
        record(decision(lease, seq + i, f"p0-{number}", "n1", outcome=Outcome.EVICTED))
        for i, number in enumerate(pods)
    ]
    planned = batch_of(
        advances=count(lease, batch),
        shards={lease.shard: lease.epoch},
        claims=[load_node(1, version)],
        made=made,
        moved=[move_of(number, lease.shard) for number in pods],
        seq_next={lease.shard: seq + len(pods)},
        **more,
    )
    return changed(planned, row=journal_row(planned, [], JournalRow(shard=lease.shard, batch=batch), "d"))


def count(lease: Lease, batch: int) -> list[Any]:
    return [advance(lease, batch - 1, batch)._replace(topic=BATCHES, partition=0)]


def then(writer: Writer, batch: int, **what: Any) -> CommitBatch:
    """Return a further batch of a writer."""
    planned = batch_of(advances=count(writer[1], batch), shards={writer[1].shard: writer[1].epoch}, **what)
    row = JournalRow(shard=writer[1].shard, batch=batch, feed=pack_feed(planned))
    return changed(planned, row=row)


async def moves_of(writer: Writer) -> dict[str, bool]:
    """Return which moves a ledger knows, and whether each is under way."""
    return {row.pod_uid: row.is_open for row in (await writer[0].load_base()).moves}


async def test_a_move_is_loaded_as_it_was_written(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    await commit(second, relieve(second, 1, 2))
    assert list((await first[0].load_base()).moves) == [move_of(1, 1), move_of(2, 1)]


async def test_a_move_is_over_when_its_pod_is_gone_and_its_node_rests_on(
    writers: tuple[Writer, Writer],
) -> None:
    first, second = writers
    await commit(second, relieve(second, 1, 2))
    gone = [change_node(1, 2, {"cpu": -1000, "pods": -1})]
    await commit(first, then(first, 1, facts=gone, closed=[PlacementClosed("uid-p0-1", AT_MS)]))
    assert await moves_of(first) == {"uid-p0-1": False, "uid-p0-2": True}
    await commit(first, then(first, 2, spared=["n1"], rested=["n1"]))
    assert await moves_of(first) == {"uid-p0-1": False, "uid-p0-2": True}, "another shard decided"
    await commit(second, then(second, 2, spared=["n1"]))
    assert await moves_of(first) == {"uid-p0-1": False, "uid-p0-2": False}
    await commit(second, then(second, 3, rested=["n1"]))
    assert await moves_of(first) == {}


async def test_a_worker_that_is_late_evicts_no_pod(backend: Backend, writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    await commit(first, then(first, 1, facts=[change_node(1, 1)]))
    late = relieve(second, 1, 2)
    lost = Committed(lost_pods={"ns/p0-1": "uid-p0-1", "ns/p0-2": "uid-p0-2"}, lost_nodes=frozenset({1}))
    assert await second[0].commit(late) == lost
    assert await second[0].resolve(late) == lost
    assert await moves_of(first) == {}
    items = await backend.outbox().unpublished(1, Stream.DECISIONS, 0, 10)
    told = [orjson.loads(item.value) for item in items]
    assert [(row["outcome"], row["node"], row["reason"]) for row in told] == 2 * [
        ("spared", "n1", "another worker changed n1 first")
    ]
    (row,) = await first[0].follow({1: 0})
    assert row.feed.moves is None


async def test_a_budget_that_another_worker_used_keeps_all_pods_of_the_node(
    writers: tuple[Writer, Writer],
) -> None:
    first, second = writers
    guard = Guard(key="budget:ns/web", version_seen=0, raises=True, nodes=frozenset({1}))
    other = changed(then(first, 1, claims=[load_node(1, 1)]), guards=[guard])
    assert await first[0].commit(other) == Committed(raised=("budget:ns/web",))
    assert (await second[0].commit(relieve(second, 1, version=2, guards=[guard]))).lost_nodes == {1}  # type: ignore[union-attr]
    assert await moves_of(first) == {}


async def test_a_pod_that_would_have_to_leave_two_nodes_is_an_alarm(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    await commit(second, relieve(second, 1))
    with pytest.raises(LedgerMismatch, match="moves_open"):
        await first[0].commit(then(first, 1, moved=[move_of(1, 0, "n2")]))
    with pytest.raises(LedgerMismatch, match="moves_pkey"):
        await second[0].commit(then(second, 2, spared=["n1"], moved=[move_of(1, 1)]))
    await commit(second, then(second, 2, spared=["n1"], rested=["n1"], moved=[move_of(1, 1)]))
    assert await moves_of(first) == {"uid-p0-1": True}


async def test_others_read_of_it_in_the_feed(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    await commit(second, relieve(second, 1))
    await commit(second, then(second, 2, spared=["n1"]))
    await commit(second, then(second, 3, rested=["n1"]))
    fed = [row.feed.moves for row in await first[0].follow({1: 0})]
    assert [(moves.moved, moves.spared, moves.rested) for moves in fed if moves is not None] == [
        ([move_of(1, 1)], [], []),
        ([], ["n1"], []),
        ([], [], ["n1"]),
    ]


def test_a_checkpoint_keeps_moves_and_one_of_before_has_none() -> None:
    head = pack_head(offsets={}, refold_below={}, seq_next={0: 1}, dead_seq_next={0: 1}, log_time_ms=AT_MS)
    rows = [move_of(1, 0), msgspec.structs.replace(move_of(2, 0), is_open=False)]
    assert unpack_state(head, [("moves", pack_rows(rows))], b"").moves == rows
    assert unpack_state(head, [], b"").moves == []


def test_a_worker_of_before_reads_a_feed_with_moves() -> None:
    """Its feeds end before them."""
    fed = msgspec.msgpack.decode(pack_feed(batch_of(advances=[], moved=[move_of(1, 0)])))
    assert unpack_feed(msgspec.msgpack.encode(fed)).moves == MovesFed([move_of(1, 0)])
    names = Feed.__struct_fields__
    assert names[-2:] == ("moves", "hosted"), (
        "a decoder of an array passes over what is behind its last field"
    )
    assert unpack_feed(msgspec.msgpack.encode(fed[: names.index("moves")])).moves is None
