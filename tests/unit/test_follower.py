"""Does a worker know by how much it is behind the others, however much they do?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.ports.journal import Feed, Followed
from services.worker.follow.follower import Follower
from tests.simulation.loop import SimulatedLoop, VirtualClock

FOREIGN = 1
PAUSE_SECONDS = 0.015


class BusyLedger(MemoryLedger):
    """Another worker commits more often than anybody looks, while it is busy."""

    is_busy = True

    async def follow(self, seen: Mapping[int, int]) -> Sequence[Followed]:
        if not self.is_busy:
            return []
        batch = seen[FOREIGN] + 1
        told: dict[str, Any] = {"log_time_ms": batch, "seqs": {}, "feed": Feed(), "templates": {}}
        return [Followed(position=batch, shard=FOREIGN, batch=batch, **told)]


def following(live: Callable[[Follower, BusyLedger], Awaitable[None]]) -> None:
    """Run a test beside a follower, on virtual time."""
    loop = SimulatedLoop()

    async def main() -> None:
        clock = VirtualClock(loop)
        ledger = BusyLedger(MemoryDatabase(2, clock.now_ms), clock)
        follower = Follower(ledger, {FOREIGN: 0}, lambda: False, PAUSE_SECONDS)
        task = asyncio.ensure_future(follower.run())
        await live(follower, ledger)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_who_plans_with_all_that_was_read_is_not_behind_though_each_look_finds_more() -> None:
    async def live(follower: Follower, ledger: BusyLedger) -> None:
        for _ in range(1_000):
            await asyncio.sleep(0.01)
            follower.take_batches()
            assert follower.behind_seconds <= PAUSE_SECONDS
        await asyncio.sleep(5)  # a batch is planned for as long
        assert follower.behind_seconds > 5

    following(live)


def test_a_batch_waits_since_it_was_not_there_yet_and_not_since_nobody_was_followed() -> None:
    async def live(follower: Follower, ledger: BusyLedger) -> None:
        ledger.is_busy = False
        known = await follower.stop([FOREIGN])
        await asyncio.sleep(3_000)  # all shards are own
        await follower.resume(known)
        ledger.is_busy = True
        while not follower.has_rows:
            await asyncio.sleep(0.001)
        _, since = follower.take_batches()
        assert asyncio.get_running_loop().time() - since[0] < 2 * PAUSE_SECONDS

    following(live)
