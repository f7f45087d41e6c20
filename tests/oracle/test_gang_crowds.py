"""Does the scheduler place the gangs of the plain oracle, on the same nodes, and no part of any other?"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.depth import some
from tests.oracle.crowd_pair import restart_at_random
from tests.oracle.gang_crowds import GangPair, size_of


@pytest.mark.parametrize("seed", some(range(90)))
def test_the_scheduler_and_the_oracle_place_the_same_gangs(seed: int) -> None:
    pair = GangPair(size_of(seed))
    pair.run()


@pytest.mark.parametrize("seed", some(range(1000, 1060)))
def test_a_restart_changes_nothing(seed: int) -> None:
    pair = GangPair(size_of(seed))
    pair.run(restart_at_random(seed))


@pytest.mark.wide
def test_the_crowds_had_what_the_rules_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(40):
        pair = GangPair(size_of(seed))
        pair.run()
        seen.update(pair.oracle.seen)
    asked = {"unknown", "short", "placed", "joined", "in part", "undone", "in one domain", "in several"}
    assert not asked - {what for what, count in seen.items() if count > 5}, seen
