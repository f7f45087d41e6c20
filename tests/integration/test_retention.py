"""Does what nobody needs any more go, in the background, and nothing else?"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from domain.model import limits
from domain.model.actions import ActionKind, NodeAction
from domain.model.errors import LogTruncated, Unavailable
from domain.model.pods import PodTemplate
from services import bootstrap
from services.adapters.embedded import retention
from services.adapters.embedded.log import EmbeddedLog
from services.adapters.postgres import loading, tidying
from services.adapters.postgres.audit import check
from services.adapters.postgres.connections import Session
from services.adapters.postgres.migrate import init_shards
from services.bootstrap import Place
from services.config import Settings
from services.ports.ledger import ActionRow, Committed, PodTombstone
from services.ports.log import (
    CONFIG_TOPIC,
    DECISIONS_TOPIC,
    PODS_TOPIC,
    Entry,
    Record,
    TopicPartition,
    topic_specs,
)
from services.ports.outbox import Stream
from services.ports.store import OwnerFilter
from services.ports.workers import Incarnation
from tests.batches import batch_of, changed
from tests.contract.batches import AT_MS, SIGNATURE, advance, bind, dead_letter
from tests.contract.ledgers import SHARDS, PostgresBackend, loaded, start
from tests.servers import MakeDatabase

PODS, DECISIONS = TopicPartition(PODS_TOPIC, 0), TopicPartition(DECISIONS_TOPIC, 0)
HOUR_MS = 3_600_000


@pytest_asyncio.fixture
async def backend(database: MakeDatabase, embedded_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Return an empty ledger."""
    backend = PostgresBackend(await database(embedded_dsn))
    await init_shards(backend.dsn, SHARDS)
    yield backend
    await backend.aclose()


@pytest_asyncio.fixture
async def session(backend: PostgresBackend) -> AsyncIterator[Session]:
    """Return a session on the ledger."""
    session = Session(backend.dsn, "test")
    yield session
    await session.aclose()


async def test_tombstones_beyond_the_horizon_are_deleted_slice_by_slice(
    backend: PostgresBackend, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "_ROWS_MAX", 3)
    ledger = backend.ledger()
    lease, _ = await start(ledger, SHARDS)
    ages = {f"p{hours}": hours for hours in range(20)}
    stones = [
        PodTombstone(
            namespace="ns", name=name, uid=name, resource_version=None, shard=0, at_ms=AT_MS - hours * HOUR_MS
        )
        for name, hours in ages.items()
    ]
    assert await ledger.commit(bind(lease, [1], 0, tombstones=stones)) == Committed()
    await tidying.forget_tombstones(session, 10, 0)
    left = {stone.name for stone in (await loaded(ledger, [lease])).tombstones}
    assert left == {name for name, hours in ages.items() if hours <= 10}


@pytest.mark.parametrize(
    ("most", "days", "published", "left"),
    [
        (1_000, 1_000, 20, range(1, 21)),
        (5, 1_000, 20, range(16, 21)),
        (5, 1_000, 10, range(10, 21)),  # the relay has not published the others
        (1_000, 10, 20, range(10, 21)),
        (1, 1, 20, [20]),
    ],
)
async def test_the_oldest_dead_letters_go(
    backend: PostgresBackend,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    days: int,
    published: int,
    left: Iterable[int],
) -> None:
    monkeypatch.setattr(tidying, "_ROWS_MAX", 3)
    ledger, outbox = backend.ledger(), backend.outbox()
    lease, _ = await start(ledger, SHARDS)
    letters = [dead_letter(lease, seq, at_ms=AT_MS - (20 - seq) * 24 * HOUR_MS) for seq in range(1, 21)]
    batch = batch_of(
        advances=[advance(lease, 0, 20)], dead_letters=letters, dead_seq_next={0: 21}, log_time_ms=AT_MS
    )
    assert await ledger.commit(batch) == Committed()
    epoch = await outbox.acquire(0, "relay", 10)
    await outbox.mark_published(0, Stream.DEAD_LETTERS, epoch, published)
    await tidying.forget_dead_letters(session, most, days, 0)
    found = await outbox.unpublished(0, Stream.DEAD_LETTERS, min(left) - 1, 100)
    assert [item.seq for item in found] == list(left)
    assert await backend.store().deadletter(0, min(left) - 1) is None
    assert await check(backend.dsn) == []


