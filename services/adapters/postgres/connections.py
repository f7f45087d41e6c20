"""Connections to Postgres: how they open, which limits they have, and when a server counts as silent."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from domain.model.errors import BerthError, Overdue, Unavailable
from domain.model.limits import export_seconds_max, lease_seconds, returning_seconds
from services.listening import is_loopback
from services.secret import redacted

Connection = Any  # asyncpg has no types

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0


class Limits(NamedTuple):
    """The time limits of a connection: the server's own, and how long we wait for the server."""

    settings: Mapping[str, str]
    answer_seconds: float
    connect_seconds: float = CONNECT_SECONDS


_COMMON = {
    "statement_timeout": "10s",
    "lock_timeout": "2s",
    # A process that was paused in the middle of a transaction must not keep rows locked.
    "idle_in_transaction_session_timeout": "10s",
    # Nor one that is cut off or without power in the middle of a statement, which has no other end.
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "jit": "off",  # compiling costs more than any of our statements
}

COMMON = Limits(_COMMON, answer_seconds=15)


def limited(seconds: int) -> Limits:
    """Return the limits of a connection whose statements may take so long."""
    return Limits({**_COMMON, "statement_timeout": f"{seconds}s"}, answer_seconds=seconds + 5)


def as_of_limits(seconds: int) -> Limits:
    """Return the limits of a connection that asks the views of the past.

    A view has parts that a condition may rule out, which the server looks for only when told to.
    """
    common = limited(seconds)
    told = {"search_path": "past, public", "constraint_exclusion": "on", "work_mem": "64MB"}
    return Limits({**common.settings, **told}, answer_seconds=common.answer_seconds)


# For statements that are written as: for each element of an array, one index look-up. Their plans are
# prepared once, often while the tables are still empty, when the planner would prefer to scan.
_LOOKING_UP = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}


def looking_up(told: Limits) -> Limits:
    """Return the same limits, for a connection that goes by indexes alone."""
    return told._replace(settings={**told.settings, **_LOOKING_UP})


HOT_SETTINGS = {
    **_COMMON,
    **_LOOKING_UP,
    # A worker that takes the shards over waits for what a stopped worker has locked.
    "idle_in_transaction_session_timeout": f"{lease_seconds:g}s",
}
HOT = Limits(HOT_SETTINGS, answer_seconds=15, connect_seconds=returning_seconds)
"""For the connection that commits."""

QUICK = Limits({**_COMMON, "statement_timeout": "3s"}, answer_seconds=4, connect_seconds=returning_seconds)
"""For leases and heartbeats."""

BULK = Limits(
    {
        **_COMMON,
        "statement_timeout": "600s",
        "idle_in_transaction_session_timeout": "60s",
        "work_mem": "64MB",
    },
    answer_seconds=620,
)
"""For reading whole tables."""

EXPORT = Limits(
    {
        **_COMMON,
        "statement_timeout": f"{export_seconds_max}s",
        "idle_in_transaction_session_timeout": "30s",  # a client that takes nothing keeps no snapshot open
        "work_mem": "16MB",
        "max_parallel_workers_per_gather": "0",  # one core of the server, and no more
    },
    answer_seconds=export_seconds_max + 5,
)
"""For exports, which nothing waits for."""

PLAIN = Limits({}, answer_seconds=30)
"""For the embedded log, whose writers wait for each other."""

UNANSWERED: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutting down, starting up, cancelled by a timeout
    asyncpg.InsufficientResourcesError,  # disk full, too many connections
    asyncpg.TransactionRollbackError,  # deadlock, serialization
    asyncpg.ObjectNotInPrerequisiteStateError,  # a lock that is held; a replica that has not taken over
    asyncpg.InvalidTransactionStateError,  # idle for too long; read-only after a fail-over
    asyncpg.PostgresSystemError,  # disk errors
    asyncpg.InternalClientError,
)


_REFUSED: tuple[type[BaseException], ...] = (
    asyncpg.InvalidAuthorizationSpecificationError,  # a wrong user or password
    asyncpg.InvalidCatalogNameError,  # no such database
    ValueError,  # a DSN that does not parse
)


class Refused(BerthError):
    """The database refuses us. Waiting does not help: the DSN has to change."""

    code = "database-refused"


