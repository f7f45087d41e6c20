"""What the API itself writes: its keys, the events that it accepted, and its log of accesses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from domain.model.limits import sessions_per_key_max
from services.adapters.postgres import schema as t
from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.selects import texts
from services.ports.access import MINUTE_MS, Access, AccessFilter, Place
from services.ports.log import Span
from services.ports.store import Grant, KeyRow, Session

_BYTES = sa.ARRAY(sa.LargeBinary)
_GRANT = [t.api_keys.c[name] for name in Grant._fields]
_ACCESS = [t.access_log.c[name] for name in Access.__struct_fields__]


class PostgresCallers:
    """The ``Callers`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def known_events(self, holder: str, ids: Sequence[str]) -> dict[str, bytes | None]:
        """Look ids up by the primary key."""
        i, wanted = t.ingested_events.c, texts(ids)
        joined = t.ingested_events.join(wanted, sa.and_(i.holder == holder, i.id == wanted.c.id))
        found = await self._engine.rows(sa.select(i.id, i.digest).select_from(joined), Pool.INTAKE)
        return {row.id: row.digest for row in found}

    async def record_events(self, holder: str, digests: Mapping[str, bytes]) -> None:
        """Insert what is new."""
        columns = (sa.cast(list(digests), sa.ARRAY(sa.Text)), sa.cast(list(digests.values()), _BYTES))
        new = sa.select(sa.literal(holder, sa.Text), *(sa.func.unnest(column) for column in columns))
        statement = insert(t.ingested_events).from_select(["holder", "id", "digest"], new)
        await self._engine.write(statement.on_conflict_do_nothing())

    async def forget_events(self, age_seconds: float, limit: int) -> int:
        """Delete along the index on the time."""
        i = t.ingested_events.c
        old = i.recorded_at < _from_now(-age_seconds)
        return await self._forget(t.ingested_events, old, i.recorded_at, limit)

    async def _forget(
        self, table: sa.Table, old: sa.ColumnElement[bool], oldest: sa.ColumnElement[Any], limit: int
    ) -> int:
        """Delete the oldest of these rows; those that another process deletes are skipped."""
        keys = table.primary_key.columns
        some = sa.select(*keys).where(old).order_by(oldest).limit(limit)
        locked = some.with_for_update(skip_locked=True).subquery()
        return await self._engine.write(sa.delete(table).where(*(key == locked.c[key.name] for key in keys)))

    async def seal_secret(self) -> bytes:
        """Read the only row."""
        return bytes((await self._engine.rows(sa.select(t.log_seal.c.secret), Pool.KEYS))[0].secret)

    async def note_accesses(self, rows: Sequence[Access]) -> None:
        """Insert what is new; a request that is there already is counted."""
        columns = [
            {
                **msgspec.structs.asdict(row),
                "roles": list(row.roles),
                "spans": list(row.spans),
                "minute_ms": row.minute_ms,
                "digest": row.digest,
            }
            for row in rows
        ]
        columns.sort(key=lambda row: (row["minute_ms"], row["digest"]))  # so no two writers lock each other
        statement = insert(t.access_log)
        new, there = statement.excluded, t.access_log.c
        both = {
            "at_ms": sa.func.least(there.at_ms, new.at_ms),
            "last_at_ms": sa.func.greatest(there.last_at_ms, new.last_at_ms),
            "duration_ms": sa.func.greatest(there.duration_ms, new.duration_ms),
            "times": there.times + new.times,
        }
        key = [there.minute_ms, there.digest]
        counted = statement.on_conflict_do_update(index_elements=key, set_=both)
        await self._engine.write_each(counted, columns)

    async def accesses(self, which: AccessFilter, limit: int, after: Place | None) -> Sequence[Access]:
        """Walk an index backwards: of the caller, of the status, or of the time."""
        a = t.access_log.c
        equal = {a.caller: which.caller, a.status: which.status}
        where = [column == value for column, value in equal.items() if value is not None]
        if which.since_ms is not None:
            where += [a.minute_ms > which.since_ms - MINUTE_MS, a.last_at_ms >= which.since_ms]
        if which.until_ms is not None:
            where += [a.minute_ms < which.until_ms, a.at_ms < which.until_ms]
        if after is not None:
            where.append(sa.tuple_(a.minute_ms, a.digest) < after)
        order = (a.minute_ms.desc(), a.digest.desc())
        query = sa.select(*_ACCESS).where(*where).order_by(*order).limit(limit)
        found = await self._engine.rows(query, Pool.LISTS)
        return [
            Access(
                **{
                    **row._asdict(),
                    "roles": tuple(row.roles),
                    "spans": tuple(Span(*each) for each in row.spans),
                }
            )
            for row in found
        ]

    async def forget_accesses(self, age_seconds: float, limit: int) -> int:
        """Delete along the primary key."""
        a = t.access_log.c
        now_ms = sa.cast(sa.func.extract("epoch", sa.func.now()) * 1000, sa.BigInteger)
        old = a.minute_ms < now_ms - int(age_seconds * 1000)
        return await self._forget(t.access_log, old, a.minute_ms, limit)

    async def keys(self) -> Sequence[KeyRow]:
        """List the keys by age."""
        k = t.api_keys.c
        query = sa.select(k.created_at, k.revoked_at, *_GRANT).order_by(k.created_at, k.name)
        found = [list(row) for row in await self._engine.rows(query, Pool.KEYS)]
        return [KeyRow(Grant(*row[2:]), row[0], row[1]) for row in found]

    async def grant(self, key_hash: bytes) -> Grant | None:
        """Look a key up by its hash."""
        k = t.api_keys.c
        found = sa.select(*_GRANT).where(k.key_hash == key_hash, k.revoked_at.is_(None))
        return next(iter(await self._engine.all(Grant, found, Pool.KEYS)), None)

    async def create_key(self, key_hash: bytes, grant: Grant) -> None:
        """Insert a key."""
        await self._engine.write(sa.insert(t.api_keys).values(key_hash=key_hash, **grant._asdict()))

    async def revoke_key(self, name: str) -> int:
        """Stamp the keys of this name that are not revoked yet."""
        k = t.api_keys.c
        statement = sa.update(t.api_keys).where(k.name == name, k.revoked_at.is_(None))
        return await self._engine.write(statement.values(revoked_at=sa.func.now()))

    async def begin_session(self, token_hash: bytes, key_hash: bytes, seconds: float) -> Session | None:
        """Insert a session of a key that is good, and delete the oldest beyond the limit."""
        k, s = t.api_keys.c, t.sessions.c
        until = _from_now(seconds)
        good = sa.select(sa.literal(token_hash, sa.LargeBinary), k.key_hash, until)
        good = good.where(k.key_hash == key_hash, k.revoked_at.is_(None))
        new = sa.insert(t.sessions).from_select(["token_hash", "key_hash", "expires_at"], good)
        if not await self._engine.write(new):
            return None
        of_key = sa.select(s.token_hash).where(s.key_hash == key_hash)
        old = of_key.order_by(s.created_at.desc(), s.token_hash).offset(sessions_per_key_max)
        await self._engine.write(sa.delete(t.sessions).where(s.token_hash.in_(old)))
        return await self.session(token_hash)

    async def session(self, token_hash: bytes) -> Session | None:
        """Look a session up with its key."""
        k, s = t.api_keys.c, t.sessions.c
        query = (
            sa.select(s.expires_at, *_GRANT)
            .select_from(t.sessions.join(t.api_keys, s.key_hash == k.key_hash))
            .where(s.token_hash == token_hash, s.expires_at > sa.func.now(), k.revoked_at.is_(None))
        )
        row = await self._engine.row(query, Pool.KEYS)
        return None if row is None else Session(Grant._make(row[1:]), row[0])

    async def end_session(self, token_hash: bytes) -> None:
        """Delete a session."""
        await self._engine.write(sa.delete(t.sessions).where(t.sessions.c.token_hash == token_hash))

    async def forget_sessions(self, age_seconds: float, limit: int) -> int:
        """Delete along the index on the time."""
        s = t.sessions.c
        return await self._forget(t.sessions, s.expires_at < _from_now(-age_seconds), s.expires_at, limit)


def _from_now(seconds: float) -> sa.ColumnElement[Any]:
    return sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)
