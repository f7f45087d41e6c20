"""Is a day of crashes planned again, from the journal and the log alone, byte by byte the same?"""

from __future__ import annotations

import pytest

from services.codec.feed import unpack_feed
from services.ports.journal import BATCHES
from services.worker import planner as planner_module
from tests.depth import some
from tests.simulation.replaying import compare, lived, replay
from tests.simulation.world import World


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
