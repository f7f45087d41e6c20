"""The loop of a worker: plan and commit batch after batch; between two, begin with shards and give some up.

While one batch commits, the next is planned on what the first one assumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from functools import partial
from typing import TypeVar

import msgspec

from domain.model.errors import Fenced, LedgerMismatch, Unavailable
from domain.model.limits import read_ahead_records_max
from services.backoff import Backoff
from services.ports.journal import BATCHES, Checkpoint, batch_offsets, positions_of
from services.ports.ledger import CommitBatch, Ledger
from services.ports.log import Log, LogReader, Record
from services.worker.beginning import begin
from services.worker.checkpoints import Checkpoints
from services.worker.collector import Memory
from services.worker.committing import Committer
from services.worker.follow.follower import Follower
from services.worker.holding import Holding
from services.worker.intake import Intake
from services.worker.lost_claims import LostClaims
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

CALL_SECONDS = 1.5
"""A worker that calls all others to rest waits at most this long for them and for the ledger's snapshot."""

REST_SECONDS = 2.0
"""A paused worker waits at most this long for the caller to go on; longer than CALL_SECONDS, so the snapshot
precedes its next commit."""


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
    _lost_claims: LostClaims = dataclasses.field(default_factory=LostClaims)
    _commit: asyncio.Task[None] | None = None
    _answered: int = -1  # the batch of shard 0 with which the last call to rest came
    _rests_until: float = 0.0  # nothing is committed before the caller goes on, or this moment
    _held: asyncio.Task[bool] | None = None  # nor before this has ended, as caller

    async def run(self) -> None:
        """Go on until cancelled."""
        try:
            while True:
                if self.holding.lost:
                    await self._lose()
                if self.holding.taken:
                    await self._take()
                if self.holding.surplus is not None:
                    await self._give(self.holding.surplus)
                if self._is_to_rest():
                    await self._rest()
                await self._plan(await self._read(), self.intake.due)
        finally:
            if self._held is not None:
                self._held.cancel()
                await asyncio.gather(self._held, return_exceptions=True)
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
        if self.planner.has_work or self._lost_claims.keys or self.follower.has_rows or self.holding.taken:
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
        if not waiting or self.planner.read_ahead.handed:
            return []
        rows = await self._through(partial(self.ledger.read_inbox, waiting, self.committer.records_max // 2))
        self.planner.forwarding.got(rows)
        return [row.record() for row in rows]

    async def _plan(self, records: Sequence[Record] = (), due: int = 0, call: int | None = None) -> None:
        """Plan a batch, and begin to commit it when the one before is in.

        ``due``: how many of the records that are held, and of these, it has at least. ``call``: it is
        written, whatever comes of it, and says that this worker rests behind it, as that batch asked.
        """
        if self._lost_claims.is_unsure or self._lost_claims.keys:
            # What is in flight was planned on pods that lost. Planned on that again, they would always lose.
            await self._finish()
        if self._lost_claims.keys:  # the faster worker's batch is in the journal
            with contextlib.suppress(Unavailable):
                await self.follower.read()
        followed, since = self.follower.take_batches()
        if not (records or followed or self.planner.has_work or self._lost_claims.keys or call is not None):
            if self._commit is not None and self._commit.done():
                self._commit.result()
            return
        if self.planner.owns_all and self.checkpoints.is_due(self.planner):
            await self._finish()
            if await self.checkpoints.begin_checkpoint(self._at(self.planner.start.leases)):
                self.planner.renew_queue()
        is_judged = self._commit is not None and not self._commit.done()
        self.planner.guards.confirm_raised(self._lost_claims.take_raised())
        plan: Callable[..., CommitBatch | None] = self.planner.plan
        more = {}
        if call is not None:
            plan, more = self.planner.plan_batch, {"call": call}
        began = asyncio.get_running_loop().time()
        with self.metrics.plan_seconds.time():
            batch = await self.progress.of_batch(
                self.think(plan, records, self._lost_claims.take_pods(), followed, due, **more)
            )
        refused, self.planner.ledger_view.refused_count = self.planner.ledger_view.refused_count, 0
        self.metrics.follow_refused.inc(refused)
        if followed:
            seconds = self.planner.ledger_view.follow_us / 1e6  # a plan begins with it
            self.metrics.followed(seconds, [began + seconds - each for each in since])
        self.progress.step()
        await self._finish()
        self.metrics.handed(self.planner.forwarding.waiting_counts())
        if batch is None:
            return
        if is_judged:
            batch = self._lost_claims.judge(batch)
        await self._until_caller_goes_on()
        commit = self.committer.commit(batch, self.progress, self._lost_claims)
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
        try:
            part, latest, faults = await self._through(partial(begin, *of, drain=self.drain))
        except Fenced:  # another worker took some of them meanwhile; nothing of them is in memory yet
            await self.intake.go_on()  # partitions of these shards may have been read again
            await self.follower.read_again(self.planner.followed)
            await self._let_go(shards)
            return
        if known != (found := {shard: part.offsets[shard, BATCHES, 0] for shard in shards}):
            raise LedgerMismatch(
                f"the journals of shards {shards} end at {found}, and were followed to {known}"
            )
        self.metrics.began(faults)
        with self.memory.growing():
            await self.think(self.planner.take_shards, leases, part)
        self.planner.read_ahead.pass_over(
            (at, each.idle) for at, each in latest.items() if each.idle is not None
        )
        if 0 in self.planner.owned:
            await self.checkpoints.follow(self.planner, self.metrics.digest_mismatches.inc)
        positions = positions_of(part.offsets)
        self.committer.folded |= positions
        await self.intake.add(positions, latest)
        self.holding.taken = [lease for lease in self.holding.taken if lease not in leases]
        self.progress.step()
        self.begun.set()

    async def _give(self, shard: int) -> None:
        """Give a shard up when all that was decided for it is committed, and nothing is to be taken back."""
        await self._settle()
        await self.intake.drop_shards({shard})
        await self._leave({shard})
        await self._let_go([shard])
        _LOGGER.info("gave shard %d to a worker that holds fewer", shard)

    async def _let_go(self, shards: Collection[int]) -> None:
        """Give leases back; where the ledger does not answer they are renewed no more, and run out."""
        with contextlib.suppress(Unavailable):
            await self.holding.release(shards)

    async def _lose(self) -> None:
        """Leave shards to the workers that took them. What was decided here meanwhile is none of it.

        Raises
        ------
        Fenced
            A batch was planned on what others have by now: nothing tells what of it to take back. Or batches
            were followed that build on what the shards' next owners did, which was not known here.
        """
        await self._finish()
        if self._lost_claims.keys:
            raise Fenced("shards were lost together with the outcome of a batch")
        lost = dict(self.holding.lost)
        begun = lost.keys() & self.planner.owned
        if begun:
            await self.intake.drop_shards(begun)
            await self._leave(begun)
            # What was read of others may build on what is read now: each comes in its turn.
            await self.follower.read_again(self.planner.followed)
            while (first := self.follower.first_of(begun)) is None:
                if not await self._through(self.follower.read):
                    break
            if first is not None and first < self.planner.position:
                raise Fenced("batches were followed that build on what the next owner of a lost shard did")
        for shard, why in sorted(lost.items()):
            del self.holding.lost[shard]
            _LOGGER.warning("lost shard %d: %s", shard, why)

    async def _settle(self) -> None:
        """Wait until all that was decided is committed, and nothing is to be taken back."""
        await self._finish()
        while self._lost_claims.keys:
            await self._plan()
            await self._finish()

    async def _leave(self, shards: Set[int]) -> None:
        """Forget what only the owner of these shards knows, and follow them."""
        batches = await self.think(self.planner.give_shards, shards)
        await self.follower.resume(batches)

    def _is_to_rest(self) -> bool:
        """Say whether to call the other workers to rest, as holder of shard 0, or whether it called."""
        owned = self.planner.owned
        if 0 in owned:
            return not self.planner.owns_all and self.checkpoints.is_due(self.planner)
        rest = self.follower.resting.get(0)
        return bool(owned) and rest is not None and rest.call != self._answered

    async def _rest(self) -> None:
        """Begin anew with all shards in memory, while no worker decides anything.

        All workers go on from what the ledger has of that moment, so a replay can begin there
        (docs/adr/0036).
        """
        now = asyncio.get_running_loop().time
        epochs, calls = dict(self.planner.start.leases), 0 in self.planner.owned
        until = now() + (CALL_SECONDS if calls else REST_SECONDS)
        asked = self.follower.resting.get(0)
        await self._settle()
        call = self.planner.batch + 1 if asked is None else asked.call
        await self._plan(call=call)
        await self._finish()
        if self._lost_claims.keys:  # then nothing says that it rests, and it is asked again
            return
        self._answered = call
        if calls:
            self.checkpoints.put_off(self.planner.batch)
        began = now()
        is_heard = await self._wait_for_others(call, epochs, until)
        if calls and is_heard:  # the next batch is planned while the state is being held
            self._held = asyncio.create_task(self.checkpoints.begin_checkpoint(self._at(epochs), until))
        elif calls:
            silent = sorted(set(range(self.planner.shards_count)) - epochs.keys())
            level = logging.WARNING if self.checkpoints.has_failed_twice else logging.INFO
            _LOGGER.log(level, "no checkpoint after batch %d: shards %s did not rest in time", call, silent)
        raised = self._lost_claims.take_raised()
        self.planner.guards.confirm_raised(raised)  # before what others did behind it
        await self.think(self.planner.rest, self.follower.take_until(0, call))
        self._rests_until = 0.0 if calls else until
        _LOGGER.info("rested for %.3f s after batch %d of shard 0", now() - began, call)

    def _at(self, epochs: Mapping[int, int]) -> Checkpoint:
        """Return where the ledger is by now, as caller, with the epochs of all shards."""
        planner = self.planner
        return Checkpoint(
            shard=0,
            batch=planner.batch,
            start=msgspec.structs.replace(planner.start, leases=epochs, offsets=[]),
            offsets={**planner.offsets(), **batch_offsets(self.follower.seen)},
        )

    async def _wait_for_others(self, call: int, epochs: dict[int, int], until: float) -> bool:
        """Wait until all rest; return whether they do. ``epochs`` takes the shards of those that rest.

        A worker that was called waits no longer than until the caller goes on.
        """
        while asyncio.get_running_loop().time() < until:
            self.progress.step()
            with contextlib.suppress(Unavailable):
                await self.follower.read()
            for rest in self.follower.resting.values():
                epochs |= rest.leases if rest.call == call else {}
            if len(epochs) == self.planner.shards_count:
                return True
            if 0 not in self.planner.owned and not self._rests_caller():
                return False
            await asyncio.sleep(self.follow_seconds)
        return False

    def _rests_caller(self) -> bool:
        caller = self.follower.resting.get(0)
        return caller is not None and caller.call == self._answered

    async def _until_caller_goes_on(self) -> None:
        """Hold the first batch behind a rest back: it is planned while the state of the ledger is held."""
        if self._held is not None:
            await asyncio.shield(self._held)
            self._held = None
        while self._rests_caller() and asyncio.get_running_loop().time() < self._rests_until:
            self.progress.step()
            with contextlib.suppress(Unavailable):
                await self.follower.read()
            await asyncio.sleep(self.follow_seconds)
        self._rests_until = 0.0

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
