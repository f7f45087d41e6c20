"""How a moment of the past is written: a time, an age or a batch."""

from __future__ import annotations

import datetime

import pytest

from domain.model.errors import FieldError
from services.times import BatchId, as_of

NOW = datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.UTC)
MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("0:5", BatchId(0, 5)),
        ("0:17", BatchId(0, 17)),
        ("0:1234", BatchId(0, 1234)),
        ("12:345", BatchId(12, 345)),
        ("batch:10:17", BatchId(10, 17)),
        (" batch:0:1 ", BatchId(0, 1)),
    ],
)
def test_a_batch_is_its_shard_and_its_number(text: str, batch: BatchId) -> None:
    assert as_of("at", text, NOW) == batch


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("10:17", -103), ("1h", -60), ("now", 0), ("2026-01-31T11:00:00Z", -60), ("11:59:30", -0.5)],
)
def test_a_time_is_as_everywhere(text: str, minutes: float) -> None:
    assert as_of("at", text, NOW) == int(NOW.timestamp() * 1000 + minutes * MINUTE_MS)


@pytest.mark.parametrize("text", ["25:00", "10:61", "batch:", "0:", "0:-1", "1:2:3:4", "0:" + "9" * 30, ""])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(FieldError, match="0:1234 is right after batch 1234 of shard 0"):
        as_of("--at", text, NOW)
