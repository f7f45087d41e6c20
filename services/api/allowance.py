"""How much each caller may ask: requests at once, events and bytes per second, failed logins per minute."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal, get_args

from domain.model import limits
from services.api.caller import Caller
from services.api.failures import ApiError
from services.ports.store import Grant
from services.rate_limit import Clock, Meter, MeterPerAddress

FAILED_LOGINS_PER_MINUTE = 30
GOOD_KEYS_MAX = 1_000
_BURST_SECONDS = 1.0
_LOGIN_BURST_SECONDS = 60.0

Unit = Literal["events", "bytes"]
_UNITS: tuple[Unit, ...] = get_args(Unit)


class _Account:
    """What the holder of one key's name uses. Several keys of a name share it."""

    def __init__(self) -> None:
        self.running = 0
        self.meters = {unit: Meter() for unit in _UNITS}
        self.body_bytes = 0
        self.reading = asyncio.Lock()
        self.answers = asyncio.Semaphore(limits.reads_of_key_at_once)
        self.appends = asyncio.Semaphore(limits.appends_of_key_at_once)


class Allowance:
    """Counts what callers use, and refuses what is too much with 429 and the seconds to wait.

    There is an account per name of a key that was shown and found good, so their number is the admin's. A
    caller without a key is not limited here: only who can reach this node's loopback is one.

    Parameters
    ----------
    requests_per_key : int
        Requests at once of a key that does not say how many.
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, requests_per_key: int, clock: Clock = time.monotonic) -> None:
        self._requests_per_key = requests_per_key
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._unnamed = _Account()
        self._body_bytes = 0

    @contextlib.contextmanager
    def request(self, caller: Caller) -> Iterator[None]:
        """Count one request of the caller while it is answered."""
        if caller.grant is None:
            yield
            return
        account = self._accounts.setdefault(caller.grant.name, _Account())
        most = caller.grant.requests_at_once or self._requests_per_key
        if account.running >= most:
            told = f"the key {caller.name} has {most} requests under way, as many as it may; wait for one"
            raise ApiError("too-many-requests", told, retry_seconds=1)
        account.running += 1
        try:
            yield
        finally:
            account.running -= 1

    def reading(self, caller: Caller) -> asyncio.Lock:
        """Return what the requests of one caller have by turns, so that he has one turn among the others'."""
        return self._account(caller).reading

    @contextlib.asynccontextmanager
    async def answering(self, caller: Caller) -> AsyncIterator[None]:
        """Let a question of a caller wait until few of his others are answered.

        Questions share the connections to the ledger, and one interpreter: who asks many at once would have
        those of others refused.
        """
        async with contextlib.nullcontext() if caller.grant is None else self._account(caller).answers:
            yield

    @contextlib.asynccontextmanager
    async def appending(self, caller: Caller) -> AsyncIterator[None]:
        """Let a request with events wait until few of the caller's others are on their way to the log."""
        async with contextlib.nullcontext() if caller.grant is None else self._account(caller).appends:
            yield

    def _account(self, caller: Caller) -> _Account:
        return self._unnamed if caller.grant is None else self._accounts[caller.grant.name]

    @contextlib.contextmanager
    def body(self, caller: Caller) -> Iterator[Callable[[int], None]]:
        """Give what counts the bytes of a body while its request is under way, and refuses too many."""
        account, held_bytes = self._account(caller), 0

        def hold_bytes(size_bytes: int) -> None:
            nonlocal held_bytes
            if caller.grant is not None and account.body_bytes + size_bytes > limits.bodies_of_key_bytes_max:
                most = f"{limits.bodies_of_key_bytes_max} bytes (bodies_of_key_bytes_max)"
                told = f"nothing was sent: the key {caller.name} has {most} under way; wait for a request"
                raise ApiError("too-many-requests", told, retry_seconds=1)
            if self._body_bytes + size_bytes > limits.bodies_bytes_max:
                most = f"{limits.bodies_bytes_max} bytes (bodies_bytes_max)"
                raise ApiError("busy", f"nothing was sent: all requests under way hold {most}; ask again")
            held_bytes += size_bytes
            account.body_bytes += size_bytes
            self._body_bytes += size_bytes

        try:
            yield hold_bytes
        finally:
            account.body_bytes -= held_bytes
            self._body_bytes -= held_bytes

    def check(self, caller: Caller) -> None:
        """Refuse the caller while he owes something."""
        for unit in _UNITS:
            self.spend(caller, unit, 0)

    def spend(self, caller: Caller, unit: Unit, amount: int) -> None:
        """Charge the caller, or refuse him while he owes some of this unit."""
        rate = None if caller.grant is None else _rate(caller.grant, unit)
        if caller.grant is None or rate is None:
            return
        meter, now = self._accounts[caller.grant.name].meters[unit], self._clock()
        if owed := meter.owed_seconds(now):
            told = f"nothing was sent: the key {caller.name} may send {rate} {unit} per second"
            raise ApiError("rate-exceeded", told, retry_seconds=math.ceil(owed))
        meter.charge(now, amount, rate, _BURST_SECONDS)


def _rate(grant: Grant, unit: Unit) -> int | None:
    return grant.events_per_second if unit == "events" else grant.bytes_per_second


class Logins:
    """Failed logins per remote address, so that guessing costs the ledger few look-ups.

    Behind a proxy all callers have its address. So keys that were found good lately are looked up all the
    same: one who guesses locks out those only who were not there before. It is no cache: a revoked key is
    looked up, too, and refused.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._failed = MeterPerAddress()
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def check(self, address: str, key_hash: bytes) -> None:
        """Refuse a key without looking it up if too many from this address were wrong."""
        if key_hash in self._good:
            return
        if owed := self._failed.owed_seconds(address, self._clock()):
            told = "too many wrong keys came from this address; wait before another is looked up"
            raise ApiError("too-many-failures", told, retry_seconds=math.ceil(owed))

    def is_good(self, key_hash: bytes) -> bool:
        """Return whether a key was found good when it was looked up last, unless that is long ago."""
        return key_hash in self._good

    def note(self, address: str, key_hash: bytes, *, good: bool) -> None:
        """Remember how a look-up ended."""
        if good:
            self._good[key_hash] = None
            self._good.move_to_end(key_hash)
            if len(self._good) > GOOD_KEYS_MAX:
                self._good.popitem(last=False)
            return
        self._good.pop(key_hash, None)
        self._failed.charge(address, self._clock(), FAILED_LOGINS_PER_MINUTE / 60, _LOGIN_BURST_SECONDS)
