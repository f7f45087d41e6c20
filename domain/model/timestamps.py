"""Moments as events write them (RFC 3339) and as berth counts them (milliseconds since the Unix epoch)."""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Annotated

import msgspec

Moment = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
"""An RFC 3339 timestamp with its offset from UTC."""

MOMENT_MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last one that RFC 3339 can write
NEVER_MS = 1 << 62
"""After every moment."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def clamp_ms(ms: int) -> int:
    """Return the nearest moment between 1970 and the end of the year 9999."""
    if 0 <= ms <= MOMENT_MS_MAX:
        return ms
    return 0 if ms < 0 else MOMENT_MS_MAX


def to_ms(moment: datetime.datetime) -> int:
    """Return milliseconds since the epoch, rounded down, clamped like ``clamp_ms``."""
    since = moment - _EPOCH
    return clamp_ms(since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000)


@lru_cache(maxsize=1024)
def format_ms(ms: int) -> str:
    """Return RFC 3339 in UTC with milliseconds; of one width, so they sort as the moments do."""
    seconds, rest = divmod(clamp_ms(ms), 1000)
    return f"{_format_seconds(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _format_seconds(seconds: int) -> str:
    return (_EPOCH + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
