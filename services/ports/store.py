"""What the API asks of the ledger: a read-only port, and its few writes (event ids and keys)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Row = Mapping[str, Any]


class DecisionFilter(NamedTuple):
    """Which decisions to list; None means any. Times are log time in milliseconds."""

    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    outcome: str | None = None
    shard: int | None = None
    signature: bytes | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class PodFilter(NamedTuple):
    """Which pods to list; None means any. ``phase`` is ``bound`` or ``pending``."""

    namespace: str | None = None
    node: str | None = None
    phase: str | None = None


class Store(Protocol):
    """Reads of the ledger; every list is ordered by what its ``after`` names and holds at most ``limit``."""

    async def ping(self) -> None:
        """Return when the database answers; raise ``Unavailable`` otherwise."""

    async def resources(self) -> dict[int, str]:
        """Return the names of the resource dimensions by their position, from 1."""

    async def nodes(self, limit: int, after: str | None, name: str | None) -> Sequence[Row]:
        """Return live nodes with their current spec, by name; ``name`` keeps names that contain it."""

    async def node(self, name: str) -> Row | None:
        """Return one node, deleted ones included, or None."""

    async def usage(self, node: str) -> Row | None:
        """Return what is remembered of a node's measured usage (the fields of ``UsageRecord``), or None."""

    async def pods(self, which: PodFilter, limit: int, after: str | None) -> Sequence[Row]:
        """Return live pods, by uid."""

    async def pod(self, namespace: str, name: str) -> Row | None:
        """Return the live pod of this name (the latest, when there were several), or None."""

    async def pod_placements(self, namespace: str, name: str, limit: int) -> Sequence[Row]:
        """Return where pods of this name were, latest first."""

    async def decisions(
        self, which: DecisionFilter, limit: int, after: tuple[int, int] | None, newest_first: bool
    ) -> Sequence[Row]:
        """Return decisions by (seq, shard), each shard in its commit order."""

    async def decision(self, shard: int, seq: int) -> Row | None:
        """Return one decision or None."""

    async def cycle(self, shard: int, seq: int) -> Row | None:
        """Return one cycle or None."""

    async def pending(self, shard: int | None, signature: bytes | None = None) -> Sequence[Row]:
        """Return the groups of pending pods, of a shard or a signature if given, largest first."""

    async def shards(self) -> Sequence[Row]:
        """Return the shards with their owners, counters and how far the relay has come."""

    async def offsets(self) -> Sequence[Row]:
        """Return how far each shard has read."""

    async def deadletters(self, limit: int, after: tuple[int, int] | None) -> Sequence[Row]:
        """Return dead letters by (seq, shard), latest first."""

    async def profiles(self, limit: int, after: str | None) -> Sequence[Row]:
        """Return the last revision of the profiles that events have made, by name, deleted ones left out."""

    async def profile_revisions(self, name: str, limit: int, revision: int | None) -> Sequence[Row]:
        """Return the revisions that events have made of a profile, or the one asked for, latest first."""

    async def template(self, signature: bytes) -> Row | None:
        """Return the template of an equivalence group or None."""

    async def counts(self) -> Row:
        """Return the sizes that are worth a metric."""

    async def known_events(self, ids: Sequence[str]) -> set[str]:
        """Return which of these event ids were accepted before."""

    async def record_events(self, ids: Sequence[str]) -> None:
        """Remember accepted event ids; known ones are fine."""

    async def keys(self) -> Sequence[Row]:
        """Return the API keys, revoked ones included, without anything secret."""

    async def key_role(self, key_hash: bytes) -> str | None:
        """Return the role of a key that is not revoked, or None."""

    async def create_key(self, key_hash: bytes, name: str, role: str) -> None:
        """Add a key."""

    async def revoke_key(self, name: str) -> int:
        """Revoke all keys of this name; return how many there were."""

    async def aclose(self) -> None:
        """Release what the store holds."""
