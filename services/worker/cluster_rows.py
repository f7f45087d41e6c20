"""Collects what a batch writes of nodes, of their usage, and of the configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from domain.colocation.pricing import BillLine, added
from domain.model.hosting import HostedChange
from domain.model.pods import PodSpec
from domain.state.changes import ConfigChanged, NodeMeasured, ProfileChanged
from domain.state.cluster import ClusterState
from services.ports.ledger import ActionRow, BatchCluster, ConfigRow, ProfileRow, Scale
from services.worker.ledger_rows import (
    config_row,
    gangs_placed,
    node_claims,
    node_facts,
    profile_row,
    usage_rows,
)


class ClusterRows:
    """What the state does not say of the nodes that a batch changes.

    Attributes
    ----------
    specs, measured : dict
        Nodes whose spec changed, and whose usage is to be written: the sender of the last event.
    strict : set
        Nodes of bound pods that ask for more than spec and room.
    hosted, scales
        What is said of hosted workloads, and what is to be published of it.
    """

    def __init__(self) -> None:
        self.specs: dict[str, str] = {}
        self.measured: dict[str, str] = {}
        self.strict: set[str] = set()
        self.actions: list[ActionRow] = []  # of agents
        self.hosted, self.scales = HostedChange(), list[Scale]()
        self._gangs: dict[str, int] = {}  # of which pods claim nodes: how many must keep theirs
        self._members: dict[str, list[str]] = {}  # the nodes of these pods
        self._profiles: list[ProfileRow] = []
        self._config: list[ConfigRow] = []
        self._bill: dict[tuple[int, str, str, str, str], BillLine] = {}
        self._unbilled = Counter[str]()

    def configure(self, change: ProfileChanged | ConfigChanged, at_ms: int, sent_by: str) -> None:
        """Write a profile or an object of the configuration."""
        if isinstance(change, ProfileChanged):
            self._profiles.append(profile_row(change.revision, at_ms, sent_by))
        else:
            self._config.append(config_row(change.object, at_ms, sent_by))

    def bill(self, change: NodeMeasured) -> None:
        """Bill what pods used by a measurement of the log."""
        for line in change.bill:
            before = self._bill.get(line[:5])
            self._bill[line[:5]] = line if before is None else added(before, line)
        self._unbilled.update(change.unbilled)

    def claim(self, pod: PodSpec, node: str) -> None:
        """Note that a pod of a gang claims a node."""
        if pod.template.gang:
            self._members.setdefault(pod.template.gang, []).append(node)

    def need(self, gangs: Mapping[str, int]) -> None:
        """Note how many pods of gangs must keep their nodes."""
        for name, needed_count in gangs.items():
            self._gangs[name] = max(needed_count, self._gangs.get(name, 0))

    def rows(self, state: ClusterState) -> BatchCluster:
        """Return the rows, but for the guards."""
        return BatchCluster(
            facts=node_facts(state, self.specs),
            claims=node_claims(state, self.strict),
            gangs=gangs_placed(self._gangs, self._members, state),
            usage=usage_rows(self.measured, state),
            actions=self.actions,
            profiles=self._profiles,
            config=self._config,
            bill=[line for _, line in sorted(self._bill.items())],
            unbilled=self._unbilled,
            hosted=self.hosted,
            scales=self.scales,
        )
