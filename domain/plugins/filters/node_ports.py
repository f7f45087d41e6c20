"""NodePorts: a host port is held by one pod of a node at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import ClassVar

import numpy as np

from domain.model.marks import ports_asked, ports_held
from domain.model.pods import PodTemplate
from domain.plugins.base import OccupancyFilter, Reason
from domain.plugins.view import NodeView


class NodePorts(OccupancyFilter):
    """Refuse a node where a host port of the pod is taken.

    Two ports collide when number and protocol are equal and the addresses are equal or one of them is
    ``0.0.0.0``. Source: kube-scheduler plugin NodePorts.
    """

    name: ClassVar[str] = "NodePorts"
    reads: ClassVar[frozenset[str]] = frozenset({"host_ports"})
    phrases: ClassVar[Mapping[str, str]] = {"host-port-conflict": "have one of its ports in use"}
    reason: ClassVar[Reason] = Reason("host-port-conflict", unresolvable=False)

    def concerns(self, template: PodTemplate) -> bool:
        """See ``OccupancyFilter``."""
        return bool(template.host_ports)

    def counts(self, template: PodTemplate, view: NodeView) -> tuple[np.ndarray, np.ndarray]:
        """See ``OccupancyFilter``: 1 where any port is taken. Cost: O(nodes that hold one of its ports)."""
        rows = view.table.rows
        asked = (mark for port in template.host_ports for mark in ports_asked(port))
        nodes = set().union(*(view.nodes_with(mark) for mark in asked))
        found = [rows[node] for node in nodes if node in rows]
        return np.array(found, dtype=np.int64), np.ones(len(found), dtype=np.int64)

    def allowed(self, template: PodTemplate, view: NodeView) -> int:
        """See ``OccupancyFilter``."""
        return 1

    def held_by(self, template: PodTemplate) -> Iterable[Hashable]:
        """See ``OccupancyFilter``."""
        return (mark for port in template.host_ports for mark in ports_held(port))

    def asked_by(self, template: PodTemplate) -> Iterable[Hashable]:
        """See ``OccupancyFilter``."""
        return (mark for port in template.host_ports for mark in ports_asked(port))