async def test_a_flood_of_one_namespace_lets_no_dead_letter_of_another_go(
    backend: PostgresBackend, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "_ROWS_MAX", 3)
    ledger, outbox = backend.ledger(), backend.outbox()
    lease, _ = await start(ledger, SHARDS)
    about: list[tuple[str, bytes | None]] = [
        (PODS_TOPIC, b"desk/p"),
        (CONFIG_TOPIC, b"PodGroup/shop/g"),
        (PODS_TOPIC, None),
    ]
    about += [(PODS_TOPIC, b"flood/p%d" % i) for i in range(9)]
    about += [(CONFIG_TOPIC, b"PodGroup/flood/g%d" % i) for i in range(8)]
    letters = [dead_letter(lease, n + 1, topic=topic, key=key) for n, (topic, key) in enumerate(about)]
    batch = batch_of(
        advances=[advance(lease, 0, 20)], dead_letters=letters, dead_seq_next={0: 21}, log_time_ms=AT_MS
    )
    assert await ledger.commit(batch) == Committed()
    epoch = await outbox.acquire(0, "relay", 10)
    await outbox.mark_published(0, Stream.DEAD_LETTERS, epoch, 20)
    await tidying.forget_dead_letters(session, 8, 1_000, 0)
    async with session.use() as connection:
        left = await connection.fetch("SELECT seq FROM dead_letters WHERE shard = 0 ORDER BY seq")
    assert [row["seq"] for row in left] == [1, 2, 3, *range(16, 21)]
    assert await check(backend.dsn) == []


async def test_a_flood_of_one_namespace_lets_no_tombstone_of_another_go(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "tombstones_max", 8)
    ledger = backend.ledger()
    lease, _ = await start(ledger, SHARDS)
    await backend.execute(
        "INSERT INTO pod_tombstones (namespace, name, uid, resource_version, shard, at_ms)"
        " SELECT CASE WHEN i < 2 THEN 'desk' ELSE 'flood' END, 'p' || i, 'u', 1, 0, i"
        " FROM generate_series(0, 50) i"
    )
    kept = [0, 1, *range(45, 51)]
    assert [each.at_ms for each in (await ledger.load_part([lease], gone=True)).gone] == kept
    assert [each.at_ms for each in (await ledger.load_base()).tombstones] == kept


@pytest.mark.parametrize(
    ("statement", "values", "table"),
    [
        (tidying._FORGET_TOMBSTONES, ("ns", "p00100", "u", 5_000, 10), "pod_tombstones"),
        (tidying._FORGET_OLD_LETTERS, (0, 10, 5_000), "dead_letters"),
        (tidying._FORGET_ACTIONS, (10, 10, 5_000), "node_actions"),
    ],
)
async def test_a_step_reads_no_table_whole(
    backend: PostgresBackend, session: Session, statement: str, values: tuple[Any, ...], table: str
) -> None:
    await backend.execute(
        "INSERT INTO pod_tombstones (namespace, name, uid, resource_version, shard, at_ms)"
        " SELECT 'ns', 'p' || lpad(i::text, 5, '0'), 'u', 1, 0, i FROM generate_series(1, 50000) i"
    )
    await backend.execute(
        "INSERT INTO dead_letters (shard, seq, topic, partition, log_offset, raw, code, path, message, at_ms)"
        " SELECT 0, i, 't', 0, i, '', 'c', '', 'm', i FROM generate_series(1, 50000) i"
    )
    await backend.execute(
        "INSERT INTO node_actions"
        " (node, at_ms, logged_ms, kind, quality, times, reason, policy, namespace, name, uid)"
        " SELECT 'n', i, i, 'idle', 'low', 1, 'r', '', '', '', '' FROM generate_series(1, 50000) i"
    )
    await backend.execute("ANALYZE")
    async with session.use() as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        plan = await connection.fetch(f"EXPLAIN {statement}", *values)
    text = "\n".join(row[0] for row in plan)
    assert f"Seq Scan on {table}" not in text, text


