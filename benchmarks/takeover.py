"""`python -m benchmarks.takeover`: how long nobody decides when a worker starts, stops, dies or is paused.

It starts a Kafka broker and a Postgres server, lays down a ledger of placed pods, and runs two workers as
processes of their own while a pod a tick is produced. A gap is the time from the signal (or the start of the
first worker) until the ledger has a decision of the next owner. SIGTERM also tells how long the process took.
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
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from benchmarks.memory import GROUPS, NODES, PLAIN, PODS, ledger_of, pod_of
from domain.model.decisions import Decision, Outcome
from domain.model.pods import DEFAULT_PROFILE
from ops.child import environment, python_module, python_path
from ops.kafka import KafkaServer
from ops.postgres import PostgresServer
from services.bootstrap import Place, initialise, open_ledger, open_log
from services.ports.journal import BATCHES
from services.ports.ledger import (
    CommitBatch,
    CommitOutcome,
    Lease,
    Ledger,
    LedgerState,
    NodeWrite,
    OffsetAdvance,
    PlacementOpened,
)
from services.ports.log import PODS_TOPIC, LogWriter, TopicPartition

_TICK_SECONDS = 0.02
_ROWS_PER_COMMIT = 10_000
_SETTLE_SECONDS = 10.0
_WAIT_SECONDS_MAX = 600.0


async def fill(place: Place, state: LedgerState) -> None:
    """Commit the state to an empty ledger."""
    ledger = open_ledger(place)
    (lease,) = await ledger.acquire("benchmark", _WAIT_SECONDS_MAX)
    await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    nodes = [
        NodeWrite(id=n.id, name=n.name, version_expected=0, version=1, requested={}, spec=n.spec)
        for n in state.nodes
    ]
    await _commit(ledger, lease, 0, nodes=nodes, templates=state.templates)
    for at in range(0, len(state.placements), _ROWS_PER_COMMIT):
        some = state.placements[at : at + _ROWS_PER_COMMIT]
        number = 1 + at // _ROWS_PER_COMMIT
        made = [(_decision(placed, lease), b"{}") for placed in some]
        following = {lease.shard: some[-1].seq + 1}
        await _commit(ledger, lease, number, placements_opened=some, decisions=made, seq_next=following)
    await ledger.release([lease])
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


async def _commit(ledger: Ledger, lease: Lease, number: int, **rows: Any) -> None:
    advance = OffsetAdvance(lease.shard, BATCHES, 0, lease.epoch, number, number + 1)
    outcome = await ledger.commit(CommitBatch(offsets=[advance], **rows))
    assert outcome is CommitOutcome.COMMITTED, outcome


class Workers:
    """Two workers, and who of them decided last."""

    def __init__(self, place: Place, writer: LogWriter, connection: asyncpg.Connection, first: int) -> None:
        self._connection = connection
        self._writer = writer
        self._number = first
        self._env = environment(PYTHONPATH=python_path(), BERTH_POSTGRES_DSN=place.dsn)
        assert place.kafka_bootstrap is not None
        self._env["BERTH_KAFKA_BOOTSTRAP"] = place.kafka_bootstrap
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0

    def start(self) -> None:
        """Start one more worker."""
        self._started += 1
        name = f"w{self._started}"
        command = python_module("services.cli.main", "worker", "--worker-name", name)
        self._running[name] = subprocess.Popen(command, cwd="/", env=self._env, stderr=subprocess.DEVNULL)

    async def _seen(self) -> tuple[str | None, int, int]:
        query = "SELECT owner, l.epoch, seq_next FROM worker_leases l JOIN shards USING (shard)"
        row = await self._connection.fetchrow(query)
        return row["owner"], row["epoch"], row["seq_next"]

    async def _tick(self) -> None:
        await self._writer.append(PODS_TOPIC, [pod_of(self._number, 0, PLAIN)])
        self._number += 1
        await asyncio.sleep(_TICK_SECONDS)

    async def decided(self, since_epoch: int) -> tuple[float, float]:
        """Produce pods until an owner beyond this epoch has decided one.

        Returns
        -------
        The seconds until the shards had the next owner, and until its decision.
        """
        began, taken = time.monotonic(), 0.0
        before = None
        while time.monotonic() < began + _WAIT_SECONDS_MAX:
            await self._tick()
            _, epoch, seq = await self._seen()
            if epoch > since_epoch:
                if before is None:
                    before, taken = seq, time.monotonic() - began
                if seq > before:
                    return taken, time.monotonic() - began
        raise TimeoutError("no worker decides")

    async def up_count(self) -> int:
        """How many workers are up."""
        query = "SELECT count(*) FROM workers WHERE stopped_at IS NULL AND seen_at > now() - interval '2 s'"
        return int(await self._connection.fetchval(query))

    def cpu_seconds(self) -> float:
        """The processor time of the workers that run."""
        spent = [psutil.Process(each.pid).cpu_times() for each in self._running.values()]
        return sum(each.user + each.system for each in spent)

    async def signalled(self, number: signal.Signals) -> tuple[float, float, float]:
        """Send the owner a signal; return as ``decided``, and how long the process took to end."""
        owner, epoch, _ = await self._seen()
        assert owner is not None
        process = self._running.pop(owner)
        began = time.monotonic()
        process.send_signal(number)
        ended: list[float] = []
        ending = asyncio.create_task(asyncio.to_thread(process.wait))
        ending.add_done_callback(lambda _: ended.append(time.monotonic() - began))
        taken, decided = await self.decided(epoch)
        if number == signal.SIGSTOP:
            process.kill()
        await ending
        await asyncio.sleep(0)
        return taken, decided, ended[0]

    def stop(self) -> None:
        """Kill what still runs."""
        for process in self._running.values():
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def site(nodes: int, pods: int) -> AsyncIterator[Workers]:
    """Run the servers with a ledger of so many placed pods."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        os.chmod(folder, 0o755)
        with KafkaServer(Path(folder) / "k") as kafka, PostgresServer(Path(folder) / "p") as dsn:
            place = Place(dsn, kafka)
            await initialise(place, 1)
            await fill(place, ledger_of(nodes, pods, min(GROUPS, pods), PLAIN))
            log, connection = open_log(place), await asyncpg.connect(dsn)
            writer = await log.writer()
            workers = Workers(place, writer, connection, pods)
            try:
                yield workers
            finally:
                workers.stop()
                await writer.aclose()
                await log.aclose()
                await connection.close()


async def measure(nodes: int, pods: int, signals: Sequence[signal.Signals], times: int) -> None:
    """Print a line per gap, in seconds."""
    async with site(nodes, pods) as workers:
        workers.start()
        _, decided = await workers.decided(0)
        print(f"start: decision {decided:.2f} ({workers.cpu_seconds():.1f} of processor time)", flush=True)
        for number in signals:
            for _ in range(times):
                workers.start()
                while await workers.up_count() < 2:
                    await asyncio.sleep(0.1)
                await asyncio.sleep(_SETTLE_SECONDS)
                taken, decided, ended = await workers.signalled(number)
                gaps = f"next owner {taken:.2f}, decision {decided:.2f}, process ended {ended:.2f}"
                print(f"{number.name}: {gaps}", flush=True)


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--signals", nargs="*", default=["SIGTERM", "SIGKILL", "SIGSTOP"])
    asked = parser.parse_args()
    asyncio.run(measure(asked.nodes, asked.pods, [signal.Signals[s] for s in asked.signals], asked.times))


if __name__ == "__main__":
    main()
