"""Leases in Postgres: who owns which shard, for how long, and through which connection."""

from __future__ import annotations

from collections.abc import Sequence

from services.adapters.postgres import sql
from services.adapters.postgres.connections import Connection, Session
from services.ports.ledger import Lease


class Leases:
    """The leases of one table: those of the workers (``shards``) or of the relays (``relay_cursor``).

    Parameters
    ----------
    session : Session
        The connection that the leases are held through: when it ends, they may be taken over at once.
    table : str
        One of ``sql.LEASE_TABLES``.
    """

    def __init__(self, session: Session, table: str) -> None:
        assert table in sql.LEASE_TABLES, table
        self._session = session
        self._fences_offsets = table == "shards"
        self._owners = sql.OWNERS.format(table=table)
        self._lock = sql.LOCK_LEASES.format(table=table)
        self._take = sql.TAKE_LEASES.format(table=table)
        self._renew = sql.RENEW_LEASES.format(table=table)
        self._release = sql.RELEASE_LEASES.format(table=table)

    async def acquire(self, owner: str, seconds: float, shard: int | None = None) -> list[Lease]:
        """Take all shards (or the one named), each with the next epoch, unless an owner of any is alive."""
        async with self._session.use() as connection:
            if await self._any_alive(connection, shard):
                return []  # the usual answer to one that waits: asked without a lock
            async with connection.transaction():
                if self._fences_offsets:
                    # The order of a commit, offsets before shards, and it waits for one still in flight.
                    await connection.execute(sql.LOCK_ALL_OFFSETS)
                await connection.execute(self._lock, shard)
                # A statement of its own: the one that waited for the lock may have seen an older picture.
                if await self._any_alive(connection, shard):
                    return []
                taken = await connection.fetch(self._take, shard, owner, seconds)
                if self._fences_offsets:
                    await connection.execute(sql.RAISE_OFFSETS)
            return sorted(Lease(row["shard"], row["epoch"]) for row in taken)

    async def _any_alive(self, connection: Connection, shard: int | None) -> bool:
        return any(row["alive"] for row in await connection.fetch(self._owners, shard))

    async def renew(self, leases: Sequence[Lease], seconds: float) -> bool:
        """Prolong all leases or none, through the session's present connection."""
        async with self._session.use() as connection:
            transaction = connection.transaction()
            await transaction.start()
            status = await connection.execute(self._renew, *_columns(leases), seconds)
            if status != f"UPDATE {len(leases)}":
                await transaction.rollback()
                return False
            await transaction.commit()
            return True

    async def release(self, leases: Sequence[Lease]) -> None:
        """Give back what is still held."""
        async with self._session.use() as connection:
            await connection.execute(self._release, *_columns(leases))


def _columns(leases: Sequence[Lease]) -> tuple[list[int], list[int]]:
    ordered = sorted(leases)
    return [lease.shard for lease in ordered], [lease.epoch for lease in ordered]
