"""One database connection: opened when needed, used by one task at a time, dropped after any fault."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg

from domain.model.errors import BerthError, Unavailable

_CONNECT_TIMEOUT_SECONDS = 5.0
_COMMAND_TIMEOUT_SECONDS = 30.0

_GONE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.PostgresSystemError,
)


class Session:
    """A connection to the embedded log's database.

    Parameters
    ----------
    dsn : str
        As asyncpg takes it.
    prepare : callable, optional
        Called with each new connection before its first use.
    """

    def __init__(
        self, dsn: str, prepare: Callable[[asyncpg.Connection], Awaitable[None]] | None = None
    ) -> None:
        self._dsn = dsn
        self._prepare = prepare
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[asyncpg.Connection]:
        """Give the connection to the caller alone.

        Raises
        ------
        Unavailable
            When the database does not answer or is not initialised; the effect of the block is unknown.
        """
        async with self._turn:
            try:
                yield await self._connected()
            except BerthError:
                raise
            except BaseException as error:
                # Also after a cancellation: a statement may still be under way on the connection.
                self._drop()
                if isinstance(error, asyncpg.UndefinedTableError):
                    raise Unavailable("the database is not initialised; run `berth init`") from error
                # A ValueError is a wrong argument, which asyncpg files under InterfaceError.
                if isinstance(error, _GONE) and not isinstance(error, ValueError):
                    detail = str(error) or type(error).__name__
                    raise Unavailable(f"the embedded log's database does not answer: {detail}") from error
                raise

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is not None and self._connection.is_closed():
            self._drop()
        if self._connection is None:
            self._connection = await asyncpg.connect(
                self._dsn, timeout=_CONNECT_TIMEOUT_SECONDS, command_timeout=_COMMAND_TIMEOUT_SECONDS
            )
            if self._prepare is not None:
                await self._prepare(self._connection)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def aclose(self) -> None:
        """Close the connection; a later ``use`` opens another."""
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                try:
                    await connection.close(timeout=_CONNECT_TIMEOUT_SECONDS)
                except _GONE:
                    connection.terminate()
