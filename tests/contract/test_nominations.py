"""Does every ledger promise a node to one pod, evict nobody for two, and take both back together?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import orjson
import pytest
import pytest_asyncio

from domain.model.decisions import Outcome
from domain.model.errors import LedgerMismatch
from domain.model.pods import PodTemplate
from domain.state.nominations import Victim
from services.codec.effects import journal_row
from services.codec.feed import pack_feed
from services.ports.journal import BATCHES, JournalRow
from services.ports.ledger import (
    CommitBatch,
    Committed,
    Lease,
    Ledger,
    NominationRow,
    PlacementClosed,
)
from services.ports.log import TopicPartition
from services.ports.outbox import Stream
from tests.batches import batch_of, changed
from tests.contract.batches import (
    AT_MS,
    SIGNATURE,
    advance,
    bind,
    change_node,
    decision,
    load_node,
    new_node,
    opened,
    record,
    waiting,
)
from tests.contract.ledgers import BACKENDS, Backend, loaded, open_backend, start_two
from tests.servers import MakeDatabase

Writer = tuple[Ledger, Lease]
WANTED = b"another-16-bytes"
PLACED = [Victim(f"ns/p0-{seq}", f"uid-p0-{seq}", 0) for seq in (1, 2)]
"""Pods of the first writer on node 1."""


@pytest_asyncio.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Backend]:
    """Return each kind of ledger in turn."""
    async with open_backend(request.param, request, database) as found:
        yield found


@pytest_asyncio.fixture
async def writers(backend: Backend) -> tuple[Writer, Writer]:
    """Return two writers with a shard each. Two pods are on node 1, and in each shard one waits."""
    first, second = await start_two(backend)
    for ledger, lease in (first, second):
        await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    nodes = [new_node(1, delta={"cpu": 2000, "pods": 2})]
    await commit(first, bind(first[1], [1, 2], 0, facts=nodes))
    for ledger, lease in (first, second):
        waits = waiting(lease, f"high-{lease.shard}", 1, signature=WANTED)
        given: dict[str, Any] = {
            "templates": {WANTED: PodTemplate(requests={"cpu": 9})},
            "pending_added": [waits],
        }
        await commit((ledger, lease), batch_of(advances=[advance(lease, lo(lease), 3)], **given))
    return first, second


def lo(lease: Lease) -> int:
    return 2 if lease.shard == 0 else 0


async def commit(writer: Writer, batch: CommitBatch) -> None:
    assert await writer[0].commit(batch) == Committed()


def nominate(writer: Writer, seq: int, batch: int, victims: list[Victim], version: int = 1) -> CommitBatch:
    """Return the batch that promises node 1 to the waiting pod of a writer's shard."""
    lease = writer[1]
    pod, shard = f"high-{lease.shard}", lease.shard
    first = decision(lease, seq, pod, "n1", outcome=Outcome.NOMINATED, signature=WANTED)
    others = [
        decision(lease, seq + i, victim.uid.removeprefix("uid-"), "n1", outcome=Outcome.EVICTED)
        for i, victim in enumerate(victims, 1)
    ]
    row = NominationRow(
        pod_uid=first.pod_uid,
        namespace="ns",
        name=pod,
        shard=shard,
        signature=WANTED,
        node="n1",
        at_ms=AT_MS,
        expires_ms=AT_MS + 60_000,
        victims=tuple(victims),
    )
    made = batch_of(
        advances=[advance(lease, 3, 3), *count(lease, batch)],
        shards={shard: lease.epoch},
        claims=[load_node(1, version)],
        made=[record(first, version + 1), *(record(each) for each in others)],
        nominated=[row],
        seq_next={shard: seq + len(victims) + 1},
    )
    return changed(made, row=journal_row(made, [], JournalRow(shard=shard, batch=batch), "d"))


def count(lease: Lease, batch: int) -> list[Any]:
    return [advance(lease, batch - 1, batch)._replace(topic=BATCHES, partition=0)]


async def promised(writer: Writer) -> dict[str, list[str]]:
    """Return to which pods a node is promised, each with those who have to leave it."""
    base = await writer[0].load_base()
    assert {row.signature for row in base.nominations} <= base.templates.keys()
    return {row.pod_uid: [victim.uid for victim in row.victims] for row in base.nominations}


async def test_a_nomination_is_loaded_with_those_of_its_victims_that_have_not_left(
    writers: tuple[Writer, Writer],
) -> None:
    first, second = writers
    await commit(second, nominate(second, 1, 1, PLACED))
    base = await first[0].load_base()
    (row,) = base.nominations
    assert (row.key, row.shard, row.node, row.expires_ms) == ("ns/high-1", 1, "n1", AT_MS + 60_000)
    assert sorted(row.victims) == PLACED
    gone = [change_node(1, 2, {"cpu": -1000, "pods": -1})]
    closed = [PlacementClosed(PLACED[0].uid, AT_MS)]
    await commit(first, batch_of(advances=[advance(first[1], 3, 4)], facts=gone, closed=closed))
    assert await promised(first) == {"uid-high-1": [PLACED[1].uid]}


