"""The migrations make exactly the schema that the code is written against, once, whoever runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from domain.model.decisions import Attempt
from services.adapters.postgres.connections import engine
from services.adapters.postgres.migrate import (
    ShardsMismatch,
    alembic_config,
    current_revision,
    init_shards,
    upgrade,
)
from services.adapters.postgres.queries import PostgresStore
from services.adapters.postgres.schema import metadata
from services.api.keys import in_force
from services.ports.store import Grant
from tests.servers import MakeDatabase

SERVERS = ["embedded_dsn", pytest.param("postgres_dsn", marks=pytest.mark.real)]


@pytest_asyncio.fixture(params=SERVERS)
async def dsn(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[str]:
    """Return a database with nothing in it."""
    dsn = await database(request.getfixturevalue(request.param))
    await _fetch(dsn, "DROP SCHEMA public CASCADE")
    await _fetch(dsn, "CREATE SCHEMA public")
    yield dsn


async def _fetch(dsn: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return list(await connection.fetch(query))
    finally:
        await connection.close()


async def _catalogue(dsn: str) -> list[Any]:
    """Return the identity and the storage of every relation: changes when one is made again or rewritten."""
    of = "FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    return await _fetch(dsn, f"SELECT oid, relname, relfilenode, reloptions {of} ORDER BY oid")


async def _difference(dsn: str) -> list[Any]:
    def compare(connection: sa.Connection) -> list[Any]:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    database = engine(dsn)
    try:
        async with database.connect() as connection:
            return await connection.run_sync(compare)
    finally:
        await database.dispose()


async def test_an_empty_database_has_no_revision(dsn: str) -> None:
    assert await current_revision(dsn) is None


async def test_the_migrations_make_the_schema(dsn: str) -> None:
    await upgrade(dsn)
    assert await current_revision(dsn) == ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert await _difference(dsn) == []
    options = {row["relname"]: row["reloptions"] for row in await _catalogue(dsn)}
    assert options["nodes"] == ["fillfactor=60"]


async def test_the_comparison_sees_a_difference(dsn: str) -> None:
    await upgrade(dsn)
    await _fetch(dsn, "ALTER TABLE pending ALTER COLUMN arrival TYPE int")
    await _fetch(dsn, "DROP INDEX decisions_pod")
    kinds = {entry[0] if isinstance(entry, tuple) else entry[0][0] for entry in await _difference(dsn)}
    assert kinds == {"modify_type", "add_index"}


async def test_upgrading_again_changes_nothing(dsn: str) -> None:
    await upgrade(dsn)
    before = await _catalogue(dsn)
    await upgrade(dsn)
    assert await _catalogue(dsn) == before


async def test_processes_may_upgrade_at_the_same_time(dsn: str) -> None:
    await asyncio.gather(*(upgrade(dsn) for _ in range(4)))
    assert await _difference(dsn) == []


async def test_an_upgrade_that_fails_leaves_nothing(dsn: str) -> None:
    await _fetch(dsn, "CREATE TABLE log_records ()")  # in the way of the last table
    before = await _catalogue(dsn)
    with pytest.raises(sa.exc.ProgrammingError, match="log_records"):
        await upgrade(dsn)
    assert await _catalogue(dsn) == before


async def _downgrade(dsn: str, revision: str) -> None:
    def down(connection: sa.Connection) -> None:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, revision)

    database = engine(dsn)
    async with database.begin() as connection:
        await connection.run_sync(down)
    await database.dispose()


async def test_keys_and_event_ids_outlive_their_migrations(dsn: str) -> None:
    await upgrade(dsn)
    await _fetch(dsn, "INSERT INTO ingested_events (id, holder) VALUES ('1', ''), ('1', 'ci'), ('2', 'ci')")
    await _fetch(dsn, "INSERT INTO api_keys (key_hash, name, roles) VALUES ('x', 'ci', '{producer,auditor}')")
    await _downgrade(dsn, "0009")
    assert await _fetch(dsn, "SELECT id FROM ingested_events ORDER BY id") == [("1",), ("2",)]
    assert await _fetch(dsn, "SELECT name, role FROM api_keys") == [("ci", "producer")]
    await upgrade(dsn)
    found = await _fetch(dsn, "SELECT id, holder FROM ingested_events ORDER BY id")
    assert found == [("1", ""), ("2", "")]
    keys = await _fetch(dsn, "SELECT name, roles, namespaces, kinds FROM api_keys")
    assert keys == [("ci", ["producer"], None, None)]


async def test_a_key_of_before_priorities_had_a_limit_keeps_all_else(dsn: str) -> None:
    await upgrade(dsn)
    await _downgrade(dsn, "0040")
    keys = "('x', 'ci', '{producer}', '{team-a}'), ('y', 'bridge', '{producer}', NULL)"
    await _fetch(dsn, f"INSERT INTO api_keys (key_hash, name, roles, namespaces) VALUES {keys}")
    await upgrade(dsn)
    store = PostgresStore(dsn)
    found = {key.grant.name: in_force(key.grant) for key in await store.keys()}
    assert found == {
        "ci": Grant("ci", ["producer"], ["team-a"], priority_max=0),
        "bridge": Grant("bridge", ["producer"], priority_max=1_000_000_000),
    }
    await store.aclose()


async def test_an_attempt_of_before_they_were_packed_is_read(dsn: str) -> None:
    await upgrade(dsn)
    await _downgrade(dsn, "0034")
    by: dict[str, Any] = {"profile": "batch", "profile_revision": 3}
    told = Attempt(shard=1, seq=7, signature=b"s", **by, seed=0, generation=2, nodes_count=9)
    text = msgspec.json.encode(told).decode()
    await _fetch(dsn, f"INSERT INTO cycles (shard, seq, signature, doc) VALUES (1, 7, 's', '{text}')")
    await upgrade(dsn)
    store = PostgresStore(dsn)
    assert [await store.attempt(1, seq) for seq in (6, 7, 8)] == [None, told, None]
    await store.aclose()


async def test_what_was_acknowledged_before_this_was_noted_stays_acknowledged(dsn: str) -> None:
    await upgrade(dsn)
    await _downgrade(dsn, "0039")
    cursors = "(0, NULL, 7), (1, 'the topic differs', 9), (2, NULL, 0)"
    await _fetch(dsn, f"INSERT INTO relay_cursor (shard, alarm, compared_offset) VALUES {cursors}")
    await upgrade(dsn)
    found = "SELECT shard, acknowledged_offset, acknowledged_at FROM relay_cursor ORDER BY shard"
    assert await _fetch(dsn, found) == [(0, 7, None), (1, 0, None), (2, 0, None)]


async def test_a_downgrade_leaves_nothing_but_alembics_own_table(dsn: str) -> None:
    await upgrade(dsn)
    await _downgrade(dsn, "base")
    assert {row["relname"] for row in await _catalogue(dsn)} == {"alembic_version", "alembic_version_pkc"}
    await upgrade(dsn)
    assert await _difference(dsn) == []


async def test_shards_are_laid_down_once(dsn: str) -> None:
    await upgrade(dsn)
    await asyncio.gather(*(init_shards(dsn, 3) for _ in range(4)))
    await _fetch(dsn, "UPDATE shards SET epoch = 5")
    await init_shards(dsn, 3)
    rows = await _fetch(dsn, "SELECT shard, epoch, seq_next FROM shards ORDER BY shard")
    assert [tuple(row) for row in rows] == [(0, 5, 1), (1, 5, 1), (2, 5, 1)]
    cursors = await _fetch(dsn, "SELECT shard, decisions_seq FROM relay_cursor ORDER BY shard")
    assert [tuple(row) for row in cursors] == [(0, 0), (1, 0), (2, 0)]


async def test_there_may_be_more_shards_and_never_fewer(dsn: str) -> None:
    await upgrade(dsn)
    await init_shards(dsn, 1)
    await init_shards(dsn, 2)
    with pytest.raises(ShardsMismatch, match="laid out for 2 shards, not 1"):
        await init_shards(dsn, 1)
    with pytest.raises(ValueError, match="at least 1"):
        await init_shards(dsn, 0)
    assert len(await _fetch(dsn, "SELECT FROM shards")) == 2


@pytest.mark.parametrize("has_pods", [True, False])
async def test_a_ledger_with_pods_of_before_asks_for_a_refold(dsn: str, has_pods: bool) -> None:
    database = engine(dsn)

    def to_before(connection: sa.Connection) -> None:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0017")

    async with database.begin() as connection:
        await connection.run_sync(to_before)
    await database.dispose()
    await _fetch(dsn, "INSERT INTO shards (shard) VALUES (0), (1)")
    if has_pods:
        columns = "pod_uid, namespace, name, signature, shard, arrival, since_ms"
        await _fetch(dsn, f"INSERT INTO pending ({columns}) VALUES ('u', 'a', 'b', '', 0, 1, 1)")
    await upgrade(dsn)
    assert [row["refold"] for row in await _fetch(dsn, "SELECT refold FROM shards")] == [has_pods] * 2
