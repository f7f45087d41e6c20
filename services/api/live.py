"""Follows the ledger for all streams of this process: one reader, and one ring of the latest events.

A stream holds a number, not a queue: where it is in the ring. So a reader that is slow holds no event that
the ring has dropped, and is told so. Nothing is read while there is no stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from domain.model import limits
from domain.model.errors import BerthError, Unavailable
from services.api.caller import Caller
from services.api.failures import ApiError
from services.api.ring import Ring
from services.api.stream_events import events_of
from services.api.stream_ids import Place, ledger_mark
from services.background import begin
from services.ports.store import Store
from services.ports.tail import NotKept, Tail

POLL_SECONDS = 0.05
READY_SECONDS_MAX = 5.0
HEARTBEAT_SECONDS = 15.0


class StreamLimits(NamedTuple):
    """How many streams there may be, and for how long one is open (``services/config.py``)."""

    streams_max: int = 500
    per_key_max: int = 50
    seconds_max: float = 900.0
    ring_bytes_max: int = limits.stream_ring_bytes_max
    heartbeat_seconds: float = HEARTBEAT_SECONDS


USUAL = StreamLimits()


class Live:
    """The latest events, and the one reader that brings them.

    Attributes
    ----------
    ring : Ring
        The latest events.
    ledger : bytes or None
        What stands for its name in ids; None: it was not read yet.
    life : int
        Goes up where the ledger was set back, so that nothing that was read holds any more.
    catching_up : Semaphore
        A stream holds it that reads what the ring has not any more.
    is_away : bool
        Whether the ledger did not answer when it was last asked.
    is_stopping : bool
        Whether this process ends.
    """

    def __init__(self, store: Store, allowed: StreamLimits = USUAL) -> None:
        self._store, self.allowed = store, allowed
        self.ring = Ring(allowed.ring_bytes_max)
        self.catching_up = asyncio.Semaphore(limits.streams_catching_up_max)
        self._open: Counter[str] = Counter()
        self._users = 0
        self._reading: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.ledger: bytes | None = None
        self.life = 0
        self.is_away = self.is_stopping = False

    @property
    def tail(self) -> Tail:
        """The journal."""
        return self._store.tail

    def open_count(self) -> int:
        """Return how many streams are open."""
        return self._open.total()

    def stop(self) -> None:
        """Let all streams end: this process does."""
        self.is_stopping = True
        self._wake()

    @contextlib.contextmanager
    def admitted(self, caller: Caller) -> Iterator[None]:
        """Count a stream while it is open; refuse one too many."""
        name = "" if caller.grant is None else caller.grant.name
        if name and self._open[name] >= self.allowed.per_key_max:
            most = f"{self.allowed.per_key_max} streams open, as many as it may (BERTH_API_STREAMS_PER_KEY)"
            raise ApiError("too-many-requests", f"the key {name} has {most}; close one", retry_seconds=5)
        if self.open_count() >= self.allowed.streams_max:
            most = f"{self.allowed.streams_max} streams are open (BERTH_API_STREAMS_MAX)"
            raise ApiError("busy", f"{most}; ask again, or ask another API process")
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Have the ledger followed, and wait until it is known where the journal ends."""
        self._users += 1
        try:
            if self._reading is None or self._reading.done():
                self._forget()
                self._reading = begin("following the ledger for streams", self._read())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READY_SECONDS_MAX):
                    while self.ledger is None and not self.is_stopping:
                        await self.changed()
            if self.ledger is None:
                raise Unavailable("the ledger did not say where its journal ends; ask again in a moment")
            yield
        finally:
            self._users -= 1

    async def changed(self) -> None:
        """Wait until something of this object changes."""
        await self._changed.wait()

    async def reached(self, position: int, seconds: float) -> bool:
        """Return whether the ledger had all up to a position within the time."""
        life = self.life
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.ring.end.position < position and self.life == life and not self.is_stopping:
                    await self.changed()
        return self.ring.end.position >= position

    # ------------------------------------------------------------------------------------------ the reader

    async def _read(self) -> None:
        while self._users:
            try:
                await self._step()
                self.is_away = False
            except NotKept:
                self._lose()
            except BerthError:
                self.is_away = True  # it may come back, and streams go on then
            await asyncio.sleep(POLL_SECONDS)
        self._forget()

    async def _step(self) -> None:
        look = await self.tail.look(self.ring.end.position)
        if self.ledger is None:
            if look.position is None:
                return
            again = await self.tail.look(look.position)
            if again.ledger != look.ledger or (again.check is None and look.position):
                return
            self.ledger = ledger_mark(look.ledger)
            self.ring.begin(Place(self.ledger, look.position, again.check or 0))
            self._wake()
            return
        if ledger_mark(look.ledger) != self.ledger or (look.check or 0) != self.ring.end.check:
            self._lose()
            return
        while look.position is not None and self.ring.end.position < look.position:
            batches = await self.tail.read(self.ring.end.position, look.position)
            if not batches:
                return
            for batch in batches:
                self.ring.add(events_of(batch, self.ledger))
            self._wake()
            await asyncio.sleep(0)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _forget(self) -> None:
        self.ledger = None
        self.ring.begin(Place(b"", 0, 0))

    def _lose(self) -> None:
        """Forget a ledger that has not what was read of it."""
        self._forget()
        self.life += 1
        self._wake()
