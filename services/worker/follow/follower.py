"""Reads what other workers did, while batches are planned and committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from domain.model.errors import LedgerMismatch, Unavailable
from domain.model.limits import followed_rows_max
from services.backoff import Backoff
from services.log_limit import Outage
from services.ports.journal import Followed, Rest
from services.ports.ledger import Ledger

_LOGGER = logging.getLogger(__name__)

ALONE_SECONDS = 0.2
"""How often to look where no other worker is ready."""

_BUFFERED_MAX = 1_000


class Follower:
    """The batches of other workers that were read and not planned with yet, in the order of their positions.

    Parameters
    ----------
    seen : mapping of int to int
        Shard -> the last batch of its journal that is known, for all shards.
    is_alone : callable
        Says whether no other worker is ready.
    seconds : float
        How often to look where one is.
    on_rows : callable
        Is called whenever there is something new.

    Attributes
    ----------
    resting : dict of int to Rest
        Journals whose last row that was read says that its worker rests.
    """

    def __init__(
        self,
        ledger: Ledger,
        seen: Mapping[int, int],
        is_alone: Callable[[], bool],
        seconds: float,
        on_rows: Callable[[], None] = lambda: None,
    ) -> None:
        self._ledger, self._is_alone, self._seconds, self._on_rows = ledger, is_alone, seconds, on_rows
        self._seen = dict(seen)
        self.resting: dict[int, Rest] = {}
        self._reading = asyncio.Lock()
        self._rows: list[Followed] = []
        self._since: list[float] = []  # of each row, when it was not there yet
        self._asked_at = asyncio.get_running_loop().time()
        self._complete_at = asyncio.get_running_loop().time()
        self._taken = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled. A ledger that is away is reported elsewhere."""
        backoff = Backoff()
        outage = Outage(_LOGGER, "follow other workers", asyncio.get_running_loop().time)
        while True:
            try:
                await self.read()
            except Unavailable as error:
                outage.failed(error)
                await backoff.wait()
                continue
            outage.over()
            backoff.reset()
            while len(self._rows) >= _BUFFERED_MAX:
                self._taken.clear()
                await self._taken.wait()
            await asyncio.sleep(ALONE_SECONDS if self._is_alone() else self._seconds)

    async def read(self) -> bool:
        """Read what is new; return whether anything was."""
        async with self._reading:
            asked_at = asyncio.get_running_loop().time()
            if not self._seen:  # all shards are own: there is no other journal
                self._asked_at = self._complete_at = asked_at
                return False
            found = await self._ledger.follow(self._seen)
            if not found and not self._rows:
                self._complete_at = asked_at
            for row in found:
                self._seen[row.shard] = row.batch
                self.resting.pop(row.shard, None)
                if row.feed.rest is not None:
                    self.resting[row.shard] = row.feed.rest
            self._rows += found
            self._since += [self._asked_at] * len(found)
            if found:
                self._on_rows()
            if len(found) < followed_rows_max:
                self._asked_at = asked_at
            return bool(found)

    @property
    def seen(self) -> Mapping[int, int]:
        """The last batch that was read of each journal that is followed."""
        return self._seen

    @property
    def behind_seconds(self) -> float:
        """Since when something may have happened that no batch was planned with."""
        return asyncio.get_running_loop().time() - self._complete_at

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to plan with."""
        return bool(self._rows)

    def take_until(self, shard: int, batch: int) -> list[Followed]:
        """Return what was read before the journal of a shard had a batch later than this one."""
        end = next(
            (i for i, row in enumerate(self._rows) if row.shard == shard and row.batch > batch),
            len(self._rows),
        )
        taken, self._rows, self._since = self._rows[:end], self._rows[end:], self._since[end:]
        self._taken.set()
        return taken

    def take_batches(self) -> tuple[list[Followed], list[float]]:
        """Return what was read, and of each batch a time at which the ledger did not have it yet."""
        taken, self._rows, self._since = (self._rows, self._since), [], []
        self._complete_at = self._asked_at
        self._taken.set()
        return taken

    async def stop(self, shards: Sequence[int]) -> Mapping[int, int]:
        """Follow these shards no longer, as they are own; return the last batch of each.

        Raises
        ------
        LedgerMismatch
            There are more shards than there were when this worker began.
        """
        async with self._reading:
            if new := sorted(set(shards) - self._seen.keys()):
                raise LedgerMismatch(f"shards {new} came while this worker was up")
            for shard in shards:
                self.resting.pop(shard, None)
            return {shard: self._seen.pop(shard) for shard in shards}

    async def resume(self, batches: Mapping[int, int]) -> None:
        """Follow shards from these batches on."""
        async with self._reading:
            self._seen |= batches

    async def read_again(self, batches: Mapping[int, int]) -> None:
        """Follow these shards alone, from these batches on: forget what was read behind them."""
        async with self._reading:
            self._seen, self._rows, self._since = dict(batches), [], []
            self.resting.clear()
            self._taken.set()

    def first_of(self, shards: Collection[int]) -> int | None:
        """Return the position of the first batch of some shards that was read and not planned with."""
        return next((row.position for row in self._rows if row.shard in shards), None)
