"""The pods of each gang, placed or waiting."""

from __future__ import annotations

from collections.abc import Container, Mapping

from domain.state.pods import PodEntry


class GangMembers:
    """Which pods name which gang (as ``namespace/name``).

    ``changed`` are gangs with members that came, left or became others since the queue last emptied it.
    """

    def __init__(self) -> None:
        self._members: dict[str, dict[str, None]] = {}
        self.changed: dict[str, None] = {}

    def enter(self, gang: str, key: str) -> None:
        """Take a pod that names a gang; "" is none."""
        if gang:
            self._members.setdefault(gang, {})[key] = None
            self.changed[gang] = None

    def leave(self, gang: str, key: str) -> None:
        """Forget a pod of a gang."""
        if gang:
            members = self._members[gang]
            del members[key]
            if not members:
                del self._members[gang]
            self.changed[gang] = None

    def placed(
        self, gang: str, pods: Mapping[str, PodEntry], shards: Container[int]
    ) -> tuple[list[PodEntry], int]:
        """Return the members that have a node, of these shards, and how many others have one.

        Cost: O(members).
        """
        entries = [entry for key in self._members.get(gang, ()) if (entry := pods[key]).node]
        own = [entry for entry in entries if entry.shard in shards]
        return own, len(entries) - len(own)
