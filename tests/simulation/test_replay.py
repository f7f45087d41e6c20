"""Is a day of crashes planned again, from the journal and the log alone, byte by byte the same?"""

from __future__ import annotations

import asyncio

import pytest

from services.adapters.memory.history import MemoryHistory, ScratchLedger
from services.codec.feed import unpack_feed
from services.ports.journal import BATCHES
from services.replay.replay import CannotReplay, Outcome, Progress, Replay
from services.worker import planner as planner_module
from tests.depth import some
from tests.simulation.faults import Fault
from tests.simulation.world import World

UNSAID = (Fault.FOREIGN_WRITE, Fault.FAIL_OVER, Fault.RESTORED, Fault.MORE_PARTITIONS)
"""The version that somebody else gave a node is in no log, and what a fail-over lost in no journal; no batch
from before shards were added is planned again."""


async def _silent(progress: Progress) -> None:
    pass


def replay(world: World, first: int | None = None, last: int | None = None) -> Outcome:
    history = MemoryHistory(world.database)
    return asyncio.run(Replay(history, world.log, ScratchLedger, _silent).run(first, last))


def lived(seed: int, checkpoint_batches: int = 7, *, preempts: bool = False) -> World:
    world = World(seed, checkpoint_batches=checkpoint_batches, without=UNSAID, preempts=preempts)
    world.run()
    return world


def _is_overwritten(world: World, outcome: Outcome) -> bool:
    """Say whether the log holds something else than what was taken from it for the batches planned again."""
    found, journal = outcome.difference, world.database.journal
    assert found is not None
    begun = journal.get((0, outcome.progress.checkpoint))
    first, last = begun.position if begun else 0, journal[found.shard, found.batch].position
    numbers = {number for number, row in journal.items() if first < row.position <= last}
    tape = world.auditor.tape
    return any(tape.is_overwritten(commit) for commit in tape.commits if commit.number in numbers)


@pytest.fixture(autouse=True)
def _many_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "DIGEST_EVERY", 3)


@pytest.mark.parametrize("seed", some(range(30)))
def test_a_day_of_crashes_is_planned_again_with_the_same_bytes(seed: int) -> None:
    compare(lived(seed))


@pytest.mark.parametrize("seed", some(range(10)))
def test_so_is_a_day_with_preemption(seed: int) -> None:
    compare(lived(seed, preempts=True))


@pytest.mark.parametrize("seed", some([5, 9, 11]))
def test_checkpoints_are_taken_while_several_workers_share_the_shards(seed: int) -> None:
    """Without one, the journal could not be pruned, and a replay would begin ever further back."""
    world = World(seed, calm=True, checkpoint_batches=7)
    world.run()
    last, _ = world.database.checkpoints[-1]
    end = world.database.offsets[0, BATCHES, 0].next_offset
    assert end - last.batch < 3 * 7
    assert sum(unpack_feed(row.feed).rest is not None for row in world.database.journal.values()) > 10
    outcome = replay(world, first=last.batch + 1)
    assert (outcome.difference, outcome.progress.checkpoint) == (None, last.batch)
    assert outcome.progress.batches_count == outcome.progress.total > 0


def compare(world: World) -> None:
    """Plan a day again, whole and from each checkpoint."""
    try:
        outcome = replay(world)
    except CannotReplay:
        if not world.database.checkpoints:
            alone = [commit for commit in world.auditor.tape.commits if len(commit.own) == world.shards]
            assert not alone, "a worker held all shards, and wrote no checkpoint"
            return
        retained = not world.faults.counts[Fault.TRUNCATED]
        assert world.database.log_faults or not retained, "the log has all that came before"
        return
    if outcome.difference is not None:
        assert _is_overwritten(world, outcome)
        return
    assert outcome.progress.batches_count == outcome.progress.total > 0
    begun = outcome.progress.checkpoint
    for checkpoint, _ in world.database.checkpoints:
        if begun <= checkpoint.batch < outcome.progress.last:
            again = replay(world, first=checkpoint.batch + 1)
            assert (again.difference, again.progress.checkpoint) == (None, checkpoint.batch)


@pytest.mark.wide
def test_days_have_crashes_and_checkpoints() -> None:
    """What the test above rests on."""
    worlds = [lived(seed) for seed in range(20)]
    assert sum(world.kills_count for world in worlds) > 40
    assert sum(len(world.database.checkpoints) for world in worlds) > 20
    rows = [list(world.database.journal.values()) for world in worlds]
    assert sum(row.start is not None for day in rows for row in day) > 10
    assert sum(len({row.worker for row in day}) for day in rows) > 20
    assert sum(bool(row.followed) for day in rows for row in day) > 15
