"""Do workers and relays survive bad days on virtual time, crashed at any await and audited from outside?"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections import Counter
from collections.abc import Iterator
from unittest import mock

import pytest

from services.ports.ledger import CommitBatch, Committed, NotCommitted
from tests.depth import DEPTH, examples
from tests.simulation.covering import DAYS, KINDS_COUNT
from tests.simulation.faults import Fault
from tests.simulation.invariants import Invariant, Violation
from tests.simulation.process import UnreliableLedger
from tests.simulation.run import Tally
from tests.simulation.stalls import CALM_SECONDS_MAX
from tests.simulation.world import Build, World

SEEDS_COUNT = examples(60)  # ``make simulate`` lives thousands
SEEDS_PER_TEST = min(10, SEEDS_COUNT)
WITH_ALL_FAULTS = range(3, DAYS, KINDS_COUNT)
"""Days with gangs of Workloads and with bindings that fail, one of each block of a design."""


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


@pytest.mark.deep
@pytest.mark.wide
def test_all_invariants_hold_on_bad_days_with_preemption() -> None:
    tally = Tally()
    for seed in range(8):
        tally.live(seed, preempts=True)
    assert not tally.failures, "\n".join(tally.failures)


@pytest.mark.deep
@pytest.mark.wide
def test_every_fault_that_is_on_strikes_and_a_stale_owner_is_refused() -> None:
    tally = Tally()
    for seed in range(DAYS) if DEPTH == "nightly" else WITH_ALL_FAULTS:
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


def test_reading_everything_again_shows_as_a_stall() -> None:
    """Reads cost time by their rows, and seconds count in which work waits and nobody decides."""
    calm = World(42, calm=True)
    calm.run()
    assert calm.stalls.longest <= CALM_SECONDS_MAX
    reading = World(42, Build(ledger=_ReadsAgain), calm=True)
    with mock.patch("tests.simulation.process.ROW_SECONDS", 0.1), contextlib.suppress(Violation):
        reading.run()
    assert reading.stalls.longest > CALM_SECONDS_MAX
    assert Invariant.STALLED in reading.auditor.findings.names


class _ReadsAgain(UnreliableLedger):
    """Has a worker start over after every few batches."""

    def apply(self, batch: CommitBatch) -> Committed | NotCommitted:
        if self._process.rng.random() < 0.5:
            return NotCommitted.FENCED
        return super().apply(batch)


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
