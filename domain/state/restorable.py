"""Takes back from the ledger what was folded before a restart."""

from __future__ import annotations

from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec
from domain.model.usage import UsageRecord
from domain.state.known_pods import KnownPods
from domain.state.occupancy import Occupancy
from domain.state.usage import UsageWindows


class Restorable:
    """What ``ClusterState`` restores. Nominations come as those of other workers do."""

    _occupancy: Occupancy
    _known: KnownPods
    _next_arrival: int
    usage: UsageWindows

    def restore_node(
        self, *, name: str, ordinal: int, version: int, spec: NodeSpec, spec_count: int = 1, deleted: bool
    ) -> None:
        """Restore a node from the ledger, before any pod."""
        entry = self._occupancy.meet(name)
        self._occupancy.number(entry, ordinal)
        entry.version, entry.spec_count = version, spec_count
        entry.spec = spec
        entry.resource_version = spec.resource_version
        if not deleted:
            self._occupancy.show(entry)

    def restore_pod(
        self,
        pod: PodSpec,
        *,
        node: str,
        adopted: bool,
        arrival: int = 0,
        shard: int = 0,
        counted: bool = True,
        placed_ms: int = 0,
    ) -> bool:
        """Restore a pod from the ledger. Waiting pods come in their order of arrival, and keep it.

        False: its key is that of a pod of another shard here, which stays. A key is in one shard, unless its
        producers chose the partitions.
        """
        if pod.key in self._known.entries:
            return False
        entry = self._known.enter(pod, arrival, shard)
        self._next_arrival = max(self._next_arrival, arrival + 1)
        if node:
            entry.placed_ms = placed_ms
            self._occupancy.place(entry, node, adopted=adopted, is_change=False)
            if not counted and (
                shard not in self._occupancy.own or self._occupancy.nodes[node].spec is not None
            ):
                self._occupancy.uncounted[pod.key] = node
        return True

    def restore_usage(self, record: UsageRecord) -> None:
        """Restore the measured usage of a node, after the pods that it covers and before later ones.

        That of a node that is gone was written by a worker which had not heard of its end yet.
        """
        entry = self._occupancy.nodes.get(record.node)
        is_known = entry is not None and entry.spec is not None
        if entry is not None and is_known and entry.deleted:
            return
        self.usage.restore(record, known=is_known)
        self._occupancy.measure(record.node, newer=True)
