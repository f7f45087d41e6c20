"""One stream of events: from where it was asked for, through what is read anew, to what comes now."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import NamedTuple

import msgspec
from fastapi import Response
from starlette.types import Receive, Scope, Send

from domain.model.errors import BerthError
from domain.model.limits import stream_page_seconds_max
from services.api.answers import Error, ErrorBody, ErrorDetail
from services.api.caller import Caller
from services.api.failures import ApiError
from services.api.live import Live
from services.api.ring import find
from services.api.stream_events import Wanted, events_of
from services.api.stream_ids import WHOLE, Place, id_of
from services.ports.tail import NotKept

AHEAD_SECONDS_MAX = 2.0
"""How long this process may be behind an id that another API process gave: each looks at its own time."""

_AT_ONCE = 50
"""Events between two turns of the others."""

_SLOW = "this reader was slower than what happened, and what it has not read is no longer held ready"


class Asked(NamedTuple):
    """What a stream is asked for: behind which place (None: from now on), and which events."""

    after: Place | None
    wanted: Wanted


class EventStream(Response):
    """The answer that does not end by itself: ``text/event-stream``."""

    media_type = "text/event-stream"

    def __init__(self, live: Live, caller: Caller, asked: Asked) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._live, self._caller, self._asked = live, caller, asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the stream has to end; the client may leave at any moment."""
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._live.admitted(self._caller))
            await stack.enter_async_context(self._live.following())
            place = await begins_at(self._live, self._asked)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            reading = Reading(self._live, self._asked.wanted, place)
            async for frame in reading.frames():
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def begins_at(live: Live, asked: Asked) -> Place:
    """Return behind which place a stream begins; raise ``ApiError`` where it cannot begin there."""
    now = live.ring.end
    if asked.after is not None:
        await check_place(live, asked.after)
        return asked.after
    if asked.wanted.since_ms is None:
        return now
    try:
        position = await live.tail.position_before(asked.wanted.since_ms, now.position)
    except NotKept as error:
        raise _not_kept(live, f"{error}, so not all since then is kept") from None
    spot = await live.tail.spot(position)
    return Place(now.ledger, position, spot.check or 0)


async def check_place(live: Live, place: Place) -> None:
    """Raise ``ApiError`` unless the ledger is the one of a place, and has all that is behind it."""
    if place.ledger != live.ledger:
        raise _another(live)
    if not await live.reached(place.position, AHEAD_SECONDS_MAX):
        raise _another(live)
    if place.position >= live.ring.floor and live.ring.has(place):
        return
    spot = await live.tail.spot(place.position)
    if spot.check is not None and spot.check != place.check:
        raise _another(live)
    if not spot.is_kept_behind or (spot.check is None and place.position and place.event != WHOLE):
        raise _not_kept(live, "what happened after this id was pruned")


def _another(live: Live) -> ApiError:
    told = "this id is of another ledger, or of one that was set back to a backup since"
    return ApiError("another-ledger", f"{told}; {_remedy(live)}", _now(live))


def _not_kept(live: Live, told: str) -> ApiError:
    return ApiError("not-kept", f"{told}; {_remedy(live)}", _now(live))


def _remedy(live: Live) -> str:
    return f"read the state (/v1/pods, /v1/nodes, /v1/pending), then go on from the id {id_of(live.ring.end)}"


def _now(live: Live) -> Sequence[ErrorDetail]:
    return [ErrorDetail(path="id", message=id_of(live.ring.end))]


