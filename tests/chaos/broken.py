"""Runs a worker or a relay that is broken on purpose: ``python -m tests.chaos.broken BUILD worker``.

Each build breaks one promise, and a day with it must be named by the invariant that stands beside it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from services.adapters.postgres.ledger import PostgresLedger
from services.cli.main import main
from services.ports.journal import BATCHES
from services.ports.ledger import CommitBatch, Committed, NotCommitted
from tests.batches import batch_of, changed

_CHANCE = 0.2
replace = msgspec.structs.replace


def _offsets_apart() -> None:
    """Advance the offsets in a transaction of their own, and die between the two at times."""
    commit = PostgresLedger.commit

    async def apart(self: PostgresLedger, batch: CommitBatch) -> Committed | NotCommitted:
        read = [advance for advance in batch.offsets.advances if advance.topic != BATCHES]
        if read:
            outcome = await commit(self, batch_of(advances=read, log_time_ms=batch.offsets.log_time_ms))
            if isinstance(outcome, NotCommitted):
                return outcome
            if random.random() < _CHANCE:
                os.kill(os.getpid(), signal.SIGKILL)
        done = [a if a.topic == BATCHES else a._replace(lo=a.hi) for a in batch.offsets.advances]
        return await commit(self, changed(batch, advances=done))

    PostgresLedger.commit = apart  # type: ignore[method-assign]


class Broken(NamedTuple):
    """What a build does wrong, and the invariants of which one names it."""

    breaks: Callable[[], None]
    named: Sequence[str]


BUILDS = {
    "offsets-apart": Broken(_offsets_apart, ["LOST_POD", "OFFSET_GAP"]),
}

if __name__ == "__main__":
    build = sys.argv.pop(1)
    BUILDS[build].breaks()
    main()
