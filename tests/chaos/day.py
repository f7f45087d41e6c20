"""One day of a real deployment: workers, relays and an executor as processes, real servers, and faults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from services.bootstrap import initialise, open_log
from services.ports.log import Log
from tests.chaos.judging import Found, judge, keep, partitions_of_producers
from tests.chaos.listening import Listener, listened
from tests.chaos.processes import EXECUTOR, Slot, command_of
from tests.chaos.producing import Producing
from tests.chaos.replaying import plan_again
from tests.chaos.scenario import Everything
from tests.chaos.servers import Servers
from tests.chaos.watching import watch
from tests.chaos.weather import Weather
from tests.simulation.faults import Faults
from tests.simulation.invariants import Invariant
from tests.simulation.scenario import Scenario

RELAYS_COUNT = 2
EXECUTORS_COUNT = 1
STOP_SECONDS = 2.0
"""A stop takes 2 s at most where a process has a core to itself. Each more that wants it takes as long."""
_SETTLE_SECONDS_MAX = 600.0
_QUIET_SECONDS = 12.0
"""Longer than any pod backs off, and than a promise is kept."""


class Shape(NamedTuple):
    """How large a day is.

    ``quiet_seconds`` is the mean time from the end of one strike at a process to the next; ``logs`` is where
    the tables of a bad day are kept. With ``everything`` pods preempt and an executor ends those that have to
    go, some pods are of gangs, and some bindings fail.
    """

    seconds: float = 45.0
    per_second: float = 60.0
    quiet_seconds: float = 2.5
    build: str = "sound"
    logs: Path | None = None
    everything: bool = False


class Lived(NamedTuple):
    """What happened on a day, and what is wrong."""

    counts: Counter[str]
    restarts: Counter[str]
    found: Found
    said: str
    records: str


class Day:
    """Everything of one seed. The seed draws what strikes; the machine decides when exactly it hits."""

    def __init__(self, seed: int, shape: Shape, folder: Path) -> None:
        rng = random.Random(seed)
        self._seed = seed
        self._shape = shape
        self._folder = folder
        self.shards = rng.choice((3, 4, 8))
        self._workers = rng.choice((2, 3, 3, 4))
        large = rng.random() < 0.5
        self._faults = Faults(rng)
        sizes = (400, 60) if large else (41, 8)
        drawn = random.Random(rng.random())
        kind = Everything if shape.everything else Scenario
        self._scenario = kind(drawn, self._faults, pods=sizes[0], nodes=sizes[1])
        self._rng = rng
        self._kinds = ["worker"] * self._workers + ["relay"] * RELAYS_COUNT
        self._kinds += [EXECUTOR] * EXECUTORS_COUNT if shape.everything else []
        self._servers = Servers(folder, len(self._kinds) + 1)  # one for who listens
        self._slots: list[Slot] = []
        self._found: Found = []

    async def live(self) -> Lived:
        """Live the day, let everything heal, and judge."""
        try:
            await self._servers.start()
            await initialise(self._servers.place, self.shards)
            await self._servers.replicate()
            return await self._between()
        finally:
            await self._servers.aclose()

    async def _between(self) -> Lived:
        preempts = self._shape.everything
        *ways, own = self._servers.ways()
        for number, (kind, way) in enumerate(zip(self._kinds, ways, strict=True)):
            command = command_of(kind, self._shape.build, self._folder)
            self._slots.append(Slot(kind, number, way, self._folder, command, preempts))
        producing = Producing(self._rng, self._scenario, self._servers.kafka.bootstrap, self.shards)
        weather = Weather(self._rng, self._servers, self._slots, self._shape.quiet_seconds)
        listener = Listener(random.Random(self._seed))
        async with listened(listener, own.place), self._running():
            seconds = self._shape.seconds
            watching = asyncio.create_task(watch(self._servers, self.shards, self._hear))
            async with asyncio.TaskGroup() as together:
                together.create_task(producing.produce(seconds, self._shape.per_second))
                together.create_task(weather.rage(seconds))
            watching.cancel()
            await producing.send(self._scenario.closing())
            healed = time.monotonic()
            settled = await self._settle()
            settle_seconds = time.monotonic() - healed
            if settled and self._shape.everything:  # the use of pods counts once they are known
                await producing.send(self._scenario.lending.last_reports())
                settled = await self._settle()
            await asyncio.gather(*(slot.stop() for slot in self._slots))
            lasts = await self._last_decisions()
            await listener.caught_up(lasts, _SETTLE_SECONDS_MAX)
        self._found += listener.judge(lasts)
        self._judge_processes()
        records, moments, replayed = "", 0, Counter[str]()
        if settled:
            late = weather.late_relays
            found, moments, records = await judge(self._servers, self.shards, producing.acknowledged, late)
            again, replayed = await plan_again(self._servers.place)
            self._found += found + again
        if self._found and self._shape.logs is not None:
            await keep(self._servers, self._shape.logs / f"seed-{self._seed}")
        counts = Counter({str(kind): count for kind, count in weather.counts.items()})
        counts += producing.counts
        counts += Counter({f"events: {fault}": count for fault, count in self._faults.counts.items()})
        counts["seconds until all was worked off"] = round(settle_seconds)
        counts["moments of the past compared"] = moments
        counts["streams opened"] = listener.streams_count
        counts["decisions read from streams"] = sum(map(len, listener.parts))
        counts["records acknowledged"] = len(producing.acknowledged)
        counts += replayed + await self._numbers()
        restarts: Counter[str] = sum((slot.restarts() for slot in self._slots), Counter())
        return Lived(counts, restarts, self._found, "\n".join(slot.said() for slot in self._slots), records)

    def _hear(self, uid: str, outcome: str, node: str | None) -> None:
        if isinstance(self._scenario, Everything):
            self._scenario.hear(uid, outcome, node)

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Keep all processes running."""
        keepers = [
            asyncio.create_task(slot.keep_running(random.Random(self._rng.random()))) for slot in self._slots
        ]
        try:
            yield
        finally:
            for slot in self._slots:
                slot.close()
            await asyncio.gather(*keepers)

    async def _settle(self) -> bool:
        """Wait until every record took effect, every decision is published, and nothing moves any more."""
        deadline, quiet_since, before, why = time.monotonic() + _SETTLE_SECONDS_MAX, 0.0, -1, ""
        log = open_log(self._servers.place)
        try:
            ends = await _ends(log, self.shards)
            while time.monotonic() < deadline:
                async with self._servers.connected() as connection:
                    why, done = await _behind(connection, ends)
                if why or done != before:
                    quiet_since, before = time.monotonic(), done
                elif time.monotonic() > quiet_since + _QUIET_SECONDS:
                    return True
                await asyncio.sleep(0.2)
        finally:
            await log.aclose()
        last = {slot.name: slot.said()[-600:] for slot in self._slots}
        self._found.append((Invariant.NO_CONVERGENCE.name, f"{why or 'decisions without end'}; {last}"))
        return False

    def _judge_processes(self) -> None:
        per_core = max(os.getloadavg()) / (os.cpu_count() or 1)
        seconds_max = STOP_SECONDS * max(4.0, per_core)
        for slot in self._slots:
            self._found += [("ENDED", why) for why in slot.ended]
            slow = [seconds for seconds in slot.stop_seconds if seconds > seconds_max]
            self._found += [(Invariant.SLOW_STOP.name, f"{s:.1f} s: {slot.said()[-300:]}") for s in slow]

    async def _last_decisions(self) -> dict[int, int]:
        async with self._servers.connected() as connection:
            return dict(await connection.fetch("SELECT shard, seq_next - 1 FROM shards"))

    async def _numbers(self) -> Counter[str]:
        """Return what the ledger can tell of the day, and what the processes did."""
        async with self._servers.connected() as connection:
            row = await connection.fetchrow(
                "SELECT (SELECT count(*) FROM decisions) AS decisions,"
                " (SELECT count(*) FROM decisions WHERE outcome = 'conflict') AS conflicts,"
                " (SELECT count(*) FROM decisions WHERE outcome = 'evicted') AS evicted,"
                " (SELECT count(*) FROM decisions WHERE outcome = 'bind-failed') AS \"bindings failed\","
                " (SELECT count(*) FROM decisions WHERE outcome = 'bound' AND name LIKE 'team%')"
                ' AS "gang pods placed",'
                " (SELECT count(*) FROM decisions WHERE outcome = 'bound' AND profile = 'colocation')"
                ' AS "pods under colocation placed",'
                " (SELECT count(*) FROM node_actions WHERE uid <> '') AS \"pods ended by agents\","
                ' (SELECT count(*) FROM bill_hours) AS "lines of the bill",'
                ' (SELECT count(*) FROM inbox) AS "handed over",'
                " (SELECT count(*) FROM journal) AS batches,"
                " (SELECT sum(epoch)::bigint FROM shards) AS epochs"
            )
        counts = Counter({name: int(value) for name, value in row.items()})
        stops = [seconds for slot in self._slots for seconds in slot.stop_seconds]
        counts[f"stops that took more than {STOP_SECONDS:g} s"] = sum(s > STOP_SECONDS for s in stops)
        counts["processes started"] = sum(slot.starts_count for slot in self._slots)
        return counts


