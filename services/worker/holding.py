"""Which shards a worker holds: it takes its share of them, renews its leases, and gives some up to others."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from domain.model.errors import Unavailable
from domain.model.limits import worker_seen_seconds_max
from services.log_limit import Outage
from services.ports.ledger import Lease, Ledger
from services.worker.faults import BatchStalled, Stalled
from services.worker.lease_judge import LeaseJudge
from services.worker.progress import Progress

_LOGGER = logging.getLogger(__name__)

UNWANTED_SECONDS = 0.5
"""A shard that stayed free for so long is taken by any worker, beyond its share."""

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
    lost : dict of int to str
        Held no more, and not left in memory yet: why.
    surplus : int or None
        Held, and to be given up to a worker that has fewer.
    is_alone : bool
        Whether no other worker is ready.
    changed : asyncio.Event
        Set when there is something to take, to give or to follow.
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        lease_seconds: float,
        renewal_seconds: float,
        progress: Progress,
        judge: LeaseJudge,
    ) -> None:
        self._ledger, self._name, self._progress, self._lease_judge = ledger, name, progress, judge
        self._lease_seconds, self._renewal_seconds = lease_seconds, renewal_seconds
        self._lock = asyncio.Lock()  # no lease is given back while it is renewed
        self._free_since: float | None = None  # since when a shard could be taken
        self._free_in_seconds = math.inf
        self._gives_at = 0.0
        self._renewed_at = 0.0
        self.leases: dict[int, int] = {}
        self.taken: list[Lease] = []
        self.lost: dict[int, str] = {}
        self.surplus: int | None = None
        self.is_alone = True
        self.changed = asyncio.Event()

    async def keep(self, shards_count: int) -> None:
        """Take, renew and offer shards until cancelled, for as long as the worker gets further.

        A ledger that is away is no reason to give up: no other worker gets further, and each commit
        checks the fence.
        """
        outage = Outage(_LOGGER, "renew the leases", asyncio.get_running_loop().time)
        while True:
            if (self.leases or self.lost) and self._progress.is_late:
                fault = BatchStalled if self._progress.has_batch else Stalled
                raise fault("no step was done in time (BERTH_PROGRESS_SECONDS); giving the shards back")
            try:
                await self._renew()
                await self._balance(shards_count)
                outage.over()
                await asyncio.sleep(self._pause_seconds())
            except Unavailable as error:
                self._lease_judge.failed()
                self._progress.excuse()
                outage.failed(error)
                await asyncio.sleep(self._lease_seconds / 10)

    def _pause_seconds(self) -> float:
        """Look again when a lease may have to be renewed, or when one of another worker runs out."""
        often_seconds = self._lease_seconds / 10
        if not self.leases or self._free_since is not None:
            return often_seconds
        return min(self._renewal_seconds, max(self._free_in_seconds + EXPIRED_SECONDS, often_seconds / 10))

    async def _renew(self) -> None:
        async with self._lock:
            leases = [Lease(*each) for each in sorted(self.leases.items())]
            if not leases:
                return
            held = await self._ledger.renew_leases(leases, self._lease_seconds)
            self._see(is_write=True)
            now = asyncio.get_running_loop().time()
            for shard, _ in set(leases).difference(held):
                seconds = now - self._renewed_at
                del self.leases[shard]
                self.taken = [lease for lease in self.taken if lease.shard != shard]
                self.surplus = None
                self.lost[shard] = (
                    f"another worker took it; this one had not renewed its lease for {seconds:.1f} s"
                )
                self.changed.set()
            self._renewed_at = now

    def _see(self, *, is_write: bool) -> None:
        if self._lease_judge.answered(is_write=is_write):
            self._progress.excuse()

    async def _balance(self, shards_count: int) -> None:
        muster, now = await self._ledger.muster(), asyncio.get_running_loop().time()
        self._see(is_write=False)
        others = {name: held for name, held in muster.workers.items() if name != muster.me}
        self.is_alone = not others
        free = [shard for shard in muster.free if not (shard in self.leases or shard in self.lost)]
        if not self._lease_judge.is_clear:  # a worker whose lease ran out had perhaps no ledger to renew it
            free = [shard for shard in free if shard not in muster.expired]
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
                self._renewed_at = now
                if not muster.expired.keys().isdisjoint(lease.shard for lease in taken):
                    self._gives_at = now + worker_seen_seconds_max  # until then its owner looks up, and idle
                self._progress.step()
                self.changed.set()
                _say_taken(taken, muster.expired)
        elif (
            not (free or self.taken) and now >= self._gives_at and gives(len(self.leases), muster.me, others)
        ):
            self.surplus, self._gives_at = max(self.leases), now + GIVING_SECONDS
            self.changed.set()

    async def release(self, shards: Iterable[int]) -> None:
        """Give shards back. They are held no more, even where the ledger does not hear of it."""
        async with self._lock:
            given = set(shards)
            leases = [Lease(shard, self.leases.pop(shard)) for shard in given & self.leases.keys()]
            self.taken = [lease for lease in self.taken if lease.shard not in given]
            self.surplus = None
            await self._ledger.release(leases)


def _say_taken(taken: Sequence[Lease], expired: Mapping[int, str]) -> None:
    """Log which shards were taken from which worker, as a warning where that one did not give them up."""
    from_owner: dict[str, list[int]] = {}
    for shard, _ in taken:
        from_owner.setdefault(expired.get(shard, ""), []).append(shard)
    for owner, shards in sorted(from_owner.items()):
        if owner:
            _LOGGER.warning("took over %s from worker %s, whose leases ran out", named(shards), owner)
        else:
            _LOGGER.info("took %s, which no worker held", named(shards))


def named(shards: Iterable[int]) -> str:
    """Return what some shards are called."""
    ordered = sorted(shards)
    return f"shard{'s' * (len(ordered) > 1)} {', '.join(map(str, ordered))}"


def share(own_count: int, others: Collection[int], free_count: int, shards_count: int) -> int:
    """Return how many free shards to take now: the worker with the fewest comes first, up to an equal share.

    ``others`` says how many shards each other worker holds.
    """
    if own_count > min(others, default=own_count):
        return 0
    equal = -(-shards_count // (len(others) + 1))
    return max(0, min(free_count, equal - own_count))


def gives(own_count: int, me: str, others: Mapping[str, int]) -> bool:
    """Say whether to give a shard up: another worker has two fewer, and of those with most this is first."""
    if own_count - min(others.values(), default=own_count) < 2:
        return False
    return all(held < own_count or (held == own_count and me < name) for name, held in others.items())
