"""Says when the events of a trace are due, to write them faster than they happened."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator

from services.traces.openb import Event

SILENCE_SECONDS_MAX = 1.0
"""No pause is longer: openb begins with a hundred days in which next to nothing happens."""


def due(events: Iterable[Event], speed: float) -> Iterator[tuple[float, Event]]:
    """Yield each event with the seconds after the first one at which it is due.

    Parameters
    ----------
    events : iterable of Event
        In the order of their ``at``.
    speed : float
        How many seconds of the trace pass in one second.
    """
    due_seconds, before = 0.0, None
    for event in events:
        at = datetime.datetime.fromisoformat(event["at"])
        if before is not None:
            due_seconds += min((at - before).total_seconds() / speed, SILENCE_SECONDS_MAX)
        before = at
        yield due_seconds, event
