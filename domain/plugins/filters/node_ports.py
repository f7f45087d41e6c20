"""NodePorts: a host port is held by one pod of a node at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from domain.model.pods import HostPort, PodTemplate
from domain.plugins.base import OccupancyFilter, Reason
from domain.plugins.view import NodeView

_ANY_ADDRESS = ("0.0.0.0", "")


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
        """See ``OccupancyFilter``: 1 where any port is taken."""
        rows = view.table.rows
        found = [
            rows[node]
            for node, held in view.ports_held.items()
            if node in rows and _collide(template.host_ports, held)
        ]
        return np.array(found, dtype=np.int64), np.ones(len(found), dtype=np.int64)

    def allowed(self, template: PodTemplate, view: NodeView) -> int:
        """See ``OccupancyFilter``."""
        return 1

    def excludes(self, template: PodTemplate, other: PodTemplate) -> bool:
        """See ``OccupancyFilter``."""
        return _collide(template.host_ports, other.host_ports)


def _collide(ours: Iterable[HostPort], theirs: Iterable[HostPort]) -> bool:
    return any(_same(a, b) for a in ours for b in theirs)


def _same(a: HostPort, b: HostPort) -> bool:
    if a.host_port != b.host_port or a.protocol != b.protocol:
        return False
    return a.host_ip == b.host_ip or a.host_ip in _ANY_ADDRESS or b.host_ip in _ANY_ADDRESS
