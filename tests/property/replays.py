"""Replays what a team of planners did, from the ledger and the log that they left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.adapters.memory.history import MemoryHistory, ScratchLedger
from services.adapters.memory.ledger import state_of
from services.adapters.memory.log import MemoryLog
from services.ports.journal import Checkpoint
from services.ports.ledger import Lease
from services.ports.log import Entry, Record, TopicPartition, topic_specs
from services.replay.replay import Outcome, Progress, Replay
from tests.property.team import AT_MS, Team


class _Clock:
    time_ms = AT_MS

    def now_ms(self) -> int:
        return self.time_ms


async def _log(records: Sequence[Record], shards: int) -> MemoryLog:
    clock = _Clock()
    log = MemoryLog(clock)
    await log.ensure_topics(topic_specs(shards))
    for record in records:
        clock.time_ms = record.timestamp_ms
        entry = Entry(record.key, record.value, record.seal)
        log.add(TopicPartition(record.topic, record.partition), [entry])
    return log


def replay(team: Team, first: int | None = None, last: int | None = None) -> Outcome:
    async def silent(progress: Progress) -> None:
        pass

    async def run() -> Outcome:
        log = await _log(team.records, team.shards_count)
        return await Replay(MemoryHistory(team.database), log, ScratchLedger, silent).run(first, last)

    return asyncio.run(run())


def mark(team: Team) -> None:
    """Take a checkpoint: one worker holds all shards and is at rest."""
    (planner,) = [planner for planner in team.planners if planner.owned]
    leases = [Lease(shard, team.database.shards[shard].epoch) for shard in range(team.shards_count)]
    state = state_of(team.database, leases)
    at = Checkpoint(shard=0, batch=planner.batch, start=planner.start, offsets=state.offsets)
    team.database.checkpoints.append((at, state))
    planner.renew()
