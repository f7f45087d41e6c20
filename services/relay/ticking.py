"""Ticks: records that say nothing but that time passes, so that a quiet log, too, comes to its next moment.

What is timed, such as the backoff of a group that waits or a nomination, ends when log time comes to it, and
log time is that of the newest record. Workers tell the ledger the next such moment. Where no record comes by
then, the relay of shard 0 writes one. A replay reads the same ticks. A record from a clock that is ahead
takes log time along, and those after it do not move it; so ticks are due there, too, each of which moves it
by a second.
"""

from __future__ import annotations

from domain.model.limits import tick_ms
from services.ports.log import Entry
from services.ports.outbox import Timed

TICK = Entry(b"tick", b'{"type":"TICK"}')
TICK_SECONDS = tick_ms / 1_000
UNREAD_SECONDS, UNREAD_SECONDS_MAX = 10.0, 600.0
"""A tick that no worker has folded is followed by the next one only after such a time, twice as long each
time: none is up."""


class Ticker:
    """Says when a tick is due, from looks at the ledger once a second."""

    def __init__(self) -> None:
        self._log_time_ms = -1
        self._moved_at = 0.0  # when it was last seen to move, by the caller's clock, in seconds
        self._is_ahead = False  # of all clocks: a tick moves it by a second and no more
        self._ticked_at: float | None = None  # since it moved
        self._unread_seconds = UNREAD_SECONDS

    def is_due(self, timed: Timed | None, now: float) -> bool:
        """Say whether to write a tick, after a look at the ledger; None: nothing waits."""
        if timed is None or timed.due_ms is None:
            return False
        is_first, moved_ms = self._log_time_ms < 0, timed.log_time_ms - self._log_time_ms
        if moved_ms:
            self._is_ahead = self._ticked_at is not None and moved_ms == tick_ms
            self._log_time_ms, self._moved_at = timed.log_time_ms, now
            self._ticked_at, self._unread_seconds = None, UNREAD_SECONDS
        elif self._ticked_at is not None:
            if now - self._ticked_at < self._unread_seconds:
                return False
            self._unread_seconds = min(2 * self._unread_seconds, UNREAD_SECONDS_MAX)
        # How long the log was quiet before the first look is not known.
        passed_ms = (now - self._moved_at) * 1_000
        if not (is_first or self._is_ahead) and timed.log_time_ms + passed_ms < timed.due_ms:
            return False
        self._ticked_at = now
        return True
