"""Moves: pods that were told to leave a hot node, so that what replaces them goes elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Set
from operator import attrgetter
from typing import NamedTuple

import msgspec

from domain.model.timestamps import NEVER_MS

_uid_and_shard = attrgetter("uid", "shard")  # the order of the ledger, in which a restart knows them


class Move(NamedTuple):
    """A pod that is to leave a hot node; a dry run found room for it on ``target``. ``shard`` is its own."""

    key: str
    uid: str
    shard: int
    target: str


class Relief(msgspec.Struct, frozen=True, kw_only=True):
    """The moves that one cycle decided for a hot node: its ``pods`` are to leave it.

    Those that have not left by ``expires_ms`` (log time) stay. Until ``rests_until_ms`` the node rests: there
    is no other relief of it. ``shard`` is the one that decided, and whose worker says when either is over.
    After a restart ``pods`` are those that are under way yet.
    """

    node: str
    shard: int
    at_ms: int
    expires_ms: int
    rests_until_ms: int
    pods: tuple[Move, ...]


class Moves:
    """All reliefs that are not over, of this worker and of others.

    Attributes
    ----------
    reliefs : dict
        Node -> its relief.
    under_way : dict
        Key of a pod that is to leave and counts on its node yet -> that node.
    """

    def __init__(self) -> None:
        self.reliefs: dict[str, Relief] = {}
        self.under_way: dict[str, str] = {}

    def begin(self, relief: Relief, pods: Iterable[Move]) -> None:
        """Begin a relief; of its ``pods`` these are still there."""
        assert relief.node not in self.reliefs, "a node has one relief"
        self.reliefs[relief.node] = relief
        self.under_way.update((pod.key, relief.node) for pod in pods)

    def left_on(self, node: str) -> list[Move]:
        """Return the pods that are to leave a node yet, by uid."""
        relief = self.reliefs.get(node)
        left = [pod for pod in relief.pods if self.under_way.get(pod.key) == node] if relief else []
        return sorted(left, key=_uid_and_shard)

    def targets(self) -> set[str]:
        """Return the nodes on which a dry run found room for pods that are to leave yet."""
        moving = (self.left_on(node) for node in set(self.under_way.values()))
        return {pod.target for pods in moving for pod in pods}

    def spare(self, node: str) -> list[Move]:
        """End the moves of a node; return those that were under way, by uid. The node goes on resting."""
        left = self.left_on(node)
        for pod in left:
            del self.under_way[pod.key]
        return left

    def end(self, node: str) -> None:
        """End a relief, and its moves."""
        self.spare(node)
        del self.reliefs[node]

    def due_ms(self, own: Set[int]) -> int:
        """Return the log time at which the next moves, or the next rest, of own shards are over.

        Cost: O(reliefs).
        """
        ends = [self._end_ms(relief) for relief in self.reliefs.values() if relief.shard in own]
        return min(ends, default=NEVER_MS)

    def _end_ms(self, relief: Relief) -> int:
        if self.left_on(relief.node):
            return relief.expires_ms
        return relief.rests_until_ms