class Reading:
    """Goes from one place through all that follows; of the events it holds the one that it sends."""

    def __init__(self, live: Live, wanted: Wanted, place: Place) -> None:
        self._live, self._wanted = live, wanted
        self._place = place  # behind all that was sent or passed over
        self._life = live.life
        self._ends_at = time.monotonic() + live.allowed.seconds_max
        self._why: tuple[str, str] | None = None

    @property
    def _after(self) -> int:
        """The position behind which the next event is: of a batch that is not done with, the one before."""
        return self._place.position - (self._place.event != WHOLE)

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield what is sent: events, heartbeats with the place so far, and why the stream ends."""
        yield b"retry: 1000\n" + self._mark("begins")
        while not self._is_over():
            part = self._from_ledger() if self._after < self._live.ring.floor else self._from_ring()
            async with contextlib.aclosing(part) as frames:
                async for frame in frames:
                    yield frame
        assert self._why is not None
        yield _ending(*self._why)

    async def _from_ring(self) -> AsyncGenerator[bytes]:
        number, event = self._live.ring.number_behind(self._after), _next_event(self._place)
        sent_count = 0
        while not self._is_over():
            if number == self._live.ring.next:
                if not await self._changes():
                    yield self._mark("the ledger does not answer" if self._live.is_away else "heartbeat")
                continue
            found = self._live.ring.find(number, event, self._wanted)
            if found is None:
                self._why = "slow-reader", _SLOW
            elif found.frame is None:
                self._place = self._live.ring.end_of(number)
                number, event = number + 1, 0
            else:
                event, frame = found.event + 1, found.frame
                del found  # a reader that takes its time holds no more than one event
                yield frame
                sent_count += 1
                if sent_count % _AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _from_ledger(self) -> AsyncGenerator[bytes]:
        """Read a page of what the ring has not any more, and yield it."""
        turn, has_turn = self._live.catching_up, False
        while not has_turn and not self._is_over():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._live.allowed.heartbeat_seconds):
                    has_turn = await turn.acquire()
            if not has_turn:
                yield self._mark("waits for its turn")
        if not has_turn:
            return
        try:
            async with contextlib.aclosing(self._page()) as frames:
                async for frame in frames:
                    yield frame
        except BerthError as error:
            self._why = error.code, str(error)
        finally:
            turn.release()

    async def _page(self) -> AsyncGenerator[bytes]:
        live, tail = self._live, self._live.tail
        until, floor = time.monotonic() + stream_page_seconds_max, live.ring.floor
        batches = await tail.read(self._after, floor)
        if not (await tail.spot(self._after)).is_kept_behind:
            raise NotKept("what follows was pruned by now; read the state, and begin a new stream")
        for batch in batches:
            events = events_of(batch, self._place.ledger)
            goes_on = self._place.position == events.end.position
            event = _next_event(self._place) if goes_on else 0
            while (found := find(events, event, self._wanted)).frame is not None:
                event = found.event + 1
                yield found.frame
                if time.monotonic() > until:
                    self._why = "slow-reader", _SLOW
                    return
                if event % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._place = events.end
        if not batches:
            self._place = Place(self._place.ledger, floor, (await tail.spot(floor)).check or 0)

    async def _changes(self) -> bool:
        """Wait until something changes; return whether it did before the next heartbeat was due."""
        seconds = min(self._live.allowed.heartbeat_seconds, max(0.0, self._ends_at - time.monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._live.changed()
                return True
        return self._is_over()

    def _is_over(self) -> bool:
        """Return whether the stream has to end, and note why."""
        if self._why is not None:
            pass
        elif self._live.is_stopping:
            self._why = "stopping", "this API process ends; go on at another one, or in a moment"
        elif self._live.life != self._life:
            self._why = "another-ledger", "the ledger was set back; read the state, and begin a new stream"
        elif time.monotonic() >= self._ends_at:
            self._why = "time", "this stream was open for as long as it may; go on from the last id"
        return self._why is not None

    def _mark(self, comment: str) -> bytes:
        """Return a comment with the place so far: a filter that lets nothing pass moves on, too."""
        return f": {comment}\nid: {id_of(self._place)}\n\n".encode()


def _next_event(place: Place) -> int:
    return 0 if place.event == WHOLE else place.event + 1


def _ending(code: str, message: str) -> bytes:
    error = msgspec.json.encode(Error(error=ErrorBody(code=code, message=message)))
    return b"event: end\ndata: " + error + b"\n\n"
