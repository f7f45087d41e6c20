"""Is a cycle's work what it was estimated at, whatever a producer sends?

Processor time of one shape is compared with that of plain pods, measured in turns with it: no clock and no
absolute time has a say, so that a slow or busy processor does no harm.
"""

from __future__ import annotations

import pytest

from benchmarks.hostile import BURSTS, works_of
from domain.model.limits import cycle_work_max

NODES, PODS, CYCLES, TRIES = 1_000, 40, 3, 4
FACTOR_MAX = 2.5
"""How much more than estimated a shape may take, where plain pods take what is estimated."""


def unit_us(name: str) -> float:
    """Return how long a unit of work takes in the quickest cycle of a burst, in microseconds."""
    return min(work.unit_us for work in works_of(BURSTS[name], NODES, PODS, CYCLES)[1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BURSTS.keys() - {"none"}))
def test_no_shape_takes_much_more_than_it_is_estimated_at(name: str) -> None:
    """A shape that costs more than its namespace pays for takes the time of others."""
    found = []
    for _ in range(TRIES):
        found.append(unit_us(name) / unit_us("none"))
        if min(found) <= FACTOR_MAX:
            return
    raise AssertionError(
        f"{name} takes {min(found):.1f} times what it is estimated at: domain/queue/turns.py"
    )


@pytest.mark.parametrize("name", sorted(BURSTS))
def test_a_cycle_does_no_more_than_it_may(name: str) -> None:
    """But for the last that it began."""
    found = [work.estimated for work in works_of(BURSTS[name], NODES, 400, 1)]
    assert max(found) < 1.2 * cycle_work_max, found
