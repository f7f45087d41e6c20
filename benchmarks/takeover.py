"""`python -m benchmarks.takeover`: how long nobody decides when a worker starts, stops, dies or is paused.

It starts a Kafka broker and a Postgres server, lays down a ledger of placed pods, and runs two workers as
processes of their own. From two seconds before a signal on, some pods a shard are produced every 20 ms. A gap
is the time from the signal (or the start of the first worker) until the ledger has a decision of the next
owner in each shard that the worker held.
SIGTERM also tells how long the process took.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import asyncpg
import msgspec
import psutil

from benchmarks.memory import GROUPS, NODES, PLAIN, PODS, ledger_of, pod_of
from domain.model.decisions import Decision, Outcome
from domain.model.pods import DEFAULT_PROFILE
from ops.child import environment, python_module, python_path
from ops.kafka import KafkaServer
from ops.postgres import PostgresServer
from services.bootstrap import Place, initialise, open_ledger, open_log
from services.codec.partition import partition_for
from services.ports.journal import BATCHES
from services.ports.ledger import (
    BatchCluster,
    BatchDecisions,
    BatchOffsets,
    BatchPods,
    CommitBatch,
    Committed,
    Lease,
    Ledger,
    LedgerState,
    NodeFact,
    OffsetAdvance,
    PlacementOpened,
)
from services.ports.log import PODS_TOPIC, LogWriter, TopicPartition

TARGET_SECONDS = 3.0
START_SECONDS_MAX = 30.0
END_SECONDS_MAX = 2.0
_TICK_SECONDS = 0.02
_ROWS_PER_COMMIT = 10_000
_SETTLE_SECONDS = 5.0
_LOAD_SECONDS = 2.0
_WAIT_SECONDS_MAX = 600.0
_OWNED = "SELECT shard, owner, l.epoch, seq_next FROM worker_leases l JOIN shards USING (shard)"
_UP = "SELECT count(*) FROM workers WHERE ready AND stopped_at IS NULL AND name = ANY($1)"


async def fill(place: Place, state: LedgerState, shards: int) -> None:
    """Commit the state to an empty ledger: each pod in its shard, each node with an id of its own."""
    ledger = open_ledger(place)
    leases = await ledger.acquire("benchmark", _WAIT_SECONDS_MAX)
    for lease in leases:
        await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    requested: dict[str, Counter[str]] = {node.name: Counter() for node in state.nodes}
    placements: dict[int, list[PlacementOpened]] = {lease.shard: [] for lease in leases}
    for placed in state.placements:
        requested[placed.node] += Counter({**state.templates[placed.signature].requests, "pods": 1})
        shard = partition_for(f"{placed.namespace}/{placed.name}".encode(), None, shards)
        there = placements[shard]
        there.append(msgspec.structs.replace(placed, shard=shard, seq=len(there) + 1))
    ids = [count(shards + shard, shards) for shard in range(shards)]
    nodes = [
        NodeFact(
            id=next(ids[partition_for(n.name.encode(), None, shards)]),
            name=n.name,
            version_seen=0,
            changes=1,
            delta=requested[n.name],
            spec=n.spec,
            spec_count=1,
        )
        for n in state.nodes
    ]
    first = leases[0]
    cluster, pods = BatchCluster(facts=nodes), BatchPods(templates=state.templates)
    await _commit(ledger, first, 0, cluster=cluster, pods=pods)
    for lease in leases:
        rows = placements[lease.shard]
        for number, at in enumerate(range(0, len(rows), _ROWS_PER_COMMIT), lease == first):
            some = rows[at : at + _ROWS_PER_COMMIT]
            made = BatchDecisions(made=[(_decision(placed, lease), b"{}") for placed in some])
            following, pods = {lease.shard: some[-1].seq + 1}, BatchPods(opened=some)
            await _commit(ledger, lease, number, following, pods=pods, decisions=made)
    await ledger.release(leases)
    await ledger.aclose()


def _decision(placed: PlacementOpened, lease: Lease) -> Decision:
    return Decision(
        shard=lease.shard,
        epoch=lease.epoch,
        seq=placed.seq,
        pod_uid=placed.pod_uid,
        namespace=placed.namespace,
        name=placed.name,
        resource_version=placed.resource_version,
        outcome=Outcome.BOUND,
        node=placed.node,
        decided_at_ms=placed.at_ms,
        profile=DEFAULT_PROFILE,
        signature=placed.signature,
    )


async def _commit(
    ledger: Ledger, lease: Lease, number: int, seq_next: Mapping[int, int] = {}, **parts: Any
) -> None:
    advance = OffsetAdvance(lease.shard, BATCHES, 0, lease.epoch, number, number + 1)
    offsets = BatchOffsets(advances=[advance], seq_next=seq_next)
    outcome = await ledger.commit(CommitBatch(offsets=offsets, **parts))
    assert outcome == Committed(), outcome


class Owned(NamedTuple):
    """Who owns a shard, under which epoch, and its next seq."""

    owner: str | None
    epoch: int
    seq_next: int


class Workers:
    """Workers that share the shards."""

    def __init__(
        self,
        place: Place,
        writer: LogWriter,
        connection: asyncpg.Connection,
        first: int,
        per_tick: int,
        logs: Path,
        settings: Mapping[str, str] = {},
    ) -> None:
        self._per_tick = per_tick
        self._logs = logs
        self._connection = connection
        self._writer = writer
        self._number = first
        self._env = environment(PYTHONPATH=python_path(), BERTH_POSTGRES_DSN=place.dsn, **settings)
        assert place.kafka_bootstrap is not None
        self._env["BERTH_KAFKA_BOOTSTRAP"] = place.kafka_bootstrap
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0

    def start(self) -> None:
        """Start one more worker."""
        self._started += 1
        name = f"w{self._started}"
        command = python_module("services.cli.main", "worker", "--worker-name", name)
        with (self._logs / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(command, cwd="/", env=self._env, stderr=log)

    async def seen(self) -> dict[int, Owned]:
        """Return how each shard stands."""
        rows = await self._connection.fetch(_OWNED)
        return {shard: Owned(*rest) for shard, *rest in rows}

    async def tick(self, shards: int) -> None:
        """Produce the pods of a tick, about as many in each shard."""
        pods = [pod_of(self._number + i, 0, PLAIN) for i in range(shards * self._per_tick)]
        self._number += len(pods)
        await self._writer.append(PODS_TOPIC, pods)
        await asyncio.sleep(_TICK_SECONDS)

    async def decided(self, since: Mapping[int, int]) -> tuple[float, float]:
        """Produce pods until in each of these shards an owner beyond an epoch has decided one.

        Parameters
        ----------
        since : mapping of int to int
            Shard -> the epoch of its former owner.

        Returns
        -------
        The seconds until all these shards had the next owner, and until the decision of the last one.
        """
        began, taken = time.monotonic(), 0.0
        before: dict[int, int] = {}
        waits = set(since)
        while time.monotonic() < began + _WAIT_SECONDS_MAX:
            seen = await self.seen()
            for shard in sorted(waits):
                if seen[shard].epoch > since[shard]:
                    if shard not in before:
                        before[shard], taken = seen[shard].seq_next, time.monotonic() - began
                    if seen[shard].seq_next > before[shard]:
                        waits.discard(shard)
            if not waits:
                return taken, time.monotonic() - began
            await self.tick(len(seen))
        raise TimeoutError(f"no worker decides for the shards {sorted(waits)}")

    async def until_up(self, workers: int) -> None:
        """Wait until so many workers that run follow, and for the shards to have moved to where they stay."""
        while await self._connection.fetchval(_UP, [*self._running]) < workers:
            await asyncio.sleep(0.1)
        quiet_since, before = time.monotonic(), await self.seen()
        while time.monotonic() < quiet_since + _SETTLE_SECONDS:
            await asyncio.sleep(0.1)
            seen = await self.seen()
            if {k: v.epoch for k, v in seen.items()} != {k: v.epoch for k, v in before.items()}:
                quiet_since, before = time.monotonic(), seen

    def cpu_seconds(self) -> float:
        """The processor time of the workers that run."""
        spent = [psutil.Process(each.pid).cpu_times() for each in self._running.values()]
        return sum(each.user + each.system for each in spent)

    async def signalled(self, number: signal.Signals) -> Gap:
        """Send the owner of the most shards a signal while it works; return what its shards waited."""
        seen = await self.seen()
        loaded = time.monotonic() + _LOAD_SECONDS
        while time.monotonic() < loaded:
            await self.tick(len(seen))
        owner, shards = Counter(row.owner for row in seen.values()).most_common(1)[0]
        assert owner is not None
        process = self._running.pop(owner)
        began = time.monotonic()
        process.send_signal(number)
        ended: list[float] = []
        ending = asyncio.create_task(asyncio.to_thread(process.wait))
        ending.add_done_callback(lambda _: ended.append(time.monotonic() - began))
        since = {shard: row.epoch for shard, row in seen.items() if row.owner == owner}
        taken, decided = await self.decided(since)
        if number == signal.SIGSTOP:
            process.kill()
        await ending
        await asyncio.sleep(0)
        return Gap(shards, taken, decided, ended[0])

    def stop(self) -> None:
        """Kill what still runs."""
        for process in self._running.values():
            process.kill()
            process.wait()


class Gap(NamedTuple):
    """How long so many shards waited for their next owner and its decision, and a process for its end."""

    shards: int
    owner_seconds: float
    decision_seconds: float
    end_seconds: float


class Site(NamedTuple):
    """Workers, the writer of the log and the server of the ledger that they share, and a connection to it."""

    workers: Workers
    writer: LogWriter
    postgres: PostgresServer
    dsn: str
    connection: asyncpg.Connection


@contextlib.asynccontextmanager
async def site(
    nodes: int,
    pods: int,
    shards: int,
    per_tick: int,
    logs: Path | None = None,
    settings: Mapping[str, str] = {},
) -> AsyncIterator[Site]:
    """Run the servers with a ledger of so many placed pods; ``settings`` are environment of the workers."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        os.chmod(folder, 0o755)
        logs = logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        postgres = PostgresServer(Path(folder) / "p")
        with KafkaServer(Path(folder) / "k") as kafka, postgres as dsn:
            place = Place(dsn, kafka)
            await initialise(place, shards)
            await fill(place, ledger_of(nodes, pods, min(GROUPS, pods), PLAIN), shards)
            log, connection = open_log(place), await asyncpg.connect(dsn)
            writer = await log.writer()
            workers = Workers(place, writer, connection, pods, per_tick, logs, settings)
            try:
                yield Site(workers, writer, postgres, dsn, connection)
            finally:
                workers.stop()
                await writer.aclose()
                await log.aclose()
                await connection.close()


