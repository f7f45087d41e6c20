"""Plans the batches of a span once more, one after another, from the checkpoint at which it begins."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Set
from typing import NamedTuple

import msgspec

from services.codec.feed import unpack_feed
from services.codec.settling import settle_batch
from services.ports.history import History, Scratch
from services.ports.journal import BATCHES, Checkpoint, JournalRow, positions_of
from services.ports.ledger import CommitBatch, LedgerState
from services.ports.log import LogReader
from services.replay.lost import Lost, is_behind_losses
from services.replay.tape import Tape
from services.replay.workers import CannotReplay, Workers, named
from services.worker.planner import Planner


class Progress(msgspec.Struct, kw_only=True):
    """How far a replay is: ``batches_count`` of ``total`` batches of all shards' journals.

    ``checkpoint``, ``first`` and ``last`` number the batches of shard 0's journal.
    """

    checkpoint: int
    first: int
    last: int
    total: int
    shard: int = 0
    batch: int = 0
    batches_count: int = 0
    decisions_count: int = 0
    restarts_count: int = 0
    digests_count: int = 0


class Again(NamedTuple):
    """A batch that was planned once more, and is not written yet.

    Attributes
    ----------
    row : JournalRow
        As it was recorded.
    batch : CommitBatch
        As it was planned again, without the claims that the ledger had not granted.
    planner : Planner
        Of its worker, as it is behind the batch.
    is_restart, is_digest_told : bool
        As of ``compare.difference``.
    """

    row: JournalRow
    batch: CommitBatch
    planner: Planner
    is_restart: bool
    is_digest_told: bool


class Planning:
    """Plans recorded batches once more; see ``Replay`` for the parameters."""

    def __init__(
        self,
        history: History,
        scratch: Callable[[LedgerState], Scratch],
        report: Callable[[Progress], Awaitable[None]],
    ) -> None:
        self.history = history
        self._open, self._report = scratch, report

    async def end(self, first: int | None, last: int | None) -> int:
        """Return the last batch of a span of shard 0's journal; None: as far as it reaches.

        Raises
        ------
        CannotReplay
            There is no such span.
        """
        span = await self.history.span()
        if span is None:
            raise CannotReplay("the journal is empty: no batch was planned since it is kept")
        end = span[1] if last is None else last
        if not (first or 1) <= end <= span[1]:
            asked = f"from {first or 1} to {end}"
            raise CannotReplay(f"there are no batches {asked}; the journal ends at {span[1]}")
        return end

    async def start(
        self,
        what: str,
        is_before: Callable[[Checkpoint], bool],
        shards: Set[int],
        reader: LogReader,
        *,
        oldest: bool = False,
    ) -> Checkpoint:
        """Return the checkpoint to begin at: the last one before ``what``; with ``oldest`` the first one.

        Raises
        ------
        CannotReplay
            No checkpoint lies before it that the log still serves.
        """
        span = await self.history.span()
        if span is None:
            raise CannotReplay("the journal is empty: no batch was planned since it is kept")
        checkpoints = [each for each in await self.history.checkpoints() if each.batch + 1 >= span[0]]
        if not checkpoints:
            raise CannotReplay("there is no checkpoint yet; the first worker to hold all shards writes one")
        begins = await reader.first_offsets(
            sorted({at for each in checkpoints for at in positions_of(each.offsets)})
        )
        lacks: dict[int, str] = {}
        for each in checkpoints:
            if added := shards - {shard for shard, *_ in each.offsets}:
                lacks[each.batch] = f"shards {sorted(added)} were added since"
            for at, offset in sorted(positions_of(each.offsets).items()):
                if begins[at] > offset:
                    lacks[each.batch] = f"{at.topic}/{at.partition} begins at offset {begins[at]} by now"
        served = [each for each in checkpoints if each.batch not in lacks and each.batch < span[1]]
        usable = [each for each in served if is_before(each)]
        if usable and oldest:
            faults = await self.history.log_faults()
            return next((each for each in usable if is_behind_losses(each, faults)), usable[0])
        if usable:
            return usable[-1]
        why = list(lacks.values())[-1] if lacks else "no checkpoint lies before it"
        can = f"batches {served[0].batch + 1} to {span[1]} can be" if served else "no other batch can be"
        raise CannotReplay(f"{what} cannot be replayed: {why}; {can}")

    async def batches(
        self, start: Checkpoint, until: Mapping[int, int], reader: LogReader, progress: Progress
    ) -> AsyncGenerator[Again]:
        """Yield the batches from a checkpoint on, each before it is written to the scratch ledger.

        The progress is told once before the first of them, and behind each.

        Raises
        ------
        CannotReplay
            The journal lacks a batch, or one does not follow from the batches before it.
        LogTooShort
            The log no longer has the records.
        """
        after = {shard: start.offsets.get((shard, BATCHES, 0), 0) for shard in until}
        progress.total = sum(max(0, until[shard] - after[shard]) for shard in until)
        await self._report(progress)
        tape = Tape(reader, self.history, positions_of(start.offsets))
        scratch = self._open(await self.history.state(start))
        workers = Workers(self.history, scratch, start)
        await workers.expect(after, until)
        await workers.begin()
        done, losses, begun = dict(after), dict[int, bool](), set[str]()
        lost = Lost(await self.history.log_faults(), start.start.leases)
        async for row in self.history.rows(after, until):
            done[row.shard] += 1
            if row.batch != done[row.shard]:
                raise CannotReplay(f"{_missing(row.shard, done[row.shard])}; the next is {row.batch}")
            feed = unpack_feed(row.feed)
            if row.start is not None and not row.begins_again:
                progress.restarts_count += 1
                begun.add(row.worker)
            if why := lost.why_not(row):
                raise CannotReplay(
                    f"{named(row)} cannot be replayed: {why}; spans before or behind it can be"
                )
            planner, planned = await workers.plan(row, await tape.read_batch(row))
            batch = settle_batch(planned, set(row.lost), row.moved, feed.raised)
            is_told = not (row.digest is None and (row.lost or losses.get(row.shard)))
            losses[row.shard] = bool(row.lost)
            yield Again(row, batch, planner, row.worker in begun, is_told)
            if not await scratch.write(batch):
                raise CannotReplay(f"batch {row.batch} does not follow from the batches before it")
            progress.shard, progress.batch = row.shard, row.batch
            progress.batches_count += 1
            progress.decisions_count += len(batch.decisions.made)
            progress.digests_count += row.digest is not None
            await self._report(progress)
        for shard, last in until.items():
            if done[shard] < last:
                raise CannotReplay(_missing(shard, done[shard] + 1))


def _missing(shard: int, batch: int) -> str:
    of = f" of shard {shard}" if shard else ""
    return f"the journal has no row of batch {batch}{of}"
