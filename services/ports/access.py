"""The access log: who asked the API for what, and with what outcome."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from services.ports.log import Span

MINUTE_MS = 60_000


class Access(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request, or equal ones of a minute (``times``), the first at ``at_ms``, the last at ``last_at_ms``.

    Attributes
    ----------
    caller : str or None
        Who asked, as ``services/codec/seal.py`` names senders; None where nobody was let in.
    address : str
        From where, as the socket says.
    route : str
        The path with its parameters' names; ``target`` has their values and the query.
    code : str
        Code of the error, ``no-key`` or ``wrong-key`` for a failed login; empty where all went well.
    events_count : int or None
        Events that the log took; None where none were sent. ``spans`` say where the log has them.
    duration_ms : int
        Of the slowest.
    """

    at_ms: int
    last_at_ms: int
    caller: str | None
    roles: tuple[str, ...]
    address: str
    method: str
    route: str
    target: str
    status: int
    code: str
    duration_ms: int
    events_count: int | None = None
    spans: tuple[Span, ...] = ()
    times: int = 1

    @property
    def minute_ms(self) -> int:
        """Return when its minute began."""
        return self.at_ms - self.at_ms % MINUTE_MS

    @property
    def digest(self) -> bytes:
        """Return a digest that requests have in common if they count as equal within a minute.

        Requests that sent events stand alone.
        """
        what = (self.caller, self.roles, self.address, self.method, self.route, self.target)
        alone = (self.at_ms, self.spans) if self.spans else ()
        found = msgspec.json.encode((*what, self.status, self.code, alone))
        return hashlib.blake2b(found, digest_size=16).digest()

    def merged_with(self, other: Access) -> Access:
        """Return both as one. They are equal requests of one minute."""
        return msgspec.structs.replace(
            self,
            at_ms=min(self.at_ms, other.at_ms),
            last_at_ms=max(self.last_at_ms, other.last_at_ms),
            duration_ms=max(self.duration_ms, other.duration_ms),
            times=self.times + other.times,
        )


class AccessFilter(NamedTuple):
    """Which requests to list; None means any. Times are of the API's clock, in milliseconds."""

    caller: str | None = None
    status: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


Place = tuple[int, bytes]
"""Where a list goes on: minute and digest of an access."""
