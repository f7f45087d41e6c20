"""Leases in Postgres: the owner of each shard, and until when by the database's clock."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence

import asyncpg

from services.adapters.postgres import sql_leases as sql
from services.adapters.postgres.connections import Connection, Session, rows_count
from services.ports.ledger import Lease

COMMIT_SESSION = "berth-commit "
"""A process commits by a session of this name, followed by its incarnation."""


class Leases:
    """The leases of one table: those of the workers or of the relays.

    Parameters
    ----------
    session : Session
        A connection of its own: nothing that takes long may come before a renewal.
    table : str
        One of ``sql_leases.LEASE_TABLES``.
    holder : UUID
        Tells this process from others of the same name.
    """

    def __init__(self, session: Session, table: str, holder: uuid.UUID) -> None:
        fenced = sql.LEASE_TABLES[table]
        self._session = session
        self._holder = holder
        self._fences_offsets = fenced == "shards"
        self._seen = sql.LEASES.format(leases=table)
        self._lock = sql.LOCK_FREE_LEASES.format(leases=table)
        self._raise = sql.RAISE_EPOCHS.format(fenced=fenced)
        self._take = sql.TAKE_LEASES.format(leases=table)
        self._renew = sql.RENEW_LEASES.format(leases=table)
        self._release = sql.RELEASE_LEASES.format(leases=table)

    async def acquire(self, owner: str, seconds: float, shards: Sequence[int] | None = None) -> list[Lease]:
        """Take of these shards those that are free, each with the next epoch; None: all or none.

        Nothing, if another transaction holds their rows for longer than a renewal may wait: a commit whose
        worker has no lease any more is ended then. No time limit ends a worker that is frozen while it sends
        rows.
        """
        async with self._session.use() as connection:
            seen = await connection.fetch(self._seen, shards, self._holder)
            free = [row["shard"] for row in seen if row["free"]]
            if not free or (shards is None and len(free) < len(seen)):
                return []  # the usual answer to one that waits: asked without a lock
            try:
                async with connection.transaction():
                    return await self._raised(connection, owner, seconds, free, are_all=shards is None)
            except asyncpg.LockNotAvailableError:
                if self._fences_offsets:
                    await connection.execute(sql.END_LATE_COMMITS, free, self._holder, COMMIT_SESSION)
                return []

    async def _raised(
        self, connection: Connection, owner: str, seconds: float, free: Sequence[int], *, are_all: bool
    ) -> list[Lease]:
        """Give these shards the next epoch, as far as they are free still; ``are_all``: all or none."""
        await connection.execute(sql.WAIT_BRIEFLY)
        locked = [row["shard"] for row in await connection.fetch(self._lock, free, self._holder)]
        if not locked or (are_all and len(locked) < len(free)):
            return []
        if self._fences_offsets:
            # The order of a commit, offsets before shards, and it waits for one still in flight.
            await connection.execute(sql.LOCK_ALL_OFFSETS, locked)
        taken = sorted(Lease(*row) for row in await connection.fetch(self._raise, locked, self._holder))
        if self._fences_offsets:
            await connection.execute(sql.RAISE_OFFSETS, locked)
        await connection.execute(self._take, *_columns(taken), owner, self._holder, seconds)
        if self._fences_offsets:
            await connection.execute(sql.NOTE_OWNERS, locked)
        return taken

    async def free(self) -> tuple[list[int], float, dict[int, str]]:
        """Return ``free``, ``free_in_seconds`` and ``expired`` as of ``Muster``."""
        async with self._session.use() as connection:
            seen = await connection.fetch(self._seen, None, self._holder)
        seconds = min((row["seconds"] for row in seen if not row["free"]), default=math.inf)
        expired = {row["shard"]: row["owner"] for row in seen if row["free"] and row["is_of_another"]}
        return [row["shard"] for row in seen if row["free"]], seconds, expired

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        """Prolong the leases that are still held, and return them."""
        async with self._session.use() as connection:
            found = await connection.fetch(self._renew, *_columns(leases), seconds, self._holder)
        return sorted(Lease(*row) for row in found)

    async def release(self, leases: Sequence[Lease]) -> None:
        """Give back what is still held."""
        async with self._session.use() as connection, connection.transaction():
            await connection.execute(self._release, *_columns(leases), self._holder)
            if self._fences_offsets:
                await connection.execute(sql.NOTE_RELEASED, *_columns(leases), self._holder)


async def forget_owners(connection: Connection, age_seconds: float, limit: int) -> int:
    """See ``Ledger.forget_owners``."""
    return rows_count(await connection.execute(sql.FORGET_OWNERS, age_seconds, limit))


async def forget_workers(connection: Connection, age_seconds: float, limit: int) -> int:
    """See ``Ledger.forget_workers``."""
    return rows_count(await connection.execute(sql.FORGET_WORKERS, age_seconds, limit))


def _columns(leases: Sequence[Lease]) -> tuple[list[int], list[int]]:
    ordered = sorted(leases)
    return [lease.shard for lease in ordered], [lease.epoch for lease in ordered]