def rows_count(status: str) -> int:
    """Return how many rows a statement wrote or deleted, given what the server said of it: ``UPDATE 3``."""
    return int(status.rpartition(" ")[2])


@contextlib.contextmanager
def answering(connection: Connection | None = None) -> Iterator[None]:
    """Raise ``Unavailable`` for a silent or absent database. Other errors pass through."""
    try:
        yield
    except asyncpg.QueryCanceledError as error:
        raise Overdue(f"the ledger gave up: {error}") from error
    except UNANSWERED as error:
        raise Unavailable(f"the ledger does not answer: {str(error) or type(error).__name__}") from error
    except asyncpg.UndefinedTableError as error:
        raise Unavailable("the database is not initialised; run `berth init`") from error
    except asyncpg.InterfaceError as error:
        if connection is None or not connection.is_closed():
            raise
        raise Unavailable(f"the connection to the ledger is lost: {error}") from error


def in_clear(dsn: str) -> bool:
    """Return whether a connection leaves this machine without having to be encrypted."""
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    hosts = (parts.netloc.rpartition("@")[2] or query.get("host", "")).split(",")
    names = [host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0] for host in hosts]
    elsewhere = any(name and not name.startswith("/") and not is_loopback(name) for name in names)
    mode = query.get("sslmode", os.environ.get("PGSSLMODE", "prefer"))
    return elsewhere and mode not in ("require", "verify-ca", "verify-full")


async def connect(dsn: str, name: str, limits: Limits = COMMON) -> Connection:
    """Open a connection; ``name`` shows in ``pg_stat_activity``.

    Raises
    ------
    Unavailable
        The server does not answer.
    Refused
        The server or the DSN does not allow it.
    """
    with answering():
        try:
            return await asyncpg.connect(
                dsn,
                timeout=limits.connect_seconds,
                command_timeout=limits.answer_seconds,
                server_settings={**limits.settings, "application_name": name},
            )
        except _REFUSED as error:
            login = isinstance(error, asyncpg.InvalidAuthorizationSpecificationError)
            password = ", and BERTH_POSTGRES_PASSWORD or BERTH_POSTGRES_PASSWORD_FILE" if login else ""
            raise Refused(
                f"the database refuses the connection: {redacted(error)}; check BERTH_POSTGRES_DSN{password}"
            ) from error


async def close(connection: Connection) -> None:
    """Close the connection, and cut it when the server does not answer."""
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except (*UNANSWERED, asyncpg.InterfaceError):
        connection.terminate()


@contextlib.asynccontextmanager
async def fresh(dsn: str, name: str, limits: Limits = COMMON) -> AsyncIterator[Connection]:
    """Open a connection for one purpose; it is cut on any error or cancellation."""
    connection = await connect(dsn, name, limits)
    try:
        with answering(connection):
            yield connection
    except BaseException:
        connection.terminate()
        raise
    await close(connection)


class Session:
    """One connection, used by one task at a time and opened when needed.

    After any error or cancellation it is cut: what the server made of the statement is unknown, and so is
    everything that would follow on the same connection. ``prepare`` is called with each new connection.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        limits: Limits = COMMON,
        prepare: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        self._prepare = prepare
        self._dsn = dsn
        self._name = name
        self._limits = limits
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        """Give the connection to the caller; raise ``Unavailable`` when the server does not answer."""
        async with self._turn:
            try:
                is_new = self._connection is None or self._connection.is_closed()
                if is_new:
                    self._connection = await connect(self._dsn, self._name, self._limits)
                with answering(self._connection):
                    if is_new and self._prepare is not None:
                        await self._prepare(self._connection)
                    yield self._connection
            except BaseException:
                self.cut()
                raise

    def cut(self) -> None:
        """End the connection without a message to the server, as a crash would."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def aclose(self) -> None:
        """Close the connection when its present user is done."""
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                await close(connection)


def engine(dsn: str) -> AsyncEngine:
    """Return an SQLAlchemy engine without a pool; asyncpg reads the DSN itself, unix sockets included."""

    async def creator() -> Connection:
        return await connect(dsn, "berth-engine", BULK)

    return create_async_engine("postgresql+asyncpg://", async_creator=creator, poolclass=NullPool)
