"""The ledger on Postgres when something is cut, locked, cancelled or away: never half, never for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from domain.model.errors import Fenced, LedgerMismatch, Unavailable
from ops.kafka import free_port
from ops.postgres import PostgresServer
from services.adapters.postgres.audit import check
from services.adapters.postgres.connections import HOT, fresh
from services.adapters.postgres.leases import COMMIT_SESSION
from services.adapters.postgres.ledger import PostgresLedger
from services.adapters.postgres.migrate import init_shards, upgrade
from services.adapters.postgres.outbox import PostgresOutbox
from services.adapters.postgres.refold import refold
from services.codec.effects import journal_row
from services.ports.journal import BATCHES, Checkpoint, JournalRow, Owned, Start
from services.ports.ledger import CommitBatch, Committed, Lease, NotCommitted, OffsetAdvance
from services.ports.log import PODS_TOPIC, TopicPartition
from services.ports.outbox import Stream
from services.ports.positions import LogFault
from tests.batches import batch_of, changed
from tests.contract.batches import AT_MS, advance, bind, load_node, new_node
from tests.contract.ledgers import (
    LEASE_SECONDS,
    SHARDS,
    PostgresBackend,
    loaded,
    open_backend,
    start,
    start_two,
)
from tests.servers import MakeDatabase

LOCK_OFFSETS = "SELECT FROM shard_offsets FOR UPDATE"


@pytest_asyncio.fixture
async def backend(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[PostgresBackend]:
    """Return a ledger on the embedded server."""
    async with open_backend("embedded", request, database) as opened:
        assert isinstance(opened, PostgresBackend)
        yield opened


@pytest.fixture
def ledger(backend: PostgresBackend) -> PostgresLedger:
    return backend.ledger()


@contextlib.asynccontextmanager
async def _other(backend: PostgresBackend) -> AsyncIterator[Any]:
    """Give a connection of somebody else, with a transaction that is rolled back at the end."""
    connection = await asyncpg.connect(backend.dsn)
    try:
        await connection.execute("BEGIN")
        yield connection
    finally:
        await connection.close()


async def _cut(backend: PostgresBackend, name: str) -> None:
    """End the sessions of this name from the server's side, and wait until they are gone."""
    of = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1"
    connection = await asyncpg.connect(backend.dsn)
    try:
        assert await connection.fetchval(f"SELECT count(pg_terminate_backend(pid)) {of}", name) > 0
        while await connection.fetchval(f"SELECT count(*) {of}", name):
            await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def _until_waiting(backend: PostgresBackend) -> None:
    """Return when some session waits for a lock."""
    query = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    connection = await asyncpg.connect(backend.dsn)
    try:
        async with asyncio.timeout(5):
            while not await connection.fetchval(query):
                await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def _settle(ledger: PostgresLedger, batch: CommitBatch) -> Committed | NotCommitted:
    """Ask what became of the batch until there is an answer."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(Unavailable):
                return await ledger.resolve(batch)


def _big(lease: Lease, number: int) -> CommitBatch:
    size, nodes = 300, range(1, 201)
    first = number * size + 1
    writes = [load_node(n, number, cpu=number) if number else new_node(n) for n in nodes]
    return bind(lease, range(first, first + size), first - 1, nodes=writes)


async def test_a_cancelled_commit_is_whole_or_nothing(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    lease, _ = await start(ledger, SHARDS)
    clock = asyncio.get_running_loop().time
    started = clock()
    assert await ledger.commit(_big(lease, 0)) == Committed()
    longest = (clock() - started) * 1.2
    rounds = 24
    found = []
    for number in range(1, rounds + 1):
        batch = _big(lease, number)
        committing = asyncio.create_task(ledger.commit(batch))
        await asyncio.sleep(longest * number / rounds)
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        found.append(await _settle(ledger, batch))
        if found[-1] is NotCommitted.ABSENT:
            assert await ledger.commit(batch) == Committed()
        state = await loaded(ledger, [lease])
        assert state.seq_next[0] == batch.offsets.seq_next[0] == len(state.placements) + 1
        assert {node.version for node in state.nodes} == {number + 1}
    assert NotCommitted.ABSENT in found
    assert NotCommitted.FENCED not in found
    # These batches never did the sums, nor do their decisions tell versions.
    made_up = {"requested-is-the-sum", "never-over-allocatable", "decided-versions-chain"}
    assert {violation.name for violation in await check(backend.dsn)} <= made_up


async def test_a_session_that_the_server_ends_leaves_nothing(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    lease, _ = await start(ledger, SHARDS)
    batch = bind(lease, [1], 0)
    async with _other(backend) as other:
        await other.execute(LOCK_OFFSETS)
        committing = asyncio.create_task(ledger.commit(batch))
        await _until_waiting(backend)
        await _cut(backend, f"{COMMIT_SESSION}{ledger.incarnation}")
        with pytest.raises(Unavailable):
            await committing
    assert await ledger.resolve(batch) is NotCommitted.ABSENT
    assert await ledger.commit(batch) == Committed()


async def test_after_an_idle_session_was_ended_the_next_commit_gets_through(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0)) == Committed()
    await _cut(backend, f"{COMMIT_SESSION}{ledger.incarnation}")
    batch = bind(lease, [2], 1)
    with contextlib.suppress(Unavailable):
        await ledger.commit(batch)
    if await ledger.resolve(batch) is NotCommitted.ABSENT:
        assert await ledger.commit(batch) == Committed()
    assert await ledger.resolve(batch) == Committed()


async def test_a_worker_that_is_frozen_in_a_commit_does_not_keep_its_shards(backend: PostgresBackend) -> None:
    first, second = backend.ledger(), backend.ledger()
    assert await first.acquire("first", 0.1)
    frozen = await asyncpg.connect(
        backend.dsn, server_settings={"application_name": f"{COMMIT_SESSION}{first.incarnation}"}
    )
    try:
        await frozen.execute("BEGIN")
        await frozen.execute(LOCK_OFFSETS)
        await asyncio.sleep(0.2)
        async with asyncio.timeout(5):
            while not await second.acquire("second", LEASE_SECONDS):
                await asyncio.sleep(0.05)
    finally:
        await frozen.close()


async def test_the_server_notices_soon_that_a_client_is_cut_off(postgres_dsn: str) -> None:
    """Its transaction keeps rows locked until then, and no limit on statements ends one that sends rows."""
    async with fresh(postgres_dsn, "berth-test", HOT) as connection:
        idle, interval, count = [
            int(await connection.fetchval(f"SHOW tcp_keepalives_{name}"))
            for name in ("idle", "interval", "count")
        ]
    assert 0 < idle + interval * count < 5


async def test_a_worker_that_begins_and_one_that_takes_its_shard_do_not_block_each_other(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    """Offsets come before shards for all: here the lease runs out while rows are laid down."""
    lease, _ = await start(ledger, SHARDS)
    async with _other(backend) as other:
        await other.execute(LOCK_OFFSETS)
        first = {TopicPartition(PODS_TOPIC, lease.shard): 0}
        beginning = asyncio.create_task(ledger.ensure_offsets(lease, first))
        await _until_waiting(backend)
        await other.execute("UPDATE shards SET epoch = epoch + 1")
        await other.execute("COMMIT")
    with pytest.raises(Fenced):
        await beginning


@pytest.mark.parametrize(("end", "resolution"), [("COMMIT", Committed()), ("ROLLBACK", NotCommitted.ABSENT)])
async def test_resolve_waits_for_a_transaction_in_flight(
    backend: PostgresBackend, ledger: PostgresLedger, end: str, resolution: Committed | NotCommitted
) -> None:
    lease, _ = await start(ledger, SHARDS)
    batch = bind(lease, [1], 0, made=[], opened=[], seq_next={})
    async with _other(backend) as other:
        await other.execute("UPDATE shard_offsets SET next_offset = 1 WHERE shard = 0")
        resolving = asyncio.create_task(ledger.resolve(batch))
        await _until_waiting(backend)
        assert not resolving.done()
        await other.execute(end)
        assert await resolving == resolution


async def test_nothing_waits_for_ever(backend: PostgresBackend, ledger: PostgresLedger) -> None:
    lease, _ = await start(ledger, SHARDS)
    batch = bind(lease, [1], 0)
    await backend.pass_time(LEASE_SECONDS + 1)
    async with _other(backend) as other:
        await other.execute(LOCK_OFFSETS)
        waits = [ledger.commit(batch), ledger.resolve(batch), backend.ledger().acquire("x", LEASE_SECONDS)]
        async with asyncio.timeout(9):
            *ends, taken = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(end, Unavailable) for end in ends), ends
    assert taken == []
    assert await ledger.commit(batch) == Committed()


async def test_claims_on_a_node_that_somebody_is_changing_are_lost(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0, nodes=[new_node(1), new_node(2)])) == Committed()
    claims = [msgspec.structs.replace(load_node(number, 1), resource_only=True) for number in (1, 2)]
    batch = bind(lease, [2], 1, nodes=claims)
    async with _other(backend) as other:
        await other.execute("SELECT FROM nodes WHERE id = 2 FOR UPDATE")
        async with asyncio.timeout(2):
            outcome = await ledger.commit(batch)
    assert outcome == Committed(lost_nodes=frozenset({2})), "claims do not wait"
    assert [row.version for row in (await loaded(ledger, [lease])).nodes] == [2, 1]


async def test_a_new_node_that_somebody_adds_at_the_same_time_is_a_contradiction(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    lease, _ = await start(ledger, SHARDS)
    async with _other(backend) as other:
        await other.execute(
            "INSERT INTO nodes (id, name, version, spec_version, allocatable, requested)"
            " VALUES (7, 'n1', 1, 1, '{}', '{}')"
        )
        committing = asyncio.create_task(ledger.commit(bind(lease, [1], 0, nodes=[new_node(1)])))
        await _until_waiting(backend)
        await other.execute("COMMIT")
        with pytest.raises(LedgerMismatch, match="nodes_name_key"):
            await committing
    assert not (await loaded(ledger, [lease])).placements


async def test_two_workers_may_meet_new_resources_at_the_same_time(backend: PostgresBackend) -> None:
    (ledger, first), (other, second) = await start_two(backend)
    names = [f"example.com/r{i}" for i in range(8)]
    batches = [
        bind(first, [1], 0, nodes=[new_node(1, delta=dict.fromkeys(names, 1))]),
        bind(second, [1], 0, nodes=[new_node(2, delta=dict.fromkeys(reversed(names), 2))]),
    ]
    outcomes = await asyncio.gather(ledger.commit(batches[0]), other.commit(batches[1]))
    assert list(outcomes) == [Committed(), Committed()]
    nodes = (await loaded(ledger, [first])).nodes
    assert [node.requested for node in nodes] == [dict.fromkeys(names, 1), dict.fromkeys(names, 2)]


async def test_a_ledger_that_was_set_back_tells_anew_where_resources_stand(backend: PostgresBackend) -> None:
    """Who named a resource that is lost must not write its amounts where another one stands by now."""
    (ledger, first), (other, second) = await start_two(backend)
    await ledger.load_base()
    amounts = {"example.com/lost": 7}
    batch = bind(first, [1], 0, nodes=[new_node(1, delta=amounts)])
    before = await backend.dump()
    assert await ledger.commit(batch) == Committed()
    for table in ("decisions", "placements", "templates", "node_specs", "nodes", "resources"):
        await backend.execute(f"DELETE FROM {table}")
    await backend.execute("UPDATE shard_offsets SET next_offset = 0")
    await backend.execute("UPDATE shards SET seq_next = 1, log_time_ms = 0, due_ms = NULL")
    assert await backend.dump() == before
    await backend.begin_anew()

    await other.load_base()
    named = bind(second, [1], 0, nodes=[new_node(2, delta={"example.com/other": 1})])
    assert await other.commit(named) == Committed()
    await ledger.load_base()
    assert await ledger.commit(batch) == Committed()
    nodes = (await loaded(ledger, [first])).nodes
    assert [node.requested for node in nodes] == [amounts, {"example.com/other": 1}]


async def _checkpoint(ledger: PostgresLedger) -> Checkpoint:
    """Return the place of a first checkpoint that has parts."""
    leases = await start(ledger, SHARDS)
    node = batch_of(advances=[advance(leases[0], 0, 1)], facts=[new_node(1)], log_time_ms=AT_MS)
    assert await ledger.commit(node) == Committed()
    state = await loaded(ledger, leases)
    began = Start(
        worker="w",
        build="",
        seed=1,
        usage_window_seconds=60,
        profiles={},
        writers={},
        tombstone_hours=168,
        leases=dict(leases),
        offsets=[],
    )
    return Checkpoint(shard=0, batch=0, start=began, offsets=state.offsets)


async def test_a_checkpoint_of_which_another_worker_dropped_parts_is_none(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    """A worker that is frozen while it writes one is alone no more: who took over writes the next one."""
    at = await _checkpoint(ledger)
    async with _other(backend) as other:
        await other.execute(
            "INSERT INTO checkpoints (shard, batch, start, head, parts_count, bytes_count)"
            " VALUES (0, 0, '{}', '{}', 0, 0)"
        )
        writing = asyncio.create_task(ledger.write_checkpoint(at, 9, lambda: None))
        await _until_waiting(backend)
        await backend.execute("DELETE FROM checkpoint_parts")
        await other.execute("ROLLBACK")
        with pytest.raises(Fenced):
            await writing
    assert not await check(backend.dsn)
    await ledger.write_checkpoint(at, 9, lambda: None)
    (kept,) = await backend.history().checkpoints()
    assert (await backend.history().state(kept)).offsets == at.offsets


async def test_two_workers_that_write_one_checkpoint_do_not_mix_their_parts(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    at = await _checkpoint(ledger)
    async with _other(backend) as other:
        await other.execute(
            "INSERT INTO checkpoint_parts (shard, batch, part, kind, body) VALUES (0, 0, 0, 'nodes', '')"
        )
        writing = asyncio.create_task(ledger.write_checkpoint(at, 9, lambda: None))
        await _until_waiting(backend)
        await other.execute("COMMIT")
        with pytest.raises(Fenced):
            await writing
    assert not await backend.history().checkpoints()


async def test_a_lost_lease_connection_is_replaced_by_the_next_renewal(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    leases = await start(ledger, SHARDS)
    await _cut(backend, "berth-lease")
    with contextlib.suppress(Unavailable):
        await ledger.renew_leases(leases, LEASE_SECONDS)
    assert await ledger.renew_leases(leases, LEASE_SECONDS)
    assert not await backend.ledger().acquire("other", LEASE_SECONDS)


async def test_a_replica_that_has_not_taken_over_yet_is_away(server_dir: Path) -> None:
    """The address of the ledger may lead to it already: who asks again later must find it."""
    settings = {"wal_level": "replica", "max_wal_senders": "4"}
    first, second = (PostgresServer(server_dir / name, settings=settings) for name in ("first", "second"))
    with contextlib.ExitStack() as stack:
        dsn = stack.enter_context(first)
        await upgrade(dsn)
        await init_shards(dsn, 1)
        await asyncio.to_thread(second.copy, dsn)
        replica = stack.enter_context(second)
        ledger, outbox = PostgresLedger(replica), PostgresOutbox(replica)
        for ask in (ledger.load_base, partial(outbox.ledger_name, 0)):
            with pytest.raises(Unavailable):
                await ask()
        async with fresh(replica, "berth-test") as connection:
            assert await connection.fetchval("SELECT pg_promote(true, 60)")
        await ledger.load_base()
        assert await outbox.ledger_name(0)
        await ledger.aclose()
        await outbox.aclose()


async def commit_five(
    ledger: PostgresLedger, leases: Sequence[Lease], number: int, lo: int, owned: Sequence[Owned]
) -> None:
    """Commit a batch that takes five records of the pods of shard 1, and say what its worker holds."""
    counted = OffsetAdvance(0, BATCHES, 0, leases[0].epoch, number - 1, number)
    batch = batch_of(advances=[advance(leases[1], lo, lo + 5), counted], log_time_ms=AT_MS)
    row = journal_row(batch, [(1, PODS_TOPIC, 1)] * 5, JournalRow(shard=0, batch=number, owned=owned), None)
    assert await ledger.commit(changed(batch, row=row)) == Committed()


async def test_a_partition_that_is_read_again_by_who_has_other_shards_breaks_no_chain(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    """Who finds that the log lost records gives its shards up: a worker that goes on takes them."""
    leases = await start(ledger, SHARDS)
    await ledger.ensure_offsets(leases[0], {TopicPartition(BATCHES, 0): 0})
    at = 1, PODS_TOPIC, 1
    taken = Owned(leases=dict(leases), offsets=[(*at, 3)])
    for number, (lo, owned) in enumerate([(0, []), (3, [taken])], 1):
        await commit_five(ledger, leases, number, lo, owned)
        fault = LogFault(
            shard=1,
            epoch=leases[1].epoch,
            at=TopicPartition(*at[1:]),
            code="tail-lost",
            next_offset=5,
            first=3,
            end=4,
            goes_on_at=3,
            topic_id=None,
            resync_below=4,
        )
        if number == 1:
            await ledger.note_log_faults([fault])
    assert not await check(backend.dsn)
    await backend.execute("DELETE FROM log_faults")
    assert "journal-ranges-chain" in {each.name for each in await check(backend.dsn)}


async def test_a_log_that_lost_records_after_a_refold_leaves_the_chain_whole(
    backend: PostgresBackend, ledger: PostgresLedger
) -> None:
    """What is lost ends the re-fold, and the audit still knows that there was one."""
    leases = await start(ledger, SHARDS)
    await ledger.ensure_offsets(leases[0], {TopicPartition(BATCHES, 0): 0})
    at = 1, PODS_TOPIC, 1
    taken = Owned(leases=dict(leases), offsets=[(*at, 0)])
    for number, owned in enumerate([[], [taken]], 1):
        await commit_five(ledger, leases, number, 0, owned)
        if number == 1:
            await refold(backend.dsn, {TopicPartition(*at[1:]): (0, 9)})
    _, later = await ledger.acquire("worker", LEASE_SECONDS)
    fault = LogFault(
        shard=1,
        epoch=later.epoch,
        at=TopicPartition(*at[1:]),
        code="tail-lost",
        next_offset=5,
        first=0,
        end=3,
        goes_on_at=3,
        topic_id=None,
        resync_below=None,
    )
    await ledger.note_log_faults([fault])
    assert not (await ledger.load_part([later])).refold_below
    assert not await check(backend.dsn)


async def test_a_server_that_is_away_is_unavailable() -> None:
    dsn = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    ledger, outbox = PostgresLedger(dsn), PostgresOutbox(dsn)
    lease = Lease(0, 1)
    batch = batch_of(advances=[OffsetAdvance(0, PODS_TOPIC, 0, 1, 0, 1)])
    calls = [
        ledger.acquire("a", 1),
        ledger.renew_leases([lease], 1),
        ledger.release([lease]),
        loaded(ledger, [lease]),
        ledger.ensure_offsets(lease, {TopicPartition("t", 0): 0}),
        ledger.commit(batch),
        ledger.resolve(batch),
        outbox.shards(),
        outbox.acquire(0, "a", 1),
        outbox.unpublished(0, Stream.DECISIONS, 0, 1),
        outbox.mark_published(0, Stream.DECISIONS, 1, 1),
        outbox.wait(0, 1),
        check(dsn),
    ]
    for call in calls:
        with pytest.raises(Unavailable):
            await call
    await ledger.aclose()
    await outbox.aclose()
