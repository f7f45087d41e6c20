"""A day that was lived once and is kept: its log, its journal, its decisions.

Record it again, when a decision is meant to change, with ``python -m tests.history.day``. It says how many
decisions are others by then; look at them before you keep it, and say in the commit why they changed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import orjson
from prometheus_client import CollectorRegistry

from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.history import MemoryHistory, ScratchLedger
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryLog
from services.codec.encode import event_topic_and_key
from services.ports.journal import Checkpoint, JournalRow
from services.ports.ledger import LedgerState
from services.ports.log import Entry, partitions_of, topic_specs
from services.replay.replay import Outcome, Progress, Replay
from services.worker.metrics import WorkerMetrics
from services.worker.run import Worker, WorkerSettings
from tests.builders import (
    Json,
    event,
    node_manifest,
    pod_manifest,
    priority_class_manifest,
    profile_manifest,
    usage_manifest,
)
from tests.contract.ledgers import ManualClock

FILE = Path(__file__).with_name("day.json")
SHARDS = 2
LIVES = 4  # workers, one after another
PIECES = 8  # the log grows by so many pieces while one of them follows it
EVENTS = 10  # of a piece


class Written(msgspec.Struct):
    """An event of the log, and when the log took it."""

    at_ms: int
    event: Json


class Day(msgspec.Struct):
    """All that is kept of the day."""

    events: list[Written]
    journal: list[JournalRow]
    decisions: dict[int, list[str]]  # by shard


class _Kept(MemoryHistory):
    """The history of the day, with its decisions as texts."""

    def __init__(self, database: MemoryDatabase, day: Day) -> None:
        super().__init__(database)
        self._day = day

    async def decisions(self, seqs: Mapping[int, tuple[int, int]]) -> Sequence[bytes]:
        """See ``History.decisions``."""
        spans = sorted(seqs.items())
        found = [self._day.decisions[shard][first - 1 : after - 1] for shard, (first, after) in spans]
        return [payload.encode() for payloads in found for payload in payloads]


async def _here(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return work(*args, **kwargs)


def _pod(random: Random, number: int) -> Json:
    labels = {"app": random.choice(("web", "db"))}
    selector = {"labelSelector": {"matchLabels": labels}, "topologyKey": "zone"}
    spread = {
        **selector,
        "maxSkew": 1,
        "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
    }
    spec: Json = {}
    if random.random() < 0.3:
        spec["topologySpreadConstraints"] = [spread]
    if random.random() < 0.1:
        spec["priorityClassName"] = "high"
    if random.random() < 0.2:
        spec["schedulerName"] = random.choice(("packed", "default-scheduler"))
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}
    return pod_manifest(
        f"p{number}",
        random.choice(("a", "b")),
        cpu=random.choice(("250m", "500m", "1", "3")),
        labels=labels,
        affinity=anti if random.random() < 0.1 else None,
        host_port=80 if random.random() < 0.1 else None,
        uid=f"u{number}",
        resource_version=number + 1,
        spec=spec,
    )


def _events(random: Random) -> list[Json]:
    """Return the day's events: nodes and pods that come, change and go, usage, profiles, configuration."""
    found = [event("ADDED", priority_class_manifest("high", 1000))]
    pods: list[Json] = []
    for number in range(LIVES * PIECES * EVENTS):
        draw = random.random()
        if draw < 0.12 or number < 4:
            name, zone = f"n{random.randrange(12)}", random.choice("xyz")
            kind = random.choice(("ADDED", "ADDED", "MODIFIED", "DELETED")) if number > 40 else "ADDED"
            cpu, labels = random.choice((2, 4, 8)), {"zone": zone}
            found.append(
                event(kind, node_manifest(name, cpu=cpu, labels=labels, resource_version=number + 1))
            )
        elif draw < 0.2:
            used = {"cpu": random.randrange(100)}
            found.append(event("ADDED", usage_manifest(f"n{random.randrange(12)}", percent=used)))
        elif draw < 0.22:
            strategy = random.choice(("MostAllocated", "LeastAllocated"))
            found.append(event("MODIFIED", profile_manifest("packed", strategy, resource_version=number + 1)))
        elif draw < 0.5 and pods:
            found.append(event("DELETED", pods.pop(random.randrange(len(pods)))))
        else:
            pods.append(_pod(random, number))
            found.append(event("ADDED", pods[-1]))
    return found