async def test_a_start_reads_only_the_templates_of_live_pods(backend: PostgresBackend) -> None:
    ledger = backend.ledger()
    lease, _ = await start(ledger, SHARDS)
    old = {bytes([number] * 16): PodTemplate(requests={"cpu": number}) for number in range(1, 100)}
    batch = bind(lease, [1], 0)
    batch = changed(batch, templates={**batch.pods.templates, **old})
    assert await ledger.commit(batch) == Committed()
    assert set((await loaded(ledger, [lease])).templates) == {SIGNATURE}


async def _log(backend: PostgresBackend) -> EmbeddedLog:
    log = EmbeddedLog(backend.dsn)
    await log.ensure_topics(topic_specs(1))
    return log


async def _write(log: EmbeddedLog, topic: str, *entries: Entry) -> None:
    writer = await log.writer()
    await writer.append(topic, entries, 0)
    await writer.aclose()


async def _read(log: EmbeddedLog, at: TopicPartition, start: int, each: int) -> list[Record]:
    """Return what the partition holds from an offset on, read in small pieces."""
    reader = await log.reader()
    try:
        await reader.assign({at: start})
        end = (await reader.end_offsets())[at]
        found: list[Record] = []
        while await reader.position(at) < end:
            found += await reader.poll(each, 1)
        return found
    finally:
        await reader.aclose()


async def _grow_older(backend: PostgresBackend, hours: int) -> None:
    await backend.execute(f"UPDATE log_records SET timestamp_ms = timestamp_ms - {hours * HOUR_MS}")


async def test_a_compacted_topic_keeps_the_last_of_each_key(
    backend: PostgresBackend, session: Session
) -> None:
    log = await _log(backend)
    keys = ["a", "b", "a", "c", "b", "d", "a"]
    await _write(log, PODS_TOPIC, *(Entry(key.encode(), b"%d" % at) for at, key in enumerate(keys)))
    await _write(log, PODS_TOPIC, Entry(b"d", None))  # 7
    await _grow_older(backend, 5)
    await _write(log, PODS_TOPIC, Entry(b"c", b"young"))  # 8
    await retention.keep_for(session, 4, 0)
    for each in (1, 2, 100):
        assert [record.offset for record in await _read(log, PODS, 0, each)] == [4, 6, 7, 8]
    await _grow_older(backend, 4)
    await retention.keep_for(session, 4, 0)
    assert [record.offset for record in await _read(log, PODS, 0, 100)] == [4, 6, 8]
    await log.aclose()


async def test_a_deletion_that_no_worker_has_read_stays(backend: PostgresBackend, session: Session) -> None:
    log, ledger = await _log(backend), backend.ledger()
    (lease, *_) = await ledger.acquire("w", 30)
    await ledger.ensure_offsets(lease, {PODS: 0})
    await _write(log, PODS_TOPIC, Entry(b"a", b"1"), Entry(b"a", None), Entry(b"b", None))
    await backend.execute("UPDATE shard_offsets SET next_offset = 2")
    await _grow_older(backend, 10)
    await retention.keep_for(session, 4, 0)
    assert [record.offset for record in await _read(log, PODS, 2, 10)] == [2]
    await backend.execute("UPDATE shard_offsets SET next_offset = 3")
    await retention.keep_for(session, 4, 0)
    assert await _read(log, PODS, 0, 10) == []
    await log.aclose()


