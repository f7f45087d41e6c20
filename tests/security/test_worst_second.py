"""Does the search for a team's worst second climb, and does what it finds keep no other team waiting?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from domain.cycle import gang_trial, schedule
from tests.security import worst_second
from tests.security.worst_second import (
    BYTES_MAX,
    Found,
    Part,
    Second,
    climb,
    drawn,
    measured,
    prepared,
    records_of,
)

NODES, TRIES, EVENTS = 20, 4, 60


@pytest.fixture(autouse=True)
def _short_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a team send little in a second: to count calls is slow."""
    monkeypatch.setattr(worst_second, "EVENTS_MAX", EVENTS)


def counted(seeds: Sequence[int]) -> Found:
    return measured(seeds, prepared(NODES), counts=True)


@cache
def searched(seed: int) -> list[Found]:
    *_, worst = climb(seed, lambda tries: tries < TRIES, counted, counts=True)
    return worst


def test_a_tiny_search_finds_no_second_behind_which_another_team_waits() -> None:
    worst = searched(0)
    assert len(worst) == TRIES
    assert [each for each in worst if not each.decided] == []
    assert [each.calls for each in worst] == sorted((each.calls for each in worst), reverse=True)
    assert any(len(each.seeds) > 1 for each in worst), "it climbs"


def test_seeds_make_the_same_second_again() -> None:
    for seed in range(10):
        records = records_of(drawn((seed, seed + 1)))
        assert records == records_of(drawn((seed, seed + 1)))
        assert len(records) <= EVENTS + 1
        assert sum(len(record.value or b"") for record in records[:-1]) <= BYTES_MAX


def test_a_second_that_would_keep_others_waiting_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The more work a cycle may do, the more is done before the other team's pod is decided."""
    monkeypatch.setattr(worst_second, "drawn", lambda _: Second((Part(count=EVENTS),)))
    found = []
    for work_max in (1_000, 1_000_000):
        monkeypatch.setattr(schedule, "cycle_work_max", work_max)
        found.append(counted((0,)))
    assert [each.decided for each in found] == [True, True]
    assert found[0].work < found[1].work / 4
    assert found[0].calls < found[1].calls / 1.2


def test_a_gang_whose_pods_are_all_compared_with_each_other_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried whole, and so would take the time of everybody: the cost grows with its square."""
    part = Part(count=EVENTS - 1, cpu_milli=1, gang_pods=EVENTS - 1, away=8, selector=3)
    monkeypatch.setattr(worst_second, "drawn", lambda _: Second((part,)))
    found, codes = [], []
    for most in (1 << 30, 1_000):
        monkeypatch.setattr(gang_trial, "gang_pairs_max", most)
        planner = prepared(NODES)
        batch = planner.plan_batch(records_of(Second((part,)))[:-1])
        codes.append(
            {
                code
                for rows in batch.decisions.attempts
                for code in rows.attempt.reasons_at_failure | rows.attempt.reasons
            }
        )
        found.append(counted((0,)))
    assert "gang-too-varied" not in codes[0]
    assert "gang-too-varied" in codes[1]
    assert [each.decided for each in found] == [True, True]
    assert found[1].calls < found[0].calls / 4
