"""Which batch began and which ended each fact of a ledger in memory: its columns and tables of the past.

A batch is known by the position of its row in the journal; 0: it has none, or the fact is older.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from domain.model.nodes import NodeSpec
from services.ports.ledger import ConfigRow, PendingPod

Group = tuple[int, bytes]
"""Shard and signature of a group that waits."""


class SpecSet(NamedTuple):
    """A spec that a node got with a version: at which log time, when it was written, and who sent it."""

    position: int
    version: int
    spec: NodeSpec
    deleted: bool
    at_ms: int
    recorded_ms: int
    sent_by: str | None


class Waited(NamedTuple):
    """A pod that waited, from one batch to another."""

    pod: PendingPod
    added: int
    removed: int


class ObjectHeld(NamedTuple):
    """A configuration object as it was, from one batch to another."""

    row: ConfigRow
    set: int
    until: int


class Refused(NamedTuple):
    """There was a reason why a group waits, from one batch to another."""

    begun: int
    emptied: int


@dataclasses.dataclass
class PastTables:
    """What is kept of the past beside the tables of now."""

    specs: dict[int, list[SpecSet]] = dataclasses.field(default_factory=dict)
    pending_added: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    waited: list[Waited] = dataclasses.field(default_factory=list)
    config_set: dict[tuple[str, str, str], int] = dataclasses.field(default_factory=dict)
    objects: list[ObjectHeld] = dataclasses.field(default_factory=list)
    profiles_set: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    attempts_noted: dict[tuple[int, bytes, int], int] = dataclasses.field(default_factory=dict)
    groups_begun: dict[Group, int] = dataclasses.field(default_factory=dict)
    refused: dict[Group, list[Refused]] = dataclasses.field(default_factory=dict)

    def end_wait(self, key: tuple[str, int], pod: PendingPod, position: int) -> None:
        """Note that a batch removed a pod that waited."""
        self.waited.append(Waited(pod, self.pending_added.pop(key, 0), position))

    def end_object(self, key: tuple[str, str, str], row: ConfigRow, position: int) -> None:
        """Note that a batch changed or removed an object."""
        self.objects.append(ObjectHeld(row, self.config_set.pop(key, 0), position))

    def end_group(self, key: Group, position: int) -> None:
        """Note that the last pod of a group went."""
        self.refused.setdefault(key, []).append(Refused(self.groups_begun.pop(key, 0), position))

    def clear(self) -> None:
        """Forget all."""
        for table in vars(self).values():
            table.clear()
