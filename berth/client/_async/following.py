"""Follows the stream of events for a client that awaits: it goes on where it left off whenever it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping

from berth.client._async.connection import AsyncConnection, is_passing
from berth.client.errors import BerthError, NoLongerKept
from berth.client.frames import Frame, Frames
from berth.client.requests import target
from berth.client.retrying import Retry

SILENT_SECONDS_MAX = 60.0
"""A stream has a heartbeat every 15 s."""

_log = logging.getLogger("berth.client")
_WAITS = Retry(seconds_min=0.1, seconds_max=5.0)
Lost = Callable[[BerthError], None]


async def frames(
    connection: AsyncConnection,
    params: Mapping[str, object],
    *,
    silent_seconds: float = SILENT_SECONDS_MAX,
    lost: Lost | None = None,
) -> AsyncGenerator[Frame]:
    """Yield what comes without an end, behind an id (``after``) or from now on; marks, too.

    ``lost`` is told when a stream broke off, before the next one begins.

    Raises
    ------
    BerthError
        The API refuses the stream, or (``NoLongerKept``) no longer has what comes next. An API that goes away
        once a stream has begun is waited for, however long it takes.
    """
    asked, last_id, tried, began = dict(params), None, 0, time.monotonic()
    while True:
        failed: BerthError | None = None
        try:
            async with connection.stream(
                target("/v1/events", asked), silent_seconds=silent_seconds, media="text/event-stream"
            ) as parts:
                cut = Frames()
                async for part in parts:
                    for frame in cut.feed(part):
                        last_id = frame.id or last_id
                        if frame.kind == "end":
                            from berth.client.events import ending

                            failed = ending(frame, last_id)
                            break
                        tried = 0
                        yield frame
                    if failed is not None:
                        break
        except BerthError as error:
            failed = error
            has_begun = last_id is not None or (
                connection.has_answered and connection.retry.goes_on(tried + 1, time.monotonic() - began)
            )
            if not (has_begun and is_passing(error)):
                raise _final(error, last_id) from error.__cause__
            if lost is not None:
                lost(error)
        if isinstance(failed, NoLongerKept):
            raise failed
        tried += 1
        _log.info("the stream of events ended, and is begun again: %s", failed or "its end came")
        if last_id is not None:
            asked = {**asked, "since": None, "after": last_id}  # what came before is passed by now
        await asyncio.sleep(_WAITS.wait(tried))


def _final(error: BerthError, last_id: str | None) -> BerthError:
    if isinstance(error, NoLongerKept):
        error.last_id = last_id
    return error
