"""Keeps a flood of like messages out of the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

REMIND_SECONDS = 30.0
"""What still fails is said again so often."""

_SPAN_SECONDS = 10.0
_LINES_MAX = 5
_KINDS_MAX = 1_000


class LogLimit(logging.Filter):
    """Lets a few lines of each message pass in each span of time, then says how many it held back."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        now = time.monotonic()
        text = str(record.msg)
        since, count = self._seen.get(text, (now, 0))
        if now - since >= _SPAN_SECONDS:
            if count > _LINES_MAX:
                record.msg = f"{record.getMessage()} (and {count - _LINES_MAX} more like it before)"
                record.args = None
            since, count = now, 0
        if len(self._seen) >= _KINDS_MAX:
            self._seen.clear()
        self._seen[text] = since, count + 1
        return count < _LINES_MAX


class Outage:
    """Says that something fails when it begins, now and then that it still does, and how long it did.

    Parameters
    ----------
    what : str
        What cannot be done, as in ``could not …``.
    clock : callable
        Returns seconds.
    """

    def __init__(self, logger: logging.Logger, what: str, clock: Callable[[], float]) -> None:
        self._logger, self._what, self._clock = logger, what, clock
        self._since: float | None = None
        self._said_at = 0.0

    def failed(self, why: object) -> None:
        """Take note that it failed once more."""
        now = self._clock()
        if self._since is None:
            self._since = self._said_at = now
            self._logger.warning("could not %s: %s", self._what, why)
        elif now - self._said_at >= REMIND_SECONDS:
            self._said_at = now
            self._logger.warning("could not %s for %.0f s: %s", self._what, now - self._since, why)

    def over(self) -> None:
        """Take note that it went well."""
        if self._since is not None:
            seconds = self._clock() - self._since
            self._logger.warning("could %s again, after %.1f s", self._what, seconds)
        self._since = None
