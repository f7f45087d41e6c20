"""Replays what a team of planners did, from the ledger and the log that they left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import msgspec

from services.adapters.memory.history import MemoryHistory, ScratchLedger
from services.adapters.memory.ledger import state_of
from services.adapters.memory.log import MemoryLog
from services.ports.journal import Checkpoint
from services.ports.ledger import Lease
from services.ports.log import Entry, Record, TopicPartition, topic_specs
from services.replay.replay import Outcome, Progress, Replay
from tests.property.site import Producer
from tests.property.team import AT_MS, Team, audit


class _Clock:
    time_ms = AT_MS

    def now_ms(self) -> int:
        return self.time_ms


async def log_of(records: Sequence[Record], shards: int) -> MemoryLog:
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
        log = await log_of(team.records, team.shards_count)
        return await Replay(MemoryHistory(team.database), log, ScratchLedger, silent).run(first, last)

    return asyncio.run(run())


def mark(team: Team) -> None:
    """Take a checkpoint: one worker holds all shards and is at rest."""
    (planner,) = [planner for planner in team.planners if planner.owned]
    keep(team)
    planner.renew_queue()


def mark_many(team: Team) -> None:
    """Take a checkpoint while several workers share the shards: all rest, and begin anew in memory."""
    team.rest()
    holders = [number for number, planner in enumerate(team.planners) if planner.owned]
    call = next(planner.batch + 1 for planner in team.planners if 0 in planner.owned)
    for number in holders:
        team.step(number, follows=False, call=call)
        assert not team.lost[number], "who lost something does not rest"
    keep(team)
    for number in holders:
        team.planners[number].rest(team.unread(number))


def keep(team: Team) -> None:
    """Keep the ledger as it is, as a checkpoint; whether anybody can go on from there is not asked."""
    (caller,) = [planner for planner in team.planners if 0 in planner.owned]
    leases = [Lease(shard, team.database.shards[shard].epoch) for shard in range(team.shards_count)]
    state = state_of(team.database, leases)
    start = msgspec.structs.replace(caller.start, leases=dict(leases))
    at = Checkpoint(shard=0, batch=caller.batch, start=start, offsets=state.offsets)
    team.database.checkpoints.append((at, state))


def live(seed: int, rounds: int = 24, producing: type[Producer] = Producer) -> Team:
    """Let two or three workers live a day: they begin, take and give shards, die, and are late."""
    team, random = Team([0, 1, 2]), Random(seed)
    producer = producing(random, shards=3)
    mark(team)
    for number in range(rounds):
        team.rest()
        _change_owners(team, random, number)
        records = [team.accept(record) for record in producer.records(random.randrange(4, 14))]
        for index in random.sample(range(len(team.planners)), len(team.planners)):
            own = [record for record in records if record.partition in team.planners[index].owned]
            if own or random.random() < 0.3:
                team.step(index, own, follows=random.random() < 0.6)
        if number == rounds // 2:
            team.gather(0)
            mark(team)
        elif number % 6 == 4:
            mark_many(team)
    team.rest()
    audit(team)
    return team


def _change_owners(team: Team, random: Random, number: int) -> None:
    draw = random.random()
    holders = [at for at, planner in enumerate(team.planners) if planner.owned]
    if number in (2, 5) or draw < 0.15:
        giver = random.choice([at for at in holders if len(team.planners[at].owned) > 1] or [-1])
        if giver >= 0:
            shard = random.choice(sorted(team.planners[giver].owned))
            team.give(giver, [shard])
            others = [at for at in range(len(team.planners)) if at != giver]
            if others and random.random() < 0.5:
                team.take(team.planners[random.choice(others)], [shard])
            else:
                team.join([shard])
    elif draw < 0.3:
        team.die(random.choice(holders))
