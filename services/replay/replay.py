"""Plans a recorded span once more, with the worker's own planner, and compares it with the journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Set
from operator import itemgetter

import msgspec

from services.codec.feed import unpack_feed
from services.codec.settling import settle
from services.ports.history import History, Scratch
from services.ports.journal import BATCHES, Checkpoint, JournalRow, positions_of
from services.ports.ledger import CommitBatch, LedgerState
from services.ports.log import Log, LogReader
from services.replay.compare import Difference, difference
from services.replay.lost import Lost, is_behind_losses
from services.replay.tape import Tape
from services.replay.workers import CannotReplay as CannotReplay
from services.replay.workers import Workers, named


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


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found: the batches that are the same, and the first difference, if there is one."""

    progress: Progress
    difference: Difference | None


class Replay:
    """Replays batches ``first`` to ``last``; None: as far as journal, checkpoints and log reach.

    Parameters
    ----------
    scratch : callable
        Returns an empty ledger in memory that holds a state.
    report : callable
        Is told the progress after each batch.
    """

    def __init__(
        self,
        history: History,
        log: Log,
        scratch: Callable[[LedgerState], Scratch],
        report: Callable[[Progress], Awaitable[None]],
    ) -> None:
        self._history, self._log = history, log
        self._open, self._report = scratch, report

    async def run(self, first: int | None, last: int | None) -> Outcome:
        """Replay the span.

        Raises
        ------
        CannotReplay
            Nothing is recorded there, or no checkpoint lies before it.
        LogTooShort
            The log no longer has the records.
        """
        span = await self._history.span()
        if span is None:
            raise CannotReplay("the journal is empty: no batch was planned since it is kept")
        reader = await self._log.reader()
        try:
            end = span[1] if last is None else last
            if not (first or 1) <= end <= span[1]:
                asked = f"from {first or 1} to {end}"
                raise CannotReplay(f"there are no batches {asked}; the journal ends at {span[1]}")
            until = await self._history.ends(last)
            start = await self._start(first, end, span, until.keys(), reader)
            after = {shard: start.offsets.get((shard, BATCHES, 0), 0) for shard in until}
            progress = Progress(
                checkpoint=start.batch,
                first=max(first or 0, start.batch + 1),
                last=end,
                total=sum(max(0, until[shard] - after[shard]) for shard in until),
            )
            return await self._replay(
                start, Tape(reader, self._history, positions_of(start.offsets)), after, until, progress
            )
        finally:
            await reader.aclose()

    async def _start(
        self, first: int | None, last: int, span: tuple[int, int], shards: Set[int], reader: LogReader
    ) -> Checkpoint:
        """Return the checkpoint to begin at: the last one before the span, or the oldest of all."""
        checkpoints = [each for each in await self._history.checkpoints() if each.batch + 1 >= span[0]]
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
        usable = [each for each in served if each.batch < (first or last)]
        if usable and first is None:
            faults = await self._history.log_faults()
            return next((each for each in usable if is_behind_losses(each, faults)), usable[0])
        if usable:
            return usable[-1]
        why = list(lacks.values())[-1] if lacks else "no checkpoint lies before it"
        can = f"batches {served[0].batch + 1} to {span[1]} can be" if served else "no other batch can be"
        raise CannotReplay(f"batch {first or last} cannot be replayed: {why}; {can}")

    async def _replay(
        self,
        start: Checkpoint,
        tape: Tape,
        after: Mapping[int, int],
        until: Mapping[int, int],
        progress: Progress,
    ) -> Outcome:
        scratch = self._open(await self._history.state(start))
        workers = Workers(self._history, scratch, start)
        await workers.expect(after, until)
        await workers.begin()
        done, losses, begun = dict(after), dict[int, bool](), set[str]()
        lost = Lost(await self._history.log_faults(), start.start.leases)
        async for row in self._history.rows(after, until):
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
            planned = await workers.plan(row, await tape.take(row))
            batch = settle(planned, set(row.lost), row.moved, feed.raised)
            is_told = not (row.digest is None and (row.lost or losses.get(row.shard)))
            losses[row.shard] = bool(row.lost)
            found = await self._compare(row, batch, is_restart=row.worker in begun, is_digest_told=is_told)
            if found is not None:
                return Outcome(progress=progress, difference=found)
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
        return Outcome(progress=progress, difference=None)

    async def _compare(
        self, row: JournalRow, batch: CommitBatch, *, is_restart: bool, is_digest_told: bool
    ) -> Difference | None:
        assert batch.journal.row is not None
        recorded = await self._history.decisions(row.seqs)
        ordered = sorted(batch.decisions.made, key=lambda each: (each[0].shard, each[0].seq))
        replayed = list(map(itemgetter(1), ordered))
        return difference(
            row, batch.journal.row, recorded, replayed, is_restart=is_restart, is_digest_told=is_digest_told
        )


def _missing(shard: int, batch: int) -> str:
    of = f" of shard {shard}" if shard else ""
    return f"the journal has no row of batch {batch}{of}"
