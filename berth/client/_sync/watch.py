"""What happens, for a client that blocks.

Made by `python -m docs.build.client` from the module of the same name in `_async`; edit that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from berth.client._sync.connection import Connection
from berth.client._sync.following import SILENT_SECONDS_MAX, frames
from berth.client.events import Event, event_of


class Watch:
    """What happens, as it happens; an iterator to close, as a context.

    ``last_id`` is the place behind all that was given so far: keep it with what you did, and begin there with
    ``watch(after=…)``. It moves on, too, where nothing happens that is asked for.
    """

    def __init__(
        self,
        connection: Connection,
        params: Mapping[str, object],
        *,
        marks: bool = False,
        silent_seconds: float = SILENT_SECONDS_MAX,
    ) -> None:
        self._frames = frames(connection, params, silent_seconds=silent_seconds)
        self._marks = marks
        after = params.get("after")
        self.last_id: str | None = after if isinstance(after, str) else None

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Event:
        while True:
            frame = next(self._frames)
            event = event_of(frame)
            self.last_id = frame.id or self.last_id
            if event is not None and (self._marks or not event.is_mark):
                return event

    def close(self) -> None:
        """End the stream."""
        self._frames.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