async def test_a_nomination_ends_with_what_is_left_of_its_evictions(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    await commit(second, nominate(second, 1, 1, PLACED))
    foreign = batch_of(advances=[advance(first[1], 3, 4)], unnominated=["uid-high-1"])
    await commit(first, foreign)
    assert await promised(first) == {"uid-high-1": [each.uid for each in PLACED]}, "it is of another shard"
    await commit(second, batch_of(advances=[advance(second[1], 3, 4)], unnominated=["uid-high-1"]))
    assert await promised(first) == {}
    again = nominate(first, 3, 1, PLACED, version=2)
    moves = [advance(first[1], 4, 5), *count(first[1], 1)]
    await commit(first, changed(again, advances=moves))
    assert await promised(second) == {"uid-high-0": [each.uid for each in PLACED]}


async def test_a_bind_that_is_lost_leaves_the_promise_without_its_victims(
    writers: tuple[Writer, Writer],
) -> None:
    first, second = writers
    promise = nominate(second, 1, 1, PLACED)
    await commit(second, promise)
    seq, lease = len(PLACED) + 2, second[1]
    bound = decision(lease, seq, "high-1", "n1", signature=WANTED)
    (row,) = promise.pods.nominated
    batch = batch_of(
        advances=[advance(lease, 3, 4), *count(lease, 2)],
        shards={1: lease.epoch},
        claims=[load_node(1, 1)],  # it is at version 2 by now
        made=[record(bound, 2)],
        opened=[opened(bound)],
        pending_removed=["uid-high-1"],
        waited={"uid-high-1": (1, AT_MS, None)},
        unnominated=["uid-high-1"],
        kept={"uid-high-1": msgspec.structs.replace(row, victims=())},
        seq_next={1: seq + 1},
    )
    batch = changed(batch, row=journal_row(batch, [], JournalRow(shard=1, batch=2), "d"))
    lost = Committed(lost_pods={"ns/high-1": "uid-high-1"}, lost_nodes=frozenset({1}))
    assert await second[0].commit(batch) == lost
    assert await promised(first) == {"uid-high-1": []}
    state = await second[0].load_part([lease])
    assert [(pod.pod_uid, pod.tried) for pod in state.pending] == [("uid-high-1", True)]


async def test_of_two_who_take_the_same_pods_one_loses_all_of_it(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    """The node's version decides: nobody is evicted for two pods."""
    first, second = writers
    await commit(first, nominate(first, 3, 1, PLACED[:1]))
    lost = Committed(lost_pods={"ns/high-1": "uid-high-1"}, lost_nodes=frozenset({1}))
    assert await second[0].commit(nominate(second, 1, 1, PLACED)) == lost
    items = await backend.outbox().unpublished(1, Stream.DECISIONS, 0, 10)
    told = [orjson.loads(item.value) for item in items]
    assert [(row["seq"], row["pod"]["name"], row["outcome"], row["node"]) for row in told] == [
        (1, "high-1", "conflict", None),
        (2, "p0-1", "spared", "n1"),
        (3, "p0-2", "spared", "n1"),
    ]
    assert {row["reason"] for row in told} == {"another worker changed n1 first"}
    assert await promised(first) == {"uid-high-0": [PLACED[0].uid]}
    state = await loaded(second[0], [second[1]])
    assert [pod.pod_uid for pod in state.pending] == ["uid-high-1"], "it waits on"
    assert next(node.version for node in state.nodes) == 2
    assert await second[0].resolve(nominate(second, 1, 1, PLACED)) == lost


@pytest.mark.parametrize(
    ("what", "message"),
    [("pod", "nominations_pkey"), ("victim", "evictions_pkey")],
)
async def test_a_second_promise_or_eviction_is_an_alarm(
    writers: tuple[Writer, Writer], what: str, message: str
) -> None:
    first, second = writers
    await commit(first, nominate(first, 3, 1, PLACED[:1]))
    twice = (
        nominate(first, 5, 2, PLACED[1:], version=2)
        if what == "pod"
        else nominate(second, 1, 1, PLACED, version=2)
    )
    with pytest.raises(LedgerMismatch, match=message):
        await (first if what == "pod" else second)[0].commit(twice)


async def test_others_read_of_it_in_the_feed(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    await commit(second, nominate(second, 1, 1, PLACED))
    ended = batch_of(advances=[advance(second[1], 3, 4), *count(second[1], 2)], unnominated=["uid-high-1"])
    row = JournalRow(shard=1, batch=2, feed=pack_feed(ended))
    await commit(second, changed(ended, row=row))
    begins, ends = await first[0].follow({1: 0})
    (fed,) = begins.feed.nominated
    assert (fed.key, fed.uid, fed.shard, fed.node) == ("ns/high-1", "uid-high-1", 1, "n1")
    assert (fed.at_ms, fed.expires_ms, list(fed.victims)) == (AT_MS, AT_MS + 60_000, PLACED)
    assert begins.templates[begins.feed.signatures[fed.template]].requests == {"cpu": 9}
    assert (ends.feed.nominated, ends.feed.unnominated) == ([], ["uid-high-1"])
    assert SIGNATURE not in begins.feed.signatures
