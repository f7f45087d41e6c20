"""NodeUnschedulable: keep pods off cordoned nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from domain.model.nodes import Taint
from domain.model.pods import PodTemplate
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.tolerations import tolerated
from domain.plugins.view import NodeView

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(StaticFilter):
    """Refuse a node with ``spec.unschedulable`` unless the pod tolerates the cordon's taint.

    Source: kube-scheduler plugin NodeUnschedulable.
    """

    name: ClassVar[str] = "NodeUnschedulable"
    reads: ClassVar[frozenset[str]] = frozenset({"tolerations"})
    phrases: ClassVar[Mapping[str, str]] = {"node-unschedulable": "are cordoned"}
    reasons: tuple[Reason, ...] = (Reason("node-unschedulable", unresolvable=True),)

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        cordoned: np.ndarray = view.table.unschedulable[rows]
        if not cordoned.any() or tolerated(_CORDON, template.tolerations):
            return None
        return cordoned.astype(np.uint8)
