"""Does a replay try as many pods a cycle as the worker did, whatever this build would try?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from services.adapters.memory.history import MemoryHistory, ScratchLedger
from services.ports.journal import Start
from services.replay.what_if import Change, Compared, WhatIf
from services.worker.planner import Planner
from tests.builders import node_manifest, pod_manifest
from tests.depth import some
from tests.history.day import silent
from tests.property.replays import live, log_of, mark, replay
from tests.property.team import Team


@pytest.fixture
def lived(request: pytest.FixtureRequest) -> Iterator[Team]:
    """Return a day of workers that tried two pods a cycle."""
    defaults = Planner.__init__.__kwdefaults__
    assert defaults is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(defaults, "cycle_pods_max", 2)
        yield live(request.param)


@pytest.mark.parametrize("lived", some(range(8)), indirect=True)
def test_a_replay_tries_as_many_pods_a_cycle_as_the_worker_did(lived: Team) -> None:
    assert replay(lived).difference is None
    starts = [row.start for row in lived.database.journal.values() if row.start is not None]
    assert starts
    assert {start.cycle_pods_max for start in starts} == {2}


@pytest.mark.parametrize("lived", [0], indirect=True)
def test_a_replay_with_other_cycles_differs(lived: Team) -> None:
    journal = lived.database.journal
    for key, row in journal.items():
        if row.start is not None:
            start = msgspec.structs.replace(row.start, cycle_pods_max=8_000)
            journal[key] = msgspec.structs.replace(row, start=start)
    for number, (at, state) in enumerate(lived.database.checkpoints):
        start = msgspec.structs.replace(at.start, cycle_pods_max=8_000)
        lived.database.checkpoints[number] = (msgspec.structs.replace(at, start=start), state)
    assert replay(lived).difference is not None


def test_a_lived_span_goes_on_with_the_cycles_of_each_worker() -> None:
    """The first one tries two pods a cycle, the one after it as many as come."""
    defaults = Planner.__init__.__kwdefaults__
    assert defaults is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(defaults, "cycle_pods_max", 2)
        team = Team([0])
        mark(team)
        team.tell("ADDED", node_manifest("n", cpu=64), *(pod_manifest(f"a{i}", cpu=1) for i in range(5)))
    team.die(0)
    team.tell("ADDED", *(pod_manifest(f"b{i}", cpu=1) for i in range(9)))
    history, log = MemoryHistory(team.database), log_of(team.records, team.shards_count)

    async def run() -> Compared:
        return await WhatIf(history, await log, ScratchLedger, silent).run(Change(), None, None)

    found = asyncio.run(run())
    assert (found.decisions_count, found.unlike_count) == (14, 0)


def test_a_journal_of_before_was_written_with_the_cycles_of_then() -> None:
    kept = {"worker": "w", "build": "", "seed": 1, "usage_window_seconds": 60}
    kept |= {"profiles": {}, "writers": {}, "leases": {}, "offsets": []}
    assert msgspec.convert(kept, Start).cycle_pods_max == 4_000
