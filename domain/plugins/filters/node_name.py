"""NodeName: a pod that names its node goes there or nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.view import NodeView


class NodeName(StaticFilter):
    """Refuse every node but the one in ``spec.nodeName``, if the pod names one.

    Source: kube-scheduler plugin NodeName.
    """

    name: ClassVar[str] = "NodeName"
    reads: ClassVar[frozenset[str]] = frozenset({"node_name"})
    phrases: ClassVar[Mapping[str, str]] = {"node-name": "are not the node that it names"}
    reasons: tuple[Reason, ...] = (Reason("node-name", unresolvable=True),)

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        if not template.node_name:
            return None
        elsewhere: np.ndarray = rows != view.table.rows.get(template.node_name, -1)
        return elsewhere.astype(np.uint8)
