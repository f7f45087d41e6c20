"""Does this build plan a day of an earlier build again, and come to the same bytes?

If not, a decision changed. Where it is meant to, ``python -m tests.history.day`` records the day again; say
in the commit which decisions changed, and why.
"""

from __future__ import annotations

import msgspec
import pytest

from services.ports.history import Unreadable
from services.ports.journal import JournalRow
from services.replay.tape import LogTooShort
from tests.history.day import Day, read, replay

AGAIN = "a decision changed: `python -m tests.history.day` records the day again, if it is meant to"


@pytest.fixture(scope="module")
def day() -> Day:
    return read()


def test_the_recorded_day_is_planned_again_with_the_same_bytes(day: Day) -> None:
    outcome = replay(day)
    assert outcome.difference is None, f"{AGAIN}: {outcome.difference}"
    assert outcome.progress.batches_count == len(day.journal) > 30
    assert outcome.progress.decisions_count == sum(map(len, day.decisions.values())) > 200
    assert outcome.progress.restarts_count == 4


def _with(day: Day, journal: list[JournalRow]) -> Day:
    return Day(day.events, journal, day.decisions)


def test_another_seed_is_found_by_the_pod_that_went_elsewhere(day: Day) -> None:
    rows = [
        row
        if row.start is None
        else msgspec.structs.replace(row, start=msgspec.structs.replace(row.start, seed=4))
        for row in day.journal
    ]
    found = replay(_with(day, rows)).difference
    assert found is not None
    assert found.what.startswith("the decision ")
    assert found.what.endswith(": node")
    assert found.recorded != found.replayed


def test_a_changed_row_of_the_journal_is_found(day: Day) -> None:
    row = next(row for row in day.journal if row.digest is not None)
    at = day.journal.index(row)
    order = msgspec.structs.replace(row, order=b"abc")
    with pytest.raises(Unreadable, match=f"the order of records .* of batch {row.batch} cannot be read"):
        replay(_with(day, [*day.journal[:at], order, *day.journal[at + 1 :]]))
    for what, changed in (
        ("the journal's row was changed", msgspec.structs.replace(row, decisions_hash=b"")),
        ("the digest of the state", msgspec.structs.replace(row, digest=None)),
        ("log time", msgspec.structs.replace(row, log_time_ms=row.log_time_ms + 1)),
        ("the rows of tombstones", msgspec.structs.replace(row, effects={**row.effects, "tombstones": "00"})),
    ):
        found = replay(_with(day, [*day.journal[:at], changed, *day.journal[at + 1 :]])).difference
        assert found is not None
        assert (found.batch, what in found.what) == (row.batch, True), found


def test_a_decision_that_was_changed_is_found_by_its_bytes(day: Day) -> None:
    kept = day.decisions[0]
    renamed = kept[9].replace('"name":"p', '"name":"q')
    changes: dict[str, list[str]] = {
        "it was changed in the ledger: pod": [*kept[:9], renamed, *kept[10:]],
        "it was changed in the ledger": [*kept[:9], kept[9] + " ", *kept[10:]],
        "ledger": [*kept[:9], "no JSON", *kept[10:]],
        "changed in the ledger": kept[:-1],
    }
    for what, changed in changes.items():
        found = replay(Day(day.events, day.journal, {**day.decisions, 0: changed})).difference
        assert found is not None
        assert found.what.endswith(what), found
        assert found.recorded != found.replayed


def test_a_record_that_is_missing_is_found(day: Day) -> None:
    short = Day(day.events[:-1], day.journal, day.decisions)
    with pytest.raises(LogTooShort, match=r"batch \d+ took berth\.pods/0 up to .* does not reach as far"):
        replay(short)
