"""The ledgers under test, each behind the same few handles."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

import asyncpg
import pytest

from services.adapters.memory.database import MemoryDatabase, OffsetRow
from services.adapters.memory.history import MemoryHistory
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.outbox import MemoryOutbox
from services.adapters.memory.store import MemoryStore
from services.adapters.postgres.engine import Engine
from services.adapters.postgres.history import PostgresHistory
from services.adapters.postgres.ledger import PostgresLedger
from services.adapters.postgres.migrate import init_shards
from services.adapters.postgres.outbox import PostgresOutbox
from services.adapters.postgres.schema import metadata
from services.adapters.postgres.store import PostgresStore
from services.ports.history import History
from services.ports.journal import BATCHES
from services.ports.ledger import CommitBatch, Lease, Ledger, LedgerState, NotCommitted, both
from services.ports.log import PODS_TOPIC, TopicPartition
from services.ports.outbox import Outbox
from services.ports.store import Store
from tests.contract.batches import AT_MS
from tests.servers import MakeDatabase

LEASE_SECONDS = 30.0


async def loaded(ledger: Ledger, leases: Sequence[Lease]) -> LedgerState:
    """Return all that a worker with these shards reads of a ledger."""
    return both(await ledger.load_base(), await ledger.load_part(leases))


class Backend(Protocol):
    """One database and whoever talks to it."""

    def ledger(self) -> Ledger:
        """Return the ledger as another process would open it."""

    def outbox(self) -> Outbox:
        """Return the outbox as another process would open it."""

    def store(self) -> Store:
        """Return the store as another process would open it."""

    def history(self) -> History:
        """Return the history as a replay would open it."""

    async def pass_time(self, seconds: float) -> None:
        """Let leases, owners, workers and event ids grow older."""

    async def begin_anew(self) -> None:
        """Begin another life, as a replica does that takes over."""

    async def lose_batch(self, shard: int, batch: int) -> None:
        """Lose a row of a journal, as where a snapshot is restored, and all connections."""

    async def prune_batch(self, shard: int, batch: int) -> None:
        """Prune a row of a journal, of a shard that has a batch more, and lose all connections."""

    async def lose_owners(self) -> None:
        """Lose the last acquisitions, as a replica does that takes over without the last transactions."""

    async def cut(self) -> None:
        """End all connections from the server's side, as its restart does."""

    def commit_in_flight(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Hold what a commit of all shards holds."""

    async def dump(self) -> Mapping[str, Any]:
        """Return everything that is stored, by table."""


class ManualClock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.time_ms = AT_MS

    def now_ms(self) -> int:
        """See ``Clock``."""
        return self.time_ms


class MemoryBackend:
    """The ledger in memory."""

    def __init__(self, shards: int) -> None:
        self._clock = ManualClock()
        self.database = MemoryDatabase(shards, self._clock.now_ms)

    def ledger(self) -> Ledger:
        """See ``Backend``."""
        return MemoryLedger(self.database, self._clock)

    def outbox(self) -> Outbox:
        """See ``Backend``."""
        return MemoryOutbox(self.database, self._clock)

    def store(self) -> Store:
        """See ``Backend``."""
        return MemoryStore(self.database)

    def history(self) -> History:
        """See ``Backend``."""
        return MemoryHistory(self.database)

    async def pass_time(self, seconds: float) -> None:
        """See ``Backend``."""
        self._clock.time_ms += round(seconds * 1000)

    async def begin_anew(self) -> None:
        """See ``Backend``."""
        self.database.timeline += 1

    async def lose_batch(self, shard: int, batch: int) -> None:
        """See ``Backend``."""
        del self.database.journal[shard, batch]

    async def prune_batch(self, shard: int, batch: int) -> None:
        """See ``Backend``."""
        self.database.offsets[shard, BATCHES, 0] = OffsetRow(1, batch + 1)
        await self.lose_batch(shard, batch)

    async def lose_owners(self) -> None:
        """See ``Backend``."""
        database = self.database
        for shard, row in database.shards.items():
            row.epoch -= 1
            database.cursors[shard].epoch -= 1
        for offset in database.offsets.values():
            offset.epoch -= 1
        for lease in (*database.worker_leases.values(), *database.relay_leases.values()):
            lease.epoch, lease.owner, lease.holder = lease.epoch - 1, None, None

    async def cut(self) -> None:
        """See ``Backend``: there are no connections."""

    @contextlib.asynccontextmanager
    async def commit_in_flight(self) -> AsyncIterator[None]:
        """See ``Backend``: a commit takes no time here."""
        yield

    async def dump(self) -> Mapping[str, Any]:
        """See ``Backend``."""
        tables = {name: table for name, table in vars(self.database).items() if not name.startswith("_")}
        del tables["now_ms"], tables["workers"]  # a clock and connections: nothing of it is stored
        for part in ("nominations", "moves", "inbox", "measured", "hosted", "past", "rollups"):
            tables |= vars(tables.pop(part))
        rows = {n: t.items() if isinstance(t, dict) else t for n, t in tables.items()}
        return {n: [repr(t)] if isinstance(t, int) else sorted(map(repr, t)) for n, t in rows.items()}


class PostgresBackend:
    """The ledger on a Postgres server."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._opened: list[Ledger | Outbox | Store | History] = []

    def ledger(self) -> PostgresLedger:
        """See ``Backend``."""
        ledger = PostgresLedger(self.dsn)
        self._opened.append(ledger)
        return ledger

    def outbox(self) -> PostgresOutbox:
        """See ``Backend``."""
        outbox = PostgresOutbox(self.dsn)
        self._opened.append(outbox)
        return outbox

    def store(self) -> PostgresStore:
        """See ``Backend``."""
        store = PostgresStore(Engine(self.dsn))
        self._opened.append(store)
        return store

    def history(self) -> History:
        """See ``Backend``."""
        history = PostgresHistory(self.dsn)
        self._opened.append(history)
        return history

    async def execute(self, statement: str, *values: Any) -> None:
        """Run a statement as an operator would."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(statement, *values)
        finally:
            await connection.close()

    async def pass_time(self, seconds: float) -> None:
        """See ``Backend``."""
        past = f"- interval '{seconds} seconds'"
        for table in ("worker_leases", "relay_leases"):
            await self.execute(f"UPDATE {table} SET expires_at = expires_at {past}")
        await self.execute(f"UPDATE workers SET seen_at = seen_at {past}")
        await self.execute(f"UPDATE shard_owners SET taken_at = taken_at {past}, ended_at = ended_at {past}")
        await self.execute(f"UPDATE ingested_events SET recorded_at = recorded_at {past}")

    async def begin_anew(self) -> None:
        """See ``Backend``."""
        await self.execute("UPDATE ledger_name SET name = gen_random_uuid()")
        await self.cut()

    async def lose_batch(self, shard: int, batch: int) -> None:
        """See ``Backend``."""
        await self.execute(f"DELETE FROM journal WHERE (shard, batch) = ({shard}, {batch})")
        await self.cut()

    async def prune_batch(self, shard: int, batch: int) -> None:
        """See ``Backend``."""
        values = f"{shard}, '{BATCHES}', 0, 1, {batch + 1}"
        await self.execute(
            f"INSERT INTO shard_offsets (shard, topic, partition, epoch, next_offset) VALUES ({values})"
        )
        await self.lose_batch(shard, batch)

    async def lose_owners(self) -> None:
        """See ``Backend``."""
        for table in ("shards", "relay_cursor", "shard_offsets"):
            await self.execute(f"UPDATE {table} SET epoch = epoch - 1")
        for table in ("worker_leases", "relay_leases"):
            await self.execute(f"UPDATE {table} SET epoch = epoch - 1, owner = NULL, holder = NULL")

    async def cut(self) -> None:
        """See ``Backend``."""
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        await self.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}")

    @contextlib.asynccontextmanager
    async def commit_in_flight(self) -> AsyncIterator[None]:
        """See ``Backend``."""
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute("BEGIN")
            for table in ("shard_offsets", "shards"):
                await connection.execute(f"SELECT FROM {table} FOR UPDATE")
            yield
        finally:
            await connection.close()

    async def dump(self) -> Mapping[str, Any]:
        """See ``Backend``."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return {
                name: sorted(map(repr, await connection.fetch(f"SELECT * FROM {name}")))
                for name in metadata.tables
            }
        finally:
            await connection.close()

    async def aclose(self) -> None:
        """Close all that was opened."""
        for opened in self._opened:
            await opened.aclose()


