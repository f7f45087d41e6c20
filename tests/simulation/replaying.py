"""Plans a simulated day again, from the journal and the log alone, and compares it byte by byte."""

from __future__ import annotations

import asyncio

from services.adapters.memory.history import MemoryHistory, ScratchLedger
from services.replay.replay import CannotReplay, Outcome, Progress, Replay
from services.replay.tape import LogTooShort
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
    except LogTooShort:
        tape = world.auditor.tape
        assert any(map(tape.is_overwritten, tape.commits)), "the log has what was taken from it"
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
