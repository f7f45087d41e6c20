"""Ticks: records that say nothing but that time passes, so that a quiet log, too, comes to its next moment.

What is timed, such as the backoff of a group that waits, ends when log time has come to it, and log time is
that of the newest record. Where no record comes, the relay of shard 0 writes one a second while anything may
be timed. A replay reads the same ticks. A record from a clock that is ahead takes log time along, and those
after it do not move it; so a tick is due there, too, and moves it by a second.
"""

from __future__ import annotations

from domain.model.limits import tick_ms
from services.ports.log import Entry
from services.ports.outbox import Timed

TICK = Entry(b"tick", b'{"type":"TICK"}')
TICK_SECONDS = tick_ms / 1_000
QUIET_SECONDS_MAX = 120.0
"""Nothing is timed any more when for so long nothing happened but ticks."""

UNREAD_SECONDS_MAX = 10.0
"""A tick that no worker has folded is followed by the next one only after this time: none is up."""


class Ticker:
    """Says when a tick is due, from looks at the ledger once a second."""

    def __init__(self) -> None:
        self._seen: Timed | None = None
        self._changed_at = 0.0  # by the clock of whoever asks, in seconds
        self._ticked: tuple[float, int] | None = None  # when, and log time before it

    def is_due(self, timed: Timed | None, now: float) -> bool:
        """Say whether to write a tick, after a look at the ledger; None: nothing waits."""
        before, self._seen = self._seen, timed
        if timed is None:
            return False
        if before is None or before.activity != timed.activity:
            self._changed_at = now
            if before is not None and before.log_time_ms != timed.log_time_ms:
                return False  # the log moves by itself
        if now - self._changed_at > QUIET_SECONDS_MAX:
            return False
        if self._ticked is not None:
            at, log_time_ms = self._ticked
            if log_time_ms == timed.log_time_ms and now - at < UNREAD_SECONDS_MAX:
                return False
        self._ticked = (now, timed.log_time_ms)
        return True
