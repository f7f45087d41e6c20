"""The pool of connections for queries, and what a fault of the database means to the caller."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from domain.model.errors import BerthError, Unavailable
from services.adapters.postgres.connections import UNANSWERED, answering, connect

_T = TypeVar("_T", bound=NamedTuple)


class NotLaidDown(BerthError):
    """The database has none of the tables."""

    code = "not-ready"

    def __init__(self) -> None:
        super().__init__("the database is empty; run `berth init`")


class Engine:
    """Runs statements of SQLAlchemy Core.

    Parameters
    ----------
    dsn : str
        As asyncpg takes it, unix sockets included.
    """

    def __init__(self, dsn: str) -> None:
        async def creator() -> Any:
            return await connect(dsn, "berth-api")

        self._engine: AsyncEngine = create_async_engine(
            "postgresql+asyncpg://", async_creator=creator, pool_size=4, max_overflow=4, pool_pre_ping=True
        )

    async def aclose(self) -> None:
        """Close the pool."""
        await self._engine.dispose()

    async def _rows(self, statement: sa.Executable) -> Sequence[sa.Row[Any]]:
        with _faults(), answering():
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                return (await connection.execute(statement)).all()

    async def _row(self, statement: sa.Executable) -> sa.Row[Any] | None:
        rows = await self._rows(statement)
        return rows[0] if rows else None

    async def _all(self, row: type[_T], statement: sa.Executable) -> list[_T]:
        """Read rows whose columns are those of ``row``, in its order."""
        return [row(*found) for found in await self._rows(statement)]

    async def _write(self, statement: sa.Executable) -> int:
        with _faults(), answering():
            async with self._engine.begin() as connection:
                return int((await connection.execute(statement)).rowcount)


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    """Translate a fault of the database for the caller. Other errors pass through."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        cause = error.orig.__cause__ if error.orig is not None else None
        if isinstance(cause, asyncpg.UndefinedTableError):
            raise NotLaidDown from error
        if error.connection_invalidated or isinstance(cause, UNANSWERED):
            raise Unavailable(f"the ledger does not answer: {cause or type(error).__name__}") from error
        raise
