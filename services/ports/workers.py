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


class ShadowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What came of comparing a shadow profile with the live ones: sums, so that those of workers add up.

    An attempt is one group of equal pods that had its turn in a cycle, by its first pod. Losses are in points
    of 0..100 of a profile's total.

    Attributes
    ----------
    attempts, pods : int
        Attempts compared, and the pods of those for which either profile finds a node.
    agreed, agreed_pods : int
        Those whose live node is among the best of the shadow profile.
    live_refused, shadow_refused : int
        Attempts whose live node the shadow profile refuses; whose shadow node the live profile refuses.
    only_live, only_shadow, neither : int
        Attempts for which the one, the other or no profile finds a node.
    shadow_loss_sum : float
        What the live nodes lack under the shadow profile, over ``shadow_rated`` attempts.
    live_loss_sum : float
        What the shadow profile's nodes lack under the live profile, over ``live_rated`` attempts.
    skipped, skipped_lagging : int
        Attempts not compared, as that had taken its share of time; as the worker was behind.
    """

    attempts: int = 0
    pods: int = 0
    agreed: int = 0
    agreed_pods: int = 0
    live_refused: int = 0
    shadow_refused: int = 0
    only_live: int = 0
    only_shadow: int = 0
    neither: int = 0
    shadow_rated: int = 0
    shadow_loss_sum: float = 0.0
    live_rated: int = 0
    live_loss_sum: float = 0.0
    skipped: int = 0
    skipped_lagging: int = 0

    def plus(self, other: ShadowCounts) -> ShadowCounts:
        """Return the sums of both."""
        names = self.__struct_fields__
        return ShadowCounts(**{name: getattr(self, name) + getattr(other, name) for name in names})


class ShadowFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The shadow profile of a worker: its revision in force, and the counts since that came into force.

    ``state`` is ``on``, ``unknown`` (there is no such profile) or ``failed`` (it was given up after a fault).
    """

    profile: str
    state: str
    revision: int = 0
    counts: ShadowCounts = ShadowCounts()


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
    shadow : ShadowFigures
        Where it has a shadow profile.
    """

    decisions_per_second: float = 0.0
    moved: int = 0
    conflicts: int = 0
    journal_seconds: float = 0.0
    shadow: ShadowFigures | msgspec.UnsetType = msgspec.UNSET


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

    async def renew_leases(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lease]:
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
