"""The loop of a worker: plan and commit batch after batch; between two, begin with shards and give some up.

While one batch commits, the next is planned on what the first one assumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from domain.model.errors import LedgerMismatch, Unavailable
from domain.model.limits import read_ahead_records_max
from services.backoff import Backoff
from services.ports.journal import BATCHES, positions_of
from services.ports.ledger import Ledger
from services.ports.log import Log, LogReader, Record
from services.worker.beginning import begin
from services.worker.checkpoints import Checkpoints
from services.worker.collector import Memory
from services.worker.committing import Committer
from services.worker.follower import Follower
from services.worker.holding import Holding
from services.worker.intake import Intake
from services.worker.losers import Losers
from services.worker.metrics import WorkerMetrics
from services.worker.planner import Planner
from services.worker.progress import Progress
from services.worker.thread import Compute

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

STOP_SECONDS = 1.0
"""A worker that stops waits for its commit in flight for so long."""

TAKING_SECONDS_MAX = 600.0
"""To begin with shards is one step: a million pods may wait there."""

BLIP_SECONDS = 5.0
"""While shards change hands, the log or the ledger may be away for so long."""


@dataclasses.dataclass(kw_only=True)
class Loop:
    """Plans and commits until it is cancelled; then it finishes the commit in flight."""

    log: Log
    ledger: Ledger
    reader: LogReader
    planner: Planner
    intake: Intake
    holding: Holding
    follower: Follower
    committer: Committer
    checkpoints: Checkpoints
    memory: Memory
    metrics: WorkerMetrics
    progress: Progress
    think: Compute
    poll_seconds: float  # this and the next two as of WorkerSettings
    follow_seconds: float
    drain: bool
    begun: asyncio.Event  # set while the worker decides for any shard
    _losers: Losers = dataclasses.field(default_factory=Losers)
    _commit: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Go on until cancelled."""
        try:
            while True:
                if self.holding.taken:
                    await self._take()
                if self.holding.surplus is not None:
                    await self._give(self.holding.surplus)
                await self._plan(await self._read(), self.intake.due)
        finally:
            if self._commit is not None:
                await asyncio.wait({self._commit}, timeout=STOP_SECONDS)
                self._commit.cancel()
                await asyncio.gather(self._commit, return_exceptions=True)

    # ---------------------------------------------------------------------------------------- batches

    async def _read(self) -> Sequence[Record]:
        """Return the next records; wait a little where there is nothing to do."""
        self.holding.changed.clear()
        # Pods that wait their turn do not keep further records out: others may come before them.
        is_called = self.holding.is_alone or not self.planner.owned
        seconds = self.poll_seconds if is_called else self.follow_seconds
        if self.planner.has_work or self._losers.keys or self.follower.has_rows or self.holding.taken:
            seconds = 0.0
        if not self.planner.owned:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # Python 3.11's wait_for may lose that this is cancelled
                    await self.holding.changed.wait()
            return []
        if self.planner.is_stalled:  # until another shard has gone on
            await asyncio.sleep(seconds)
        handed = await self._inbox()
        seconds = 0.0 if handed else seconds
        records_max = self.committer.records_max
        ahead_max = read_ahead_records_max * records_max // self.committer.records_most
        records = await self.intake.next_batch(records_max, seconds, self.planner.held, ahead_max)
        if records or not self.progress.has_batch:  # a commit without an answer is no progress
            self.progress.step()
        return [*handed, *records]

    async def _inbox(self) -> Sequence[Record]:
        """Return what other shards handed over, half a batch at most: own partitions go on beside it."""
        waiting = self.planner.forwarding.waiting()
        if not waiting or self.planner.ahead.handed:
            return []
        rows = await self._through(partial(self.ledger.read_inbox, waiting, self.committer.records_max // 2))
        self.planner.forwarding.got(rows)
        return [row.record() for row in rows]

    async def _plan(self, records: Sequence[Record] = (), due: int = 0) -> None:
        """Plan a batch, and begin to commit it when the one before is in.

        ``due``: how many of the records that are held, and of these, it has at least.
        """
        if self._losers.is_unsure or self._losers.keys:
            # What is in flight was planned on pods that lost. Planned on that again, they would always lose.
            await self._finish()
        if self._losers.keys:  # who was faster is in the journal
            with contextlib.suppress(Unavailable):
                await self.follower.read()
        followed, since = self.follower.take()
        if not (records or followed or self.planner.has_work or self._losers.keys):
            if self._commit is not None and self._commit.done():
                self._commit.result()
            return
        if self.planner.owns_all:
            await self.checkpoints.take_if_due(self.planner, self._commit)
        is_judged = self._commit is not None and not self._commit.done()
        self.planner.guarding.settle(self._losers.take_raised())
        with self.metrics.plan_seconds.time():
            batch = await self.progress.of_batch(
                self.think(self.planner.plan, records, self._losers.take(), followed, due)
            )
        refused, self.planner.book.refused_count = self.planner.book.refused_count, 0
        self.metrics.follow_refused.inc(refused)
        if followed:
            now = asyncio.get_running_loop().time()
            self.metrics.followed(self.planner.book.follow_us / 1e6, [now - each for each in since])
        self.progress.step()
        await self._finish()
        self.metrics.handed(self.planner.forwarding.waiting_counts())
        if batch is None:
            return
        if is_judged:
            batch = self._losers.judge(batch)
        commit = self.committer.commit(batch, self.progress, self._losers)
        self._commit = asyncio.create_task(self.progress.of_batch(commit))
        await asyncio.sleep(0)  # let the commit begin before the next batch takes the thread

    async def _finish(self) -> None:
        """Wait for the commit in flight."""
        if self._commit is not None:
            await asyncio.shield(self._commit)

    # ----------------------------------------------------------------------------------------- shards

    async def _take(self) -> None:
        """Begin with shards: fold all that their last owners did, and read what waits there."""
        leases = list(self.holding.taken)
        shards = [lease.shard for lease in leases]
        on_read = partial(self.progress.step, TAKING_SECONDS_MAX)
        on_read()
        while await self._through(self.follower.read):
            pass
        if self.follower.has_rows:  # all that the last owners did; others may write on
            await self._plan()
        on_read()
        known = await self.follower.stop(shards)
        of = self.log, self.ledger, self.reader, leases, self.planner, on_read
        part, latest, faults = await self._through(partial(begin, *of, drain=self.drain))
        if known != (found := {shard: part.offsets[shard, BATCHES, 0] for shard in shards}):
            raise LedgerMismatch(
                f"the journals of shards {shards} end at {found}, and were followed to {known}"
            )
        self.metrics.began(faults)
        with self.memory.growing():
            await self.think(self.planner.take, leases, part)
        self.planner.ahead.pass_over((at, each.idle) for at, each in latest.items() if each.idle is not None)
        if self.planner.owns_all:
            await self.checkpoints.follow(self.planner, self.metrics.digest_mismatches.inc)
        positions = positions_of(part.offsets)
        self.committer.folded |= positions
        await self.intake.add(positions, latest)
        del self.holding.taken[: len(leases)]
        self.progress.step()
        self.begun.set()

    async def _give(self, shard: int) -> None:
        """Give a shard up when all that was decided for it is committed, and nothing is to be taken back."""
        await self._finish()
        while self._losers.keys:
            await self._plan()
            await self._finish()
        await self.intake.drop({shard})
        batches = await self.think(self.planner.give, [shard])
        await self.follower.resume(batches)
        with contextlib.suppress(Unavailable):  # it is renewed no more, and runs out
            await self.holding.release([shard])

    async def _through(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer: to start over would cost the shards that are held already, too."""
        backoff, now = Backoff(), asyncio.get_running_loop().time
        until = now() + BLIP_SECONDS
        while True:
            try:
                return await ask()
            except Unavailable as error:
                if now() >= until:
                    raise
                _LOGGER.warning("asking again for shards that were taken: %s", error)
            await backoff.wait()
