"""`python -m benchmarks.awake checkpoints|outages`: how long nobody decides at a checkpoint, after an outage.

It starts a Kafka broker and a Postgres server, lays down a ledger, and runs workers as processes of their
own, while a few pods a shard are produced every 20 ms.

``checkpoints``: pods that are gone are remembered, and pods wait that fit nowhere. The ledger is asked every
10 ms how far each shard has decided, until so many checkpoints were written. A gap is the longest time in
which a shard had nothing new. Then one worker is killed.

``outages``: the server of the ledger goes away again and again, for 5 to 10 s: it is stopped, or stands
still. A worker that lives is fenced if a shard of its own has another epoch 10 s after the server is back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

import asyncpg
import psutil

from benchmarks.memory import NODES
from benchmarks.takeover import Owned, Site, site
from benchmarks.workloads import entry_of, pod_manifest
from services.ports.log import PODS_TOPIC

GAP_SECONDS_MAX = 1.0
BACK_SECONDS_MAX = 2.0
OUTAGE_SECONDS = (5.0, 10.0)
_LOOK_SECONDS = 0.01
_AFTER_SECONDS = 10.0
_GONE_AGO_MS = 3_600_000
_ROWS_PER_INSERT = 100_000
_RECORDS_PER_APPEND = 10_000
_WAIT_SECONDS_MAX = 1_800.0
_REMEMBER = """
INSERT INTO pod_tombstones (namespace, name, uid, resource_version, shard, at_ms)
SELECT 'bench', 'gone-' || lpad(i::text, 20, '0'), '7e1f4f0e-93b7-4000-8000-' || lpad(i::text, 12, '0'),
    i + 1, i % $3, $4 FROM generate_series($1::bigint, $2::bigint - 1) AS i
