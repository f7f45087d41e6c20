"""What happens, for a client that awaits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import TracebackType

from berth.client._async.connection import AsyncConnection
from berth.client._async.following import SILENT_SECONDS_MAX, frames
from berth.client.events import Event, event_of
from berth.client.frames import Frame


class AsyncWatch:
    """What happens, as it happens; an iterator to close, as a context.

    ``last_id`` is the place behind all that was given so far: keep it with what you did, and begin there with
    ``watch(after=…)``. It moves on, too, where nothing happens that is asked for.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        params: Mapping[str, object],
        *,
        marks: bool = False,
        silent_seconds: float = SILENT_SECONDS_MAX,
    ) -> None:
        self._connection, self._params, self._silent_seconds = connection, params, silent_seconds
        self._frames: AsyncGenerator[Frame] | None = None
        self._is_closed = False
        self._marks = marks
        after = params.get("after")
        self.last_id: str | None = after if isinstance(after, str) else None

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> Event:
        while True:
            frame = await self._next()
            event = event_of(frame)
            self.last_id = frame.id or self.last_id
            if event is not None and (self._marks or not event.is_mark):
                return event

    async def _next(self) -> Frame:
        """Return what comes next. Whoever stops waiting for it may ask again: the stream then begins anew."""
        if self._is_closed:
            raise StopAsyncIteration
        if self._frames is None:
            behind = {} if self.last_id is None else {"since": None, "after": self.last_id}
            self._frames = frames(
                self._connection, {**self._params, **behind}, silent_seconds=self._silent_seconds
            )
        try:
            return await anext(self._frames)
        except BaseException:
            self._frames = None
            raise

    async def aclose(self) -> None:
        """End the stream."""
        self._is_closed = True
        opened, self._frames = self._frames, None
        if opened is not None:
            await opened.aclose()

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
