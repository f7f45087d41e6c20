"""Do worker and relay survive two hundred bad days on virtual time, crashed at any await and audited?"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from services.adapters.batches import ShardAdvance
from services.ports.ledger import CommitBatch, CommitOutcome
from tests.simulation.auditor import Violation
from tests.simulation.process import UnreliableLedger
from tests.simulation.world import WatchedDatabase, World

SEEDS_COUNT = 200
SEEDS_PER_TEST = 20


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    gc.collect()  # dead workers leave arrays behind, of whose size the collector knows nothing


def _live(seed: int) -> World:
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        raise AssertionError(
            f"seed {seed}: {error!r}; replay it with: python -m tests.simulation.world {seed}"
        ) from error
    return world


@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, SEEDS_PER_TEST))
def test_all_invariants_hold_on_bad_days(first: int) -> None:
    kills = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        kills += _live(seed).kills_count
    assert kills > 0, "a bad day without a crash tests nothing"


def test_a_stale_owner_tries_to_write_and_is_refused() -> None:
    refused = sum(_live(seed).auditor.stale_writes_refused for seed in range(1040, 1090))
    assert refused > 0


def test_a_calm_day_repeats_itself_byte_by_byte() -> None:
    days = []
    for _ in range(2):
        world = World(42, calm=True)
        world.run()
        days.append(world.decisions())
    assert days[0] == days[1]
    assert len(days[0]) > 50


# ------------------------------------------------------------- deliberately broken builds must be caught


class _OffsetsFirst(UnreliableLedger):
    """Advances the offsets outside the transaction, before it."""

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        database = self._inner.database
        for a in batch.offsets:
            row = database.offsets[a[:3]]
            if (row.epoch, row.next_offset) != (a.epoch, a.lo):
                return CommitOutcome.FENCED
        for a in batch.offsets:
            database.offsets[a[:3]].next_offset = a.hi
        if self._process._rng.random() < 0.1:
            self._process.kill()  # a crash between the two
            return CommitOutcome.FENCED
        for a in batch.offsets:
            database.offsets[a[:3]].next_offset = a.lo
        return super().apply(batch)


class _NoFence(WatchedDatabase):
    """Lets every epoch and every offset in."""

    def is_fenced(self, batch: CommitBatch, advances: Sequence[ShardAdvance]) -> bool:
        return False


class _LosesPending(UnreliableLedger):
    """Keeps pods that wait in memory alone."""

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        return super().apply(msgspec.structs.replace(batch, pending_added=[]))


class _BlindToVersions(UnreliableLedger):
    """Writes a node whatever its version, with what this worker believes is requested, less one pod."""

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        nodes = [
            msgspec.structs.replace(write, requested={**write.requested, "pods": 0}) for write in batch.nodes
        ]
        return super().apply(msgspec.structs.replace(batch, nodes=nodes))


class _LosesProfiles(UnreliableLedger):
    """Keeps profiles in memory alone."""

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        return super().apply(msgspec.structs.replace(batch, profiles=[]))


class _LosesUsage(UnreliableLedger):
    """Keeps what was measured in memory alone."""

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        return super().apply(msgspec.structs.replace(batch, usage=[]))


class _BelievesClaims(UnreliableLedger):
    """Ends a placement when its producer says that it ended."""

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        closed = [each._replace(at_ms=0) for each in batch.placements_closed]
        return super().apply(msgspec.structs.replace(batch, placements_closed=closed))


class _LosesDecisions(UnreliableLedger):
    """Drops the last decision of a batch at times."""

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        keep = len(batch.decisions) - (self._process._rng.random() < 0.2)
        return super().apply(msgspec.structs.replace(batch, decisions=batch.decisions[: max(keep, 0)]))


class _NeverOrphans(UnreliableLedger):
    """Does not say that a node went away under its pods."""

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        decisions = [(d, payload.replace(b'"node-deleted"', b'"nothing"')) for d, payload in batch.decisions]
        return super().apply(msgspec.structs.replace(batch, decisions=decisions))


@pytest.mark.parametrize(
    "broken",
    [
        _OffsetsFirst,
        _NeverOrphans,
        _LosesPending,
        _LosesProfiles,
        _LosesUsage,
        _BlindToVersions,
        _BelievesClaims,
        _LosesDecisions,
    ],
)
def test_a_broken_ledger_is_caught(broken: type[UnreliableLedger]) -> None:
    assert any(_is_caught(World(seed, ledger=broken)) for seed in range(100))


def test_a_ledger_without_a_fence_is_caught() -> None:
    assert any(_is_caught(World(seed, database=_NoFence)) for seed in range(100))
    assert not _is_caught(World(1, database=_NoFence, calm=True)), "on a calm day the fence is not missed"


def _is_caught(world: World) -> bool:
    try:
        world.run()
    except Exception:
        return True
    return False


def test_the_auditor_accepts_the_same_days_of_the_sound_build() -> None:
    """Without this test, an auditor that reports a fault every time would pass the tests above."""
    for seed in range(20):
        try:
            World(seed).run()
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}")
