"""Plans the batch of one decision once more, from the nearest checkpoint, and compares the decision."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from services.ports.history import History, Scratch
from services.ports.journal import Checkpoint, JournalRow, batches_of
from services.ports.ledger import LedgerState
from services.ports.log import Log
from services.replay.compare import Difference, decoded, difference
from services.replay.planning import Again, Planning, Progress
from services.replay.replay import compare
from services.replay.workers import CannotReplay, named

NOTHING = "nothing"


class Differing(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a decision's record that is not as it was recorded, by its path; "" is the whole record."""

    field: str
    recorded: str
    replayed: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a decision is planned again with the same bytes.

    Attributes
    ----------
    id : str
        Of the decision.
    shard, batch : int
        The batch that made it, by the shard in whose journal it is.
    progress : Progress
        From which checkpoint, and how many batches were planned for it.
    differing : sequence of Differing
        The fields of its record that differ; empty where the bytes are the same.
    was_changed : bool
        Whether the journal's hash has the decision as it was planned again: then its row was changed since.
    beside : Difference or None
        The first thing that differs in the batches on the way, or else in the decision's own batch.
    """

    id: str
    shard: int
    batch: int
    progress: Progress
    differing: Sequence[Differing]
    was_changed: bool = False
    beside: Difference | None = None

    @property
    def is_same(self) -> bool:
        """Whether nothing differs, neither of the decision nor of what it was planned from."""
        return not self.differing and self.beside is None


async def batch_of(history: History, shard: int, seq: int) -> JournalRow:
    """Return the row of the batch that made a decision.

    Raises
    ------
    CannotReplay
        There is no such decision, or the journal does not reach back to it.
    """
    row = await history.batch_of(shard, seq)
    if row is not None:
        return row
    if not await history.decisions({shard: (seq, seq + 1)}):
        raise CannotReplay(f"there is no decision {shard}-{seq}")
    span = await history.span()
    begins = "it is empty" if span is None else f"it begins with batch {span[0]} of shard 0"
    raise CannotReplay(f"the journal does not have the batch of decision {shard}-{seq}: {begins}")


class Verification:
    """Verifies single decisions; the parameters are those of ``Replay``."""

    def __init__(
        self,
        history: History,
        log: Log,
        scratch: Callable[[LedgerState], Scratch],
        report: Callable[[Progress], Awaitable[None]],
    ) -> None:
        self._history, self._log = history, log
        self._planning = Planning(history, scratch, report)

    async def run(self, shard: int, seq: int) -> Verified:
        """Plan a decision once more.

        Decisions of the batches on the way are compared by the journal's hash of them.

        Raises
        ------
        CannotReplay
            There is no such decision, or journal and checkpoints do not reach back to it.
        LogTooShort
            The log no longer has the records.
        """
        row = await batch_of(self._history, shard, seq)
        beside: Difference | None = None
        try:
            async with contextlib.aclosing(self.planned(row, f"{shard}-{seq}")) as batches:
                async for again, progress in batches:
                    if (again.row.shard, again.row.batch) == (row.shard, row.batch):
                        return await self._verified(again, shard, seq, progress, beside)
                    beside = beside or await self._beside(again)
        except CannotReplay as error:
            if beside is None:
                raise
            raise CannotReplay(f"{error}; before it batch {beside.batch} differs: {beside.what}") from None
        raise CannotReplay(f"{named(row)} is not in the journal any more")

    async def planned(self, row: JournalRow, name: str) -> AsyncGenerator[tuple[Again, Progress]]:
        """Yield the batches from the nearest checkpoint to a batch, each with the progress."""

        def is_before(checkpoint: Checkpoint) -> bool:
            return batches_of(checkpoint.offsets).get(row.shard, 0) < row.batch

        until = await self._history.ends(row.batch, row.shard)
        reader = await self._log.reader()
        try:
            what = f"decision {name}, of {named(row)},"
            start = await self._planning.start(what, is_before, until.keys(), reader)
            first, last = start.batch + 1, until.get(0, 0)
            progress = Progress(checkpoint=start.batch, first=first, last=last, total=0)
            batches = self._planning.batches(start, until, reader, progress)
            async with contextlib.aclosing(batches):
                async for again in batches:
                    yield again, progress
        finally:
            await reader.aclose()

    async def _verified(
        self, again: Again, shard: int, seq: int, progress: Progress, beside: Difference | None
    ) -> Verified:
        progress.shard, progress.batch = again.row.shard, again.row.batch
        progress.batches_count += 1
        recorded = await self._history.decisions({shard: (seq, seq + 1)})
        made = again.batch.decisions.made
        replayed = [payload for each, payload in made if (each.shard, each.seq) == (shard, seq)]
        if recorded and replayed:
            differing = list(_differing(recorded[0], replayed[0]))
        else:
            differing = [_record(recorded, replayed)]
        assert again.batch.journal.row is not None
        is_hashed = again.batch.journal.row.decisions_hash == again.row.decisions_hash
        if not differing and beside is None:
            beside = await self._beside(again)
        return Verified(
            id=f"{shard}-{seq}",
            shard=again.row.shard,
            batch=again.row.batch,
            progress=progress,
            differing=differing,
            was_changed=bool(differing) and is_hashed,
            beside=beside,
        )

    async def _beside(self, again: Again) -> Difference | None:
        """Return what differs of a batch: of its decisions the hash is enough, where that is the same."""
        made = again.batch.journal.row
        assert made is not None
        if made.decisions_hash != again.row.decisions_hash:
            return await compare(self._history, again)
        return difference(
            again.row, made, (), (), is_restart=again.is_restart, is_digest_told=again.is_digest_told
        )


def _record(recorded: Sequence[bytes], replayed: Sequence[bytes]) -> Differing:
    texts = [each[0].decode(errors="replace") if each else NOTHING for each in (recorded, replayed)]
    return Differing(field="", recorded=texts[0], replayed=texts[1])


def _differing(recorded: bytes, replayed: bytes) -> Iterator[Differing]:
    """Yield the fields in which two records differ; the whole of them where only their bytes do."""
    if recorded == replayed:
        return
    one, other = decoded(recorded), decoded(replayed)
    fields = list(_fields(one, other, "")) if one else []
    yield from fields or [_record([recorded], [replayed])]


def _fields(one: Any, other: Any, path: str) -> Iterator[Differing]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in {**one, **other}:
            below = f"{path}.{key}" if path else key
            yield from _fields(one.get(key, NOTHING), other.get(key, NOTHING), below)
    elif one != other:
        yield Differing(field=path, recorded=_shown(one), replayed=_shown(other))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
