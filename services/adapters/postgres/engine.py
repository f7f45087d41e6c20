"""The connections for queries, and what a fault of the database means to the caller."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import enum
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import asyncpg
import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from domain.model import limits
from domain.model.errors import BerthError, Unavailable
from domain.model.limits import page_bytes_max
from services.adapters.postgres.connections import (
    COMMON,
    EXPORT,
    UNANSWERED,
    Limits,
    answering,
    as_of_limits,
    connect,
    fresh,
    limited,
    looking_up,
)
from services.ports.past import Moment
from services.ports.store import Rows

_BYTES = "bytes_of_row"
_SET_MOMENT = sa.text(
    "SELECT set_config('berth.batches', :batches, true), set_config('berth.seqs', :seqs, true)"
)
_T = TypeVar("_T", bound=NamedTuple)


class NotLaidDown(BerthError):
    """The database has none of the tables."""

    code = "not-ready"

    def __init__(self) -> None:
        super().__init__("the database is empty; run `berth init`")


class TooSlow(BerthError):
    """A question reads more than the ledger can in the time that it has."""

    code = "too-slow"


class Busy(BerthError):
    """All connections for questions of a kind are taken."""

    code = "busy"
    retriable = True


class ExportTooLong(BerthError):
    """An export had its snapshot open for as long as it may."""

    code = "export-too-long"

    def __init__(self) -> None:
        super().__init__(
            f"the export was cut after {limits.export_seconds_max} s, as nothing is cleaned up meanwhile; "
            "export a shorter time by `since` and `until`, one after the other"
        )


class Reading(NamedTuple):
    """How much the questions of the API may ask of the database."""

    seconds: int = limits.read_seconds
    lists_at_once: int = limits.lists_at_once


READING = Reading()


class NotGranted(BerthError):
    """The user of the database may not do what was asked."""

    code = "not-granted"

    @classmethod
    def but_to_owner(cls, cause: Exception) -> NotGranted:
        """Return the error for what the owner of the tables may do."""
        return cls(f"the database does not let this process do that ({cause}); the tables' owner may")


class Pool(enum.Enum):
    """What a connection is for. Each has connections of its own, so that none waits for another."""

    HEALTH = "health"
    KEYS = "keys"
    INTAKE = "event ids, and what became of a request's events"
    LOOKUPS = "what is found by its name or id"
    LISTS = "lists"
    PAST = "questions about the past"
    TAIL = "the stream of events"


class Engine:
    """Runs statements of SQLAlchemy Core.

    Parameters
    ----------
    dsn : str
        As asyncpg takes it, unix sockets included.
    reading : Reading
        The limits of lists and look-ups.
    replica : str
        The database that answers about the past, where that is another one.
    """

    def __init__(self, dsn: str, reading: Reading = READING, replica: str = "") -> None:
        self._dsn, self._reading = dsn, reading
        self._moment: Moment | None = None
        self._exports = asyncio.Semaphore(limits.exports_at_once)
        sizes = {
            Pool.HEALTH: (2, COMMON),
            Pool.KEYS: (2, COMMON),
            Pool.INTAKE: (4, COMMON),
            Pool.LOOKUPS: (4, limited(reading.seconds)),
            Pool.LISTS: (reading.lists_at_once, limited(reading.seconds)),
            Pool.TAIL: (2, looking_up(limited(reading.seconds))),
        }
        self._engines = {pool: _pool(dsn, *size) for pool, size in sizes.items()}
        self._engines[Pool.PAST] = _pool(replica or dsn, limits.past_at_once, as_of_limits(reading.seconds))

    def as_of(self, moment: Moment) -> Engine:
        """Return this engine, on the same connections, for questions about a moment of the past."""
        narrowed = copy.copy(self)
        narrowed._moment = moment
        return narrowed

    async def aclose(self) -> None:
        """Close the pools."""
        for engine in self._engines.values():
            await engine.dispose()

    @property
    def is_past(self) -> bool:
        """Whether it answers about a moment of the past."""
        return self._moment is not None

    async def rows(self, statement: sa.Executable, pool: Pool = Pool.LOOKUPS) -> Sequence[sa.Row[Any]]:
        """Return the rows of a question; of one about the past, those that there were then."""
        if self._moment is not None:
            return await self._rows_as_of(self._moment, statement)
        with self._faults(pool), answering():
            async with self._engines[pool].connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                return (await connection.execute(statement)).all()

    async def _rows_as_of(self, moment: Moment, statement: sa.Executable) -> Sequence[sa.Row[Any]]:
        """Ask the views of the schema ``past``, which have the names of the tables."""
        with self._faults(Pool.PAST), answering():
            async with self._engines[Pool.PAST].begin() as connection:
                cuts = {"batches": _array(moment.batches), "seqs": _array(moment.seqs)}
                await connection.execute(_SET_MOMENT, cuts)
                return (await connection.execute(statement)).all()

    async def row(self, statement: sa.Executable, pool: Pool = Pool.LOOKUPS) -> sa.Row[Any] | None:
        """Return the first row, or None."""
        rows = await self.rows(statement, pool)
        return rows[0] if rows else None

    async def all(self, row: type[_T], statement: sa.Executable, pool: Pool = Pool.LOOKUPS) -> list[_T]:
        """Read rows whose columns are those of ``row``, in its order."""
        return [row(*found) for found in await self.rows(statement, pool)]

    async def page(
        self,
        query: sa.Select[Any],
        limit: int,
        size: sa.ColumnElement[int],
        by: Sequence[str],
        *,
        descending: bool = False,
        pool: Pool = Pool.LISTS,
    ) -> Rows[sa.Row[Any]]:
        """Read rows in the order of some columns, until they are ``limit`` or hold ``page_bytes_max``."""

        def order(columns: Any) -> list[sa.ColumnElement[Any]]:
            return [columns[name].desc() if descending else columns[name] for name in by]

        some = query.add_columns(size.label(_BYTES)).order_by(*order(query.selected_columns))
        page = some.limit(limit + 1).subquery("page")
        before = sa.func.sum(page.c[_BYTES]).over(order_by=order(page.c), rows=(None, -1))
        counted = sa.select(page, before.label("before"), sa.func.count().over().label("found")).subquery()
        fits = sa.func.coalesce(counted.c.before, 0) < page_bytes_max
        found = await self.rows(sa.select(counted).where(fits).order_by(*order(counted.c)).limit(limit), pool)
        return Rows(found, more=bool(found) and found[0].found > len(found))

    async def stream(
        self, statement: str, arguments: Sequence[Any], rows_at_once: int
    ) -> AsyncGenerator[Sequence[Sequence[Any]], None]:
        """Yield the rows of a question, some at a time, through a cursor on a connection of its own.

        Raises
        ------
        Busy
            ``limits.exports_at_once`` of these are read.
        ExportTooLong
            It has taken ``limits.export_seconds_max``, whoever is slow.
        """
        if self._exports.locked():
            raise Busy(
                f"{limits.exports_at_once} exports are read, as many as may be at once; try again later"
            )
        clock = asyncio.get_running_loop().time
        until = clock() + limits.export_seconds_max
        async with self._exports, fresh(self._dsn, "berth-export", EXPORT) as connection:
            try:
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    cursor = await connection.cursor(statement, *arguments)
                    while rows := await cursor.fetch(rows_at_once):
                        if clock() >= until:
                            raise ExportTooLong
                        yield rows
            except asyncpg.UndefinedTableError as error:
                raise NotLaidDown from error
            except asyncpg.InsufficientPrivilegeError as error:
                raise NotGranted.but_to_owner(error) from error

    async def write(self, statement: sa.Executable) -> int:
        """Run a statement in a transaction; return how many rows it changed."""
        with self._faults(Pool.INTAKE), answering():
            async with self._engines[Pool.INTAKE].begin() as connection:
                return int((await connection.execute(statement)).rowcount)

    async def write_each(self, statement: sa.Executable, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of these rows in one transaction; it is compiled once for all of them."""
        with self._faults(Pool.INTAKE), answering():
            async with self._engines[Pool.INTAKE].begin() as connection:
                await connection.execute(statement, rows)

    @contextlib.contextmanager
    def _faults(self, pool: Pool) -> Iterator[None]:
        """Translate a fault of the database for the caller. Other errors pass through."""
        try:
            yield
        except sa.exc.TimeoutError as error:
            raise Busy(
                f"all connections for {pool.value} are taken; ask again in a moment, or ask for less at once"
            ) from error
        except sa.exc.DBAPIError as error:
            cause = error.orig.__cause__ if error.orig is not None else None
            if isinstance(cause, asyncpg.UndefinedTableError):
                raise NotLaidDown from error
            if isinstance(cause, asyncpg.QueryCanceledError) and pool in (
                Pool.LOOKUPS,
                Pool.LISTS,
                Pool.PAST,
            ):
                raise TooSlow(
                    f"the ledger could not answer within {self._reading.seconds} s; narrow the question: "
                    "name a pod or a node, or a shorter time by `since` and `until`"
                ) from error
            if isinstance(cause, asyncpg.InsufficientPrivilegeError):
                raise NotGranted.but_to_owner(cause) from error
            if error.connection_invalidated or isinstance(cause, UNANSWERED):
                raise Unavailable(
                    f"the ledger does not answer: {str(cause or error) or type(cause or error).__name__}"
                ) from error
            raise


def _array(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _pool(dsn: str, size: int, told: Limits) -> AsyncEngine:
    async def creator() -> Any:
        return await connect(dsn, "berth-api", told)

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=creator,
        json_deserializer=msgspec.json.decode,
        pool_size=size,
        max_overflow=0,
        pool_timeout=limits.connection_wait_seconds,
    )
    sa.event.listen(engine.sync_engine, "checkout", _check_open)
    return engine


def _check_open(connection: Any, *_: object) -> None:
    """Let the pool replace a connection that the server has closed, as after its restart.

    asyncpg knows without asking. The pool's own check would ask three times before each question.
    """
    if connection.driver_connection.is_closed():
        raise sa.exc.DisconnectionError
