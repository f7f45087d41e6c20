"""The pods of each gang, placed or waiting."""

from __future__ import annotations

from collections.abc import Container, Mapping

from domain.model.config import GROUP_MARK
from domain.state.members import discard
from domain.state.pods import PodEntry


class GangMembers:
    """Which pods name which gang (as ``namespace/name``).

    ``changed`` are gangs with members that came, left or became others since the queue last emptied it.
    """

    def __init__(self) -> None:
        self._members: dict[str, dict[str, None]] = {}
        self._of_object: dict[str, dict[str, None]] = {}  # by PodGroup or Workload
        self.changed: dict[str, None] = {}

    def add_pod(self, gang: str, key: str) -> None:
        """Take a pod that names a gang; "" is none."""
        if gang:
            if gang not in self._members:
                self._members[gang] = {}
                self._of_object.setdefault(gang.partition(GROUP_MARK)[0], {})[gang] = None
            self._members[gang][key] = None
            self.changed[gang] = None

    def note_change(self, gang: str) -> None:
        """Have a gang looked at again; "" is none."""
        if gang:
            self.changed[gang] = None

    def forget_pod(self, gang: str, key: str) -> None:
        """Forget a pod of a gang."""
        if gang:
            discard(self._members, gang, key)
            if gang not in self._members:
                discard(self._of_object, gang.partition(GROUP_MARK)[0], gang)
            self.changed[gang] = None

    def of_object(self, name: str) -> list[str]:
        """Return the gangs with members of a PodGroup or a Workload (as ``namespace/name``)."""
        return [*self._of_object.get(name, ())]

    def placed(
        self, gang: str, pods: Mapping[str, PodEntry], shards: Container[int]
    ) -> tuple[list[PodEntry], int]:
        """Return the members that have a node, of these shards, and how many others have one.

        Cost: O(members).
        """
        entries = [entry for key in self._members.get(gang, ()) if (entry := pods[key]).node]
        own = [entry for entry in entries if entry.shard in shards]
        return own, len(entries) - len(own)
