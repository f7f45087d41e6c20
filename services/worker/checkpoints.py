"""Takes a checkpoint of the ledger now and then, and writes it while the worker goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from domain.model.errors import BerthError
from services.ports.journal import Checkpoint
from services.ports.ledger import Ledger
from services.worker.planner import Planner

_LOGGER = logging.getLogger(__name__)
_RETRIES = 100  # tries between two checkpoints, where one cannot be written


class Checkpoints:
    """Checkpoints of one worker: one every ``every`` batches, of which ``kept`` stay; 0: none."""

    def __init__(self, ledger: Ledger, every: int, kept: int) -> None:
        self._ledger, self._every, self._kept = ledger, every, kept
        self._next = 0
        self._writing: asyncio.Task[None] | None = None

    async def follow(self, planner: Planner, alarm: Callable[[], None]) -> None:
        """Go on where the ledger's checkpoints end, and compare what was read with the journal's digest.

        ``alarm`` is called where the ledger does not give the state that its last batch led to.
        """
        known = await self._ledger.journalled(planner.lead)
        last = None if known is None else known.checkpoint
        self._next = 0 if last is None else last + self._every
        if known is None or known.digest is None or known.batch != planner.batch:
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

    async def take_if_due(self, planner: Planner, commit: asyncio.Task[None] | None) -> None:
        """Hold the ledger's state before the next batch, if a checkpoint is due, and begin to write it.

        The state is that after the planner's last batch, so ``commit``, which writes it, is awaited before. A
        checkpoint that cannot be written is reported, and tried again some batches later.
        """
        is_writing = self._writing is not None and not self._writing.done()
        if not self._every or planner.batch < self._next or is_writing:
            return
        if commit is not None:
            await asyncio.shield(commit)
        self._next = planner.batch + self._every
        held = asyncio.Event()
        self._writing = asyncio.create_task(self._write(planner, held))
        waiting = asyncio.create_task(held.wait())
        await asyncio.wait({self._writing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if held.is_set():
            planner.renew()

    async def _write(self, planner: Planner, held: asyncio.Event) -> None:
        at = Checkpoint(
            shard=planner.lead, batch=planner.batch, start=planner.start, offsets=planner.offsets()
        )
        try:
            await self._ledger.write_checkpoint(at, self._kept, held.set)
        except BerthError as error:
            self._next = planner.batch + 1 + self._every // _RETRIES
            _LOGGER.warning("no checkpoint after batch %d: %s", at.batch, error)

    async def aclose(self) -> None:
        """Leave a checkpoint that is being written unfinished."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
