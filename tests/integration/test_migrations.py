"""The migrations make exactly the schema that the code is written against, once, whoever runs them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from services.adapters.postgres.connections import engine
from services.adapters.postgres.migrate import (
    ShardsMismatch,
    alembic_config,
    current_revision,
    init_shards,
    upgrade,
)
from services.adapters.postgres.revision import LAST_TO_MIGRATE, Outdated, newest_revision
from services.adapters.postgres.schema import metadata
from tests.servers import MakeDatabase

SERVERS = ["embedded_dsn", pytest.param("postgres_dsn", marks=pytest.mark.real)]


@pytest_asyncio.fixture(params=SERVERS)
async def dsn(request: pytest.FixtureRequest, database: MakeDatabase) -> AsyncIterator[str]:
    """Return a database with nothing in it."""
    dsn = await database(request.getfixturevalue(request.param))
    await _fetch(dsn, "DROP SCHEMA IF EXISTS past CASCADE")
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
    """Return what the tables lack of the metadata, or have besides; only the migrations have comments."""

    def compare(connection: sa.Connection) -> list[Any]:
        options = {"compare_type": True, "compare_server_default": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        entries = [each for entry in found for each in (entry if isinstance(entry, list) else [entry])]
        return [each for each in entries if not each[0].endswith("_comment")]

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


async def test_the_migrations_say_what_tables_and_columns_mean(dsn: str) -> None:
    await upgrade(dsn)
    about = "SELECT relname, obj_description(oid) AS says FROM pg_class WHERE relkind = 'r'"
    tables = await _fetch(dsn, f"{about} AND relnamespace = 'public'::regnamespace")
    assert [row["relname"] for row in tables if not row["says"]] == ["alembic_version"]
    about = "SELECT col_description('nodes'::regclass, attnum) FROM pg_attribute"
    assert await _fetch(dsn, f"{about} WHERE attrelid = 'nodes'::regclass AND attname = 'version'") == [
        ("counts changes of the node and of the pods on it; what the compare-and-swap compares",)
    ]
    assert await _fetch(dsn, f"{about} WHERE attrelid = 'nodes'::regclass AND attname = 'id'") == [
        ("order of arrival",)
    ]


async def test_the_comparison_sees_a_difference(dsn: str) -> None:
    await upgrade(dsn)
    await _fetch(dsn, "DROP VIEW past.pending")  # no column can change that a view reads
    await _fetch(dsn, "ALTER TABLE pending ALTER COLUMN arrival TYPE int")
    await _fetch(dsn, "DROP INDEX decisions_pod")
    kinds = {entry[0] for entry in await _difference(dsn)}
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


async def test_a_ledger_at_the_first_revision_is_taken_as_it_is(dsn: str) -> None:
    """So it was left by the builds that had the migrations before it."""
    await upgrade(dsn)
    said = "SELECT * FROM alembic_version, ledger_name, log_seal"
    before = await _catalogue(dsn), await _fetch(dsn, said)
    await init_shards(dsn, 2)
    await upgrade(dsn)
    assert (await _catalogue(dsn), await _fetch(dsn, said)) == before
    assert [tuple(row)[:2] for row in before[1]] == [(newest_revision(), "0050")]


@pytest.mark.parametrize("at", ["0001", "0031", "0043"])
async def test_a_ledger_of_an_earlier_revision_is_refused_and_left_alone(dsn: str, at: str) -> None:
    await upgrade(dsn)
    await _fetch(dsn, f"UPDATE alembic_version SET version_num = '{at}'")
    before = await _catalogue(dsn)
    with pytest.raises(Outdated, match=f"at {at}, .* run `berth init` of build {re.escape(LAST_TO_MIGRATE)}"):
        await upgrade(dsn)
    assert await current_revision(dsn) == at
    assert await _catalogue(dsn) == before


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
