"""What was said of hosted workloads, in memory: what the tables of the ledger on Postgres hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from domain.model.errors import LedgerMismatch
from domain.model.hosting import HostedChange, ReplicasSaid, WaitSaid
from services.ports.ledger import BatchCluster, Scale


@dataclasses.dataclass
class HostedTables:
    """What is said of each object, which pods wait, and each change of what is wanted in its order."""

    said: dict[tuple[str, str], ReplicasSaid] = dataclasses.field(default_factory=dict)
    waits: dict[tuple[int, str, str, str], WaitSaid] = dataclasses.field(default_factory=dict)
    scales: list[Scale] = dataclasses.field(default_factory=list)
    scale_seq: int = 0

    def check(self, cluster: BatchCluster) -> None:
        """Refuse what a unique constraint would refuse."""
        if cluster.scales and cluster.scales[0].seq <= self.scale_seq:
            raise LedgerMismatch("scales_pkey: a scale would be written twice")

    def write(self, cluster: BatchCluster) -> None:
        """Write what a batch says."""
        self.apply_change(cluster.hosted)
        self.scales += cluster.scales
        self.scale_seq = max([self.scale_seq, *(scale.seq for scale in cluster.scales)])

    def apply_change(self, change: HostedChange) -> None:
        """Take what was said."""
        self.said |= {(row.namespace, row.name): row for row in change.said}
        for at in change.gone:
            self.said.pop(at, None)
        for wait in change.waits:
            self.waits[wait[:4]] = wait
            if not wait.since_ms:
                del self.waits[wait[:4]]

    def shown(self, namespaces: Collection[str] | None) -> list[ReplicasSaid]:
        """Return what is said of the objects in some namespaces, None: in all, in their order."""
        return [self.said[at] for at in sorted(self.said) if namespaces is None or at[0] in namespaces]