async def _append(log: MemoryLog, clock: ManualClock, written: list[Written]) -> None:
    writer = await log.writer()
    for each in written:
        clock.time_ms = each.at_ms
        topic, key = event_topic_and_key(each.event["object"])
        await writer.append(topic, [Entry(key, orjson.dumps(each.event))])


async def _live() -> Day:
    """Let workers follow a log that grows, one after another."""
    random, clock, database = Random(1), ManualClock(), MemoryDatabase(SHARDS)
    log = MemoryLog(clock)
    await log.ensure_topics(topic_specs(SHARDS))
    start_ms = clock.time_ms
    events = [Written(start_ms + 100 * i, each) for i, each in enumerate(_events(random))]
    rest = list(events)
    async with asyncio.timeout(300):
        for life in range(LIVES):
            settings = WorkerSettings(name=f"w{life}", seed=3, poll_seconds=0.01, profiles=BUILT_IN_PROFILES)
            ledger, metrics = MemoryLedger(database, clock), WorkerMetrics(CollectorRegistry())
            running = asyncio.create_task(Worker(log, ledger, settings, metrics, _here).run())
            while len(rest) > len(events) * (LIVES - 1 - life) // LIVES:
                size = random.randrange(1, 2 * EVENTS)
                await _append(log, clock, rest[:size])
                del rest[:size]
                await _until_folded(log, database, running)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    rows = [row for _, row in sorted(database.journal.items())]
    decisions = {shard: [p.decode() for _, p in made] for shard, made in database.decisions.items()}
    return Day(events, rows, decisions)


async def _until_folded(log: MemoryLog, database: MemoryDatabase, running: asyncio.Task[None]) -> None:
    ats = [at for shard in range(SHARDS) for at in partitions_of(shard)]
    ends = {at: len(log.partition(at).records) for at in ats}
    offsets = database.offsets
    while any(
        offsets[key].next_offset < end if (key := (at.partition, *at)) in offsets else end
        for at, end in ends.items()
    ):
        assert not running.done()
        await asyncio.sleep(0.002)
    for _ in range(100):
        await asyncio.sleep(0)


async def past(day: Day) -> tuple[MemoryHistory, MemoryLog]:
    """Return the day as a ledger and a log have it."""
    clock, database = ManualClock(), MemoryDatabase(SHARDS)
    log = MemoryLog(clock)
    await log.ensure_topics(topic_specs(SHARDS))
    await _append(log, clock, day.events)
    began = day.journal[0].start
    assert began is not None
    rows = [msgspec.structs.replace(row, position=n) for n, row in enumerate(day.journal, 1)]
    database.journal = {(row.shard, row.batch): row for row in rows}
    offsets = {(shard, topic, at): offset for shard, topic, at, offset in began.offsets}
    empty = LedgerState(
        offsets=offsets,
        nodes=[],
        templates={},
        placements=[],
        pending=[],
        tombstones=[],
        profiles=[],
        config=[],
        usage=[],
        seq_next=dict.fromkeys(began.leases, 1),
        dead_seq_next=dict.fromkeys(began.leases, 1),
        log_time_ms=0,
        seal_secret=b"",
        shards_count=SHARDS,
    )
    database.checkpoints = [(Checkpoint(shard=0, batch=0, start=began, offsets=offsets), empty)]
    return _Kept(database, day), log


async def silent(progress: Progress) -> None:
    """Tell nothing."""


async def _replay(day: Day) -> Outcome:
    return await Replay(*await past(day), ScratchLedger, silent).run(None, None)


def read() -> Day:
    """Return the day that is kept."""
    return msgspec.json.decode(FILE.read_bytes(), type=Day)


def replay(day: Day) -> Outcome:
    """Plan a day again."""
    return asyncio.run(_replay(day))


def main() -> None:
    """Live the day again, and keep it in place of the one before."""
    before = read().decisions if FILE.exists() else {}
    day = asyncio.run(_live())
    with contextlib.suppress(KeyError):
        others = sum(
            one != other
            for shard, made in day.decisions.items()
            for one, other in zip(made, before[shard], strict=False)
        )
        print(f"{others} decisions are others than in the day kept before: see that each is meant to be")
    text = msgspec.json.encode(day).decode()
    FILE.write_text(text.replace('},{"at_ms"', '},\n{"at_ms"').replace('},{"shard"', '},\n{"shard"') + "\n")
    decisions_count = sum(map(len, day.decisions.values()))
    print(f"{len(day.events)} events, {len(day.journal)} batches, {decisions_count} decisions")


if __name__ == "__main__":
    main()
