"""A whole deployment on virtual time: producers, workers, relays, log and ledger, and everything that fails.

Run one seed by hand with ``python -m tests.simulation.world SEED``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast
from unittest import mock

import msgspec
import orjson
from prometheus_client import CollectorRegistry

from domain.engine.slots import GroupSlots
from domain.model.decisions import Outcome
from domain.model.errors import TopicMismatch
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import LeaseRow
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.outbox import MemoryOutbox
from services.executor.run import Executor, Positions
from services.ports.journal import BATCHES
from services.ports.ledger import Lease, Ledger
from services.ports.log import DECISIONS_TOPIC, Entry, Log, TopicPartition, topic_specs
from services.ports.outbox import Outbox
from services.relay.run import Relay, RelayMetrics, RelaySettings
from services.worker.collector import Memory
from services.worker.metrics import WorkerMetrics
from services.worker.run import BACKOFF_MS, Worker, WorkerSettings
from tests.simulation.auditor import Auditor
from tests.simulation.covering import by_design
from tests.simulation.faults import OF_A_WHILE, OF_CALLS, Fault, Faults
from tests.simulation.invariants import Invariant, Violation
from tests.simulation.loop import SimulatedLoop, VirtualClock
from tests.simulation.process import LEDGER, Process, UnreliableLedger, UnreliableLog, UnreliableOutbox
from tests.simulation.scenario import Kind, Scenario
from tests.simulation.servers import Outages, SimulatedDatabase, SimulatedLog, Transactions
from tests.simulation.stalls import CALM_SECONDS_MAX, Stalls
from tests.simulation.weather import Weather
from tests.ways import choose_way

EVENTS_COUNT = 150
CONVERGENCE_SECONDS = 600.0
FOLLOW_SECONDS = (0.03, 0.1, 0.3)
QUIET_SECONDS = 6.0
NOTICE_SECONDS = 4.0
STOP_SECONDS_MAX = 2.0
RELAYS_COUNT = 2
_LATELY = 10
_ENDED = 0.05
"""How often, by event, an agent ends a pod."""

T = TypeVar("T")
RESERVATION_SECONDS = 3
_SMALL = mock.patch.dict(GroupSlots.__init__.__kwdefaults__, slots_max=32, bytes_max=1 << 20)
"""Room for the groups of a day. What a large cluster needs costs each start of a worker 4 ms."""


class Build(msgspec.Struct, frozen=True):
    """The parts of a deployment, of which a broken build has another one."""

    ledger: type[UnreliableLedger] = UnreliableLedger
    outbox: type[UnreliableOutbox] = UnreliableOutbox
    log: type[UnreliableLog] = UnreliableLog
    database: type[SimulatedDatabase] = SimulatedDatabase


SOUND = Build()


class NoCollector(Memory):
    """Hundreds of restarts in one process are too many to look through all of its memory each time."""

    def release(self) -> None:
        """Do nothing."""

    @contextlib.contextmanager
    def growing(self) -> Iterator[None]:
        """Do nothing."""
        yield


class World:
    """Everything of one seed."""

    def __init__(
        self,
        seed: int,
        build: Build = SOUND,
        *,
        calm: bool = False,
        without: Sequence[Fault] = (),
        checkpoint_batches: int = 20,
        preempts: bool = False,
    ) -> None:
        choose_way(seed // 12)  # what a day has goes by seed % 12
        self.rng = random.Random(seed)
        self.preempts = preempts
        self.kind = Kind.of(seed, preempts=preempts)
        self.loop = SimulatedLoop()
        # What a broken build leaves behind in tasks that nobody waits for is not to be logged when it is
        # collected, at whatever moment of another test that may be.
        self.loop.set_exception_handler(lambda loop, context: None)
        self.clock = VirtualClock(self.loop)
        self.shards = self.rng.choice((1, 2, 4))
        self._workers_count = self.rng.choice((2, 3, 4))
        self.database = build.database(self.shards, self.clock.now_ms)
        self.log = SimulatedLog(self.clock)
        self.auditor = Auditor(self.log, self.database)
        self.auditor.reserves = self.kind.reserves
        self.stalls = Stalls(self.auditor)
        self._is_calm = calm
        self.database.committed = self.auditor.committed
        self.database.refused = self.auditor.refused
        self.faults = Faults(self.rng)
        if not calm:
            self.faults.draw(without, by_design(seed))
        self.outages = Outages()
        self.running: dict[str, Process] = {}
        self.is_widened = False  # a topic got more partitions
        self.is_operated = False  # an operator adds a shard
        self.is_draining = False  # workers read what is in the partitions of before
        self.may_work, self.may_produce = asyncio.Event(), asyncio.Event()
        self.may_work.set()
        self.may_produce.set()
        self.mismatches = 0  # processes that ended because of that
        self.transactions = Transactions()
        self._build = build
        self._checkpoint_batches = checkpoint_batches
        self._is_over = False
        more: dict[str, Any] = {"kind": self.kind, "now_ms": self.clock.now_ms, "bound": self._bound}
        self._scenario = Scenario(self.rng, self.faults, **more)
        self._executed = Positions(None)  # outlives each executor, as its file does
        self._lease_seconds = self.rng.choice((2.0, 2.0, 10.0))
        self._follow_seconds = self.rng.choice(FOLLOW_SECONDS)

    # --------------------------------------------------------------------------------------- processes

    async def _keep_running(self, kind: str, number: int) -> None:
        """Start a process, and another one whenever it died."""
        slot, incarnation = f"{kind}-{number}", 0
        while not self._is_over:
            while kind == "worker" and not self._may_start(number):
                await self.may_work.wait()
                await asyncio.sleep(0.5)
            incarnation += 1
            process = Process(f"{slot}.{incarnation}", self.rng, self.faults, self.outages)
            self.running[slot] = process
            run = {"worker": self._worker, "relay": self._relay, "executor": self._executor}[kind]
            process.task = asyncio.create_task(run(process))
            await asyncio.wait({process.task})
            if process.alive and not process.task.cancelled():
                self._judge_ended(process.task)
            for client in process.clients:
                await client.aclose()
            await asyncio.sleep(self.rng.uniform(0.0, 5.0))

    def _may_start(self, number: int) -> bool:
        """Say whether a worker may be up: one alone while partitions of before are read to the end."""
        return self.may_work.is_set() and not (self.is_draining and number)

    def _judge_ended(self, task: asyncio.Task[None]) -> None:
        """A process that ends by itself is a bug, and says so here, unless somebody changed the topics."""
        try:
            task.result()
        except TopicMismatch:
            if not self.is_widened:
                raise
            self.mismatches += 1

    def stop(self, process: Process) -> bool:
        """Tell a process to stop, and kill it when it goes on for too long."""

        task = process.task
        if task is None or process.is_frozen:
            return False

        def check() -> None:
            stopped = task.done() or not process.alive or process.is_frozen
            self.auditor.require(stopped, Invariant.SLOW_STOP, f"{process.name} went on")
            process.kill()

        task.cancel()
        process.hurt_at = math.inf
        self.loop.call_later(STOP_SECONDS_MAX, check)
        return True

    def _judge_taken(self, by: Process, shard: int, before: LeaseRow) -> None:
        """Judge whether a shard may change hands: in an outage healthy workers' leases run out, too."""
        holder = next((each for each in self.running.values() if before.holder in each.clients), None)
        if holder is None or holder is by or before.owner is None:
            return
        ran_out_at = self.loop.time() - (self.clock.now_ms() - before.until_ms) / 1000
        renewed_at = ran_out_at - self._lease_seconds
        is_outage = max(self.outages.ledger, self.outages.writes) > renewed_at
        fenced = is_outage and holder.is_healthy(Lease(shard, before.epoch), renewed_at - 1.0)
        said = f"{by.name} took shard {shard} from {holder.name} at {self.loop.time():.3f}"
        self.auditor.require(not fenced, Invariant.HEALTHY_FENCED, said)

    async def _worker(self, process: Process) -> None:
        async def inline(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
            await process.step()
            return work(*args, **kwargs)

        settings = WorkerSettings(
            name=process.name,
            seed=7,
            profiles=BUILT_IN_PROFILES,
            lease_seconds=self._lease_seconds,
            batch_records_max=self.rng.choice((1, 7, 50)),
            follow_seconds=self._follow_seconds,
            checkpoint_batches=self._checkpoint_batches,
            backoff_ms=BACKOFF_MS,
            preempts=self.preempts,
            preemption_seconds=5,  # some run out while the executor is down
            reservation_seconds=RESERVATION_SECONDS if self.kind.reserves else 0,
            drain=self.is_draining,
        )
        inner = MemoryLedger(self.database, self.clock)
        self.auditor.tape.delivered[inner] = process.delivered
        ledger = self._build.ledger(process, inner, self.transactions)
        ledger.took = self._judge_taken
        log = self._build.log(process, self.log)
        metrics = WorkerMetrics(CollectorRegistry())
        parts = cast(Log, log), cast(Ledger, ledger), settings, metrics, inline, NoCollector(), lambda: 0
        process.worker = Worker(*parts)
        await process.worker.run()

    async def _relay(self, process: Process) -> None:
        def publishing(shard: int) -> None:
            self.auditor.late_publishers += outbox.is_late(shard)

        settings = RelaySettings(
            name=process.name, lease_seconds=self._lease_seconds, rows_max=self.rng.choice((1, 20))
        )
        outbox = self._build.outbox(process, MemoryOutbox(self.database, self.clock))
        log = self._build.log(process, self.log)
        log.publishing = publishing
        metrics = RelayMetrics(CollectorRegistry())
        await Relay(cast(Log, log), cast(Outbox, outbox), settings, metrics).run()

    async def _executor(self, process: Process) -> None:
        def deleting(entries: Sequence[Entry]) -> None:
            for entry in entries:
                self._scenario.end(orjson.loads(entry.value or b"")["object"]["metadata"]["uid"])

        log = self._build.log(process, self.log)
        log.deleting = deleting
        await Executor(cast(Log, log), self._executed).run()

    # --------------------------------------------------------------------------------------------- run

    async def _produce(self) -> None:
        scenario = self._scenario
        writer = await self.log.writer()
        for topic, entry in scenario.opening():
            await writer.append(topic, [entry])
        for _ in range(round(EVENTS_COUNT / (1 - self.faults.noise))):
            failed = self.kind.fails_to_bind and self.rng.random() < 0.05
            item = (failed and scenario.fail_binding(self._bound())) or scenario.next()
            ends = self.kind.lends and self.rng.random() < _ENDED
            await self.may_produce.wait()
            for topic, entry in [item, *(scenario.lending.end_on_node() if ends else ())]:
                await writer.append(topic, [entry])
            draw = self.rng.random()
            if draw < 0.3:
                await asyncio.sleep(self.rng.expovariate(2.0))
            elif draw < 0.33:  # faults that strike while all wait for work hit little
                await self._let_work(self.rng.uniform(1.0, 10.0))
        self.batches_before_calm = self.database.batches_count
        self.faults.end()
        await self._wait(NOTICE_SECONDS, self.auditor.unnoticed)  # else what comes next covers up the loss
        await self.may_produce.wait()
        for topic, entry in scenario.closing():
            await writer.append(topic, [entry])

    def _bound(self) -> Iterator[tuple[str, str]]:
        """Yield the uids and nodes of pods of which the log said lately that they are bound."""
        for shard in range(self.shards):
            for record in self.log.records(TopicPartition(DECISIONS_TOPIC, shard))[-_LATELY:]:
                told = orjson.loads(record.value or b"")
                if told["outcome"] == "bound":
                    yield told["pod"]["uid"], told["node"]

    async def _let_work(self, seconds_max: float) -> None:
        """Wait until everything is worked off, or for so long."""
        deadline = self.loop.time() + seconds_max
        while self.loop.time() < deadline and self.auditor.behind():
            await asyncio.sleep(0.5)

    async def _wait(self, quiet_seconds: float, undone: Callable[[], str]) -> None:
        """Wait until nothing was undone and nothing but ticks came for a while."""
        deadline, quiet = self.loop.time() + CONVERGENCE_SECONDS, 0.0
        while quiet < quiet_seconds:
            if self.loop.time() > deadline:
                self.auditor.require(False, Invariant.NO_CONVERGENCE, undone())
                return
            before = self.auditor.activity()
            await asyncio.sleep(2.0)
            quiet = quiet + 2.0 if not undone() and before == self.auditor.activity() else 0.0

    async def _main(self) -> None:
        await self.log.ensure_topics(topic_specs(self.shards))
        slots = [("worker", n) for n in range(self._workers_count)]
        slots += [("relay", n) for n in range(RELAYS_COUNT)]
        slots += [("executor", 0)] if self.preempts else []
        keepers = [asyncio.create_task(self._keep_running(*slot)) for slot in slots]
        weather = asyncio.create_task(Weather(self).rage())
        stalls = asyncio.create_task(self.stalls.watch())
        day = asyncio.create_task(self._live())
        done, _ = await asyncio.wait({day, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        self._is_over = True
        weather.cancel()
        stalls.cancel()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for task in (*done, *({weather} if weather.done() and not weather.cancelled() else ())):
            task.result()

    async def _live(self) -> None:
        await self._produce()
        await self._wait(QUIET_SECONDS, lambda: self.auditor.behind() or self._trailing())
        if self.kind.lends:  # the use of pods counts once they are known
            writer = await self.log.writer()
            for topic, entry in self._scenario.lending.last_reports():
                await writer.append(topic, [entry])
            await self._wait(QUIET_SECONDS, lambda: self.auditor.behind() or self._trailing())
        for process in self.running.values():
            if process.worker is None or not process.worker._is_ready:
                continue
            planner = process.worker._state
            if planner is not None and process.alive and not process.is_frozen:
                unsaid = self.faults.counts[Fault.FOREIGN_WRITE]
                self.auditor.judge_followed(process.name, planner.scheduler.state, unsaid)

    def _trailing(self) -> str:
        """Say who does not know yet what others did, or lets pods back off: it may be frozen or cut off."""
        if self.is_operated:
            return "a shard is added"
        offsets = self.database.offsets
        for process in self.running.values():
            worker = process.worker
            if worker is None or worker._follower is None or worker._state is None or not process.alive:
                continue
            if process.is_frozen or not process.reaches(LEDGER, writes=True):
                return f"{process.name} stands still or is cut off"
            if worker._computing is not None and not worker._computing.done():
                return f"{process.name} is at its plan"
            epochs = worker._state.ledger_view.epochs.items()
            if lost := [shard for shard, epoch in epochs if epoch != self.database.shards[shard].epoch]:
                return f"{process.name} has not heard that others took shards {lost}"
            known = worker._state.followed.items()  # what was read and not planned with is not known yet
            if behind := {s: at for s, at in known if at < offsets[s, BATCHES, 0].next_offset}:
                return f"{process.name} knows {behind}"
            if worker._state.scheduler.queue.backs_off:
                return f"pods back off in {process.name}"
        return ""

    def run(self) -> None:
        """Live the whole day and audit it; raise ``Violation`` where an invariant does not hold."""
        try:
            with _SMALL:
                self.loop.run_until_complete(self._main())
        finally:
            self.loop.end()
        stalled = f"{self.stalls.longest} seconds, though nothing went wrong"
        is_calm = self._is_calm and not self.faults.counts.keys() & {*OF_CALLS, *OF_A_WHILE}
        goes_on = not is_calm or self.stalls.longest <= CALM_SECONDS_MAX
        self.auditor.require(goes_on, Invariant.STALLED, stalled)
        self.auditor.judge()
        if self.auditor.findings.found:
            raise Violation(self.auditor.findings.found)

    @property
    def kills_count(self) -> int:
        """Return how often a process ended before its time."""
        return self.faults.counts[Fault.CRASH] + self.faults.counts[Fault.STOP]

    def numbers(self) -> dict[str, int]:
        """Return what is to be counted of a day, beside its faults."""
        epochs = sum(row.epoch for row in self.database.shards.values())
        outcomes = Counter(d.outcome for rows in self.database.decisions.values() for d, _ in rows)
        return {
            "seeds": 1,
            "virtual seconds": round(self.loop.time()),
            "decisions": sum(map(len, self.database.decisions.values())),
            "batches": self.database.batches_count,
            "kills": self.kills_count,
            "epochs": epochs,
            "fenced commits": self.auditor.fenced_commits,
            "conflicts": self.auditor.conflicts,
            "moments of the past compared": self.auditor.moments,
            "gangs placed": self.auditor.gangs,
            "gangs of Workloads placed": self.auditor.workloads,
            "pods lent room": self.auditor.lent,
            "pods ended by agents": sum(row.action.uid != "" for row in self.database.measured.actions),
            "lines of the bill": len(self.database.measured.bill),
            "late publishers": self.auditor.late_publishers,
            "take-overs": epochs - len(self.database.shards),
            "alarms": sum(row.generation > 0 for row in self.database.cursors.values()),
            "log faults": len(self.database.log_faults),
            "handed over": len(self.database.inbox.handed),
            **{outcome: outcomes[outcome] for outcome in (Outcome.ORPHANED, Outcome.BIND_FAILED)},
            "seconds in which work waited and nobody decided": self.stalls.seconds,
        }

    def decisions(self) -> list[bytes]:
        """Return the bytes of all decisions."""
        return [payload for rows in self.database.decisions.values() for _, payload in rows]


def main() -> None:
    """Replay one seed, with the log of what went wrong."""
    parser = argparse.ArgumentParser(description="Replay one simulated day.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--preempting", action="store_true", help="have preemption on this day")
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    chosen = parser.parse_args()
    world = World(chosen.seed, preempts=chosen.preempting)
    world.run()
    counts = ", ".join(f"{count} {fault}" for fault, count in sorted(world.faults.counts.items()))
    print(f"all invariants hold; {len(world.decisions())} decisions; {counts}")


if __name__ == "__main__":
    main()
