"""Builds the database: Alembic's migrations, then one row per shard. Doing it again changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import asyncpg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

import migrations
from domain.model.errors import BerthError, Fenced
from services.adapters.postgres import sql
from services.adapters.postgres.connections import BULK, answering, engine, fresh
from services.adapters.postgres.engine import NotGranted
from services.adapters.postgres.rehoming import rehome
from services.adapters.postgres.revision import check_origin, is_newer
from services.adapters.postgres.sql_leases import LEASE_TABLES
from services.ports.ledger import Lease


class ShardsMismatch(BerthError):
    """The database was made for another number of shards, and the log's partitions depend on that number."""

    code = "shards-mismatch"


def alembic_config() -> Config:
    """Return Alembic's configuration, which needs no file."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    return config


async def upgrade(dsn: str) -> None:
    """Bring the database to the newest revision in one transaction. Others wait for it.

    One that a newer version of berth has migrated stays as it is.

    Raises
    ------
    Outdated
        Only an older version of berth can migrate it.
    Unavailable
        The server does not answer.
    """
    database = engine(dsn)
    try:
        with answering():
            async with database.begin() as connection:
                await connection.execute(sa.text(sql.MIGRATION_LOCK))
                await connection.run_sync(_upgrade)
    finally:
        await database.dispose()


def _upgrade(connection: sa.Connection) -> None:
    at = _revision(connection)
    check_origin(at)
    if is_newer(at):
        return
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def current_revision(dsn: str) -> str | None:
    """Return the revision of the database; None when nothing was laid down yet."""
    database = engine(dsn)
    try:
        with answering():
            async with database.connect() as connection:
                return await connection.run_sync(_revision)
    finally:
        await database.dispose()


def _revision(connection: sa.Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


async def init_shards(dsn: str, shards: int, leases: Sequence[Lease] = ()) -> None:
    """Create the rows of all shards. Existing rows stay as they are, so that there may be more of them.

    The caller that adds some to a ledger in use holds those that there are (``leases``), so that what is open
    comes to the shard of its key.

    Raises
    ------
    ShardsMismatch
        There are rows of more shards: what they hold would have no owner.
    Fenced
        The leases ran out, and another process took a shard.
    NotGranted
        Another user owns the tables.
    ValueError
        ``shards`` is not positive.
    """
    if shards < 1:
        raise ValueError(f"{shards} shards: at least 1 is needed")
    async with fresh(dsn, "berth-init", BULK) as connection, connection.transaction():
        await connection.execute(sql.MIGRATION_LOCK)
        found = await connection.fetchval(sql.COUNT_SHARDS)
        if found > shards:
            raise ShardsMismatch(f"the database was laid out for {found} shards, not {shards}")
        if leases and dict(map(tuple, await connection.fetch(sql.LOCK_SHARDS))) != dict(leases):
            raise Fenced("the shards were taken by another process meanwhile; stop all workers")
        try:
            for table in (*LEASE_TABLES.values(), *LEASE_TABLES):
                await connection.execute(sql.LAY_DOWN.format(table=table), shards)
        except asyncpg.InsufficientPrivilegeError as error:
            raise NotGranted.but_to_owner(error) from error
        if leases:
            await rehome(connection, shards)
