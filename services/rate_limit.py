"""Gives each address a share of requests before it is known who asks; who asks for more waits for a turn."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from services.listening import network_of, remote_of

Clock = Callable[[], float]
Asgi = Callable[[Any, Any, Any], Awaitable[None]]

ADDRESSES_MAX = 10_000


class Meter:
    """Amounts over time, as the generic cell rate algorithm counts them: it keeps the time when all is paid.

    What comes while nothing is owed is taken whole, however much it is; it is paid off afterwards. So no
    request is too large for ever, and the rate holds all the same. Without a debt a burst is free.
    """

    def __init__(self) -> None:
        self._paid_at = -math.inf

    def owed_seconds(self, now: float) -> float:
        """Return how long it takes until nothing is owed."""
        return max(0.0, self._paid_at - now)

    def charge(self, now: float, amount: int, per_second: float, burst_seconds: float) -> None:
        """Add an amount that the rate pays off."""
        self._paid_at = max(self._paid_at, now - burst_seconds) + amount / per_second


class MeterPerAddress:
    """A meter for each address, of those that were charged last."""

    def __init__(self) -> None:
        self._meters: OrderedDict[str, Meter] = OrderedDict()

    def owed_seconds(self, address: str, now: float) -> float:
        """Return how long it takes until an address owes nothing."""
        meter = self._meters.get(address)
        return 0.0 if meter is None else meter.owed_seconds(now)

    def charge(self, address: str, now: float, per_second: float, burst_seconds: float) -> None:
        """Charge an address for one request."""
        self._meters.setdefault(address, Meter()).charge(now, 1, per_second, burst_seconds)
        self._meters.move_to_end(address)
        if len(self._meters) > ADDRESSES_MAX:
            self._meters.popitem(last=False)


class Rates(NamedTuple):
    """How many requests are answered before it is known who asks."""

    per_address: float = 100.0
    of_all: float = 500.0
    """By all addresses together: what a crowd may take of the interpreter, which is one for all threads."""
    burst_seconds: float = 2.0
    wait_seconds_max: float = 5.0
    """Who would wait longer is refused after that time, and his connection closed."""


_USUAL = Rates()
_REFUSAL = msgspec.json.encode(
    {
        "error": {
            "code": "too-many-requests",
            "message": "too many requests of unknown callers came from this address; ask again later",
        }
    }
)
_REFUSAL_HEADERS = (
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_REFUSAL)).encode()),
    (b"retry-after", b"5"),
    (b"connection", b"close"),
)


class RateLimit:
    """Lets requests pass whose caller is known; of others, each address has so many a second.

    The others wait for their turn, in the order in which they came: an answer that comes late costs an honest
    client less than a refusal. A connection has one request under way, so an address waits in as many places
    as it has connections.

    Parameters
    ----------
    app : ASGIApp
        What answers the requests that pass.
    is_known : callable
        Returns for a request, without asking anybody, whether it need not wait.
    rates : Rates
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        app: Asgi,
        is_known: Callable[[Mapping[str, Any]], bool] = lambda _: False,
        rates: Rates = _USUAL,
        clock: Clock = time.monotonic,
    ) -> None:
        self._app, self._is_known, self._rates, self._clock = app, is_known, rates, clock
        self._of_all, self._by_address = Meter(), MeterPerAddress()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, when it is its turn."""
        if scope["type"] != "http" or self._is_known(scope) or await self._has_turn(scope):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 429, "headers": list(_REFUSAL_HEADERS)})
        await send({"type": "http.response.body", "body": _REFUSAL})

    async def _has_turn(self, scope: Mapping[str, Any]) -> bool:
        """Wait for a turn; return False where that would take too long."""
        address, rates, now = address_of((scope.get("client") or ("",))[0]), self._rates, self._clock()
        wait_seconds = max(self._of_all.owed_seconds(now), self._by_address.owed_seconds(address, now))
        if wait_seconds > rates.wait_seconds_max:
            await asyncio.sleep(rates.wait_seconds_max)
            return False
        self._of_all.charge(now, 1, rates.of_all, rates.burst_seconds)
        self._by_address.charge(address, now, rates.per_address, rates.burst_seconds)
        if wait_seconds:
            await asyncio.sleep(wait_seconds)
        return True


def address_of(host: str | None) -> str:
    """Return what counts as one address; a host that is none counts as it is."""
    found = remote_of(host or "")
    return host or "" if found is None else network_of(found)
