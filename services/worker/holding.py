"""Which shards a worker holds: it takes its share of them, renews its leases, and gives some up to others."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping

from domain.model.errors import Fenced, Unavailable
from services.log_limit import Outage
from services.ports.ledger import Lease, Ledger
from services.worker.faults import BatchStalled, Stalled
from services.worker.progress import Progress

_LOGGER = logging.getLogger(__name__)

UNWANTED_SECONDS = 0.5
"""A shard that nobody took for so long is taken by anybody, beyond its share."""

EXPIRED_SECONDS = 0.01
"""So long after a lease has run out, by what was asked before, it has for certain."""

GIVING_SECONDS = 1.0
"""A worker that holds too many shards gives one up, and the next one so much later."""


class Holding:
    """The shards of one worker. The loop begins with those that are ``taken``, and gives up the ``surplus``.

    Attributes
    ----------
    leases : dict of int to int
        Shard -> epoch, of all that are held.
    taken : list of Lease
        Held, and not begun with yet.
    surplus : int or None
        Held, and to be given up to a worker that has fewer.
    is_alone : bool
        Whether no other worker is ready.
    changed : asyncio.Event
        Set when there is something to take, to give or to follow.
    """

    def __init__(
        self, ledger: Ledger, name: str, lease_seconds: float, renewal_seconds: float, progress: Progress
    ) -> None:
        self._ledger, self._name, self._progress = ledger, name, progress
        self._lease_seconds, self._renewal_seconds = lease_seconds, renewal_seconds
        self._lock = asyncio.Lock()  # no lease is given back while it is renewed
        self._free_since: float | None = None  # and somebody may take one now
        self._free_in_seconds = math.inf
        self._gives_at = 0.0
        self.leases: dict[int, int] = {}
        self.taken: list[Lease] = []
        self.surplus: int | None = None
        self.is_alone = True
        self.changed = asyncio.Event()

    async def keep(self, shards_count: int) -> None:
        """Take, renew and offer shards until cancelled, for as long as the worker gets further.

        A ledger that is away is no reason to give up: nobody else gets further, and each commit checks the
        fence.
        """
        outage = Outage(_LOGGER, "renew the leases", asyncio.get_running_loop().time)
        while True:
            if self.leases and self._progress.is_late:
                fault = BatchStalled if self._progress.has_batch else Stalled
                raise fault("no step was done in time (BERTH_PROGRESS_SECONDS); giving the shards back")
            try:
                await self._renew()
                await self._balance(shards_count)
                outage.over()
            except Unavailable as error:
                self._progress.excuse()
                outage.failed(error)
            await asyncio.sleep(self._pause_seconds())

    def _pause_seconds(self) -> float:
        """Look again when a lease may have to be renewed, or when one of another worker runs out."""
        often_seconds = self._lease_seconds / 10
        if not self.leases or self._free_since is not None:
            return often_seconds
        return min(self._renewal_seconds, max(self._free_in_seconds + EXPIRED_SECONDS, often_seconds / 10))

    async def _renew(self) -> None:
        async with self._lock:
            leases = [Lease(*each) for each in sorted(self.leases.items())]
            if leases and not await self._ledger.renew(leases, self._lease_seconds):
                raise Fenced("the leases are no longer ours")

    async def _balance(self, shards_count: int) -> None:
        muster, now = await self._ledger.muster(), asyncio.get_running_loop().time()
        others = {who: held for who, held in muster.workers.items() if who != muster.me}
        self.is_alone = not others
        free = [shard for shard in muster.free if shard not in self.leases]
        self._free_in_seconds = muster.free_in_seconds
        if not free:
            self._free_since = None
        elif self._free_since is None:
            self._free_since = now
        is_unwanted = self._free_since is not None and now - self._free_since >= UNWANTED_SECONDS
        count = (
            len(free) if is_unwanted else share(len(self.leases), others.values(), len(free), shards_count)
        )
        if count:
            taken = await self._ledger.acquire(self._name, self._lease_seconds, free[:count])
            self.leases |= dict(taken)
            self.taken += taken
            if taken:
                self._progress.step()
                self.changed.set()
                _LOGGER.info("took shards %s", [f"{lease.shard}@{lease.epoch}" for lease in taken])
        elif (
            not (free or self.taken) and now >= self._gives_at and gives(len(self.leases), muster.me, others)
        ):
            self.surplus, self._gives_at = max(self.leases), now + GIVING_SECONDS
            self.changed.set()

    async def release(self, shards: Iterable[int]) -> None:
        """Give shards back. They are held no more, even where the ledger does not hear of it."""
        async with self._lock:
            leases = [Lease(shard, self.leases.pop(shard)) for shard in shards]
            self.surplus = None
            await self._ledger.release(leases)


def share(own_count: int, others: Collection[int], free_count: int, shards_count: int) -> int:
    """Return how many free shards to take now: who holds the fewest comes first, up to an equal share.

    ``others`` says how many shards each other worker holds.
    """
    if own_count > min(others, default=own_count):
        return 0
    equal = -(-shards_count // (len(others) + 1))
    return max(0, min(free_count, equal - own_count))


def gives(own_count: int, me: str, others: Mapping[str, int]) -> bool:
    """Say whether to give a shard up: another worker has two fewer, and of those who have most I am first."""
    if own_count - min(others.values(), default=own_count) < 2:
        return False
    return all(held < own_count or (held == own_count and me < who) for who, held in others.items())
