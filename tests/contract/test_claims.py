"""Does every ledger judge two writers on one node alike: facts hold, and the slower claim loses?"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import orjson
import pytest
import pytest_asyncio

from domain.model.decisions import Attempt, Outcome
from services.adapters.postgres.migrate import init_shards
from services.codec.effects import journal_row
from services.ports.journal import BATCHES, JournalRow
from services.ports.ledger import (
    AttemptRows,
    CommitBatch,
    Committed,
    GangPlaced,
    Lease,
    Ledger,
    LedgerState,
    NodeClaim,
    NodeRow,
    NotCommitted,
    OffsetAdvance,
    PendingPod,
    PlacementClosed,
)
from services.ports.log import PODS_TOPIC, TopicPartition
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
    node_spec,
    opened,
    record,
    waiting,
)
from tests.contract.ledgers import BACKENDS, Backend, PostgresBackend, loaded, open_backend, start_two
from tests.servers import MakeDatabase

ONE = {"cpu": 1000, "pods": 1}
Writer = tuple[Ledger, Lease]


@pytest_asyncio.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[Backend]:
    """Return each kind of ledger in turn."""
    async with open_backend(request.param, request, database) as found:
        yield found


@pytest_asyncio.fixture
async def writers(backend: Backend) -> tuple[Writer, Writer]:
    """Return two writers, each with a shard of its own; the first one has added nodes 1 and 2."""
    first, second = await start_two(backend)
    for ledger, lease in (first, second):
        await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    nodes = [new_node(1), new_node(2)]
    added = batch_of(advances=[advance(first[1], 0, 1)], facts=nodes, log_time_ms=AT_MS)
    assert await first[0].commit(added) == Committed()
    return first, second


def claim(number: int, version: int, **more: Any) -> NodeClaim:
    """Return a claim of one pod."""
    return msgspec.structs.replace(load_node(number, version, **ONE), **more)


def claiming(lease: Lease, seq: int, lo: int, made_on: NodeClaim, **more: Any) -> CommitBatch:
    """Return the batch that binds a pod to the node of a claim, with all that a worker gives."""
    made = decision(lease, seq, f"p{lease.shard}-{seq}", made_on.name, cycle_seq=seq, score=7.5)
    attempt = Attempt(
        signature=SIGNATURE,
        profile=made.profile,
        profile_revision=1,
        seed=1,
        generation=seq,
        nodes_count=2,
        pods_count=1,
        bound_count=1,
    )
    version = made_on.version_seen + made_on.changes
    given = {
        "made": [record(made, version)],
        "attempts": [AttemptRows(attempt, {lease.shard: seq})],
        "claims": [made_on],
        **more,
    }
    batch = bind(lease, [seq], lo, node=made_on.name, **given)
    count = OffsetAdvance(lease.shard, BATCHES, 0, lease.epoch, seq - 1, seq)
    batch = changed(batch, advances=[*batch.offsets.advances, count])
    sources = [(a.shard, a.topic, a.partition) for a in batch.offsets.advances if a.topic != BATCHES]
    first = JournalRow(shard=lease.shard, batch=seq)
    return changed(batch, row=journal_row(batch, sources, first, "digest"))


async def told(backend: Backend, shard: int) -> list[dict[str, Any]]:
    """Return the records of a shard's decisions."""
    items = await backend.outbox().unpublished(shard, Stream.DECISIONS, 0, 100)
    return [orjson.loads(item.value) for item in items]


async def node(state: LedgerState, number: int) -> NodeRow:
    return next(row for row in state.nodes if row.id == number)


async def load(writer: Writer) -> LedgerState:
    return await loaded(writer[0], [writer[1]])


# ------------------------------------------------------------------------------------------------- races


