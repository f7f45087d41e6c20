"""Would the nightly cases say which seed failed, and do the first ones pass?"""

from __future__ import annotations

import pytest

from tests.depth import some
from tests.oracle import nightly
from tests.oracle.pair import Pair


@pytest.mark.parametrize("seed", some(range(1, 9)))
def test_the_first_cases_pass(seed: int) -> None:
    assert nightly.failure_of(seed) == (seed, "")


def test_a_difference_is_reported_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(pair: Pair) -> None:
        raise AssertionError(f"seed {pair.world.scenario.seed}: another node")

    monkeypatch.setattr(Pair, "run", differ)
    seed, wrong = nightly.failure_of(7)
    assert seed == 7
    assert "seed 7: another node" in wrong


def test_cases_are_of_all_sizes_and_made_of_the_seed_alone() -> None:
    made = [nightly.scenario_of(seed) for seed in range(nightly.CASES)]
    assert made[:50] == [nightly.scenario_of(seed) for seed in range(50)]
    assert (min(case.nodes for case in made), min(case.pods for case in made)) == (1, 1)
    assert max(case.nodes for case in made) > 1_900
    assert max(case.pods for case in made) > 4_900
    assert {case.resources for case in made} == set(range(1, 9))
