"""Reads times as people write them: `1h` ago, `03:17`, a day, RFC 3339. They are UTC without an offset."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

from domain.model.errors import FieldError
from domain.model.validation import shown

TIMES = "1h (ago), 03:17, 2026-01-31, '2026-01-31 08:00', 2026-01-31T08:00:00Z or now"
"""What is allowed, by examples."""

MOMENTS = f"{TIMES}, or a batch: 0:1234 is right after batch 1234 of shard 0"
"""What is allowed where a moment of the past is asked for."""

_CLOCK = re.compile(r"\d\d:\d\d", re.ASCII)
_BATCH = re.compile(r"(?:batch:)?(\d{1,6}):(\d{1,18})", re.ASCII)
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_AGO = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?[wdhms])+", re.ASCII)
_OF_THE_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?Z?", re.ASCII)
_OF_THE_YEAR = re.compile(r"(\d{2}-\d{2})[ T](\d{1,2}:\d{2}(?::\d{2})?)Z?", re.ASCII)


class BatchId(NamedTuple):
    """A batch: the shard whose journal counts it, and its number there."""

    shard: int
    batch: int


def moment_ms(path: str, text: str, now: datetime.datetime | None = None) -> int:
    """Return a time as milliseconds since the epoch.

    Parameters
    ----------
    path : str
        Where the text stands, for the error.
    text : str
        `1h` or `1h30m` is so long before now, `03:17` the last time when it was that, `01-31 08:00` of this
        year, as tables have it. A day is its beginning. Without an offset a time is UTC.
    now : datetime, optional
        The present; the clock's without it.

    Raises
    ------
    FieldError
        It is no time; the message shows what is.
    """
    at = now or datetime.datetime.now(datetime.UTC)
    try:
        found = _moment(text.strip(), at).astimezone(datetime.UTC)  # no other year has a name there
        return int(found.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise FieldError(path, f"{shown(text)} is not a time; allowed are {TIMES}") from None


def as_of(path: str, text: str, now: datetime.datetime | None = None) -> int | BatchId:
    """Return a moment of the past: a time, as milliseconds since the epoch, or a batch.

    A batch is ``SHARD:NUMBER``. Two digits each, as ``10:17``, are a time of day; ``batch:10:17`` is the
    batch.

    Raises
    ------
    FieldError
        It is neither; the message shows what is allowed.
    """
    text = text.strip()
    found = _BATCH.fullmatch(text)
    if found and _CLOCK.fullmatch(text) is None:
        return BatchId(int(found[1]), int(found[2]))
    try:
        return moment_ms(path, text, now)
    except FieldError:
        raise FieldError(path, f"{shown(text)} is no moment; allowed are {MOMENTS}") from None


def _moment(text: str, now: datetime.datetime) -> datetime.datetime:
    if text == "now":
        return now
    if _AGO.fullmatch(text):
        parts = re.findall(r"([\d.]+)([wdhms])", text)
        return now - datetime.timedelta(seconds=sum(float(count) * _SECONDS[unit] for count, unit in parts))
    if found := _OF_THE_DAY.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in found.groups())
        at = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return at - datetime.timedelta(days=at > now)
    if found := _OF_THE_YEAR.fullmatch(text):
        text = f"{now.year}-{found[1]}T{found[2]:0>5}"
    at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)
