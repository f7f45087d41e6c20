"""NodeDeclaredFeatures: a pod that needs a feature of kubelet goes to nodes that declare it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.view import NodeView


class NodeDeclaredFeatures(StaticFilter):
    """Refuse a node that does not declare every feature that the pod needs.

    A pod needs ``RestartAllContainersOnContainerExits`` if a rule of a container restarts all of them, and
    ``UserNamespacesHostNetworkSupport`` if it is on the node's network with users of its own.
    Source: kube-scheduler plugin NodeDeclaredFeatures (Kubernetes 1.36, beta).
    """

    name: ClassVar[str] = "NodeDeclaredFeatures"
    reads: ClassVar[frozenset[str]] = frozenset({"features"})
    phrases: ClassVar[Mapping[str, str]] = {
        "node-declared-features": "do not declare a feature that it needs"
    }
    reasons: tuple[Reason, ...] = (Reason("node-declared-features", unresolvable=True),)

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``. Cost: O(rows) in Python, for the few pods that need a feature."""
        if not template.features:
            return None
        needed, specs = set(template.features), view.table.specs
        return np.array([not needed.issubset(specs[row].declared_features) for row in rows], dtype=np.uint8)
