"""What happens, for a client that awaits."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from berth.client._async.connection import AsyncConnection
from berth.client._async.following import SILENT_SECONDS_MAX, frames
from berth.client.events import Event, event_of


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
        self._frames = frames(connection, params, silent_seconds=silent_seconds)
        self._marks = marks
        after = params.get("after")
        self.last_id: str | None = after if isinstance(after, str) else None

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> Event:
        while True:
            frame = await anext(self._frames)
            event = event_of(frame)
            self.last_id = frame.id or self.last_id
            if event is not None and (self._marks or not event.is_mark):
                return event

    async def aclose(self) -> None:
        """End the stream."""
        await self._frames.aclose()

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
