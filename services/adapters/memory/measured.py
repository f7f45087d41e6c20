"""What agents and meters told of nodes, in memory: what the tables of the ledger on Postgres hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from domain.colocation.pricing import BillLine
from domain.colocation.pricing import added as added_line
from services.ports.ledger import ActionRow, BatchCluster, UsageRow
from services.ports.store import ActionState


@dataclasses.dataclass
class MeasuredTables:
    """The usage of nodes, what their agents did, in the order in which it was written, and the bill."""

    usage: dict[str, UsageRow] = dataclasses.field(default_factory=dict)
    actions: list[ActionRow] = dataclasses.field(default_factory=list)
    bill: dict[tuple[int, str, str, str, str], BillLine] = dataclasses.field(default_factory=dict)

    def write(self, cluster: BatchCluster) -> None:
        """Write what a batch says."""
        for row in cluster.usage:
            self.usage.pop(row.record.node, None)
            if row.record.series:
                self.usage[row.record.node] = row
        self.actions += cluster.actions
        for line in cluster.bill:
            known = self.bill.get(line[:5])
            self.bill[line[:5]] = line if known is None else added_line(known, line)

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
