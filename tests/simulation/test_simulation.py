"""Do workers and relays survive bad days on virtual time, crashed at any await and audited from outside?"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.depth import DEPTH, examples
from tests.simulation.faults import Fault
from tests.simulation.run import Tally
from tests.simulation.world import World

SEEDS_COUNT = examples(60)  # ``make simulate`` lives thousands
SEEDS_PER_TEST = min(10, SEEDS_COUNT)
WITH_ALL_FAULTS = (1_101, 1_102, 1_103, 1_107, 1_109, 1_112, 1_150, 1_152)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    gc.collect()  # dead workers leave arrays behind, of whose size the collector knows nothing


@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, SEEDS_PER_TEST))
def test_all_invariants_hold_on_bad_days(first: int) -> None:
    tally = Tally()
    for seed in range(first, min(first + SEEDS_PER_TEST, SEEDS_COUNT)):
        tally.live(seed)
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.faults[Fault.CRASH] > 0, "bad days without a crash test nothing"


@pytest.mark.wide
def test_all_invariants_hold_on_bad_days_with_preemption() -> None:
    tally = Tally()
    for seed in (*range(5), 19, 42, 268):  # the last three went wrong once
        tally.live(seed, preempts=True)
    assert not tally.failures, "\n".join(tally.failures)


@pytest.mark.wide
def test_every_fault_that_is_on_strikes_and_a_stale_owner_is_refused() -> None:
    tally = Tally()
    for seed in range(1_100, 1_170) if DEPTH == "nightly" else WITH_ALL_FAULTS:
        tally.live(seed)
    assert not tally.failures, "\n".join(tally.failures)
    assert set(tally.faults) == set(Fault)
    assert tally.counts["fenced commits"] > 0
    assert tally.counts["gangs of Workloads placed"] > 0


def test_nobody_runs_while_partitions_would_not_be_read() -> None:
    world = World(3, calm=True)
    world.faults.per_second = {Fault.MORE_PARTITIONS: 0.5}
    world.run()
    assert world.mismatches > 0


def test_a_calm_day_repeats_itself_byte_by_byte() -> None:
    days = []
    for _ in range(2):
        world = World(42, calm=True)
        world.run()
        days.append(world.decisions())
    assert days[0] == days[1]
    assert len(days[0]) > 50


def test_a_bad_day_repeats_itself() -> None:
    days: list[tuple[list[bytes], Counter[Fault]]] = []
    for _ in range(2):
        world = World(7)
        world.run()
        days.append((world.decisions(), world.faults.counts))
    assert days[0] == days[1], "a seed that failed could not be replayed"