async def _ends(log: Log, shards: int) -> dict[tuple[str, int], int]:
    ends = {}
    for at in partitions_of_producers(shards):
        last = await log.last_record(at)
        ends[at.topic, at.partition] = 0 if last is None else last.offset + 1
    return ends


async def _behind(connection: Any, ends: dict[tuple[str, int], int]) -> tuple[str, int]:
    """Return what is not worked off or not published yet, "" where all is; and how much was decided.

    Ticks go on for a while, and take batches of their own.
    """
    rows = await connection.fetch("SELECT topic, partition, next_offset FROM shard_offsets")
    done = {(row["topic"], row["partition"]): row["next_offset"] for row in rows}
    decided = await connection.fetchval("SELECT sum(seq_next)::bigint FROM shards")
    for at, end in ends.items():
        if done.get(at, 0) < end:
            return f"{at} ends at {end}, and the ledger is at {done.get(at)}", decided
    row = await connection.fetchrow(
        "SELECT shard, seq_next, decisions_seq, dead_seq_next, dead_letters_seq"
        " FROM shards JOIN relay_cursor USING (shard)"
        " WHERE decisions_seq < seq_next - 1 OR dead_letters_seq < dead_seq_next - 1 LIMIT 1"
    )
    return ("" if row is None else f"not all is published: {dict(row)}"), decided


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a directory that Postgres' own account can reach."""
    folder = Path(tempfile.mkdtemp(prefix="berth-chaos-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def live(seed: int, shape: Shape) -> Lived:
    """Live the day of one seed."""
    with scratch() as folder:
        return asyncio.run(Day(seed, shape, folder).live())