async def test_a_worker_deletes_what_is_old_and_says_when_it_last_did(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings as they are by themselves; and one kind that cannot be deleted keeps no other."""
    monkeypatch.setattr(tidying, "ROUND_SECONDS", 0.05)

    async def overdue(*_args: object) -> None:
        raise Unavailable("canceling statement due to statement timeout")

    monkeypatch.setattr(tidying, "forget_tombstones", overdue)
    log, registry, at = await _log(backend), CollectorRegistry(), Place(backend.dsn, None)
    await _write(log, DECISIONS_TOPIC, Entry(b"k", b"v"))
    await _grow_older(backend, limits.tombstone_hours + 1)
    gone, lives = backend.ledger(), backend.ledger()
    await gone.announce(Incarnation(name="gone"), is_ready=False)
    await start(gone, SHARDS, "gone")
    await backend.pass_time(Settings().owners_seconds + 1)
    await start(lives, SHARDS, "lives")
    await backend.execute("UPDATE shard_owners SET ended_at = taken_at WHERE owner = 'gone'")
    async with bootstrap.tidied(at, Settings(), registry), asyncio.timeout(20):
        while not all(_last(registry, what) for what in ("embedded-log", "owners", "workers")):
            await asyncio.sleep(0.05)
    owners = await backend.store().processes.owners(OwnerFilter(), 10, None)
    assert {row.owner for row in owners} == {"lives"}
    assert await backend.store().processes.workers(datetime.datetime.fromtimestamp(0, datetime.UTC)) == []
    with pytest.raises(LogTruncated):
        await _read(log, DECISIONS, 0, 1)
    assert _last(registry, "tombstones") == 0
    await log.aclose()


def _last(registry: CollectorRegistry, what: str) -> float | None:
    return registry.get_sample_value("berth_tidied_timestamp_seconds", {"what": what})


async def test_a_reader_passes_a_hole_at_the_end(backend: PostgresBackend, session: Session) -> None:
    log = await _log(backend)
    await _write(log, PODS_TOPIC, Entry(b"a", b"1"), Entry(b"a", None))
    await _grow_older(backend, 10)
    await retention.keep_for(session, 4, 0)
    assert await _read(log, PODS, 0, 10) == []
    await _write(log, PODS_TOPIC, Entry(b"a", b"2"))
    assert [record.offset for record in await _read(log, PODS, 0, 10)] == [2]
    await log.aclose()


async def test_other_topics_lose_what_is_old_and_say_so(
    backend: PostgresBackend, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_MAX", 3)
    log = await _log(backend)
    await _write(log, DECISIONS_TOPIC, *[Entry(b"k", b"v")] * 10)
    await _grow_older(backend, 5)
    await _write(log, DECISIONS_TOPIC, *[Entry(b"k", b"v")] * 2)
    await retention.keep_for(session, 4, 0)
    reader = await log.reader()
    assert await reader.first_offsets([DECISIONS]) == {DECISIONS: 10}
    await reader.aclose()
    assert [record.offset for record in await _read(log, DECISIONS, 10, 1)] == [10, 11]
    with pytest.raises(LogTruncated):
        await _read(log, DECISIONS, 9, 1)
    await log.aclose()


async def test_nothing_young_goes(backend: PostgresBackend, session: Session) -> None:
    log = await _log(backend)
    await _write(log, PODS_TOPIC, *[Entry(b"a", b"1")] * 3)
    await _write(log, DECISIONS_TOPIC, *[Entry(b"a", b"1")] * 3)
    await retention.keep_for(session, 1, 0)
    assert len(await _read(log, PODS, 0, 10)) == len(await _read(log, DECISIONS, 0, 10)) == 3
    await log.aclose()


@pytest.mark.parametrize(
    ("most", "days", "left"), [(100, 1_000, 20), (5, 1_000, 5), (100, 10, 11), (0, 0, 0)]
)
async def test_the_oldest_actions_of_agents_go(
    backend: PostgresBackend,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    days: int,
    left: int,
) -> None:
    monkeypatch.setattr(tidying, "_ROWS_MAX", 3)
    ledger = backend.ledger()
    lease, _ = await start(ledger, SHARDS)
    rows = [
        ActionRow(
            NodeAction(node="n1", at_ms=0, kind=ActionKind.IDLE, quality="low", reason=str(number)),
            AT_MS - (20 - number) * 24 * HOUR_MS,
            None,
        )
        for number in range(1, 21)
    ]
    batch = batch_of(advances=[advance(lease, 0, 1)], actions=rows, log_time_ms=AT_MS)
    assert await ledger.commit(batch) == Committed()
    await tidying.forget_actions(session, most, days, 0)
    found = await backend.store().processes.actions(None, None, 100, None)
    assert [each.row for each in found] == rows[::-1][:left]
