"""Workers that are up, and leases of shards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec


class Lease(NamedTuple):
    """Ownership of a shard. Writes with a lower epoch than the shard's are refused."""

    shard: int
    epoch: int


class Incarnation(msgspec.Struct, frozen=True, kw_only=True):
    """A worker since its process began; ``settings`` are those that decide, beside the log and the seed."""

    name: str
    build: str = ""
    seed: int = 0
    settings: Mapping[str, Any] = {}


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is getting on.

    Attributes
    ----------
    decisions_per_second : float
        Committed since the heartbeat before.
    moved, conflicts : int
        Pods that it placed since it began although others had changed their node, and that it could not.
    journal_seconds : float
        By how much it was behind what other workers did.
    """

    decisions_per_second: float = 0.0
    moved: int = 0
    conflicts: int = 0
    journal_seconds: float = 0.0


NO_FIGURES = Figures()


class Muster(NamedTuple):
    """The workers that are ready to take shards: incarnation -> how many it holds; ``me`` is the caller.

    ``free`` are the shards that the caller may take, its own included. ``free_in_seconds`` says when the
    next lease of another runs out, if it is not renewed. ``expired`` are those free shards that another
    worker did not release, but whose lease it let run out: shard -> the name of this worker.
    """

    me: str
    workers: Mapping[str, int]
    free: Sequence[int]
    free_in_seconds: float = math.inf
    expired: Mapping[int, str] = {}


class Workers(Protocol):
    """What a worker sees of the others, and how it takes shards and gives them back."""

    async def announce(self, worker: Incarnation, figures: Figures = NO_FIGURES, *, is_ready: bool) -> None:
        """Show others that this worker is up, how it gets on, and whether it is ready to take shards.

        To be repeated within ``heartbeat_seconds_max``; ``aclose`` ends it.
        """

    async def muster(self) -> Muster:
        """Return the workers that are ready to share the shards, and which of them are free."""

    async def acquire(
        self, owner: str, lease_seconds: float, shards: Sequence[int] | None = None
    ) -> Sequence[Lease]:
        """Take over shards whose owner is gone, each with the next epoch.

        Those of ``shards`` whose owner is gone; None: all shards or none.

        An owner is gone when its lease ran out by the ledger's clock, or when it released. Raising the epoch
        also sets it on the shard's offset rows, in the same transaction. A worker that took
        shards through this object may take them again. Returns nothing when there is nothing to take.
        """

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lease]:
        """Prolong the leases that the caller still holds, and return them. Waits for no commit."""

    async def release(self, leases: Sequence[Lease]) -> None:
        """Give the shards back, if they are still held with these epochs."""

    async def forget_owners(self, age_seconds: float, limit: int) -> int:
        """Delete owners whose time with a shard ended so long ago; return how many, ``limit`` at most.

        The present owner of a shard stays, also where its lease ran out and no worker has it since.
        """

    async def forget_workers(self, age_seconds: float, limit: int) -> int:
        """Delete workers that were not heard of for so long; return how many, ``limit`` at most.

        A worker that a lease names stays. One that was paused for so long announces itself anew.
        """
