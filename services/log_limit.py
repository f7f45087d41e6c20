"""Keeps a flood of like messages out of the log."""

from __future__ import annotations

import logging
import time

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