"""
_WAITING = "SELECT count(*) FROM pending WHERE tried"
_CHECKPOINTS = "SELECT batch FROM checkpoints ORDER BY batch"


class Gap(NamedTuple):
    """For so long a shard had no decision, until a time since the start."""

    seconds: float
    shard: int
    until: float


async def checkpoints(asked: argparse.Namespace) -> None:
    """Print the longest gaps between decisions over some checkpoints, and how long a take-over takes."""
    settings = {"BERTH_CHECKPOINT_BATCHES": str(asked.every), "BERTH_LOG_LEVEL": "info"}
    place = site(asked.nodes, asked.pods, asked.shards, asked.per_tick, asked.logs, settings)
    async with place as here:
        await _remember(here.connection, asked.gone, asked.shards)
        for _ in range(2):
            here.workers.start()
        await here.workers.until_up(2)
        await _let_wait(here, asked.waiting)
        before = here.workers.cpu_seconds()
        began = time.monotonic()
        gaps, written = await _watch(here, asked.times)
        spent, lasted = here.workers.cpu_seconds() - before, time.monotonic() - began
        worst = sorted(gaps, reverse=True)[:10]
        print(
            f"{asked.gone:,} remembered deletions, {asked.waiting:,} waiting pods, {asked.pods:,} placed,"
            f" 2 workers: {written} checkpoints in {lasted:.0f} s, {spent:.1f} s of processor time"
        )
        for gap in worst:
            print(f"  shard {gap.shard}: nothing decided for {gap.seconds:.3f} s, at {gap.until:.1f} s")
        print(f"longest gap {worst[0].seconds:.3f} s (asked {GAP_SECONDS_MAX:g})", flush=True)
        if asked.kill:
            found = await here.workers.signalled(signal.SIGKILL)
            owner, decided = found.owner_seconds, found.decision_seconds
            print(f"SIGKILL: next owner after {owner:.2f} s (asked 3), its decision after {decided:.2f} s")


async def _remember(connection: asyncpg.Connection, count: int, shards: int) -> None:
    at_ms = time.time_ns() // 1_000_000 - _GONE_AGO_MS
    for first in range(0, count, _ROWS_PER_INSERT):
        await connection.execute(_REMEMBER, first, min(first + _ROWS_PER_INSERT, count), shards, at_ms)


async def _let_wait(here: Site, count: int) -> None:
    """Produce pods that no node has room for, in a hundred groups, and wait until all were tried."""
    for first in range(0, count, _RECORDS_PER_APPEND):
        numbers = range(first, min(first + _RECORDS_PER_APPEND, count))
        asks = ((number, f"{500 + number % 100}") for number in numbers)
        pods = [entry_of(pod_manifest(f"large-{n}", n, cpu, "1Mi"), n) for n, cpu in asks]
        await here.writer.append(PODS_TOPIC, pods)
    until = time.monotonic() + _WAIT_SECONDS_MAX
    while await here.connection.fetchval(_WAITING) < count:
        assert time.monotonic() < until, "the pods are not tried"
        await asyncio.sleep(0.2)


async def _watch(here: Site, times: int) -> tuple[list[Gap], int]:
    """Watch until so many checkpoints were written; return all gaps of a tenth of a second or more."""
    began = time.monotonic()
    decided = {shard: (each.seq_next, began) for shard, each in (await here.workers.seen()).items()}
    before = {row[0] for row in await here.connection.fetch(_CHECKPOINTS)}
    written: set[int] = set()
    gaps, looked = [Gap(0.0, 0, 0.0)], began
    async with _producing(here, len(decided)):
        while len(written) < times:
            assert time.monotonic() < began + _WAIT_SECONDS_MAX, f"only {len(written)} checkpoints"
            for shard, each in (await here.workers.seen()).items():
                now = time.monotonic()
                seq, since = decided[shard]
                if each.seq_next > seq:
                    if now - since >= 0.1:
                        gaps.append(Gap(now - since, shard, now - began))
                    decided[shard] = each.seq_next, now
            if time.monotonic() > looked + 1:
                looked = time.monotonic()
                written |= {row[0] for row in await here.connection.fetch(_CHECKPOINTS)} - before
            await asyncio.sleep(_LOOK_SECONDS)
    return gaps, len(written)


@contextlib.asynccontextmanager
async def _producing(here: Site, shards: int) -> AsyncIterator[None]:
    """Produce pods all the while."""

    async def produce() -> None:
        while True:
            await here.workers.tick(shards)

    producing = asyncio.create_task(produce())
    try:
        yield
    finally:
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)


async def outages(asked: argparse.Namespace) -> None:
    """Print for each outage who was fenced, and when all shards decided again."""
    draws = random.Random(asked.seed)
    place = site(asked.nodes, asked.pods, asked.shards, asked.per_tick, asked.logs)
    async with place as here:
        for _ in range(asked.workers):
            here.workers.start()
        await here.workers.until_up(asked.workers)
        fenced_count, late_count = 0, 0
        async with _producing(here, asked.shards):
            for number in range(asked.times):
                before = await _standing(here.dsn)
                seconds, stops = draws.uniform(*OUTAGE_SECONDS), number % 2 == 0
                await (_stop if stops else _freeze)(here, seconds)
                back = await _back_seconds(here.dsn, time.monotonic())
                await asyncio.sleep(_AFTER_SECONDS)
                after = await _standing(here.dsn)
                lost = {shard for shard, each in before.items() if after[shard].epoch != each.epoch}
                fenced = sorted({before[shard].owner or "" for shard in lost})
                fenced_count, late_count = fenced_count + len(fenced), late_count + (back > BACK_SECONDS_MAX)
                how = "stopped" if stops else "stood still"
                print(
                    f"{how} for {seconds:.1f} s: fenced {', '.join(fenced) or 'nobody'};"
                    f" all shards decide {back:.2f} s after its return",
                    flush=True,
                )
    print(
        f"{asked.times} outages, {asked.workers} workers: {fenced_count} fenced (asked 0), {late_count} times"
        f" later than {BACK_SECONDS_MAX:g} s",
        flush=True,
    )


async def _standing(dsn: str) -> Mapping[int, Owned]:
    """Return how each shard stands, by a connection of its own."""
    connection = await asyncpg.connect(dsn, timeout=2)
    try:
        rows = await connection.fetch(
            "SELECT shard, owner, l.epoch, seq_next FROM worker_leases l JOIN shards USING (shard)"
        )
    finally:
        connection.terminate()
    return {shard: Owned(*rest) for shard, *rest in rows}


async def _stop(here: Site, seconds: float) -> None:
    await asyncio.to_thread(here.postgres.stop)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(here.postgres.start)


async def _freeze(here: Site, seconds: float) -> None:
    """Let the server and all that it runs for its connections stand still."""
    server = psutil.Process(here.postgres.pid)
    processes = [server, *server.children(recursive=True)]
    for each in processes:
        os.kill(each.pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    for each in reversed(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGCONT)


async def _back_seconds(dsn: str, returned: float) -> float:
    """Return how long after the return of the server all shards have decided something."""
    first = await _standing(dsn)
    waits = set(first)
    while waits:
        assert time.monotonic() < returned + 120, f"shards {sorted(waits)} decide nothing"
        await asyncio.sleep(_LOOK_SECONDS)
        seen = await _standing(dsn)
        waits -= {shard for shard in waits if seen[shard].seq_next > first[shard].seq_next}
    return time.monotonic() - returned


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    ways = parser.add_subparsers(dest="way", required=True)
    rests = ways.add_parser("checkpoints", help="how long nobody decides at a checkpoint")
    rests.add_argument("--gone", type=int, default=1_000_000, help="so many remembered deletions")
    rests.add_argument("--waiting", type=int, default=100_000, help="so many pods that fit nowhere")
    rests.add_argument("--every", type=int, default=100, help="batches between two checkpoints")
    rests.add_argument("--no-kill", dest="kill", action="store_false", help="kill no worker at the end")
    away = ways.add_parser("outages", help="who is fenced after an outage of the ledger")
    away.add_argument("--workers", type=int, default=3)
    away.add_argument("--seed", type=int, default=0, help="of how long each outage lasts")
    for each in (rests, away):
        each.add_argument("--nodes", type=int, default=NODES)
        each.add_argument("--pods", type=int, default=20_000, help="so many placed pods")
        each.add_argument("--shards", type=int, default=6)
        each.add_argument("--per-tick", type=int, default=1, help="pods a shard every 20 ms")
        each.add_argument("--times", type=int, default=10, help="so many checkpoints, or outages")
        each.add_argument("--logs", type=Path, help="a folder that keeps what each worker says")
    asked = parser.parse_args()
    asyncio.run((checkpoints if asked.way == "checkpoints" else outages)(asked))


if __name__ == "__main__":
    main()
