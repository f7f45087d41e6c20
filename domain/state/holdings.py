"""What pods hold besides resources: host ports of a node, and the role of a cluster's master."""

from __future__ import annotations

from typing import TypeVar

from domain.model.marks import PortMark, ports_held
from domain.model.pods import PodTemplate, is_master

K = TypeVar("K")


class Masters:
    """The masters of one cluster: how many exist, placed or waiting, and how many count on which node."""

    __slots__ = ("by_node", "count")

    def __init__(self) -> None:
        self.count = 0
        self.by_node: dict[str, int] = {}

    @property
    def waiting_count(self) -> int:
        """How many of the masters wait for a node."""
        return self.count - sum(self.by_node.values())


class Holdings:
    """Who holds what now.

    Attributes
    ----------
    ports : dict
        Mark of a host port -> node -> how many ports with it are held there.
    masters : dict
        Cluster -> its masters; a cluster without any is missing.
    """

    __slots__ = ("masters", "ports")

    def __init__(self) -> None:
        self.ports: dict[PortMark, dict[str, int]] = {}
        self.masters: dict[str, Masters] = {}

    def enter(self, template: PodTemplate) -> None:
        """Count a pod that begins to exist."""
        if is_master(template):
            self.masters.setdefault(template.cluster, Masters()).count += 1

    def leave(self, template: PodTemplate) -> None:
        """Stop counting a pod, which holds nothing on any node."""
        if is_master(template):
            masters = self.masters[template.cluster]
            masters.count -= 1
            if not masters.count:
                del self.masters[template.cluster]

    def change(self, before: PodTemplate, template: PodTemplate) -> None:
        """Give another template to a pod that exists and holds nothing on any node at the moment."""
        if (before.cluster, before.role) != (template.cluster, template.role):
            self.leave(before)
            self.enter(template)

    def hold(self, node: str, template: PodTemplate) -> None:
        """Count what the template of an existing pod holds on a node."""
        for port in template.host_ports:
            for mark in ports_held(port):
                _add(self.ports.setdefault(mark, {}), node, 1)
        if is_master(template):
            _add(self.masters[template.cluster].by_node, node, 1)

    def release(self, node: str, template: PodTemplate) -> None:
        """Undo ``hold``."""
        for port in template.host_ports:
            for mark in ports_held(port):
                held = self.ports[mark]
                _add(held, node, -1)
                if not held:
                    del self.ports[mark]
        if is_master(template):
            _add(self.masters[template.cluster].by_node, node, -1)


def _add(counts: dict[K, int], key: K, change: int) -> None:
    """Change a count, and drop the entry when it becomes 0."""
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
