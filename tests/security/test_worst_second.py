"""Does the search for a team's worst second search, and does what it finds keep nobody waiting?"""

from __future__ import annotations

from functools import cache

import pytest

from domain.cycle import schedule
from domain.model.limits import cycle_work_max
from tests.security.worst_second import (
    BYTES_MAX,
    EVENTS_MAX,
    Found,
    climb,
    drawn,
    measured,
    records_of,
)

NODES, TRIES = 20, 4


@cache
def searched(seed: int) -> list[Found]:
    *_, worst = climb(seed, lambda tries: tries < TRIES, NODES, counts=True)
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
        assert len(records) <= EVENTS_MAX + 1
        assert sum(len(record.value or b"") for record in records[:-1]) <= BYTES_MAX


def test_a_second_that_would_keep_others_waiting_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as much work for a cycle as there is, the same second does far more before the other's pod."""
    worst = searched(0)
    seeds = max(worst, key=lambda each: each.work / each.batches).seeds
    bounded_work = 20_000
    monkeypatch.setattr(schedule, "cycle_work_max", bounded_work)
    bounded = measured(seeds, NODES, counts=True)
    monkeypatch.setattr(schedule, "cycle_work_max", 100 * cycle_work_max)
    assert measured(seeds, NODES, counts=True).calls > 1.5 * bounded.calls