async def start(ledger: Ledger, shards: int, owner: str = "worker") -> list[Lease]:
    """Take all shards and lay down the offset rows of their pods."""
    leases = list(await ledger.acquire(owner, LEASE_SECONDS))
    assert [lease.shard for lease in leases] == list(range(shards))
    for lease in leases:
        await ledger.ensure_offsets(lease, {TopicPartition(PODS_TOPIC, lease.shard): 0})
    return leases


async def start_two(backend: Backend) -> tuple[tuple[Ledger, Lease], tuple[Ledger, Lease]]:
    """Let two writers hold a shard each, and lay down the offset rows of their pods."""
    ledgers = backend.ledger(), backend.ledger()
    first, second = await start(ledgers[0], SHARDS)
    await ledgers[0].release([second])
    (taken,) = await ledgers[1].acquire("second", LEASE_SECONDS, [second.shard])
    assert taken.shard == second.shard
    return (ledgers[0], first), (ledgers[1], taken)


async def refuses(backend: Backend, ledger: Ledger, batch: CommitBatch, outcome: NotCommitted) -> None:
    """Assert that the batch gets this outcome and leaves every table as it was."""
    before = await backend.dump()
    assert await ledger.commit(batch) is outcome
    assert await backend.dump() == before


SHARDS = 2
BACKENDS = ["memory", "embedded", pytest.param("postgres", marks=[pytest.mark.real, pytest.mark.deep])]
"""Parameters of a fixture that opens each kind in turn; the last two differ in how they are reached."""


@contextlib.asynccontextmanager
async def open_backend(
    kind: str, request: pytest.FixtureRequest, database: MakeDatabase
) -> AsyncIterator[Backend]:
    """Open an empty ledger with ``SHARDS`` shards."""
    if kind == "memory":
        yield MemoryBackend(SHARDS)
        return
    backend = PostgresBackend(await database(request.getfixturevalue(f"{kind}_dsn")))
    await init_shards(backend.dsn, SHARDS)
    yield backend
    await backend.aclose()
