"""The workers of a replay: each plans as the recorded one did, from what it had, and what it had followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from domain.model.errors import BerthError
from services.codec.feed import followed, unpack_feed
from services.ports.history import History, Scratch
from services.ports.journal import BATCHES, Checkpoint, Followed, JournalRow, Owned, Start
from services.ports.ledger import CommitBatch, Lease, LedgerBase
from services.ports.log import Record
from services.worker.planner import Planner


class CannotReplay(BerthError):
    """The span asked for cannot be replayed. The message says what is missing, and what can be."""

    code = "cannot-replay"


class _Coming(msgspec.Struct, kw_only=True):
    """A worker that begins later: how, which row says so, and where the ledger was as it knew it then."""

    start: Start
    owned: Sequence[Owned]
    position: int
    base_position: int


class Workers:
    """Planners of recorded workers over one ledger in memory.

    A worker's state is that of the ledger when the worker read it, and of all batches that it followed since.
    So a planner is made where the rows that it had not followed begin, folds the others' rows as they were
    recorded, and takes the shards when the recorded worker did.
    """

    def __init__(self, history: History, scratch: Scratch, checkpoint: Checkpoint) -> None:
        self._history, self._scratch, self._checkpoint = history, scratch, checkpoint
        self._planners: dict[str, Planner] = {}
        self._latest: Planner | None = None  # of the checkpoint's worker, until one of its rows comes
        self._positions: Mapping[str, tuple[int, int]] = {}  # of each worker's first and last row
        self._coming: list[_Coming] = []
        self._made: dict[int, Planner] = {}  # by the position of the row with which it begins

    async def expect(self, after: Mapping[int, int], until: Mapping[int, int]) -> None:
        """Find the workers that begin in a span, and those that end.

        Raises
        ------
        CannotReplay
            A worker had not followed all that the checkpoint holds.
        """
        self._positions = await self._history.positions(after, until)
        async for row in self._history.rows(after, until, starts=True):
            assert row.start is not None
            if row.begins_again and self._positions[row.worker][0] < row.position:
                continue  # it rested, and is known here
            owned = _changes(row, row.start)
            first = owned[0]
            known = {**first.followed, **_batches(first.offsets)}
            if lacks := sorted(shard for shard, batch in known.items() if batch < after.get(shard, 0)):
                raise CannotReplay(
                    f"{named(row)}: its worker began with less of shards {lacks} than the checkpoint holds"
                )
            behind = await self._history.position_behind(known)
            base_position = row.position if behind is None else min(behind, row.position)
            self._coming.append(
                _Coming(start=row.start, owned=owned, position=row.position, base_position=base_position)
            )

    async def begin(self) -> None:
        """Begin with the checkpoint: if its worker held all shards, it goes on without beginning anew.

        Raises
        ------
        CannotReplay
            Several workers go on: what they had in mind is not known.
        """
        start = self._checkpoint.start
        begun = {coming.position for coming in self._coming}
        going_on = sorted(worker for worker, (first, _) in self._positions.items() if first not in begun)
        if len(going_on) > 1:
            raise CannotReplay(f"the journal does not say how workers {', '.join(going_on)} began")
        if going_on:
            self._latest = planner_of(start, await self._scratch.load_base())
            leases = [Lease(*each) for each in sorted(start.leases.items())]
            await self._scratch.restart(start.leases, self._checkpoint.offsets)
            self._latest.take_shards(leases, await self._scratch.load_part(leases))

    async def plan(self, row: JournalRow, records: Sequence[Record]) -> tuple[Planner, CommitBatch]:
        """Plan a batch once more; return it with the planner of its worker.

        Raises
        ------
        CannotReplay
            The row says something else than the rows before it.
        """
        await self._make_bases(row.position)
        if not row.worker and row.followed:
            raise CannotReplay(
                f"{named(row)} was planned beside others, and its journal row does not name its worker"
            )
        planner = await self._planner_of(row)
        if row.renewed:
            planner.renew_queue()
        if self._positions[row.worker][1] <= row.position:
            del self._planners[row.worker]  # its memory is free for others
        rows = await self._rows(planner, row.followed)
        more: dict[str, Any] = {"is_recorded": True, "until_ms": row.log_time_ms}
        if (rest := unpack_feed(row.feed).rest) is not None:
            more["call"] = rest.call
        return planner, planner.plan_batch(records, row.forgotten, rows, **more)

    async def _make_bases(self, position: int) -> None:
        """Make the planners of workers that had followed all rows before a position, not all behind it."""
        for coming in [each for each in self._coming if each.base_position <= position]:
            self._coming.remove(coming)
            self._made[coming.position] = planner_of(coming.start, await self._scratch.load_base())

    async def _planner_of(self, row: JournalRow) -> Planner:
        changes = row.owned
        if row.begins_again and row.worker in self._planners:
            rested = changes[0]
            planner = self._planners[row.worker]
            known = {shard: at for shard, at in rested.followed.items() if shard not in planner.owned}
            planner.rest(await self._rows(planner, known))
        elif row.start is not None:
            changes = _changes(row, row.start)
            self._planners[row.worker] = self._made.pop(row.position)
        elif row.worker not in self._planners:
            if self._latest is None:
                raise CannotReplay(f"the journal does not say how the worker of {named(row)} began")
            self._planners[row.worker], self._latest = self._latest, None
        for change in changes:
            await self._own(row, change, changes[-1].leases)
        return self._planners[row.worker]

    async def _own(self, row: JournalRow, change: Owned, kept: Mapping[int, int]) -> None:
        """Let a worker take and give shards.

        What it gave before its next batch leaves no trace. What it took before a checkpoint is its own.
        """
        planner = self._planners[row.worker]
        rows = await self._rows(planner, {**change.followed, **_batches(change.offsets)})
        if rows and planner.plan((), (), rows) is not None:
            raise CannotReplay(f"{named(row)}: its worker did something before that is not in the journal")
        if given := planner.owned - change.leases.keys():
            planner.give_shards(given)
        taken = {shard for shard, *_ in change.offsets} & kept.keys() - planner.owned
        leases = [Lease(shard, epoch) for shard, epoch in sorted(change.leases.items()) if shard in taken]
        if leases:
            offsets = {(shard, topic, at): offset for shard, topic, at, offset in change.offsets}
            await self._scratch.restart(dict(leases), offsets)
            planner.take_shards(leases, await self._scratch.load_part(leases, gone=planner.lacks_gone))

    async def _rows(self, planner: Planner, until: Mapping[int, int]) -> list[Followed]:
        """Return the rows that a planner has still to follow up to these batches."""
        known = planner.followed
        wanted = {shard: batch for shard, batch in until.items() if batch > known.get(shard, batch)}
        if not wanted:
            return []
        rows = self._history.rows({shard: known[shard] for shard in wanted}, wanted)
        return [followed(row, unpack_feed(row.feed), self._scratch.templates) async for row in rows]


def _changes(row: JournalRow, start: Start) -> Sequence[Owned]:
    """Return how the worker of a row began; builds that knew one worker said so in ``start`` alone."""
    return row.owned or [Owned(leases=start.leases, offsets=start.offsets)]


def _batches(offsets: Iterable[tuple[int, str, int, int]]) -> dict[int, int]:
    return {shard: offset for shard, topic, _, offset in offsets if topic == BATCHES}


def planner_of(start: Start, base: LedgerBase) -> Planner:
    """Return a planner that began as a recorded one did, before it takes a shard."""
    return Planner(
        base,
        start.profiles,
        seed=start.seed,
        usage_window_seconds=start.usage_window_seconds,
        tombstone_hours=start.tombstone_hours,
        preempts=start.preempts,
        preemption_seconds=start.preemption_seconds,
        reservation_seconds=start.reservation_seconds,
        backoff_ms=start.backoff_ms,
        cycle_pods_max=start.cycle_pods_max,
        writers=start.writers,
        worker=start.worker,
        build=start.build,
    )


def named(row: JournalRow) -> str:
    """Return what a batch is called."""
    return f"batch {row.batch} of shard {row.shard}"
