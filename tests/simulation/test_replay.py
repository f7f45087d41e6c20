"""Is a day of crashes planned again, from the journal and the log alone, byte by byte the same?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from services.codec.feed import unpack_feed
from services.ports.journal import BATCHES
from services.worker import planner as planner_module
from tests.depth import some
from tests.simulation.replaying import compare, lived, replay
from tests.simulation.world import World

SEEDS = some(range(30))


@pytest.fixture(autouse=True)
def _many_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "DIGEST_EVERY", 3)


@pytest.fixture(scope="module")
def days() -> Callable[[int], World]:
    """Return what lives a day, each but once: a replay changes nothing of it."""
    return cache(lived)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_day_of_crashes_is_planned_again_with_the_same_bytes(
    days: Callable[[int], World], seed: int
) -> None:
    compare(days(seed))


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
def test_days_have_crashes_and_checkpoints(days: Callable[[int], World]) -> None:
    """What the first test rests on, of the days that it looks at."""
    worlds, count = [days(seed) for seed in SEEDS], len(SEEDS)
    assert sum(world.kills_count for world in worlds) > 2 * count
    assert sum(len(world.database.checkpoints) for world in worlds) > count
    rows = [list(world.database.journal.values()) for world in worlds]
    assert sum(row.start is not None for day in rows for row in day) > count / 2
    assert sum(len({row.worker for row in day}) for day in rows) > count
    assert sum(bool(row.followed) for day in rows for row in day) > 3 * count / 4