async def measure(asked: argparse.Namespace) -> None:
    """Print a line per gap, in seconds, and how many of each signal were within the target."""
    async with site(asked.nodes, asked.pods, asked.shards, asked.per_tick, asked.logs) as here:
        workers = here.workers
        workers.start()
        _, started = await workers.decided(dict.fromkeys(range(asked.shards), 1))
        print(f"start: decision {started:.2f} ({workers.cpu_seconds():.1f} of processor time)", flush=True)
        for _ in range(asked.workers - 2):
            workers.start()
        found: dict[str, list[Gap]] = {}
        for name in asked.signals:
            gaps = found[name] = []
            for _ in range(asked.times):
                workers.start()
                await workers.until_up(asked.workers)
                gaps.append(await workers.signalled(signal.Signals[name]))
                shards, taken, decided, ended = gaps[-1]
                said = f"next owner {taken:.2f}, decision {decided:.2f}, process ended {ended:.2f}"
                print(f"{time.strftime('%H:%M:%S')} {name}, {shards} shards: {said}", flush=True)
        print("\n".join(table(asked.nodes, asked.pods, started, found)), flush=True)


def table(nodes: int, pods: int, started: float, found: Mapping[str, list[Gap]]) -> list[str]:
    """Return the lines of a table (Markdown): least, median and most seconds, and how many were in time."""
    lines = [
        f"{nodes:,} nodes, {pods:,} pods: start to first decision {started:.2f} s"
        f" (asked {START_SECONDS_MAX:g}); seconds from the signal:",
        "",
        f"| signal | next owner | first decision | within {TARGET_SECONDS:g} s | process ended"
        f" | within {END_SECONDS_MAX:g} s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, gaps in found.items():
        owned, decided, ended = (_spread([gap[column] for gap in gaps]) for column in (1, 2, 3))
        in_time = sum(gap.decision_seconds <= TARGET_SECONDS for gap in gaps)
        stopped = sum(gap.end_seconds <= END_SECONDS_MAX for gap in gaps)
        ends = f"{ended} | {stopped} of {len(gaps)}" if name == "SIGTERM" else " | "
        lines.append(f"| {name} | {owned} | {decided} | {in_time} of {len(gaps)} | {ends} |")
    return lines


def _spread(seconds: list[float]) -> str:
    return f"{min(seconds):.2f} / {median(seconds):.2f} / {max(seconds):.2f}"


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="so many at once")
    parser.add_argument("--per-tick", type=int, default=1, help="pods a shard every 20 ms")
    parser.add_argument("--logs", type=Path, help="a folder that keeps what each worker says")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--signals", nargs="*", default=["SIGTERM", "SIGKILL", "SIGSTOP"])
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
