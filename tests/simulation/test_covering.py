"""Does each lasting fault meet each feature in few days, and does a run say where one did not?"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.covering import DAYS, KINDS_COUNT, PATHS, Pair, by_design, features, missed
from tests.simulation.faults import OF_A_WHILE, Fault
from tests.simulation.scenario import Kind


@pytest.mark.parametrize("preempts", [False, True])
@pytest.mark.parametrize("first", [0, DAYS, 20 * DAYS])
def test_a_design_has_each_fault_on_each_kind_of_day(first: int, preempts: bool) -> None:
    days = range(first, first + DAYS)
    there = {(fault, seed % KINDS_COUNT) for seed in days for fault in by_design(seed)}
    assert there == {(fault, kind) for fault in OF_A_WHILE for kind in range(KINDS_COUNT)}
    for kind in range(KINDS_COUNT):
        again = {Kind.of(seed, preempts=preempts) for seed in days if seed % KINDS_COUNT == kind}
        assert len(again) == 1, "a kind of day comes again after so many days"


def test_two_designs_pair_the_faults_otherwise() -> None:
    assert len({frozenset(by_design(seed)) for seed in range(0, 4 * DAYS, KINDS_COUNT)}) > 16


def _all_met(days: range, times: int) -> tuple[Counter[Pair], dict[str, int]]:
    kinds = [Kind.of(seed, preempts=False) for seed in days]
    pairs = Counter({(f, name): times for f in OF_A_WHILE for kind in kinds for name in features(kind)})
    return pairs, dict.fromkeys(PATHS, times)


def test_a_run_says_which_pair_and_which_path_had_too_few_hits() -> None:
    days = range(2 * DAYS)
    assert list(missed(days, *_all_met(days, 2))) == []
    pairs, counts = _all_met(days, 2)
    pairs[Fault.RESTORED, "has_gangs"] = 1
    counts["conflicts"] = 0
    assert list(missed(days, pairs, counts)) == [
        f"restored met has_gangs on 1 days of {len(days)}, and should on 2",
        f"conflicts: 0 in {len(days)} days, and should be 2",
    ]


@pytest.mark.parametrize("days", [range(DAYS - 1), range(1, DAYS + 5), range(0)])
def test_a_run_without_a_whole_design_has_no_quota(days: range) -> None:
    assert list(missed(days, Counter(), Counter())) == []
