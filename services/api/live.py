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
from services.api.stream_events import Events, Wanted, events_of
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


class Found(NamedTuple):
    """The next event of a batch that is wanted: its number and bytes; None: there is none, go to the next."""

    event: int
    frame: bytes | None


USUAL = StreamLimits()


class Live:
    """The latest events, and the one reader that brings them.

    Attributes
    ----------
    ledger : bytes or None
        What stands for its name in ids; None: it was not read yet.
    end : Place
        Behind the last batch that was read.
    first, next : int
        The numbers of the oldest batch of the ring, and of the next one.
    floor : int
        The ring has all batches behind this position.
    life : int
        Goes up where the ledger was set back, so that nothing that was read holds any more.
    is_away : bool
        Whether the ledger did not answer when it was last asked.
    is_stopping : bool
        Whether this process ends.
    """

    def __init__(self, store: Store, allowed: StreamLimits = USUAL) -> None:
        self._store, self.allowed = store, allowed
        self._batches: dict[int, Events] = {}
        self._bytes = self._users = 0
        self._reading: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._open: Counter[str] = Counter()
        self._catching_up = asyncio.Semaphore(limits.streams_catching_up_max)
        self.ledger: bytes | None = None
        self.end = Place(b"", 0, 0)
        self.first = self.next = self.floor = self.life = 0
        self.is_away = self.is_stopping = False

    @property
    def tail(self) -> Tail:
        """The journal."""
        return self._store.tail

    @property
    def held_bytes(self) -> int:
        """About how many bytes the ring holds."""
        return self._bytes

    @property
    def catching_up(self) -> asyncio.Semaphore:
        """Who reads what the ring has not any more has to hold it."""
        return self._catching_up

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
        if self._open.total() >= self.allowed.streams_max:
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
                while self.end.position < position and self.life == life and not self.is_stopping:
                    await self.changed()
        return self.end.position >= position

    def number_behind(self, position: int) -> int:
        """Return the number of the first batch behind a position that is not below ``floor``."""
        low, high = self.first, self.next
        while low < high:
            middle = (low + high) // 2
            if self._batches[middle].end.position > position:
                high = middle
            else:
                low = middle + 1
        return low

    def has(self, place: Place) -> bool:
        """Return whether the ring, or its end, knows this very batch."""
        if place.position == self.end.position:
            return place.check == self.end.check
        number = self.number_behind(place.position - 1)
        kept = self._batches.get(number)
        return kept is not None and (kept.end.position, kept.end.check) == (place.position, place.check)

    def end_of(self, number: int) -> Place:
        """Return the place behind a batch of the ring."""
        return self._batches[number].end

    def find(self, number: int, event: int, wanted: Wanted) -> Found | None:
        """Return the next event of a batch from a number on; None: the ring has dropped the batch."""
        kept = self._batches.get(number)
        return None if kept is None else find(kept, event, wanted)

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
        look = await self.tail.look(self.end.position)
        if self.ledger is None:
            if look.position is None:
                return
            again = await self.tail.look(look.position)
            if again.ledger != look.ledger or (again.check is None and look.position):
                return
            self.ledger = ledger_mark(look.ledger)
            self.end = Place(self.ledger, look.position, again.check or 0)
            self.floor = look.position
            self._wake()
            return
        if ledger_mark(look.ledger) != self.ledger or (look.check or 0) != self.end.check:
            self._lose()
            return
        while look.position is not None and self.end.position < look.position:
            batches = await self.tail.read(self.end.position, look.position)
            if not batches:
                return
            for batch in batches:
                self._add(events_of(batch, self.ledger))
            self._wake()
            await asyncio.sleep(0)

    def _add(self, events: Events) -> None:
        self._batches[self.next] = events
        self.next += 1
        self.end = events.end
        self._bytes += events.size_bytes
        while self._bytes > self.allowed.ring_bytes_max and self.first < self.next - 1:
            dropped = self._batches.pop(self.first)
            self.first += 1
            self.floor = dropped.end.position
            self._bytes -= dropped.size_bytes

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _forget(self) -> None:
        self._batches.clear()
        self.ledger, self.end, self._bytes = None, Place(b"", 0, 0), 0
        self.first = self.next

    def _lose(self) -> None:
        """Forget a ledger that has not what was read of it."""
        self._forget()
        self.life += 1
        self._wake()


def find(events: Events, event: int, wanted: Wanted) -> Found:
    """Return the next event of a batch from a number on that is wanted."""
    for at in range(event, len(events.events)):
        told = events.events[at]
        if told.is_wanted(wanted):
            return Found(at, told.frame(sees_all=wanted.seen is None))
    return Found(len(events.events), None)
