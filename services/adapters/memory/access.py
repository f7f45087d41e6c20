"""What the API itself writes, in memory: its keys, the events that it accepted, and its log of accesses."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from domain.model.limits import sessions_per_key_max
from services.adapters.memory.database import SEAL_SECRET, MemoryDatabase, SessionRow
from services.ports.access import Access, AccessFilter, Place
from services.ports.store import Grant, KeyRow, Session


class MemoryCallers:
    """The ``Callers`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def known_events(self, holder: str, ids: Sequence[str]) -> dict[str, bytes | None]:
        """See ``Store.known_events``."""
        events = self._database.events
        return {each: events[holder, each][0] for each in ids if (holder, each) in events}

    async def record_events(self, holder: str, digests: Mapping[str, bytes]) -> None:
        """See ``Store.record_events``."""
        for each, digest in digests.items():
            self._database.events.setdefault((holder, each), (digest, self._database.now_ms()))

    async def forget_events(self, age_seconds: float, limit: int) -> int:
        """See ``Store.forget_events``."""
        events, before_ms = self._database.events, self._database.now_ms() - age_seconds * 1000
        old = [key for key, (_, at_ms) in events.items() if at_ms < before_ms][:limit]
        for key in old:
            del events[key]
        return len(old)

    async def seal_secret(self) -> bytes:
        """See ``Store.seal_secret``."""
        return SEAL_SECRET

    async def note_accesses(self, rows: Sequence[Access]) -> None:
        """See ``Store.note_accesses``."""
        known = self._database.accesses
        for row in rows:
            place = (row.minute_ms, row.digest)
            known[place] = known[place].merged_with(row) if place in known else row

    async def accesses(self, which: AccessFilter, limit: int, after: Place | None) -> Sequence[Access]:
        """See ``Store.accesses``."""
        found = sorted(self._database.accesses.items(), reverse=True)
        return [
            row
            for place, row in found
            if (after is None or place < after)
            and which.caller in (None, row.caller)
            and which.status in (None, row.status)
            and (which.since_ms is None or row.last_at_ms >= which.since_ms)
            and (which.until_ms is None or row.at_ms < which.until_ms)
        ][:limit]

    async def forget_accesses(self, age_seconds: float, limit: int) -> int:
        """See ``Store.forget_accesses``."""
        before = self._database.now_ms() - age_seconds * 1000
        old = [place for place in sorted(self._database.accesses) if place[0] < before][:limit]
        for place in old:
            del self._database.accesses[place]
        return len(old)

    async def keys(self) -> Sequence[KeyRow]:
        """See ``Store.keys``."""
        return sorted(self._database.keys.values(), key=lambda key: (key.created_at, key.grant.name))

    async def grant(self, key_hash: bytes) -> Grant | None:
        """See ``Store.grant``."""
        key = self._database.keys.get(key_hash)
        return None if key is None or key.revoked_at is not None else key.grant

    async def create_key(self, key_hash: bytes, grant: Grant) -> None:
        """See ``Store.create_key``."""
        self._database.keys[key_hash] = KeyRow(grant, moment(self._database.now_ms()), None)

    async def revoke_key(self, name: str) -> int:
        """See ``Store.revoke_key``."""
        found = [
            at for at, key in self._database.keys.items() if (key.grant.name, key.revoked_at) == (name, None)
        ]
        for at in found:
            now = moment(self._database.now_ms())
            self._database.keys[at] = self._database.keys[at]._replace(revoked_at=now)
        return len(found)

    async def begin_session(self, token_hash: bytes, key_hash: bytes, seconds: float) -> Session | None:
        """See ``Store.begin_session``."""
        sessions, now_ms = self._database.sessions, self._database.now_ms()
        if await self.grant(key_hash) is None:
            return None
        sessions[token_hash] = SessionRow(key_hash, now_ms, now_ms + int(seconds * 1000))
        of_key = [token for token, row in sessions.items() if row.key_hash == key_hash]
        for token in of_key[:-sessions_per_key_max]:
            del sessions[token]
        return await self.session(token_hash)

    async def session(self, token_hash: bytes) -> Session | None:
        """See ``Store.session``."""
        row = self._database.sessions.get(token_hash)
        if row is None or row.expires_ms <= self._database.now_ms():
            return None
        grant = await self.grant(row.key_hash)
        return None if grant is None else Session(grant, moment(row.expires_ms))

    async def end_session(self, token_hash: bytes) -> None:
        """See ``Store.end_session``."""
        self._database.sessions.pop(token_hash, None)

    async def forget_sessions(self, age_seconds: float, limit: int) -> int:
        """See ``Store.forget_sessions``."""
        sessions, before_ms = self._database.sessions, self._database.now_ms() - age_seconds * 1000
        old = [token for token, row in sessions.items() if row.expires_ms < before_ms][:limit]
        for token in old:
            del sessions[token]
        return len(old)


def moment(at_ms: int) -> datetime.datetime:
    """Return a moment as the database gives it."""
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
