"""A whole deployment on virtual time: producers, workers, relays, log and ledger, and everything that fails.

Run one seed by hand with ``python -m tests.simulation.world SEED``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryLog
from services.adapters.memory.outbox import MemoryOutbox
from services.ports.ledger import CommitBatch, CommitOutcome
from services.ports.log import topic_specs
from services.relay.run import Relay, RelayMetrics, RelaySettings
from services.worker.metrics import WorkerMetrics
from services.worker.run import Memory, Worker, WorkerSettings
from tests.simulation.auditor import Auditor, Violation
from tests.simulation.loop import SimulatedLoop, VirtualClock
from tests.simulation.process import Faults, Process, UnreliableLedger, UnreliableLog, UnreliableOutbox
from tests.simulation.scenario import Scenario

EVENTS_COUNT = 150
CONVERGENCE_SECONDS = 600.0

T = TypeVar("T")
LedgerFactory = Callable[[Process, MemoryLedger, set[asyncio.Task[CommitOutcome]]], UnreliableLedger]


class NoCollector(Memory):
    """Hundreds of restarts in one process are too many to look through all of its memory each time."""

    def release(self) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def growing(self) -> Iterator[None]:
        """Do nothing."""
        yield


class WatchedDatabase(MemoryDatabase):
    """Shows every transaction to the auditor."""

    auditor: Auditor | None = None

    def apply(self, batch: CommitBatch) -> CommitOutcome:
        """See ``MemoryDatabase``."""
        outcome = super().apply(batch)
        if self.auditor is not None:
            if outcome is CommitOutcome.COMMITTED:
                self.auditor.committed(batch)
            elif any(a.epoch < self.shards[a.shard].epoch for a in batch.offsets):
                self.auditor.stale_writes_refused += 1
        return outcome


class World:
    """Everything of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        ledger: LedgerFactory = UnreliableLedger,
        database: type[WatchedDatabase] = WatchedDatabase,
        calm: bool = False,
        checkpoint_batches: int = 20,
    ) -> None:
        self.rng = random.Random(seed)
        self.loop = SimulatedLoop()
        # What a broken build leaves behind in tasks that nobody waits for is not to be logged when it is
        # collected, at whatever moment of another test that may be.
        self.loop.set_exception_handler(lambda loop, context: None)
        self.clock = VirtualClock(self.loop)
        self.shards = self.rng.choice((1, 1, 3))
        self.database = database(self.shards, self.clock.now_ms)
        self.log = MemoryLog(self.clock)
        self.auditor = self.database.auditor = Auditor(self.log, self.database)
        self.faults = Faults() if calm else self._draw_faults()
        self._ledger = ledger
        self._checkpoint_batches = checkpoint_batches
        self._in_flight: set[asyncio.Task[CommitOutcome]] = set()
        self._processes: list[Process] = []
        self._stopping = False
        self.workers: list[Worker] = []
        self.kills_count = 0

    def _draw_faults(self) -> Faults:
        """Each seed has its own kind of bad day."""
        return Faults(
            crash=self.rng.choice((0.0, 0.005, 0.02, 0.05)),
            freeze=self.rng.choice((0.0, 0.0, 0.02)),
            error_before=self.rng.choice((0.0, 0.0, 0.05)),
            error_after=self.rng.choice((0.0, 0.0, 0.05)),
            slow=self.rng.choice((0.0, 0.05, 0.3)),
        )

    # --------------------------------------------------------------------------------------- processes

    async def _keep_running(self, kind: str, number: int) -> None:
        """Start a process, and another one whenever it died."""
        incarnation = 0
        while not self._stopping:
            incarnation += 1
            process = Process(f"{kind}-{number}.{incarnation}", self.rng, self.faults)
            self._processes.append(process)
            run = self._worker(process) if kind == "worker" else self._relay(process)
            process.task = asyncio.create_task(run)
            await asyncio.wait({process.task})
            if process.alive and not process.task.cancelled():
                process.task.result()  # a process that ends by itself is a bug, and says so here
            self.kills_count += 1
            await asyncio.sleep(self.rng.uniform(0.0, 5.0))

    async def _worker(self, process: Process) -> None:
        async def inline(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            await process.step()
            return work(*args, **kwargs)

        settings = WorkerSettings(
            name=process.name,
            seed=7,
            profiles=BUILT_IN_PROFILES,
            batch_records_max=self.rng.choice((1, 7, 50)),
            checkpoint_batches=self._checkpoint_batches,
        )
        ledger = self._ledger(process, MemoryLedger(self.database, self.clock), self._in_flight)
        worker = Worker(
            UnreliableLog(process, self.log),
            ledger,
            settings,
            WorkerMetrics(CollectorRegistry()),
            inline,
            NoCollector(),
            lambda: 0,
        )
        self.workers.append(worker)
        await worker.run()

    async def _relay(self, process: Process) -> None:
        settings = RelaySettings(name=process.name, rows_max=self.rng.choice((1, 20)))
        outbox = UnreliableOutbox(process, MemoryOutbox(self.database, self.clock))
        log = UnreliableLog(process, self.log)
        await Relay(log, outbox, settings, RelayMetrics(CollectorRegistry())).run()

    # --------------------------------------------------------------------------------------------- run

    async def _produce(self) -> None:
        scenario = Scenario(self.rng)
        writer = await self.log.writer()
        for topic, entry in scenario.opening():
            await writer.append(topic, [entry])
        for _ in range(EVENTS_COUNT):
            topic, entry = scenario.next()
            await writer.append(topic, [entry])
            if self.rng.random() < 0.3:
                await asyncio.sleep(self.rng.expovariate(2.0))
        self.faults.end()
        for topic, entry in scenario.closing():
            await writer.append(topic, [entry])

    async def _converge(self) -> None:
        deadline = self.loop.time() + CONVERGENCE_SECONDS
        quiet = 0
        while quiet < 3:
            if self.loop.time() > deadline:
                raise Violation("no convergence: events or decisions are stuck")
            before = self.auditor.batches()
            await asyncio.sleep(2.0)
            quiet = (
                quiet + 1 if self.auditor.caught_up(self.shards) and before == self.auditor.batches() else 0
            )

    async def _main(self) -> None:
        await self.log.ensure_topics(topic_specs(self.shards))
        keepers = [
            asyncio.create_task(self._keep_running(*k)) for k in (("worker", 0), ("worker", 1), ("relay", 0))
        ]
        day = asyncio.create_task(self._live())
        done, _ = await asyncio.wait({day, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        self._stopping = True
        tasks = [day, *keepers, *(p.task for p in self._processes if p.task is not None), *self._in_flight]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _live(self) -> None:
        await self._produce()
        await self._converge()

    def run(self) -> None:
        """Live the whole day and audit it; raise ``Violation`` where an invariant does not hold."""
        try:
            self.loop.run_until_complete(self._main())
        finally:
            self.loop.close()
        self.auditor.judge(self.shards)
        self._check_drained()

    def _check_drained(self) -> None:
        """With room for all, only pods wait that no node could ever take."""
        for pod in self.database.pending.values():
            template = self.database.templates[pod.signature]
            if not template.node_selector and not template.host_ports:
                raise Violation(f"{pod.name} still waits although there is room")

    def decisions(self) -> list[bytes]:
        """Return the bytes of all decisions."""
        return [payload for rows in self.database.decisions.values() for _, payload in rows]


def main() -> None:
    """Replay one seed, with the log of what went wrong."""
    parser = argparse.ArgumentParser(description="Replay one simulated day.")
    parser.add_argument("seed", type=int)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    world = World(parser.parse_args().seed)
    world.run()
    print(f"all invariants hold; {world.kills_count} kills, {len(world.decisions())} decisions")


if __name__ == "__main__":
    main()