async def test_a_strict_claim_on_a_node_that_moved_loses_and_its_pod_waits(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    first, second = writers
    assert await first[0].commit(claiming(first[1], 1, 1, claim(1, 1))) == Committed()
    waits = waiting(second[1], "p1-1", 3)
    before = batch_of(advances=[advance(second[1], 0, 1)], pending_added=[waits])
    assert await second[0].commit(before) == Committed()
    late = claiming(second[1], 1, 1, claim(1, 1), pending_removed=[waits.pod_uid])
    late = changed(late, waited={waits.pod_uid: (3, AT_MS - 5, "key:ops")})
    lost = Committed(lost_pods={"ns/p1-1": "uid-p1-1"}, lost_nodes=frozenset({1}))
    assert await second[0].commit(late) == lost
    state = await load(second)
    row = await node(state, 1)
    assert (row.version, row.requested) == (2, ONE)
    assert [placed.pod_uid for placed in state.placements] == ["uid-p0-1"]
    (pending,) = state.pending
    assert isinstance(pending, PendingPod)
    assert (pending.arrival, pending.since_ms, pending.sent_by, pending.tried) == (
        3,
        AT_MS - 5,
        "key:ops",
        False,
    )
    assert state.seq_next == {1: 2}, "the seq has no hole"
    (told_of_it,) = await told(backend, 1)
    expected = {
        "id": "1-1",
        "outcome": "conflict",
        "node": None,
        "node_version": None,
        "score": None,
        "reason": "another worker changed n1 first",
        "reasons": {"conflict": 1},
    }
    assert {key: told_of_it[key] for key in expected} == expected
    attempt = await backend.store().attempt(1, 1)
    assert attempt is not None
    assert (attempt.bound_count, attempt.pods_count) == (0, 1)
    assert await second[0].resolve(late) == lost, "an unknown outcome is answered alike"
    assert await second[0].commit(late) is NotCommitted.FENCED


async def test_a_claim_by_room_alone_wins_on_a_node_that_moved_and_tells_its_true_version(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    first, second = writers
    assert await first[0].commit(claiming(first[1], 1, 1, claim(1, 1))) == Committed()
    batch = claiming(second[1], 1, 0, claim(1, 1, resource_only=True))
    assert await second[0].commit(batch) == Committed(moved_count=1)
    row = await node(await load(second), 1)
    assert (row.version, row.requested) == (3, {"cpu": 2000, "pods": 2})
    assert [(each["outcome"], each["node_version"]) for each in await told(backend, 1)] == [("bound", 3)]
    assert await second[0].resolve(batch) == Committed(moved_count=1)


@pytest.mark.parametrize("room", [{"cpu": 8000}, {"pods": 110}])
async def test_a_claim_by_room_alone_loses_where_there_is_none(
    writers: tuple[Writer, Writer], room: dict[str, int]
) -> None:
    first, second = writers
    filling = msgspec.structs.replace(claim(1, 1), delta=room)
    assert await first[0].commit(claiming(first[1], 1, 1, filling)) == Committed()
    outcome = await second[0].commit(claiming(second[1], 1, 0, claim(1, 1, resource_only=True)))
    assert outcome == Committed(lost_pods={"ns/p1-1": "uid-p1-1"}, lost_nodes=frozenset({1}))


async def test_room_that_is_not_asked_for_may_be_short(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    over = change_node(1, 1, {"memory": 1 << 40})
    added = batch_of(advances=[advance(first[1], 1, 2)], facts=[over], log_time_ms=AT_MS)
    assert await first[0].commit(added) == Committed()
    outcome = await second[0].commit(claiming(second[1], 1, 0, claim(1, 1, resource_only=True)))
    assert outcome == Committed(moved_count=1)


async def test_a_doubtful_claim_is_not_granted_by_its_version(writers: tuple[Writer, Writer]) -> None:
    _, second = writers
    doubtful = claiming(second[1], 1, 0, claim(1, 1, is_doubtful=True))
    assert isinstance(lost := await second[0].commit(doubtful), Committed)
    assert lost.lost_nodes == {1}
    by_room = claiming(second[1], 2, 1, claim(1, 1, is_doubtful=True, resource_only=True))
    assert await second[0].commit(by_room) == Committed(), "it fits, and the version is right"


async def test_a_claim_on_a_node_with_another_spec_or_that_is_gone_loses(
    writers: tuple[Writer, Writer],
) -> None:
    first, second = writers
    changed = [
        change_node(1, 1, spec=node_spec("n1", labels={"a": "b"}), spec_count=2),
        change_node(2, 1, spec=node_spec("n2"), spec_count=2, deleted=True),
    ]
    added = batch_of(advances=[advance(first[1], 1, 2)], facts=changed, log_time_ms=AT_MS)
    assert await first[0].commit(added) == Committed()
    for seq, (number, spec_count) in enumerate([(1, 1), (2, 1), (2, 2), (9, 1)], 1):
        asked = claim(number, 2, resource_only=True, spec_count_seen=spec_count)
        outcome = await second[0].commit(claiming(second[1], seq, seq - 1, asked))
        assert isinstance(outcome, Committed)
        assert outcome.lost_nodes == {number}
    now = claim(1, 2, spec_count_seen=2)
    assert await second[0].commit(claiming(second[1], 5, 4, now)) == Committed()


def two_nodes(lease: Lease, *gangs: GangPlaced) -> CommitBatch:
    """Return a batch that binds a pod to each of two nodes; the version that it saw of one may be old."""
    made = [decision(lease, seq, f"p1-{seq}", f"n{seq}") for seq in (1, 2)]
    return bind(
        lease,
        [1, 2],
        0,
        made=[record(one, 2) for one in made],
        opened=[opened(one) for one in made],
        claims=[claim(1, 1), claim(2, 1, resource_only=True)],
        gangs=gangs,
    )


async def test_losing_one_node_leaves_the_others(backend: Backend, writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    assert await first[0].commit(claiming(first[1], 1, 1, claim(1, 1))) == Committed()
    outcome = await second[0].commit(two_nodes(second[1]))
    assert outcome == Committed(lost_pods={"ns/p1-1": "uid-p1-1"}, lost_nodes=frozenset({1}))
    assert [(each["outcome"], each["node"]) for each in await told(backend, 1)] == [
        ("conflict", None),
        ("bound", "n2"),
    ]


@pytest.mark.parametrize(("needed_count", "lost"), [(2, {1, 2}), (1, {1})])
async def test_a_gang_of_which_too_few_are_granted_is_not_placed_at_all(
    backend: Backend, writers: tuple[Writer, Writer], needed_count: int, lost: set[int]
) -> None:
    first, second = writers
    assert await first[0].commit(claiming(first[1], 1, 1, claim(1, 1))) == Committed()
    batch = two_nodes(second[1], GangPlaced("ns/gang", needed_count, (1, 2)))
    assert isinstance(outcome := await second[0].commit(batch), Committed)
    assert outcome.lost_nodes == lost
    assert outcome.lost_gangs == ({"ns/gang"} if 2 in lost else set())
    row = await node(await load(second), 2)
    assert (row.version, row.requested) == ((1, {}) if 2 in lost else (2, ONE))
    outcomes = [each["outcome"] for each in await told(backend, 1)]
    assert outcomes == ["conflict", "conflict" if 2 in lost else "bound"]


# ------------------------------------------------------------------------------------------------- facts


async def test_a_fact_is_never_refused_and_tells_the_true_version(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    first, second = writers
    assert await first[0].commit(claiming(first[1], 1, 1, claim(1, 1))) == Committed()
    adopted = decision(second[1], 1, "foreign", "n1", outcome=Outcome.ADOPTED)
    batch = bind(
        second[1],
        [1],
        0,
        made=[record(adopted, 2)],
        opened=[opened(adopted, adopted=True)],
        facts=[change_node(1, 1, {"cpu": 9000, "pods": 1})],
    )
    assert await second[0].commit(batch) == Committed()
    row = await node(await load(second), 1)
    assert (row.version, row.requested) == (3, {"cpu": 10_000, "pods": 2})
    assert [each["node_version"] for each in await told(backend, 1)] == [3]


async def test_a_fact_and_a_claim_on_one_node_in_a_batch(
    backend: Backend, writers: tuple[Writer, Writer]
) -> None:
    """The claim sees the node after the fact; where it loses, the fact stays."""
    first, second = writers
    spec = node_spec("n1", allocatable={"cpu": 1000, "pods": 1})
    both = claiming(
        first[1],
        1,
        1,
        claim(1, 2, spec_count_seen=2),
        facts=[change_node(1, 1, spec=spec, spec_count=2)],
    )
    assert await first[0].commit(both) == Committed()
    row = await node(await load(first), 1)
    assert (row.version, row.spec_count, row.requested, row.spec) == (3, 2, ONE, spec)
    gone = decision(second[1], 1, "old", "n1", outcome=Outcome.RELEASED)
    made = decision(second[1], 2, "p1-2", "n1")
    batch = bind(
        second[1],
        [1, 2],
        0,
        made=[record(gone, 2), record(made, 3)],
        opened=[opened(made)],
        facts=[change_node(1, 1)],
        claims=[claim(1, 2, spec_count_seen=2)],
    )
    outcome = await second[0].commit(batch)
    assert outcome == Committed(lost_pods={"ns/p1-2": "uid-p1-2"}, lost_nodes=frozenset({1}))
    assert (await node(await load(second), 1)).version == 4
    versions = [(each["outcome"], each["node_version"]) for each in await told(backend, 1)]
    assert versions == [("released", 4), ("conflict", None)]


async def test_a_claim_on_a_node_that_the_batch_itself_adds(writers: tuple[Writer, Writer]) -> None:
    first, _ = writers
    batch = claiming(first[1], 1, 1, claim(3, 1), facts=[new_node(3)])
    assert await first[0].commit(batch) == Committed()
    row = await node(await load(first), 3)
    assert (row.version, row.spec_count, row.requested) == (2, 1, ONE)


async def test_pods_are_counted_when_their_node_comes(writers: tuple[Writer, Writer]) -> None:
    first, _ = writers
    adopted = decision(first[1], 1, "early", "n3", outcome=Outcome.ADOPTED)
    early = opened(adopted, adopted=True, counted=False)
    batch = bind(first[1], [1], 1, made=[record(adopted)], opened=[early])
    assert await first[0].commit(batch) == Committed()
    assert [placed.counted for placed in (await load(first)).placements] == [False]
    offsets = [advance(first[1], 2, 3)]
    comes = batch_of(advances=offsets, facts=[new_node(3, delta=ONE)], counted=[early.pod_uid], log_time_ms=1)
    assert await first[0].commit(comes) == Committed()
    assert [placed.counted for placed in (await load(first)).placements] == [True]


async def test_whether_a_pod_was_told_that_its_node_is_gone_is_known(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    batch = bind(first[1], [1, 2], 1)
    pods = [placed.pod_uid for placed in batch.pods.opened]
    batch = changed(batch, orphaned={pods[1]: True})
    assert await first[0].commit(batch) == Committed()
    assert (await load(first)).orphaned == ["ns/p0-2"]
    assert (await load(second)).orphaned == []
    told = {pods[0]: True, pods[1]: False}
    change = batch_of(advances=[advance(first[1], 3, 4)], orphaned=told, log_time_ms=1)
    assert await first[0].commit(change) == Committed()
    assert (await load(first)).orphaned == ["ns/p0-1"]
    closed = [PlacementClosed(pods[0], 5)]
    gone = batch_of(advances=[advance(first[1], 4, 5)], closed=closed, log_time_ms=1)
    assert await first[0].commit(gone) == Committed()
    assert (await load(first)).orphaned == []


# ---------------------------------------------------------------------------------------- one uid, two shards


async def test_a_uid_may_live_in_two_shards_and_each_ends_its_own(writers: tuple[Writer, Writer]) -> None:
    first, second = writers
    for ledger, lease in writers:
        made = decision(lease, 1, "twice", f"n{lease.shard + 1}")
        batch = bind(lease, [1], 1 - lease.shard, made=[record(made, 2)], opened=[opened(made)])
        assert await ledger.commit(batch) == Committed()
    gone = decision(first[1], 2, "twice", "n1", outcome=Outcome.RELEASED)
    closing = batch_of(
        advances=[advance(first[1], 2, 3)],
        made=[record(gone, 3)],
        closed=[PlacementClosed(gone.pod_uid, AT_MS + 9)],
        seq_next={0: 3},
    )
    assert await first[0].commit(closing) == Committed()
    assert [placed.shard for placed in (await load(second)).placements] == [1]
    for ledger, lease in writers:
        lo = 3 - 2 * lease.shard
        added = batch_of(advances=[advance(lease, lo, lo + 1)], pending_added=[waiting(lease, "both", 4)])
        assert await ledger.commit(added) == Committed()
    removing = batch_of(advances=[advance(first[1], 4, 5)], pending_removed=["uid-both"])
    assert await first[0].commit(removing) == Committed()
    assert [pod.name for pod in (await load(second)).pending] == ["both"]
    assert not (await load(first)).pending


# ----------------------------------------------------------------------------------------- only on Postgres


@pytest_asyncio.fixture
async def server(database: MakeDatabase, request: pytest.FixtureRequest) -> AsyncIterator[PostgresBackend]:
    """Return a ledger on a server."""
    async with open_backend("embedded", request, database) as found:
        assert isinstance(found, PostgresBackend)
        yield found


@contextlib.asynccontextmanager
async def _holding(server: PostgresBackend, number: int) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server.dsn)
    try:
        await connection.execute("BEGIN")
        await connection.execute("UPDATE nodes SET version = version + 1 WHERE id = $1", number)
        yield connection
    finally:
        await connection.close()


async def test_a_fact_waits_for_who_changes_the_node_and_a_claim_does_not(server: PostgresBackend) -> None:
    first, _ = await start_two(server)
    lease = first[1]
    added = batch_of(advances=[advance(lease, 0, 1)], facts=[new_node(1), new_node(2)], log_time_ms=AT_MS)
    assert await first[0].commit(added) == Committed()
    async with _holding(server, 1) as other:
        by_room = [claim(n, 1, resource_only=True) for n in (1, 2)]
        held = bind(lease, [1, 2], 1, claims=by_room)
        async with asyncio.timeout(5):
            assert await first[0].commit(held) == Committed(
                lost_pods={f"ns/p0-{seq}": f"uid-p0-{seq}" for seq in (1, 2)}, lost_nodes=frozenset({1})
            )
        fact = batch_of(advances=[advance(lease, 3, 4)], facts=[change_node(1, 1, ONE)], log_time_ms=AT_MS)
        committing = asyncio.create_task(first[0].commit(fact))
        await asyncio.sleep(0.3)
        assert not committing.done()
        await other.execute("COMMIT")
        assert await committing == Committed()
    state = await loaded(first[0], [lease])
    assert [(row.version, row.requested) for row in state.nodes] == [(3, ONE), (2, ONE)]


async def test_eight_writers_on_few_nodes_never_deadlock_and_lose_nothing(server: PostgresBackend) -> None:
    nodes_count, rounds, shards = 6, 30, 8
    for table in ("worker_leases", "relay_leases", "relay_cursor", "shards"):
        await server.execute(f"DELETE FROM {table}")
    await init_shards(server.dsn, shards)
    writers: list[Writer] = []
    for shard in range(shards):
        writer = server.ledger()
        (lease,) = await writer.acquire("writer", 60, [shard])
        await writer.ensure_offsets(lease, {TopicPartition(PODS_TOPIC, lease.shard): 0})
        writers.append((writer, lease))
    ledger, lease = writers[0]
    specs = [
        new_node(n, spec=node_spec(f"n{n}", allocatable={"cpu": 10**9, "pods": 10**6}))
        for n in range(1, nodes_count + 1)
    ]
    assert await ledger.commit(batch_of(advances=[advance(lease, 0, 1)], facts=specs)) == Committed()
    granted: dict[int, int] = dict.fromkeys(range(1, nodes_count + 1), 0)

    async def write(ledger: Ledger, lease: Lease, seed: int) -> int:
        rng, lost = random.Random(seed), 0
        start = 1 if lease == writers[0][1] else 0
        for number in range(rounds):
            touched = rng.sample(range(1, nodes_count + 1), 4)
            facts = [change_node(n, 1, ONE) for n in touched[:2]]
            claims = [claim(n, 1, resource_only=True) for n in touched[1:]]
            lo = start + number
            batch = batch_of(advances=[advance(lease, lo, lo + 1)], facts=facts, claims=claims)
            async with asyncio.timeout(20):
                outcome = await ledger.commit(batch)
            assert isinstance(outcome, Committed)
            lost += len(outcome.lost_nodes)
            for each in (*facts, *claims):
                if each in facts or each.id not in outcome.lost_nodes:
                    granted[each.id] += 1
        return lost

    await asyncio.gather(*(write(*writer, seed) for seed, writer in enumerate(writers)))
    state = await loaded(ledger, [lease])
    assert {row.id: row.version - 1 for row in state.nodes} == granted
    assert {row.id: row.requested for row in state.nodes} == {
        n: {"cpu": 1000 * count, "pods": count} for n, count in granted.items()
    }
