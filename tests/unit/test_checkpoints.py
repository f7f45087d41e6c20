"""Does a worker that takes over notice a ledger that its last batch did not leave?"""

from __future__ import annotations

import asyncio

import pytest

from services.adapters.memory.ledger import MemoryLedger
from services.ports.journal import Checkpoint
from services.worker import planner as planner_module
from services.worker.checkpoints import Checkpoints
from tests.builders import node_manifest, pod_manifest
from tests.contract.ledgers import ManualClock
from tests.property.site import Site


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a ledger with pods on a node, and a digest of every batch."""
    monkeypatch.setattr(planner_module, "DIGEST_EVERY", 1)
    site = Site()
    site.tell("ADDED", node_manifest("n", cpu=8), *(pod_manifest(f"p{i}", cpu=1) for i in range(4)))
    return site


async def _alarms(site: Site) -> int:
    found: list[bool] = []
    checkpoints = Checkpoints(MemoryLedger(site.database, ManualClock()), every=100, kept=3)
    await checkpoints.follow(await site.loaded(), lambda: found.append(True))
    return len(found)


async def test_a_sound_ledger_raises_no_alarm(site: Site) -> None:
    assert await _alarms(site) == 0


async def test_a_lost_placement_raises_the_alarm(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.database.open_placements.popitem()
    assert await _alarms(site) == 1
    assert "a row of the ledger was changed or lost" in caplog.text


async def test_a_changed_node_raises_the_alarm(site: Site) -> None:
    (node,) = site.database.nodes.values()
    assert node.spec is not None
    node.spec.allocatable["cpu"] += 1
    assert await _alarms(site) == 1


async def test_a_state_that_is_held_too_late_is_not_written(site: Site) -> None:
    planner, now = await site.loaded(), asyncio.get_running_loop().time()
    at = Checkpoint(shard=0, batch=planner.batch, start=planner.start, offsets=planner.offsets())
    for until, wanted in ((now - 0.1, 0), (now + 60.0, 1)):
        checkpoints = Checkpoints(MemoryLedger(site.database, ManualClock()), every=100, kept=3)
        assert await checkpoints.begin_checkpoint(at, until) == bool(wanted)
        assert checkpoints._writing is not None
        await asyncio.gather(checkpoints._writing, return_exceptions=True)
        assert len(site.database.checkpoints) == wanted


async def test_what_cannot_be_taken_is_tried_again_ever_later(site: Site) -> None:
    planner = await site.loaded()
    checkpoints = Checkpoints(MemoryLedger(site.database, ManualClock()), every=1_000, kept=3)
    assert checkpoints.is_due(planner)
    waits = []
    for _ in range(9):
        checkpoints.put_off(planner.batch)
        assert not checkpoints.is_due(planner)
        waits.append(checkpoints._next - planner.batch)
        assert checkpoints.has_failed_twice == (len(waits) > 1)
    assert waits == [11, 22, 44, 88, 176, 352, 704, 1_000, 1_000]
