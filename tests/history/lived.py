"""Days that were lived, each with its ledger and log; their decisions are verified, or written as cases."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import orjson
from prometheus_client import CollectorRegistry

from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.history import MemoryHistory, ScratchLedger
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryLog
from services.codec.encode import event_topic_and_key
from services.plan.scenario import placed_scenario
from services.ports.history import History
from services.ports.log import Entry, Log, partitions_of, topic_specs
from services.replay.as_scenario import PLANNED
from services.replay.case import Cases, NoCase
from services.replay.planning import Progress
from services.replay.tape import LogTooShort
from services.replay.verify import Verification, Verified
from services.replay.workers import CannotReplay
from services.traces import openb
from services.worker.metrics import WorkerMetrics
from services.worker.run import Worker, WorkerSettings
from tests.contract.ledgers import ManualClock
from tests.history.day import past, read
from tests.simulation.faults import Fault
from tests.simulation.replaying import UNSAID
from tests.simulation.world import World

Json = dict[str, Any]


class Lived(NamedTuple):
    """A day: its past, and the shard, seq and outcome of each of its decisions."""

    name: str
    history: History
    log: Log
    decisions: Sequence[tuple[int, int, str]]


async def silent(progress: Progress) -> None:
    """Tell nothing."""


async def recorded() -> Lived:
    """Return the day that is kept with the tests."""
    day = read()
    made = [
        (shard, seq, orjson.loads(each)["outcome"])
        for shard, texts in day.decisions.items()
        for seq, each in enumerate(texts, 1)
    ]
    return Lived("recorded", *await past(day), made)


def simulated(seed: int, *, preempts: bool) -> Lived:
    """Live a simulated day: several workers, conflicts, gangs, moves, crashes; the log keeps all of it."""
    world = World(seed, checkpoint_batches=7, without=(*UNSAID, Fault.TRUNCATED), preempts=preempts)
    world.run()
    name = f"simulated {seed}{' with preemption' * preempts}"
    return Lived(name, MemoryHistory(world.database), world.log, decisions_of(world.database))


async def openb_day(pods: int, pieces: int) -> Lived:
    """Let a worker place the first pods of the openb trace, by devices, as the log grows piece by piece."""
    clock, database = ManualClock(), MemoryDatabase(1)
    log = MemoryLog(clock)
    await log.ensure_topics(topic_specs(1))
    settings = WorkerSettings(
        name="w",
        seed=3,
        poll_seconds=0.01,
        profiles=BUILT_IN_PROFILES,
        checkpoint_batches=4,
        checkpoints_kept=1_000,
    )
    metrics = WorkerMetrics(CollectorRegistry())
    worker = Worker(log, MemoryLedger(database, clock), settings, metrics, _here)
    running = asyncio.create_task(worker.run())
    events = [each for each in openb.events() if each["object"]["kind"] == "Node"]
    asked = [each for each in openb.events() if each["object"]["kind"] == "Pod"][:pods]
    size = -(-len(asked) // pieces)
    try:
        for start in range(0, len(asked), size):
            for event in (*events, *asked[start : start + size]):
                clock.time_ms += 1
                topic, key = event_topic_and_key(event["object"])
                await (await log.writer()).append(topic, [Entry(key, orjson.dumps(event))])
            events = []
            async with asyncio.timeout(120):
                while not _is_folded(log, database):
                    assert not running.done()
                    await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return Lived("openb", MemoryHistory(database), log, decisions_of(database))


async def _here(work: Any, /, *args: Any, **kwargs: Any) -> Any:
    return work(*args, **kwargs)


def _is_folded(log: MemoryLog, database: MemoryDatabase) -> bool:
    return all(
        (0, *at) in database.offsets
        and database.offsets[0, *at].next_offset >= len(log.partition(at).records)
        for at in partitions_of(0)
    )


def decisions_of(database: MemoryDatabase) -> list[tuple[int, int, str]]:
    """Return shard, seq and outcome of all decisions."""
    decisions = database.decisions
    return [(shard, each.seq, each.outcome) for shard in sorted(decisions) for each, _ in decisions[shard]]


async def verified(day: Lived, shard: int, seq: int) -> Verified:
    """Verify a decision."""
    return await Verification(day.history, day.log, ScratchLedger, silent).run(shard, seq)


async def case(day: Lived, shard: int, seq: int) -> Json:
    """Return a decision as a scenario."""
    verification = Verification(day.history, day.log, ScratchLedger, silent)
    return await Cases(day.history, verification).of(shard, seq)


async def verify_some(day: Lived, random: Random, count: int) -> Counter[str]:
    """Verify some decisions of a day; count what came of it. What differs is printed."""
    found = Counter[str]()
    for shard, seq, _ in random.sample(day.decisions, min(count, len(day.decisions))):
        try:
            told = await verified(day, shard, seq)
        except (CannotReplay, LogTooShort) as error:
            found[error.code] += 1
            continue
        found["same" if told.is_same else "different"] += 1
        if not told.is_same:
            print(f"{day.name}: {told}")
    return found


async def cases_of(day: Lived, random: Random, count: int) -> AsyncIterator[tuple[str, Json | None]]:
    """Yield the outcome of some decisions that an attempt made, with the scenario; None: there is none."""
    planned = [each for each in day.decisions if each[2] in PLANNED]
    for shard, seq, outcome in random.sample(planned, min(count, len(planned))):
        try:
            yield outcome, await case(day, shard, seq)
        except NoCase as error:
            print(f"{day.name}: {error}")
            yield outcome, None
        except (CannotReplay, LogTooShort):
            continue


def answered(document: Json) -> tuple[str | None, Mapping[str, int]]:
    """Return the node and the reasons that `berth plan` answers for the pod of a scenario.

    As of a file: what cannot be written as JSON is lost.
    """
    plan, planned = placed_scenario(orjson.loads(orjson.dumps(document)))
    pod = document["expect"]["pod"]
    (answer,) = (each for each in planned if each.pod.key == pod)
    if answer.node is not None:
        return answer.node, answer.attempt.reasons
    (verdict,) = (each for each in plan.verdicts() if each.pod == pod)
    victims = next(iter(verdict.victims), None) if document["expect"]["outcome"] == "nominated" else None
    return victims, answer.attempt.reasons_at_failure
