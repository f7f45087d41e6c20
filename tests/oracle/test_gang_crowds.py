"""Does the scheduler place the gangs of the plain oracle, on the same nodes, and no part of any other?"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.oracle.crowd_pair import restart_at_random
from tests.oracle.gang_crowds import GangPair, size_of

SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(90))
def test_the_scheduler_and_the_oracle_place_the_same_gangs(seed: int) -> None:
    pair = GangPair(size_of(seed))
    pair.run()
    SEEN.update(pair.oracle.seen)


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_a_restart_changes_nothing(seed: int) -> None:
    pair = GangPair(size_of(seed))
    pair.run(restart_at_random(seed))
    SEEN.update(pair.oracle.seen)


def test_the_crowds_had_what_the_rules_are_about() -> None:
    asked = {"unknown", "short", "placed", "joined", "in part", "undone", "in one domain", "in several"}
    few = asked - {what for what, count in SEEN.items() if count > 20}
    assert not few or not SEEN, (few, SEEN)
