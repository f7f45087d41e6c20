"""Are times read as people write them, and all others refused with what is allowed?"""

from __future__ import annotations

import datetime

import pytest

from domain.model.errors import FieldError
from services.times import moment_ms

NOW = datetime.datetime(2026, 1, 31, 8, 30, 15, 250_000, datetime.UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-01-31T08:30:15.250Z"),
        ("90s", "2026-01-31T08:28:45.250Z"),
        ("1h", "2026-01-31T07:30:15.250Z"),
        ("1.5h", "2026-01-31T07:00:15.250Z"),
        ("1d12h", "2026-01-29T20:30:15.250Z"),
        ("2w", "2026-01-17T08:30:15.250Z"),
        ("03:17", "2026-01-31T03:17:00Z"),
        ("3:17:05", "2026-01-31T03:17:05Z"),
        ("08:31", "2026-01-30T08:31:00Z"),
        ("14:03:07Z", "2026-01-30T14:03:07Z"),
        ("01-22 14:03Z", "2026-01-22T14:03:00Z"),
        ("2026-01-22", "2026-01-22T00:00:00Z"),
        ("2026-01-22 14:03", "2026-01-22T14:03:00Z"),
        ("2026-01-22T14:03:07", "2026-01-22T14:03:07Z"),
        ("2026-01-22T14:03:07.5+02:00", "2026-01-22T12:03:07.500Z"),
    ],
)
def test_a_time_is_read(text: str, expected: str) -> None:
    told = datetime.datetime.fromisoformat(expected)
    assert moment_ms("since", text, NOW) == int(told.timestamp() * 1000)


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "1", "-1h", "1y", "25:00", "3:7", "2026-02-30", "9" * 9 + "w", "\u0661h"),
        *("13-01 00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    ],
)
def test_what_is_no_time_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(
        FieldError, match=r"is not a time; allowed are 1h \(ago\), 03:17, 2026-01-31"
    ) as refused:
        moment_ms("since", text, NOW)
    assert refused.value.path == "since"


def test_without_a_present_it_is_the_clocks() -> None:
    before = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    assert abs(moment_ms("at", "now") - before) < 60_000
