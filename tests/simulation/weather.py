"""What befalls a deployment from outside while it works: outages, cuts, lost transactions, wrong clocks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from services.adapters.memory.ledger import MemoryLedger
from services.growing import ShardsBehind, ShardsHeld, grow
from services.ports.ledger import Lease
from services.ports.log import (
    CONFIG_TOPIC,
    DECISIONS_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    TOPICS_BY_SHARD,
    USAGE_TOPIC,
    TopicPartition,
)
from tests.simulation.faults import Fault
from tests.simulation.process import LEDGER, LOG

if TYPE_CHECKING:
    from tests.simulation.world import World

_CLOCK_WRONG_MS_MAX = 90_000
SHARDS_MAX = 5
OPERATING_SECONDS_MAX = 100.0
"""To add a shard may take so long before the faults of the day end: else nobody may ever read to the end."""


class Weather:
    """Strikes a world with the faults that its day draws."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng: random.Random = world.rng
        self._time = world.loop.time

    async def rage(self) -> None:
        """Strike now and then, until nothing is left to strike."""
        faults = self._world.faults
        squalls = asyncio.create_task(self._squall())
        for kind in faults.lasting:
            await asyncio.sleep(self._rng.uniform(1.0, 10.0))
            if faults.per_second and await self.strike(kind):
                faults.counts[kind] += 1
        while faults.per_second:
            await asyncio.sleep(self._rng.expovariate(sum(faults.per_second.values())))
            if faults.per_second:
                kinds, weights = zip(*faults.per_second.items(), strict=True)
                kind = self._rng.choices(kinds, weights)[0]
                if await self.strike(kind):
                    faults.counts[kind] += 1
        await squalls
        self.calm()

    async def _squall(self) -> None:
        """Let squalls and lulls take turns, until the faults end."""
        faults = self._world.faults
        while faults.is_squally and faults.per_second:
            faults.is_lull = not faults.is_lull
            await asyncio.sleep(self._rng.uniform(0.1, 4.0 if faults.is_lull else 1.0))

    def calm(self) -> None:
        """Mend what would stay broken."""
        self._world.log.wrong_ms.clear()

    async def strike(self, kind: Fault) -> bool:
        """Let one thing happen; return whether there was anything to strike."""
        world, rng, now = self._world, self._rng, self._time()
        match kind:
            case Fault.STOP | Fault.LOG_CUT | Fault.LEDGER_CUT:
                return self._strike_process(kind)
            case Fault.LOG_AWAY:
                world.outages.log = now + rng.uniform(0.5, 10.0)
            case Fault.DISK_FULL:
                world.outages.writes = now + rng.uniform(0.5, 10.0)
            case Fault.LEDGER_RESTART:
                self._restart_ledger()
            case Fault.FAIL_OVER | Fault.RESTORED:
                tables, length = world.database.remember(), len(world.auditor.tape.commits)
                await asyncio.sleep(rng.uniform(0.1, 3.0))
                if world.faults.per_second:  # the day may have ended meanwhile
                    self._restart_ledger()
                    world.database.fall_back(tables, renamed=kind is Fault.FAIL_OVER)
                    for process in world.running.values():  # all of them lost what they had written
                        process.hurt_at = max(process.hurt_at, self._time())
                    world.auditor.fall_back(length)
            case Fault.FOREIGN_WRITE:
                if not world.database.nodes:
                    return False
                world.database.write_foreign(rng.choice(sorted(world.database.nodes)))
            case Fault.CLOCK_AHEAD | Fault.CLOCK_BEHIND:
                wrong_ms = rng.randint(1, _CLOCK_WRONG_MS_MAX)
                world.log.wrong_ms[self._partition()] = wrong_ms if kind is Fault.CLOCK_AHEAD else -wrong_ms
            case Fault.HOLE:
                for _ in range(rng.randint(1, 3)):
                    world.log.mark(self._partition())
            case Fault.DECISIONS_LOST:
                at = TopicPartition(DECISIONS_TOPIC, rng.randrange(world.shards))
                return world.log.lose_tail(at, rng.randint(1, 20)) > 0
            case Fault.TAIL_LOST:
                at, count = self._partition(), rng.randint(1, 5)
                return not self._is_read_again(at) and world.log.lose_tail(at, count) > 0
            case Fault.TRUNCATED:
                at = TopicPartition(USAGE_TOPIC, 0)
                slots = world.log.partition(at).slots
                world.log.truncate(at, rng.randint(0, len(slots)))
                return bool(slots)
            case Fault.MORE_PARTITIONS:
                return await self._widen()
            case _:
                raise AssertionError(f"{kind} is no fault of a while")
        return True

    def _is_read_again(self, at: TopicPartition) -> bool:
        """Say whether a shard reads a partition anew: of each key it counts the record that was the last.

        What replaces such records meanwhile counts beside them, which the auditor cannot tell.
        """
        rows = self._world.database.offsets.items()
        return any((t, p) == at and row.next_offset < (row.resync_below or 0) for (_, t, p), row in rows)

    async def _widen(self) -> bool:
        """Add a shard, often after somebody gave one topic alone a partition more."""
        world, shards = self._world, self._world.shards + 1
        if shards > SHARDS_MAX:
            return False
        world.is_widened = world.is_operated = True
        if self._rng.random() < 0.5:
            # Of several partitions, others than the new one get some keys, and are read before anybody looks.
            topics = TOPICS_BY_SHARD if world.shards == 1 else (DECISIONS_TOPIC,)
            world.log.grow(self._rng.choice(topics), shards)
            await asyncio.sleep(self._rng.uniform(0.5, 30.0))
        await self._add_shards(shards)
        world.is_operated = False
        return True

    async def _add_shards(self, shards: int) -> None:
        """Do what ``berth init`` asks an operator for, until it adds the shards."""
        world, ledger = self._world, MemoryLedger(self._world.database, self._world.clock)

        async def lay_down(leases: Sequence[Lease]) -> None:
            world.database.lay_down(shards)
            world.auditor.add_shards(shards)

        world.may_produce.clear()
        tired_at = self._time() + OPERATING_SECONDS_MAX
        while True:
            if self._time() > tired_at:
                world.faults.end()
            world.may_work.clear()
            for process in world.running.values():
                if process.worker is not None and process.alive:
                    world.stop(process)
            await asyncio.sleep(self._rng.uniform(0.5, 5.0))
            try:
                await grow(world.log, ledger, shards, lay_down)
                break
            except ShardsHeld:  # by a worker that stands still
                continue
            except ShardsBehind:
                world.is_draining = True
                world.may_work.set()
                await asyncio.sleep(self._rng.uniform(5.0, 20.0))
        await ledger.aclose()
        world.shards, world.is_draining = shards, False
        world.may_work.set()
        await asyncio.sleep(self._rng.uniform(0.0, 5.0))
        world.may_produce.set()

    def _strike_process(self, kind: Fault) -> bool:
        running = [process for process in self._world.running.values() if process.alive]
        if not running:
            return False
        process = self._rng.choice(running)
        if kind is Fault.STOP:
            return self._world.stop(process)
        side = LOG if kind is Fault.LOG_CUT else LEDGER
        process.cut_until[side] = self._time() + self._rng.uniform(0.5, 30.0)
        return True

    def _restart_ledger(self) -> None:
        """End every connection and every transaction; take a while to come back."""
        self._world.transactions.abort()
        self._world.outages.ledger = self._time() + self._rng.uniform(0.1, 5.0)

    def _partition(self) -> TopicPartition:
        world = self._world
        topic = self._rng.choice((NODES_TOPIC, PODS_TOPIC, PODS_TOPIC, USAGE_TOPIC, CONFIG_TOPIC))
        sharded = topic in (NODES_TOPIC, PODS_TOPIC)
        return TopicPartition(topic, self._rng.randrange(world.shards) if sharded else 0)
