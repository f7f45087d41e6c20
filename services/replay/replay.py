"""Plans a recorded span once more, with the worker's own planner, and compares it with the journal."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from operator import itemgetter

import msgspec

from services.ports.history import History, Scratch
from services.ports.ledger import LedgerState
from services.ports.log import Log
from services.replay.compare import Difference, difference
from services.replay.planning import Again, Planning
from services.replay.planning import Progress as Progress
from services.replay.workers import CannotReplay as CannotReplay


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
        Is told the progress before the first batch, and after each.
    """

    def __init__(
        self,
        history: History,
        log: Log,
        scratch: Callable[[LedgerState], Scratch],
        report: Callable[[Progress], Awaitable[None]],
    ) -> None:
        self._history, self._log = history, log
        self._planning = Planning(history, scratch, report)

    async def run(self, first: int | None, last: int | None) -> Outcome:
        """Replay the span.

        Raises
        ------
        CannotReplay
            Nothing is recorded there, or no checkpoint lies before it.
        LogTooShort
            The log no longer has the records.
        """
        end = await self._planning.end(first, last)
        reader = await self._log.reader()
        try:
            until = await self._history.ends(last)
            start = await self._planning.start(
                f"batch {first or end}",
                lambda checkpoint: checkpoint.batch < (first or end),
                until.keys(),
                reader,
                oldest=first is None,
            )
            progress = Progress(
                checkpoint=start.batch, first=max(first or 0, start.batch + 1), last=end, total=0
            )
            batches = self._planning.batches(start, until, reader, progress)
            async with contextlib.aclosing(batches):
                async for again in batches:
                    if (found := await compare(self._history, again)) is not None:
                        return Outcome(progress=progress, difference=found)
            return Outcome(progress=progress, difference=None)
        finally:
            await reader.aclose()


async def compare(history: History, again: Again) -> Difference | None:
    """Compare a batch, and all of its decisions, with what was recorded."""
    row, batch = again.row, again.batch
    assert batch.journal.row is not None
    recorded = await history.decisions(row.seqs)
    ordered = sorted(batch.decisions.made, key=lambda each: (each[0].shard, each[0].seq))
    replayed = list(map(itemgetter(1), ordered))
    return difference(
        row,
        batch.journal.row,
        recorded,
        replayed,
        is_restart=again.is_restart,
        is_digest_told=again.is_digest_told,
    )
