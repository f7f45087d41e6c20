"""What agents and meters told of nodes, in memory: what the tables of the ledger on Postgres hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from services.ports.ledger import ActionRow, BatchCluster, UsageRow
from services.ports.store import ActionState


@dataclasses.dataclass
class MeasuredTables:
    """The usage of nodes, and what their agents did, in the order in which it was written."""

    usage: dict[str, UsageRow] = dataclasses.field(default_factory=dict)
    actions: list[ActionRow] = dataclasses.field(default_factory=list)

    def write(self, cluster: BatchCluster) -> None:
        """Write what a batch says."""
        for row in cluster.usage:
            self.usage.pop(row.record.node, None)
            if row.record.series:
                self.usage[row.record.node] = row
        self.actions += cluster.actions

    def latest(self, node: str | None, seen: Collection[str] | None, before: int | None) -> list[ActionState]:
        """Return actions, the latest first; their number counts from 1."""
        found = [
            ActionState(number, row)
            for number, row in enumerate(self.actions, 1)
            if node in (None, row.action.node)
            and (seen is None or not row.action.pod or row.action.pod.partition("/")[0] in seen)
            and (before is None or number < before)
        ]
        return found[::-1]
