"""Takes a checkpoint of the ledger now and then, and writes it while the worker goes on."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from domain.model.errors import BerthError, Fenced
from services.ports.journal import Checkpoint
from services.ports.ledger import Ledger
from services.worker.planner import Planner

_LOGGER = logging.getLogger(__name__)
_FIRST_TRY = 100  # where one cannot be taken, it is tried again after this part of the batches; then doubled


class Checkpoints:
    """Checkpoints of one worker: one every ``every`` batches of shard 0, of which ``kept`` stay; 0: none."""

    def __init__(self, ledger: Ledger, every: int, kept: int) -> None:
        self._ledger, self._every, self._kept = ledger, every, kept
        self._next = 0
        self._wait_batches = self._wait_least = 1 + every // _FIRST_TRY
        self._writing: asyncio.Task[None] | None = None

    async def follow(self, planner: Planner, alarm: Callable[[], None]) -> None:
        """Go on where the ledger's checkpoints end, as holder of shard 0.

        The worker of all shards compares what was read with the journal's digest. ``alarm`` is called where
        the ledger does not give the state that its last batch led to.
        """
        known = await self._ledger.journalled(planner.lead)
        last = None if known is None else known.checkpoint
        self._next = max(self._next, 0 if last is None else last + self._every)
        if known is None or known.digest is None or known.batch != planner.batch or not planner.owns_all:
            return
        found = planner.digest()
        if found != known.digest:
            alarm()
            _LOGGER.error(
                "the state read from the ledger has digest %s, but batch %d left %s: a row of the ledger "
                "was changed or lost since; berth goes on with what the ledger says",
                found,
                known.batch,
                known.digest,
            )

    def is_due(self, planner: Planner) -> bool:
        """Say whether it is time for the next one, of which the ledger's state is to be held."""
        is_writing = self._writing is not None and not self._writing.done()
        return bool(self._every) and planner.batch >= self._next and not is_writing

    async def begin_checkpoint(self, at: Checkpoint, until: float = math.inf) -> bool:
        """Hold the ledger's state, and begin to write it; return whether it is held.

        All that the ledger has been asked to commit is in it, and no worker commits before this returns, or
        before ``until`` (of the event loop's clock). What cannot be held or written is reported, and tried
        again some batches later.
        """
        now, held = asyncio.get_running_loop().time, asyncio.Event()

        def mark_held() -> None:
            if now() > until:
                raise Fenced("another worker may have gone on before the state of the ledger was held")
            held.set()

        self._next = at.batch + self._every
        self._writing = asyncio.create_task(self._write(at, mark_held))
        waiting = asyncio.create_task(held.wait())
        patience = None if until == math.inf else max(0.0, until - now())
        await asyncio.wait({self._writing, waiting}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not held.is_set() and not self._writing.done():
            self._writing.cancel()
            self.put_off(at.batch)
        return held.is_set()

    def put_off(self, batch: int) -> None:
        """Try again some batches after this one, and each time later."""
        self._next = batch + self._wait_batches
        self._wait_batches = min(2 * self._wait_batches, max(self._every, 1))

    @property
    def has_failed_twice(self) -> bool:
        """Whether it was put off again and again: once is nothing, as shards may be changing hands."""
        return self._wait_batches > 2 * self._wait_least

    async def _write(self, at: Checkpoint, hold: Callable[[], None]) -> None:
        try:
            await self._ledger.write_checkpoint(at, self._kept, hold)
            self._wait_batches = self._wait_least
        except BerthError as error:
            self.put_off(at.batch)
            _LOGGER.warning("no checkpoint after batch %d: %s", at.batch, error)

    async def aclose(self) -> None:
        """Leave a checkpoint that is being written unfinished."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
