"""MasterShare: the loss of one node must not cost a cluster most of its masters."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.marks import MasterMark
from domain.model.pods import PodTemplate, is_master
from domain.plugins.arguments import Arguments
from domain.plugins.base import OccupancyFilter, Reason
from domain.plugins.view import NodeView


class MasterShare(OccupancyFilter):
    """Refuse a node that already holds its share of the masters of the pod's cluster.

    A master is a pod with the labels ``berth.io/role: master`` and ``berth.io/cluster: <name>``; clusters of
    one name in two namespaces are two. Other pods pass everywhere. All existing masters of the cluster count,
    placed or waiting, with the pod itself. One is always allowed. When masters leave, the others stay where
    they are.

    Formula: refused where `masters of the cluster on the node >= max(1, floor(share / 100 * masters of the
    cluster))`.
    Arguments: ``share`` (percent, 0..100; default 50).
    Source: the machine filter of operations platforms by the share of a cluster's masters.
    """

    name: ClassVar[str] = "MasterShare"
    reads: ClassVar[frozenset[str]] = frozenset({"cluster", "role"})
    phrases: ClassVar[Mapping[str, str]] = {"master-share": "hold their share of its cluster's masters"}
    reason: ClassVar[Reason] = Reason("master-share", unresolvable=False)

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._percent = Arguments(args, path, ("share",)).number("share", 50.0, 0.0, 100.0)

    def concerns(self, template: PodTemplate) -> bool:
        """See ``OccupancyFilter``."""
        return is_master(template)

    def counts(self, template: PodTemplate, view: NodeView) -> tuple[np.ndarray, np.ndarray]:
        """See ``OccupancyFilter``: masters of the cluster."""
        rows, masters = view.table.rows, view.nodes_with(MasterMark(template.cluster))
        found = [(rows[node], count) for node, count in masters.items() if node in rows]
        where, counts = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return where, counts

    def allowed(self, template: PodTemplate, view: NodeView) -> int:
        """See ``OccupancyFilter``."""
        return self._allowed_of(_masters_count(template, view))

    def grows(self, template: PodTemplate, view: NodeView) -> bool:
        """See ``OccupancyFilter``."""
        count = _masters_count(template, view)
        return self._allowed_of(count + 1) > self._allowed_of(count)

    def held_by(self, template: PodTemplate) -> Iterable[Hashable]:
        """See ``OccupancyFilter``."""
        return (template.cluster,) if is_master(template) else ()

    asked_by = held_by

    def _allowed_of(self, count: int) -> int:
        return max(1, int(self._percent * count / 100.0))


def _masters_count(template: PodTemplate, view: NodeView) -> int:
    return view.pods_with(MasterMark(template.cluster))
